"""Records that tell the same fault twice become one: companions of an XID, both logs of one switch error."""

from __future__ import annotations

from collections.abc import Mapping

from muster.read.kernel.aggregate import Collector, Tracked
from muster.resources.fault import Entity, EntityKind, Severity

_RPC_XIDS = (119, 120)


def join(collector: Collector, uuids: Mapping[str, str]) -> int | None:
    """Join what belongs together, in place. Returns the number of devices whose probe failed, if the log tells it."""
    _name(collector, uuids)
    _off_bus(collector)
    _rate_limits(collector)
    _init_failures(collector)
    _switches(collector)
    for tracked in list(collector.listed()):
        if tracked.count == 0:
            tracked.count = tracked.companions
    return _probes(collector)


def _named(collector: Collector, check: str, code: int | str | None = None) -> list[Tracked]:
    return [t for t in collector.listed() if t.detection.check == check and code in (None, t.code)]


def _name(collector: Collector, uuids: Mapping[str, str]) -> None:
    """Give GPUs their UUID or address where another line told it."""
    addresses = {uuid: address for address, uuid in uuids.items()}
    for tracked in collector.faults.values():
        entity = tracked.detection.entity
        if entity.kind not in (EntityKind.GPU, EntityKind.NVLINK):
            continue
        pci = entity.pci or addresses.get(entity.uuid or "")
        uuid = entity.uuid or uuids.get(entity.pci or "")
        if (pci, uuid) != (entity.pci, entity.uuid):
            named = Entity(
                kind=entity.kind, pci=pci, uuid=uuid, link=entity.link, index=entity.index, port=entity.port
            )
            tracked.detection = tracked.detection.changed(entity=named)


def _off_bus(collector: Collector) -> None:
    """Xid 79 and the driver's plain words about one GPU are one fault; words without an address join the only one."""
    xids = _named(collector, "xid", 79)
    plain = _named(collector, "gpu-off-bus")
    for tracked in plain:
        same = [x for x in xids if x.gpu == tracked.gpu and x.host == tracked.host]
        if not same and tracked.gpu is None and len(xids) == 1:
            same = xids
        if same:
            same[0].absorb(tracked)
            collector.remove(tracked)
    with_address = [t for t in _named(collector, "gpu-off-bus") if t.gpu is not None]
    for tracked in _named(collector, "gpu-off-bus"):
        same = [
            t for t in with_address if t is not tracked and t.host == tracked.host and tracked.gpu in (None, t.gpu)
        ]
        if tracked.gpu is None and len(same) == 1:
            same[0].absorb(tracked)
            collector.remove(tracked)


def _rate_limits(collector: Collector) -> None:
    for tracked in _named(collector, "xid-companion"):
        for code in _RPC_XIDS:
            same = [x for x in _named(collector, "xid", code) if x.gpu == tracked.gpu and x.host == tracked.host]
            if same:
                same[0].absorb(tracked)
                collector.remove(tracked)
                break


def _init_failures(collector: Collector) -> None:
    """An attempt whose second line is missing joins the only device that failed."""
    failures = _named(collector, "gpu-init", "gpu-init-failed")
    unknown = [t for t in failures if t.gpu is None and t.about.get("minor") is None]
    known = [t for t in failures if t not in unknown]
    if len(known) == 1:
        for tracked in unknown:
            known[0].absorb(tracked, count=True)
            collector.remove(tracked)


def _switches(collector: Collector) -> None:
    """The kernel and the Fabric Manager log the same error of one switch port."""
    seen: dict[tuple[str | None, int | str | None, str, int], Tracked] = {}
    for tracked in _named(collector, "sxid"):
        entity = tracked.detection.entity
        port = entity.port if entity.kind is EntityKind.NVSWITCH_PORT else entity.link
        if entity.pci is None or port is None:
            continue
        key = (tracked.host, tracked.code, entity.pci, port)
        other = seen.setdefault(key, tracked)
        if other is not tracked and other.detection.entity.kind is not entity.kind:
            other.count = max(other.count, tracked.count)
            other.absorb(tracked)
            collector.remove(tracked)


def _probes(collector: Collector) -> int | None:
    """A failed probe follows from a GPU that is gone; it is a fault of its own only if nothing explains it."""
    probes = _named(collector, "gpu-init", "gpu-probe-failed")
    if not probes:
        return None
    failed = max(int(t.details["failed_devices"]) for t in probes)
    explained = [
        t for t in collector.listed() if t not in probes and t.gpu is not None and t.severity is Severity.FATAL
    ] + _named(collector, "gpu-init", "gpu-init-failed")
    if explained:
        for tracked in probes:
            collector.remove(tracked)
    return failed
