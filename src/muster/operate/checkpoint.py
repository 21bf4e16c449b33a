"""Checkpoints: asking work to save its state before it is evicted, and how long to wait for it. Pure.

Two ways. A pod with the annotation `muster.dev/checkpoint: "true"` is asked by the annotation
`muster.dev/checkpoint-asked: <episode>` and answers with `muster.dev/checkpoint-done: <episode>`. Or a webhook is
told which pods must save. The time that anybody waits counts from the moment at which the pod would have been
evicted, so that a controller that starts anew gives no second term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.moments import after
from muster.operate.model import AskCheckpoint, CallCheckpoint, CheckpointAnswer, Intent, PodView, SavePhase
from muster.resources.fault_policy import Checkpoint

CHECKPOINT_ANNOTATION = "muster.dev/checkpoint"
ASKED_ANNOTATION = "muster.dev/checkpoint-asked"
DONE_ANNOTATION = "muster.dev/checkpoint-done"


@dataclass(frozen=True)
class CheckpointStep:
    """Which of the pods save their state now, and what is asked of whom."""

    saving: tuple[PodView, ...] = ()
    """Not to be evicted yet."""
    late: tuple[PodView, ...] = ()
    """Those that did not save in time; they leave all the same."""
    intents: tuple[Intent, ...] = ()
    failure: str = ""
    """What the webhook answered when it failed."""
    ends_at: datetime | None = None


def checkpoint_step(
    pods: Sequence[PodView],
    checkpoint: Checkpoint | None,
    begins: datetime,
    answers: Sequence[CheckpointAnswer],
    episode: str,
    node: str,
    now: datetime,
) -> CheckpointStep:
    """What the checkpoint of `pods`, which are to leave from `begins` on, asks for at `now`."""
    if checkpoint is None or checkpoint.timeout_s <= 0:
        return CheckpointStep()
    ends_at = after(begins, checkpoint.timeout_s)
    said = {a.pod_uid: a for a in answers if a.episode == episode}
    unsaved = [p for p in pods if not _saved(p, checkpoint, said, episode)]
    failures = sorted(said[p.uid].message for p in unsaved if p.uid in said and said[p.uid].phase is SavePhase.FAILED)
    failure = failures[0] if failures else ""
    if now >= ends_at:
        return CheckpointStep(late=tuple(unsaved), failure=failure)
    intents: list[Intent] = [
        AskCheckpoint(p, episode) for p in unsaved if _by_annotation(p, checkpoint) and p.checkpoint_asked != episode
    ]
    told = tuple(p for p in unsaved if p.uid not in said or said[p.uid].phase is not SavePhase.SAVED)
    if checkpoint.webhook and told:
        intents.append(CallCheckpoint(checkpoint.webhook, node, told, episode, ends_at))
    return CheckpointStep(tuple(unsaved), (), tuple(intents), failure, ends_at if unsaved else None)


def _by_annotation(pod: PodView, checkpoint: Checkpoint) -> bool:
    return checkpoint.annotate and pod.checkpoint


def _saved(pod: PodView, checkpoint: Checkpoint, said: dict[str, CheckpointAnswer], episode: str) -> bool:
    """Whether there is nothing (more) to wait for: every way by which the pod is asked has answered."""
    if _by_annotation(pod, checkpoint) and pod.checkpoint_done != episode:
        return False
    answer = said.get(pod.uid)
    return not checkpoint.webhook or (answer is not None and answer.phase is SavePhase.SAVED)
