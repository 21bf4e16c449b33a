"""Quarantined, Draining, Repairing, OutOfService: getting a node fit again, one proved step at a time."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from muster.operate import handover, repairs
from muster.operate.certificates import BRINGUP, REPAIR, STACK, voided
from muster.operate.draft import COMPARED_SOON, Draft
from muster.operate.drain import at_once, drain_step
from muster.operate.episode import (
    AttemptOutcome,
    NextAttempt,
    end_attempt,
    mark_seen,
    open_attempt,
    start_attempt,
)
from muster.operate.gpu_scope import Leaving
from muster.operate.lifecycle import Trigger, admits
from muster.operate.model import BlockerKind, CreateRepair
from muster.operate.people import return_from_hold
from muster.operate.proof import Evidence, ProofState, judge_repair
from muster.operate.restraint import root_of, stopped, unwanted
from muster.operate.validation import hold_cause
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import Cause, CauseKind, RungAttempt, State
from muster.resources.repair import Repair, Rung

DRAIN_RETRY_S = 15
"""How soon an eviction that was refused is asked for again."""


def quarantined(d: Draft) -> None:
    if d.node.spec.hold is not None:
        _held(d)
        return
    root = root_of(d)
    due = d.maintained
    if due is not None:
        handover.join(d, due, root)
        if not d.work or not stopped(d):
            handover.keep(d, due)
        return
    if root.kind is CauseKind.MAINTENANCE:
        handover.ended(d)
        return
    if not d.disqualifying and not d.held_back:
        if root.kind is CauseKind.PERSON:
            said = Cause(kind=CauseKind.PERSON, name="hold-removed", message="The person's hold was removed.")
            return_from_hold(d, said)
            return
        if root.kind is not CauseKind.CERTIFICATION:
            _cleared(d)
            return
    _advance(d)


def _held(d: Draft) -> None:
    """A person holds the node. A fault costs the certificate here as it does everywhere else."""
    d.block(BlockerKind.PERSON, f"{hold_cause(d).message}. Muster starts nothing until the hold is removed.")
    if d.maintained is not None and d.handed_over_since is not None:
        # Whoever has the node keeps it: a hold that is removed later takes it out of nobody's hands.
        d.block(BlockerKind.MAINTENANCE, d.maintained.message)
    if d.disqualifying and admits(d.life.certificate) and not d.uncompared:
        d.update(certificate=voided(d.life.certificate, d.disqualifying[0].sentence(), d.now))


def draining(d: Draft) -> None:
    if d.node.spec.hold is not None:
        d.take(Trigger.PERSON_HELD, hold_cause(d))
        return
    root = root_of(d)
    if root.kind is CauseKind.MAINTENANCE:
        _drain_for_maintenance(d, root)
        return
    if handover.interrupts(d) and d.maintained is not None:
        d.take(Trigger.MAINTENANCE_HELD, handover.cause_of(d.maintained))
        return
    if not d.disqualifying and not d.held_back and root.kind is not CauseKind.CERTIFICATION:
        _cleared(d)
        return
    if not d.disqualifying and d.held_back:
        _hold_back(d)
        return
    if d.disqualifying and d.disqualifying[0].judgement.disposition is Disposition.HOLD:
        # A rule or a correlation stops short of the drain by now: nobody else has to leave.
        d.take(Trigger.DRAIN_FINISHED, root if root.kind is CauseKind.CERTIFICATION else d.disqualifying[0].cause())
        return
    split = repairs.leaving_now(d)
    if not (split.pods or split.unsure):
        _advance(d)
        return
    if not stopped(d):
        _drain(d, split)


def _drain_for_maintenance(d: Draft, root: Cause) -> None:
    due = d.maintained
    if due is None:
        handover.ended(d)
    elif not d.work:
        d.take(Trigger.DRAIN_FINISHED, root)
    elif not stopped(d):
        _drain(d, Leaving(pods=d.work), for_maintenance=True)


def _drain(d: Draft, split: Leaving, *, for_maintenance: bool = False) -> None:
    """Let the pods of `split` leave, as the policy says for each of them, and say how far that is."""
    episode = d.life.episode
    if episode is None:
        return
    policy, not_before = d.policy.drain, None
    if for_maintenance and d.maintained is not None:
        not_before = d.maintained.may_evict_from
        policy = at_once(policy) if d.maintained.emergency else policy
    step = drain_step(
        split.pods,
        d.node.refusals,
        policy,
        d.life.since,
        episode.id,
        d.now,
        node=d.node.name,
        answers=d.node.checkpoints,
        not_before=not_before,
    )
    d.intend(*step.intents)
    d.wake(step.recheck_at)
    d.wake(split.recheck_at)
    if step.intents:
        d.wake(d.now + timedelta(seconds=DRAIN_RETRY_S))
    total = max(d.life.drain_pods, len(split.pods))
    d.update(drain_pods=total)
    if d.block(BlockerKind.POD, _progress(split, total, step.blocked)) and step.overdue:
        d.note("DrainOverdue", step.blocked, warning=True)


def _progress(split: Leaving, total: int, blocked: str) -> str:
    parts = [f"{len(split.pods)} of {total} pods left."] if total > 1 else []
    if split.gpus:
        rest = f"; {len(split.stay)} on other GPUs work on" if split.stay else ""
        parts.append(f"Only pods on {', '.join(split.gpus[:2])} leave{rest}.")
    if split.unknown:
        parts.append(split.unknown)
    if split.unsure:
        parts.append(f"Which GPUs {split.unsure[0].key} holds is not known yet.")
    return " ".join((*parts, blocked))


def _hold_back(d: Draft) -> None:
    """Many nodes have the finding: nothing more is started for it, and the node stays where it is."""
    held = d.held_back[0]
    d.block(BlockerKind.CORRELATION, f"{held.sentence()}. {held.judgement.capped_by}")


def repairing(d: Draft) -> None:
    attempt = open_attempt(d.life.episode)
    if attempt is None:
        lost = Cause(kind=CauseKind.REPAIR, name="unknown", message="No repair is under way in this episode.")
        d.take(Trigger.REPAIR_FAILED, lost)
        return
    why = repairs.why_of(d, root_of(d))
    repair = next((r for r in d.node.repairs if r.metadata.name == attempt.repair), None)
    if repair is not None:
        _seen(d, attempt)
        why_not = unwanted(d, attempt)
        if why_not and repairs.not_begun(repair):
            repairs.call_back(d, repair, why_not)
            d.block(BlockerKind.REPAIR, f"Repair {attempt.repair} is called back: {why_not}")
    elif attempt.seen_at is not None:
        repair = repairs.lost(d, attempt, why)
        if repair is None:
            until = repairs.lost_until(d, attempt)
            d.wake(until)
            text = f"Repair {attempt.repair} was deleted and may have begun; it is not asked for again before"
            d.block(BlockerKind.REPAIR, f"{text} {until:%Y-%m-%d %H:%M:%S} UTC, when its time is over.")
            return
    else:
        repair = repairs.done_without_object(d, attempt, why)
    if repair is None:
        _ask(d, attempt, why)
        return
    _judge(d, attempt, repair)


def _ask(d: Draft, attempt: RungAttempt, why: str) -> None:
    why_not = unwanted(d, attempt)
    if not why_not and not d.policy.provider_of(repairs.step_of(d, attempt)):
        why_not = f"No provider is named for {attempt.rung} any more."
    if d.node.spec.paused:
        d.block(BlockerKind.PERSON, "A person paused the node (spec.paused); the repair is not asked for.")
        return
    if why_not:
        settled = d.now >= attempt.at + timedelta(seconds=repairs.UNSEEN_REPAIR_S)
        if not settled:
            # It may have been created a moment ago and not be shown yet: what is not seen cannot be called back.
            d.block(BlockerKind.REPAIR, f"Repair {attempt.repair} may just be being created; then it is called back.")
            d.wake(attempt.at + timedelta(seconds=repairs.UNSEEN_REPAIR_S))
            return
        _called_back(d, attempt, f"{attempt.rung} was not asked for: {why_not}")
        return
    d.intend(CreateRepair(repairs.repair_for(d, attempt, why)))
    d.block(BlockerKind.REPAIR, f"Repair {attempt.repair} is asked for.")


def _seen(d: Draft, attempt: RungAttempt) -> None:
    if attempt.seen_at is None and d.life.episode is not None:
        d.update(episode=mark_seen(d.life.episode, d.now))


def _called_back(d: Draft, attempt: RungAttempt, message: str) -> None:
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - an open attempt is part of it
    d.update(episode=end_attempt(episode, AttemptOutcome.CANCELLED))
    cause = Cause(kind=CauseKind.REPAIR, name=attempt.rung, message=message[:400])
    d.take(Trigger.REPAIR_CANCELLED, cause)
    d.note("RepairCancelled", cause.message)


def out_of_service(d: Draft) -> None:
    episode = d.life.episode
    attempt = open_attempt(episode)
    if episode is not None and attempt is not None and attempt.rung == Rung.TICKET.value:
        repair = next((r for r in d.node.repairs if r.metadata.name == attempt.repair), None)
        if repair is not None:
            _seen(d, attempt)
        if repair is None and attempt.seen_at is None and d.policy.provider_of(repairs.step_of(d, attempt)):
            d.intend(CreateRepair(repairs.repair_for(d, attempt, repairs.why_of(d, root_of(d)))))
        elif repair is not None and repair.status.external_id and episode.ticket != repair.status.external_id:
            d.update(episode=replace(episode, ticket=repair.status.external_id))
    ticket = f" (ticket {d.life.episode.ticket})" if d.life.episode and d.life.episode.ticket else ""
    d.block(BlockerKind.PERSON, f"A person must decide{ticket}.")


def _judge(d: Draft, attempt: RungAttempt, repair: Repair) -> None:
    evidence = Evidence(
        observed=d.observed,
        agent_seen=d.node.agent_seen,
        ready=d.node.ready,
        open_faults=d.unproved,
    )
    proof = judge_repair(attempt, repair, evidence, d.now)
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - an open attempt is part of it
    cause = Cause(kind=CauseKind.REPAIR, name=attempt.rung, message=f"{proof.message}.")
    if proof.state is ProofState.WAITING:
        d.block(BlockerKind.REPAIR, proof.message)
        d.wake(proof.recheck_at)
    elif proof.state is ProofState.PROVED:
        replaced = attempt.rung == Rung.REPLACE.value
        profile = BRINGUP if replaced else d.life.profile if d.life.profile in (BRINGUP, STACK) else REPAIR
        d.update(episode=end_attempt(episode, AttemptOutcome.PROVED), profile=profile, cordon=False)
        d.take(Trigger.REPAIR_PROVED, cause)
        d.note("RepairProved", cause.message)
    elif proof.state is ProofState.CANCELLED:
        _called_back(d, attempt, cause.message)
    else:
        outcome = AttemptOutcome.TIMEOUT if proof.state is ProofState.TIMEOUT else AttemptOutcome.FAILED
        d.update(episode=end_attempt(episode, outcome))
        d.take(Trigger.REPAIR_FAILED, cause)
        d.note("RepairFailed", cause.message, warning=True)


def _advance(d: Draft) -> None:
    """The next step towards a fit node: drain, then the next rung, then a person."""
    if stopped(d):
        return
    if not d.disqualifying and d.held_back:
        _hold_back(d)
        return
    if d.uncompared:
        d.block(BlockerKind.CORRELATION, COMPARED_SOON)
        return
    worst = d.disqualifying[0] if d.disqualifying else None
    disposition = worst.judgement.disposition if worst is not None else Disposition.REPAIR
    if worst is not None and disposition is Disposition.HOLD:
        allowed = f"rule {worst.judgement.rule} only holds"
        if worst.judgement.capped_by:
            d.block(BlockerKind.CORRELATION, f"{worst.sentence()}. {worst.judgement.capped_by}")
            allowed = "only held, because many nodes have it"
        d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open ({allowed}).")
        return
    if d.life.state is State.QUARANTINED and _start_drain(d):
        return
    if worst is not None and disposition is Disposition.DRAIN:
        if d.life.state is State.DRAINING:
            root = root_of(d)
            d.take(Trigger.DRAIN_FINISHED, root if root.kind is CauseKind.CERTIFICATION else worst.cause())
        d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open (rule {worst.judgement.rule} drains).")
        return
    why = repairs.why_of(d, root_of(d))
    step = repairs.next_step(d)
    if step is None or step.rung is Rung.TICKET:
        _give_up(d, step, why)
        return
    at_work = handover.blocks_repairs(d) or repairs.stray_at_work(d)
    if at_work:
        d.block(BlockerKind.REPAIR, at_work)
        return
    _start_repair(d, step, why)


def _start_drain(d: Draft) -> bool:
    """Begin to drain when work has to leave first."""
    split = repairs.leaving_now(d)
    if not (split.pods or split.unsure):
        return False
    worst = d.disqualifying[0] if d.disqualifying else None
    d.update(cordon=True, drain_pods=len(split.pods))
    d.take(Trigger.DRAIN_STARTED, worst.cause() if worst is not None else root_of(d))
    if split.unknown:
        d.note("WholeNodeDrained", split.unknown)
    return True


def _start_repair(d: Draft, step: NextAttempt, why: str) -> None:
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - every state out of service has an episode
    before = repairs.earlier_attempts(d)
    if before and not episode.attempts:
        last = before[-1]
        d.note("Recurred", f"It came back after {last.rung} at {last.at:%Y-%m-%d %H:%M} UTC: {why}", warning=True)
    cause, boot = repairs.cause_key(d), repairs.boot_id(d)
    d.update(episode=start_attempt(episode, d.node.name, step, d.now, cause=cause, boot_id=boot), cordon=True)
    message = f"{step.rung.value}, attempt {step.attempt}, for: {why}"
    d.take(Trigger.REPAIR_STARTED, Cause(kind=CauseKind.REPAIR, name=step.rung.value, message=message))
    d.note("RepairStarted", message)


def _give_up(d: Draft, step: NextAttempt | None, why: str) -> None:
    """The ladder is spent: open a ticket, a person decides."""
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - every state out of service has an episode
    if step is not None:
        episode = start_attempt(episode, d.node.name, step, d.now, cause=repairs.cause_key(d))
        episode = replace(episode, ticket=episode.attempts[-1].repair)
        d.update(episode=episode)
    tried = ", ".join(a.rung for a in episode.attempts if a.rung != Rung.TICKET.value) or "nothing that Muster may do"
    message = f"Repairs are exhausted ({tried}): {why}"
    d.take(Trigger.LADDER_SPENT, Cause(kind=CauseKind.REPAIR, name=Rung.TICKET.value, message=message))
    d.note("TicketOpened", f"{message} A person must decide.", warning=True)


def _cleared(d: Draft) -> None:
    """The fault went away without a repair that is being proved: the node must pass before it works again."""
    message = "The fault that kept the node out is gone; the node is recertified."
    profile = d.life.profile if d.life.profile in (BRINGUP, STACK) else REPAIR
    d.take(Trigger.FAULT_CLEARED, Cause(kind=CauseKind.FAULT, name="cleared", message=message))
    d.update(cordon=False, profile=profile)
