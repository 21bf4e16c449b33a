"""Uncertified and Certifying: when a node may be tested, and what a verdict means for it."""

from __future__ import annotations

from msgspec.structs import replace

from muster.operate import handover, repairs
from muster.operate.age import GAVE_WAY, renewing
from muster.operate.certificates import (
    BRINGUP,
    IDLE,
    REPAIR,
    STACK,
    counted_digest,
    drift_of,
    issue,
    without_failed,
)
from muster.operate.draft import Draft
from muster.operate.drain import drain_step
from muster.operate.episode import (
    NO_PARTNER,
    AttemptOutcome,
    end_attempt,
    inconclusive,
    kept_attempts,
    never_served,
)
from muster.operate.lifecycle import Trigger
from muster.operate.model import BlockerKind, CertificationView
from muster.operate.people import HOLD
from muster.resources.certification import NodeVerdict, Phase, Reason
from muster.resources.fault_policy import DrainMode
from muster.resources.fingerprint import ReadingClass
from muster.resources.node_health import Cause, CauseKind, Observed, Standing

SLIPPED = "Work came to the node before it could be held"

LONELY_FACTOR = 4
"""A partner that was idle when asked may have work when its turn comes. That says nothing about the node, so it is
asked for a person this many times later than after certifications that say something."""


def uncertified(d: Draft) -> None:
    if _pulled_out(d):
        return
    _settle_profile(d)
    asked = _asked_for(d)
    if asked is None and _gave_way(d):
        return
    if asked is not None and d.observed is not None and _unchanged(asked, d.observed):
        d.update(certification=asked.name)
        d.take(Trigger.CERTIFICATION_STARTED, _certification_cause(asked, f"Certification {asked.name} tests it."))
        return
    if asked is not None and not asked.ended:
        d.block(BlockerKind.CERTIFICATION, f"Certification {asked.name} was asked for before the node changed.")
        return
    if not _obstacles(d):
        reason = d.fleet.batch_waits.get(d.node.name, f"Waits for a certification with profile {d.life.profile}.")
        d.block(BlockerKind.BATCH, reason)


def certifying(d: Draft) -> None:
    if _pulled_out(d):
        return
    name = d.life.certification
    running = next((c for c in d.node.certifications if c.name == name), None)
    if running is None or running.request is None:
        _inconclusive(d, Cause(kind=CauseKind.CERTIFICATION, name=name, message=f"Certification {name} is gone."))
        return
    observed = d.observed
    if observed is not None and not _unchanged(running, observed):
        message = f"The node changed while Certification {name} ran; its result does not count."
        _inconclusive(d, Cause(kind=CauseKind.DRIFT, name="during-certification", message=message))
        return
    if not running.ended:
        d.block(BlockerKind.CERTIFICATION, f"Certification {name} is running.")
        return
    _read_verdict(d, running, observed)


def _gave_way(d: Draft) -> bool:
    """A node that only waits to have a good certificate renewed goes back when it is wanted, or tests say nothing."""
    life, name = d.life, d.node.name
    if not renewing(name, life, d.policy.certification, d.now) or life.certificate is None:
        return False
    unclear = inconclusive(life)
    if d.node.work:
        why = f"Work is on the node: {', '.join(p.key for p in d.node.work[:3])}."
    elif d.fleet.demand:
        why = "Pods wait for GPUs."
    elif unclear.about_node or unclear.no_partner:
        why = "The last certification ended without a verdict."
    else:
        return False
    if d.stale(life.certificate) is not None:
        return False
    message = f"{why} The certificate is still good; its renewal waits."
    d.take(Trigger.GAVE_WAY, Cause(kind=CauseKind.AGE, name=GAVE_WAY, message=message))
    d.update(episode=None, certification="", profile="", cordon=False)
    d.note("GaveWay", message)
    return True


def _pulled_out(d: Draft) -> bool:
    """A fault or a person ends the way to a certificate."""
    if d.disqualifying:
        episode = d.life.episode
        if episode is not None and episode.attempts and episode.attempts[-1].outcome == AttemptOutcome.PROVED:
            d.update(episode=end_attempt(episode, AttemptOutcome.RECURRED))
        d.void(d.disqualifying[0].sentence())
        d.take(Trigger.FAULT_HELD, d.disqualifying[0].cause())
        d.update(certification="")
        return True
    hold = d.node.spec.hold
    if hold is not None:
        d.take(Trigger.PERSON_HELD, hold_cause(d))
        d.update(certification="")
        return True
    return handover.pulled_out(d)


def hold_cause(d: Draft) -> Cause:
    hold = d.node.spec.hold
    text = f"Held by {hold.by[:80]}: {hold.reason[:200]}" if hold is not None else "Held by a person"
    return Cause(kind=CauseKind.PERSON, name=HOLD, message=text)


def _settle_profile(d: Draft) -> None:
    """A changed identity asks for the bring-up profile, whatever took the node out; so does one never certified.

    A shorter profile is enough only where an earlier certificate proves the rest. It proves nothing about a driver
    that came while the node was being repaired or waited for a renewal.
    """
    certificate, observed = d.life.certificate, d.observed
    profile = d.life.profile or REPAIR
    if certificate is None or certificate.adopted or certificate.node_uid != d.node.uid:
        profile = BRINGUP
    elif observed is not None:
        identity = [c for c in drift_of(certificate, observed) if c.reading_class is ReadingClass.IDENTITY]
        if identity:
            profile = BRINGUP
        elif profile in (REPAIR, IDLE) and (stale := d.stale(certificate)) is not None and stale.profile == STACK:
            profile = STACK
    if profile != d.life.profile:
        d.update(profile=profile)


def _asked_for(d: Draft) -> CertificationView | None:
    """The certification that was asked for this very stay in `Uncertified`.

    Of several, one that has not ended; else one for the node as it is now: others ended for what it was before.
    """
    episode = d.life.episode.id if d.life.episode else ""
    asked = [
        view
        for view in d.node.certifications
        if view.request is not None
        and (view.request.episode, view.request.since) == (episode, d.life.since)
        and view.profile == d.life.profile
    ]
    seen = d.observed
    asked.sort(key=lambda view: (view.ended, seen is None or not _unchanged(view, seen), view.name))
    return asked[0] if asked else None


def _unchanged(view: CertificationView, observed: Observed) -> bool:
    request = view.request
    return (
        request is not None
        and request.fingerprint == counted_digest(observed.fingerprint)
        and request.boot_id == observed.boot_id
    )


def _obstacles(d: Draft) -> bool:
    """Say what keeps the node from being tested; False when nothing does."""
    node, policy = d.node, d.policy
    if node.spec.paused:
        d.block(BlockerKind.PERSON, "A person paused the node (spec.paused).")
    elif node.unschedulable and not node.cordoned_by:
        d.block(BlockerKind.PERSON, "A person cordoned the node; it is tested once they uncordon it.")
    if d.observed is None:
        d.block(BlockerKind.AGENT, "The agent has not reported from this node yet.")
    elif d.agent_silent:
        d.block(BlockerKind.AGENT, "The agent of the node is silent.")
    if not node.ready:
        d.block(BlockerKind.NODE, "The node is not Ready.")
    stray = repairs.stray_at_work(d)
    if stray:
        d.block(BlockerKind.REPAIR, stray)
    if d.held_back:
        held = d.held_back[0]
        d.block(BlockerKind.CORRELATION, f"{held.sentence()}. {held.judgement.capped_by}")
    ended = inconclusive(d.life)
    most = policy.certification.max_attempts
    if ended.about_node >= most or ended.no_partner >= most * LONELY_FACTOR:
        d.block(
            BlockerKind.PERSON,
            f"{ended.about_node + ended.no_partner} certifications ended without a verdict: "
            f"'muster node {node.name} retry' starts another.",
        )
    if node.work:
        _say_slipped(d)
        _wait_for_work(d)
    return bool(d.blockers)


def _say_slipped(d: Draft) -> None:
    """Work on a node that never served: it was placed in the moment between registration and hold."""
    if not never_served(d.life):
        return
    names = ", ".join(p.key for p in d.node.work[:3])
    d.remark(f"{SLIPPED}: {names}")
    known = any(b.kind == BlockerKind.POD for b in d.life.blockers)
    if not known and d.node.lifecycle is not None:
        d.note("WorkBeforeHold", f"{SLIPPED}: {names}.", warning=True)


def _wait_for_work(d: Draft) -> None:
    """Running jobs finish before the node is tested. Only drain mode `deadline` ever ends them."""
    drain = d.policy.drain
    episode = d.life.episode.id if d.life.episode else ""
    if drain.mode is DrainMode.DEADLINE and not d.node.spec.paused:
        step = drain_step(
            d.node.work,
            d.node.refusals,
            drain,
            d.life.since,
            episode,
            d.now,
            node=d.node.name,
            answers=d.node.checkpoints,
        )
        d.intend(*step.intents)
        d.wake(step.recheck_at)
        d.block(BlockerKind.POD, step.blocked)
        return
    names = ", ".join(p.key for p in d.node.work[:3])
    d.block(BlockerKind.POD, f"Work is still running on the node and may finish: {names}.")


def _read_verdict(d: Draft, ended: CertificationView, observed: Observed | None) -> None:
    if ended.phase is not Phase.ABORTED and ended.verdict is NodeVerdict.PASSED:
        if observed is None or d.agent_silent:
            d.block(BlockerKind.AGENT, "It passed; the certificate waits for the agent to confirm the fingerprint.")
            return
        _admit(d, ended, observed)
    elif ended.phase is not Phase.ABORTED and ended.verdict is NodeVerdict.FAILED:
        said = f": {ended.message[:200]}" if ended.message else ""
        cause = _certification_cause(
            ended, f"Failed Certification {ended.name} ({ended.reason.value or 'no reason'}){said}"
        )
        episode = d.life.episode
        if episode is not None and episode.attempts:
            d.update(episode=end_attempt(episode, AttemptOutcome.RECERTIFICATION_FAILED))
        d.update(certificate=without_failed(d.life.certificate, ended))
        d.void(cause.message)
        d.take(Trigger.CERTIFICATION_FAILED, cause)
        d.update(certification="")
        d.note("CertificationFailed", cause.message, warning=True)
    else:
        word = "was aborted" if ended.phase is Phase.ABORTED else f"ended {ended.verdict.value}"
        said = f": {ended.message[:200]}" if ended.message else "."
        cause = _certification_cause(ended, f"Certification {ended.name} {word}{said}")
        lonely = ended.phase is not Phase.ABORTED and ended.reason is Reason.NO_PARTNER
        _inconclusive(d, replace(cause, name=NO_PARTNER) if lonely else cause)


def _admit(d: Draft, passed: CertificationView, observed: Observed) -> None:
    certificate = issue(d.node.name, d.node.uid, observed, passed, d.rules, d.life.certificate, d.now)
    assert certificate.standing is Standing.VALID  # noqa: S101 - what `issue` makes
    d.update(certificate=certificate)
    d.take(
        Trigger.CERTIFICATION_PASSED,
        _certification_cause(passed, f"Passed Certification {passed.name} (profile {passed.profile})."),
    )
    d.update(earlier=kept_attempts(d.life), episode=None, certification="", profile="", cordon=False)
    d.note("InService", f"Certified by {passed.name}; the node takes work.")


def _inconclusive(d: Draft, cause: Cause) -> None:
    d.take(Trigger.CERTIFICATION_INCONCLUSIVE, cause)
    d.update(certification="")
    d.note("CertificationInconclusive", cause.message)


def _certification_cause(view: CertificationView, message: str) -> Cause:
    return Cause(kind=CauseKind.CERTIFICATION, name=view.name, message=message)
