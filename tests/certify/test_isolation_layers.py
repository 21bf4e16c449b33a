"""What many paths share, and the layer of a fault: trunks, ways out, racks, NVLink, NICs, rails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.isolate import Round, begin, next_round, observe, replay
from muster.certify.isolation.plan import Plan, Role, Verdicts
from muster.certify.truth import Truth, carry_out, compare
from muster.resources.certification import FaultAt, Layer, NodeVerdict, Outcome, Reason
from tests.certify import fleets
from tests.certify.fleets import name

LAYERS = ("pair", "pair-net", "pair-rail", "all-to-all")


def domains(plan: Plan) -> dict[str, str]:
    return {m.name: m.domain for cell in plan.cells for m in cell.targets}


def failed(verdicts: Verdicts) -> dict[str, Layer]:
    return {v.name: v.layer for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED}


def parts(verdicts: Verdicts) -> list[tuple[FaultAt, str, str, int | None]]:
    return [(v.at, v.a, v.b, v.rail) for v in verdicts.links if v.verdict is NodeVerdict.FAILED]


@pytest.mark.parametrize("matchings", [1, 3])
@pytest.mark.parametrize("nodes", [24, 61])
def test_a_trunk_is_named_and_neither_its_links_nor_its_nodes(nodes: int, matchings: int) -> None:
    plan = fleets.plan(nodes, fleets.GROUPS, matchings=matchings)
    truth = Truth(domains=domains(plan), trunks={("domain-0", "domain-1"): 1.0})
    verdicts, _ = carry_out(plan, truth.answer)
    assert parts(verdicts) == [(FaultAt.TRUNK, "domain-0", "domain-1", None)]
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.PASSED}
    assert verdicts.links[0].error_bound is not None
    assert verdicts.links[0].error_bound <= plan.budget.max_false_blame


@pytest.mark.parametrize("matchings", [1, 3])
def test_the_way_out_of_a_domain_is_not_its_trunks_and_its_nodes_are_not_proven_beyond_it(matchings: int) -> None:
    plan = fleets.plan(40, fleets.GROUPS, matchings=matchings)
    truth = Truth(domains=domains(plan), uplinks={"domain-2": 1.0})
    verdicts, _ = carry_out(plan, truth.answer)
    assert parts(verdicts) == [(FaultAt.DOMAIN, "domain-2", "", None)]
    inside = [v for v in verdicts.nodes if domains(plan)[v.name] == "domain-2"]
    assert {(v.verdict, v.reason) for v in inside} == {(NodeVerdict.UNDETERMINED, Reason.LINK)}
    others = {v.verdict for v in verdicts.nodes if domains(plan)[v.name] != "domain-2"}
    assert others == {NodeVerdict.PASSED}


def test_a_rack_is_named_and_its_nodes_are_not_blamed_one_by_one() -> None:
    plan = fleets.plan(40, fleets.GROUPS)
    truth = Truth(domains=domains(plan), racks={"domain-2": 1.0}, nodes={name(3): 1.0})
    verdicts, _ = carry_out(plan, truth.answer)
    assert list(failed(verdicts)) == [name(3)]
    assert parts(verdicts) == [(FaultAt.DOMAIN, "domain-2", "", None)]


def test_a_rack_with_one_good_node_is_no_bad_rack() -> None:
    plan = fleets.plan(40)
    truth = Truth(domains=domains(plan), nodes={name(i): 1.0 for i in range(16, 23)})
    verdicts, _ = carry_out(plan, truth.answer)
    assert compare(truth, verdicts).exact
    assert parts(verdicts) == []


def test_a_link_between_domains_is_told_from_their_trunk_by_pairs_beside_it() -> None:
    plan = fleets.plan(24, fleets.GROUPS, matchings=2)
    truth = Truth(domains=domains(plan), links={(name(3), name(12)): 1.0})
    roles: list[Role] = []
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        roles += [run.role for run in step.runs]
        state = observe(state, truth.answer(step))
    assert Role.SHARED in roles
    assert compare(truth, step).exact


@pytest.mark.parametrize(
    ("fault", "layer"), [("nvlink", Layer.NVLINK), ("network", Layer.NETWORK), ("nodes", Layer.NETWORK)]
)
@pytest.mark.requirement("companion/BMAAS06")
def test_follow_up_runs_tell_the_layer_of_a_node(fault: str, layer: Layer) -> None:
    plan = fleets.plan(24, LAYERS, matchings=2)
    truth = Truth(domains=domains(plan), **{fault: {name(5): 1.0}})
    verdicts, state = carry_out(plan, truth.answer)
    assert failed(verdicts) == {name(5): layer}
    assert any(r.test == "pair-net" for r in state.records) == (fault != "network")


def test_without_variants_in_the_plan_the_layer_stays_unknown() -> None:
    plan = fleets.plan(24, fleets.GROUPS, matchings=2)
    verdicts, _ = carry_out(plan, Truth(domains=domains(plan), nvlink={name(5): 1.0}).answer)
    assert failed(verdicts) == {name(5): Layer.UNKNOWN}


def test_a_healthy_fleet_pays_nothing_for_variants() -> None:
    plan = fleets.plan(24, LAYERS, matchings=2)
    _, state = carry_out(plan, Truth(domains=domains(plan)).answer)
    assert {r.test for r in state.records} == {"pair", "all-to-all"}


def test_one_nic_is_named_with_its_node() -> None:
    plan = fleets.plan(24, LAYERS, matchings=2)
    truth = Truth(domains=domains(plan), rails={(name(5), 3): 1.0})
    verdicts, state = carry_out(plan, truth.answer)
    assert failed(verdicts) == {name(5): Layer.NETWORK}
    assert parts(verdicts) == [(FaultAt.RAIL, name(5), "", 3)]
    runs = {r.id: r for r in state.records}
    evidence = verdicts.links[0].evidence
    assert evidence
    assert {(runs[i].variant, runs[i].outcome) for i in evidence} == {("rail=3", Outcome.FAIL)}


def test_a_rail_that_fails_for_everybody_is_named_and_no_node() -> None:
    plan = fleets.plan(24, LAYERS, matchings=2)
    truth = Truth(domains=domains(plan), rail_switches={2: 1.0})
    verdicts, _ = carry_out(plan, truth.answer)
    assert failed(verdicts) == {}
    assert parts(verdicts) == [(FaultAt.RAIL, "", "", 2)]
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.UNDETERMINED}


@st.composite
def shared_faults(draw: st.DrawFn, plan: Plan) -> Truth:
    """One shared part, up to two bad nodes elsewhere, one of them in one layer only."""
    where = domains(plan)
    named = sorted(set(where.values()))
    a, b = draw(st.permutations(named))[:2]
    rest = [n for n, d in where.items() if d not in (a, b)]
    one, other = draw(st.permutations(rest))[:2]
    kind = draw(st.sampled_from(("trunks", "uplinks", "racks")))
    part = {kind: {(min(a, b), max(a, b)): 1.0} if kind == "trunks" else {a: 1.0}}
    nodes = {one: 1.0} if draw(st.booleans()) else {}
    nvlink = {other: 1.0} if draw(st.booleans()) else {}
    return Truth(domains=where, nodes=nodes, nvlink=nvlink, **part)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_shared_parts_and_bad_nodes_beside_them_blame_nobody_else(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from((32, 40, 45)))
    plan = fleets.plan(size, LAYERS, matchings=2, seed=data.draw(st.integers(0, 99)))
    truth = data.draw(shared_faults(plan))
    verdicts, state = carry_out(plan, truth.answer)
    found = compare(truth, verdicts)
    assert not found.blamed
    assert not found.missed
    # What could not be named is said: a fleet with a broken part never passes as a whole.
    clean = all(v.verdict is NodeVerdict.PASSED for v in verdicts.nodes) and not verdicts.unresolved
    assert not (clean and found.missed_shared)
    runs = {r.id: r for r in state.records}
    for link in verdicts.links:
        if link.verdict is NodeVerdict.FAILED:
            assert link.evidence
            assert all(runs[i].outcome is Outcome.FAIL for i in link.evidence)
            assert link.error_bound is not None
            assert link.error_bound <= plan.budget.max_false_blame


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_replay_continues_identically_with_variants_and_shared_parts(data: st.DataObject) -> None:
    plan = fleets.plan(32, LAYERS, matchings=2, seed=data.draw(st.integers(0, 99)))
    truth = data.draw(shared_faults(plan))
    dies_after = data.draw(st.integers(1, 30))
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        state = observe(state, truth.answer(step))
        if step.number == dies_after:
            assert next_round(replay(plan, reversed(state.records))) == next_round(state)
    assert next_round(replay(plan, state.records)) == step
