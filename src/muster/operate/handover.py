"""Planned maintenance: the node is held, freed of work, handed over, and comes back through its tests."""

from __future__ import annotations

from muster.operate.budget import Wait
from muster.operate.certificates import BRINGUP, REPAIR, STACK
from muster.operate.draft import Draft
from muster.operate.lifecycle import Trigger
from muster.operate.maintenance import NodeMaintenance
from muster.operate.model import BlockerKind
from muster.resources.node_health import Cause, CauseKind, State


def leave_service(d: Draft) -> bool:
    """Take a serving node out for maintenance that is due, inside the budget. True when it has left."""
    due = d.maintained
    if due is None:
        if d.maintenance is not None and not d.maintenance.over:
            d.remark(d.maintenance.message)
        return False
    if d.node.spec.paused:
        d.block(BlockerKind.PERSON, f"A person paused the node (spec.paused); it works on. {due.message}")
        return False
    answer = d.ask_budget(approved=due.emergency)
    if isinstance(answer, Wait):
        message = f"{answer.reason} {due.message}"
        if d.block(BlockerKind.BUDGET, message) and due.emergency:
            way_out = f"'muster node {d.node.name} hold --reason TEXT' takes it out at once."
            d.note("HoldWaits", f"{message} {way_out}", warning=True)
        return False
    cause = cause_of(due)
    d.leave_service(cause, REPAIR)
    d.take(Trigger.MAINTENANCE_HELD, cause)
    d.note("MaintenanceHeld", cause.message)
    return True


def pulled_out(d: Draft) -> bool:
    """Maintenance that is due ends the way to a certificate."""
    due = d.maintained
    if due is None:
        return False
    d.void(due.message or f"Maintenance {due.name} has the node.")
    d.take(Trigger.MAINTENANCE_HELD, cause_of(due))
    d.update(certification="")
    return True


def join(d: Draft, due: NodeMaintenance, root: Cause) -> None:
    """A node that is out for something else already: what follows now is for the maintenance, and says so."""
    if root.kind is not CauseKind.MAINTENANCE:
        d.take(Trigger.MAINTENANCE_HELD, cause_of(due))


def keep(d: Draft, due: NodeMaintenance) -> None:
    """A quarantined node whose maintenance is due: free it of work, then hand it over."""
    if not d.work:
        before = d.handed_over_since
        text = due.message if due.message else f"Maintenance {due.name} has the node."
        d.block(BlockerKind.MAINTENANCE, text)
        if before is None:
            d.note("HandedOver", f"Free of work for maintenance {due.name}: {due.reason}")
        return
    if due.drain:
        d.update(cordon=True, drain_pods=len(d.work))
        d.take(Trigger.DRAIN_STARTED, cause_of(due))
        d.note("DrainStarted", f"{len(d.work)} pods leave for maintenance {due.name}.")
        return
    names = ", ".join(p.key for p in d.work[:3])
    d.block(BlockerKind.POD, f"Work may end before anything is evicted for maintenance {due.name}: {names}.")


def ended(d: Draft) -> None:
    """Handed back, put off, cancelled or over: the node must pass before it works again."""
    gone = d.maintenance
    message = "The maintenance for which the node was out is over; it is recertified."
    if gone is not None and gone.handed_back:
        message = f"Maintenance {gone.name} handed the node back; it is recertified."
    profile = d.life.profile if d.life.profile in (BRINGUP, STACK) else REPAIR
    d.take(Trigger.MAINTENANCE_ENDED, Cause(kind=CauseKind.MAINTENANCE, name="ended", message=message))
    d.update(cordon=False, profile=profile)
    d.note("MaintenanceEnded", message)


def cause_of(due: NodeMaintenance) -> Cause:
    approved = f" Emergency, approved by {due.requested_by or 'whoever declared it'}." if due.emergency else ""
    message = f"Maintenance {due.name}: {due.reason.rstrip('.') or 'no reason given'}.{approved}"
    return Cause(kind=CauseKind.MAINTENANCE, name=due.name, message=message[:400])


def blocks_repairs(d: Draft) -> str:
    """Why no repair may begin while somebody else may be at work on the node; empty when it may."""
    planned = d.maintenance
    if planned is None or planned.over or not (planned.at_work or d.maintained is not None):
        return ""
    return f"No repair begins while maintenance {planned.name} may be at work on the node."


def interrupts(d: Draft) -> bool:
    """Whether a node that drains for something else is to be handed over instead of repaired."""
    return d.maintained is not None and d.life.state is State.DRAINING and not d.work
