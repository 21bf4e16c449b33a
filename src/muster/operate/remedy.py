"""Quarantined, Draining, Repairing, OutOfService: getting a node fit again, one proved step at a time."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from muster.operate.certificates import BRINGUP, REPAIR, STACK
from muster.operate.draft import Draft
from muster.operate.drain import drain_step
from muster.operate.episode import (
    AttemptOutcome,
    NextAttempt,
    end_attempt,
    next_attempt,
    of_episode,
    open_attempt,
    start_attempt,
    uncordoned_by_person,
)
from muster.operate.lifecycle import Trigger
from muster.operate.model import BlockerKind, CreateRepair
from muster.operate.people import HOLD, return_from_hold
from muster.operate.proof import REBOOTING, Evidence, ProofState, judge_repair
from muster.operate.validation import hold_cause
from muster.resources.base import ObjectMeta
from muster.resources.fault_policy import Disposition, LadderStep
from muster.resources.node_health import Cause, CauseKind, RungAttempt, State
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung

DRAIN_RETRY_S = 15
"""How soon an eviction that was refused is asked for again."""
UNSEEN_REPAIR_S = 60
"""An attempt younger than this cannot have booted the node and lost its Repair: the object is just being created. A
boot that seems later is told by a node whose clock is ahead."""

BOOT_UNKNOWN = "-"
"""Boot ID before a repair whose object is gone while the node booted after it was asked for."""


def quarantined(d: Draft) -> None:
    if d.node.spec.hold is not None:
        d.block(BlockerKind.PERSON, f"{hold_cause(d).message}. Muster starts nothing until the hold is removed.")
        return
    if not d.disqualifying:
        root = _root(d)
        if root.kind is CauseKind.PERSON:
            said = Cause(kind=CauseKind.PERSON, name="hold-removed", message="The person's hold was removed.")
            return_from_hold(d, said)
            return
        if root.kind is not CauseKind.CERTIFICATION:
            _cleared(d)
            return
    _advance(d)


def draining(d: Draft) -> None:
    if d.node.spec.hold is not None:
        d.take(Trigger.PERSON_HELD, hold_cause(d))
        return
    if not d.disqualifying and _root(d).kind is not CauseKind.CERTIFICATION:
        _cleared(d)
        return
    if not d.work:
        _advance(d)
        return
    if _stopped(d) or d.life.episode is None:
        return
    step = drain_step(d.work, d.node.refusals, d.policy.drain, d.life.since, d.life.episode.id, d.now)
    d.intend(*step.intents)
    d.wake(step.recheck_at)
    if step.intents:
        d.wake(d.now + timedelta(seconds=DRAIN_RETRY_S))
    if d.block(BlockerKind.POD, step.blocked) and step.overdue:
        d.note("DrainOverdue", step.blocked, warning=True)


def repairing(d: Draft) -> None:
    attempt = open_attempt(d.life.episode)
    if attempt is None:
        lost = Cause(kind=CauseKind.REPAIR, name="unknown", message="No repair is under way in this episode.")
        d.take(Trigger.REPAIR_FAILED, lost)
        return
    repair = next((r for r in d.node.repairs if r.metadata.name == attempt.repair), None)
    if repair is None:
        repair = _done_without_object(d, attempt)
    if repair is None:
        if d.node.spec.paused:
            d.block(BlockerKind.PERSON, "A person paused the node (spec.paused); the repair is not asked for.")
            return
        d.intend(CreateRepair(_repair(d, attempt, _timeout_s(d, attempt))))
        d.block(BlockerKind.REPAIR, f"Repair {attempt.repair} is asked for.")
        return
    _judge(d, attempt, repair)


def out_of_service(d: Draft) -> None:
    episode = d.life.episode
    attempt = open_attempt(episode)
    if episode is not None and attempt is not None and attempt.rung == Rung.TICKET.value:
        repair = next((r for r in d.node.repairs if r.metadata.name == attempt.repair), None)
        if repair is None and d.policy.repairs:
            d.intend(CreateRepair(_repair(d, attempt, _timeout_s(d, attempt))))
        elif repair is not None and repair.status.external_id and episode.ticket != repair.status.external_id:
            d.update(episode=replace(episode, ticket=repair.status.external_id))
    ticket = f" (ticket {d.life.episode.ticket})" if d.life.episode and d.life.episode.ticket else ""
    d.block(BlockerKind.PERSON, f"A person must decide{ticket}.")


def _judge(d: Draft, attempt: RungAttempt, repair: Repair) -> None:
    evidence = Evidence(
        observed=d.observed,
        agent_seen=d.node.agent_seen,
        ready=d.node.ready,
        open_faults=tuple(j.fault for j in d.disqualifying),
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
    else:
        outcome = AttemptOutcome.TIMEOUT if proof.state is ProofState.TIMEOUT else AttemptOutcome.FAILED
        d.update(episode=end_attempt(episode, outcome))
        d.take(Trigger.REPAIR_FAILED, cause)
        d.note("RepairFailed", cause.message, warning=True)


def _advance(d: Draft) -> None:
    """The next step towards a fit node: drain, then the next rung, then a person."""
    if _stopped(d):
        return
    worst = d.disqualifying[0] if d.disqualifying else None
    disposition = worst.judgement.disposition if worst is not None else Disposition.REPAIR
    if worst is not None and disposition is Disposition.HOLD:
        d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open (rule {worst.judgement.rule} only holds).")
        return
    if d.work and d.life.state is State.QUARANTINED:
        cause = worst.cause() if worst is not None else _root(d)
        d.update(cordon=True)
        d.take(Trigger.DRAIN_STARTED, cause)
        return
    if worst is not None and disposition is Disposition.DRAIN:
        if d.life.state is State.DRAINING:
            d.take(Trigger.DRAIN_FINISHED, worst.cause())
        d.block(BlockerKind.FAULT, f"Fault {worst.fault.key()} is open (rule {worst.judgement.rule} drains).")
        return
    ladder = worst.judgement.ladder if worst is not None else d.policy.ladder_for(CauseKind.CERTIFICATION)
    attempts = d.life.episode.attempts if d.life.episode else ()
    step = next_attempt(ladder, attempts)
    if step is None or step.rung is Rung.TICKET:
        _give_up(d, step, worst.sentence() if worst is not None else _root(d).message)
    else:
        _start_repair(d, step, worst.sentence() if worst is not None else _root(d).message)


def _start_repair(d: Draft, step: NextAttempt, why: str) -> None:
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - every state out of service has an episode
    d.update(episode=start_attempt(episode, d.node.name, step, d.now), cordon=True)
    message = f"{step.rung.value}, attempt {step.attempt}, for: {why}"
    d.take(Trigger.REPAIR_STARTED, Cause(kind=CauseKind.REPAIR, name=step.rung.value, message=message))
    d.note("RepairStarted", message)


def _give_up(d: Draft, step: NextAttempt | None, why: str) -> None:
    """The ladder is spent: open a ticket, a person decides."""
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - every state out of service has an episode
    if step is not None:
        episode = start_attempt(episode, d.node.name, step, d.now)
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


def _stopped(d: Draft) -> bool:
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
    return False


def _root(d: Draft) -> Cause:
    """Why the node was quarantined: the last fault, failed certification or hold, not the repairs since."""
    for entry in reversed(of_episode(d.life)):
        kind = entry.cause.kind
        held_by_person = kind is CauseKind.PERSON and entry.cause.name == HOLD
        if entry.state is State.QUARANTINED and (
            held_by_person or kind in (CauseKind.FAULT, CauseKind.CERTIFICATION)
        ):
            return entry.cause
    episode = d.life.episode
    return episode.cause if episode is not None else Cause(kind=CauseKind.FAULT, name="unknown")


def _timeout_s(d: Draft, attempt: RungAttempt) -> int:
    """The time limit that the ladder gives to the rung of `attempt`."""
    ladder: tuple[LadderStep, ...] = d.policy.ladder_for(CauseKind.CERTIFICATION)
    if d.disqualifying:
        ladder = d.disqualifying[0].judgement.ladder or ladder
    return next((s.timeout_s for s in ladder if s.rung.value == attempt.rung), LadderStep(rung=Rung.TICKET).timeout_s)


def _repair(d: Draft, attempt: RungAttempt, timeout_s: int) -> Repair:
    episode = d.life.episode
    assert episode is not None  # noqa: S101 - the attempt is part of it
    rung = Rung(attempt.rung)
    gpus = sorted(
        {j.fault.entity.uuid for j in d.disqualifying if j.fault.entity.uuid} if rung is Rung.RESET_GPU else set()
    )
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
            provider=d.policy.repair_provider,
            gpu_uuids=tuple(gpus),
            boot_id_before=(d.observed.boot_id if d.observed else "") or d.node.boot_id,
            reason=(d.disqualifying[0].sentence() if d.disqualifying else _root(d).message)[:400],
            timeout_s=timeout_s,
        ),
    )


def _done_without_object(d: Draft, attempt: RungAttempt) -> Repair | None:
    """The repair whose object is missing although the node booted since: never ask for a second reboot."""
    observed = d.observed
    if observed is None or observed.booted_at is None or Rung(attempt.rung) not in REBOOTING:
        return None
    if observed.booted_at <= attempt.at or d.now < attempt.at + timedelta(seconds=UNSEEN_REPAIR_S):
        return None
    planned = _repair(d, attempt, _timeout_s(d, attempt))
    return replace(
        planned,
        spec=replace(planned.spec, boot_id_before=BOOT_UNKNOWN),
        status=RepairStatus(phase=RepairPhase.DONE, finished_at=observed.booted_at),
    )
