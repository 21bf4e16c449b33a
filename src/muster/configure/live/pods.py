"""Pods that do not get on, whatever their phase says. Pure.

A pod whose container crashes again and again has the phase Running; what tells is the state of each container, those
of the init containers and sidecars included.
"""

from __future__ import annotations

from datetime import datetime

from muster.configure.live.kinds import ContainerStatus, Pod, Terminated, condition

START_LIMIT_S = 600.0
"""A pod that still creates its containers after so long is stuck: pulling large images takes minutes."""
END_LIMIT_S = 300.0
"""A pod that is still there so long after its grace period has ended is not going to end by itself."""
RECENT_S = 900.0
"""The kubelet waits at most 300 s between two starts, so what restarts for ever has ended within this time."""
RESTARTS = 3
_BENIGN = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons of a pod that is starting; every other one is a failure."""


def plainly_well(pod: Pod) -> bool:
    """Whether nothing about the pod needs a second look: such pods are not kept."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    status = pod.status
    if status.phase == "Succeeded":
        return True
    if status.phase != "Running":
        return False
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return all(
        (c.state is None or c.state.waiting is None) and (c.last_state is None or c.last_state.terminated is None)
        for c in containers
    )


def trouble(pod: Pod, now: datetime) -> str:
    """What is wrong with the pod, in one clause; empty when nothing is."""
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    name = f"pod {pod.metadata.namespace}/{pod.metadata.name}{where}"
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:
        late_s = (now - deleted).total_seconds()
        if late_s <= END_LIMIT_S:
            return ""
        held = f" (finalizers: {', '.join(pod.metadata.finalizers)})" if pod.metadata.finalizers else ""
        return f"{name} should have ended {_minutes(late_s)} ago and is still there{held}"
    if pod.status.phase in ("Succeeded", "Failed"):
        return ""  # whoever owns it replaces it, and answers for it
    unplaced = _unplaced(pod, now)
    if unplaced:
        return f"{name} {unplaced}"
    containers = [
        *((c, "init container") for c in pod.status.init_container_statuses or ()),
        *((c, "container") for c in pod.status.container_statuses or ()),
    ]
    for container, kind in containers:
        found = _container(container, now) or _slow(container, pod, now)
        if found:
            return f"{name}, {kind} {container.name}: {found}"
    held_up = _held_up(pod, now)
    return f"{name}, {held_up}" if held_up else ""


def _unplaced(pod: Pod, now: datetime) -> str:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if pod.spec.node_name or scheduled is None or scheduled.status != "False":
        return ""
    if scheduled.reason == "SchedulingGated" and _age_s(pod, now) <= START_LIMIT_S:
        return ""
    return f"cannot be placed ({scheduled.reason}: {_short(scheduled.message)})"


def _container(container: ContainerStatus, now: datetime) -> str:
    state, last = container.state, container.last_state
    ended = last.terminated if last is not None else None
    if state is not None and state.waiting is not None and state.waiting.reason not in _BENIGN:
        told = f": {_short(state.waiting.message)}" if state.waiting.message else ""
        after = f" after {container.restart_count} restarts" if container.restart_count else ""
        return f"{state.waiting.reason}{after}{_ending(ended)}{told}"
    if ended is None or not _recent(ended, now) or ended.exit_code == 0:
        return ""
    if ended.reason == "OOMKilled":
        return f"killed for memory and restarted {container.restart_count} times; raise its memory limit"
    if container.restart_count >= RESTARTS:
        return f"restarted {container.restart_count} times{_ending(ended)}"
    return ""


def _slow(container: ContainerStatus, pod: Pod, now: datetime) -> str:
    waiting = container.state.waiting if container.state is not None else None
    if waiting is None or _age_s(pod, now) <= START_LIMIT_S:
        return ""
    if waiting.reason == "PodInitializing":
        return ""  # an init container before it tells why
    return f"{waiting.reason or 'waiting'} for {_minutes(_age_s(pod, now))}"


def _held_up(pod: Pod, now: datetime) -> str:
    """An init container that runs and runs: nothing waits for a bad reason, and nothing starts either."""
    waiting = [c.state.waiting for c in pod.status.container_statuses or () if c.state is not None]
    if not any(w is not None and w.reason == "PodInitializing" for w in waiting):
        return ""
    # Those before the last one that runs are sidecars, which are meant to go on.
    running = [c for c in pod.status.init_container_statuses or () if c.state is not None and c.state.running]
    started = running[-1].state.running.started_at if running else None  # type: ignore[union-attr]
    run_s = (now - started).total_seconds() if started is not None else 0.0
    if run_s <= START_LIMIT_S:
        return ""
    return f"init container {running[-1].name}: has run for {_minutes(run_s)}, and the pod still waits for it"


def _ending(ended: Terminated | None) -> str:
    return f", last exit code {ended.exit_code} ({ended.reason or 'no reason'})" if ended is not None else ""


def _recent(ended: Terminated, now: datetime) -> bool:
    return ended.finished_at is None or (now - ended.finished_at).total_seconds() <= RECENT_S


def _age_s(pod: Pod, now: datetime) -> float:
    created = pod.metadata.creation_timestamp
    return (now - created).total_seconds() if created is not None else 0.0


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."
