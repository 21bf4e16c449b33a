"""What keeps Muster from starting anything on a node, or makes it call back what has not begun. Pure."""

from __future__ import annotations

from muster.operate import repairs
from muster.operate.draft import Draft
from muster.operate.episode import of_episode, uncordoned_by_person
from muster.operate.model import BlockerKind
from muster.operate.people import HOLD, wants_out
from muster.operate.validation import hold_cause
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import Cause, CauseKind, RungAttempt, State


def stopped(d: Draft) -> bool:
    """Whether a person's word keeps Muster from starting anything."""
    if d.node.spec.paused:
        d.block(BlockerKind.PERSON, "A person paused the node (spec.paused).")
        return True
    if uncordoned_by_person(d.life) is not None:
        name = d.node.name
        d.block(
            BlockerKind.PERSON,
            f"A person lifted Muster's cordon: nothing more is started. 'muster node {name} retry' lets the repair "
            f"go on, 'muster node {name} release' has the node recertified as it is.",
        )
        return True
    if repairs.called_back(d) >= repairs.CANCEL_LIMIT:
        d.block(
            BlockerKind.PERSON,
            f"{repairs.CANCEL_LIMIT} repairs were called back: 'muster node {d.node.name} retry' asks for another.",
        )
        return True
    return False


def root_of(d: Draft) -> Cause:
    """Why the node was quarantined: the last fault, failed certification or hold, not the repairs since."""
    for entry in reversed(of_episode(d.life)):
        kind = entry.cause.kind
        held_by_person = kind is CauseKind.PERSON and entry.cause.name == HOLD
        if entry.state is State.QUARANTINED and (
            held_by_person or kind in (CauseKind.FAULT, CauseKind.CERTIFICATION, CauseKind.MAINTENANCE)
        ):
            return entry.cause
    episode = d.life.episode
    return episode.cause if episode is not None else Cause(kind=CauseKind.FAULT, name="unknown")


def unwanted(d: Draft, attempt: RungAttempt) -> str:
    """Why nobody wants the repair under way any more; empty when it is wanted."""
    if d.node.spec.hold is not None:
        return hold_cause(d).message
    said = wants_out(d)
    if said:
        return said
    return d.maintained.message if d.maintained is not None else _uncalled_for(d, attempt)


def _uncalled_for(d: Draft, attempt: RungAttempt) -> str:
    """Why nothing asks for the repair any more: its rule went, a correlation holds back, the fault was closed."""
    if attempt.cause == repairs.CERTIFICATION or root_of(d).kind is CauseKind.CERTIFICATION:
        return ""
    if any(j.judgement.disposition is Disposition.REPAIR for j in d.disqualifying):
        return ""
    if d.held_back:
        return f"{d.held_back[0].sentence()}. {d.held_back[0].judgement.capped_by}"
    if d.disqualifying:
        worst = d.disqualifying[0]
        return f"Rule {worst.judgement.rule} asks for no repair of {worst.fault.key()}."
    unknown = d.observed is None or d.agent_silent
    return "" if unknown else "No fault that is open asks for a repair any more."
