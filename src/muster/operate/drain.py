"""Draining: which pods to evict now, what blocks, and until when to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from muster.moments import after
from muster.operate.model import DeletePod, EvictPod, Intent, PodView, Refusal
from muster.resources.fault_policy import Drain, DrainMode

SHOWN = 3


@dataclass(frozen=True)
class DrainStep:
    """What to do about the work on a node now. `blocked` is a sentence, empty when nothing is in the way."""

    intents: tuple[Intent, ...]
    blocked: str
    recheck_at: datetime | None = None
    overdue: bool = False


def drain_step(
    work: Sequence[PodView],
    refusals: Sequence[Refusal],
    policy: Drain,
    started: datetime,
    episode: str,
    now: datetime,
) -> DrainStep:
    """The next step of a drain that started at `started`. `work` holds the pods that are still there.

    Pods that are on their way out are waited for. A pod that a PodDisruptionBudget protects is asked for again and
    again, deleted only after the deadline and only when the policy says so.
    """
    deadline = after(started, policy.deadline_s)
    staying = [p for p in work if not p.deleting]
    match policy.mode:
        case DrainMode.WAIT_FOR_COMPLETION:
            return DrainStep((), _waiting(work, "end by themselves"))
        case DrainMode.DEADLINE if now < deadline:
            return DrainStep((), _waiting(work, f"end by {_clock(deadline)}"), deadline)
        case DrainMode.EVICT | DrainMode.DEADLINE:
            return _evict(work, staying, refusals, policy, deadline, episode, now)
        case _:
            assert_never(policy.mode)


def _evict(
    work: Sequence[PodView],
    staying: Sequence[PodView],
    refusals: Sequence[Refusal],
    policy: Drain,
    deadline: datetime,
    episode: str,
    now: datetime,
) -> DrainStep:
    refused = {r.pod_uid: r.message for r in refusals}
    protected = [p for p in staying if p.uid in refused]
    overdue = now >= deadline
    intents: list[Intent] = []
    for pod in staying:
        if overdue and policy.force_after_deadline and pod.uid in refused:
            intents.append(DeletePod(pod, episode))
        else:
            intents.append(EvictPod(pod, episode))
    if not protected and overdue:
        late = f"The drain's deadline is over and {_named(work)} have not left; a person must look."
        return DrainStep(tuple(intents), late, overdue=True)
    if not protected:
        return DrainStep(tuple(intents), _waiting(work, "leave"), deadline)
    sentence = f"A PodDisruptionBudget forbids the eviction of {_named(protected)}"
    if not overdue:
        escalation = "they are deleted" if policy.force_after_deadline else "a person is asked"
        return DrainStep(tuple(intents), f"{sentence}; from {_clock(deadline)} on {escalation}.", deadline)
    if policy.force_after_deadline:
        return DrainStep(tuple(intents), f"{sentence}; the deadline is over and the policy has them deleted.")
    return DrainStep(tuple(intents), f"{sentence}; the deadline is over, a person must move them.", overdue=True)


def _waiting(work: Sequence[PodView], until: str) -> str:
    return f"Waits for {_named(work)} to {until}." if work else ""


def _named(pods: Sequence[PodView]) -> str:
    keys = sorted(p.key for p in pods)
    more = len(keys) - SHOWN
    return ", ".join(keys[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
