"""The conditions of a Maintenance: valid, announced in time, overrun, complete. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from muster.operate.maintenance.window import said, utc
from muster.plain_text import counted, plain
from muster.resources.base import Condition, ConditionStatus
from muster.resources.maintenance import MaintainedNode, Maintenance, MaintenancePhase, NodeProgress

VALID, ANNOUNCED, OVERRUN, COMPLETE = "Valid", "Announced", "Overrun", "Complete"
MAX_MESSAGE = 1000


def conditions_of(
    maintenance: Maintenance,
    wrong: Sequence[str],
    phase: MaintenancePhase,
    listed: Sequence[MaintainedNode],
    now: datetime,
) -> tuple[Condition, ...]:
    """`Announced` keeps in its time when people were told first; `Overrun` stays true once it was."""
    known = {c.type: c for c in maintenance.status.conditions}
    found = [_valid(wrong, listed)]
    if not wrong:
        found.append(_announced(maintenance, known.get(ANNOUNCED), now))
        found.append(_overrun(maintenance, known.get(OVERRUN), listed))
        if phase is MaintenancePhase.COMPLETED:
            found.append(_complete(listed))
    return tuple(_condition(draft, known.get(draft[0]), now) for draft in found)


_Draft = tuple[str, bool, str, str]


def _valid(wrong: Sequence[str], listed: Sequence[MaintainedNode]) -> _Draft:
    if wrong:
        return VALID, False, "CannotBeCarriedOut", " ".join(wrong)
    if not listed:
        return VALID, True, "NoNodes", "It concerns no node that the cluster has now."
    return VALID, True, "Accepted", f"It concerns {counted(len(listed), 'node')}."


def _announced(maintenance: Maintenance, known: Condition | None, now: datetime) -> _Draft:
    if known is not None:
        return ANNOUNCED, True, known.reason, known.message
    opens = utc(maintenance.spec.opens_at)
    if maintenance.spec.emergency:
        return ANNOUNCED, True, "Emergency", "Declared as an emergency."
    if now < opens:
        return ANNOUNCED, True, "InTime", f"Told before the window opened, {said(opens)}."
    return ANNOUNCED, True, "Late", f"Declared when its window, from {said(opens)}, was open already."


def _overrun(maintenance: Maintenance, known: Condition | None, listed: Sequence[MaintainedNode]) -> _Draft:
    late = [n.name for n in listed if n.progress is NodeProgress.OVERRUN]
    closes = said(utc(maintenance.spec.closes_at))
    if late:
        message = f"{counted(len(late), 'node')} not back in service at {closes}: {', '.join(late[:20])}."
        return OVERRUN, True, "NotReturned", message
    if known is not None and known.status is ConditionStatus.TRUE:
        return OVERRUN, True, "ReturnedLate", f"Nodes were not back in service at {closes}; they are now."
    return OVERRUN, False, "InTime", ""


def _complete(listed: Sequence[MaintainedNode]) -> _Draft:
    missed = [n.name for n in listed if n.progress is not NodeProgress.RETURNED]
    if missed:
        message = f"The turn of {counted(len(missed), 'node')} never came: {', '.join(missed[:20])}."
        return COMPLETE, False, "NotReached", message
    return COMPLETE, True, "Returned", f"{counted(len(listed), 'node')} back in service."


def _condition(draft: _Draft, known: Condition | None, now: datetime) -> Condition:
    kind, holds, reason, message = draft
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    since = known.last_transition_time if known is not None and known.status is status else now
    return Condition(
        type=kind, status=status, reason=reason, message=plain(message, MAX_MESSAGE), last_transition_time=since
    )
