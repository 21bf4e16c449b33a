"""Runs in long-lived workers: what is created, that workers are reused, and that everything is gone afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from muster.certify.measure import HowEnded
from muster.certify.runners import Owner
from muster.certify.runners.gang import POD_GROUPS
from muster.certify.runners.worker_objects import FORCE_AFTER_S
from muster.certify.runners.worker_phase import Limits
from muster.certify.runners.worker_pods import job, secret
from muster.certify.runners.workers import WorkerRunner
from muster.kube.api import CRDS, JOBS, PODS, SECRETS, PatchType
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.certification import Gang, GangScheduler, Pods
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, names, running
from tests.certify.worker_bed import IMAGES, POD_GROUP_CRD, Scene, hows, planned


@asynccontextmanager
async def scene(clock: VirtualClock, count: int = 4) -> AsyncIterator[Scene]:
    bed = Bed(clock, names(count), Faults())
    await bed.install()
    await bed.certify("c", bed.names)
    found = Scene(bed)
    found.owner = Owner("c", (await bed.certification("c")).metadata.uid)
    async with running(found.machinery.run(), found.runner.run()):
        await found.runner.wait_synced()
        yield found


PAIRS = (planned(0, "pair", "n00", "n01"), planned(1, "pair", "n02", "n03"))


def test_rounds_run_in_the_same_workers_and_nothing_is_left() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            ends = await s.carry_out(*PAIRS)
            assert hows(ends, "r01-000") == hows(ends, "r01-001") == [HowEnded.REPORTED] * 2
            first = await s.left()
            assert [w.split()[0] for w in first] == ["Job", "Pod", "Pod", "Pod", "Pod", "Secret", "Service"]
            began = clock.elapsed_s
            await s.runner.clean(s.owner, frozenset(["r01-002"]), s.blocked)
            ends = await s.carry_out(planned(2, "pair", "n00", "n02"), planned(3, "host", "n01"))
            assert hows(ends, "r01-002") == [HowEnded.REPORTED] * 2
            assert await s.left() == first
            assert clock.elapsed_s - began < 12.0  # a run and nothing else: no pod was started for it
            assert {spec.node for spec in s.link.specs} == set(s.bed.names)
            assert len(s.link.tokens) == 1
            assert s.runner.nodes_of("c") == s.bed.names
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.left() == []
            assert s.runner.certifications() == ()
            assert s.said == []

    run_virtual(scenario)


def test_the_worker_that_dies_is_a_crash_and_comes_back() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.carry_out(*PAIRS)
            again = asyncio.ensure_future(s.carry_out(planned(2, "pair", "n00", "n01"), planned(3, "host", "n02")))
            await clock.sleep(3.0)
            before = s.runner.nodes_of("c")
            s.link.unreachable.add("n00")
            await s.machinery.end("n00")
            ends = await again
            assert ends["r01-002"][0].how is HowEnded.CRASHED
            assert "OOMKilled" not in ends["r01-002"][1].message
            assert "137" in ends["r01-002"][0].message
            assert hows(ends, "r01-003") == [HowEnded.REPORTED]
            s.link.unreachable.clear()
            ends = await s.carry_out(planned(4, "pair", "n00", "n03"))
            assert hows(ends, "r01-004") == [HowEnded.REPORTED] * 2
            assert s.runner.nodes_of("c") == before

    run_virtual(scenario)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_worker_that_somebody_else_ends_is_no_evidence(deleted: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.carry_out(*PAIRS)
            again = asyncio.ensure_future(s.carry_out(planned(2, "pair", "n00", "n01")))
            await clock.sleep(3.0)
            s.link.unreachable.add("n00")
            if deleted:
                pod = next(p for p in await s.bed.pods() if p["spec"]["nodeName"] == "n00")
                await s.bed.api.delete(PODS, pod["metadata"]["name"], SYSTEM_NAMESPACE)
            else:
                await s.machinery.end("n00", disturbed=True)
            ends = await again
            assert ends["r01-002"][0].how is HowEnded.DISTURBED

    run_virtual(scenario)


def test_a_node_that_is_gone_is_no_evidence_and_its_pod_is_removed_by_force() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.carry_out(*PAIRS)
            again = asyncio.ensure_future(s.carry_out(planned(2, "pair", "n00", "n01")))
            await clock.sleep(3.0)
            for unwell in (s.link.unreachable, s.dead, s.bed.silent):
                unwell.add("n00")
            ends = await again
            assert ends["r01-002"][0].how is HowEnded.DISTURBED
            began = clock.elapsed_s
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.left() == []
            assert clock.elapsed_s - began >= FORCE_AFTER_S
            assert any("n00" in said for said in s.said)
            assert s.said[-1] == ""

    run_virtual(scenario)


# Workers that do not come up


def test_an_image_that_does_not_come_blocks_and_then_costs_its_own_runs_only() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            s.machinery.no_image.add("n03")
            ends = await s.carry_out(*PAIRS)
            assert hows(ends, "r01-000") == [HowEnded.REPORTED] * 2
            assert hows(ends, "r01-001") == [HowEnded.MUTE, HowEnded.REFUSED]
            assert "ImagePullBackOff" in ends["r01-001"][1].message
            assert clock.elapsed_s >= Limits().pulling_s
            assert s.said[0].startswith("Waits for n03: the worker gets no image: ImagePullBackOff")
            assert s.said[-1] == ""
            began = clock.elapsed_s
            ends = await s.carry_out(planned(2, "host", "n03"), planned(3, "host", "n00"))
            assert hows(ends, "r01-002") == [HowEnded.REFUSED]
            assert clock.elapsed_s - began < 60.0  # it was waited for once
            s.machinery.no_image.clear()
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            ends = await s.carry_out(planned(4, "host", "n03"))
            assert hows(ends, "r01-004") == [HowEnded.REPORTED]

    run_virtual(scenario)


def test_a_busy_node_is_named_with_the_words_of_the_scheduler() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            s.machinery.busy["n02"] = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
            ends = await s.carry_out(*PAIRS)
            assert hows(ends, "r01-001") == [HowEnded.REFUSED, HowEnded.MUTE]
            assert "Insufficient nvidia.com/gpu" in ends["r01-001"][0].message
            assert clock.elapsed_s >= Limits().scheduling_s
            assert "is not scheduled" in s.said[0]

    run_virtual(scenario)


def test_a_quota_is_named() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            s.machinery.quota = 'pods "x" is forbidden: exceeded quota: gpus'
            ends = await s.carry_out(planned(0, "host", "n00"))
            assert hows(ends, "r01-000") == [HowEnded.REFUSED]
            assert "exceeded quota: gpus" in ends["r01-000"][0].message
            assert "exceeded quota: gpus" in s.said[0]

    run_virtual(scenario)


def test_time_in_a_queue_is_nobodys_and_ends_with_the_certification() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            s.pods = Pods(gang=Gang(scheduler=GangScheduler.KUEUE, queue="gpus"))
            work = asyncio.ensure_future(s.carry_out(*PAIRS))
            await clock.sleep(3 * 3600.0)
            assert not work.done()
            assert len(s.said) == 1
            assert "is queued" in s.said[0]
            (job,) = [json.loads(r) for r in (await s.bed.api.list_page(JOBS, SYSTEM_NAMESPACE)).items]
            assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
            patch = {"spec": {"suspend": False}}
            await s.bed.api.patch(JOBS, job["metadata"]["name"], patch, PatchType.MERGE, SYSTEM_NAMESPACE)
            assert hows(await work, "r01-000") == [HowEnded.REPORTED] * 2
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            ends = await s.carry_out(planned(2, "host", "n00"), minutes=30.0)
            assert hows(ends, "r01-002") == [HowEnded.REFUSED]
            assert "queue" in ends["r01-002"][0].message

    run_virtual(scenario)


# Things of others


def test_a_secret_that_somebody_else_made_is_neither_used_nor_removed() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            body = secret(s.owner, bytes(32))
            body["metadata"] |= {"ownerReferences": [], "labels": {}}
            await s.bed.api.create(SECRETS, body, SYSTEM_NAMESPACE)
            ends = await s.carry_out(*PAIRS)
            assert hows(ends, "r01-000") == [HowEnded.REFUSED] * 2
            assert "not one of this certification" in ends["r01-000"][0].message
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.bed.api.get(SECRETS, body["metadata"]["name"], SYSTEM_NAMESPACE)
            assert s.link.tokens == set()

    run_virtual(scenario)


def test_a_job_that_only_bears_the_labels_is_left_alone() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            body = job(s.owner, Pods(), s.bed.names, 8, IMAGES, 60.0)
            body["metadata"] |= {"ownerReferences": [], "name": "mine", "finalizers": []}
            body["spec"]["suspend"] = True
            await s.bed.api.create(JOBS, body, SYSTEM_NAMESPACE)
            await s.carry_out(*PAIRS)
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.left() == ["Job mine"]
            assert s.runner.certifications() == ()

    run_virtual(scenario)


def test_workers_of_an_earlier_certification_of_the_name_go_before_a_round() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.carry_out(*PAIRS)
            later = Owner("c", "another-uid")
            await s.runner.clean(later, frozenset(["r01-000"]), s.blocked)
            assert await s.left() == []
            await s.carry_out(*PAIRS)
            await s.runner.clean(Owner("c", ""), frozenset(), s.blocked)  # the controller knows no UID of one gone
            assert await s.left() == []

    run_virtual(scenario)


def test_workers_whose_token_somebody_took_away_are_made_anew() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.carry_out(*PAIRS)
            before = {p["metadata"]["uid"] for p in await s.bed.pods()}
            name = secret(s.owner, bytes(32))["metadata"]["name"]
            await s.bed.api.delete(SECRETS, name, SYSTEM_NAMESPACE)
            ends = await s.carry_out(planned(2, "pair", "n00", "n01"))
            assert hows(ends, "r01-002") == [HowEnded.REPORTED] * 2
            assert len(s.link.tokens) == 2
            # Who was started with the old token would refuse every run from now on.
            assert not before & {p["metadata"]["uid"] for p in await s.bed.pods()}
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.left() == []

    run_virtual(scenario)


def test_pods_of_a_copied_job_are_left_alone() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            body = job(s.owner, Pods(), ["n03"], 8, IMAGES, 60.0)
            body["metadata"] |= {"ownerReferences": [], "name": "mine", "finalizers": []}
            await s.bed.api.create(JOBS, body, SYSTEM_NAMESPACE)
            await clock.sleep(10.0)
            await s.carry_out(planned(0, "pair", "n00", "n01"))
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert [w.split("-")[0] for w in await s.left()] == ["Job mine", "Pod mine"]
            assert s.runner.certifications() == ()

    run_virtual(scenario)


def test_a_pod_group_without_a_job_does_not_stay() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            await s.bed.api.create(CRDS, POD_GROUP_CRD)
            s.pods = Pods(gang=Gang(scheduler=GangScheduler.VOLCANO, queue="gpus"))
            first = asyncio.ensure_future(s.carry_out(*PAIRS))

            async def begun() -> bool:
                return bool((await s.bed.api.list_page(POD_GROUPS, SYSTEM_NAMESPACE)).items)

            await s.bed.until(begun, step_s=0.01)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            for raw in (await s.bed.api.list_page(JOBS, SYSTEM_NAMESPACE)).items:
                await s.bed.api.delete(JOBS, json.loads(raw)["metadata"]["name"], SYSTEM_NAMESPACE)
            await clock.sleep(30.0)
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert not await begun()

    run_virtual(scenario)


# Whoever leads next


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.2, 1.0, 4.0, 5.3, 7.0, 12.0, 14.0])
def test_a_coordinator_that_is_killed_is_continued(after_s: float) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            first = asyncio.ensure_future(s.carry_out(*PAIRS))
            await clock.sleep(after_s)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            s.runner = s.new_runner()
            async with running(s.runner.run()):
                await s.runner.wait_synced()
                ends = await s.carry_out(*PAIRS)
                assert hows(ends, "r01-000") == hows(ends, "r01-001") == [HowEnded.REPORTED] * 2
                assert len(s.link.tokens) == 1
                assert len(s.link.specs) == 4  # nothing was begun twice
                second = asyncio.ensure_future(s.runner.clean(s.owner, frozenset(), s.blocked))
                await clock.sleep(after_s / 10)
                second.cancel()
                await asyncio.gather(second, return_exceptions=True)
            s.runner = s.new_runner()
            async with running(s.runner.run()):
                await s.runner.wait_synced()
                await s.runner.clean(s.owner, frozenset(), s.blocked)
                assert await s.left() == []

    run_virtual(scenario)


class DyingApi(InProcessApi):
    """Cancels `victim` at request number `at`, before it is sent or after it took effect."""

    at = -1
    after = False
    requests = 0
    victim: asyncio.Task[object] | None = None

    async def _count(self, act: Callable[[], Awaitable[Any]]) -> Any:
        self.requests += 1
        dies = self.requests == self.at and self.victim is not None
        if dies and not self.after:
            self._kill()
            await asyncio.sleep(0)
        answer = await act()
        if dies and self.after:
            self._kill()
            await asyncio.sleep(0)
        return answer

    def _kill(self) -> None:
        assert self.victim is not None
        self.victim.cancel()

    async def get(self, *args: Any, **more: Any) -> Any:
        return await self._count(partial(super().get, *args, **more))

    async def create(self, *args: Any, **more: Any) -> Any:
        return await self._count(partial(super().create, *args, **more))

    async def delete(self, *args: Any, **more: Any) -> Any:
        return await self._count(partial(super().delete, *args, **more))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("phase", ["carry out", "clean"])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_coordinator_killed_at_any_request_is_continued(at: int, phase: str, after: bool) -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with scene(clock) as s:
            api = DyingApi(s.bed.store, user="muster")
            dying = WorkerRunner(api, clock, s.link, IMAGES, random_bytes=lambda n: bytes([9]) * n)
            async with running(dying.run()):
                await dying.wait_synced()
                if phase == "clean":
                    await dying.carry_out(s.work(*PAIRS), s.blocked)
                api.requests, api.at, api.after = 0, at, after
                work = (
                    dying.clean(s.owner, frozenset(), s.blocked)
                    if phase == "clean"
                    else dying.carry_out(s.work(*PAIRS), s.blocked)
                )
                api.victim = asyncio.ensure_future(work)
                await asyncio.gather(api.victim, return_exceptions=True)
            # Whoever leads next carries the round out, and cleans.
            s.runner = s.new_runner()
            async with running(s.runner.run()):
                await s.runner.wait_synced()
                ends = await s.carry_out(*PAIRS)
                assert hows(ends, "r01-000") == hows(ends, "r01-001") == [HowEnded.REPORTED] * 2
                await s.runner.clean(s.owner, frozenset(), s.blocked)
                assert await s.left() == []

    run_virtual(scenario)
