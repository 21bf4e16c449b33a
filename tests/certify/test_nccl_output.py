"""Tests of the user's image that print the table of nccl-tests: whole, cut, wrong, and of numbers that are none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify import catalogue
from muster.certify.isolation.plan import Cell, Member, Plan, PlannedRun, Role
from muster.certify.measure import RankEnd, Surroundings, judge_round
from muster.certify.runners.program_pods import end_of_program
from muster.resources.certification import Outcome, Reason, RunRecord
from tests.read.bandwidth_maker import Made

NCCL = msgspec.structs.replace(
    catalogue.tests()["nvlink-loopback"],
    command=("all_reduce_perf", "-g", "8"),
    image="nccl-tests:1",
    parser="nccl-tests",
    program="",
)
GIB = 2**30
ROWS = ((8, 0.0, 0.0), (2**20, 131.5, 130.9), (GIB, 471.2, 469.8), (8 * GIB, 478.0, 476.5))
WHOLE = Made(ROWS, ranks=8).text()


def judged(end: RankEnd, floor: float = 400.0) -> RunRecord:
    plan = Plan(
        tests=(NCCL,),
        floors={NCCL.name: floor},
        cells=(Cell(product="NVIDIA-H100-80GB-HBM3", gpus=8, targets=(Member(name="a"),)),),
    )
    run = PlannedRun("r01-000", 1, NCCL.name, ("a",), Role.LOCAL, 0)
    return judge_round(plan, [run], {run.id: [end]}, Surroundings())[0]


@pytest.mark.requirement("companion/BMAAS11")
def test_the_peak_of_a_whole_table_is_held_against_the_floor() -> None:
    record = judged(end_of_program("a", NCCL, 0, WHOLE))
    assert (record.outcome, record.value) == (Outcome.PASS, 478.0)
    slow = judged(end_of_program("a", NCCL, 0, WHOLE), floor=500.0)
    assert (slow.outcome, slow.reason) == (Outcome.FAIL, Reason.BANDWIDTH)


def test_a_table_without_an_exit_code_of_success_is_no_pass() -> None:
    assert judged(end_of_program("a", NCCL, 1, WHOLE)).outcome is Outcome.INVALID


@given(st.integers(0, WHOLE.index("# Avg bus") - 1), st.sampled_from((0, 1, 137)))
def test_a_table_that_is_cut_neither_passes_nor_blames(at: int, code: int) -> None:
    record = judged(end_of_program("a", NCCL, code, WHOLE[:at]))
    if at and WHOLE[:at].strip():
        assert record.outcome is Outcome.INVALID
        assert record.message
    else:
        assert record.outcome is not Outcome.PASS


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-nan", "1e999"])
@pytest.mark.parametrize("figure", ["478", "476.5", "471.2"])
def test_a_figure_that_is_no_number_spoils_the_run(figure: str, text: str) -> None:
    spoilt = WHOLE.replace(figure, text.rjust(len(figure)))
    assert spoilt != WHOLE
    assert judged(end_of_program("a", NCCL, 0, spoilt)).outcome is Outcome.INVALID


@pytest.mark.parametrize(
    "rows", [((0, 0.0, 0.0),) * 3, ((8 * GIB, 0.0, 0.0),), ()], ids=["size 0", "busbw 0", "none"]
)
def test_a_sweep_that_moved_nothing_measured_nothing(rows: tuple[tuple[int, float, float], ...]) -> None:
    assert judged(end_of_program("a", NCCL, 0, Made(rows, ranks=8).text())).outcome is Outcome.INVALID


def test_wrong_values_fail_the_run_however_fast_it_was() -> None:
    record = judged(end_of_program("a", NCCL, 1, Made(ROWS, ranks=8, wrong=3).text()))
    assert record.outcome is Outcome.FAIL
    assert record.reason is not Reason.BANDWIDTH
