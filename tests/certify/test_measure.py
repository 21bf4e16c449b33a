"""Outcomes of runs: what is evidence, what is not, and when a number is slow."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify import catalogue
from muster.certify.isolation.plan import Cell, Member, Plan, PlannedRun, Role
from muster.certify.measure import (
    MESSAGE_LIMIT,
    HowEnded,
    NodeKind,
    RankEnd,
    Report,
    Surroundings,
    judge_round,
    parse_report,
    slow_limit,
)
from muster.resources.certification import Outcome, Reason, RunRecord

NOBODY = Surroundings()


def plan_for(product: str = "NVIDIA-H100-80GB-HBM3", count: int = 64) -> Plan:
    members = tuple(Member(name=f"n{i:02}") for i in range(count))
    return Plan(
        tests=catalogue.tests_of(catalogue.profile("bringup")),
        cells=(Cell(product=product, gpus=8, targets=members),),
    )


def run(test: str, *nodes: str, number: int = 0) -> PlannedRun:
    return PlannedRun(f"r01-{number:03d}", 1, test, nodes, Role.LOCAL, 0)


def ok(node: str, value: float | None = None, unit: str = "GB/s") -> RankEnd:
    return RankEnd(node, HowEnded.REPORTED, Report(node, True, value, unit if value is not None else ""))


def no(node: str, reason: str, *suspects: str, message: str = "") -> RankEnd:
    return RankEnd(node, HowEnded.REPORTED, Report(node, False, reason=reason, suspects=suspects, message=message))


def judge(plan: Plan, one: PlannedRun, ends: Sequence[RankEnd], known: Surroundings = NOBODY) -> RunRecord:
    return judge_round(plan, [one], {one.id: ends}, known)[0]


def numbers(plan: Plan, test: str, values: Sequence[float], known: Surroundings = NOBODY) -> list[RunRecord]:
    """One run of a node test per value."""
    unit = plan.test(test).unit
    runs = [run(test, f"n{i:02}", number=i) for i in range(len(values))]
    ends = {r.id: [ok(r.nodes[0], v, unit)] for r, v in zip(runs, values, strict=True)}
    return list(judge_round(plan, runs, ends, known))


@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        (HowEnded.CRASHED, Outcome.FAIL, Reason.CRASH),
        (HowEnded.TIMEOUT, Outcome.FAIL, Reason.TIMEOUT),
        (HowEnded.MUTE, Outcome.INVALID, Reason.HARNESS),
        (HowEnded.REFUSED, Outcome.INVALID, Reason.SCHEDULING),
        (HowEnded.DISTURBED, Outcome.UNKNOWN, Reason.HARNESS),
        (HowEnded.OVERDUE, Outcome.UNKNOWN, Reason.HARNESS),
    ],
)
def test_a_rank_without_a_report_is_read_as_what_it_is(how: HowEnded, outcome: Outcome, reason: Reason) -> None:
    record = judge(plan_for(), run("host", "n00"), [RankEnd("n00", how, message="said")])
    assert (record.outcome, record.reason) == (outcome, reason)
    assert record.suspects == (() if how is HowEnded.MUTE else ("n00",))


def test_a_yes_or_no_test_passes_without_a_number() -> None:
    record = judge(plan_for(), run("host", "n00"), [ok("n00")])
    assert (record.outcome, record.value, record.reason) == (Outcome.PASS, None, Reason.NONE)


@given(st.sampled_from([HowEnded.REFUSED, HowEnded.DISTURBED, HowEnded.OVERDUE]), st.sampled_from(list(HowEnded)))
def test_a_run_that_was_disturbed_is_never_a_failure(first: HowEnded, second: HowEnded) -> None:
    ends = [RankEnd("n00", first), RankEnd("n01", second, no("n01", "crash").report)]
    for pair in (ends, [RankEnd("n00", second, no("n00", "crash").report), RankEnd("n01", first)]):
        assert judge(plan_for(), run("pair", "n00", "n01"), pair).outcome in (Outcome.INVALID, Outcome.UNKNOWN)


def test_the_most_telling_rank_gives_the_reason_and_suspects_add_up() -> None:
    ends = [no("n00", "hang", "n01"), no("n01", "numeric", message="bad sums"), no("n02", "crash", "n99", "n02")]
    record = judge(plan_for(), run("all-reduce", "n00", "n01", "n02"), ends)
    assert (record.outcome, record.reason) == (Outcome.FAIL, Reason.NUMERIC)
    assert record.suspects == ("n01", "n02")
    assert record.message == "n01: bad sums"


def test_a_reason_that_nobody_knows_is_a_failed_test_all_the_same() -> None:
    assert judge(plan_for(), run("host", "n00"), [no("n00", "gremlins")]).reason is Reason.CRASH


@pytest.mark.parametrize("reason", ["harness", "scheduling", "budget"])
def test_an_error_of_the_harness_is_no_evidence(reason: str) -> None:
    record = judge(plan_for(), run("pair", "n00", "n01"), [no("n00", reason), no("n01", "crash")])
    assert (record.outcome, record.reason) == (Outcome.INVALID, Reason.HARNESS)


@pytest.mark.parametrize(
    "end",
    [
        ok("n00", None),
        ok("n00", -3.0),
        ok("n00", 0.0),
        ok("n00", 480.0, "Mbit/s"),
        RankEnd("n00", HowEnded.REPORTED, Report("n01", True, 480.0, "GB/s")),
    ],
)
def test_a_report_that_does_not_fit_is_invalid(end: RankEnd) -> None:
    assert judge(plan_for(), run("nvlink-loopback", "n00"), [end]).outcome is Outcome.INVALID


def test_messages_are_short_and_on_one_line() -> None:
    record = judge(plan_for(), run("host", "n00"), [no("n00", "crash", message="a\nb" * 5000)])
    assert len(record.message) <= MESSAGE_LIMIT
    assert "\n" not in record.message


def test_a_run_that_was_not_carried_out_is_unknown() -> None:
    assert judge(plan_for(), run("pair", "n00", "n01"), [ok("n00", 480.0)]).outcome is Outcome.UNKNOWN


def test_the_slowest_rank_is_the_number() -> None:
    record = judge(plan_for(), run("pair", "n00", "n01"), [ok("n00", 480.0), ok("n01", 470.0)])
    assert (record.outcome, record.value, record.floor) == (Outcome.PASS, 470.0, 300.0)


def test_under_the_floor_fails_even_when_all_are() -> None:
    records = numbers(plan_for(), "gpu-burn", [300.0] * 8)
    assert {r.outcome for r in records} == {Outcome.FAIL}
    assert records[0].reason is Reason.COMPUTE
    assert "floor" in records[0].message


def test_without_a_floor_and_peers_nothing_passes() -> None:
    plan = plan_for(product="NVIDIA-X1")
    assert [r.outcome for r in numbers(plan, "gpu-burn", [500.0, 501.0])] == [Outcome.UNKNOWN] * 2
    assert all(r.value is not None and r.floor is None for r in numbers(plan, "gpu-burn", [500.0, 501.0]))
    assert [r.outcome for r in numbers(plan, "gpu-burn", [500.0, 501.0, 499.0, 500.0])] == [Outcome.PASS] * 4


@given(
    st.integers(0, 10_000),
    st.one_of(
        st.tuples(st.integers(8, 64), st.sampled_from([0.8, 0.85])), st.tuples(st.integers(32, 64), st.just(0.9))
    ),
)
def test_slow_nodes_are_found_by_their_peers_and_only_they(seed: int, case: tuple[int, float]) -> None:
    """Up to a quarter slow, healthy numbers spread by 1 %."""
    count, rate = case
    draw = random.Random(seed)
    slow = set(draw.sample(range(count), draw.randint(0, count // 4)))
    spread = [1.0 + 0.01 * max(-2.5, min(2.5, draw.gauss(0, 1))) for _ in range(count)]
    records = numbers(
        plan_for(), "gpu-burn", [650.0 * s * (rate if i in slow else 1.0) for i, s in enumerate(spread)]
    )
    assert {i for i, r in enumerate(records) if r.outcome is Outcome.FAIL} == slow


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=80), st.integers(1, 5000))
def test_the_limit_lies_under_the_median_by_the_margin_at_least(peers: list[float], compared: int) -> None:
    middle, limit = slow_limit(peers, compared)
    assert limit <= 0.95 * middle * (1 + 1e-9)
    assert slow_limit(list(reversed(peers)), compared) == (middle, limit)


def test_false_alarms_stay_rare_in_a_wide_spread() -> None:
    """With a spread of 4 % the margin alone would call every tenth number slow."""
    draw = random.Random(5)
    alarms = 0
    for _ in range(200):
        records = numbers(plan_for(), "gpu-burn", [650.0 * (1 + draw.gauss(0, 0.04)) for _ in range(64)])
        alarms += sum(r.outcome is Outcome.FAIL for r in records)
    assert alarms / (200 * 64) < 0.001


def test_earlier_runs_of_the_certification_are_peers() -> None:
    earlier = tuple(
        RunRecord(id=f"e{i}", round=0, test="pair", nodes=("n10", f"n2{i}"), outcome=Outcome.PASS, value=480.0)
        for i in range(3)
    )
    known = Surroundings(passed=earlier)
    ends = [ok("n00", 400.0), ok("n01", 400.0)]
    assert judge(plan_for(), run("pair", "n00", "n01"), ends).outcome is Outcome.PASS
    assert judge(plan_for(), run("pair", "n00", "n01"), ends, known).outcome is Outcome.FAIL


def test_paths_inside_and_across_nvlink_domains_are_not_compared() -> None:
    plan = plan_for("NVIDIA-GB200")
    kinds = {f"n{i:02}": NodeKind(clique=f"q{i // 4}") for i in range(16)}
    inside = [run("pair", f"n{4 * i:02}", f"n{4 * i + 1:02}", number=i) for i in range(4)]
    across = [run("pair", f"n{4 * i + 2:02}", f"n{(4 * i + 7) % 16:02}", number=10 + i) for i in range(4)]
    ends = {r.id: [ok(n, 700.0) for n in r.nodes] for r in inside}
    ends |= {r.id: [ok(n, 46.0) for n in r.nodes] for r in across}
    records = judge_round(plan, [*inside, *across], ends, Surroundings(kinds=kinds))
    assert {r.outcome for r in records} == {Outcome.PASS}
    assert [r.floor for r in records] == [500.0] * 4 + [40.0] * 4


def test_nodes_in_service_are_peers_of_a_node_that_is_tested_alone() -> None:
    key = ("NVIDIA-H100-80GB-HBM3", "s1", "gpu-burn.throughput_tflop_per_s")
    known = Surroundings(kinds={"n00": NodeKind(stack="s1")}, certified={key: [650.0, 648.0, 652.0]})
    other = Surroundings(kinds={"n00": NodeKind(stack="s2")}, certified={key: [650.0, 648.0, 652.0]})
    assert numbers(plan_for(), "gpu-burn", [552.0], known)[0].outcome is Outcome.FAIL
    assert numbers(plan_for(), "gpu-burn", [552.0], other)[0].outcome is Outcome.PASS


def test_halves_of_a_group_are_compared_with_each_other() -> None:
    plan = plan_for("NVIDIA-X1")
    halves = [run("all-reduce", "n00", "n01", number=0), run("all-reduce", "n02", "n03", number=1)]
    ends = {r.id: [ok(n, v) for n in r.nodes] for r, v in zip(halves, (200.0, 480.0), strict=True)}
    assert [r.outcome for r in judge_round(plan, halves, ends, NOBODY)] == [Outcome.FAIL, Outcome.PASS]


@given(st.text(max_size=300) | st.binary(max_size=100).map(lambda b: b.decode("latin-1")))
def test_any_text_may_come_as_a_report(text: str) -> None:
    found = parse_report(text)
    assert found is None or isinstance(found, Report)


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "Infinity", '"5"'])
def test_numbers_that_are_none_are_no_report(value: str) -> None:
    assert parse_report('{"node":"n","ok":true,"value":' + value + "}") is None


def test_a_report_is_read() -> None:
    text = json.dumps({"node": "n", "ok": True, "value": 3, "unit": "GB/s", "later": "fields"})
    assert parse_report(text) == Report("n", True, 3.0, "GB/s")
    assert parse_report("[" * 100_000) is None
