"""Properties of isolation over random fleets, faults and orders."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.certify.isolate import begin, next_round, observe, replay
from muster.certify.isolation.plan import Round
from muster.certify.truth import Truth, carry_out, compare
from muster.resources.certification import CertificationBudget, NodeVerdict, Outcome, RunRecord
from tests.certify import fleets

SIZES = st.sampled_from((4, 5, 8, 9, 16, 23))
SHORT = CertificationBudget(max_rounds=30)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_deterministic_faults_are_all_named_and_nobody_else(data: st.DataObject) -> None:
    nodes = data.draw(st.sampled_from((8, 12, 16, 23)))
    truth = data.draw(fleets.deterministic_faults(nodes))
    plan = fleets.plan(
        nodes, ("host", "gpu-burn", "pair", "all-to-all"), seed=data.draw(st.integers(0, 99)), matchings=2
    )
    verdicts, _ = carry_out(plan, truth.answer)
    found = compare(truth, verdicts)
    assert found.named == truth.bad_nodes
    assert found.named_links == truth.bad_links
    assert found.exact
    assert verdicts.unresolved == ()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_several_bad_links_never_cost_an_innocent_node_its_verdict(data: st.DataObject) -> None:
    nodes = data.draw(st.sampled_from((8, 12, 16, 32)))
    index = st.integers(0, nodes - 1)
    pairs = data.draw(st.lists(st.tuples(index, index).filter(lambda p: p[0] != p[1]), min_size=2, max_size=3))
    links = {fleets.pair_of(fleets.name(a), fleets.name(b)): 1.0 for a, b in pairs}
    # A node with three bad links in a fleet this small is a bad node by any measure.
    assume(all(sum(node in link for link in links) < 3 for node in (fleets.name(i) for i in range(nodes))))
    truth = Truth(links=links)
    verdicts, _ = carry_out(fleets.plan(nodes, fleets.GROUPS, matchings=2), truth.answer)
    found = compare(truth, verdicts)
    assert found.innocent == frozenset()
    assert found.innocent_links == frozenset()
    # What could not be named is said: never a clean pass over a bad link.
    assert found.named_links == truth.bad_links or verdicts.unresolved or verdicts.notes or found.undetermined


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_coordinator_that_dies_after_any_round_continues_identically(data: st.DataObject) -> None:
    nodes = data.draw(SIZES)
    truth = data.draw(fleets.any_faults(nodes))
    plan = fleets.plan(
        nodes, fleets.EVERYTHING, partners=2, seed=data.draw(st.integers(0, 99)), matchings=2, budget=SHORT
    )
    dies_after = data.draw(st.integers(0, SHORT.max_rounds))
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        state = observe(state, truth.answer(step))
        if step.number == dies_after:
            again = replay(plan, state.records)
            assert next_round(again) == next_round(state)
            assert again.records == state.records
            state = again
    uninterrupted, _ = carry_out(plan, truth.answer)
    assert step == uninterrupted
    assert next_round(replay(plan, state.records)) == step


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_order_of_records_within_a_round_does_not_matter(data: st.DataObject) -> None:
    nodes = data.draw(SIZES)
    truth = data.draw(fleets.any_faults(nodes))
    plan = fleets.plan(nodes, fleets.GROUPS, seed=data.draw(st.integers(0, 99)), matchings=2, budget=SHORT)
    shuffled = random.Random(data.draw(st.integers(0, 99)))
    one, other = begin(plan), begin(plan)
    while isinstance(step := next_round(one), Round):
        records = truth.answer(step)
        one = observe(one, records)
        shuffled.shuffle(records)
        other = observe(other, records)
        assert next_round(other) == next_round(one)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rounds_are_node_disjoint_bounded_and_each_target_gets_one_verdict(data: st.DataObject) -> None:
    nodes = data.draw(SIZES)
    partners = data.draw(st.integers(0, 3))
    budget = CertificationBudget(
        max_rounds=data.draw(st.integers(1, 30)),
        max_runs=data.draw(st.integers(1, 300)),
        max_wall_minutes=data.draw(st.sampled_from((3.0, 20.0, 500.0))),
    )
    plan = fleets.plan(nodes, fleets.EVERYTHING, partners=partners, budget=budget)
    truth = data.draw(fleets.any_faults(nodes))
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        used = [node for run in step.runs for node in run.nodes]
        assert len(used) == len(set(used))
        assert step.runs
        assert len({run.id for run in step.runs}) == len(step.runs)
        state = observe(state, truth.answer(step))
    cost = step.cost
    assert cost.rounds <= budget.max_rounds
    assert cost.runs <= budget.max_runs
    assert cost.wall_minutes <= budget.max_wall_minutes
    assert [v.name for v in step.nodes] == [fleets.name(i) for i in range(nodes)]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nodes_that_were_not_tested_never_pass_and_wasted_runs_blame_nobody(data: st.DataObject) -> None:
    nodes = data.draw(SIZES)
    kind = data.draw(st.sampled_from((Outcome.INVALID, Outcome.UNKNOWN)))
    plan = fleets.plan(nodes, fleets.EVERYTHING)

    def wasted(step: Round, _before: object) -> list[RunRecord]:
        return [
            RunRecord(id=run.id, round=run.round, test=run.test, nodes=run.nodes, outcome=kind) for run in step.runs
        ]

    verdicts, state = carry_out(plan, wasted)
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.UNTESTED}
    assert state.cost.rounds < 30


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_happens_a_failed_node_has_failed_runs_and_an_error_bound(data: st.DataObject) -> None:
    nodes = data.draw(SIZES)
    truth = data.draw(fleets.any_faults(nodes))
    plan = fleets.plan(nodes, fleets.EVERYTHING, partners=1, matchings=2, weakest=0.5, budget=SHORT)
    verdicts, state = carry_out(plan, truth.answer)
    outcome = {r.id: r.outcome for r in state.records}
    for node in verdicts.nodes:
        if node.verdict is NodeVerdict.FAILED:
            assert len(node.evidence_for) >= 2
            assert all(outcome[i] is Outcome.FAIL for i in node.evidence_for)
            assert node.error_bound is not None
            assert 0 <= node.error_bound <= plan.budget.max_false_blame
        if node.verdict is NodeVerdict.PASSED:
            assert node.evidence_for
            assert all(outcome[i] is Outcome.PASS for i in node.evidence_for)


@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_noise_alone_blames_nobody_and_leaves_nobody_in_doubt(noise: float) -> None:
    for seed in range(25):
        truth = Truth(seed=seed, noise=noise)
        verdicts, _ = carry_out(fleets.plan(32, fleets.EVERYTHING, seed=seed, matchings=2, weakest=0.5), truth.answer)
        assert compare(truth, verdicts).exact, seed


@pytest.mark.full
@pytest.mark.parametrize(("rate", "least"), [(0.5, 0.98), (0.3, 0.88)])
def test_flaky_nodes_are_named_at_the_stated_rates(rate: float, least: float) -> None:
    named = blamed = 0
    trials = 100
    for seed in range(trials):
        truth = Truth(seed=seed, nodes={fleets.name(seed % 72): rate}, noise=0.005)
        verdicts, _ = carry_out(fleets.plan(72, seed=seed, matchings=12, weakest=0.3), truth.answer)
        found = compare(truth, verdicts)
        named += len(found.named)
        blamed += len(found.innocent) + len(found.innocent_links)
    assert named >= least * trials
    assert blamed == 0
