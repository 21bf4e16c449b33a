"""Pods that do not get on, whatever their phase says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from muster.configure.live.kinds import Pod
from muster.configure.live.pods import END_LIMIT_S, RECENT_S, START_LIMIT_S, plainly_well, trouble

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def at(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat()


def pod(*, age_s: float = 60.0, node: str = "n1", metadata: Any = None, **status: Any) -> Pod:
    body = {
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": at(age_s), **(metadata or {})},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running", **status},
    }
    return msgspec.convert(body, Pod, strict=False)


def container(state: Any = None, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    return {
        "name": "main",
        "restartCount": restarts,
        "state": state or {"running": {"startedAt": at(30)}},
        **({"lastState": last} if last else {}),
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(reason: str = "Error", code: int = 1, seconds_ago: float = 30.0) -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at(seconds_ago)}}


STUCK = (
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PostStartHookError",
    "AReasonNobodyKnowsYet",
)


@pytest.mark.parametrize("reason", STUCK)
@pytest.mark.parametrize("place", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_container_that_waits_for_a_bad_reason_is_found_behind_every_phase(
    reason: str, place: str, phase: str
) -> None:
    found = pod(phase=phase, **{place: [container(waiting(reason, "told"), restarts=4)]})
    assert reason in trouble(found, NOW)
    assert "told" in trouble(found, NOW)
    assert "n1" in trouble(found, NOW)
    assert not plainly_well(found)


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_pod_that_starts_is_no_trouble_yet(reason: str) -> None:
    assert trouble(pod(phase="Pending", containerStatuses=[container(waiting(reason))]), NOW) == ""


def test_a_pod_that_creates_its_container_for_too_long_is_stuck() -> None:
    states = [container(waiting("ContainerCreating"))]
    assert trouble(pod(phase="Pending", age_s=START_LIMIT_S, containerStatuses=states), NOW) == ""
    assert "ContainerCreating for 11 min" in trouble(
        pod(phase="Pending", age_s=START_LIMIT_S + 60, containerStatuses=states), NOW
    )


def test_killed_for_memory_while_running_is_found_until_it_is_long_ago() -> None:
    fresh = pod(containerStatuses=[container(last=ended("OOMKilled", 137), restarts=2)])
    old = pod(containerStatuses=[container(last=ended("OOMKilled", 137, RECENT_S + 1), restarts=2)])
    assert "killed for memory" in trouble(fresh, NOW)
    assert trouble(old, NOW) == ""


def test_one_restart_is_no_trouble_and_many_are() -> None:
    assert trouble(pod(containerStatuses=[container(last=ended(), restarts=1)]), NOW) == ""
    assert "restarted 5 times" in trouble(pod(containerStatuses=[container(last=ended(), restarts=5)]), NOW)


def test_a_container_that_ends_well_again_and_again_is_no_trouble() -> None:
    assert trouble(pod(containerStatuses=[container(last=ended("Completed", 0), restarts=9)]), NOW) == ""


def test_terminating_for_ever_names_the_finalizers() -> None:
    late = {"deletionTimestamp": at(END_LIMIT_S + 60), "finalizers": ["example.com/hold"]}
    assert "example.com/hold" in trouble(pod(metadata=late), NOW)
    assert trouble(pod(metadata={"deletionTimestamp": at(END_LIMIT_S - 1)}), NOW) == ""


def test_a_pod_that_cannot_be_placed_says_what_the_scheduler_says() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    assert "0/3 nodes fit" in trouble(pod(phase="Pending", node="", conditions=[condition]), NOW)


def test_ended_pods_and_healthy_ones_are_no_trouble() -> None:
    assert trouble(pod(phase="Failed", containerStatuses=[container(ended())]), NOW) == ""
    healthy = pod(containerStatuses=[container()])
    assert trouble(healthy, NOW) == ""
    assert plainly_well(healthy)
    assert plainly_well(pod(phase="Succeeded"))
    assert not plainly_well(pod(phase="Pending"))
    assert not plainly_well(pod(phase="Unknown"))


@pytest.mark.parametrize(("run_s", "stuck"), [(START_LIMIT_S - 1, False), (START_LIMIT_S + 60, True)])
def test_an_init_container_that_runs_for_ever_is_told_once_it_is_long(run_s: float, stuck: bool) -> None:
    def init(name: str, state: Any) -> dict[str, Any]:
        return {"name": name, "state": state}

    running = {"running": {"startedAt": at(run_s)}}
    begins = [init("sidecar", running), init("validation", running), init("later", waiting("PodInitializing"))]
    held = pod(
        age_s=run_s,
        phase="Pending",
        initContainerStatuses=begins,
        containerStatuses=[container(waiting("PodInitializing"))],
    )
    assert ("init container validation: has run for 11 min" in trouble(held, NOW)) is stuck
    assert not plainly_well(held)
    # The pod runs: what still runs of its init containers are sidecars.
    well = pod(age_s=run_s, initContainerStatuses=begins[:1], containerStatuses=[container()])
    assert trouble(well, NOW) == ""
