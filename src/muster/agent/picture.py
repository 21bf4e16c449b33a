"""The agent's picture of its node: readings and open faults, and the published value made of them.

No clock and no client in here: times are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from muster.agent.diagnosis import Diagnosis
from muster.agent.memory import Memory
from muster.agent.sources import NodeReadings
from muster.resources.fault import Fault
from muster.resources.fingerprint import Fingerprint, Reading, fingerprint
from muster.resources.node_health import Gpu, MonitorStatus, Observed


class Picture:
    """What is known about the node now."""

    def __init__(self, readings: NodeReadings, kept: Memory | None, now: datetime) -> None:
        """Start with the first readings, and with what the agent before this one kept."""
        boot_id = kept.boot_id if kept is not None else readings.boot_id
        known = kept.observed if kept is not None else None
        self._boot_id = boot_id
        self._gpus: tuple[Gpu, ...] = known.gpus if known is not None else ()
        self._gpu_count_before = len(self._gpus)
        self._values = {reading.name: reading for reading in kept.readings} if kept is not None else {}
        self._diagnosis = Diagnosis(boot_id, readings.gpus, kept.diagnosis.encode() if kept is not None else None)
        self._fingerprint: Fingerprint | None = None
        self._seen: NodeReadings | None = None
        self.readings = readings
        self.observed: Observed | None = known
        """The value that was composed last."""
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
            self._gpu_count_before = len(self._gpus)
            self._values = {}
            self._diagnosis.new_boot(readings.boot_id, now)
        self._gpus = tuple(self._complete(gpu) for gpu in readings.gpus)
        self._diagnosis.know_gpus(self._gpus)
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

    def read_log(self, records: Sequence[bytes], now: datetime) -> None:
        """Take records of the kernel log, in order."""
        self._diagnosis.read(records, now)

    def log_is_read_to_its_end(self, now: datetime) -> None:
        """The proof that closes faults of earlier boots: this boot's inventory and log are read, and clean."""
        fresh = [fault for fault in self.faults if fault.boot_id == self._boot_id]
        for fault in self.faults:
            seen_again = any(other.check == fault.check and other.entity == fault.entity for other in fresh)
            if fault.boot_id != self._boot_id and not seen_again and self._is_present(fault):
                self._diagnosis.close(fault, now)

    def _is_present(self, fault: Fault) -> bool:
        """Whether the thing at fault can be seen, or was replaced: what is missing has not been seen clean."""
        entity = fault.entity
        if entity.uuid is None and entity.pci is None:
            return True
        if any(gpu.uuid == entity.uuid or gpu.pci == entity.pci for gpu in self._gpus):
            return True
        if entity.uuid is None and not entity.kind.value.startswith(("gpu", "nvlink")):
            return True
        return len(self._gpus) >= max(1, self._gpu_count_before)

    def compose(
        self, node_uid: str, version: str, monitors: tuple[MonitorStatus, ...], now: datetime
    ) -> Observed:
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
            observed=self.observed,
        )


def differs(before: Observed | None, after: Observed) -> bool:
    """Whether a state says something new, apart from counts and times of faults that are known already."""
    if before is None:
        return True
    return _still(before) != _still(after)


def _still(observed: Observed) -> Observed:
    faults = tuple(
        msgspec.structs.replace(fault, count=0, first_seen=observed.observed_at, last_seen=observed.observed_at)
        for fault in observed.faults
    )
    quiet = msgspec.structs.replace(observed, faults=faults)
    at = quiet.fingerprint
    return msgspec.structs.replace(quiet, fingerprint=at)
