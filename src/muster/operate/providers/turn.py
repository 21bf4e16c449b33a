"""What is to be done now about the Repairs of one node. Pure.

Repairs of a node wait for each other: the one that runs first, then the oldest. Whoever decides sees all of them,
also those of other providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from muster.moments import END_OF_TIME, after
from muster.operate.providers.provider import FINAL
from muster.resources.repair import Repair, RepairPhase, Rung

FOREIGN_MARGIN_S = 120.0
"""How much longer than its time limit a Repair of somebody else's provider may keep the others waiting."""

ABSENT_RETRY_S = 15.0
"""How soon it is looked again for a node that is gone, while it is not known whether its repair has begun."""


class Step(StrEnum):
    BEGIN = "begin"
    LOOK = "look"
    CANCEL = "cancel"
    EXPIRE = "expire"
    """The time limit is over: stop it as far as that can be, and fail."""
    ABANDON = "abandon"
    """The node is another one by now: stop it as far as that can be, and fail."""
    CLOSE = "close"
    """Ended without anything done: `phase` says how."""
    WAIT = "wait"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What to do about one Repair; `message` is the reason, `recheck_at` when time alone changes the answer."""

    repair: Repair
    step: Step
    phase: RepairPhase = RepairPhase.FAILED
    message: str = ""
    recheck_at: datetime | None = None


@dataclass(frozen=True)
class Capability:
    """What one of our providers can do; `delegated`: somebody else's controller does the work."""

    rungs: frozenset[Rung]
    delegated: bool = False


def age_order(repair: Repair) -> tuple[float, str]:
    """Oldest first; names decide among equals."""
    created = repair.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, repair.metadata.name)


def deadline_of(repair: Repair, now: datetime) -> datetime:
    """When its time is over: counted from its start, before that from its creation."""
    begin = repair.status.started_at or repair.metadata.creation_timestamp or now
    return after(begin, repair.spec.timeout_s)


def turns(
    repairs: Sequence[Repair], ours: Mapping[str, Capability], node_uid: str | None, now: datetime
) -> tuple[Turn, ...]:
    """One entry for each open Repair of a node that one of `ours` is named in, oldest first.

    `node_uid` is that of the node of this name that is there now; None when there is none.
    """
    waiting = sorted((r for r in repairs if r.status.phase not in FINAL), key=age_order)
    found = []
    ahead = _busy(waiting, ours, now)
    for repair in waiting:
        able = ours.get(repair.spec.provider)
        if able is None:
            continue
        if repair.status.phase is RepairPhase.RUNNING:
            turn = _running(repair, able, node_uid, now)
        else:
            turn = _pending(repair, able, node_uid, ahead, now)
            if turn.step is not Step.CLOSE:
                ahead = ahead or repair
        found.append(turn)
    return tuple(found)


def _busy(waiting: Sequence[Repair], ours: Mapping[str, Capability], now: datetime) -> Repair | None:
    """The Repair that runs, whoever carries it out."""
    for repair in waiting:
        if repair.status.phase is not RepairPhase.RUNNING:
            continue
        able = ours.get(repair.spec.provider)
        followed = able is not None and not able.delegated
        if followed or now < after(deadline_of(repair, now), FOREIGN_MARGIN_S):
            return repair
    return None


def _pending(repair: Repair, able: Capability, node_uid: str | None, ahead: Repair | None, now: datetime) -> Turn:
    spec = repair.spec
    if spec.cancel:
        return Turn(repair=repair, step=Step.CLOSE, phase=RepairPhase.CANCELLED, message="Cancelled before it began.")
    wrong = _wrong_node(repair, node_uid)
    if wrong:
        return Turn(repair=repair, step=Step.CLOSE, message=f"Refused: {wrong}.")
    if spec.rung not in able.rungs:
        can = ", ".join(rung.value for rung in Rung if rung in able.rungs) or "nothing"
        text = f"Refused: provider {spec.provider} does not do {spec.rung.value}; it does {can}."
        return Turn(repair=repair, step=Step.CLOSE, message=text)
    deadline = deadline_of(repair, now)
    if now >= deadline:
        why = f"it waited for {ahead.metadata.name}" if ahead is not None else "nobody took it up"
        text = f"It did not begin within {spec.timeout_s} s: {why}."
        return Turn(repair=repair, step=Step.CLOSE, message=text)
    if able.delegated:
        return Turn(repair=repair, step=Step.WAIT, recheck_at=deadline)
    if ahead is not None:
        text = f"Waits for {ahead.metadata.name}, which is under way on this node."
        foreign = after(deadline_of(ahead, now), FOREIGN_MARGIN_S)
        recheck = min(deadline, foreign if foreign > now else END_OF_TIME)
        return Turn(repair=repair, step=Step.WAIT, message=text, recheck_at=recheck)
    return Turn(repair=repair, step=Step.BEGIN)


def _running(repair: Repair, able: Capability, node_uid: str | None, now: datetime) -> Turn:
    if able.delegated:
        return Turn(repair=repair, step=Step.WAIT)
    wrong = _wrong_node(repair, node_uid) if node_uid is not None else ""
    # Whoever replaces a machine makes the node go, and another one of its name may come.
    if wrong and repair.spec.rung is not Rung.REPLACE:
        return Turn(repair=repair, step=Step.ABANDON, message=f"Given up: {wrong}.")
    if now >= deadline_of(repair, now):
        said = f" Last heard: {repair.status.message}" if repair.status.message else ""
        text = f"It did not finish within {repair.spec.timeout_s} s.{said}"
        return Turn(repair=repair, step=Step.EXPIRE, message=text)
    if repair.spec.cancel:
        return Turn(repair=repair, step=Step.CANCEL)
    if repair.status.external_id:
        return Turn(repair=repair, step=Step.LOOK)
    if node_uid is None and repair.spec.rung is not Rung.REPLACE:
        # Claimed, and perhaps never begun: nothing is begun on a node that has left.
        text = f"Waits to begin: {_wrong_node(repair, None)}."
        recheck = min(deadline_of(repair, now), after(now, ABSENT_RETRY_S))
        return Turn(repair=repair, step=Step.WAIT, message=text, recheck_at=recheck)
    return Turn(repair=repair, step=Step.BEGIN)


def _wrong_node(repair: Repair, node_uid: str | None) -> str:
    name = repair.spec.node_name
    if node_uid is None:
        return f"there is no node {name}"
    if repair.spec.node_uid and repair.spec.node_uid != node_uid:
        return f"{name} is another node than the one that this repair is for"
    return ""
