"""Slow nodes whose single numbers look healthy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.isolation.slowness import LEAST_NODES, MOST_NUMBERS, Slowness
from muster.certify.truth import SlowNodes, carry_out
from muster.resources.certification import NodeVerdict, Reason
from tests.certify import fleets
from tests.certify.fleets import name

BLAME = 1e-5


def slow_named(nodes: int, seed: int, factor: float, lasting: float = 0.0) -> tuple[set[str], str]:
    plan = fleets.plan(nodes, ("gpu-burn", "pair"), seed=seed, weakest=0.5)
    bad = {name(seed % nodes): factor} if factor < 1 else {}
    verdicts, _ = carry_out(plan, SlowNodes(seed, bad, 0.01, lasting).answer)
    named = [v for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED]
    assert all(v.reason in (Reason.COMPUTE, Reason.BANDWIDTH) for v in named)
    return {v.name for v in named}, " ".join(v.message for v in named)


def test_a_node_five_percent_slow_among_many_is_named_by_the_mean_of_its_numbers() -> None:
    found = [slow_named(256, seed, 0.95) for seed in range(6)]
    # The stated rate is 98 %, so one fleet in the way of chance is allowed for; an innocent one is not.
    assert sum(names == {name(seed)} for seed, (names, _) in enumerate(found)) >= 5
    assert all(names <= {name(seed)} for seed, (names, _) in enumerate(found))
    assert any("under the median" in words for _, words in found)


def test_scatter_alone_names_nobody() -> None:
    assert all(slow_named(128, seed, 1.0)[0] == set() for seed in range(6))


def test_nodes_that_differ_for_good_within_the_margin_are_not_named() -> None:
    assert all(slow_named(64, seed, 1.0, lasting=0.01)[0] == set() for seed in range(8))


def test_few_nodes_have_no_scatter_to_speak_of() -> None:
    numbers = {name(i): (100.0,) * 5 for i in range(LEAST_NODES - 2)} | {"slow": (60.0,) * 5}
    assert Slowness(numbers, BLAME).ratio("slow") == 0.0
    assert not Slowness(numbers, BLAME).open("slow")


def test_what_stays_with_a_node_widens_what_counts_as_healthy() -> None:
    spread = [0.97 + 0.004 * (i % 16) for i in range(64)]
    steady = Slowness({name(i): (100 * v,) * 3 for i, v in enumerate(spread)}, BLAME)
    assert steady.settled
    assert steady.lasting == pytest.approx(steady.sigma)
    assert steady.healthy > steady.slow / 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(50.0, 150.0), min_size=LEAST_NODES, max_size=40), st.integers(1, MOST_NUMBERS))
def test_repeats_end_and_lower_numbers_never_look_healthier(firsts: list[float], repeats: int) -> None:
    numbers = {name(i): (v,) for i, v in enumerate(firsts)}
    numbers["node"] = (95.0,) * repeats
    lower = {**numbers, "node": (95.0, *(90.0,) * (repeats - 1))}
    assert Slowness(lower, BLAME).ratio("node") >= 0
    assert Slowness({**numbers, "node": (95.0,) * MOST_NUMBERS}, BLAME).open("node") is False
    control = "node" in Slowness(numbers, BLAME).controls
    if not control:
        assert Slowness(lower, BLAME).ratio("node") >= Slowness(numbers, BLAME).ratio("node")
