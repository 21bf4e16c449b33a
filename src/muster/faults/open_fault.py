"""One open fault, and how two of one key become one: heavier judgement, later words, joined bursts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import msgspec

from muster.faults import bursts
from muster.faults.sighting import Limits, Sighting
from muster.resources.fault import BURST_LIMIT, Burst, Entity, EntityKind, Fault, Hint, Scope, Severity

OVERFLOW_CHECK = "agent"
OVERFLOW_CODE = "fault-overflow"
FLAPPING = "Flapping, kept open until it is quiet. "
"""Begins the message of a fault that is held open although it is well at the moment."""
_SEVERITIES = (Severity.INFO, Severity.UNKNOWN, Severity.WARNING, Severity.FATAL)
_HINTS = (Hint.NONE, Hint.RESTART_APP, Hint.INSPECT, Hint.RESET_GPU, Hint.REBOOT, Hint.REPLACE)
_SCOPES = tuple(Scope)


class Closed(StrEnum):
    """What proved that a fault is over; `PastFault.closed_by`."""

    HEALTHY = "healthy-reading"
    BOOT = "clean-after-boot"
    RESET = "clean-after-reset"
    GONE = "gpu-gone"
    TAKEN_BACK = "taken-back"


@dataclass(frozen=True, slots=True)
class OpenFault:
    fault: Fault
    stale: bool = False
    """From an older boot, a GPU that was reset, or one that is gone: the next clean reading closes it."""
    told: int = 1
    """Count at the last change that was reported, so that a storm is published a few times only."""
    why: str = ""
    """Why it is stale, as what its closing will be (`Closed`)."""
    flaps: bool = False
    """It closed too often in a short time: held open until it was well for some time."""
    calm_since: datetime | None = None
    """It flaps, and has been well since then."""
    calm_by: str = ""
    """What told that it is well (`Closed`): after an event nothing tells it again, so time alone ends the latch."""


def shown(item: OpenFault) -> Fault:
    """The fault as it is published."""
    if not item.flaps:
        return item.fault
    return msgspec.structs.replace(item.fault, message=FLAPPING + item.fault.message)


def as_fault(seen: Sighting) -> Fault:
    """A fault of one sighting."""
    count = max(1, seen.count)
    return Fault(
        source=seen.source,
        check=seen.check,
        code=seen.code,
        entity=seen.entity,
        severity=seen.severity,
        scope=seen.scope,
        hint=seen.hint,
        message=seen.message,
        count=count,
        first_seen=seen.began,
        last_seen=seen.at,
        boot_id=seen.boot_id,
        bursts=(Burst(at=seen.began, until=seen.at, count=count, details=seen.details),),
    )


def weight(fault: Fault) -> tuple[int, int, int]:
    return (_SEVERITIES.index(fault.severity), _HINTS.index(fault.hint), _SCOPES.index(fault.scope))


def merge(one: OpenFault, other: OpenFault, gap_s: float, count: int | None = None) -> OpenFault:
    """Both are the same fault. Severity, hint and scope are those of the heavier one; the message is the latest."""
    a, b = one.fault, other.fault
    heavier = a if weight(a) >= weight(b) else b
    later = max(a, b, key=lambda f: (f.last_seen, f.message))
    total = a.count + (b.count if count is None else count)
    worse = weight(heavier) > weight(a)
    fault = Fault(
        source=min(a.source, b.source),
        check=a.check,
        code=a.code,
        entity=max(a.entity, b.entity, key=_told),
        severity=heavier.severity,
        scope=heavier.scope,
        hint=heavier.hint,
        message=later.message,
        count=total,
        first_seen=min(a.first_seen, b.first_seen),
        last_seen=later.last_seen,
        boot_id=later.boot_id,
        bursts=a.bursts if count == 0 else bursts.join((*a.bursts, *b.bursts), gap_s),
    )
    told = total if worse or total >= 2 * one.told else one.told
    stale = one.stale and other.stale
    why = (one.why or other.why) if stale else ""
    return OpenFault(fault, stale=stale, told=told, why=why, flaps=one.flaps or other.flaps)


def seen_by(item: OpenFault, now: datetime) -> OpenFault:
    """The fault without times after `now`."""
    calm = min(item.calm_since, now) if item.calm_since is not None else None
    return replace(item, fault=fault_by(item.fault, now), calm_since=calm)


def fault_by(fault: Fault, now: datetime) -> Fault:
    """As `seen_by`."""
    if fault.last_seen <= now:
        return fault
    times = tuple(msgspec.structs.replace(b, at=min(b.at, now), until=min(b.until, now)) for b in fault.bursts)
    first = min(fault.first_seen, now)
    return msgspec.structs.replace(fault, first_seen=first, last_seen=now, bursts=times)


def _told(entity: Entity) -> tuple[int, str]:
    """How much an entity tells; of two names of one thing the fuller one is kept."""
    values = (entity.name, entity.uuid, entity.pci, entity.index, entity.link, entity.port, entity.device)
    return (sum(value is not None for value in values), str(values))


def bound(opened: dict[str, OpenFault], limits: Limits, boot_id: str) -> bool:
    """Keep at most `max_open` faults, the heaviest; say how many sightings had to give way. True: some did."""
    _bound_bursts(opened, limits)
    overflow = f"{OVERFLOW_CHECK}/{OVERFLOW_CODE}/{Entity(kind=EntityKind.NODE).key()}"
    room = max(1, limits.max_open)
    if len(opened) <= room:
        return False
    ranked = sorted(
        (key for key in opened if key != overflow),
        key=lambda key: (*(-part for part in weight(opened[key].fault)), key),
    )
    dropped = [opened.pop(key).fault for key in ranked[room:]]
    if not dropped:
        return False
    heaviest = max(dropped, key=weight)
    before = opened.get(overflow)
    severity = max(heaviest.severity, Severity.WARNING, key=_SEVERITIES.index)
    count, first = sum(item.count for item in dropped), min(item.first_seen for item in dropped)
    last = max(item.last_seen for item in dropped)
    fault = Fault(
        source=OVERFLOW_CHECK,
        check=OVERFLOW_CHECK,
        code=OVERFLOW_CODE,
        entity=Entity(kind=EntityKind.NODE),
        severity=severity,
        scope=Scope.NODE,
        hint=Hint.INSPECT,
        message=f"More than {room} faults are open; the mildest are not listed.",
        count=count,
        first_seen=first,
        last_seen=last,
        boot_id=boot_id,
        bursts=(Burst(at=first, until=last, count=count),),
    )
    item = OpenFault(fault, told=fault.count)
    gap_s = limits.burst_gap_s
    opened[overflow] = replace(merge(before, item, gap_s), stale=False) if before is not None else item
    return before is None or opened[overflow].told != before.told


def _bound_bursts(opened: dict[str, OpenFault], limits: Limits) -> None:
    """Many open faults share the room for bursts: the more there are, the fewer bursts each keeps."""
    if len(opened) * BURST_LIMIT <= limits.max_bursts:
        return
    each = max(1, limits.max_bursts // len(opened))
    for key, item in opened.items():
        if len(item.fault.bursts) > each:
            fewer = bursts.join(item.fault.bursts, limits.burst_gap_s, each)
            opened[key] = replace(item, fault=msgspec.structs.replace(item.fault, bursts=fewer))
