"""From sightings to the open faults of one node: dedupe, debounce, storm compression, closing by proof. Pure.

A fault closes only by proof: its monitor sees the healthy reading (`clear`), or it is stale and a fresh reading is
clean (`clean`). It becomes stale when the node booted anew, its GPU was reset, or its GPU is gone. Silence and a
failed probe close nothing. What closed is kept for a while in `recent`; a fault that closes again and again is held
open until it was well for some time (`Flapping`).

    state = start(boot_id, {"0000:9b:00.0": "GPU-..."})
    state, changed = observe(state, sightings, now)
    state, changed = new_boot(state, boot_id, now)
    state, changed = clean(state, "xid", None, now)
    state, changed = settle(state, now)
    faults = open_faults(state)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from muster.faults import bursts
from muster.faults.open_fault import FLAPPING as FLAPPING
from muster.faults.open_fault import OVERFLOW_CHECK as OVERFLOW_CHECK
from muster.faults.open_fault import OVERFLOW_CODE as OVERFLOW_CODE
from muster.faults.open_fault import Closed, OpenFault, as_fault, bound, fault_by, merge, seen_by, shown
from muster.faults.sighting import MAX_MESSAGE_CHARACTERS, MAX_NAME_CHARACTERS, bounded, fit, fit_entity
from muster.faults.sighting import Debounce as Debounce
from muster.faults.sighting import Flapping as Flapping
from muster.faults.sighting import Grace as Grace
from muster.faults.sighting import Limits as Limits
from muster.faults.sighting import Sighting as Sighting
from muster.resources.fault import Entity, EntityKind, Fault
from muster.resources.node_health import RECENT_DAYS, RECENT_LIMIT, PastFault

_GPU_KINDS = (EntityKind.GPU, EntityKind.NVLINK)


@dataclass(frozen=True)
class Assembly:
    """The state; a value. Mappings are never changed in place."""

    boot_id: str
    gpus: Mapping[str, str]
    """PCI address -> UUID."""
    limits: Limits
    open: Mapping[str, OpenFault] = field(default_factory=dict)
    pending: Mapping[str, tuple[Sighting, ...]] = field(default_factory=dict)
    grace_from: datetime | None = None
    """The latest start of the agent, boot or change of the driver."""
    recent: tuple[PastFault, ...] = ()
    """Closed faults, oldest first."""


def start(
    boot_id: str, gpus: Mapping[str, str], limits: Limits | None = None, now: datetime | None = None
) -> Assembly:
    """An empty assembly. `gpus`: PCI address (`dddd:bb:dd.f`) -> UUID. `now` is needed for a start-up grace only."""
    return Assembly(boot_id=boot_id, gpus=dict(gpus), limits=limits or Limits(), grace_from=now)


def begin_grace(state: Assembly, since: datetime) -> Assembly:
    """The agent started, the node booted or its driver changed at `since`: what needs time to come up is given it."""
    # One in the future was told by a clock that has been set back since.
    return replace(state, grace_from=since)


def observe(state: Assembly, sightings: Iterable[Sighting], now: datetime) -> tuple[Assembly, bool]:
    """Take in a batch of sightings, whatever their order.

    True: the open faults changed so that it is worth publishing (one opened, closed or got worse, or its count
    doubled). A storm of equal sightings only raises the count.
    """
    opened, pending, past = dict(state.open), dict(state.pending), list(state.recent)
    changed = False
    for seen in sorted((_named(sighting, state, now) for sighting in sightings), key=_order):
        changed |= _clear_by(state, opened, past, seen)
        key = _key(seen)
        before = opened.get(key)
        if before is None:
            ready = _debounced(state, pending, key, seen, now)
            if not ready:
                continue
            opened[key] = _open(ready, state)
            changed = True
        else:
            opened[key] = _again(before, seen, state)
            changed |= opened[key].told != before.told or opened[key].stale != before.stale
    changed |= bound(opened, state.limits, state.boot_id)
    return replace(state, open=opened, pending=pending, recent=_kept(past, now)), changed


def clear(
    state: Assembly, check: str, entity_key: str | None, now: datetime, code: str = ""
) -> tuple[Assembly, bool]:
    """The monitor of `check` sees the healthy reading of the entity (None: of all) at `now`: its faults close."""
    waiting = f"{check}/{code}/{entity_key}"
    if waiting in state.pending:
        # What is well now does not open with a sighting from before.
        state = replace(state, pending={key: seen for key, seen in state.pending.items() if key != waiting})
    return _close(
        state,
        lambda item: item.fault.last_seen <= now and _is(item.fault, check, entity_key, code),
        Closed.HEALTHY,
        now,
    )


def clean(state: Assembly, check: str, entity_key: str | None, now: datetime) -> tuple[Assembly, bool]:
    """A fresh reading of `check` in the current boot is clean at `now`: what is stale closes, the rest stays open."""
    return _close(
        state,
        lambda item: item.stale and item.fault.last_seen <= now and _is(item.fault, check, entity_key, ""),
        Closed.HEALTHY,
        now,
    )


def take_back(state: Assembly, key: str, now: datetime) -> tuple[Assembly, bool]:
    """Nobody stands for the open fault `key` any more (its monitor was taken out of the configuration)."""
    if key not in state.open:
        return state, False
    past = (*state.recent, _past(state.open[key], Closed.TAKEN_BACK, now))
    opened = {k: item for k, item in state.open.items() if k != key}
    return replace(state, open=opened, recent=_kept(past, now)), True


def settle(state: Assembly, now: datetime) -> tuple[Assembly, bool]:
    """Time passed: faults that flapped and that an event ended close when they were quiet; old history is dropped.

    After a clock was set back, what was seen in the future was seen now: no proof would ever be later than it.
    """
    state = _not_after(state, now)
    quiet = timedelta(seconds=state.limits.flapping.quiet_s)
    over = [
        key
        for key in sorted(state.open)
        if (item := state.open[key]).calm_since is not None
        and item.calm_by == Closed.TAKEN_BACK
        and now - item.calm_since >= quiet
    ]
    past = (*state.recent, *(_past(state.open[key], Closed.TAKEN_BACK, now) for key in over))
    kept = _kept(past, now)
    if not over and len(kept) == len(state.recent):
        return state, False
    opened = {key: item for key, item in state.open.items() if key not in over}
    return replace(state, open=opened, recent=kept), bool(over)


def _not_after(state: Assembly, now: datetime) -> Assembly:
    grace = state.grace_from
    if grace is not None and grace > now:
        state = replace(state, grace_from=now)
    if any(seen[-1].at > now for seen in state.pending.values()):
        state = replace(state, pending={key: seen for key, seen in state.pending.items() if seen[-1].at <= now})
    if any(item.fault.last_seen > now for item in state.open.values()):
        state = replace(state, open={key: seen_by(item, now) for key, item in state.open.items()})
    if any(past.closed_at > now for past in state.recent):
        recent = tuple(
            msgspec.structs.replace(past, fault=fault_by(past.fault, now), closed_at=min(past.closed_at, now))
            for past in state.recent
        )
        state = replace(state, recent=recent)
    return state


def new_boot(state: Assembly, boot_id: str, now: datetime) -> tuple[Assembly, bool]:
    """The node booted. Faults of older boots become stale; they stay open until a fresh reading is clean."""
    if boot_id == state.boot_id:
        return state, False
    opened = {
        key: replace(item, stale=item.fault.boot_id != boot_id, why=_boot_or(item) if _old(item, boot_id) else "")
        for key, item in state.open.items()
    }
    return replace(state, boot_id=boot_id, open=opened, pending={}, grace_from=now), False


def gpu_reset(state: Assembly, uuid: str, now: datetime) -> tuple[Assembly, bool]:
    """A GPU was reset successfully at `now`. Its faults become stale; the next clean reading closes them."""
    opened = {
        key: replace(item, stale=True, why=item.why or Closed.RESET)
        if item.fault.entity.uuid == uuid and item.fault.last_seen <= now
        else item
        for key, item in state.open.items()
    }
    return replace(state, open=opened), False


def identify(state: Assembly, gpus: Mapping[str, str]) -> tuple[Assembly, bool]:
    """The GPUs of the node are these. Faults get their UUIDs and addresses; those of a GPU that is gone become stale.

    A GPU that moved to another PCI address keeps its faults; one that is back is no longer gone.
    """
    named = replace(state, gpus=dict(gpus))
    places = {uuid: pci for pci, uuid in sorted(gpus.items(), reverse=True)}
    opened: dict[str, OpenFault] = {}
    for old in sorted(state.open):
        moved = _placed(state.open[old], gpus, places, state.boot_id)
        key = moved.fault.key()
        opened[key] = merge(opened[key], moved, state.limits.burst_gap_s) if key in opened else moved
    return replace(named, open=opened), sorted(opened) != sorted(state.open)


def _placed(item: OpenFault, gpus: Mapping[str, str], places: Mapping[str, str], boot_id: str) -> OpenFault:
    entity = _with_uuid(item.fault.entity, gpus)
    if entity.kind not in _GPU_KINDS or entity.uuid is None:
        return replace(item, fault=msgspec.structs.replace(item.fault, entity=entity))
    stale, why = item.stale, item.why
    if entity.uuid in places:
        if entity.pci != places[entity.uuid]:
            entity = msgspec.structs.replace(entity, pci=places[entity.uuid])
        if why == Closed.GONE:
            stale = _old(item, boot_id)
            why = Closed.BOOT if stale else ""
    else:
        stale, why = True, Closed.GONE
    return replace(item, fault=msgspec.structs.replace(item.fault, entity=entity), stale=stale, why=why)


def _old(item: OpenFault, boot_id: str) -> bool:
    return item.fault.boot_id != boot_id


def _boot_or(item: OpenFault) -> str:
    return Closed.GONE if item.why == Closed.GONE else Closed.BOOT


def entity_key(state: Assembly, entity: Entity) -> str:
    """The key that faults of `entity` have here: a GPU told by its address has that of its UUID."""
    return _with_uuid(fit_entity(entity), state.gpus).key()


def open_faults(state: Assembly) -> tuple[Fault, ...]:
    """The open faults, sorted by key."""
    return tuple(shown(state.open[key]) for key in sorted(state.open))


def stale_faults(state: Assembly) -> tuple[Fault, ...]:
    """The open faults that only wait for a fresh clean reading, sorted by key."""
    return tuple(state.open[key].fault for key in sorted(state.open) if state.open[key].stale)


def _order(sighting: Sighting) -> tuple[datetime, str, str, str]:
    return (sighting.at, _key(sighting), sighting.severity.value, sighting.message)


def _key(sighting: Sighting) -> str:
    return f"{sighting.check}/{sighting.code}/{sighting.entity.key()}"


def _named(sighting: Sighting, state: Assembly, now: datetime) -> Sighting:
    """The sighting with what the state knows; a time in the future is a wrong clock and becomes `now`."""
    at = min(sighting.at, now)
    return msgspec.structs.replace(
        sighting,
        source=fit(sighting.source, MAX_NAME_CHARACTERS),
        check=fit(sighting.check, MAX_NAME_CHARACTERS),
        code=fit(sighting.code, MAX_NAME_CHARACTERS),
        entity=_with_uuid(fit_entity(sighting.entity), state.gpus),
        message=fit(sighting.message, MAX_MESSAGE_CHARACTERS),
        at=at,
        since=min(sighting.began, at),
        count=max(0, sighting.count),
        boot_id=sighting.boot_id or state.boot_id,
        details=bounded(sighting.details),
    )


def _with_uuid(entity: Entity, gpus: Mapping[str, str]) -> Entity:
    if entity.kind not in _GPU_KINDS or entity.uuid is not None or entity.pci is None or entity.pci not in gpus:
        return entity
    return msgspec.structs.replace(entity, uuid=gpus[entity.pci])


def _clear_by(state: Assembly, opened: dict[str, OpenFault], past: list[PastFault], seen: Sighting) -> bool:
    """Close what the sighting takes back on its device. True: something closed."""
    closed = False
    for cleared in seen.clears:
        for key in [
            k for k, item in opened.items() if _kind(item.fault) == cleared and _same_device(item.fault, seen)
        ]:
            if opened[key].fault.last_seen <= seen.at:
                closed |= _end(state, opened, past, key, Closed.TAKEN_BACK, seen.at)
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
    grace = timedelta(seconds=state.limits.grace_s(seen.check, seen.code))
    if state.grace_from is not None and now - state.grace_from < grace:
        return ()
    rule = state.limits.patience(seen.check, seen.code)
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


def _open(sightings: tuple[Sighting, ...], state: Assembly) -> OpenFault:
    first = sightings[0]
    old = first.boot_id != state.boot_id
    item = OpenFault(as_fault(first), stale=old, why=Closed.BOOT if old else "")
    for sighting in sightings[1:]:
        item = _again(item, sighting, state)
    return replace(item, told=item.fault.count)


def _again(item: OpenFault, seen: Sighting, state: Assembly) -> OpenFault:
    """One more sighting of an open fault; seen in this boot it is fresh again, whatever it was."""
    old = seen.boot_id != state.boot_id
    goes_on = seen.standing and item.calm_since is None and not item.stale
    count = 0 if goes_on else seen.count
    other = OpenFault(as_fault(seen), stale=old, why=Closed.BOOT if old else "")
    merged = merge(item, other, state.limits.burst_gap_s, count=count)
    if goes_on:
        times = bursts.prolonged(item.fault.bursts, other.fault.bursts[0])
    elif count == 0:
        times = item.fault.bursts
    else:
        return merged
    return replace(merged, fault=msgspec.structs.replace(merged.fault, bursts=times))


def _is(fault: Fault, check: str, entity_key: str | None, code: str) -> bool:
    return fault.check == check and entity_key in (None, fault.entity.key()) and code in ("", fault.code)


def _close(state: Assembly, closes: Callable[[OpenFault], bool], by: Closed, now: datetime) -> tuple[Assembly, bool]:
    over = [key for key in sorted(state.open) if closes(state.open[key])]
    if not over:
        return state, False
    opened, past = dict(state.open), list(state.recent)
    closed = False
    for key in over:
        closed |= _end(state, opened, past, key, by, now)
    return replace(state, open=opened, recent=_kept(past, now)), closed


def _end(
    state: Assembly, opened: dict[str, OpenFault], past: list[PastFault], key: str, by: Closed, at: datetime
) -> bool:
    """Close one fault, or, when it flaps, note that it is well now. True: it closed."""
    item = opened[key]
    rule = state.limits.flapping
    since = at - timedelta(seconds=rule.window_s)
    often = rule.times > 0 and sum(p.closed_at >= since and p.fault.key() == key for p in past) >= rule.times
    if (item.flaps or often) and not item.stale:
        calm = item.calm_since or at
        if at - calm < timedelta(seconds=rule.quiet_s):
            opened[key] = replace(item, flaps=True, calm_since=calm, calm_by=by)
            return False
    past.append(_past(item, by, at))
    del opened[key]
    return True


def _past(item: OpenFault, by: Closed, at: datetime) -> PastFault:
    told = by if by is Closed.TAKEN_BACK or not item.stale else Closed(item.why or Closed.HEALTHY)
    return PastFault(fault=item.fault, closed_at=at, closed_by=told.value)


def _kept(past: Iterable[PastFault], now: datetime) -> tuple[PastFault, ...]:
    """The latest closed faults, oldest first."""
    oldest = now - timedelta(days=RECENT_DAYS)
    young = sorted((p for p in past if p.closed_at >= oldest), key=lambda p: (p.closed_at, p.fault.key()))
    return tuple(young[-RECENT_LIMIT:])
