"""The fleet's scheduler beside the real one: the same nodes and pods, and the placements that both must come to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SystemClock
from muster.kube.api import NODES, PODS
from muster.kube.cache import WatchCache
from muster.kube.config import load_target
from muster.kube.http import HttpApi
from muster.resources.base import HOLD_TAINT
from muster.sim.pods import Pod, project_pod
from muster.sim.scheduler import NodeView, Scheduler, project_node
from tests.contract.client import Client
from tests.contract.server import REAL, SIMULATOR, Server, eventually, server_of, simulated
from tests.contract.workloads import Place, node, pod
from tests.controlplane.cluster import ControlPlane

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


# The two schedulers


@contextmanager
def fleet_scheduler(kubeconfig: Path) -> Iterator[None]:
    """The fleet's scheduler as a client of any API server, in a thread of its own."""
    loop = asyncio.new_event_loop()
    ready: Future[None] = Future()
    stop = asyncio.Event()

    async def main() -> None:
        clock = SystemClock()
        async with HttpApi(load_target(kubeconfig, None)) as api:
            pods: WatchCache[Pod] = WatchCache(
                api, PODS, project_pod, clock=clock, on_change=lambda key: scheduler.poke(key)
            )
            nodes: WatchCache[NodeView] = WatchCache(
                api, NODES, project_node, clock=clock, on_change=lambda key: scheduler.poke(key)
            )
            scheduler = Scheduler(api, clock, pods.items, nodes.items)
            tasks = [asyncio.create_task(cache.run()) for cache in (pods, nodes)]
            await pods.wait_synced()
            await nodes.wait_synced()
            tasks.append(asyncio.create_task(scheduler.run()))
            ready.set_result(None)
            await stop.wait()
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended

    failure: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.result(30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
    assert failure == []


# What they are given


@dataclass
class Scene:
    """A namespace and nodes of its own. Every pod asks for these nodes only."""

    place: Place
    run: str
    names: list[str] = field(default_factory=list)

    @property
    def admin(self) -> Client:
        return self.place.admin

    def node(self, name: str, *, gpus: int = 8, spec: dict[str, Any] | None = None, **labels: str) -> str:
        full = f"{self.run}-{name}"
        body = node(full, gpus=gpus, labels={"run": self.run, **labels})
        self.admin.create("/api/v1/nodes", {**body, "spec": spec or {}}).ok()
        self.names.append(full)
        return full

    def pod(self, name: str, gpus: int, where: str = "", selector: dict[str, str] | None = None, **spec: Any) -> None:
        wanted = {"run": self.run, **(selector or {})}
        self.admin.create(self.place.pods, pod(name, where, gpus=gpus, nodeSelector=wanted, **spec)).ok()

    def node_of(self, name: str) -> str:
        """The node of a pod, or nothing."""
        found = self.admin.get(f"{self.place.pods}/{name}").ok()
        return str(found["spec"].get("nodeName", ""))

    def placed(self, name: str, where: str) -> None:
        eventually(lambda: self.node_of(name))
        assert self.node_of(name) == where
        status = self.admin.get(f"{self.place.pods}/{name}").ok()["status"]
        scheduled = next(c for c in status["conditions"] if c["type"] == "PodScheduled")
        assert (scheduled["status"], status["phase"]) == ("True", "Pending")

    def waits(self, name: str, *reasons: str) -> None:
        """The pod stays pending, and its condition tells each of the reasons."""

        def told() -> dict[str, Any]:
            status = self.admin.get(f"{self.place.pods}/{name}").ok()["status"]
            return next((c for c in status.get("conditions", []) if c["type"] == "PodScheduled"), {})

        condition = eventually(told)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"].startswith(f"0/{len(self.names)} nodes are available: ")
        for reason in reasons:
            assert reason in condition["message"]
        assert self.node_of(name) == ""

    def delete(self, name: str) -> None:
        self.admin.delete(f"{self.place.pods}/{name}", {"gracePeriodSeconds": 0}).ok()

    def clear(self) -> None:
        self.admin.delete(self.place.pods, {"gracePeriodSeconds": 0}).ok()
        for name in self.names:
            self.admin.delete(f"/api/v1/nodes/{name}").ok()


def play(scene: Scene) -> None:
    """The scene with what must come out of it, whoever schedules."""
    big, small = scene.node("big", gpus=8), scene.node("small", gpus=4)
    hold = [{"key": HOLD_TAINT, "value": "Quarantined", "effect": "NoSchedule"}]
    held = scene.node("held", spec={"taints": hold}, pool="held")
    cordoned = scene.node("cordoned", spec={"unschedulable": True}, pool="cordoned")
    apart = scene.node("apart", gpus=2, pool="apart")

    scene.pod("six", 6)
    scene.placed("six", big)
    scene.pod("four", 4)
    scene.placed("four", small)
    scene.pod("apart", 2, selector={"pool": "apart"})
    scene.placed("apart", apart)

    scene.pod("eight", 8)
    scene.waits("eight", "Insufficient nvidia.com/gpu", "had untolerated taint", "were unschedulable")
    scene.pod("astray", 1, selector={"pool": "nowhere"})
    scene.waits("astray", "didn't match Pod's node affinity/selector")

    tolerates_hold = [{"key": HOLD_TAINT, "operator": "Exists"}]
    scene.pod("on-held", 8, selector={"pool": "held"}, tolerations=tolerates_hold)
    scene.placed("on-held", held)
    tolerates_cordon = [{"key": UNSCHEDULABLE, "operator": "Exists"}]
    scene.pod("on-cordoned", 5, selector={"pool": "cordoned"}, tolerations=tolerates_cordon)
    scene.placed("on-cordoned", cordoned)

    # A pod that was put on a node without asking counts as well, and a finished one no longer does.
    scene.pod("preset", 3, cordoned)
    scene.pod("after", 1, selector={"pool": "cordoned"}, tolerations=tolerates_cordon)
    scene.waits("after", "Insufficient nvidia.com/gpu")
    finished = {"status": {"phase": "Succeeded"}}
    scene.admin.patch(f"{scene.place.pods}/preset/status", finished).ok()
    scene.placed("after", cordoned)

    scene.pod("foreign", 1, selector={"pool": "cordoned"}, tolerations=tolerates_cordon, schedulerName="another")
    scene.pod("gated", 1, selector={"pool": "cordoned"}, schedulingGates=[{"name": "test.muster.dev/gate"}])

    # Waiting pods go on as soon as a hold, a cordon or another pod is out of the way.
    scene.delete("on-held")
    scene.admin.patch(f"/api/v1/nodes/{held}", {"spec": {"taints": None}}).ok()
    scene.placed("eight", held)
    scene.pod("late", 2, selector={"pool": "cordoned"})
    scene.waits("late", "were unschedulable")
    scene.admin.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": None}}).ok()
    scene.placed("late", cordoned)

    # Everybody else has been looked at by now.
    assert scene.node_of("foreign") == ""
    assert "conditions" not in scene.admin.get(f"{scene.place.pods}/foreign").ok()["status"]
    (gate,) = scene.admin.get(f"{scene.place.pods}/gated").ok()["status"]["conditions"]
    assert (gate["reason"], scene.node_of("gated")) == ("SchedulingGated", "")


def scene_on(server: Server, run: str) -> Scene:
    return Scene(Place(server, server.new_namespace()), run)


@contextmanager
def cleared(scene: Scene) -> Iterator[Scene]:
    try:
        yield scene
    finally:
        scene.clear()


def test_the_fleets_scheduler_on_the_simulator(tmp_path: Path) -> None:
    with simulated(tmp_path) as server, fleet_scheduler(server.kubeconfig):
        play(scene_on(server, "fleet"))
        assert server.name == SIMULATOR


@pytest.mark.real_api
def test_both_schedulers_on_a_real_api_server(story_plane: ControlPlane) -> None:
    server = server_of(REAL, story_plane.kubeconfig_file())
    schedulers: list[tuple[str, Callable[[], Any]]] = [
        ("fleet", lambda: fleet_scheduler(server.kubeconfig)),
        ("real", story_plane.scheduler),
    ]
    for run, scheduler in schedulers:
        with scheduler(), cleared(scene_on(server, run)) as scene:
            play(scene)
