"""Draining: which pods to evict now, what blocks, and until when to wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import assert_never

from msgspec.structs import replace

from muster.moments import after
from muster.operate.checkpoint import CheckpointStep, checkpoint_step
from muster.operate.model import CheckpointAnswer, DeletePod, EvictPod, Intent, PodView, Refusal
from muster.resources.fault_policy import Checkpoint, Drain, DrainMode, DrainRule

SHOWN = 3


@dataclass(frozen=True)
class DrainStep:
    """What to do about the work on a node now. `blocked` is a sentence, empty when nothing is in the way."""

    intents: tuple[Intent, ...]
    blocked: str
    recheck_at: datetime | None = None
    overdue: bool = False


@dataclass(frozen=True)
class Treatment:
    """How some pods are drained: a rule of the policy, or the section itself (without a name)."""

    rule: str
    mode: DrainMode
    deadline_s: int
    force: bool
    checkpoint: Checkpoint | None


@dataclass(frozen=True)
class Moment:
    """What a drain knows beside its pods. `not_before`: nothing is made to leave earlier than that."""

    episode: str
    node: str
    started: datetime
    now: datetime
    not_before: datetime | None = None
    refusals: tuple[Refusal, ...] = ()
    answers: tuple[CheckpointAnswer, ...] = ()


def drain_step(
    work: Sequence[PodView],
    refusals: Sequence[Refusal],
    policy: Drain,
    started: datetime,
    episode: str,
    now: datetime,
    *,
    node: str = "",
    answers: Sequence[CheckpointAnswer] = (),
    not_before: datetime | None = None,
) -> DrainStep:
    """The next step of a drain that started at `started`. `work` holds the pods that are still there.

    Pods that are on their way out are waited for. A pod that a PodDisruptionBudget protects is asked for again and
    again, deleted only after the deadline and only when the policy says so. Each pod is treated by the first rule of
    the policy that matches it.
    """
    moment = Moment(episode, node, started, now, not_before, tuple(refusals), tuple(answers))
    steps = [_group_step(treatment, pods, moment) for treatment, pods in _groups(work, policy)]
    return DrainStep(
        intents=tuple(intent for step in steps for intent in step.intents),
        blocked=" ".join(step.blocked for step in steps if step.blocked),
        recheck_at=min(
            (s.recheck_at for s in steps if s.recheck_at is not None and s.recheck_at > now), default=None
        ),
        overdue=any(step.overdue for step in steps),
    )


def treatment_of(pod: PodView, policy: Drain) -> Treatment:
    """The first rule that matches the pod decides; without one the section itself."""
    for rule in policy.rules:
        if _matches(rule, pod):
            return Treatment(rule.name, rule.mode, rule.deadline_s, rule.force_after_deadline, rule.checkpoint)
    return Treatment("", policy.mode, policy.deadline_s, policy.force_after_deadline, policy.checkpoint)


def at_once(policy: Drain) -> Drain:
    """The same policy without patience: for an emergency. What a PodDisruptionBudget protects is deleted only where
    the policy would have it deleted in the end."""
    rules = tuple(replace(rule, mode=DrainMode.EVICT, deadline_s=0) for rule in policy.rules)
    return replace(policy, mode=DrainMode.EVICT, deadline_s=0, rules=rules)


def _matches(rule: DrainRule, pod: PodView) -> bool:
    named = not rule.namespaces or any(fnmatchcase(pod.namespace, pattern) for pattern in rule.namespaces)
    return named and pod.carries(rule.pod_selector)


def _groups(work: Sequence[PodView], policy: Drain) -> list[tuple[Treatment, list[PodView]]]:
    """The pods by how they are treated, in the order in which the first of each comes."""
    groups: dict[Treatment | str, tuple[Treatment, list[PodView]]] = {}
    for pod in work:
        treatment = treatment_of(pod, policy)
        groups.setdefault(treatment.rule, (treatment, []))[1].append(pod)
    return list(groups.values())


def _group_step(treatment: Treatment, work: Sequence[PodView], moment: Moment) -> DrainStep:
    limit = after(moment.started, treatment.deadline_s)
    match treatment.mode:
        case DrainMode.WAIT_FOR_COMPLETION if moment.now < limit:
            return DrainStep((), _waiting(work, "end by themselves"), limit)
        case DrainMode.WAIT_FOR_COMPLETION:
            late = f"{_waiting(work, 'end by themselves')[:-1]}; the limit of {treatment.deadline_s} s is over."
            return DrainStep((), f"{late} A person must look.", overdue=True)
        case DrainMode.DEADLINE:
            return _evict_from(treatment, limit, limit, work, moment)
        case DrainMode.EVICT:
            return _evict_from(treatment, moment.started, limit, work, moment)
        case _:
            assert_never(treatment.mode)


def _evict_from(
    treatment: Treatment, begins: datetime, deadline: datetime, work: Sequence[PodView], moment: Moment
) -> DrainStep:
    """Evict from `begins` on; from `deadline` on what a PodDisruptionBudget blocks is escalated."""
    if moment.not_before is not None and moment.not_before > begins:
        deadline = max(deadline, moment.not_before)
        begins = moment.not_before
    if moment.now < begins:
        return DrainStep((), _waiting(work, f"end by {_clock(begins)}"), begins)
    staying = [p for p in work if not p.deleting]
    saves = checkpoint_step(
        staying, treatment.checkpoint, begins, moment.answers, moment.episode, moment.node, moment.now
    )
    if treatment.checkpoint is not None:
        deadline = max(deadline, after(begins, treatment.checkpoint.timeout_s))
    saving = {p.uid for p in saves.saving}
    rest = [p for p in work if p.uid not in saving]
    evicted = _evict(rest, [p for p in staying if p.uid not in saving], treatment, deadline, moment)
    return _with_saves(evicted, saves)


def _with_saves(step: DrainStep, saves: CheckpointStep) -> DrainStep:
    said = f" (the webhook says: {saves.failure[:120]})" if saves.failure else ""
    parts = []
    if saves.saving:
        until = f" until {_clock(saves.ends_at)} at the latest" if saves.ends_at is not None else ""
        parts.append(f"{_named(saves.saving)} may save their state{until}{said}.")
    if saves.late:
        parts.append(f"{_named(saves.late)} did not save their state in time{said}.")
    times = [at for at in (step.recheck_at, saves.ends_at) if at is not None]
    return DrainStep(
        (*saves.intents, *step.intents),
        " ".join(p for p in (*parts, step.blocked) if p),
        min(times, default=None),
        step.overdue,
    )


def _evict(
    work: Sequence[PodView], staying: Sequence[PodView], treatment: Treatment, deadline: datetime, moment: Moment
) -> DrainStep:
    refused = {r.pod_uid: r for r in moment.refusals}
    protected = [p for p in staying if p.uid in refused]
    overdue = bool(work) and moment.now >= deadline
    intents: list[Intent] = []
    for pod in staying:
        if overdue and treatment.force and pod.uid in refused:
            intents.append(DeletePod(pod, moment.episode))
        else:
            intents.append(EvictPod(pod, moment.episode))
    if not protected and overdue:
        late = f"The drain's deadline is over and {_named(work)} have not left; a person must look."
        return DrainStep(tuple(intents), late, overdue=True)
    if not protected:
        return DrainStep(tuple(intents), _waiting(work, "leave"), deadline)
    sentence = _forbidden(protected, [refused[p.uid] for p in protected])
    if not overdue:
        escalation = "they are deleted" if treatment.force else "a person is asked"
        return DrainStep(tuple(intents), f"{sentence}; from {_clock(deadline)} on {escalation}.", deadline)
    if treatment.force:
        return DrainStep(tuple(intents), f"{sentence}; the deadline is over and the policy has them deleted.")
    return DrainStep(tuple(intents), f"{sentence}; the deadline is over, a person must move them.", overdue=True)


def _forbidden(pods: Sequence[PodView], refusals: Sequence[Refusal]) -> str:
    names = sorted({r.budget for r in refusals if r.budget})
    who = f"PodDisruptionBudget {', '.join(names[:SHOWN])}" if names else "A PodDisruptionBudget"
    since = min((r.since for r in refusals if r.since is not None), default=None)
    return f"{who} forbids the eviction of {_named(pods)}" + (f" since {_clock(since)}" if since else "")


def _waiting(work: Sequence[PodView], until: str) -> str:
    return f"Waits for {_named(work)} to {until}." if work else ""


def _named(pods: Sequence[PodView]) -> str:
    keys = sorted(p.key for p in pods)
    more = len(keys) - SHOWN
    return ", ".join(keys[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
