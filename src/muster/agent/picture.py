"""The agent's picture of its node: readings and open faults, and the published value made of them.

No clock and no client in here: times are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from muster.agent.diagnosis import Diagnosis
from muster.agent.memory import Memory
from muster.agent.sources import NodeReadings
from muster.resources.fault import EntityKind, Fault
from muster.resources.fingerprint import Fingerprint, Reading, fingerprint
from muster.resources.node_health import Gpu, MonitorStatus, Observed

KERNEL_LOG = "kernel-log"
"""Source of the faults that the kernel log tells, and name of its monitor."""
_NEVER = datetime.min.replace(tzinfo=UTC)


class Picture:
    """What is known about the node now."""

    def __init__(self, readings: NodeReadings, kept: Memory | None, now: datetime) -> None:
        """Start with the first readings, and with what the agent before this one kept."""
        known = kept.observed if kept is not None else None
        self._boot_id = kept.boot_id if kept is not None else readings.boot_id
        self._gpus: tuple[Gpu, ...] = known.gpus if known is not None else ()
        self._most_gpus = kept.most_gpus if kept is not None else 0
        self._values = {reading.name: reading for reading in kept.readings} if kept is not None else {}
        self._diagnosis = Diagnosis(self._boot_id, kept.diagnosis.encode() if kept is not None else None)
        self._fingerprint: Fingerprint | None = None
        self._seen: NodeReadings | None = None
        self.readings = readings
        self.observed: Observed | None = known
        """The value that was offered to the API last."""
        self.update(readings, now)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self._diagnosis.faults

    @property
    def unreadable(self) -> int:
        """Log records that broke the parser and were skipped."""
        return self._diagnosis.unreadable

    def update(self, readings: NodeReadings, now: datetime) -> bool:
        """Take new readings. Returns whether the node has booted since the last ones."""
        if readings is self._seen:
            return False
        booted = readings.boot_id != self._boot_id
        if booted:
            self._boot_id = readings.boot_id
            self._values = {}
        self._gpus = tuple(self._complete(gpu) for gpu in readings.gpus)
        self._most_gpus = max(self._most_gpus, sum(1 for gpu in self._gpus if gpu.uuid))
        self._diagnosis.know_node(readings.boot_id, readings.booted_at, self._gpus, now)
        values = {reading.name: reading for reading in readings.readings}
        for name in readings.unread:
            if name in self._values:
                values[name] = self._values[name]
        self._values = values
        self._fingerprint = fingerprint(values.values())
        for probe in readings.probes:
            self._diagnosis.probe(probe, now)
        self._seen = self.readings = readings
        return booted

    def _complete(self, gpu: Gpu) -> Gpu:
        """A GPU whose UUID could not be read this time keeps the one that it had at the same address."""
        if gpu.uuid:
            return gpu
        uuid = next((old.uuid for old in self._gpus if old.pci == gpu.pci), "")
        return msgspec.structs.replace(gpu, uuid=uuid)

    def read_log(self, records: Sequence[bytes], now: datetime) -> bool:
        """Take records of the kernel log, in order. Returns whether a GPU was reset."""
        return self._diagnosis.read(records, now)

    def log_is_quiet(self, now: datetime) -> None:
        """Nothing was written for a moment: what was begun is complete."""
        self._diagnosis.finish_record(now)

    def log_is_clean(self, now: datetime) -> None:
        """The log is read to its end: what is open from before a boot or reset, and was not seen since, is over.

        That is the proof only for what can be seen to be there again.
        """
        for fault in self._diagnosis.stale_faults:
            if fault.source == KERNEL_LOG and self._is_present(fault):
                self._diagnosis.clean(fault, now)

    def _is_present(self, fault: Fault) -> bool:
        """Whether the thing at fault is in the inventory, or another one in its place."""
        entity = fault.entity
        if entity.kind not in (EntityKind.GPU, EntityKind.NVLINK):
            return True
        known = [gpu for gpu in self._gpus if gpu.uuid]
        if any(gpu.uuid == entity.uuid or gpu.pci == entity.pci for gpu in known):
            return True
        return len(known) >= max(1, self._most_gpus)

    def compose(self, node_uid: str, version: str, monitors: tuple[MonitorStatus, ...], now: datetime) -> Observed:
        """The value to publish. `observed_at` moves only when anything else did."""
        assert self._fingerprint is not None  # noqa: S101 - update made one
        at = self.observed.observed_at if self.observed is not None else now
        observed = Observed(
            observed_at=at,
            node_uid=node_uid,
            boot_id=self._boot_id,
            booted_at=self.readings.booted_at,
            agent_version=version,
            fingerprint=self._fingerprint,
            gpus=self._gpus,
            faults=self.faults,
            monitors=monitors,
        )
        if observed != self.observed:
            observed = msgspec.structs.replace(observed, observed_at=now)
        return observed

    def memory(self, cursor: str | None) -> Memory:
        """What the next agent on this node needs."""
        kept: tuple[Reading, ...] = tuple(self._values[name] for name in sorted(self._values))
        return Memory(
            boot_id=self._boot_id,
            cursor=cursor,
            diagnosis=self._diagnosis.document().decode(),
            readings=kept,
            most_gpus=self._most_gpus,
            observed=self.observed,
        )


def differs(before: Observed | None, after: Observed) -> bool:
    """Whether a state says something new, apart from counts, times and words of faults that are known already."""
    if before is None:
        return True
    return _still(before) != _still(after)


def _still(observed: Observed) -> Observed:
    faults = tuple(
        msgspec.structs.replace(fault, count=0, first_seen=_NEVER, last_seen=_NEVER, message="")
        for fault in observed.faults
    )
    return msgspec.structs.replace(observed, observed_at=_NEVER, faults=faults)
