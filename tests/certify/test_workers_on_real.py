"""Workers on the real API server, with its Job controller and scheduler: real processes, killed and continued."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.certify.controller import CertificationController
from muster.certify.runners import rounds
from muster.certify.runners.http_link import HttpWorkerLink
from muster.certify.runners.pods import PodRunner
from muster.certify.runners.program_jobs import ClusterRunner
from muster.certify.runners.worker_pods import Images
from muster.certify.runners.workers import WorkerRunner
from muster.clock import SystemClock
from muster.kube.api import (
    CERTIFICATIONS,
    CRDS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    AlreadyExistsError,
    KubeApi,
    NotFoundError,
    TooManyRequestsError,
)
from muster.kube.http import HttpApi
from muster.resources import crd
from muster.resources.base import API_VERSION, SYSTEM_NAMESPACE, WORKERS_LABEL, from_object
from muster.resources.certification import Certification, NodeVerdict, Phase
from tests.certify.process_kubelet import ProcessKubelet
from tests.controlplane.cluster import ControlPlane

LIMIT_S = 150.0
CLOCK = SystemClock()


class Scene:
    """Three nodes of a real cluster and a controller that tests them."""

    def __init__(self, api: KubeApi, link: HttpWorkerLink, kubelet: ProcessKubelet) -> None:
        self.api = api
        self.link = link
        self.kubelet = kubelet
        self.name = f"cert-{kubelet.names[0]}"

    def controller(self, api: KubeApi | None = None) -> CertificationController:
        def make(api: KubeApi, clock: Any, alive: Any, on_change: Any) -> ClusterRunner:
            launch = rounds.Launch(device="cpu")
            images = Images("torch:1", "muster:1")
            workers = WorkerRunner(api, clock, self.link, images, alive=alive, on_change=on_change, launch=launch)
            return ClusterRunner(workers, PodRunner(api, clock, alive=alive, on_change=on_change))

        return CertificationController(api or self.api, CLOCK, make_runner=make)

    async def certify(self, *tests: dict[str, Any]) -> None:
        spec = {
            "nodeSelector": {"pool": self.kubelet.names[0]},
            "profile": "repair",
            "customTests": [{"durationS": 5, "deadlineS": 30, **t} for t in tests],
            "tests": [t["name"] for t in tests],
            "budget": {"maxWallMinutes": 5},
        }
        metadata = {"name": self.name}
        await self.api.create(
            CERTIFICATIONS, {"apiVersion": API_VERSION, "kind": "Certification", "metadata": metadata, "spec": spec}
        )

    async def found(self) -> Certification:
        return from_object(Certification, await self.api.get(CERTIFICATIONS, self.name))

    async def ended(self) -> Certification:
        async def over() -> Certification | None:
            found = await self.found()
            return found if found.status.finished_at is not None else None

        result: Certification = await until(over)
        return result

    async def left(self) -> list[str]:
        found = []
        for res in (JOBS, PODS, SERVICES, SECRETS):
            page = await self.api.list_page(res, SYSTEM_NAMESPACE, label_selector=WORKERS_LABEL)
            found += [f"{res.kind} {json.loads(raw)['metadata']['name']}" for raw in page.items]
        return found


async def until(what: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer = await what()
            if answer:
                return answer
            await asyncio.sleep(0.2)


@asynccontextmanager
async def scene(plane: ControlPlane, folder: Path) -> AsyncIterator[Scene]:
    run = uuid.uuid4().hex[:6]
    async with (
        HttpApi.from_kubeconfig(plane.kubeconfig_file()) as api,
        aclosing(HttpWorkerLink(CLOCK)) as link,
    ):
        for manifest in crd.manifests():
            await _make(api, CRDS, dict(manifest))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        await _make(api, NAMESPACES, namespace)
        await until(lambda: _served(api))
        kubelet = ProcessKubelet(api, [f"w{run}-{i}" for i in range(3)], folder)
        await kubelet.register()
        made = Scene(api, link, kubelet)
        serving = asyncio.ensure_future(kubelet.run())
        try:
            yield made
        finally:
            await _gone(api, CERTIFICATIONS, made.name)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            for name in kubelet.names:
                await _gone(api, NODES, name)


async def _make(api: KubeApi, res: Any, body: dict[str, Any]) -> None:
    try:
        await api.create(res, body)
    except AlreadyExistsError:
        return


async def _gone(api: KubeApi, res: Any, name: str) -> None:
    try:
        await api.delete(res, name)
    except NotFoundError:
        return


async def _served(api: KubeApi) -> bool:
    try:
        await api.list_page(CERTIFICATIONS)
    except (NotFoundError, TooManyRequestsError):
        return False
    return True


@asynccontextmanager
async def working(controller: CertificationController) -> AsyncIterator[None]:
    task = asyncio.ensure_future(controller.run())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_bad_node_is_named_and_nothing_is_left(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(control_plane, tmp_path) as s:
            bad = s.kubelet.names[1]
            check = {"name": "check", "command": ["sh", "-c", f'test "$MUSTER_NODE" != {bad}']}
            async with working(s.controller()):
                await s.certify(check, {"name": "also", "command": ["true"]})
                found = (await s.ended()).status
            assert {n.name for n in found.nodes if n.verdict is NodeVerdict.FAILED} == {bad}, found
            assert {n.name for n in found.nodes if n.verdict is NodeVerdict.PASSED} == {*s.kubelet.names} - {bad}
            assert found.phase is Phase.FAILED
            assert found.cost.rounds > 1
            assert sorted(s.kubelet.started) == sorted(s.kubelet.names)  # one worker each, however many rounds
            assert await s.left() == []
            assert s.kubelet.alive() == []

    with control_plane.scheduler():
        asyncio.run(story())


def test_controllers_and_workers_that_die_cost_no_verdict(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(control_plane, tmp_path) as s:
            slow = {"name": "slow", "command": ["sh", "-c", "sleep 3"]}
            await s.certify(slow, {"name": "more", "command": ["true"]})
            async with working(s.controller()):
                await until(lambda: _value(len(s.kubelet.alive()) == 3))
                await asyncio.sleep(1.5)
            first = list(s.kubelet.started)
            async with working(s.controller()):
                found = (await s.ended()).status
            assert {n.verdict for n in found.nodes} == {NodeVerdict.PASSED}, found
            assert found.phase is Phase.SUCCEEDED
            assert s.kubelet.started == first
            assert await s.left() == []

    with control_plane.scheduler():
        asyncio.run(story())


def test_a_worker_that_is_killed_comes_back(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(control_plane, tmp_path) as s:
            await s.certify({"name": "slow", "command": ["sh", "-c", "sleep 3"]}, {"name": "b", "command": ["true"]})
            victim = s.kubelet.names[2]
            async with working(s.controller()):
                await until(lambda: _value(len(s.kubelet.alive()) == 3))
                await asyncio.sleep(1.0)
                await s.kubelet.kill(victim)
                await until(lambda: _value(s.kubelet.started.count(victim) == 2 and victim in s.kubelet.alive()))
                found = (await s.ended()).status
            others = {n.name: n.verdict for n in found.nodes if n.name != victim}
            assert set(others.values()) == {NodeVerdict.PASSED}, found
            assert await s.left() == []
            assert s.kubelet.alive() == []

    with control_plane.scheduler():
        asyncio.run(story())


async def _value(value: bool) -> bool:
    return value


def test_what_a_certification_had_goes_with_it_while_nobody_leads(
    control_plane: ControlPlane, tmp_path: Path
) -> None:

    async def story() -> None:
        async with scene(control_plane, tmp_path) as s:
            await s.certify({"name": "slow", "command": ["sh", "-c", "sleep 20"]})
            async with working(s.controller()):
                await until(lambda: _value(len(s.kubelet.alive()) == 3))
            await s.api.delete(CERTIFICATIONS, s.name)

            async def clean() -> bool:
                return await s.left() == []

            await until(clean)
            assert s.kubelet.alive() == []

    with control_plane.scheduler():
        asyncio.run(story())


pytestmark = pytest.mark.full
