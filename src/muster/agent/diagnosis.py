"""From log records and probes to open faults: the parser and the fault assembly of one node, held together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from muster.agent.sources import Probe
from muster.faults import assembly
from muster.faults.assembly import Assembly, Sighting
from muster.read.kernel import Finding, KernelLogParser, to_sightings
from muster.resources.fault import Fault
from muster.resources.node_health import Gpu

STORM_RECORDS = 64
"""Smaller batches are read as they are."""
RESET_CHECK = "gpu-reset-marker"
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Diagnosis:
    """The open faults of one node, and what is needed to go on with them after a restart."""

    def __init__(self, boot_id: str, kept: bytes | None = None) -> None:
        """`kept` is what `document` gave; one that is not readable (of another version) is as good as none."""
        self._parser = KernelLogParser()
        self._state = assembly.start(boot_id, {})
        self._booted_at: datetime | None = None
        self.unreadable = 0
        """Records that the parser could not take; each is skipped."""
        if kept is not None:
            try:
                self._state = msgspec.json.decode(kept, type=Assembly)
            except msgspec.MsgspecError:
                pass

    def document(self) -> bytes:
        """Everything that must survive a restart, as JSON."""
        return msgspec.json.encode(self._state)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Open faults, sorted by key."""
        return assembly.open_faults(self._state)

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

    def read(self, records: Sequence[bytes], now: datetime) -> bool:
        """Take records of the kernel log. Returns whether a GPU was reset."""
        findings: list[Finding] = []
        for run, times in thin(records):
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
        if sightings:
            self._state, _ = assembly.observe(self._state, condense(sightings), now)

    def probe(self, probe: Probe, now: datetime) -> None:
        """Take the result of a probe: a fault, its end, or (unknown) nothing."""
        if probe.healthy is None:
            return
        if probe.healthy:
            self._state, _ = assembly.clear(self._state, probe.check, probe.entity.key(), now, probe.code)
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
        )
        self._state, _ = assembly.observe(self._state, (sighting,), now)

    def clean(self, fault: Fault, now: datetime) -> None:
        """A fresh reading of the monitor of `fault` finds its entity clean."""
        self._state, _ = assembly.clean(self._state, fault.check, fault.entity.key(), now)


def thin(records: Sequence[bytes]) -> list[tuple[Sequence[bytes], int]]:
    """A storm in fewer lines: runs of records, each with how often it stands for its text.

    Of a text that comes more than twice in the batch, the first and the last record are kept in their places; the
    last one, alone in its run, stands for all those between as well.
    """
    if len(records) < STORM_RECORDS:
        return [(records, 1)]
    texts = [record.partition(b";")[2] or record for record in records]
    total = Counter(texts)
    passed: Counter[bytes] = Counter()
    runs: list[tuple[Sequence[bytes], int]] = []
    plain: list[bytes] = []
    for record, text in zip(records, texts, strict=True):
        count = total[text]
        passed[text] += 1
        if count <= 2 or passed[text] == 1:
            plain.append(record)
        elif passed[text] == count:
            runs += [(plain, 1), ((record,), count - 1)]
            plain = []
    return [*runs, (plain, 1)]


def _times(finding: Finding, times: int) -> Finding:
    detection = finding.detection
    return dataclasses.replace(finding, detection=detection.changed(count=detection.count * times))


def condense(sightings: Iterable[Sighting]) -> list[Sighting]:
    """The same sightings in fewer values: of equal ones the first, and one more that counts for all the others.

    A storm then costs the assembly two steps per batch and fault, whatever its size.
    """
    first: dict[Sighting, Sighting] = {}
    rest: dict[Sighting, Sighting] = {}
    for sighting in sightings:
        kind = msgspec.structs.replace(sighting, at=_NO_TIME, count=0, message="")
        if kind not in first:
            first[kind] = sighting
            continue
        known = rest.get(kind)
        latest = sighting if known is None or sighting.at >= known.at else known
        count = sighting.count + (known.count if known is not None else 0)
        rest[kind] = msgspec.structs.replace(latest, count=count)
    return [*first.values(), *rest.values()]


def _reset_gpu(finding: Finding, state: Assembly) -> str | None:
    """The UUID of the GPU whose successful reset this tells, or None."""
    detection = finding.detection
    if detection.check != RESET_CHECK or detection.severity is not None:
        return None
    entity = detection.entity
    return entity.uuid or state.gpus.get(entity.pci or "")
