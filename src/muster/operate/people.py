"""A person's word about a node: holds, decisions, an uncordon. Obeyed once, recorded, shown."""

from __future__ import annotations

from typing import assert_never

from muster.operate.certificates import BRINGUP, REPAIR
from muster.operate.draft import Draft
from muster.operate.episode import UNCORDON, open_attempt, open_episode
from muster.operate.lifecycle import Trigger, admits
from muster.operate.maintenance import deferral_of
from muster.operate.model import BlockerKind
from muster.resources.node_health import Cause, CauseKind, Decision, State, Verb
from muster.resources.repair import RepairPhase

HOLD = "hold"
"""Name of the cause of a person's hold; decisions are named by their verb. The message names the person."""


def hear(d: Draft) -> None:
    """Take in what people did since the last decision."""
    _notice_uncordon(d)
    obey(d)


def obey(d: Draft) -> None:
    """Act on a decision that was not acted on yet, as far as the state allows."""
    decision = d.node.spec.decision
    if decision is None or not decision.id or decision.id == d.life.decision_seen:
        return
    match decision.verb:
        case Verb.RELEASE:
            done = _release(d, decision)
        case Verb.RETRY:
            done = _retry(d, decision)
        case Verb.RETIRE:
            done = _retire(d, decision)
        case Verb.DEFER:
            done = _defer(d, decision)
        case Verb.APPROVE:
            done = False  # used up where the budget grants, see `settle_approval`
        case _:
            assert_never(decision.verb)
    if done:
        acknowledge(d, decision)


def settle_approval(d: Draft) -> None:
    """Acknowledge an approval that was used, or that has nothing to approve."""
    decision = d.node.spec.decision
    if decision is None or not d.approving:
        return
    waiting = any(b.kind in (BlockerKind.BUDGET, BlockerKind.WAVE, BlockerKind.MAINTENANCE) for b in d.blockers)
    if d.approval_used or not waiting:
        acknowledge(d, decision)
        if not d.approval_used:
            d.note("NothingToApprove", f"{decision.by} approved, and nothing waits for an approval.")


def acknowledge(d: Draft, decision: Decision) -> None:
    d.update(decision_seen=decision.id)
    d.note("DecisionObeyed", _said(decision))


def return_from_hold(d: Draft, cause: Cause) -> None:
    """Out of a person's hold: straight back with a good certificate, through certification otherwise."""
    life = d.life
    certificate = life.certificate
    stale = d.stale(certificate) if certificate is not None else None
    if admits(certificate) and stale is None and not d.disqualifying:
        d.take(Trigger.HOLD_LIFTED, cause)
        d.update(episode=None, cordon=False, profile="", certification="")
        return
    d.take(Trigger.RELEASED, cause)
    d.update(earlier=())
    profile = stale.profile if stale else life.profile or REPAIR
    d.update(cordon=False, certification="", profile=profile)


def _notice_uncordon(d: Draft) -> None:
    """A cordon of ours (annotation there) that is gone was lifted by a person."""
    life, node = d.life, d.node
    if not life.cordon or life.episode is None or node.unschedulable or node.cordoned_by != life.episode.id:
        return
    message = "A person lifted the cordon that Muster had placed."
    d.update(cordon=False)
    d.record(Cause(kind=CauseKind.PERSON, name=UNCORDON, message=message))
    d.note("UncordonedByPerson", f"{message} Muster starts no further step in this episode.", warning=True)


def _release(d: Draft, decision: Decision) -> bool:
    cause = _cause(decision)
    match d.life.state:
        case State.REPAIRING:
            # One that has begun cannot be called back, and certifying a node while it reboots would fail. One that
            # has not is called back by `remedy.repairing`; the release is heard again when it has ended.
            if _begun(d):
                d.note("ReleaseWaits", f"{_said(decision)} It waits for the running repair to end.")
            return False
        case State.QUARANTINED | State.DRAINING if d.node.spec.hold is not None:
            d.note("HoldStands", f"{_said(decision)} The hold in the spec stands; remove it to let the node go.")
        case State.QUARANTINED | State.DRAINING if d.maintained is not None:
            name = d.maintained.name
            d.note("HoldStands", f"{_said(decision)} Maintenance {name} stands; hand the node back or cancel it.")
        case State.QUARANTINED:
            return_from_hold(d, cause)
        case State.DRAINING | State.OUT_OF_SERVICE:
            _start_over(d, cause)
        case State.UNCERTIFIED | State.CERTIFYING | State.IN_SERVICE:
            d.note("NothingToRelease", f"{_said(decision)} The node is {d.life.state.value} already.")
        case _:
            assert_never(d.life.state)
    return True


def _retry(d: Draft, decision: Decision) -> bool:
    cause = _cause(decision)
    match d.life.state:
        case State.OUT_OF_SERVICE:
            _start_over(d, cause)
        case State.QUARANTINED if not d.disqualifying and d.node.spec.hold is None and d.maintained is None:
            d.take(Trigger.RELEASED, cause)
            d.update(cordon=False, profile=d.life.profile or REPAIR)
        case State.QUARANTINED | State.DRAINING | State.UNCERTIFIED:
            d.record(cause)
        case State.CERTIFYING | State.REPAIRING | State.IN_SERVICE:
            d.note("NothingToRetry", f"{_said(decision)} The node is {d.life.state.value}; nothing is to be retried.")
        case _:
            assert_never(d.life.state)
    return True


def _defer(d: Draft, decision: Decision) -> bool:
    """Put planned maintenance off, as far as whoever declared it allows."""
    notices = d.observed.notices if d.observed is not None else ()
    answer = deferral_of(
        d.node,
        d.node.maintenances,
        notices,
        d.policy.maintenance,
        decision,
        d.now,
        out_since=d.handed_over_since,
    )
    if answer.until is None:
        d.note("DeferNotPossible", answer.message, warning=True)
        return True
    d.update(deferred_until=answer.until)
    d.record(Cause(kind=CauseKind.PERSON, name=decision.verb.value, message=answer.message))
    return True


def wants_out(d: Draft) -> str:
    """The words of a person who released or retired the node and was not heard yet; empty when there is none."""
    decision = d.node.spec.decision
    if decision is None or not decision.id or decision.id == d.life.decision_seen:
        return ""
    return _said(decision) if decision.verb in (Verb.RELEASE, Verb.RETIRE) else ""


def _begun(d: Draft) -> bool:
    attempt = open_attempt(d.life.episode)
    repair = next((r for r in d.node.repairs if attempt is not None and r.metadata.name == attempt.repair), None)
    return repair is not None and (
        repair.status.phase is not RepairPhase.PENDING or repair.status.started_at is not None
    )


def _retire(d: Draft, decision: Decision) -> bool:
    if d.life.state is State.OUT_OF_SERVICE:
        d.note("NothingToRetire", f"{_said(decision)} The node is out of service already.")
        return True
    cause = _cause(decision)
    if d.life.episode is None:
        d.leave_service(cause, "")
    d.void(cause.message)
    d.take(Trigger.RETIRED, cause)
    d.update(certification="")
    return True


def _start_over(d: Draft, cause: Cause) -> None:
    """Back to certification in a new episode: the ladder begins anew."""
    profile = d.life.profile if d.life.profile == BRINGUP else REPAIR
    # A person worked on it or knows better: what was tried before says nothing any more.
    episode = open_episode(d.node.name, d.node.uid, cause, d.now)
    d.update(episode=episode, cordon=False, profile=profile, earlier=())
    d.take(Trigger.RELEASED, cause)


def _cause(decision: Decision) -> Cause:
    return Cause(kind=CauseKind.PERSON, name=decision.verb.value, message=_said(decision))


def _said(decision: Decision) -> str:
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{decision.verb.value} by {decision.by[:80]}{reason[:200]}."
