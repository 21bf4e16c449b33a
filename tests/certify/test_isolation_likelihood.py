"""The arithmetic of blame."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.isolation.evidence import LINK_PRIOR, judge
from muster.certify.isolation.likelihood import CLEARED, evidence, grid_for, spurious_rate
from muster.certify.isolation.tallies import PairEvidence


@given(st.floats(0.05, 1.0))
def test_weights_of_a_grid_sum_to_one(weakest: float) -> None:
    grid = grid_for(weakest)
    assert sum(grid.weights) == pytest.approx(1.0)
    assert all(rate >= min(weakest, 0.999) - 1e-9 for rate in grid.rates)


@given(st.integers(0, 30), st.integers(0, 30), st.floats(0.001, 0.2))
def test_a_failure_raises_and_a_pass_lowers_the_ratio(fails: int, passes: int, innocent: float) -> None:
    grid = grid_for(0.3)
    now = evidence(grid, fails, passes, innocent)
    assert evidence(grid, fails + 1, passes, innocent) > now
    assert evidence(grid, fails, passes + 1, innocent) < now


def test_the_ratio_is_a_fair_bet_against_good_nodes() -> None:
    """Its mean over good nodes is one, so it seldom becomes large: what the error bound rests on."""
    rng = random.Random(7)
    grid, innocent, runs = grid_for(0.5), 0.05, 12
    ratios = []
    for _ in range(20_000):
        fails = sum(rng.random() < innocent for _ in range(runs))
        ratios.append(evidence(grid, fails, runs - fails, innocent))
    for limit in (10.0, 100.0):
        assert sum(r >= limit for r in ratios) / len(ratios) <= 1.5 / limit


def test_the_spurious_rate_starts_at_one_percent_and_follows_the_runs() -> None:
    assert spurious_rate(0, 0) == pytest.approx(0.01)
    assert spurious_rate(0, 1000) < 0.002
    assert spurious_rate(50, 1000) > 0.04


def runs(*outcomes: tuple[str, str, bool]) -> PairEvidence:
    return PairEvidence().with_runs(outcomes)


def test_a_failure_beside_a_bad_node_does_not_count_against_its_partner() -> None:
    known = runs(("bad", "x", False), ("bad", "a", False), ("bad", "b", False), ("x", "c", True), ("a", "d", True))
    found = judge(known, grid_for(0.8), {})
    assert found.nodes["bad"] > 1000
    assert found.nodes["x"] <= CLEARED
    assert found.nodes["a"] <= CLEARED


def test_repeating_one_pair_says_nothing_more_about_its_ends() -> None:
    once = judge(runs(("x", "y", False)), grid_for(0.8), {})
    often = judge(runs(*[("x", "y", False)] * 6), grid_for(0.8), {})
    assert often.nodes["x"] <= once.nodes["x"] * 1.5


def test_a_pair_that_fails_again_while_its_ends_pass_points_at_the_link() -> None:
    elsewhere = [("x", f"a{i}", True) for i in range(4)] + [("y", f"b{i}", True) for i in range(4)]
    found = judge(runs(*[("x", "y", False)] * 4, *elsewhere), grid_for(0.8), {})
    assert found.links["x", "y"] > 1e5
    assert found.link_odds["x", "y"] > 100
    assert found.link_cause["x", "y"] > 100 * LINK_PRIOR
    assert found.suspects() == ()


def test_a_flaky_node_is_not_taken_for_a_bad_link() -> None:
    known = runs(
        *[("x", "y", False)] * 3, ("x", "y", True), ("x", "a", False), ("x", "b", True), ("x", "c", False),
        *[("y", f"b{i}", True) for i in range(3)],
    )  # fmt: skip
    found = judge(known, grid_for(0.5), {})
    assert found.link_odds["x", "y"] < 1
    assert "x" in found.suspects()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()).filter(lambda r: r[0] != r[1]), max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_runs_changes_nothing(outcomes: list[tuple[int, int, bool]], rng: random.Random) -> None:
    named = [(f"n{a}", f"n{b}", ok) for a, b, ok in outcomes]
    other = list(named)
    rng.shuffle(other)
    grid = grid_for(0.3)
    one, two = judge(runs(*named), grid, {}), judge(runs(*other), grid, {})
    assert (one.nodes, one.links, one.link_odds, one.spurious) == (two.nodes, two.links, two.link_odds, two.spurious)
