"""What a report says follows from the certification alone, hides nothing, and is never greener than the truth."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify.report.build import build
from muster.certify.report.text import explanation, text
from muster.resources.base import PLAN_ANNOTATION
from muster.resources.certification import (
    Certification,
    CertificationStatus,
    FaultAt,
    Layer,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Outcome,
    Phase,
    Reason,
)
from tests.certify.report_samples import Fleet, certification

SICK = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))


def with_status(made: Certification, **fields: object) -> Certification:
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, **fields))


def test_a_healthy_fleet_passes() -> None:
    report = build(*certification(Fleet()))
    assert report.passed
    assert report.verdict == "Passed: all 16 nodes passed every test of the profile bringup."
    assert (report.counts.passed, report.counts.failed, report.problems) == (16, 0, ())


def test_who_is_at_fault_stands_in_the_sentence_with_evidence() -> None:
    report = build(*certification(SICK))
    assert not report.passed
    for piece in (
        "1 failed (gpu-0003)",
        "1 untested (gpu-0001)",
        "at fault between good nodes (gpu-0006 - gpu-0013)",
    ):
        assert piece in report.verdict
    node = report.node("gpu-0003")
    assert node is not None
    runs = {run.id: run for run in report.runs}
    assert node.evidence_for
    for cited in node.evidence_for:
        assert "gpu-0003" in runs[cited].nodes
        assert runs[cited].outcome == "FAIL"
        assert "busbw far under the floor" in runs[cited].message


def test_the_order_is_worst_first() -> None:
    report = build(*certification(SICK))
    ranks = {"Failed": 0, "Undetermined": 1, "Untested": 2, "Passed": 3}
    order = [ranks[node.verdict] for node in report.nodes]
    assert order == sorted(order)


def test_parts_and_status_give_the_same_report() -> None:
    """Where the runs are kept changes nothing but what was measured beside them."""
    whole, _ = certification(SICK)
    split, parts = certification(SICK, parts=4)
    a, b = build(whole), build(split, parts)
    assert (a.runs, a.nodes, a.links, a.tests, a.matrices, a.cost) == (
        b.runs,
        b.nodes,
        b.links,
        b.tests,
        b.matrices,
        b.cost,
    )
    assert build(split, parts[::-1]) == b
    assert b.curves
    assert b.versions


def test_a_missing_part_is_told_and_nothing_passes() -> None:
    made, parts = certification(Fleet(), parts=3)
    report = build(made, parts[:1] + parts[2:])
    assert not report.passed
    assert "1 of 3 parts are missing (number 1)" in report.problems[0]
    assert "incomplete" in report.verdict
    assert "problem: 1 of 3 parts" in text(report)


def test_parts_of_others_and_uncounted_ones_are_left_aside() -> None:
    made, parts = certification(Fleet(), parts=2)
    foreign = msgspec.structs.replace(parts[0], spec=msgspec.structs.replace(parts[0].spec, certification="other"))
    late = msgspec.structs.replace(parts[1], spec=msgspec.structs.replace(parts[1].spec, number=2))
    assert build(made, [foreign, *parts, late]) == build(made, parts)


def test_two_parts_of_one_number_are_a_problem() -> None:
    made, parts = certification(Fleet(), parts=2)
    other = msgspec.structs.replace(parts[0], spec=msgspec.structs.replace(parts[0].spec, runs=()))
    report = build(made, [*parts, other])
    assert not report.passed
    assert "two different parts" in report.problems[0]


def test_evidence_that_is_not_there_is_a_problem() -> None:
    made, _ = certification(Fleet())
    report = build(with_status(made, runs=made.status.runs[:-3]))
    assert not report.passed
    assert "that verdicts cite are not recorded" in report.problems[0]


@pytest.mark.parametrize("plan", ["", "{", "[]", '{"tests": 3}'])
def test_a_plan_that_cannot_be_read_is_a_problem(plan: str) -> None:
    made, _ = certification(Fleet())
    metadata = msgspec.structs.replace(made.metadata, annotations={PLAN_ANNOTATION: plan} if plan else {})
    report = build(msgspec.structs.replace(made, metadata=metadata))
    assert not report.passed
    assert PLAN_ANNOTATION in report.problems[0]
    assert report.cost.expected_runs is None


def test_a_certification_without_nodes_never_passes() -> None:
    """A gate over nothing is closed."""
    made, _ = certification(Fleet())
    for phase in Phase:
        report = build(with_status(made, phase=phase, nodes=(), runs=(), links=()))
        assert not report.passed


@pytest.mark.parametrize("verdict", [v for v in NodeVerdict if v is not NodeVerdict.PASSED])
def test_a_phase_that_says_more_than_its_nodes_does_not_count(verdict: NodeVerdict) -> None:
    made, _ = certification(Fleet())
    nodes = (msgspec.structs.replace(made.status.nodes[0], verdict=verdict), *made.status.nodes[1:])
    report = build(with_status(made, nodes=nodes))
    assert made.status.phase is Phase.SUCCEEDED
    assert not report.passed
    assert report.verdict.startswith("Not passed")


def test_what_was_asked_for_is_recorded_apart_from_what_was_done() -> None:
    """A report must not name a scale that nobody asked for."""
    report = build(*certification(SICK))
    assert (report.requested.profile, report.requested.nodes, report.requested.targets) == ("bringup", 16, 16)
    assert report.requested.expected_transport == "EFA"
    (pair,) = [t for t in report.tests if t.name == "pair"]
    assert pair.nodes_per_run == (2,)
    assert pair.runs == sum(run.test == "pair" for run in report.runs)
    assert "Asked for: profile bringup" in text(report)


def test_the_words_of_a_failed_run_are_in_every_form() -> None:
    report = build(*certification(SICK))
    node = report.node("gpu-0003")
    assert node is not None
    assert "NCCL WARN net plugin timed out" in text(report)
    assert "NCCL WARN net plugin timed out" in explanation(report, node)


def test_explanation_lists_every_run_of_the_node_once() -> None:
    report = build(*certification(SICK))
    for name in ("gpu-0003", "gpu-0006", "gpu-0000"):
        node = report.node(name)
        assert node is not None
        told = explanation(report, node)
        for run in report.runs:
            assert told.count(f"  {run.id} ") == (1 if name in run.nodes else 0)
        assert "\nNext: " in told


def test_a_running_certification_names_who_is_named_so_far() -> None:
    last = max(run.round for run in certification(SICK)[0].status.runs)
    seen = []
    for rounds in range(1, last + 1):
        report = build(*certification(SICK, rounds=rounds))
        assert not report.passed
        assert report.verdict.startswith(f"Running: round {rounds}")
        seen.append([node.name for node in report.nodes if node.verdict == "Failed"])
        untested = report.node("gpu-0001")
        assert untested is not None
        assert untested.verdict == "Untested"
    assert seen[0] == []
    assert seen[-1] == ["gpu-0003"]
    assert all(names in ([], ["gpu-0003"]) for names in seen)


def test_pending_and_aborted_say_why() -> None:
    made, _ = certification(Fleet())
    pending = build(with_status(made, phase=Phase.PENDING, nodes=(), runs=(), blocked="quota is used up."))
    assert pending.verdict == "Pending: nothing has run yet; blocked: quota is used up."
    aborted = build(with_status(made, phase=Phase.ABORTED, message="There is no node of these names."))
    assert aborted.verdict == "Aborted, nothing is certified: There is no node of these names."
    assert not aborted.passed


def test_each_kind_of_path_is_named_for_what_it_is() -> None:
    made, _ = certification(Fleet())
    links = (
        LinkResult(a="n1", b="n2", verdict=NodeVerdict.FAILED),
        LinkResult(a="n1", at=FaultAt.RAIL, rail=3, layer=Layer.NETWORK, verdict=NodeVerdict.FAILED),
        LinkResult(a="", at=FaultAt.RAIL, rail=0, verdict=NodeVerdict.FAILED),
        LinkResult(a="d0", b="d1", at=FaultAt.TRUNK, verdict=NodeVerdict.FAILED),
        LinkResult(a="d0", at=FaultAt.DOMAIN, verdict=NodeVerdict.UNDETERMINED),
    )
    report = build(with_status(made, links=links, phase=Phase.FAILED))
    assert [link.title for link in report.links] == [
        "n1 - n2",
        "rail 3 of n1",
        "rail 0 of every node",
        "trunk d0 - d1",
        "domain d0",
    ]
    assert "4 at fault between good nodes" in report.verdict
    assert "1 in doubt between good nodes (domain d0)" in report.verdict


def test_numbers_that_are_none_do_not_get_in() -> None:
    made, _ = certification(Fleet())
    runs = tuple(
        msgspec.structs.replace(run, value=float("nan"), floor=float("inf")) if run.test == "pair" else run
        for run in made.status.runs
    )
    nodes = tuple(
        msgspec.structs.replace(n, metrics={"pair.busbw_gb_per_s": float("inf")}) for n in made.status.nodes
    )
    report = build(with_status(made, runs=runs, nodes=nodes))
    (pair,) = [t for t in report.tests if t.name == "pair"]
    assert (pair.least, pair.median, pair.most, pair.floor) == (None, None, None, None)
    assert all(node.metrics == {} for node in report.nodes)
    assert report.matrices[0].median is None


def test_slow_ranks_are_listed_with_their_excess() -> None:
    report = build(*certification(Fleet(slow=("gpu-0010",), tests=("all-reduce",)), parts=1))
    assert [s.node for s in report.stragglers] == ["gpu-0010"]
    assert report.stragglers[0].ratio == pytest.approx(1.31, abs=0.02)


def test_the_waterfall_closes() -> None:
    report = build(*certification(Fleet(), parts=1))
    (fall,) = report.waterfalls
    assert sum(bar.seconds for bar in fall.bars) == pytest.approx(fall.total_seconds, abs=0.002)
    assert [bar.label for bar in fall.bars if bar.productive] == ["productive"]


def test_a_budget_that_is_left_shows_in_the_cost() -> None:
    report = build(*certification(SICK))
    assert report.cost.expected_runs is not None
    assert report.cost.spent_runs > report.cost.expected_runs
    healthy = build(*certification(Fleet()))
    assert healthy.cost.spent_runs == healthy.cost.expected_runs


@given(
    verdicts=st.lists(st.sampled_from(list(NodeVerdict)), max_size=6),
    phase=st.sampled_from(list(Phase)),
    outcomes=st.lists(st.sampled_from(list(Outcome)), max_size=5),
    reason=st.sampled_from(list(Reason)),
)
def test_green_means_every_node_passed(
    verdicts: list[NodeVerdict], phase: Phase, outcomes: list[Outcome], reason: Reason
) -> None:
    made, _ = certification(Fleet(nodes=4, domains=1))
    nodes = tuple(NodeResult(name=f"n{i}", verdict=v, reason=reason) for i, v in enumerate(verdicts))
    runs = tuple(msgspec.structs.replace(made.status.runs[0], id=f"x{i}", outcome=o) for i, o in enumerate(outcomes))
    report = build(with_status(made, phase=phase, nodes=nodes, runs=runs, links=()))
    good = bool(verdicts) and all(v is NodeVerdict.PASSED for v in verdicts)
    assert report.passed == (good and phase is Phase.SUCCEEDED)
    if phase in (Phase.SUCCEEDED, Phase.FAILED) and not report.passed:
        assert report.verdict.startswith("Not passed")
    assert text(report)


def test_an_empty_status_is_pending() -> None:
    made, _ = certification(Fleet())
    report = build(msgspec.structs.replace(made, status=CertificationStatus()))
    assert report.verdict == "Pending: nothing has run yet."
