"""Whole certifications over what clusters and programs do wrong: the right word, the reason, and nothing left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from muster.certify.nodes import node_facts
from muster.certify.runners import Owner
from muster.certify.runners.worker_link import (
    HowRunEnded,
    RunAnswer,
    RunPhase,
    WorkerAddress,
    WorkerUnreachableError,
)
from muster.certify.runners.worker_pods import job
from muster.kube.api import NODES
from muster.resources.certification import Certification, NodeResult, NodeVerdict, Outcome, Phase, Pods, Reason
from muster.sim.virtual import VirtualClock, run_virtual
from muster.workloads.run_spec import RunSpec
from tests.certify.bed import End, Faults, bed, names, report, running
from tests.certify.test_controller_workers import controller, scene, verdicts
from tests.certify.worker_bed import IMAGES, FakeLink

PAIR: dict[str, Any] = {"tests": ["host", "pair"], "floors": {"pair": 50.0}}


def result(found: Certification, name: str) -> NodeResult:
    return next(n for n in found.status.nodes if n.name == name)


def said(text: str) -> RunAnswer:
    return RunAnswer(RunPhase.ENDED, HowRunEnded.REPORTED, text.encode())


def figures(**fields: Any) -> str:
    """A report of n01 that is good but for `fields`."""
    return json.dumps({"node": "n01", "ok": True, "value": 100.0, "unit": "GB/s", **fields})


# What programs report

BROKEN_REPORTS: Mapping[str, str] = {
    "nothing": "",
    "cut in the middle": figures()[:25],
    "NaN": figures(value=float("nan")),
    "infinity": figures(value=float("inf")),
    "a number beyond all numbers": figures().replace("100.0", "1e999"),
    "zero": figures(value=0.0),
    "below zero": figures(value=-100.0),
    "no number": figures(value=None),
    "another unit": figures(unit="Gbit/s"),
    "a number as text": figures(value="100.0"),
    "about another node": figures(node="n02"),
    "a size that is no number": figures(sizes=[{"sizeBytes": "1M", "busbwGbPerS": 100.0}]),
    "a bandwidth of one size that is no number": figures(sizes=[{"sizeBytes": 1, "busbwGbPerS": float("nan")}]),
}


@pytest.mark.parametrize("case", BROKEN_REPORTS)
def test_a_report_that_cannot_be_used_passes_nobody_and_blames_nobody(case: str) -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            s.link.answers["n01"] = said(BROKEN_REPORTS[case])
            await s.bed.certify("c", s.bed.names, tests=["pair"], floors={"pair": 50.0})
            found = await s.bed.ended("c")
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    seen = verdicts(found)
    assert NodeVerdict.FAILED not in seen.values()
    assert seen["n01"] in (NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED)
    assert result(found, "n01").reason is Reason.HARNESS
    assert result(found, "n01").message
    assert {v for n, v in seen.items() if n != "n01"} == {NodeVerdict.PASSED}
    assert {r.outcome for r in found.status.runs if "n01" in r.nodes} == {Outcome.INVALID}
    assert found.status.phase is Phase.FAILED


def test_a_sweep_of_empty_messages_measures_nothing() -> None:
    sizes = [{"sizeBytes": 0, "timeUs": 5.0, "busbwGbPerS": 0.0, "wrong": 0}]

    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            for node in s.bed.names:
                s.link.answers[node] = said(figures(node=node, value=0.0, sizes=sizes))
            await s.bed.certify("c", s.bed.names, tests=["pair"], floors={"pair": 50.0})
            found = await s.bed.ended("c")
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    assert set(verdicts(found).values()) == {NodeVerdict.UNTESTED}
    assert found.status.phase is Phase.ABORTED


def test_wrong_values_in_a_good_looking_run_fail_the_node() -> None:
    sizes = [{"sizeBytes": 1024, "busbwGbPerS": 100.0, "wrong": 3}]

    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            s.link.answers["n01"] = said(figures(sizes=sizes))
            await s.bed.certify("c", s.bed.names, **PAIR)
            return await s.bed.ended("c")

    found = run_virtual(scenario)
    assert {n: v for n, v in verdicts(found).items() if v is NodeVerdict.FAILED} == {"n01": NodeVerdict.FAILED}
    assert result(found, "n01").reason is Reason.NUMERIC


# What happens to workers and nodes


class SkewedLink(FakeLink):
    """The clock of one machine is wrong: its worker refuses whatever was signed at another time."""

    async def start(self, worker: WorkerAddress, spec: RunSpec) -> Any:
        if worker.node == "n01":
            raise WorkerUnreachableError("the worker of n01: its clock differs from ours by 1860 s")
        return await super().start(worker, spec)


def test_a_clock_that_is_wrong_is_the_reason_that_is_told() -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s:
            s.link = SkewedLink(clock)
            async with running(controller(s).run()):
                await s.bed.certify("c", s.bed.names, **PAIR)
                found = await s.bed.ended("c")
                assert await s.left() == []
                return found

    found = run_virtual(scenario)
    assert result(found, "n01").verdict is NodeVerdict.UNTESTED
    assert "clock differs from ours by 1860 s" in result(found, "n01").message
    assert {v for n, v in verdicts(found).items() if n != "n01"} == {NodeVerdict.PASSED}


@dataclass
class MortalLink(FakeLink):
    """Workers that are dead answer nothing. The pod that follows has another address."""

    dead: set[str] = field(default_factory=set)
    """Addresses."""

    def _reach(self, worker: WorkerAddress) -> None:
        super()._reach(worker)
        if worker.host in self.dead:
            raise WorkerUnreachableError("connection reset")


@pytest.mark.parametrize("after_s", [7.0, 12.0, 17.0, 20.0])
def test_a_worker_that_is_killed_once_costs_nobody_a_verdict(after_s: float) -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s:
            s.link = link = MortalLink(clock)
            async with running(controller(s).run()):
                await s.bed.certify("c", s.bed.names, **PAIR)
                await clock.sleep(after_s)
                link.dead |= {p["status"]["podIP"] for p in await s.bed.pods() if p["spec"]["nodeName"] == "n01"}
                await s.machinery.end("n01")
                found = await s.bed.ended("c")
                assert await s.left() == []
                return found

    found = run_virtual(scenario)
    struck = [r for r in found.status.runs if r.outcome is Outcome.FAIL]
    assert [(r.reason, "n01" in r.nodes) for r in struck] == [(Reason.CRASH, True)]
    assert set(verdicts(found).values()) == {NodeVerdict.PASSED}


def test_a_node_that_comes_back_under_its_name_is_another_node() -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            await s.bed.certify("c", s.bed.names, **PAIR)
            await clock.sleep(12.0)
            await s.bed.api.delete(NODES, "n01")
            await s.bed.add_node("n01")
            found = await s.bed.ended("c")
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    seen = verdicts(found)
    assert seen["n01"] in (NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED)
    assert "replaced" in result(found, "n01").message or "vanished" in result(found, "n01").message
    assert NodeVerdict.FAILED not in seen.values()


# What the cluster refuses


def test_a_quota_for_everybody_leaves_everybody_untested() -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            s.machinery.quota = 'pods "x" is forbidden: exceeded quota: gpus'
            await s.bed.certify("c", s.bed.names, **PAIR)
            found = await s.bed.ended("c", limit_s=12 * 3600.0)
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    assert {(n.verdict, n.reason) for n in found.status.nodes} == {(NodeVerdict.UNTESTED, Reason.SCHEDULING)}
    assert [n.message for n in found.status.nodes if "exceeded quota" not in n.message] == []
    assert found.status.phase is Phase.ABORTED


@pytest.mark.parametrize("trouble", ["image", "busy"])
def test_a_node_whose_worker_does_not_come_up_is_untested_with_the_words_of_the_cluster(trouble: str) -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            if trouble == "image":
                s.machinery.no_image.add("n03")
            else:
                s.machinery.busy["n03"] = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu"
            await s.bed.certify("c", s.bed.names, **PAIR)
            found = await s.bed.ended("c", limit_s=12 * 3600.0)
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    lost = result(found, "n03")
    assert (lost.verdict, lost.reason) == (NodeVerdict.UNTESTED, Reason.SCHEDULING)
    assert {"image": "ImagePullBackOff", "busy": "Insufficient nvidia.com/gpu"}[trouble] in lost.message
    assert found.status.phase is Phase.FAILED


def test_hours_in_a_queue_end_with_the_budget_and_nobody_was_tested() -> None:
    async def scenario(clock: VirtualClock) -> Certification:
        async with scene(clock) as s, running(controller(s).run()):
            pods = {"gang": {"scheduler": "kueue", "queue": "gpus"}}
            budget = {"maxWallMinutes": 420.0, "maxBlockedMinutes": 420.0}
            await s.bed.certify("c", s.bed.names, **PAIR, pods=pods, budget=budget)
            await clock.sleep(6 * 3600.0)
            waiting = (await s.bed.certification("c")).status
            assert waiting.phase is Phase.RUNNING
            assert "is queued" in waiting.blocked
            found = await s.bed.ended("c", limit_s=12 * 3600.0)
            assert await s.left() == []
            return found

    found = run_virtual(scenario)
    assert {n.verdict for n in found.status.nodes} <= {NodeVerdict.UNTESTED, NodeVerdict.UNDETERMINED}
    assert {n.reason for n in found.status.nodes} <= {Reason.SCHEDULING, Reason.BUDGET}
    assert all(n.message for n in found.status.nodes)
    assert found.status.phase in (Phase.ABORTED, Phase.FAILED)


# What the fleet is like


def certified(
    fleet: list[str], behaviour: Any, others: Mapping[str, str] | None = None, **spec: Any
) -> Certification:
    """`others`: further nodes, by name their product."""

    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, fleet, behaviour) as b:
            for name, product in (others or {}).items():
                await b.add_node(name, product=product)
                await b.publish(name)
            await clock.sleep(5)
            await b.certify("c", [*fleet, *(others or {})], spec.pop("profile", "bringup"), **spec)
            found = await b.ended("c")
            assert await b.pods() == []
            return found

    return run_virtual(story)


def test_when_all_nodes_are_bad_nobody_is_named_and_nobody_passes() -> None:
    found = certified(names(6), Faults(bad=tuple(names(6))), tests=["host", "pair"])
    assert {(n.verdict, n.reason) for n in found.status.nodes} == {(NodeVerdict.UNDETERMINED, Reason.NO_PARTNER)}
    assert found.status.phase is Phase.FAILED


def test_a_broken_path_alone_fails_the_certification_although_every_node_is_good() -> None:
    found = certified(names(8), Faults(links=(("n01", "n06"),)))
    assert {n.verdict for n in found.status.nodes} == {NodeVerdict.PASSED}
    assert [(x.a, x.b) for x in found.status.links if x.verdict is NodeVerdict.FAILED] == [("n01", "n06")]
    assert found.status.phase is Phase.FAILED
    assert "n01" in found.status.message
    assert "n06" in found.status.message


def test_a_stray_node_of_another_kind_neither_wins_nor_disturbs_the_others() -> None:
    """The stray is the first by name: it does not decide what the fleet is."""
    found = certified(names(4), Faults(), {"a-stray": "NVIDIA-A100-SXM4-80GB"}, tests=["host", "pair"])
    assert {v for n, v in verdicts(found).items() if n != "a-stray"} == {NodeVerdict.PASSED}
    stray = result(found, "a-stray")
    assert (stray.verdict, stray.reason) == (NodeVerdict.UNDETERMINED, Reason.NO_PARTNER)
    assert "partner" in stray.message
    assert all(len(r.nodes) == 1 for r in found.status.runs if "a-stray" in r.nodes)


def test_a_bad_node_of_one_kind_is_named_beside_good_ones_of_another() -> None:
    others = {f"x{i}": "NVIDIA-A100-SXM4-80GB" for i in range(4)}
    found = certified(names(4), Faults(bad=("x2",)), others, **PAIR)
    assert {n for n, v in verdicts(found).items() if v is NodeVerdict.FAILED} == {"x2"}
    kinds = [{n[0] for n in r.nodes} for r in found.status.runs]
    assert all(len(kind) == 1 for kind in kinds)


def test_a_plain_hang_names_the_node_that_hangs() -> None:
    """Its program never ends, so the kubelet stops it at the deadline, and that of its partner with it."""

    def hangs(spec: dict[str, Any], node: str) -> End:
        if "n02" in spec["nodes"] and spec["test"] == "pair":
            return End(after_s=300.0, phase="Failed", reason="DeadlineExceeded", exit_code=137)
        return Faults()(spec, node)

    found = certified(names(6), hangs, tests=["host", "pair"])
    assert {n for n, v in verdicts(found).items() if v is NodeVerdict.FAILED} == {"n02"}
    assert result(found, "n02").reason is Reason.TIMEOUT
    assert {v for n, v in verdicts(found).items() if n != "n02"} == {NodeVerdict.PASSED}


def test_a_node_that_passes_when_it_is_asked_again_keeps_no_blame() -> None:
    failed: list[str] = []

    def once(spec: dict[str, Any], node: str) -> End:
        if spec["test"] == "pair" and "n01" in spec["nodes"] and (not failed or failed[0] == spec["run"]):
            failed.append(spec["run"])
            return report(node, False, reason="crash", message="lost a peer")
        return Faults()(spec, node)

    found = certified(names(6), once, tests=["host", "pair"])
    assert failed
    assert {n.verdict for n in found.status.nodes} == {NodeVerdict.PASSED}
    assert any(r.outcome is Outcome.FAIL for r in found.status.runs)
    assert found.status.phase is Phase.SUCCEEDED


def test_pods_fetch_nothing_but_their_images() -> None:
    """A cluster without a way out needs a mirror of two images and nothing else: the programs come with one."""
    body = job(Owner("c", "uid"), Pods(image="mirror.local/torch:1"), ("a",), 8, IMAGES, 600.0)
    spec = body["spec"]["template"]["spec"]
    (programs,), (worker,) = spec["initContainers"], spec["containers"]
    assert (programs["image"], worker["image"]) == (IMAGES.muster, "mirror.local/torch:1")
    assert programs["command"][0] == "cp"
    assert worker["command"][:2] == ["python3", programs["command"][2]]
    assert {c["imagePullPolicy"] for c in (programs, worker)} == {"IfNotPresent"}


@pytest.mark.parametrize("amount", ["", "-8", "8k", "9" * 5000, "\N{SUPERSCRIPT TWO}", "NaN"])
def test_an_amount_of_gpus_that_is_no_number_is_none(amount: str) -> None:
    raw = {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": amount}}}
    assert node_facts(json.dumps(raw).encode()).gpus == 0
