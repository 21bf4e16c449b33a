"""The interval log of a job and its queries: sums close, order is irrelevant, definitions agree with formulas."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.goodput import (
    Interval,
    IntervalLog,
    Kind,
    Save,
    checkpoint_advice,
    daly_interval_s,
    expected_ettr,
    goodput,
    interval_log,
    run_intervals,
    waterfall,
    young_interval_s,
)
from muster.resources.certification import RunDetail

US = 1_000_000


@st.composite
def pieces(draw: st.DrawFn) -> list[Interval]:
    """Intervals that follow each other, some with a gap between, over a few attempts."""
    found, at = [], draw(st.integers(-(10**12), 10**12))
    attempt = 0
    for kind, length, gap in draw(
        st.lists(
            st.tuples(st.sampled_from(list(Kind)), st.integers(0, 10**9), st.sampled_from([0, 0, 1, 10**6])),
            min_size=1,
            max_size=30,
        )
    ):
        attempt += kind is Kind.RESTART and bool(found)
        running = kind not in (Kind.QUEUED,)
        found.append(
            Interval(at, at + length, kind, "c", attempt, running, mfu=0.5 if kind is Kind.PRODUCTIVE else None)
        )
        at += length + gap
    return found


@given(pieces(), st.randoms(use_true_random=False))
def test_parts_close_and_the_order_of_appending_is_irrelevant(rows: list[Interval], chance: random.Random) -> None:
    log = interval_log(rows)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert interval_log(shuffled) == log
    assert sum(log.parts_us().values()) == log.wall_us
    assert sum(log.causes_us().values()) == log.wall_us
    assert all(a.end_us == b.start_us for a, b in pairwise(log.intervals))


@given(pieces(), st.lists(st.integers(-(10**12), 2 * 10**12), max_size=5))
def test_every_definition_is_a_share(rows: list[Interval], saves: list[int]) -> None:
    figures = goodput(interval_log(rows, [Save(at) for at in saves]))
    for figure in (figures.time, figures.ettr, figures.ettr_without_queue, figures.useful_progress, figures.flop):
        assert figure is None or 0 <= figure <= 1


@given(pieces())
def test_a_waterfall_goes_from_the_wall_time_to_zero(rows: list[Interval]) -> None:
    log = interval_log(rows)
    bars = waterfall(log)
    if not log.wall_us:
        assert bars == ()
        return
    assert bars[0].to_s == pytest.approx(log.wall_us / US)
    assert bars[-1].kind is Kind.PRODUCTIVE
    assert bars[-1].from_s == pytest.approx(0, abs=1e-6)
    assert sum(bar.share for bar in bars) == pytest.approx(1)
    assert all(a.from_s == b.to_s for a, b in pairwise(bars))


def test_overlaps_and_reversed_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        interval_log([Interval(0, 10, Kind.PRODUCTIVE), Interval(5, 20, Kind.STALLED)])
    with pytest.raises(ValueError, match="ends before"):
        interval_log([Interval(10, 0, Kind.PRODUCTIVE)])
    with pytest.raises(ValueError, match="outside"):
        interval_log([Interval(0, 10, Kind.PRODUCTIVE)], end_us=5)


def test_a_gap_is_unknown_and_never_productive() -> None:
    log = interval_log([Interval(0, 10, Kind.PRODUCTIVE)], start_us=0, end_us=40)
    assert log.parts_us()[Kind.UNKNOWN] == 30
    assert goodput(log).time == 0.25


def example() -> IntervalLog:
    rows = [
        Interval(0, 100, Kind.QUEUED, running=False),
        Interval(100, 200, Kind.STARTUP),
        Interval(200, 500, Kind.PRODUCTIVE, mfu=0.4),
        Interval(500, 520, Kind.CHECKPOINT),
        Interval(520, 600, Kind.PRODUCTIVE, mfu=0.4),
        Interval(600, 650, Kind.RESTART, "down", 1, running=False),
        Interval(650, 700, Kind.RESTART, "resume", 1),
        Interval(700, 780, Kind.RECOMPUTED, "", 1),
        Interval(780, 980, Kind.PRODUCTIVE, "", 1, mfu=0.2),
        Interval(980, 1000, Kind.STALLED, "", 1),
    ]
    return interval_log(rows, [Save(520, 10)])


def test_the_definitions_on_one_job() -> None:
    figures = goodput(example())
    assert figures.time == pytest.approx(580 / 1000)
    assert figures.ettr == pytest.approx((580 + 20 + 20) / 1000)
    assert figures.ettr_without_queue == pytest.approx(620 / 900)
    # w = 900, lost = 600 - 520, resume = 100 + 50, down = 50, save = 20
    assert figures.useful_progress == pytest.approx((900 - 80 - 150 - 50 - 20) / (900 - 50))
    assert figures.flop == pytest.approx((380 * 0.4 + 200 * 0.2) / 1000)


def test_an_interruption_without_a_checkpoint_loses_nothing_in_useful_progress() -> None:
    log = interval_log([Interval(0, 60, Kind.PRODUCTIVE), Interval(60, 100, Kind.RESTART, "", 1)])
    assert goodput(log).useful_progress == pytest.approx(0.6)


def test_a_rate_that_is_missing_leaves_the_flop_definition_out() -> None:
    assert goodput(interval_log([Interval(0, 60, Kind.PRODUCTIVE)])).flop is None


def simulated(mtbf_s: float, restart_s: float, interval_s: float, seed: int, failures: int) -> IntervalLog:
    """A job that fails at random, starts again from its last checkpoint and repeats what was lost; saving is free."""
    chance = random.Random(seed)
    rows, at = [], 0
    repeat = 0.0
    for attempt in range(failures):
        left = chance.expovariate(1 / mtbf_s)
        start = min(restart_s, left) if attempt else 0.0
        for seconds, kind in ((start, Kind.RESTART), (min(repeat, left - start), Kind.RECOMPUTED)):
            rows.append(Interval(at, at + round(seconds * US), kind, "", attempt))
            at += round(seconds * US)
        new = left - start - min(repeat, left - start)
        rows.append(Interval(at, at + round(new * US), Kind.PRODUCTIVE, "", attempt))
        at += round(new * US)
        worked = left - start
        repeat = (repeat + new) % interval_s if worked > repeat else repeat
    return interval_log(rows)


@pytest.mark.parametrize(
    ("mtbf_s", "restart_s", "interval_s"), [(86_400, 600, 3600), (86_400, 300, 600), (20_000, 120, 1200)]
)
def test_ettr_of_a_simulated_job_is_what_the_formula_says(mtbf_s: float, restart_s: float, interval_s: float) -> None:
    log = simulated(mtbf_s, restart_s, interval_s, seed=7, failures=4000)
    figure = goodput(log).ettr
    assert figure == pytest.approx(expected_ettr(restart_s, interval_s, mtbf_s), abs=0.01)


@pytest.mark.parametrize(
    ("nodes", "checkpoint_min", "restart_min", "ettr"),
    [(2048, 10, 5, 0.915), (2048, 5, 2, 0.960), (1024, 60, 10, 0.844), (1024, 1, 1, 0.993)],
)
def test_the_formula_gives_the_known_figures(nodes: int, checkpoint_min: int, restart_min: int, ettr: float) -> None:
    mtbf_s = 86_400 / (6.5e-3 * nodes)
    assert expected_ettr(restart_min * 60, checkpoint_min * 60, mtbf_s) == pytest.approx(ettr, abs=0.002)


@settings(max_examples=50)
@given(st.floats(1, 300), st.floats(3600, 1e6))
def test_the_advised_interval_is_the_best_of_its_neighbours(save_s: float, mtbf_s: float) -> None:
    def loss(interval_s: float) -> float:
        return save_s / interval_s + interval_s / (2 * mtbf_s)

    best = young_interval_s(save_s, mtbf_s)
    assert loss(best) <= loss(best * 1.1) + 1e-12
    assert loss(best) <= loss(best / 1.1) + 1e-12
    assert daly_interval_s(save_s, mtbf_s) == pytest.approx(best, rel=0.35)


@pytest.mark.parametrize("figures", [(0, 10), (10, 0), (-1, 10), (float("nan"), 10), (10, float("inf"))])
def test_intervals_of_impossible_figures_are_refused(figures: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        young_interval_s(*figures)
    with pytest.raises(ValueError, match="positive"):
        daly_interval_s(*figures)


def test_advice_needs_a_checkpoint_and_an_interruption() -> None:
    assert checkpoint_advice(interval_log([Interval(0, 60 * US, Kind.PRODUCTIVE)])) is None
    rows = [
        Interval(0, 1000 * US, Kind.PRODUCTIVE),
        Interval(1000 * US, 1010 * US, Kind.CHECKPOINT),
        Interval(1010 * US, 2010 * US, Kind.PRODUCTIVE),
        Interval(2010 * US, 4020 * US, Kind.PRODUCTIVE, "", 1),
    ]
    advice = checkpoint_advice(interval_log(rows, [Save(1010 * US, 1)]))
    assert advice is not None
    assert (advice.save_s, advice.mtbf_s, advice.interruptions, advice.current_s) == (10, 4020, 1, None)
    assert advice.interval_s == pytest.approx(daly_interval_s(10, 4020))


START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_run_of_the_training_test_tells_its_parts() -> None:
    facts = {"startup_s": 10.0, "steps": 100.0, "steps_per_s": 2.0, "mfu_ratio": 0.5}
    detail = RunDetail(run="r", facts=facts, started_at=START, ended_at=START + timedelta(seconds=80))
    log = run_intervals(detail)
    assert log is not None
    parts = log.parts_us()
    assert (parts[Kind.STARTUP], parts[Kind.PRODUCTIVE], parts[Kind.UNKNOWN]) == (10 * US, 50 * US, 20 * US)
    assert goodput(log).flop == pytest.approx(50 * 0.5 / 80)


@given(
    st.dictionaries(
        st.sampled_from(["startup_s", "stalled_s", "checkpoint_s", "productive_s", "wall_s", "queued_s"]),
        st.floats(allow_nan=True, allow_infinity=True),
    ),
    st.integers(0, 1000),
)
def test_whatever_workers_report_the_parts_close(facts: dict[str, float], wall_s: int) -> None:
    detail = RunDetail(run="r", facts=facts, started_at=START, ended_at=START + timedelta(seconds=wall_s))
    log = run_intervals(detail)
    assert (log is None) == (wall_s == 0)
    if log is not None:
        assert sum(log.parts_us().values()) == log.wall_us == wall_s * US


def test_a_run_without_any_time_has_no_log() -> None:
    assert run_intervals(RunDetail(run="r")) is None
