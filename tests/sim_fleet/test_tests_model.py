"""What test pods report follows from the truth, and from nothing else."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.defects import CuredBy, Defect, DefectKind
from muster.sim.tests_model import (
    DURATION_S,
    GROUP_TESTS,
    NODE_TESTS,
    Report,
    RunOutcome,
    RunSpec,
    parse_run_spec,
    simulate_run,
)
from muster.sim.world import World, node_names

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
NAMES = node_names(16)
A, B, C = NAMES[:3]


def world(*defects: Defect, seed: int = 1) -> World:
    w = World(seed=seed, nodes=16, domains=2, started=START, driver="580.65.06")
    for defect in defects:
        w.appear(defect, START)
    return w


def defect(kind: DefectKind, node: str = A, **fields: Any) -> Defect:
    return Defect(kind=kind, node=node, cured_by=CuredBy.NONE, **fields)


def run(w: World, test: str, *nodes: str, name: str = "r1") -> RunOutcome:
    return simulate_run(w, "c1", RunSpec(run=name, test=test, nodes=nodes, rank=0))


def values(outcome: RunOutcome) -> list[float]:
    assert all(report.value is not None for report in outcome.reports), outcome
    return [report.value for report in outcome.reports if report.value is not None]


@given(test=st.sampled_from(sorted(DURATION_S)), seed=st.integers(0, 999), size=st.integers(2, 16), name=st.text())
def test_a_healthy_fleet_passes_everything(test: str, seed: int, size: int, name: str) -> None:
    nodes = NAMES[:1] if test in NODE_TESTS else NAMES[:size]
    outcome = run(world(seed=seed), test, *nodes, name=name)
    assert [report.node for report in outcome.reports] == list(nodes)
    assert all(report.ok and not report.suspects for report in outcome.reports)
    assert outcome.duration_s == DURATION_S[test]


def test_pair_of_good_nodes_reaches_the_published_number() -> None:
    assert values(run(world(), "pair", A, B)) == pytest.approx([487.9, 487.9], rel=0.02)


def test_all_to_all_of_two_good_nodes_reaches_the_published_number() -> None:
    assert values(run(world(), "all-to-all", A, B)) == pytest.approx([79.1, 79.1], rel=0.02)


def test_the_same_run_is_the_same_and_another_differs() -> None:
    assert run(world(), "pair", A, B) == run(world(), "pair", A, B)
    assert run(world(), "pair", A, B) != run(world(), "pair", A, B, name="r2")
    assert run(world(), "pair", A, B) != run(world(seed=2), "pair", A, B)


def test_a_bad_node_fails_its_burn_and_every_collective_it_is_in() -> None:
    w = world(defect(DefectKind.BAD_NODE, gpu=5))
    burn = run(w, "gpu-burn", A).reports[0]
    assert (burn.ok, burn.reason) == (False, "numeric")
    assert "GPU 5" in burn.message
    for test in GROUP_TESTS:
        assert {(r.ok, r.reason) for r in run(w, test, B, A).reports} == {(False, "crash")}
        assert all(r.ok for r in run(w, test, B, C).reports)


def test_a_crashed_collective_points_at_nobody() -> None:
    reports = run(world(defect(DefectKind.BAD_NODE)), "pair", A, B).reports
    assert [report.suspects for report in reports] == [(), ()]


@given(factor=st.floats(0.3, 0.95))
def test_a_slow_node_passes_and_is_slower_everywhere(factor: float) -> None:
    w = world(defect(DefectKind.SLOW_NODE, factor=factor))
    for test in ("gpu-burn", "nvlink-loopback"):
        slow, usual = values(run(w, test, A))[0], values(run(w, test, B))[0]
        assert slow / usual == pytest.approx(factor, rel=0.03)
    both = values(run(w, "pair", A, B)) + values(run(w, "pair", B, C))
    assert both[0] / both[2] == pytest.approx(factor, rel=0.03)
    assert both[1] / both[3] == pytest.approx(factor, rel=0.03)


def test_a_slow_node_dilutes_in_no_group() -> None:
    w = world(defect(DefectKind.SLOW_NODE, factor=0.8))
    assert max(values(run(w, "all-to-all", *NAMES))) < 0.85 * min(values(run(w, "all-to-all", *NAMES[1:])))


def test_a_bad_link_slows_exactly_the_runs_that_cross_it() -> None:
    w = world(defect(DefectKind.BAD_LINK, peer=B, factor=0.4))
    for a, b in itertools.combinations(NAMES[:4], 2):
        slow = values(run(w, "pair", a, b))[0] < 300.0
        assert slow == ((a, b) == (A, B))
    assert values(run(w, "all-to-all", *NAMES))[0] < 0.45 * values(run(w, "all-to-all", *NAMES[1:]))[0]


def test_a_ring_misses_a_link_between_distant_ranks() -> None:
    w = world(defect(DefectKind.BAD_LINK, peer=C, factor=0.4))
    assert values(run(w, "all-reduce", A, B, C, NAMES[3]))[0] > 450.0
    assert values(run(w, "all-reduce", A, C, B, NAMES[3]))[0] < 250.0
    assert values(run(w, "all-reduce", A, B, NAMES[3], C))[0] < 250.0  # the ring closes


def test_a_flaky_node_fails_about_as_often_as_planted() -> None:
    w = world(defect(DefectKind.FLAKY_NODE, probability=0.3))
    failed = sum(not run(w, "pair", A, B, name=f"r{i}").reports[0].ok for i in range(400))
    assert 85 <= failed <= 155  # mean 120, standard deviation 9


def test_degraded_nvlink_is_named_with_its_gpu_and_slows_the_node() -> None:
    w = world(defect(DefectKind.DEGRADED_NVLINK, gpu=6, factor=0.45))
    host = run(w, "host", A).reports[0]
    assert not host.ok
    assert "GPU 6" in host.message
    assert values(run(w, "nvlink-loopback", A))[0] < 300.0
    assert run(w, "gpu-burn", A).reports[0].ok


def test_a_gpu_that_does_not_initialise_is_missing() -> None:
    w = world(defect(DefectKind.NEEDS_REPLACEMENT, gpu=2))
    assert "7 of 8 GPUs" in run(w, "host", A).reports[0].message
    assert not run(w, "pair", A, B).reports[1].ok


def test_a_hung_driver_hangs_the_group() -> None:
    w = world(defect(DefectKind.XID, xid=119, gpu=1))
    assert {report.reason for report in run(w, "pair", A, B).reports} == {"hang"}
    assert run(w, "host", A).reports[0].ok
    assert not run(w, "gpu-burn", A).reports[0].ok


def test_what_cannot_be_run_is_a_harness_error_and_no_pass() -> None:
    for outcome in (run(world(), "astrology", A), run(world(), "pair", A, "elsewhere")):
        assert {(r.ok, r.reason) for r in outcome.reports} == {(False, "harness")}


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"run":"r","test":"pair","nodes":[],"rank":0}', "\x00"])
def test_what_is_no_run_spec_is_none(text: str) -> None:
    assert parse_run_spec(text) is None


def test_a_rank_outside_the_run_is_none() -> None:
    assert parse_run_spec('{"run":"r","test":"pair","nodes":["a"],"rank":1}') is None
    assert parse_run_spec('{"run":"r","test":"pair","nodes":["a"],"rank":0}') is not None


def test_the_message_has_the_documented_fields() -> None:
    assert set(Report.__struct_fields__) == {"node", "ok", "value", "unit", "reason", "suspects", "message"}
    assert '"value":null' in Report("a", False).encode()
