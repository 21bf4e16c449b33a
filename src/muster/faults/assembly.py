"""From sightings to the open faults of one node: dedupe, debounce, storm compression, closing by proof. Pure.

A fault closes only by proof: its monitor sees the healthy reading (`clear`), or it is stale and a fresh reading is
clean (`clean`). It becomes stale when the node booted anew, its GPU was reset, or its GPU is gone. Silence and a
failed probe close nothing.

    state = start(boot_id, {"0000:9b:00.0": "GPU-..."})
    state, changed = observe(state, sightings, now)
    state, changed = new_boot(state, boot_id, now)
    state, changed = clean(state, "xid", None, now)
    faults = open_faults(state)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from muster.resources.base import Model
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity

OVERFLOW_CHECK = "agent"
OVERFLOW_CODE = "fault-overflow"
_GPU_KINDS = (EntityKind.GPU, EntityKind.NVLINK)
_SEVERITIES = (Severity.INFO, Severity.UNKNOWN, Severity.WARNING, Severity.FATAL)
_HINTS = (Hint.NONE, Hint.RESTART_APP, Hint.INSPECT, Hint.RESET_GPU, Hint.REBOOT, Hint.REPLACE)
_SCOPES = tuple(Scope)


class Sighting(Model, frozen=True, kw_only=True):
    """One monitor saw one fault on one entity, `count` times (0: another record of a sighting already counted)."""

    source: str
    check: str
    code: str
    entity: Entity
    severity: Severity
    scope: Scope
    hint: Hint
    message: str = ""
    at: datetime
    """Aware, UTC."""
    count: int = 1
    boot_id: str = ""
    """Boot during which it was seen; empty: the current one."""
    clears: tuple[str, ...] = ()
    """`<check>/<code>` of faults on the same device that this takes back."""


class Debounce(Model, frozen=True, kw_only=True):
    """A fault of `check` (and `code`, if given) opens only after `times` sightings within `window_s` seconds."""

    check: str
    code: str = ""
    times: int = 2
    window_s: float = 60.0


class Limits(Model, frozen=True, kw_only=True):
    """Bounds and patience of the assembly."""

    max_open: int = 256
    """Open faults beyond this become one explicit overflow fault; the mildest give way first."""
    max_pending: int = 256
    """Debounced sightings that wait for their repetition."""
    debounce: tuple[Debounce, ...] = ()
    grace_s: float = 0.0
    """After the start or a boot, `grace_checks` open no fault for so long: services still come up."""
    grace_checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Open:
    fault: Fault
    stale: bool = False
    """From an older boot, a GPU that was reset, or one that is gone: the next clean reading closes it."""
    told: int = 1
    """Count at the last change that was reported, so that a storm is published a few times only."""


@dataclass(frozen=True)
class Assembly:
    """The state; a value. Mappings are never changed in place."""

    boot_id: str
    gpus: Mapping[str, str]
    """PCI address -> UUID."""
    limits: Limits
    open: Mapping[str, _Open] = field(default_factory=dict)
    pending: Mapping[str, tuple[Sighting, ...]] = field(default_factory=dict)
    grace_until: datetime | None = None


def start(
    boot_id: str, gpus: Mapping[str, str], limits: Limits | None = None, now: datetime | None = None
) -> Assembly:
    """An empty assembly. `gpus`: PCI address (`dddd:bb:dd.f`) -> UUID. `now` is needed for a start-up grace only."""
    chosen = limits or Limits()
    until = now + timedelta(seconds=chosen.grace_s) if now is not None and chosen.grace_s > 0 else None
    return Assembly(boot_id=boot_id, gpus=dict(gpus), limits=chosen, grace_until=until)


def observe(state: Assembly, sightings: Iterable[Sighting], now: datetime) -> tuple[Assembly, bool]:
    """Take in a batch of sightings, whatever their order.

    True: the open faults changed so that it is worth publishing (one opened, closed or got worse, or its count
    doubled). A storm of equal sightings only raises the count.
    """
    opened, pending = dict(state.open), dict(state.pending)
    changed = False
    for seen in sorted((_named(sighting, state, now) for sighting in sightings), key=_order):
        changed |= _clear_by(opened, seen)
        key = _key(seen)
        before = opened.get(key)
        if before is None:
            ready = _debounced(state, pending, key, seen, now)
            if not ready:
                continue
            opened[key] = _open(ready, state.boot_id)
            changed = True
        else:
            opened[key] = _again(before, seen, state.boot_id)
            changed |= opened[key].told != before.told or opened[key].stale != before.stale
    changed |= _bound(opened, state)
    return replace(state, open=opened, pending=pending), changed


def clear(
    state: Assembly, check: str, entity_key: str | None, now: datetime, code: str = ""
) -> tuple[Assembly, bool]:
    """The monitor of `check` sees the healthy reading of the entity (None: of all) at `now`: its faults close."""
    return _close(state, lambda item: item.fault.last_seen <= now and _is(item.fault, check, entity_key, code))


def clean(state: Assembly, check: str, entity_key: str | None, now: datetime) -> tuple[Assembly, bool]:
    """A fresh reading of `check` in the current boot is clean at `now`: what is stale closes, the rest stays open."""
    return _close(
        state,
        lambda item: item.stale and item.fault.last_seen <= now and _is(item.fault, check, entity_key, ""),
    )


def new_boot(state: Assembly, boot_id: str, now: datetime) -> tuple[Assembly, bool]:
    """The node booted. Faults of older boots become stale; they stay open until a fresh reading is clean."""
    if boot_id == state.boot_id:
        return state, False
    opened = {key: replace(item, stale=item.fault.boot_id != boot_id) for key, item in state.open.items()}
    until = now + timedelta(seconds=state.limits.grace_s) if state.limits.grace_s > 0 else None
    return replace(state, boot_id=boot_id, open=opened, pending={}, grace_until=until), False


def gpu_reset(state: Assembly, uuid: str, now: datetime) -> tuple[Assembly, bool]:
    """A GPU was reset successfully at `now`. Its faults become stale; the next clean reading closes them."""
    opened = {
        key: replace(item, stale=item.stale or (item.fault.entity.uuid == uuid and item.fault.last_seen <= now))
        for key, item in state.open.items()
    }
    return replace(state, open=opened), False


def identify(state: Assembly, gpus: Mapping[str, str]) -> tuple[Assembly, bool]:
    """The GPUs of the node are these. Faults get their UUIDs; those of a GPU that is gone become stale."""
    named = replace(state, gpus=dict(gpus))
    present = sorted(gpus.values())
    opened: dict[str, _Open] = {}
    for old in sorted(state.open):
        item = state.open[old]
        entity = _with_uuid(item.fault.entity, gpus)
        fault = msgspec.structs.replace(item.fault, entity=entity)
        gone = entity.kind in _GPU_KINDS and entity.uuid is not None and entity.uuid not in present
        moved = replace(item, fault=fault, stale=item.stale or gone)
        key = fault.key()
        opened[key] = _merge(opened[key], moved) if key in opened else moved
    return replace(named, open=opened), sorted(opened) != sorted(state.open)


def open_faults(state: Assembly) -> tuple[Fault, ...]:
    """The open faults, sorted by key."""
    return tuple(state.open[key].fault for key in sorted(state.open))


def stale_faults(state: Assembly) -> tuple[Fault, ...]:
    """The open faults that only wait for a fresh clean reading, sorted by key."""
    return tuple(state.open[key].fault for key in sorted(state.open) if state.open[key].stale)


def _order(sighting: Sighting) -> tuple[datetime, str, str, str]:
    return (sighting.at, _key(sighting), sighting.severity.value, sighting.message)


def _key(sighting: Sighting) -> str:
    return f"{sighting.check}/{sighting.code}/{sighting.entity.key()}"


def _named(sighting: Sighting, state: Assembly, now: datetime) -> Sighting:
    """The sighting with what the state knows; a time in the future is a wrong clock and becomes `now`."""
    return msgspec.structs.replace(
        sighting,
        entity=_with_uuid(sighting.entity, state.gpus),
        at=min(sighting.at, now),
        count=max(0, sighting.count),
        boot_id=sighting.boot_id or state.boot_id,
    )


def _with_uuid(entity: Entity, gpus: Mapping[str, str]) -> Entity:
    if entity.kind not in _GPU_KINDS or entity.uuid is not None or entity.pci is None or entity.pci not in gpus:
        return entity
    return msgspec.structs.replace(entity, uuid=gpus[entity.pci])


def _clear_by(opened: dict[str, _Open], seen: Sighting) -> bool:
    """Close what the sighting takes back on its device. True: something closed."""
    closed = False
    for cleared in seen.clears:
        for key in [
            k for k, item in opened.items() if _kind(item.fault) == cleared and _same_device(item.fault, seen)
        ]:
            if opened[key].fault.last_seen <= seen.at:
                del opened[key]
                closed = True
    return closed


def _kind(fault: Fault) -> str:
    return f"{fault.check}/{fault.code}"


def _same_device(fault: Fault, seen: Sighting) -> bool:
    mine, other = fault.entity, seen.entity
    if mine.uuid is not None and other.uuid is not None:
        return mine.uuid == other.uuid
    return mine.pci == other.pci if mine.pci is not None and other.pci is not None else mine.key() == other.key()


def _debounced(
    state: Assembly, pending: dict[str, tuple[Sighting, ...]], key: str, seen: Sighting, now: datetime
) -> tuple[Sighting, ...]:
    """The sightings that open the fault now, or () while it has to wait."""
    if state.grace_until is not None and now < state.grace_until and seen.check in state.limits.grace_checks:
        return ()
    rule = next(
        (r for r in state.limits.debounce if r.check == seen.check and r.code in ("", seen.code)),
        None,
    )
    if rule is None or rule.times <= 1:
        return (seen,)
    since = seen.at - timedelta(seconds=rule.window_s)
    kept = tuple(s for s in pending.pop(key, ()) if s.at >= since)[-(rule.times - 1) :]
    kept = (*kept, seen)
    if sum(max(1, s.count) for s in kept) >= rule.times:
        return kept
    pending[key] = kept
    while len(pending) > state.limits.max_pending:
        del pending[min(pending, key=lambda k: (pending[k][-1].at, k))]
    return ()


def _open(sightings: tuple[Sighting, ...], boot_id: str) -> _Open:
    first = sightings[0]
    item = _Open(_fault(first), stale=first.boot_id != boot_id)
    for sighting in sightings[1:]:
        item = _again(item, sighting, boot_id)
    return replace(item, told=item.fault.count)


def _fault(seen: Sighting) -> Fault:
    return Fault(
        source=seen.source,
        check=seen.check,
        code=seen.code,
        entity=seen.entity,
        severity=seen.severity,
        scope=seen.scope,
        hint=seen.hint,
        message=seen.message,
        count=max(1, seen.count),
        first_seen=seen.at,
        last_seen=seen.at,
        boot_id=seen.boot_id,
    )


def _weight(fault: Fault) -> tuple[int, int, int]:
    return (_SEVERITIES.index(fault.severity), _HINTS.index(fault.hint), _SCOPES.index(fault.scope))


def _again(item: _Open, seen: Sighting, boot_id: str) -> _Open:
    """One more sighting of an open fault; seen in this boot it is fresh again, whatever it was."""
    return _merge(item, _Open(_fault(seen), stale=seen.boot_id != boot_id), count=seen.count)


def _merge(one: _Open, other: _Open, count: int | None = None) -> _Open:
    """Both are the same fault. Severity, hint and scope are those of the heavier one; the message is the latest."""
    a, b = one.fault, other.fault
    heavier = a if _weight(a) >= _weight(b) else b
    later = max(a, b, key=lambda f: (f.last_seen, f.message))
    total = a.count + (b.count if count is None else count)
    worse = _weight(heavier) > _weight(a)
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
    )
    told = total if worse or total >= 2 * one.told else one.told
    return _Open(fault, stale=one.stale and other.stale, told=told)


def _told(entity: Entity) -> tuple[int, str]:
    """How much an entity tells; of two names of one thing the fuller one is kept."""
    values = (entity.name, entity.uuid, entity.pci, entity.index, entity.link, entity.port, entity.device)
    return (sum(value is not None for value in values), str(values))


def _bound(opened: dict[str, _Open], state: Assembly) -> bool:
    """Keep at most `max_open` faults, the heaviest; say how many sightings had to give way. True: some did."""
    overflow = f"{OVERFLOW_CHECK}/{OVERFLOW_CODE}/{Entity(kind=EntityKind.NODE).key()}"
    room = max(1, state.limits.max_open)
    ranked = sorted(
        (key for key in opened if key != overflow),
        key=lambda key: (*(-part for part in _weight(opened[key].fault)), key),
    )
    dropped = [opened.pop(key).fault for key in ranked[room:]]
    if not dropped:
        return False
    heaviest = max(dropped, key=_weight)
    before = opened.get(overflow)
    severity = max(heaviest.severity, Severity.WARNING, key=_SEVERITIES.index)
    fault = Fault(
        source=OVERFLOW_CHECK,
        check=OVERFLOW_CHECK,
        code=OVERFLOW_CODE,
        entity=Entity(kind=EntityKind.NODE),
        severity=severity,
        scope=Scope.NODE,
        hint=Hint.INSPECT,
        message=f"More than {room} faults are open; the mildest are not listed.",
        count=sum(item.count for item in dropped),
        first_seen=min(item.first_seen for item in dropped),
        last_seen=max(item.last_seen for item in dropped),
        boot_id=state.boot_id,
    )
    item = _Open(fault, told=fault.count)
    opened[overflow] = replace(_merge(before, item), stale=False) if before is not None else item
    return before is None or opened[overflow].told != before.told


def _is(fault: Fault, check: str, entity_key: str | None, code: str) -> bool:
    return fault.check == check and entity_key in (None, fault.entity.key()) and code in ("", fault.code)


def _close(state: Assembly, closes: Callable[[_Open], bool]) -> tuple[Assembly, bool]:
    kept = {key: item for key, item in state.open.items() if not closes(item)}
    if len(kept) == len(state.open):
        return state, False
    return replace(state, open=kept), True
