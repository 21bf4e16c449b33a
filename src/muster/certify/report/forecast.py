"""What a plan would run and cost, before anything runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.certify.isolate import begin, expected_cost, next_round, observe
from muster.certify.isolation.plan import ROUND_OVERHEAD_S, Plan, Verdicts
from muster.certify.report.model import Section
from muster.plain_text import aligned, counted, plain
from muster.resources.certification import NodeVerdict, Outcome, RunRecord

UNTESTED_SHOWN = 20


class CellForecast(Section, frozen=True, kw_only=True):
    """Nodes of one architecture, certified apart from others."""

    product: str
    platform: str
    gpus: int
    nodes: int
    partners: int
    domains: int


class TestForecast(Section, frozen=True, kw_only=True):
    """One test when nothing fails."""

    __test__ = False

    test: str
    scope: str
    runs: int
    nodes_at_most: int
    """Nodes of its largest run."""
    only_after_a_failure: bool = False
    minutes_each: float
    node_hours: float


class UntestedForecast(Section, frozen=True, kw_only=True):
    name: str
    reason: str
    message: str


class Forecast(Section, frozen=True, kw_only=True):
    """What would run. `expected` when nothing fails; `worst` is where the budget ends it."""

    cells: tuple[CellForecast, ...]
    tests: tuple[TestForecast, ...]
    left_out: dict[str, str]
    """Test -> why it is not run."""
    untested: tuple[UntestedForecast, ...]
    expected_rounds: int
    expected_runs: int
    expected_minutes: float
    expected_node_hours: float
    worst_rounds: int
    worst_runs: int
    worst_minutes: float
    worst_node_hours: float
    enough: bool
    """Whether the budget allows what is expected."""
    open: tuple[UntestedForecast, ...] = ()
    """Nodes that take part and would not pass although nothing fails, because too little can be run with them."""


def forecast(plan: Plan, left_out: Sequence[tuple[str, str]] = ()) -> Forecast:
    """Play the plan with runs that all pass."""
    runs: Counter[str] = Counter()
    node_s: Counter[str] = Counter()
    widest: dict[str, int] = {}
    state = begin(plan)
    while state.pending is not None:
        records = []
        for run in state.pending.runs:
            runs[run.test] += 1
            node_s[run.test] += round(len(run.nodes) * (plan.test(run.test).duration_s + ROUND_OVERHEAD_S))
            widest[run.test] = max(widest.get(run.test, 0), len(run.nodes))
            records.append(
                RunRecord(id=run.id, round=run.round, test=run.test, nodes=run.nodes, outcome=Outcome.PASS)
            )
        state = observe(state, records)
    cost, limit = expected_cost(plan), plan.budget
    end = next_round(state)
    never = {u.name for u in plan.untested}
    undecided = [
        n
        for n in (end.nodes if isinstance(end, Verdicts) else ())
        if n.verdict is not NodeVerdict.PASSED and n.name not in never
    ]
    return Forecast(
        cells=tuple(
            CellForecast(
                product=cell.product,
                platform=cell.platform,
                gpus=cell.gpus,
                nodes=len(cell.targets),
                partners=len(cell.partners),
                domains=len({m.domain for m in cell.targets}),
            )
            for cell in plan.cells
        ),
        tests=tuple(
            TestForecast(
                test=test.name,
                scope=test.scope.value,
                runs=runs[test.name],
                nodes_at_most=widest.get(test.name, 0),
                only_after_a_failure=bool(test.variant_of),
                minutes_each=round((test.duration_s + ROUND_OVERHEAD_S) / 60, 2),
                node_hours=round(node_s[test.name] / 3600, 2),
            )
            for test in plan.tests
        ),
        left_out=dict(left_out),
        untested=tuple(
            UntestedForecast(name=u.name, reason=u.reason.value, message=u.message) for u in plan.untested
        ),
        expected_rounds=cost.rounds,
        expected_runs=cost.runs,
        expected_minutes=cost.wall_minutes,
        expected_node_hours=round(cost.node_minutes / 60, 2),
        worst_rounds=limit.max_rounds,
        worst_runs=limit.max_runs,
        worst_minutes=limit.max_wall_minutes,
        worst_node_hours=round(min(limit.max_node_minutes, _at_most(plan)) / 60, 2),
        enough=not state.spent,
        open=tuple(UntestedForecast(name=n.name, reason=n.reason.value, message=n.message) for n in undecided),
    )


def _at_most(plan: Plan) -> float:
    """Node-minutes when every node is busy in every round and minute that the budget allows."""
    nodes = sum(len(cell.targets) + len(cell.partners) for cell in plan.cells)
    return nodes * plan.budget.max_wall_minutes


def forecast_text(shown: Forecast) -> str:
    """For a terminal."""
    lines = []
    for cell in shown.cells:
        kind = plain(cell.product, 80) or "unknown GPU"
        where = f" on {plain(cell.platform, 20)}" if cell.platform else ""
        borrowed = f", {counted(cell.partners, 'partner')}" if cell.partners else ""
        nodes = f"{counted(cell.nodes, 'node')} of {kind}{where}"
        lines.append(f"{nodes}, {cell.gpus} GPUs each, {counted(cell.domains, 'domain')}{borrowed}")
    if not shown.cells:
        return "\n".join(("No node can be tested.", *_untested(shown)))
    rows: list[Sequence[str]] = [("TEST", "SCOPE", "RUNS", "NODES A RUN", "MINUTES EACH", "NODE-HOURS")]
    for test in (t for t in shown.tests if not t.only_after_a_failure):
        at_most = f"up to {test.nodes_at_most}" if test.scope == "group" else str(test.nodes_at_most)
        figures = (f"{test.minutes_each:g}", f"{test.node_hours:g}")
        rows.append((plain(test.test, 60), test.scope, str(test.runs), at_most, *figures))
    lines += ["", *aligned(rows)]
    followers = [plain(t.test, 60) for t in shown.tests if t.only_after_a_failure]
    lines += [f"only after a failure, to find its layer: {', '.join(followers)}"] if followers else []
    lines += [f"not run: {name}: {plain(why, 200)}" for name, why in shown.left_out.items()]
    lines += _untested(shown)
    lines += [
        "",
        f"Expected, when nothing fails: {counted(shown.expected_rounds, 'round')}, "
        f"{counted(shown.expected_runs, 'run')}, "
        f"{shown.expected_minutes:.0f} min, {shown.expected_node_hours:.1f} node-hours.",
        f"At most, by its budget: {counted(shown.worst_rounds, 'round')}, {counted(shown.worst_runs, 'run')}, "
        f"{shown.worst_minutes:.0f} min, {shown.worst_node_hours:.1f} node-hours.",
    ]
    if shown.open and shown.enough:
        names = ", ".join(plain(n.name, 80) for n in shown.open[:6]) + (" and more" if shown.open[6:] else "")
        why = plain(shown.open[0].message, 200)
        lines.append(f"Even when nothing fails, {counted(len(shown.open), 'node')} would not pass ({names}): {why}")
    if not shown.enough:
        lines.append("The budget does not allow what is expected: nodes would end Undetermined. Raise it.")
    return "\n".join(lines)


def _untested(shown: Forecast) -> list[str]:
    if not shown.untested:
        return []
    lines = ["", f"Untested from the start ({len(shown.untested)}):"]
    lines += [f"  {plain(u.name, 80)}: {plain(u.message, 200)}" for u in shown.untested[:UNTESTED_SHOWN]]
    more = len(shown.untested) - UNTESTED_SHOWN
    return lines + ([f"  and {more} more; -o json has all of them"] if more > 0 else [])
