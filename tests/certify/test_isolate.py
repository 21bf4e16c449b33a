"""Isolation case by case: what is named, in how many rounds, and what is left open."""

from __future__ import annotations

import math

import pytest

from muster.certify.isolate import begin, expected_cost, next_round, observe, replay
from muster.certify.isolation.plan import WITHDRAWN, Cell, Role, Round, UntestedNode, Verdicts
from muster.certify.isolation.tallies import pair_of
from muster.certify.truth import Truth, carry_out, compare
from muster.resources.certification import (
    CertificationBudget,
    NodeResult,
    NodeVerdict,
    Outcome,
    Reason,
    RunRecord,
)
from tests.certify import fleets
from tests.certify.fleets import name


def verdict_of(verdicts: Verdicts, node: str) -> NodeResult:
    return next(v for v in verdicts.nodes if v.name == node)


def failed(verdicts: Verdicts) -> list[str]:
    return [v.name for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED]


def test_a_healthy_fleet_passes_in_one_round_of_pairs() -> None:
    verdicts, state = carry_out(fleets.plan(64), Truth().answer)
    assert (verdicts.cost.rounds, verdicts.cost.runs) == (1, 32)
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.PASSED}
    assert state.spent == ""


def test_first_pairs_stay_inside_domains() -> None:
    step = next_round(begin(fleets.plan(64)))
    assert isinstance(step, Round)
    assert all(int(a[-4:]) // 8 == int(b[-4:]) // 8 for a, b in (run.nodes for run in step.runs))


@pytest.mark.parametrize("nodes", [8, 32, 128, 256])
def test_a_quarter_of_always_bad_nodes_in_three_rounds_when_no_two_of_them_met(nodes: int) -> None:
    bad = {name(i): 1.0 for i in range(0, nodes, 4)}
    truth = Truth(nodes=bad)
    verdicts, _ = carry_out(fleets.plan(nodes), truth.answer)
    assert compare(truth, verdicts).exact
    assert verdicts.cost.rounds == 3


def test_two_bad_nodes_that_meet_each_other_first_take_one_round_more() -> None:
    truth = Truth(nodes={name(0): 1.0, name(1): 1.0})
    verdicts, _ = carry_out(fleets.plan(64), truth.answer)
    assert compare(truth, verdicts).exact
    assert verdicts.cost.rounds == 4


def test_half_of_the_nodes_bad_is_still_resolved() -> None:
    truth = Truth(nodes={name(i): 1.0 for i in (0, 2, 5, 7)})
    verdicts, _ = carry_out(fleets.plan(8), truth.answer)
    assert compare(truth, verdicts).exact


def test_all_nodes_bad_is_undetermined_not_failed() -> None:
    truth = Truth(nodes={name(i): 1.0 for i in range(8)})
    verdicts, _ = carry_out(fleets.plan(8), truth.answer)
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.UNDETERMINED}
    assert {v.reason for v in verdicts.nodes} == {Reason.NO_PARTNER}


def test_a_failing_local_test_is_repeated_before_blame_and_keeps_the_node_from_pairs() -> None:
    truth = Truth(tests={(name(3), "gpu-burn"): 1.0})
    verdicts, state = carry_out(fleets.plan(8, ("host", "gpu-burn", "pair")), truth.answer)
    assert failed(verdicts) == [name(3)]
    runs = [r for r in state.records if name(3) in r.nodes]
    assert [r.test for r in runs][:2] == ["host", "gpu-burn"]
    assert sum(r.test == "gpu-burn" for r in runs) >= 2
    assert not any(r.test == "pair" for r in runs)
    assert "gpu-burn" in verdict_of(verdicts, name(3)).message


@pytest.mark.parametrize("pair", [(0, 1), (2, 3)])
def test_a_bad_link_inside_a_first_pair_is_named_as_a_link(pair: tuple[int, int]) -> None:
    link = (name(pair[0]), name(pair[1]))
    truth = Truth(links={link: 1.0})
    verdicts, _ = carry_out(fleets.plan(16), truth.answer)
    assert [(v.a, v.b, v.verdict) for v in verdicts.links] == [(*link, NodeVerdict.FAILED)]
    assert failed(verdicts) == []
    assert compare(truth, verdicts).exact


@pytest.mark.parametrize("nodes", [8, 32, 72])
def test_every_kind_of_single_link_is_singled_out_within_two_log_n_rounds(nodes: int) -> None:
    for a, b in ((0, nodes - 1), (1, 2), (nodes // 2 - 1, nodes // 2), (3, 5), (0, nodes // 2)):
        truth = Truth(links={pair_of(name(a), name(b)): 1.0})
        roles: dict[Role, list[int]] = {}
        state = begin(fleets.plan(nodes, fleets.GROUPS))
        while isinstance(step := next_round(state), Round):
            for run in step.runs:
                roles.setdefault(run.role, []).append(run.round)
            state = observe(state, truth.answer(step))
        assert compare(truth, step).exact, (a, b)
        if Role.CANDIDATE in roles:
            search = roles[Role.CANDIDATE][0] - roles[Role.CONFIRM][0] + 1
            assert search <= 2 * math.ceil(math.log2(nodes)), (a, b)


def test_every_single_link_of_a_rack_is_named() -> None:
    for a in range(0, 18, 3):
        for b in range(a + 1, 18):
            truth = Truth(links={(name(a), name(b)): 1.0})
            verdicts, _ = carry_out(fleets.plan(18, fleets.GROUPS), truth.answer)
            assert compare(truth, verdicts).exact, (a, b)


@pytest.mark.parametrize("least", [3, 4, 8, 16, 32])
def test_a_node_that_fails_only_in_large_groups_is_named(least: int) -> None:
    truth = Truth(scale={name(21): least})
    verdicts, _ = carry_out(fleets.plan(64, fleets.GROUPS), truth.answer)
    assert compare(truth, verdicts).exact
    assert "all-to-all" in verdict_of(verdicts, name(21)).message


def test_a_fault_that_shows_only_at_full_size_is_undetermined_and_said() -> None:
    truth = Truth(scale={name(5): 32})
    verdicts, _ = carry_out(fleets.plan(32, fleets.GROUPS), truth.answer)
    assert failed(verdicts) == []
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.UNDETERMINED}
    assert len(verdicts.unresolved) == 1


def test_a_group_fault_beside_a_bad_node_is_not_dropped() -> None:
    truth = Truth(nodes={name(9): 1.0}, links={(name(2), name(30)): 1.0}, tests={(name(17), "host"): 1.0})
    verdicts, _ = carry_out(fleets.plan(32, fleets.EVERYTHING, matchings=2), truth.answer)
    assert compare(truth, verdicts).exact


def test_a_lone_node_is_undetermined_for_want_of_a_partner() -> None:
    verdicts, _ = carry_out(fleets.plan(1, ("host", "pair")), Truth().answer)
    result = verdict_of(verdicts, name(0))
    assert (result.verdict, result.reason) == (NodeVerdict.UNDETERMINED, Reason.NO_PARTNER)


def test_a_lone_node_with_a_profile_of_node_tests_passes() -> None:
    verdicts, _ = carry_out(fleets.plan(1, ("host",)), Truth().answer)
    assert verdict_of(verdicts, name(0)).verdict is NodeVerdict.PASSED


def test_a_lone_bad_node_with_one_partner_cannot_be_told_from_it() -> None:
    verdicts, _ = carry_out(fleets.plan(1, partners=1), Truth(nodes={name(0): 1.0}).answer)
    assert verdict_of(verdicts, name(0)).verdict is NodeVerdict.UNDETERMINED


def test_a_lone_bad_node_with_three_partners_is_named_and_partners_get_no_verdict() -> None:
    verdicts, _ = carry_out(fleets.plan(1, partners=3), Truth(nodes={name(0): 1.0}).answer)
    assert failed(verdicts) == [name(0)]
    assert [v.name for v in verdicts.nodes] == [name(0)]


def test_a_bad_partner_poisons_no_verdict_and_is_reported() -> None:
    truth = Truth(nodes={name(4): 1.0})
    verdicts, _ = carry_out(fleets.plan(3, partners=3), truth.answer)
    assert {v.verdict for v in verdicts.nodes} == {NodeVerdict.PASSED}
    verdicts, _ = carry_out(fleets.plan(1, partners=3), Truth(nodes={name(1): 1.0}).answer)
    assert verdict_of(verdicts, name(0)).verdict is NodeVerdict.PASSED
    assert any(name(1) in note for note in verdicts.notes)


@pytest.mark.parametrize("bad", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_a_bad_partner_among_two_does_not_leave_the_lone_node_undecided(bad: int, seed: int) -> None:
    """With the weak rates of the catalogue one pass clears nobody: the two good ones are paired until it does."""
    plan = fleets.plan(1, fleets.EVERYTHING, partners=2, seed=seed, weakest=0.5, matchings=3)
    verdicts, state = carry_out(plan, Truth(nodes={name(bad): 1.0}).answer)
    assert verdict_of(verdicts, name(0)).verdict is NodeVerdict.PASSED
    assert any(f"{name(bad)} failed itself" in note for note in verdicts.notes)
    assert len(state.records) <= 20


@pytest.mark.parametrize("seed", range(6))
def test_a_lone_bad_node_with_a_bad_partner_among_two_never_passes(seed: int) -> None:
    plan = fleets.plan(1, fleets.EVERYTHING, partners=2, seed=seed, weakest=0.5, matchings=3)
    verdicts, _ = carry_out(plan, Truth(nodes={name(0): 1.0, name(1): 1.0}).answer)
    assert verdict_of(verdicts, name(0)).verdict is not NodeVerdict.PASSED


def test_cells_are_isolated_on_their_own_in_the_same_rounds() -> None:
    plan = fleets.plan(8)
    cells = (
        Cell(product="A", gpus=8, targets=fleets.members(range(4))),
        Cell(product="B", gpus=8, targets=fleets.members(range(4, 8))),
    )
    plan = type(plan)(tests=plan.tests, budget=plan.budget, cells=cells)
    truth = Truth(nodes={name(5): 1.0})
    seen: list[tuple[str, ...]] = []
    verdicts, state = carry_out(plan, truth.answer)
    seen = [r.nodes for r in state.records]
    assert failed(verdicts) == [name(5)]
    assert all((a < name(4)) == (b < name(4)) for a, b in seen)


def test_untested_nodes_of_the_plan_are_passed_through() -> None:
    plan = fleets.plan(4)
    untested = (UntestedNode(name="gone", reason=Reason.SCHEDULING, message="There is no node with this name."),)
    plan = type(plan)(tests=plan.tests, budget=plan.budget, cells=plan.cells, untested=untested)
    verdicts, _ = carry_out(plan, Truth().answer)
    assert verdict_of(verdicts, "gone").verdict is NodeVerdict.UNTESTED


@pytest.mark.parametrize(
    ("budget", "word"),
    [
        (CertificationBudget(max_rounds=2), "rounds"),
        (CertificationBudget(max_runs=33), "runs"),
        (CertificationBudget(max_wall_minutes=4.0), "wall minutes"),
        (CertificationBudget(max_node_minutes=101.0), "node-minutes"),
    ],
)
def test_a_spent_budget_ends_undetermined_and_never_with_blame(budget: CertificationBudget, word: str) -> None:
    truth = Truth(nodes={name(7): 1.0})
    verdicts, state = carry_out(fleets.plan(64, budget=budget), truth.answer)
    assert failed(verdicts) == []
    assert verdict_of(verdicts, name(7)).verdict is NodeVerdict.UNDETERMINED
    assert verdict_of(verdicts, name(7)).reason is Reason.BUDGET
    assert word in state.spent
    assert any(word in note for note in verdicts.notes)


def test_a_node_that_wastes_every_run_is_given_up_and_its_mates_are_not() -> None:
    def answer(step: Round, _before: object) -> list[RunRecord]:
        return [
            RunRecord(
                id=run.id,
                round=run.round,
                test=run.test,
                nodes=run.nodes,
                outcome=Outcome.INVALID if name(2) in run.nodes else Outcome.PASS,
                reason=Reason.SCHEDULING if name(2) in run.nodes else Reason.NONE,
                message="0/1 nodes are available" if name(2) in run.nodes else "",
            )
            for run in step.runs
        ]

    verdicts, _ = carry_out(fleets.plan(8), answer)
    lost = verdict_of(verdicts, name(2))
    assert (lost.verdict, lost.reason) == (NodeVerdict.UNTESTED, Reason.SCHEDULING)
    assert "0/1 nodes are available" in lost.message
    others = [v.verdict for v in verdicts.nodes if v.name != name(2)]
    assert others == [NodeVerdict.PASSED] * 7


@pytest.mark.parametrize("link", [None, (2, 29), (3, 4)])
def test_a_group_whose_number_compares_with_nothing_is_covered_by_halves(link: tuple[int, int] | None) -> None:
    """No floor for the full size: its runs are UNKNOWN, those of halves can be judged beside each other."""
    truth = Truth(links={(name(link[0]), name(link[1])): 1.0} if link else {})

    def answer(step: Round, _before: object) -> list[RunRecord]:
        records = []
        for record in truth.answer(step):
            unknown = RunRecord(
                id=record.id,
                round=record.round,
                test=record.test,
                nodes=record.nodes,
                outcome=Outcome.UNKNOWN,
                value=70.0,
            )
            records.append(unknown if len(record.nodes) > 16 else record)
        return records

    verdicts, _ = carry_out(fleets.plan(32, fleets.GROUPS), answer)
    assert compare(truth, verdicts).exact
    assert verdicts.unresolved == ()


def withdrawal(node: str, number: int) -> RunRecord:
    return RunRecord(
        id=f"w{number:02d}-{node}",
        round=number,
        test=WITHDRAWN,
        nodes=(node,),
        outcome=Outcome.UNKNOWN,
        reason=Reason.HARNESS,
        message="The node rebooted.",
    )


def test_a_withdrawn_node_takes_no_further_part_and_survives_replay() -> None:
    plan = fleets.plan(8, ("host", "pair"))
    state = begin(plan)
    step = next_round(state)
    assert isinstance(step, Round)
    state = observe(state, [*Truth().answer(step), withdrawal(name(1), step.number)])
    while isinstance(step := next_round(state), Round):
        assert all(name(1) not in run.nodes for run in step.runs)
        state = observe(state, Truth().answer(step))
    result = verdict_of(step, name(1))
    assert (result.verdict, result.message) == (NodeVerdict.UNDETERMINED, "The node rebooted.")
    assert next_round(replay(plan, state.records)) == step


def test_records_of_another_course_are_refused() -> None:
    plan = fleets.plan(4)
    step = next_round(begin(plan))
    assert isinstance(step, Round)
    stranger = RunRecord(id="r01-000", round=1, test="pair", nodes=("x", "y"), outcome=Outcome.PASS)
    with pytest.raises(ValueError, match="belong to no run"):
        observe(begin(plan), [stranger])
    late = RunRecord(id="r07-000", round=7, test="pair", nodes=("x", "y"), outcome=Outcome.PASS)
    with pytest.raises(ValueError, match="round 7"):
        replay(plan, [*Truth().answer(step), late])


def test_an_incomplete_last_round_is_carried_out_again() -> None:
    plan = fleets.plan(8)
    step = next_round(begin(plan))
    assert isinstance(step, Round)
    assert next_round(replay(plan, Truth().answer(step)[:-1])) == step


def test_expected_cost_counts_what_a_healthy_fleet_takes() -> None:
    cost = expected_cost(fleets.plan(16, fleets.EVERYTHING, matchings=2))
    # Three node tests each, two matchings of eight pairs, two group runs.
    assert (cost.rounds, cost.runs) == (7, 3 * 16 + 2 * 8 + 2)
    node_minutes = (16 * (60 + 150 + 90) + 2 * 16 * 90 + 2 * 16 * 150) / 60
    assert cost.node_minutes == pytest.approx(node_minutes, abs=0.01)
    _, state = carry_out(fleets.plan(16, fleets.EVERYTHING, matchings=2), Truth().answer)
    assert state.cost == cost


def test_metrics_keep_the_best_number_of_runs_that_passed() -> None:
    def answer(step: Round, _before: object) -> list[RunRecord]:
        return [
            RunRecord(
                id=run.id,
                round=run.round,
                test=run.test,
                nodes=run.nodes,
                outcome=Outcome.PASS,
                value=100.0 + run.round,
                unit="GB/s",
            )
            for run in step.runs
        ]

    verdicts, _ = carry_out(fleets.plan(8, matchings=3), answer)
    assert verdicts.nodes[0].metrics == {"pair.busbw_gb_per_s": 103.0}
