"""From log records and probes to open faults: the parser and the fault assembly of one node, held together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from muster.agent.sources import Probe
from muster.faults import assembly
from muster.faults.assembly import Assembly, Limits, Sighting
from muster.read.kernel import Finding, KernelLogParser, to_sightings
from muster.resources.fault import Fault
from muster.resources.node_health import Gpu, PastFault

STORM_RECORDS = 64
"""Smaller batches are read as they are."""
MAX_DETAILED = 32
"""Sightings of one fault with different details in one batch; a fault keeps fewer bursts than that."""
RESET_CHECK = "gpu-reset-marker"


class Diagnosis:
    """The open faults of one node, and what is needed to go on with them after a restart."""

    def __init__(
        self,
        boot_id: str,
        kept: bytes | None = None,
        *,
        limits: Limits | None = None,
        now: datetime | None = None,
    ) -> None:
        """`kept` is what `document` gave; one that is not readable (of another version) is as good as none.

        `now` begins the start-up grace.
        """
        self._parser = KernelLogParser()
        self._state = assembly.start(boot_id, {}, limits)
        self._booted_at: datetime | None = None
        self.unreadable = 0
        """Records that the parser could not take; each is skipped."""
        if kept is not None:
            try:
                known = msgspec.json.decode(kept, type=Assembly)
            except msgspec.MsgspecError:
                pass
            else:
                self._state = dataclasses.replace(known, limits=self._state.limits)
        if now is not None:
            self._state = assembly.begin_grace(self._state, now)

    def document(self) -> bytes:
        """Everything that must survive a restart, as JSON."""
        return msgspec.json.encode(self._state)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Open faults, sorted by key."""
        return assembly.open_faults(self._state)

    @property
    def recent(self) -> tuple[PastFault, ...]:
        """Faults that closed lately, oldest first."""
        return self._state.recent

    @property
    def stale_faults(self) -> tuple[Fault, ...]:
        """Open faults that a fresh clean reading would close, sorted by key."""
        return assembly.stale_faults(self._state)

    def know_node(self, boot_id: str, booted_at: datetime | None, gpus: Iterable[Gpu], now: datetime) -> None:
        """These are the boot and the GPUs now. What was said before a boot needs a fresh reading from then on."""
        if boot_id != self._state.boot_id:
            self._parser = KernelLogParser()
            self._state, _ = assembly.new_boot(self._state, boot_id, now)
        self._booted_at = booted_at
        by_pci = {gpu.pci: gpu.uuid for gpu in gpus if gpu.uuid}
        if by_pci != self._state.gpus:
            self._state, _ = assembly.identify(self._state, by_pci)

    def begin_grace(self, now: datetime) -> None:
        """Something was replaced below the monitors (the driver): what needs time to come up is given it."""
        self._state = assembly.begin_grace(self._state, now)

    def read(self, records: Sequence[bytes], now: datetime) -> bool:
        """Take records of the kernel log. Returns whether a GPU was reset."""
        findings: list[Finding] = []
        for run, times in thin(records, self._state.limits.burst_gap_s):
            found = self._parse(run)
            findings += found if times == 1 else [_times(finding, times) for finding in found]
        return self._take(findings, now)

    def _parse(self, records: Sequence[bytes]) -> Sequence[Finding]:
        try:
            return self._parser.feed(list(records))
        except Exception:  # a record that breaks the parser must not stop the monitor
            if len(records) == 1:
                self.unreadable += 1
                return ()
            return [finding for record in records for finding in self._parse((record,))]

    def finish_record(self, now: datetime) -> None:
        """The log is quiet: a record of several lines that is still open will get no more."""
        self._take(self._parser.flush(), now)

    def _take(self, findings: Sequence[Finding], now: datetime) -> bool:
        """Faults and resets in the order of the log: a reset says nothing about what comes after it."""
        reset = False
        pending: list[Finding] = []
        for finding in findings:
            uuid = _reset_gpu(finding, self._state)
            if uuid is None:
                pending.append(finding)
                continue
            self._see(pending, now)
            pending = []
            self._state, _ = assembly.gpu_reset(self._state, uuid, now)
            reset = True
        self._see(pending, now)
        return reset

    def _see(self, findings: Sequence[Finding], now: datetime) -> None:
        sightings = to_sightings(findings, now=now, booted_at=self._booted_at, boot_id=self._state.boot_id)
        self.see(sightings, now)

    def see(self, sightings: Sequence[Sighting], now: datetime) -> None:
        """Take what a monitor saw happen."""
        if sightings:
            short = condense(sightings, self._state.limits.burst_gap_s)
            self._state, _ = assembly.observe(self._state, short, now)

    def probe(self, probe: Probe, now: datetime) -> None:
        """Take the result of a probe: a fault, its end, or (unknown) nothing."""
        if probe.healthy is None:
            return
        if probe.healthy:
            key = assembly.entity_key(self._state, probe.entity)
            self._state, _ = assembly.clear(self._state, probe.check, key, now, probe.code)
            return
        sighting = Sighting(
            source=probe.source,
            check=probe.check,
            code=probe.code,
            entity=probe.entity,
            severity=probe.severity,
            scope=probe.scope,
            hint=probe.hint,
            message=probe.message,
            at=now,
            standing=True,
        )
        self._state, _ = assembly.observe(self._state, (sighting,), now)

    def clean(self, fault: Fault, now: datetime) -> None:
        """A fresh reading of the monitor of `fault` finds its entity clean."""
        self._state, _ = assembly.clean(self._state, fault.check, fault.entity.key(), now)

    def take_back(self, source: str, now: datetime) -> None:
        """Nobody watches for `source` any more."""
        for fault in self.faults:
            if fault.source == source:
                self._state, _ = assembly.take_back(self._state, fault.key(), now)

    def settle(self, now: datetime) -> None:
        """Time passed."""
        self._state, _ = assembly.settle(self._state, now)


def thin(records: Sequence[bytes], gap_s: float = 60.0) -> list[tuple[Sequence[bytes], int]]:
    """A storm in fewer lines: runs of records, each with how often it stands for its text.

    Of a text that comes more than twice within `gap_s` of the log's time, the first and the last record are kept in
    their places; the last one, alone in its run, stands for all those between as well.
    """
    if len(records) < STORM_RECORDS:
        return [(records, 1)]
    texts = [record.partition(b";")[2] or record for record in records]
    groups = _groups(records, texts, gap_s)
    total = Counter(groups)
    passed: Counter[tuple[bytes, int]] = Counter()
    runs: list[tuple[Sequence[bytes], int]] = []
    plain: list[bytes] = []
    for record, group in zip(records, groups, strict=True):
        count = total[group]
        passed[group] += 1
        if count <= 2 or passed[group] == 1:
            plain.append(record)
        elif passed[group] == count:
            runs += [(plain, 1), ((record,), count - 1)]
            plain = []
    return [*runs, (plain, 1)]


def _groups(records: Sequence[bytes], texts: Sequence[bytes], gap_s: float) -> list[tuple[bytes, int]]:
    """Each record's text and the number of its go, which lasts `gap_s` at most: so the first and the last record of
    each go are enough to tell where the text paused."""
    often = Counter(texts)
    begun: dict[bytes, tuple[int, int]] = {}
    found: list[tuple[bytes, int]] = []
    gap_us = int(gap_s * 1e6)
    for record, text in zip(records, texts, strict=True):
        number = 0
        if often[text] > 2:
            at = _microseconds(record)
            start, number = begun.setdefault(text, (at, 0))
            if at - start > gap_us:
                number += 1
                begun[text] = (at, number)
        found.append((text, number))
    return found


def _microseconds(record: bytes) -> int:
    """The time in the head of a kernel record (`priority,number,microseconds,...;`), or 0."""
    parts = record[:64].split(b",", 3)
    return int(parts[2]) if len(parts) == 4 and parts[2].isdigit() else 0


def _times(finding: Finding, times: int) -> Finding:
    detection = finding.detection
    return dataclasses.replace(finding, detection=detection.changed(count=detection.count * times))


def condense(sightings: Iterable[Sighting], gap_s: float = 60.0) -> list[Sighting]:
    """The same sightings in fewer values: equal ones that follow each other within `gap_s` become one with a count.

    A storm then costs the assembly few steps per batch and fault, whatever its size. A fault that tells other details
    each time (process numbers) keeps those of the first MAX_DETAILED; the rest only count.
    """
    kinds: dict[tuple[object, ...], list[Sighting]] = {}
    detailed: Counter[tuple[object, ...]] = Counter()
    for sighting in sightings:
        kind = _kind(sighting)
        if kind not in kinds and sighting.details:
            detailed[kind[:-1]] += 1
        if kind not in kinds and detailed[kind[:-1]] > MAX_DETAILED:
            sighting = msgspec.structs.replace(sighting, details={})
            kind = _kind(sighting)
        kinds.setdefault(kind, []).append(sighting)
    short: list[Sighting] = []
    gap = timedelta(seconds=gap_s)
    for same in kinds.values():
        same.sort(key=lambda s: (s.at, s.message))
        begins = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(same)) if b.began - a.at > gap), len(same)]
        short += [_as_one(same[first:end]) for first, end in pairwise(begins)]
    return short


def _kind(sighting: Sighting) -> tuple[object, ...]:
    """Equal for sightings that differ in time, words and number only. A companion (count 0) is a kind of its own."""
    s = sighting
    judged = (s.severity, s.scope, s.hint)
    more = (s.boot_id, s.clears, s.count > 0)
    return (s.source, s.check, s.code, s.entity, judged, more, tuple(sorted(s.details.items())))


def _as_one(same: Sequence[Sighting]) -> Sighting:
    if len(same) == 1:
        return same[0]
    since = min(sighting.began for sighting in same)
    return msgspec.structs.replace(same[-1], since=since, count=sum(sighting.count for sighting in same))


def _reset_gpu(finding: Finding, state: Assembly) -> str | None:
    """The UUID of the GPU whose successful reset this tells, or None."""
    detection = finding.detection
    if detection.check != RESET_CHECK or detection.severity is not None:
        return None
    entity = detection.entity
    return entity.uuid or state.gpus.get(entity.pci or "")
