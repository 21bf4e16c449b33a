"""Limits and sentences of the course of a certification."""

from __future__ import annotations

import pytest

from muster.certify import course
from muster.certify.course import NODE_LIMIT, summary
from muster.certify.isolation.plan import Verdicts
from muster.kube.api import NODES
from muster.resources.certification import (
    Certification,
    Cost,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Phase,
    Reason,
)
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Faults, bed, names


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


def test_a_full_object_ends_it_without_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "OBJECT_LIMIT_BYTES", 3 * (course.VERDICT_BYTES + course.ROUND_BYTES) + 2500)

    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(3), Faults()) as b:
            await b.certify("c", names(3), "repair")
            return await b.ended("c")

    found = run_virtual(story)
    assert found.status.phase is Phase.FAILED
    assert {(r.verdict, r.reason) for r in found.status.nodes} == {(NodeVerdict.UNDETERMINED, Reason.BUDGET)}


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
