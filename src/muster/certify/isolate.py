"""Fault isolation: which nodes and links are at fault, from the outcomes of runs. Pure, deterministic, replayable.

    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        state = observe(state, records_of_its_runs)
    verdicts = step

Nothing but the plan and the records determines the course: `replay(plan, records)` gives the state of a coordinator
that died. Records of one round may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.certify.isolation.cell import CellState
from muster.certify.isolation.plan import (
    ROUND_OVERHEAD_S,
    WITHDRAWN,
    Plan,
    PlannedRun,
    Request,
    Round,
    Verdicts,
)
from muster.certify.isolation.verdicts import verdicts
from muster.resources.certification import Cost, Outcome, RunRecord

__all__ = ["IsolationState", "begin", "expected_cost", "next_round", "observe", "replay"]


NOTHING_SPENT = Cost()


@dataclass(frozen=True)
class IsolationState:
    """Where a certification stands. A value: rebuild it with `replay`, never store it."""

    plan: Plan
    cells: tuple[CellState, ...]
    records: tuple[RunRecord, ...] = ()
    cost: Cost = NOTHING_SPENT
    spent: str = ""
    """Which budget ended it, empty while none did."""
    pending: Round | None = None
    withdrawn: Mapping[str, RunRecord] | None = None


def begin(plan: Plan) -> IsolationState:
    """The state before the first round."""
    cells = tuple(CellState.begin(plan, cell, f"{plan.seed}/{i}/0") for i, cell in enumerate(plan.cells))
    return _planned(IsolationState(plan=plan, cells=cells))


def next_round(state: IsolationState) -> Round | Verdicts:
    """The round to carry out next, or the verdicts when there is none. Asking again gives the same answer."""
    if state.pending is not None:
        return state.pending
    return verdicts(state.plan, state.cells, state.records, state.withdrawn or {}, state.cost, state.spent)


def observe(state: IsolationState, results: Sequence[RunRecord]) -> IsolationState:
    """The state after the pending round. A run of the round without a record counts as UNKNOWN.

    Records with the test `withdrawn` take their nodes out of the certification. Raises ValueError for a record that
    belongs to no run of the round, and when no round is pending.
    """
    if state.pending is None:
        raise ValueError("no round is pending, so nothing can be observed")
    runs = {run.id: run for run in state.pending.runs}
    gone = sorted((r for r in results if r.test == WITHDRAWN), key=lambda r: r.id)
    done = {r.id: r for r in sorted(results, key=lambda r: r.id) if r.test != WITHDRAWN}
    strangers = [i for i, r in done.items() if i not in runs or (r.test, r.nodes) != (runs[i].test, runs[i].nodes)]
    if strangers:
        raise ValueError(f"records {', '.join(strangers)} belong to no run of round {state.pending.number}")
    for run in state.pending.runs:
        if run.id not in done:
            done[run.id] = RunRecord(
                id=run.id,
                round=run.round,
                test=run.test,
                nodes=run.nodes,
                outcome=Outcome.UNKNOWN,
                message="no record",
                variant=run.variant,
            )
    cells = tuple(
        cell.after([run for run in state.pending.runs if run.cell == i], done) for i, cell in enumerate(state.cells)
    )
    withdrawn = dict(state.withdrawn or {})
    for record in gone:
        for node in record.nodes:
            withdrawn.setdefault(node, record)
            cells = tuple(cell.without(node, record.message) for cell in cells)
    return _planned(
        replace(
            state,
            cells=cells,
            records=(*state.records, *(done[run.id] for run in state.pending.runs), *gone),
            cost=_spend(state.cost, state.plan, state.pending),
            withdrawn=withdrawn,
            pending=None,
        )
    )


def replay(plan: Plan, records: Iterable[RunRecord]) -> IsolationState:
    """The state after all complete rounds among `records`.

    A last round that is incomplete is left out: it is carried out again. Raises ValueError when the records do not
    belong to this plan.
    """
    by_round: dict[int, list[RunRecord]] = {}
    for record in records:
        by_round.setdefault(record.round, []).append(record)
    state = begin(plan)
    while state.pending is not None:
        found = by_round.pop(state.pending.number, [])
        have = {r.id for r in found}
        if any(run.id not in have for run in state.pending.runs):
            break
        state = observe(state, found)
    if by_round:
        raise ValueError(f"records of round {min(by_round)} do not follow from the plan and the rounds before")
    return state


def expected_cost(plan: Plan) -> Cost:
    """Cost when nothing fails: what `plan` prints before anything runs. The worst case is the budget."""
    state = begin(plan)
    while state.pending is not None:
        passed = [
            RunRecord(id=run.id, round=run.round, test=run.test, nodes=run.nodes, outcome=Outcome.PASS)
            for run in state.pending.runs
        ]
        state = observe(state, passed)
    return state.cost


def _planned(state: IsolationState) -> IsolationState:
    """The state with its next round worked out, or with the budget that forbids it."""
    number = state.cost.rounds + 1
    seeds = [f"{state.plan.seed}/{i}/{number}" for i in range(len(state.cells))]
    cells = tuple(cell.settled(seed) for cell, seed in zip(state.cells, seeds, strict=True))
    wanted: list[tuple[int, Request]] = [(i, request) for i, cell in enumerate(cells) for request in cell.requests()]
    state = replace(state, cells=cells)
    if not wanted:
        return state
    runs = tuple(
        PlannedRun(f"r{number:02d}-{k:03d}", number, request.test, request.nodes, request.role, i, request.variant)
        for k, (i, request) in enumerate(wanted)
    )
    longest_s = max(state.plan.test(run.test).duration_s for run in runs)
    pending = Round(number, runs, (longest_s + ROUND_OVERHEAD_S) / 60.0)
    spent = _exceeded(_spend(state.cost, state.plan, pending), state.plan)
    return replace(state, spent=spent) if spent else replace(state, pending=pending)


def _spend(cost: Cost, plan: Plan, done: Round) -> Cost:
    node_s = sum(len(run.nodes) * (plan.test(run.test).duration_s + ROUND_OVERHEAD_S) for run in done.runs)
    return Cost(
        rounds=cost.rounds + 1,
        runs=cost.runs + len(done.runs),
        node_minutes=round(cost.node_minutes + node_s / 60.0, 3),
        wall_minutes=round(cost.wall_minutes + done.minutes, 3),
    )


def _exceeded(cost: Cost, plan: Plan) -> str:
    budget = plan.budget
    for what, needed, allowed in (
        ("rounds", cost.rounds, budget.max_rounds),
        ("runs", cost.runs, budget.max_runs),
        ("wall minutes", cost.wall_minutes, budget.max_wall_minutes),
        ("node-minutes", cost.node_minutes, budget.max_node_minutes),
    ):
        if needed > allowed:
            return f"the next round needs {needed:g} {what} in all and the budget allows {allowed:g}"
    return ""
