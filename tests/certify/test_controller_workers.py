"""Whole certifications in workers on a simulated cluster: what the cluster refuses is never held against a node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from muster.certify.controller import CertificationController
from muster.certify.runners.pods import PodRunner
from muster.certify.runners.program_jobs import ClusterRunner
from muster.certify.runners.worker_link import HowRunEnded, RunAnswer, RunPhase
from muster.certify.runners.workers import WorkerRunner
from muster.kube.api import CERTIFICATIONS, JOBS, NODES, PODS, PatchType
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.certification import Certification, NodeVerdict, Phase, Reason
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from muster.workloads.report import NodeReport
from tests.certify.bed import Bed, Faults, names, running
from tests.certify.worker_bed import IMAGES, Scene


def controller(s: Scene) -> CertificationController:
    api = InProcessApi(s.bed.store, user="muster")
    return CertificationController(
        api,
        s.bed.clock,
        make_runner=lambda api, clock, alive, on_change: ClusterRunner(
            WorkerRunner(
                api,
                clock,
                s.link,
                IMAGES,
                alive=alive,
                on_change=on_change,
                random_bytes=lambda n: bytes([7]) * n,
            ),
            PodRunner(api, clock, alive=alive, on_change=on_change),
        ),
    )


@asynccontextmanager
async def scene(clock: VirtualClock, count: int = 4) -> AsyncIterator[Scene]:
    bed = Bed(clock, names(count), Faults())
    await bed.install()
    for name in bed.names:
        await bed.publish(name)
    found = Scene(bed)
    async with running(found.machinery.run()):
        yield found


def verdicts(found: Certification) -> dict[str, NodeVerdict]:
    return {n.name: n.verdict for n in found.status.nodes}


def test_a_healthy_fleet_passes_and_leaves_nothing() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], floors={"pair": 50.0})
            found = await s.bed.ended("c")
            assert set(verdicts(found).values()) == {NodeVerdict.PASSED}
            assert found.status.phase is Phase.SUCCEEDED
            assert await s.left() == []
            assert s.machinery._made == 4

    run_virtual(scenario)


def test_the_node_that_fails_is_named() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            bad = NodeReport("n02", ok=False, reason="hardware", message="a GPU is missing").to_json().encode()
            s.link.answers["n02"] = RunAnswer(RunPhase.ENDED, HowRunEnded.REPORTED, bad)
            await s.bed.certify("c", s.bed.names, tests=["host"])
            found = await s.bed.ended("c")
            assert verdicts(found) == dict.fromkeys(s.bed.names, NodeVerdict.PASSED) | {"n02": NodeVerdict.FAILED}
            assert await s.left() == []

    run_virtual(scenario)


@pytest.mark.parametrize("trouble", ["image", "busy", "quota"])
def test_what_keeps_workers_from_coming_up_is_shown_and_nobody_is_blamed(trouble: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            words = {"image": "ImagePullBackOff", "busy": "Insufficient nvidia.com/gpu", "quota": "exceeded quota"}
            if trouble == "image":
                s.machinery.no_image.add("n03")
            elif trouble == "busy":
                s.machinery.busy["n03"] = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
            else:
                s.machinery.quota = 'pods "x" is forbidden: exceeded quota: gpus'
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], floors={"pair": 50.0})
            await clock.sleep(120.0)
            assert words[trouble] in (await s.bed.certification("c")).status.blocked
            found = await s.bed.ended("c", limit_s=12 * 3600.0)
            seen = verdicts(found)
            assert NodeVerdict.FAILED not in seen.values()
            assert seen["n03"] is not NodeVerdict.PASSED
            invalid = [r for r in found.status.runs if "n03" in r.nodes and r.reason is Reason.SCHEDULING]
            assert invalid
            assert words[trouble] in invalid[0].message
            if trouble != "quota":
                assert all(seen[n] is NodeVerdict.PASSED for n in ("n00", "n01", "n02"))
            assert await s.left() == []

    run_virtual(scenario)


def test_a_node_that_is_deleted_in_the_middle_is_not_blamed() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], floors={"pair": 50.0})
            await clock.sleep(12.0)
            s.link.unreachable.add("n01")
            s.bed.silent.add("n01")
            await s.bed.api.delete(NODES, "n01")
            found = await s.bed.ended("c")
            assert NodeVerdict.FAILED not in verdicts(found).values()
            assert verdicts(found)["n01"] is not NodeVerdict.PASSED
            assert await s.left() == []

    run_virtual(scenario)


@pytest.mark.parametrize("after_s", [0.0, 0.5, 4.0, 8.0, 16.0, 25.0])
def test_controllers_that_die_are_continued(after_s: float) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], floors={"pair": 50.0})
            async with running(controller(s).run()):
                await clock.sleep(after_s)
            async with running(controller(s).run()):
                found = await s.bed.ended("c")
                assert set(verdicts(found).values()) == {NodeVerdict.PASSED}
                assert await s.left() == []
            assert s.machinery._made == 4  # whoever leads, the same workers

    run_virtual(scenario)


def test_a_certification_that_is_deleted_takes_its_workers_along() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], floors={"pair": 50.0})
            await clock.sleep(10.0)
            assert await s.left() != []
            await s.bed.api.delete(CERTIFICATIONS, "c")

            async def clean() -> bool:
                return await s.left() == []

            await s.bed.until(clean, 300.0)

    run_virtual(scenario)


def test_nodes_of_several_sizes_get_workers_of_their_own_size() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            for name in ("s00", "s01"):
                s.bed.names = (*s.bed.names, name)
                await s.bed.add_node(name, gpus=4, product="NVIDIA-GB200")
                await s.bed.publish(name)
            await s.bed.certify("c", s.bed.names, tests=["host"])
            await clock.sleep(10.0)
            asked = {p["spec"]["nodeName"]: _gpus(p) for p in await s.bed.pods()}
            assert asked == {**dict.fromkeys(names(4), "8"), "s00": "4", "s01": "4"}
            found = await s.bed.ended("c")
            assert set(verdicts(found).values()) == {NodeVerdict.PASSED}

    run_virtual(scenario)


def _gpus(pod: dict[str, object]) -> str:
    spec: dict = pod["spec"]  # type: ignore[type-arg, assignment]
    return str(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def test_no_node_and_nodes_in_use_are_said_at_once() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            await s.bed.certify("none", [], nodeSelector={"pool": "x"}, tests=["host"])
            found = await s.bed.ended("none")
            assert found.status.phase is Phase.ABORTED
            assert "pool=x" in found.status.message
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "train-0", "namespace": "default"},
                "spec": {
                    "nodeName": "n01",
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
                        }
                    ],
                },
            }
            await s.bed.api.create(PODS, body, "default")
            await s.bed.certify("c", s.bed.names, tests=["host"])
            found = await s.bed.ended("c")
            assert verdicts(found)["n01"] is NodeVerdict.UNTESTED
            (busy,) = [n for n in found.status.nodes if n.name == "n01"]
            assert "default/train-0" in busy.message
            assert {v for n, v in verdicts(found).items() if n != "n01"} == {NodeVerdict.PASSED}

    run_virtual(scenario)


# Queues

QUEUED = {"gang": {"scheduler": "kueue", "queue": "gpus"}}


async def admit(s: Scene) -> None:
    """What a queue does when it lets Jobs in."""
    page = await s.bed.api.list_page(JOBS, SYSTEM_NAMESPACE)
    for raw in page.items:
        name = json.loads(raw)["metadata"]["name"]
        await s.bed.api.patch(JOBS, name, {"spec": {"suspend": False}}, PatchType.MERGE, SYSTEM_NAMESPACE)


@pytest.mark.parametrize("leaders", [1, 2])
def test_time_in_a_queue_is_no_time_of_the_certification(leaders: int) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            budget = {"maxWallMinutes": 20.0}
            await s.bed.certify("c", s.bed.names, tests=["host"], pods=QUEUED, budget=budget)
            for _ in range(leaders - 1):
                async with running(controller(s).run()):
                    await clock.sleep(1800.0)
            async with running(controller(s).run()):
                await clock.sleep(3 * 3600.0)
                found = await s.bed.certification("c")
                assert "suspended by its queue" in found.status.blocked
                assert found.status.blocked_since is not None
                assert not found.status.runs
                await admit(s)
                found = await s.bed.ended("c")
                assert set(verdicts(found).values()) == {NodeVerdict.PASSED}
                assert found.status.blocked_since is None
                waited = 180.0 + 30.0 * (leaders - 1)
                assert waited - 1.0 <= found.status.blocked_minutes <= waited + 2.0
                assert 0.0 < found.status.cost.wall_minutes < 3.0
                assert await s.left() == []

    run_virtual(scenario)


def test_a_queue_that_lets_nobody_in_ends_the_certification_without_blame() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            budget = {"maxWallMinutes": 20.0, "maxBlockedMinutes": 90.0}
            await s.bed.certify("c", s.bed.names, tests=["host", "pair"], pods=QUEUED, budget=budget)
            began = clock.elapsed_s
            found = await s.bed.ended("c", limit_s=12 * 3600.0)
            assert 90.0 <= (clock.elapsed_s - began) / 60 < 93.0
            assert not {NodeVerdict.FAILED, NodeVerdict.PASSED} & set(verdicts(found).values())
            assert "suspended by its queue" in found.status.runs[0].message
            assert "maxBlockedMinutes" in found.status.message
            assert found.status.cost.wall_minutes < 3.0
            assert await s.left() == []

    run_virtual(scenario)


def test_while_others_run_the_clock_of_the_certification_runs() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s, running(controller(s).run()):
            s.machinery.busy["n03"] = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
            await s.bed.certify("c", s.bed.names, tests=["host"], budget={"maxWallMinutes": 10.0})
            await clock.sleep(15 * 60.0)
            s.machinery.busy.clear()
            await s.machinery.retry()
            found = await s.bed.ended("c")
            assert set(verdicts(found).values()) == {NodeVerdict.PASSED}
            assert 14.0 < found.status.blocked_minutes < 16.0
            assert found.status.cost.wall_minutes < 3.0

    run_virtual(scenario)
