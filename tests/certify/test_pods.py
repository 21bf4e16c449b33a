"""Runs as pods: what is created, how ends are read, and that everything is gone before the next round."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from muster.certify import catalogue
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners import Owner, Work
from muster.certify.runners.pods import FORCE_AFTER_S, START_LIMIT_S, PodRunner
from muster.certify.runners.test_pod import TestPod, build, end_of, pod_name, project
from muster.kube.api import PODS
from muster.resources.base import SYSTEM_NAMESPACE
from muster.sim.api_faults import Fault, Request
from muster.sim.api_status import StatusError
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Behaviour, End, Faults, names, report, running

OWNER = Owner("c", "uid-1")
TESTS = catalogue.tests()


def planned(number: int, test: str, *nodes: str) -> PlannedRun:
    return PlannedRun(f"r01-{number:03d}", 1, test, nodes, Role.SCREEN, 0)


PAIRS = (planned(0, "pair", "n00", "n01"), planned(1, "pair", "n02", "n03"), planned(2, "host", "n04"))


class Scene:
    """A runner on a test bed, and what it said about being blocked."""

    def __init__(self, b: Bed) -> None:
        self.bed = b
        self.said: list[str] = []
        self.dead: set[str] = set()
        self.owner = OWNER
        self.runner = self.new_runner()

    def new_runner(self) -> PodRunner:
        api = InProcessApi(self.bed.store, user="muster")
        return PodRunner(api, self.bed.clock, alive=lambda name: name not in self.dead)

    async def blocked(self, why: str) -> None:
        self.said.append(why)

    def work(self, *runs: PlannedRun, minutes: float = 240.0) -> Work:
        until = self.bed.clock.now() + timedelta(minutes=minutes)
        return Work(self.owner, runs or PAIRS, TESTS, dict.fromkeys(self.bed.names, 8), until)

    async def carry_out(self, *runs: PlannedRun, minutes: float = 240.0) -> Mapping[str, tuple[RankEnd, ...]]:
        return await self.runner.carry_out(self.work(*runs, minutes=minutes), self.blocked)


@asynccontextmanager
async def scene(clock: VirtualClock, behaviour: Behaviour) -> AsyncIterator[Scene]:
    b = Bed(clock, names(6), behaviour)
    await b.install()
    found = Scene(b)
    # Pods of a certification that does not exist are removed by the cluster's garbage collector.
    await b.certify("c", b.names)
    found.owner = Owner("c", (await b.certification("c")).metadata.uid)
    async with running(b.kubelets(), found.runner.run()):
        await found.runner.wait_synced()
        yield found


def hows(ends: Mapping[str, tuple[RankEnd, ...]], run: str) -> list[HowEnded]:
    return [e.how for e in ends[run]]


def test_the_pod_is_what_the_documents_say() -> None:
    body = build(OWNER, PAIRS[0], 1, TESTS["pair"], 8, "image")
    assert body["metadata"]["name"] == pod_name("c", "r01-000", 1) == "c-r01-000-1"
    assert body["metadata"]["labels"] == {"muster.dev/certification": "c", "muster.dev/run": "r01-000"}
    spec = json.loads(body["metadata"]["annotations"]["muster.dev/run-spec"])
    assert spec == {"run": "r01-000", "test": "pair", "nodes": ["n00", "n01"], "rank": 1}
    assert body["spec"]["nodeName"] == "n01"
    assert body["spec"]["restartPolicy"] == "Never"
    assert body["spec"]["activeDeadlineSeconds"] == TESTS["pair"].deadline_s
    assert body["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    tolerated = {t["key"] for t in body["spec"]["tolerations"]}
    assert {"muster.dev/hold", "node.kubernetes.io/unschedulable"} <= tolerated


def pod(**fields: Any) -> TestPod:
    usual: dict[str, Any] = {"name": "p", "uid": "u", "certification": "c", "owner_uid": "uid-1", "run": "r"}
    usual |= {"node": "n", "phase": "Failed", "deleting": False, "created": None}
    return TestPod(**{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "how"),
    [
        ({"phase": "Pending"}, None),
        ({"phase": "Running"}, None),
        ({"phase": "Running", "deleting": True}, HowEnded.DISTURBED),
        ({"phase": "Succeeded", "exit_code": 0}, HowEnded.MUTE),
        ({"phase": "Succeeded", "exit_code": 0, "report": "no json"}, HowEnded.MUTE),
        ({"phase": "Succeeded", "report": '{"node":"n","ok":true}'}, HowEnded.REPORTED),
        ({"exit_code": 1, "report": '{"node":"n","ok":false}'}, HowEnded.REPORTED),
        ({"exit_code": 139}, HowEnded.CRASHED),
        ({"exit_code": 1, "report": "Segmentation fault"}, HowEnded.CRASHED),
        ({"reason": "DeadlineExceeded"}, HowEnded.TIMEOUT),
        ({"reason": "UnexpectedAdmissionError"}, HowEnded.REFUSED),
        ({"reason": "OutOfnvidia.com/gpu"}, HowEnded.REFUSED),
        ({"reason": "Evicted"}, HowEnded.DISTURBED),
        ({"reason": "NodeShutdown", "report": '{"node":"n","ok":true}'}, HowEnded.DISTURBED),
    ],
)
def test_ends_are_read_as_what_they_are(fields: dict[str, Any], how: HowEnded | None) -> None:
    end = end_of(pod(**fields))
    assert (end.how if end else None) is how


def test_why_a_pod_does_not_start_is_read_from_its_status() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    raw = {"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}}
    assert project(json.dumps(raw).encode()).trouble == "ImagePullBackOff: no such image"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
    raw = {"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [condition]}}
    assert project(json.dumps(raw).encode()).trouble == "Unschedulable: 0/4 nodes"


def test_a_round_runs_in_parallel_and_brings_the_reports() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, Faults()) as s:
            ends = await s.carry_out()
            assert clock.elapsed_s < 30
            assert {r: hows(ends, r) for r in ends} == {
                "r01-000": [HowEnded.REPORTED] * 2,
                "r01-001": [HowEnded.REPORTED] * 2,
                "r01-002": [HowEnded.REPORTED],
            }
            assert [e.node for e in ends["r01-000"]] == ["n00", "n01"]
            assert ends["r01-002"][0].report == Report("n04", True)
            await s.runner.clean(s.owner, frozenset(), s.blocked)
            assert await s.bed.pods() == []
            assert s.said == []

    run_virtual(story)


def test_cleaning_keeps_what_it_is_told_to_keep() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, Faults()) as s:
            await s.carry_out()
            await s.runner.clean(s.owner, frozenset({"r01-001"}), s.blocked)
            left = sorted(p["metadata"]["name"] for p in await s.bed.pods())
            assert left == ["c-r01-001-0", "c-r01-001-1"]
            await s.runner.clean(Owner("c", "uid-2"), frozenset({"r01-001"}), s.blocked)
            assert await s.bed.pods() == []

    run_virtual(story)


@pytest.mark.parametrize("after_s", [0.0, 1.0, 10.0, 23.0, 40.0])
def test_a_runner_that_starts_in_the_middle_takes_over(after_s: float) -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, Faults()) as s:
            first = asyncio.ensure_future(s.carry_out())
            await clock.sleep(after_s)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            s.runner = s.new_runner()
            async with running(s.runner.run()):
                await s.runner.wait_synced()
                ends = await s.carry_out()
            assert {e.how for found in ends.values() for e in found} == {HowEnded.REPORTED}
            assert sorted(s.bed.created) == sorted(set(s.bed.created))

    run_virtual(story)


def test_a_run_whose_other_half_was_never_created_starts_over() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, Faults()) as s:
            lonely = build(s.owner, PAIRS[0], 0, TESTS["pair"], 8, "i")
            await s.bed.api.create(PODS, lonely, SYSTEM_NAMESPACE)
            await clock.sleep(60)
            ends = await s.carry_out(PAIRS[0])
            assert hows(ends, "r01-000") == [HowEnded.REPORTED] * 2
            assert s.bed.created.count("c-r01-000-0") == 2

    run_virtual(story)


def test_a_pod_that_is_refused_ends_its_run_at_once() -> None:
    def busy(spec: dict[str, Any], node: str) -> End:
        if node == "n01":
            return End(reason="OutOfnvidia.com/gpu", message="no GPU is free")
        return End(phase=None) if node == "n00" else Faults()(spec, node)

    async def story(clock: VirtualClock) -> None:
        async with scene(clock, busy) as s:
            ends = await s.carry_out()
            assert clock.elapsed_s < 60
            assert hows(ends, "r01-000") == [HowEnded.MUTE, HowEnded.REFUSED]
            assert "no GPU is free" in ends["r01-000"][1].message
            assert hows(ends, "r01-001") == [HowEnded.REPORTED] * 2

    run_virtual(story)


def test_a_pod_that_never_starts_is_reported_then_given_up() -> None:
    def stuck(spec: dict[str, Any], node: str) -> End:
        return End(reason="stuck") if node == "n03" else Faults()(spec, node)

    async def story(clock: VirtualClock) -> None:
        async with scene(clock, stuck) as s:
            ends = await s.carry_out()
            assert START_LIMIT_S <= clock.elapsed_s < START_LIMIT_S + 30
            assert hows(ends, "r01-001") == [HowEnded.REPORTED, HowEnded.REFUSED]
            assert "n03" in s.said[0]
            assert s.said[-1] == ""

    run_virtual(story)


def test_a_kubelet_that_falls_silent_ends_in_overdue() -> None:
    def silent(spec: dict[str, Any], node: str) -> End:
        return End(phase=None) if node == "n04" else Faults()(spec, node)

    async def story(clock: VirtualClock) -> None:
        async with scene(clock, silent) as s:
            ends = await s.carry_out()
            assert hows(ends, "r01-002") == [HowEnded.OVERDUE]
            assert clock.elapsed_s > TESTS["host"].deadline_s

    run_virtual(story)


def test_the_end_of_the_certification_ends_its_runs() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, lambda spec, node: End(phase=None)) as s:
            ends = await s.carry_out(minutes=1.0)
            assert clock.elapsed_s == pytest.approx(60, abs=1)
            assert {e.how for found in ends.values() for e in found} == {HowEnded.OVERDUE}

    run_virtual(story)


def test_a_pod_on_a_dead_node_is_deleted_by_force_and_on_a_living_one_waited_for() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, lambda spec, node: End(phase=None)) as s:
            await s.carry_out(minutes=1.0)
            s.bed.silent.add("n00")
            cleaning = asyncio.ensure_future(s.runner.clean(s.owner, frozenset(), s.blocked))
            await clock.sleep(FORCE_AFTER_S * 3)
            assert not cleaning.done()
            assert "n00" in s.said[-1]
            s.dead.add("n00")
            await asyncio.wait_for(cleaning, 120)
            assert await s.bed.pods() == []

    run_virtual(story)


def test_a_pod_that_the_server_refuses_is_refused_with_its_words() -> None:
    def hook(request: Request) -> Fault | None:
        if request.verb == "create" and request.plural == "pods" and request.name == "c-r01-000-0":
            return Fault(error=StatusError(403, "Forbidden", "exceeded quota: gpus"))
        return None

    async def story(clock: VirtualClock) -> None:
        async with scene(clock, Faults()) as s:
            s.bed.store.faults = hook
            ends = await s.carry_out()
            assert ends["r01-000"][0].how is HowEnded.REFUSED
            assert "exceeded quota" in ends["r01-000"][0].message

    run_virtual(story)


def test_what_is_forbidden_only_while_the_server_starts_refuses_no_rank() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, lambda spec, node: report(node, True)) as s:
            until = clock.now() + timedelta(seconds=3)

            def hook(request: Request) -> Fault | None:
                if request.verb == "create" and request.plural == "pods" and clock.now() < until:
                    return Fault(error=StatusError(403, "Forbidden", "role muster-controller not found"))
                return None

            s.bed.store.faults = hook
            ends = await s.carry_out()
            assert hows(ends, "r01-000") == [HowEnded.REPORTED, HowEnded.REPORTED]

    run_virtual(story)


def test_a_pod_of_somebody_else_under_the_name_is_not_taken_for_ours() -> None:
    async def story(clock: VirtualClock) -> None:
        async with scene(clock, lambda spec, node: report(node, True)) as s:
            await s.bed.certify("d", s.bed.names)
            other = Owner("c", (await s.bed.certification("d")).metadata.uid)
            foreign = build(other, PAIRS[2], 0, TESTS["host"], 8, "i")
            # A pod whose owner does not exist is collected as garbage; one without an owner stays.
            del foreign["metadata"]["ownerReferences"]
            await s.bed.api.create(PODS, foreign, SYSTEM_NAMESPACE)
            await clock.sleep(1)
            ends = await s.carry_out(PAIRS[2])
            assert hows(ends, "r01-002") == [HowEnded.DISTURBED]

    run_virtual(story)
