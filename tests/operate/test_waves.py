"""Waves: inside the budget, idle first, spread, a trial first, halted when too many fail."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.budget import Member, Usage, allowance
from muster.operate.waves import HALT_FAILURES, Candidate, Outcome, halt_reason, outcome_of, plan_wave
from muster.resources.certification import NodeVerdict
from muster.resources.fault_policy import Budget
from muster.resources.node_health import State
from tests.operate.worlds import START, fault, readings, serving

CHANGE = "driver.version=580.95"


def member(index: int, domains: int = 4) -> Member:
    return Member(f"n{index:03}", f"d{index % domains}")


def candidate(index: int, busy: bool = False, budget: Budget | None = None, **fields: bool) -> Candidate:
    return Candidate(member(index), CHANGE, busy, START, budget or Budget(), **fields)


def outcomes(*passed: bool | None, change: str = CHANGE) -> list[Outcome]:
    return [Outcome(f"o{i:03}", change, START + timedelta(minutes=i), p) for i, p in enumerate(passed)]


@given(
    busy=st.lists(st.booleans(), min_size=1, max_size=60),
    out=st.integers(0, 10),
    amount=st.sampled_from(["0", "1", "3", "10%", "50%"]),
    domain_amount=st.sampled_from(["1", "25%", "100%"]),
)
@pytest.mark.requirement("v2.4/OCR03")
def test_a_wave_never_exceeds_the_budget_and_names_everybody_once(
    busy: list[bool], out: int, amount: str, domain_amount: str
) -> None:
    budget = Budget(max_disrupted=amount, max_disrupted_per_domain=domain_amount)
    extra = [Member(f"out{i}", f"d{i % 4}") for i in range(out)]
    usage = Usage(members=(*[member(i) for i in range(len(busy))], *extra))
    for gone in extra:
        usage = usage.taking(gone, START - timedelta(days=2))
    plan = plan_wave([candidate(i, b, budget) for i, b in enumerate(busy)], [], usage, START)
    assert len(plan.turn) <= max(0, allowance(amount, len(usage.members)) - out)
    for domain in ("d0", "d1", "d2", "d3"):
        size = sum(1 for m in usage.members if m.domain == domain)
        here = usage.out_in(domain) + sum(1 for n in plan.turn if f"d{int(n[1:]) % 4}" == domain)
        assert here <= max(allowance(domain_amount, size), usage.out_in(domain))
    assert sorted((*plan.turn, *plan.waits)) == sorted(member(i).name for i in range(len(busy)))


def test_idle_nodes_come_first_and_domains_take_turns() -> None:
    usage = Usage(members=tuple(member(i) for i in range(12)))
    nodes = [candidate(i, busy=i < 8, budget=Budget(max_disrupted="6")) for i in range(12)]
    plan = plan_wave(nodes, [], usage, START)
    assert plan.turn[:4] == ("n008", "n009", "n010", "n011")
    assert {int(n[1:]) % 4 for n in plan.turn[:4]} == {0, 1, 2, 3}


def test_the_order_of_the_candidates_does_not_matter() -> None:
    usage = Usage(members=tuple(member(i) for i in range(12)))
    nodes = [candidate(i, busy=i % 3 == 0) for i in range(12)]
    assert plan_wave(nodes, [], usage, START) == plan_wave(nodes[::-1], [], usage, START)


@pytest.mark.requirement("v2.4/OFM06")
def test_nobody_follows_before_the_first_passed() -> None:
    usage = Usage(members=tuple(member(i) for i in range(40)))
    nodes = [candidate(i) for i in range(40)]
    assert plan_wave(nodes, outcomes(None, None), usage, START).turn == ()
    assert plan_wave(nodes, outcomes(None, True), usage, START).turn != ()
    assert plan_wave(nodes, outcomes(None, change="other"), usage, START).turn != ()


@pytest.mark.requirement("v2.4/OFM06")
def test_too_many_failures_halt_the_change_and_name_it() -> None:
    usage = Usage(members=tuple(member(i) for i in range(40)))
    plan = plan_wave([candidate(0)], outcomes(True, False, False, False), usage, START)
    assert plan.turn == ()
    assert CHANGE in plan.halted[CHANGE]
    assert "3 of the last 4" in plan.waits["n000"]


@given(st.lists(st.sampled_from([True, False]), max_size=40))
def test_a_roll_out_is_halted_exactly_when_enough_of_the_latest_failed(passed: list[bool]) -> None:
    latest = passed[-10:]
    failed = latest.count(False)
    expected = failed >= HALT_FAILURES and failed > 0.2 * len(latest)
    assert bool(halt_reason(CHANGE, outcomes(*passed))) is expected


def test_old_certificates_wait_for_idle_nodes() -> None:
    usage = Usage(members=tuple(member(i) for i in range(4)))
    nodes = [candidate(0, busy=True, idle_only=True), candidate(1, idle_only=True)]
    plan = plan_wave(nodes, [], usage, START)
    assert plan.turn == ("n001",)
    assert "idle" in plan.waits["n000"]


def test_the_outcome_of_a_node_follows_its_lifecycle() -> None:
    world = serving()
    assert outcome_of("n1", world.life) is None
    world.observe(fp=readings(driver="580.95"))
    world.wave = type(world.wave)(turn=("n1",))
    world.pass_time(60)
    world.settle()
    assert outcome_of("n1", world.life).passed is None
    world.certify(NodeVerdict.FAILED)
    assert outcome_of("n1", world.life).passed is False
    from muster.resources.repair import RepairPhase

    world.repair(RepairPhase.DONE)
    world.observe()
    world.settle()
    assert outcome_of("n1", world.life).passed is False
    world.certify()
    assert world.life.state is State.IN_SERVICE
    assert outcome_of("n1", world.life).passed is True
    assert outcome_of("n1", world.life).change == CHANGE


@pytest.mark.requirement("v2.4/OCR04")
def test_a_later_fault_is_no_outcome_of_the_change() -> None:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.wave = type(world.wave)(turn=("n1",))
    world.pass_time(60)
    world.settle()
    world.certify()
    world.pass_time(600)
    world.observe(fault(seen=world.now))
    world.settle()
    assert outcome_of("n1", world.life) is None
