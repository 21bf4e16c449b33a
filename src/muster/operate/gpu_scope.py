"""Whose pods must leave: all work of the node, or only that which holds the GPU at fault. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.moments import after
from muster.operate.model import PodView
from muster.resources.node_health import GpuAssignment

ASSIGNMENT_WAIT_S = 90
"""How long a new pod may take to show which GPUs it holds: three intervals of the agent (30 s)."""


@dataclass(frozen=True)
class Leaving:
    """How the work of a node is split. `gpus` empty: the whole node is drained and nobody stays."""

    pods: tuple[PodView, ...]
    """Those that must leave."""
    stay: tuple[PodView, ...] = ()
    """Those that work on, on other GPUs of the node."""
    unsure: tuple[PodView, ...] = ()
    """New pods of which it is not known yet; nothing goes on before it is."""
    gpus: tuple[str, ...] = ()
    unknown: str = ""
    """Why the whole node is drained although the fault is about one GPU: a sentence, else empty."""
    recheck_at: datetime | None = None


def whole_node(work: Sequence[PodView], unknown: str = "") -> Leaving:
    return Leaving(pods=tuple(work), unknown=unknown)


def leaving(
    work: Sequence[PodView],
    gpus: Sequence[str],
    assignments: Sequence[GpuAssignment] | None,
    claimed: Mapping[str, tuple[str, ...]],
    now: datetime,
) -> Leaving:
    """Split `work` by the GPUs `gpus` (UUIDs): what the kubelet tells counts first, then claims, then annotations.

    A pod that holds GPUs and of which nothing tells them makes it the whole node: to leave it where it is could mean
    to reset a GPU under it. Only a new one is given ASSIGNMENT_WAIT_S to show.
    """
    told = {a.pod_uid: a.gpus for a in assignments or ()}
    wanted = frozenset(g.lower() for g in gpus)
    pods: list[PodView] = []
    stay: list[PodView] = []
    unsure: list[PodView] = []
    for pod in work:
        held = told.get(pod.uid) or claimed.get(pod.uid) or pod.gpu_uuids
        if not held:
            until = after(pod.created, ASSIGNMENT_WAIT_S) if pod.created is not None else None
            if until is None or now >= until:
                return whole_node(
                    work, f"Which GPUs {pod.key} holds is unknown, so the whole node is drained for {_named(gpus)}."
                )
            unsure.append(pod)
        elif any(g.lower() in wanted for g in held):
            pods.append(pod)
        else:
            stay.append(pod)
    waits = [after(p.created, ASSIGNMENT_WAIT_S) for p in unsure if p.created is not None]
    return Leaving(tuple(pods), tuple(stay), tuple(unsure), tuple(sorted(gpus)), recheck_at=min(waits, default=None))


def _named(gpus: Sequence[str]) -> str:
    ordered = sorted(gpus)
    more = len(ordered) - 2
    return ", ".join(ordered[:2]) + (f" and {more} more" if more > 0 else "")
