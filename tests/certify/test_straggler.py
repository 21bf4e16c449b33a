"""Slow ranks: who is named, who never is, and when the answer is that nobody can tell."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.straggler.detector import USUAL, Detector, Finding, Outcome, detect


def series(
    ranks: int, steps: int, slow: dict[int, float], *, seed: int = 0, sigma: float = 0.01
) -> dict[int, list[float]]:
    """Compute times with a common variation of 20 % per step."""
    rng = random.Random(seed)
    common = [1.0 + 0.2 * rng.random() for _ in range(steps)]
    return {r: [c * (1.0 + rng.gauss(0.0, sigma)) * (1.0 + slow.get(r, 0.0)) for c in common] for r in range(ranks)}


def named(finding: Finding) -> list[int]:
    return sorted(s.rank for s in finding.slow)


@pytest.mark.parametrize("ranks", [8, 64, 512])
@pytest.mark.parametrize("slow", [0.05, 0.2])
@pytest.mark.parametrize("culprits", [1, 2])
def test_a_slow_rank_is_named_and_nobody_else(ranks: int, slow: float, culprits: int) -> None:
    planted = dict.fromkeys(range(3, 3 + culprits), slow)
    finding = detect(series(ranks, 40, planted))
    assert finding.outcome is Outcome.FOUND
    assert named(finding) == sorted(planted)
    assert finding.slow[0].slowdown == pytest.approx(slow, abs=0.015)
    assert finding.false_alarm == USUAL.false_alarm


@pytest.mark.parametrize("ranks", [4, 8, 128])
def test_healthy_ranks_are_not_named_in_many_jobs(ranks: int) -> None:
    wronged = [seed for seed in range(60) if detect(series(ranks, 50, {}, seed=seed)).slow]
    assert wronged == []


def test_hiccups_of_single_steps_are_nobody_slow() -> None:
    times = series(16, 60, {})
    rng = random.Random(1)
    for rank in times:
        for step in rng.sample(range(60), 2):
            times[rank][step] *= 5.0
    assert detect(times).outcome is Outcome.NONE


def test_a_rank_within_the_tolerance_is_not_slow_however_long_one_looks() -> None:
    assert detect(series(16, 2000, {5: USUAL.tolerance * 0.8}, sigma=0.005)).outcome is Outcome.NONE


def test_a_rank_that_turns_slow_is_named_from_then_on() -> None:
    times = series(32, 60, {})
    times[7] = [t * (1.1 if step >= 30 else 1.0) for step, t in enumerate(times[7])]
    finding = detect(times)
    assert named(finding) == [7]
    assert finding.slow[0].since_step > 30


def test_phases_that_contain_waiting_name_nobody() -> None:
    compute = series(8, 30, {2: 0.3})
    whole = [max(compute[r][s] for r in compute) for s in range(30)]
    step_s = dict.fromkeys(compute, whole)
    finding = detect(step_s, step_s)
    assert finding.outcome is Outcome.UNIDENTIFIABLE
    assert "waiting" in finding.message
    assert named(detect(compute, step_s)) == [2]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_few_ranks_have_no_weight(ranks: int) -> None:
    finding = detect(series(ranks, 50, {0: 1.0}))
    assert (finding.outcome, finding.slow) == (Outcome.TOO_FEW, ())


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_step_with_a_missing_measurement_counts_for_nobody(bad: float) -> None:
    state = Detector(tuple(range(8)))
    assert state.after([1.0] * 7 + [bad]) == state


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="3 times for 8 ranks"):
        Detector(tuple(range(8))).after([1.0, 1.0, 1.0])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(12)), st.floats(1e-6, 1e6))
def test_names_of_ranks_and_the_unit_of_time_change_nothing(seed: int, order: list[int], unit: float) -> None:
    times = series(12, 20, {4: 0.1}, seed=seed)
    plain = detect(times)
    other = detect({order[r]: [t * unit for t in row] for r, row in times.items()})
    assert named(other) == sorted(order[r] for r in named(plain))
    assert other.outcome is plain.outcome


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_a_rank_once_named_stays_named(seed: int, steps: int) -> None:
    times = series(12, 40, {4: 0.06}, seed=seed)
    early = detect({r: row[:steps] for r, row in times.items()})
    late = detect(times)
    assert set(named(early)) <= set(named(late))
