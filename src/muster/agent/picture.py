"""The agent's picture of its node: readings and open faults, and the published value made of them.

No clock and no client in here: times are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from muster.agent.diagnosis import Diagnosis
from muster.agent.memory import Memory
from muster.agent.monitor import Look, NodeFacts
from muster.agent.sources import NodeReadings
from muster.faults.sighting import Limits
from muster.moments import is_recent
from muster.resources.fault import EntityKind, Fault
from muster.resources.fingerprint import Fingerprint, Reading, fingerprint
from muster.resources.node_health import Gpu, GpuAssignment, MonitorStatus, Notice, Observed, PastFault

KERNEL_LOG = "kernel-log"
"""Source of the faults that the kernel log tells, and name of its monitor."""
ASSIGNMENTS = "assignments"
"""Name of the monitor that tells which pods hold which GPUs."""
MAX_NOTICES = 64
MAX_ASSIGNMENTS = 512
"""What the NodeHealth has room for; one more, and the API server refuses all of it."""
BURST_NEWS = timedelta(minutes=1)
"""New bursts of known faults are news, but no more often than this."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_DRIVER = "driver.version"
GPUS = "gpu"
"""The reading that stands for all of the GPUs when they could not be read."""
_ALSO = {"module": "modules", "nvswitch": GPUS, "boot": "kernel", "system": "firmware"}
"""Groups of readings that are unread under the name of another one."""


class Picture:
    """What is known about the node now."""

    def __init__(
        self, readings: NodeReadings, kept: Memory | None, now: datetime, limits: Limits | None = None
    ) -> None:
        """Start with the first readings, and with what the agent before this one kept."""
        known = kept.observed if kept is not None else None
        self._boot_id = kept.boot_id if kept is not None else readings.boot_id
        self._gpus: tuple[Gpu, ...] = known.gpus if known is not None else ()
        self._most_gpus = kept.most_gpus if kept is not None else 0
        self._values = {reading.name: reading for reading in kept.readings} if kept is not None else {}
        document = kept.diagnosis.encode() if kept is not None else None
        self._diagnosis = Diagnosis(self._boot_id, document, limits=limits, now=now)
        self._notices: dict[str, tuple[Notice, ...]] = {}
        self._old_notices: tuple[Notice, ...] = known.notices if known is not None else ()
        self._assignments: tuple[GpuAssignment, ...] | None = known.assignments if known is not None else None
        self._assigned_by = ASSIGNMENTS
        self._monitors: dict[str, str] = dict(kept.monitors) if kept is not None else {}
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

    @property
    def facts(self) -> NodeFacts:
        """What monitors may know of the node."""
        return NodeFacts(boot_id=self._boot_id, booted_at=self.readings.booted_at, gpus=self._gpus)

    def update(self, readings: NodeReadings, now: datetime) -> bool:
        """Take new readings. Returns whether the node has booted since the last ones."""
        if readings is self._seen:
            return False
        booted = readings.boot_id != self._boot_id
        if booted:
            self._boot_id = readings.boot_id
            self._values = {}
        if readings.gpus or GPUS not in readings.unread:
            self._gpus = tuple(self._complete(gpu) for gpu in readings.gpus)
        self._most_gpus = max(self._most_gpus, sum(1 for gpu in self._gpus if gpu.uuid))
        self._diagnosis.know_node(readings.boot_id, readings.booted_at, self._gpus, now)
        values = {reading.name: reading for reading in readings.readings}
        for name in readings.unread:
            values = {k: r for k, r in self._values.items() if _is_below(k, name) and k not in values} | values
        if self._driver(values) != self._driver(self._values):
            self._diagnosis.begin_grace(now)
        self._values = values
        self._fingerprint = fingerprint(values.values())
        for probe in readings.probes:
            self._diagnosis.probe(probe, now)
        self._seen = self.readings = readings
        return booted

    def _driver(self, values: Mapping[str, Reading]) -> str:
        return values[_DRIVER].value if _DRIVER in values else ""

    def _complete(self, gpu: Gpu) -> Gpu:
        """A GPU whose UUID could not be read this time keeps the one that it had at the same address."""
        if gpu.uuid:
            return gpu
        uuid = next((old.uuid for old in self._gpus if old.pci == gpu.pci), "")
        return msgspec.structs.replace(gpu, uuid=uuid)

    def settle(self, now: datetime) -> None:
        """Time passed: what only waited for quiet is over, old history is dropped."""
        self._diagnosis.settle(now)

    # Monitors

    def know_monitors(self, names: Sequence[str], now: datetime) -> dict[str, str]:
        """These monitors run now. Returns what each kept; faults of one that runs no more are taken back."""
        for gone in sorted(self._monitors.keys() - set(names)):
            self._diagnosis.take_back(gone, now)
            self._old_notices = tuple(n for n in self._old_notices if not _is_of(n, gone))
        self._monitors = {name: self._monitors.get(name, "") for name in names}
        return dict(self._monitors)

    def keep_for(self, name: str, kept: str) -> None:
        """What the monitor wants kept."""
        self._monitors[name] = kept

    def take_look(self, name: str, look: Look, now: datetime) -> None:
        """Take what the monitor `name` saw at `now`."""
        self._diagnosis.see(look.sightings, now)
        for probe in look.probes:
            self._diagnosis.probe(probe, now)
        if not look.unknown:
            self._close_stale(name, look, now)
        if look.notices is not None:
            self._notices[name] = look.notices
            self._old_notices = tuple(n for n in self._old_notices if not _is_of(n, name))
        if look.assignments is not None:
            self._assignments, self._assigned_by = look.assignments, name
        elif name == self._assigned_by:
            self._assignments = None

    def missed_look(self, name: str) -> None:
        """The monitor `name` could not look: who holds which GPU now is not known any more. All else stands."""
        if name == self._assigned_by:
            self._assignments = None

    def _close_stale(self, name: str, look: Look, now: datetime) -> None:
        """A whole look: what stems from before a boot, reset or swap and was not told again is over."""
        told = {f"{probe.check}/{probe.code}/{probe.entity.key()}" for probe in look.probes}
        told |= {f"{seen.check}/{seen.code}/{seen.entity.key()}" for seen in look.sightings}
        for fault in self._diagnosis.stale_faults:
            if fault.source == name and fault.key() not in told and self._is_present(fault):
                self._diagnosis.clean(fault, now)

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
            recent=self._diagnosis.recent,
            notices=self._all_notices(),
            assignments=self._all_assignments(),
        )
        if observed != self.observed:
            observed = msgspec.structs.replace(observed, observed_at=now)
        return observed

    def _all_notices(self) -> tuple[Notice, ...]:
        everything = (*self._old_notices, *(n for name in sorted(self._notices) for n in self._notices[name]))
        unique = {(notice.source, notice.id): notice for notice in everything}
        return tuple(unique[key] for key in sorted(unique))[:MAX_NOTICES]

    def _all_assignments(self) -> tuple[GpuAssignment, ...] | None:
        if self._assignments is None:
            return None
        return tuple(sorted(self._assignments, key=lambda a: a.pod_uid))[:MAX_ASSIGNMENTS]

    def memory(self, cursor: str | None) -> Memory:
        """What the next agent on this node needs."""
        kept: tuple[Reading, ...] = tuple(self._values[name] for name in sorted(self._values))
        return Memory(
            boot_id=self._boot_id,
            cursor=cursor,
            diagnosis=self._diagnosis.document().decode(),
            readings=kept,
            most_gpus=self._most_gpus,
            monitors=self._monitors,
            observed=self.observed,
        )


def differs(before: Observed | None, after: Observed, now: datetime | None = None) -> bool:
    """Whether a state says something new, apart from counts, times and words of faults that are known already.

    With `now`, a new burst of a known fault and other words about a monitor are something new as well, if the last
    state is old enough.
    """
    if before is None:
        return True
    if _still(before) != _still(after):
        return True
    rested = now is not None and not is_recent(before.observed_at, now, BURST_NEWS)
    return rested and _told(before) != _told(after)


def _still(observed: Observed) -> Observed:
    faults = tuple(
        msgspec.structs.replace(fault, count=0, first_seen=_NEVER, last_seen=_NEVER, message="", bursts=())
        for fault in observed.faults
    )
    # The latest closed fault is enough: each closing brings a later one, and old ones only grow out.
    recent = tuple(
        PastFault(fault=msgspec.structs.replace(past.fault, bursts=()), closed_at=past.closed_at, closed_by="")
        for past in observed.recent[-1:]
    )
    monitors = tuple(msgspec.structs.replace(monitor, message="") for monitor in observed.monitors)
    return msgspec.structs.replace(observed, observed_at=_NEVER, faults=faults, recent=recent, monitors=monitors)


def _told(observed: Observed) -> tuple[object, ...]:
    """When the latest burst of each fault began, and what is said of the monitors."""
    begins = [(fault.key(), max((burst.at for burst in fault.bursts), default=_NEVER)) for fault in observed.faults]
    return (begins, observed.monitors)


def _is_below(name: str, unread: str) -> bool:
    """Whether `unread` is the reading, or the group of readings that it belongs to."""
    group = name.partition(".")[0]
    return name == unread or group == unread or _ALSO.get(group) == unread


def _is_of(notice: Notice, monitor: str) -> bool:
    return monitor == notice.source or monitor.endswith(f"-{notice.source}")
