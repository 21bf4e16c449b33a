"""Descriptions and reports of runs: read back as written, and refused in a sentence when they are something else."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners.worker_link import HowRunEnded, RunAnswer, RunPhase
from muster.certify.runners.worker_messages import (
    MessageError,
    end_of,
    end_of_stopped,
    read_refusal,
    read_run,
    read_state,
)
from muster.workloads.rank import RankResult
from muster.workloads.report import NodeReport, ReportError
from muster.workloads.run_spec import SPEC_LIMIT_BYTES, RunSpec, SpecError
from muster.workloads.worker_merge import OWN_FAILURE, merge
from muster.workloads.worker_merge import RankEnd as LocalRank

NOW = datetime(2026, 1, 5, tzinfo=UTC)
SPEC = RunSpec(
    run="r01-000",
    test="pair",
    program="collective",
    params={"collective": "all-reduce"},
    nodes=("n1", "n2"),
    node_index=1,
    ranks_per_node=2,
    device="cpu",
    rendezvous="10.0.0.1:29500",
    timeout_s=60.0,
    env={"NCCL_DEBUG": "INFO"},
)
NAMES = st.text("abcdefgh-123", min_size=1, max_size=20)


@settings(max_examples=40)
@given(
    nodes=st.lists(NAMES, min_size=1, max_size=5, unique=True),
    params=st.dictionaries(NAMES, st.integers() | st.text() | st.lists(st.integers())),
    timeout_s=st.floats(0.001, 86_400.0),
    ranks=st.integers(1, 16),
)
def test_a_spec_is_read_back_as_it_was_written(
    nodes: list[str], params: dict[str, object], timeout_s: float, ranks: int
) -> None:
    spec = RunSpec(
        run="r1",
        test="t",
        program="p",
        params=params,
        nodes=tuple(nodes),
        node_index=len(nodes) - 1,
        ranks_per_node=ranks,
        device="cuda",
        rendezvous="[fe80::1]:80",
        timeout_s=timeout_s,
    )
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(spec.to_json()).to_json() == spec.to_json()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"run": "../../etc"}, "run"),
        ({"run": ".hidden"}, "run"),
        ({"nodes": []}, "nodes"),
        ({"nodes": ["a", "a"]}, "nodes"),
        ({"nodeIndex": 2}, "nodeIndex"),
        ({"nodeIndex": True}, "nodeIndex"),
        ({"ranksPerNode": 0}, "ranksPerNode"),
        ({"device": "tpu"}, "device"),
        ({"rendezvous": "nowhere"}, "rendezvous"),
        ({"rendezvous": "host:99999"}, "rendezvous"),
        ({"timeoutS": 0}, "timeoutS"),
        ({"timeoutS": math.nan}, "timeoutS"),
        ({"timeoutS": "60"}, "timeoutS"),
        ({"timeoutS": math.inf}, "timeoutS"),
        ({"timeoutS": 10**400}, "timeoutS"),
        ({"rendezvous": "host:06553599"}, "rendezvous"),
        ({"nodes": ["a"], "nodeIndex": 0, "rendezvous": "nowhere"}, "rendezvous"),
        ({"params": []}, "params"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_by_field(change: dict[str, object], word: str) -> None:
    text = json.dumps({**json.loads(SPEC.to_json()), **change})
    with pytest.raises(SpecError, match=word):
        RunSpec.from_json(text)


@pytest.mark.parametrize("text", ["", "[]", "nul", "[" * 100_000, "x" * (SPEC_LIMIT_BYTES + 1)])
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        RunSpec.from_json(text)


@given(st.binary(max_size=200))
def test_no_bytes_bring_a_reader_down(data: bytes) -> None:
    for read, error in (
        (RunSpec.from_json, SpecError),
        (NodeReport.from_json, ReportError),
        (read_state, MessageError),
        (read_run, MessageError),
    ):
        with pytest.raises(error):
            read(data)
    assert read_refusal(data)[1] == ""


def test_numbers_that_json_does_not_know_become_unmeasured() -> None:
    report = NodeReport(
        node="n", ok=True, value=math.nan, sizes=({"sizeBytes": 8, "busbwGbPerS": math.inf},), facts={"a": math.nan}
    )
    found = NodeReport.from_json(report.to_json())
    assert found.value is None
    assert found.sizes == ({"sizeBytes": 8, "busbwGbPerS": None},)
    assert found.facts == {}


def answer(report: object, how: HowRunEnded = HowRunEnded.REPORTED) -> RunAnswer:
    return RunAnswer(RunPhase.ENDED, how, json.dumps(report).encode(), "why")


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        {"ok": True},
        {"node": "n", "ok": "yes"},
        {"node": "n", "ok": True, "value": "fast"},
        {"node": "n", "ok": True, "sizes": [{"placement": "out"}]},
        {"node": "n", "ok": True, "facts": {"x": "y"}},
    ],
)
def test_a_report_of_another_shape_is_no_report(report: object) -> None:
    assert end_of("n", answer(report), NOW, NOW).how is HowEnded.MUTE


def test_a_node_speaks_of_its_own_ranks_and_with_bounds() -> None:
    ranks = [{"rank": i, "node": n, "computeS": 9.0, "message": "x" * 9999} for i, n in enumerate(("n", "innocent"))]
    sizes = [{"sizeBytes": 8, "placement": "x" * 9999}, {"sizeBytes": 8, "placement": "in"}]
    facts = {"f" * 9999: 1.0}
    detail = end_of("n", answer({"node": "n", "ok": True, "ranks": ranks, "sizes": sizes, "facts": facts}), NOW, NOW)
    assert detail.detail is not None
    assert [r.node for r in detail.detail.ranks] == ["n"]
    assert [s.placement for s in detail.detail.sizes] == ["in"]
    assert all(len(text) < 1000 for text in (*detail.detail.facts, detail.detail.ranks[0].message))


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        (HowRunEnded.CRASHED, HowEnded.CRASHED),
        (HowRunEnded.MUTE, HowEnded.MUTE),
        (HowRunEnded.TIMEOUT, HowEnded.TIMEOUT),
        (HowRunEnded.STOPPED, HowEnded.DISTURBED),
    ],
)
def test_every_end_has_its_word(how: HowRunEnded, ending: HowEnded) -> None:
    assert end_of("n", answer(None, how), NOW, NOW).how is ending


def test_a_node_on_which_a_run_was_stopped_points_at_the_cause_alone() -> None:
    crash = RankEnd("bad", HowEnded.CRASHED, message="signal 11")
    end = end_of_stopped("good", crash)
    assert end.report is not None
    assert (end.report.suspects, end.report.ok, end.report.reason) == (("bad",), False, "crash")
    gone = RankEnd("bad", HowEnded.DISTURBED, message="gone")
    assert end_of_stopped("good", gone).how is HowEnded.MUTE
    silent = RankEnd("bad", HowEnded.REPORTED, Report("bad", ok=False, reason="numeric", message="2 wrong"))
    assert (report := end_of_stopped("good", silent).report) is not None
    assert (report.reason, report.suspects) == ("numeric", ())


# The ranks of one node


def rank(local: int, **changes: object) -> LocalRank:
    return LocalRank(local, **changes)  # type: ignore[arg-type]  # fields by name


def good(value: float, **more: object) -> RankResult:
    return RankResult(ok=True, value=value, unit="GB/s", **more)  # type: ignore[arg-type]  # fields by name


def test_the_slowest_rank_gives_the_number() -> None:
    report = merge(
        SPEC, [rank(0, result=good(9.0, facts={"x_s": 2.0})), rank(1, result=good(7.0, facts={"x_s": 1.0}))]
    )
    assert (report.ok, report.value, report.unit, report.facts) == (True, 7.0, "GB/s", {"x_s": 1.0})
    assert [r["rank"] for r in report.ranks] == [2, 3]


def test_a_rank_without_a_number_leaves_the_node_without_one() -> None:
    assert merge(SPEC, [rank(0, result=good(9.0)), rank(1, result=RankResult(ok=True))]).value is None


def test_sizes_are_told_by_the_first_node_alone() -> None:
    sizes = ({"sizeBytes": 8, "wrong": 1},)
    ranks = [rank(0, result=good(1.0, sizes=sizes)), rank(1, result=good(1.0, sizes=sizes))]
    first = RunSpec(**{**SPEC.__dict__, "node_index": 0})
    assert (merge(first, ranks).sizes, merge(SPEC, ranks).sizes) == (sizes, ())


def test_what_one_rank_saw_beats_what_its_peers_suffered() -> None:
    saw = RankResult(ok=False, reason="numeric", message="3 wrong", suspects=("n1",))
    suffered = RankResult(ok=False, reason="crash", message="closed", suspects=("n2",))
    report = merge(SPEC, [rank(0, result=suffered), rank(1, result=saw)])
    assert (report.reason, report.message, report.suspects) == ("numeric", "3 wrong", ("n1",))


@pytest.mark.parametrize(("code", "words"), [(-9, "signal 9"), (3, "exit code 3")])
def test_a_rank_that_dies_points_at_its_node(code: int, words: str) -> None:
    report = merge(SPEC, [rank(0, result=good(1.0)), rank(1, exit_code=code, tail="Bus\nerror")])
    assert (report.ok, report.reason, report.suspects) == (False, "crash", ("n2",))
    assert words in report.message
    assert "Bus error" in report.message


def test_a_failure_of_our_own_points_at_nobody() -> None:
    report = merge(SPEC, [rank(0, exit_code=OWN_FAILURE), rank(1, result=good(1.0))])
    assert (report.reason, report.suspects) == ("harness", ())


def test_a_rank_that_hangs_alone_on_its_node_is_the_suspect_and_with_others_nobody_is() -> None:
    stuck = rank(0, overdue=True, exit_code=-9, progress={"phase": "compute", "step": 4, "waiting": False})
    alone = RunSpec(run="r", test="gpu-burn", program="gemm", nodes=("n1",), timeout_s=5.0)
    assert merge(alone, [stuck]).suspects == ("n1",)
    report = merge(SPEC, [stuck])
    assert (report.reason, report.suspects) == ("hang", ())
    assert report.facts == {"hang_ranks_waiting": 0.0, "hang_ranks_at_work": 1.0, "hang_least_step": 4.0}


def test_a_rank_that_still_gets_on_at_the_deadline_is_slow_and_does_not_hang() -> None:
    progress = {"phase": "compute", "step": 4, "waiting": False}
    alone = RunSpec(run="r", test="gpu-burn", program="gemm", nodes=("n1",), timeout_s=50.0)
    slow = merge(alone, [rank(0, overdue=True, exit_code=-9, progress=progress, idle_s=1.0)])
    hung = merge(alone, [rank(0, overdue=True, exit_code=-9, progress=progress, idle_s=49.0)])
    assert (slow.reason, slow.suspects, hung.reason) == ("timeout", (), "hang")
