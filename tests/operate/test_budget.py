"""The disruption budget: never exceeded, never in the way of a return."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.operate.budget import Disruption, Grant, Member, Usage, Wait, allowance, may_disrupt
from muster.resources.fault_policy import Budget

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
AMOUNTS = st.one_of(st.integers(0, 30).map(str), st.integers(0, 100).map(lambda p: f"{p}%"))
BUDGETS = st.builds(
    Budget,
    max_disrupted=AMOUNTS,
    max_disrupted_per_domain=AMOUNTS,
    max_new_per_window=st.integers(0, 30),
    window_s=st.integers(1, 7200),
)


def fleet(size: int, domains: int) -> tuple[Member, ...]:
    return tuple(Member(f"n{i:02}", f"d{i % domains}") for i in range(size))


@pytest.mark.parametrize(
    ("amount", "total", "allowed"),
    [("6", 64, 6), ("10%", 64, 7), ("10%", 3, 1), ("1%", 0, 1), ("0", 9, 0), ("0%", 9, 0), ("100%", 8, 8)],
)
def test_percentages_round_up_with_at_least_one(amount: str, total: int, allowed: int) -> None:
    assert allowance(amount, total) == allowed


@pytest.mark.parametrize("amount", ["", "%", "-1", "1.5%", "10 %", "ten", "101%", "٣", "9" * 5000])
def test_an_amount_that_cannot_be_read_is_named(amount: str) -> None:
    with pytest.raises(BadInputError, match="Budget"):
        allowance(amount, 10)


@given(BUDGETS, st.integers(1, 24), st.integers(1, 6), st.randoms(use_true_random=False))
def test_never_exceeded_in_whatever_order_nodes_ask_and_return(
    budget: Budget, size: int, domains: int, rng: random.Random
) -> None:
    members = fleet(size, domains)
    usage, now = Usage(members), NOW
    starts: list[datetime] = []
    for _ in range(60):
        now += timedelta(seconds=rng.randrange(0, 900))
        node = rng.choice(members)
        if rng.random() < 0.3:
            usage = usage.returning(node.name, now)
        elif node.name not in usage.out_now() and isinstance(may_disrupt(node, usage, budget, now), Grant):
            usage = usage.taking(node, now)
            starts.append(now)
        out = [m for m in members if m.name in usage.out_now()]
        assert len(out) <= allowance(budget.max_disrupted, size)
        for domain in {m.domain for m in members}:
            of_domain = [m for m in members if m.domain == domain]
            here = [m for m in out if m.domain == domain]
            assert len(here) <= allowance(budget.max_disrupted_per_domain, len(of_domain))
        window_start = now - timedelta(seconds=budget.window_s)
        assert sum(1 for s in starts if s > window_start) <= budget.max_new_per_window


@given(BUDGETS, st.integers(2, 16), st.data())
def test_fewer_disruptions_never_turn_a_grant_into_a_wait(budget: Budget, size: int, data: st.DataObject) -> None:
    members = fleet(size, 3)
    out = data.draw(st.lists(st.sampled_from(members[1:]), unique=True))
    usage = Usage(members, tuple(Disruption(m, NOW - timedelta(seconds=30)) for m in out))
    fewer = replace(usage, disruptions=tuple(d for d in usage.disruptions if data.draw(st.booleans())))
    if isinstance(may_disrupt(members[0], usage, budget, NOW), Grant):
        assert isinstance(may_disrupt(members[0], fewer, budget, NOW), Grant)


@given(BUDGETS, st.integers(1, 16))
def test_a_node_that_is_out_may_stay_out(budget: Budget, size: int) -> None:
    members = fleet(size, 2)
    usage = Usage(members, tuple(Disruption(m, NOW) for m in members))
    assert all(isinstance(may_disrupt(m, usage, budget, NOW), Grant) for m in members)


def test_it_closes_and_reopens_by_itself() -> None:
    members = fleet(10, 5)
    budget = Budget(max_disrupted="1")
    usage = Usage(members).taking(members[0], NOW)
    closed = may_disrupt(members[1], usage, budget, NOW)
    assert isinstance(closed, Wait)
    assert closed.reason == "The budget of 1 (1 node) is spent: n00 is out of service."
    assert isinstance(may_disrupt(members[1], usage.returning("n00", NOW), budget, NOW), Grant)


def test_the_window_says_when_it_reopens() -> None:
    members = fleet(10, 10)
    budget = Budget(max_disrupted="100%", max_disrupted_per_domain="100%", max_new_per_window=2, window_s=600)
    usage = Usage(members)
    for second in (0, 60):
        node = members[second // 60]
        usage = usage.taking(node, NOW + timedelta(seconds=second))
        usage = usage.returning(node.name, NOW + timedelta(seconds=second + 1))
    asked_at = NOW + timedelta(seconds=61)
    closed = may_disrupt(members[5], usage, budget, asked_at)
    assert isinstance(closed, Wait)
    assert closed.retry_at == NOW + timedelta(seconds=600)
    assert isinstance(may_disrupt(members[5], usage, budget, closed.retry_at), Grant)


def test_a_domain_has_a_budget_of_its_own() -> None:
    members = fleet(8, 2)
    usage = Usage(members).taking(members[0], NOW)
    budget = Budget(max_disrupted="8", max_disrupted_per_domain="1")
    closed = may_disrupt(members[2], usage, budget, NOW)
    assert isinstance(closed, Wait)
    assert "domain d0" in closed.reason
    assert isinstance(may_disrupt(members[1], usage, budget, NOW), Grant)


def test_approval_is_asked_for_and_enough() -> None:
    members = fleet(8, 2)
    budget = Budget(require_approval=True)
    asked = may_disrupt(members[0], Usage(members), budget, NOW)
    assert isinstance(asked, Wait)
    assert "muster node n00 approve" in asked.reason
    assert isinstance(may_disrupt(members[0], Usage(members), budget, NOW, approved=True), Grant)


def test_a_group_has_its_own_count() -> None:
    members = fleet(8, 2)
    usage = Usage(members).taking(members[0], NOW)
    group = usage.within([m.name for m in members[4:]])
    assert len(group.members) == 4
    assert group.out_now() == ()
