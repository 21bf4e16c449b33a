"""InService: what takes a node out, and how long it may work on when the budget has no room."""

from __future__ import annotations

from muster.operate import handover
from muster.operate.age import RENEWAL, expiry, renewal_due
from muster.operate.budget import Wait
from muster.operate.certificates import (
    IDLE,
    REPAIR,
    Staleness,
    grace_ends,
    in_grace,
    reported_only,
    restored,
)
from muster.operate.correlation.changes import by_new_agent
from muster.operate.draft import COMPARED_SOON, Draft
from muster.operate.episode import open_episode
from muster.operate.lifecycle import Trigger, admits
from muster.operate.model import BlockerKind
from muster.operate.validation import hold_cause
from muster.resources.fault_policy import DriftAction
from muster.resources.node_health import Cause, CauseKind, Certificate, Standing


def in_service(d: Draft) -> None:
    certificate = d.life.certificate
    if certificate is None or not admits(certificate):
        cause = Cause(kind=CauseKind.CERTIFICATION, name="missing", message="The node holds no valid certificate.")
        d.leave_service(cause, REPAIR)
        d.take(Trigger.CERTIFICATE_VOIDED, cause)
        return
    if d.node.spec.hold is not None:
        cause = hold_cause(d)
        d.update(episode=open_episode(d.node.name, d.node.uid, cause, d.now))
        d.take(Trigger.PERSON_HELD, cause)
        return
    if d.disqualifying:
        _faulty(d, certificate)
        return
    if handover.leave_service(d):
        return
    _say_held_back(d)
    stale = d.stale(certificate)
    if (stale is None or not stale.insists) and certificate.standing is Standing.GRACE and d.life.profile == REPAIR:
        if d.held_back:
            return  # it works on under the grace that began with the finding
        stale = _had_fault(certificate)
    if stale is not None:
        _stale(d, certificate, stale)
        return
    if certificate.standing is Standing.GRACE:
        d.update(certificate=restored(certificate), profile="")
        d.note("GraceEnded", "What had put the certificate in doubt was undone, or the policy asks no more.")
    if _renewed(d):
        return
    _look(d, certificate)


def _say_held_back(d: Draft) -> None:
    """A finding that many nodes have: the node works on, and people are told why nothing is done."""
    for held in d.held_back[:1]:
        text = f"{held.sentence()}. {held.judgement.capped_by}"
        if d.block(BlockerKind.CORRELATION, text):
            d.note("AutomationHeldBack", text, warning=True)


def _faulty(d: Draft, certificate: Certificate) -> None:
    """A disqualifying fault: hold the node as soon as the budget allows."""
    worst = d.disqualifying[0]
    cause = worst.cause()
    if (d.shares_a_finding or by_new_agent(d.life, d.now)) and d.uncompared:
        d.block(BlockerKind.CORRELATION, COMPARED_SOON)
        d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open and the node still takes work.")
        return
    certificate = in_grace(certificate, cause.message, d.now, anew=_patient(d, certificate))
    why_not = _why_not_now(d, certificate, turn="")
    if why_not is None:
        d.leave_service(cause, REPAIR)
        d.take(Trigger.FAULT_HELD, cause)
        d.note("Held", f"Held for {cause.message} (rule {worst.judgement.rule}).", warning=True)
        return
    d.update(certificate=certificate, profile=REPAIR)
    d.wake(grace_ends(certificate, d.policy.drift))
    if d.block(*why_not):
        d.note("HoldWaits", f"{cause.message}: {why_not[1]}", warning=True)
    d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open and the node still takes work.")


def _patient(d: Draft, certificate: Certificate) -> bool:
    """Whether the node is under a grace at whose end it is not held: for age, or because it was adopted."""
    if certificate.standing is not Standing.GRACE or d.life.profile == REPAIR:
        return False
    aged = d.life.profile == IDLE and d.policy.certification.age_action is not DriftAction.HOLD
    return certificate.adopted or aged


def _had_fault(certificate: Certificate) -> Staleness:
    """A disqualifying fault went away before the budget let the node be held: it is tested when its turn comes."""
    message = certificate.voided_because
    return Staleness(
        DriftAction.ROLL, REPAIR, Cause(kind=CauseKind.FAULT, name="closed-before-hold", message=message)
    )


def _stale(d: Draft, certificate: Certificate, stale: Staleness) -> None:
    """The certificate does not describe the node any more: grace, until its turn comes or the grace is over."""
    if certificate.standing is not Standing.GRACE:
        d.note("Grace", f"{stale.cause.message} The node works on until it is recertified.")
    anew = stale.insists and _patient(d, certificate)
    certificate = in_grace(certificate, stale.cause.message, d.now, anew=anew)
    turn = ""
    wave = d.fleet.wave
    if stale.action is DriftAction.ROLL and d.node.name not in wave.turn and not _approved_past(d, stale):
        turn = wave.waits.get(d.node.name, "Waits for its turn to be recertified.")
    why_not = _why_not_now(d, certificate, turn, insists=stale.insists)
    if why_not is None:
        d.leave_service(stale.cause, stale.profile)
        d.take(Trigger.CERTIFICATE_VOIDED, stale.cause)
        d.note("Held", f"Held for recertification with profile {stale.profile}: {stale.cause.message}")
        return
    d.update(certificate=certificate, profile=stale.profile)
    d.block(*why_not)
    d.wake(grace_ends(certificate, d.policy.drift))
    _look(d, certificate)


def _renewed(d: Draft) -> bool:
    """Take an idle node out to renew its certificate before it expires. True when it has left.

    The certificate stays good meanwhile: the node gives way to work as long as no test has begun.
    """
    life, name = d.life, d.node.name
    due = renewal_due(name, life, d.policy.certification)
    ends = expiry(life.certificate, name, d.policy.certification) if life.certificate is not None else None
    d.wake(ends)
    d.wake(due)
    if due is None or ends is None or d.now < due:
        return False
    if not d.node.ready or d.node.unschedulable or d.node.spec.paused or d.observed is None or d.agent_silent:
        return False
    if name not in d.fleet.wave.turn or d.node.work or d.fleet.demand or isinstance(d.ask_budget(), Wait):
        d.block(
            BlockerKind.WAVE, f"Its certificate expires {ends:%Y-%m-%d %H:%M} UTC; it is renewed while it is idle."
        )
        return False
    message = f"The certificate expires {ends:%Y-%m-%d %H:%M} UTC; it is renewed while the node is idle."
    cause = Cause(kind=CauseKind.AGE, name=RENEWAL, message=message)
    d.leave_service(cause, IDLE, still_good=True)
    d.take(Trigger.CERTIFICATE_VOIDED, cause)
    d.note("Held", f"Held for recertification with profile {IDLE}: {message}")
    return True


def _approved_past(d: Draft, stale: Staleness) -> bool:
    """A person's approval lets this node go on although the roll-out is halted."""
    return d.approving and stale.cause.name in d.fleet.wave.halted


def _why_not_now(
    d: Draft, certificate: Certificate, turn: str, *, insists: bool = True
) -> tuple[BlockerKind, str] | None:
    """What keeps the node in service for the moment; None when it must go or may go now.

    `insists`: at the end of its grace it goes whatever the budget says.
    """
    if d.node.spec.paused:
        return BlockerKind.PERSON, "A person paused the node (spec.paused); it works on."
    ends = grace_ends(certificate, d.policy.drift)
    if insists and ends is not None and d.now >= ends:
        return None
    if turn:
        return BlockerKind.WAVE, turn
    answer = d.ask_budget()
    if isinstance(answer, Wait):
        return BlockerKind.BUDGET, answer.reason
    return None


def _look(d: Draft, certificate: Certificate) -> None:
    """What is unknown or merely reported about a node that works."""
    if d.observed is None or d.agent_silent:
        d.block(BlockerKind.AGENT, "The agent of the node is silent; its health is unknown.")
    if not d.node.ready:
        d.block(BlockerKind.NODE, "The node is not Ready; its health is unknown.")
    if d.node.spec.paused:
        d.remark("A person paused the node (spec.paused); Muster takes no step by itself")
    if d.node.unschedulable and not d.node.cordoned_by:
        d.remark("A person cordoned the node; it takes no new work until they uncordon it")
    reported = reported_only(certificate, d.observed, d.rules, d.node.name, d.now)
    if reported:
        d.remark(f"Reported only: {'; '.join(reported)}")
