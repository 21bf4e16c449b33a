"""Repairs of one node: which rung is next, what is asked of the provider, and what happens to what nobody wants."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from muster.moments import after
from muster.operate.draft import Draft, Judged
from muster.operate.episode import AttemptOutcome, NextAttempt, next_attempt, of_episode, open_attempt, recurring
from muster.operate.gpu_scope import Leaving, leaving, whole_node
from muster.operate.model import CancelRepair
from muster.operate.proof import CLAIM_MARGIN_S, REBOOTING
from muster.resources.base import ObjectMeta
from muster.resources.fault import Scope
from muster.resources.fault_policy import Disposition, DrainScope, LadderStep, PatternOver
from muster.resources.node_health import Cause, CauseKind, RungAttempt, State, Verb
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung

CERTIFICATION = "certification"
"""Cause of an attempt that is for a failed certification and for no fault."""

RECURRENCE_S = 24 * 3600
"""What comes back within this time after a proved repair goes on with the next rung, where no pattern over repairs
says another time: a repair that does not last a day has repaired nothing."""

CANCEL_LIMIT = 3
"""Repairs called back in a row after which a person is asked: somebody does not want them."""

UNSEEN_REPAIR_S = 60
"""An attempt younger than this cannot have booted the node and lost its Repair: the object is just being created. A
boot that seems later is told by a node whose clock is ahead."""

BOOT_UNKNOWN = "-"
"""Boot ID before a repair whose object is gone while the node booted after it was asked for."""


def ladder_of(d: Draft) -> tuple[LadderStep, ...]:
    """The ladder for what keeps the node out, without rungs that nobody is named for."""
    worst = d.disqualifying[0] if d.disqualifying else None
    ladder = worst.judgement.ladder if worst is not None else d.policy.ladder_for(CauseKind.CERTIFICATION)
    return tuple(step for step in ladder if step.rung is Rung.TICKET or d.policy.provider_of(step))


def earlier_attempts(d: Draft) -> tuple[RungAttempt, ...]:
    """Attempts of ended episodes against the same finding, as far back as it counts as recurring."""
    over = [p.within_s for p in d.policy.patterns if p.enabled and p.over is PatternOver.REPAIRS]
    return recurring(d.life, cause_key(d), max(over, default=RECURRENCE_S), d.now)


def next_step(d: Draft) -> NextAttempt | None:
    """The step of the ladder that is next; None when it is spent."""
    attempts = d.life.episode.attempts if d.life.episode is not None else ()
    return next_attempt(ladder_of(d), attempts, earlier_attempts(d))


def cause_key(d: Draft) -> str:
    """For what a repair is made: what comes back later is told by it."""
    return d.disqualifying[0].fault.key() if d.disqualifying else CERTIFICATION


def called_back(d: Draft) -> int:
    """Repairs of the episode that were called back since the last word of a person who wants another try."""
    words = [e.at for e in of_episode(d.life) if e.cause.kind is CauseKind.PERSON and e.cause.name == Verb.RETRY]
    since = max(words, default=None)
    attempts = d.life.episode.attempts if d.life.episode is not None else ()
    return sum(1 for a in attempts if a.outcome == AttemptOutcome.CANCELLED and (since is None or a.at > since))


def leaving_now(d: Draft) -> Leaving:
    """Whose pods must leave before the next step: all, or those that hold the GPUs at fault."""
    gpus = _gpus_at_fault(d)
    if not gpus:
        return whole_node(d.work)
    observed = d.observed
    told = observed.assignments if observed is not None else None
    return leaving(d.work, gpus, told, d.node.claimed_gpus, d.now)


def _gpus_at_fault(d: Draft) -> tuple[str, ...]:
    """GPUs to which drain and repair are confined; empty: they concern the node."""
    acting = [j for j in d.disqualifying if j.judgement.disposition in (Disposition.DRAIN, Disposition.REPAIR)]
    if not acting or not all(_about_one_gpu(j) for j in acting):
        return ()
    if any(j.judgement.disposition is Disposition.REPAIR for j in acting):
        step = next_step(d)
        if step is None or step.rung is not Rung.RESET_GPU:
            return ()
    return tuple(sorted({j.fault.entity.uuid or "" for j in acting}))


def _about_one_gpu(judged: Judged) -> bool:
    fault, judgement = judged.fault, judged.judgement
    if not fault.entity.uuid or judgement.scope is DrainScope.NODE:
        return False
    repaired = judgement.disposition is Disposition.REPAIR
    if repaired and (not judgement.ladder or judgement.ladder[0].rung is not Rung.RESET_GPU):
        return False
    return judgement.scope is DrainScope.GPU or (repaired and fault.scope is Scope.GPU)


def step_of(d: Draft, attempt: RungAttempt) -> LadderStep:
    """The step of the ladder to which `attempt` belongs; one of its rung where the ladder changed since."""
    ladder: tuple[LadderStep, ...] = d.policy.ladder_for(CauseKind.CERTIFICATION)
    if d.disqualifying:
        ladder = (*d.disqualifying[0].judgement.ladder, *ladder)
    return next((s for s in ladder if s.rung.value == attempt.rung), LadderStep(rung=Rung(attempt.rung)))


def repair_for(d: Draft, attempt: RungAttempt, why: str) -> Repair:
    """The `Repair` of `attempt`."""
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - the attempt is part of it
    rung = Rung(attempt.rung)
    step = step_of(d, attempt)
    return Repair(
        metadata=ObjectMeta(
            name=attempt.repair, labels={"muster.dev/node": d.node.name, "muster.dev/episode": episode.id}
        ),
        spec=RepairSpec(
            node_name=d.node.name,
            node_uid=d.node.uid,
            episode=episode.id,
            rung=rung,
            attempt=attempt.attempt,
            provider=d.policy.provider_of(step),
            gpu_uuids=_gpus_to_repair(d, rung),
            boot_id_before=attempt.boot_id_before or boot_id(d),
            reason=why[:400],
            timeout_s=step.timeout_s,
        ),
    )


def _gpus_to_repair(d: Draft, rung: Rung) -> tuple[str, ...]:
    """GPUs to reset or to replace; empty: all of the node, also where a rule says that the node is concerned."""
    if rung not in (Rung.RESET_GPU, Rung.REPLACE):
        return ()
    faulty = [j for j in d.disqualifying if j.fault.entity.uuid]
    if rung is Rung.RESET_GPU and any(j.judgement.scope is DrainScope.NODE for j in faulty):
        return ()
    return tuple(sorted({j.fault.entity.uuid or "" for j in faulty}))


def boot_id(d: Draft) -> str:
    return (d.observed.boot_id if d.observed else "") or d.node.boot_id


def done_without_object(d: Draft, attempt: RungAttempt, why: str) -> Repair | None:
    """The repair whose object is missing although the node booted since: never ask for a second reboot."""
    observed = d.observed
    if observed is None or observed.booted_at is None or Rung(attempt.rung) not in REBOOTING:
        return None
    if observed.booted_at <= attempt.at or d.now < attempt.at + timedelta(seconds=UNSEEN_REPAIR_S):
        return None
    return _claimed(repair_for(d, attempt, why), BOOT_UNKNOWN, observed.booted_at)


def lost_until(d: Draft, attempt: RungAttempt) -> datetime:
    """How long a repair whose object was deleted may still take effect."""
    return after(attempt.at, step_of(d, attempt).timeout_s + CLAIM_MARGIN_S)


def lost(d: Draft, attempt: RungAttempt, why: str) -> Repair | None:
    """A repair whose object was seen and is gone: the provider may have begun, so it is never asked for again.

    What it did is told by the node; None while that is not clear.
    """
    observed, rung = d.observed, Rung(attempt.rung)
    repair = repair_for(d, attempt, why)
    booted = observed is not None and attempt.boot_id_before not in ("", observed.boot_id)
    if rung in REBOOTING and booted and observed is not None:
        return _claimed(repair, attempt.boot_id_before, observed.booted_at or attempt.seen_at or attempt.at)
    if rung not in REBOOTING and not d.unproved and observed is not None:
        return _claimed(repair, attempt.boot_id_before, attempt.seen_at or attempt.at)
    if d.now < lost_until(d, attempt):
        return None
    status = RepairStatus(phase=RepairPhase.FAILED, message="its Repair was deleted and no effect was seen")
    return replace(repair, status=status)


def _claimed(repair: Repair, boot_before: str, at: datetime) -> Repair:
    status = RepairStatus(phase=RepairPhase.DONE, finished_at=at)
    return replace(repair, spec=replace(repair.spec, boot_id_before=boot_before), status=status)


def not_begun(repair: Repair) -> bool:
    """Whether it can still be called back."""
    return repair.status.phase is RepairPhase.PENDING and repair.status.started_at is None


def unconfirmed(repair: Repair) -> bool:
    """Whether it was taken up and the provider has not said that it began: it may still be stopped, or not."""
    return repair.status.phase is RepairPhase.RUNNING and not repair.status.external_id


def call_back(d: Draft, repair: Repair, reason: str) -> None:
    """Say that nobody wants `repair` any more, unless that was said or it is too late."""
    if (not_begun(repair) or unconfirmed(repair)) and not repair.spec.cancel:
        d.intend(CancelRepair(repair.metadata.name, repair.metadata.uid, repair.spec.episode, reason))


def call_back_unwanted(d: Draft) -> None:
    """Nothing is repaired that was released, retired or replaced: what has not begun must not begin."""
    if not (d.node.repairs or d.node.stray_repairs):
        return
    attempt = open_attempt(d.life.episode)
    at_work = d.life.state is State.REPAIRING
    ticket = d.life.state is State.OUT_OF_SERVICE and attempt is not None and attempt.rung == Rung.TICKET.value
    wanted = attempt.repair if attempt is not None and (at_work or ticket) else ""
    for repair in (*d.node.repairs, *d.node.stray_repairs):
        if repair.metadata.name != wanted or repair in d.node.stray_repairs:
            call_back(d, repair, "The episode that asked for it is over.")


def stray_at_work(d: Draft) -> str:
    """A repair that the node did not wait for and that may still work on it; empty when there is none."""
    attempts = d.life.episode.attempts if d.life.episode is not None else ()
    given_up = {a.repair for a in attempts if a.outcome == AttemptOutcome.CANCELLED}
    for repair in (*d.node.stray_repairs, *(r for r in d.node.repairs if r.metadata.name in given_up)):
        same_node = repair.spec.node_uid == d.node.uid
        if not same_node or repair.spec.rung is Rung.TICKET or repair.status.phase is not RepairPhase.RUNNING:
            continue
        began = repair.status.started_at or repair.metadata.creation_timestamp
        until = after(began, repair.spec.timeout_s + CLAIM_MARGIN_S) if began is not None else None
        if until is None or d.now < until:
            d.wake(until)
            return f"Repair {repair.metadata.name}, which nobody wants any more, is still under way."
    return ""


def why_of(d: Draft, root: Cause) -> str:
    return d.disqualifying[0].sentence() if d.disqualifying else root.message
