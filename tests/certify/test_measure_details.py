"""What the details of a run decide: transport, wrong values, slow ranks, spread, floors of the user."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify.baselines import Baseline
from muster.certify.details import NodeDetail
from muster.certify.isolation.plan import Plan, PlannedRun
from muster.certify.measure import HowEnded, RankEnd, Report, Surroundings, judge_round
from muster.resources.certification import Outcome, RankFigures, Reason, RunRecord, SizeFigures
from tests.certify.test_measure import plan_for, run


def end(node: str, value: float | None, unit: str = "GB/s", **detail: object) -> RankEnd:
    said = Report(node, True, value, unit if value is not None else "")
    return RankEnd(node, HowEnded.REPORTED, said, detail=NodeDetail(**detail))  # type: ignore[arg-type]  # by name


def judge(plan: Plan, *runs: tuple[PlannedRun, list[RankEnd]]) -> list[RunRecord]:
    return list(judge_round(plan, [r for r, _ in runs], {r.id: e for r, e in runs}, Surroundings()))


def pair_over(transport: str, expected: str) -> RunRecord:
    plan = msgspec.structs.replace(plan_for(), expected_transport=expected)
    return judge(plan, (run("pair", "n00", "n01"), [end(n, 480.0, transport=transport) for n in ("n00", "n01")]))[0]


@pytest.mark.parametrize(
    ("transport", "expected", "outcome", "reason"),
    [
        ("NET/OFI/efa", "EFA", Outcome.PASS, Reason.NONE),
        ("NET/IB", "IB", Outcome.PASS, Reason.NONE),
        ("NET/IB", "RoCE", Outcome.PASS, Reason.NONE),
        ("NET/Socket", "EFA", Outcome.FAIL, Reason.TRANSPORT),
        ("NET/IB+NET/Socket", "IB", Outcome.FAIL, Reason.TRANSPORT),
        ("", "EFA", Outcome.UNKNOWN, Reason.TRANSPORT),
        ("NET/Socket", "", Outcome.PASS, Reason.NONE),
        ("gloo-tcp", "TCP", Outcome.PASS, Reason.NONE),
    ],
)
def test_a_run_over_another_transport_fails_by_name(
    transport: str, expected: str, outcome: Outcome, reason: Reason
) -> None:
    record = pair_over(transport, expected)
    assert (record.outcome, record.reason, record.transport) == (outcome, reason, transport)
    if outcome is Outcome.FAIL:
        assert transport in record.message
        assert expected in record.message
        assert record.suspects == ()


def test_the_transport_of_one_node_is_nobodys_concern() -> None:
    plan = msgspec.structs.replace(plan_for(), expected_transport="IB")
    (record,) = judge(plan, (run("nvlink-loopback", "n00"), [end("n00", 480.0)]))
    assert record.reason is not Reason.TRANSPORT


@pytest.mark.parametrize("wrong", [1, 12])
def test_wrong_values_fail_a_run_that_calls_itself_good(wrong: int) -> None:
    sizes = (SizeFigures(size_bytes=1 << 20, busbw_gb_per_s=480.0, wrong=wrong),)
    (record,) = judge(plan_for(), (run("pair", "n00", "n01"), [end("n00", 480.0, sizes=sizes), end("n01", 480.0)]))
    assert (record.outcome, record.reason) == (Outcome.FAIL, Reason.NUMERIC)
    assert f"{wrong} wrong" in record.message


def ranks(node: int, slow: dict[int, float], per_node: int = 8) -> tuple[RankFigures, ...]:
    first = node * per_node
    return tuple(
        RankFigures(rank=r, node=f"n{node:02}", gpu=r - first, compute_s=0.1 * (1 + slow.get(r, 0)), wait_s=0.01)
        for r in range(first, first + per_node)
    )


def group_run(slow: dict[int, float], nodes: int = 4) -> RunRecord:
    names = [f"n{i:02}" for i in range(nodes)]
    ends = [end(n, 480.0, ranks=ranks(i, slow)) for i, n in enumerate(names)]
    return judge(plan_for(), (run("all-reduce", *names), ends))[0]


def test_a_slow_rank_is_named_with_its_gpu_and_node() -> None:
    record = group_run({10: 0.2})
    assert (record.outcome, record.reason, record.suspects) == (Outcome.FAIL, Reason.STRAGGLER, ("n01",))
    assert "rank 10 on n01, GPU 2" in record.message
    assert "20%" in record.message


@pytest.mark.parametrize("slow", [{}, {10: 0.02}, dict.fromkeys(range(16), 0.3)])
def test_equal_ranks_and_two_kinds_of_nodes_hold_no_straggler(slow: dict[int, float]) -> None:
    assert group_run(slow).reason is not Reason.STRAGGLER


def test_a_floor_of_the_user_replaces_the_shipped_one() -> None:
    plan = msgspec.structs.replace(plan_for(), floors={"pair": 490.0})
    (record,) = judge(plan, (run("pair", "n00", "n01"), [end(n, 480.0) for n in ("n00", "n01")]))
    assert (record.outcome, record.floor) == (Outcome.FAIL, 490.0)


def burn(node: int, values: list[float]) -> tuple[PlannedRun, list[RankEnd]]:
    name = f"n{node:02}"
    figures = tuple(RankFigures(rank=i, node=name, gpu=i, value=v) for i, v in enumerate(values))
    return run("gpu-burn", name, number=node), [end(name, min(values), "TFLOP/s", ranks=figures)]


def test_gpus_that_spread_unlike_their_peers_are_a_warning() -> None:
    usual = [burn(i, [650.0, 652.0, 648.0, 651.0, 649.0, 650.0, 650.0, 651.0]) for i in range(4)]
    odd = burn(4, [648.0, 760.0, 740.0, 750.0, 760.0, 745.0, 755.0, 748.0])
    *good, strange = judge(plan_for(), *usual, odd)
    assert {r.outcome for r in good} == {Outcome.PASS}
    assert strange.outcome is Outcome.WARN
    assert "648 to 760" in strange.message


@given(st.lists(st.floats(1.0, 1000.0), min_size=8, max_size=30), st.lists(st.floats(1.0, 1000.0), min_size=4))
def test_similarity_is_at_most_one_and_reached_by_the_sample_itself(usual: list[float], sample: list[float]) -> None:
    baseline = Baseline.learn(usual)
    assert baseline is not None
    assert baseline.similarity(usual) == 1.0
    found = baseline.similarity(sample)
    assert found is not None
    assert found <= 1.0


@pytest.mark.parametrize("values", [[], [1.0] * 7, [float("nan")] * 20, [0.0] * 20])
def test_few_or_unusable_numbers_are_no_baseline(values: list[float]) -> None:
    assert Baseline.learn(values) is None
