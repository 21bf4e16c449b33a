"""Limits and sentences of the course of a certification."""

from __future__ import annotations

from collections.abc import Coroutine

import pytest

from muster.certify import course
from muster.certify.conclusion import summary
from muster.certify.controller import CertificationController
from muster.certify.course import NODE_LIMIT
from muster.certify.isolation.plan import Verdicts
from muster.kube.api import CERTIFICATION_PARTS, NODES
from muster.resources.base import from_object
from muster.resources.certification import (
    Certification,
    CertificationPart,
    Cost,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Phase,
    Reason,
)
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, bed, names, running


def verdict(name: str, what: NodeVerdict) -> NodeResult:
    return NodeResult(name=name, verdict=what)


def test_the_summary_names_what_is_wrong_and_bounds_the_rest() -> None:
    nodes = [verdict(n, NodeVerdict.FAILED) for n in names(12)] + [verdict("ok", NodeVerdict.PASSED)]
    links = (
        LinkResult(a="x", b="y", verdict=NodeVerdict.FAILED),
        LinkResult(a="x", b="z", verdict=NodeVerdict.UNDETERMINED),
    )
    text = summary(nodes, Verdicts(tuple(nodes), links, ("all-to-all fails.",), ("A note.",), Cost()))
    assert text.startswith("1 Passed, 12 Failed of 13 node(s).")
    assert "n07 and 4 more." in text
    assert "Bad links: x - y." in text
    assert text.endswith("all-to-all fails. A note.")


def test_a_certification_that_does_not_fit_into_one_object_is_refused() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(2), Faults()) as b:
            await b.certify("c", [f"x{i}" for i in range(NODE_LIMIT + 1)])
            return await b.ended("c")

    found = run_virtual(story)
    assert found.status.phase is Phase.ABORTED
    assert str(NODE_LIMIT) in found.status.message


async def has_parts(b: Bed) -> bool:
    return (await b.certification("c")).status.parts > 0


def controller_of(b: Bed) -> Coroutine[None, None, None]:
    return CertificationController(InProcessApi(b.store, user="muster"), b.clock).run()


@pytest.mark.parametrize("killed", [False, True])
def test_runs_that_outgrow_the_status_move_to_parts_and_count_all_the_same(
    monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    monkeypatch.setattr(course, "RUNS_LIMIT_BYTES", 300)

    async def story(clock: VirtualClock) -> tuple[Certification, list[CertificationPart]]:
        b = Bed(clock, names(8), Faults(bad=("n01",)))
        await b.install()
        for name in b.names:
            await b.publish(name)
        await b.certify("c", b.names, "repair")
        async with running(b.kubelets()):
            if killed:
                async with running(controller_of(b)):
                    await b.until(lambda: has_parts(b))
            async with running(controller_of(b)):
                found = await b.ended("c")
        parts = [
            from_object(CertificationPart, await b.api.get(CERTIFICATION_PARTS, f"c-{i}"))
            for i in range(found.status.parts)
        ]
        return found, parts

    found, parts = run_virtual(story)
    by_name = {r.name: r for r in found.status.nodes}
    assert by_name["n01"].verdict is NodeVerdict.FAILED
    assert {r.verdict for n, r in by_name.items() if n != "n01"} == {NodeVerdict.PASSED}
    assert parts
    runs = [run for part in parts for run in part.spec.runs] + list(found.status.runs)
    assert len({run.id for run in runs}) == len(runs) == found.status.cost.runs
    assert set(by_name["n01"].evidence_for) <= {run.id for run in runs}
    assert sum(t.runs for t in found.status.tests) == len(runs)
    assert "pair" in by_name["n00"].tests


def test_a_node_that_is_not_ready_at_the_start_of_a_round_is_waited_for() -> None:
    async def story(clock: VirtualClock) -> tuple[str, Certification]:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4), "idle")
            await clock.sleep(10)
            await b.set_node("n01", False)
            await clock.sleep(30)
            blocked = (await b.certification("c")).status.blocked
            await b.set_node("n01", True)
            return blocked, await b.ended("c")

    blocked, found = run_virtual(story)
    assert "n01" in blocked
    assert found.status.phase is Phase.SUCCEEDED


def test_a_node_that_stays_not_ready_is_out() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4), "idle")
            await clock.sleep(10)
            await b.set_node("n01", False)
            return await b.ended("c")

    found = run_virtual(story)
    by_name = {r.name: r for r in found.status.nodes}
    assert by_name["n01"].verdict is NodeVerdict.UNDETERMINED
    assert by_name["n01"].reason is Reason.SCHEDULING
    assert {r.verdict for n, r in by_name.items() if n != "n01"} == {NodeVerdict.PASSED}


def test_every_node_replaced_leaves_nothing_to_pass() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(2), Faults()) as b:
            await b.certify("c", names(2), "idle")
            await clock.sleep(30)
            for name in names(2):
                await b.api.delete(NODES, name)
                await b.add_node(name)
            return await b.ended("c")

    found = run_virtual(story)
    assert {r.verdict for r in found.status.nodes} <= {NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED}
    assert all("replaced" in r.message for r in found.status.nodes)
