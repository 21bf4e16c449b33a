"""One cell (nodes of one architecture): first single nodes and pairs, then one group test after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from muster.certify.isolation import narrowing
from muster.certify.isolation.evidence import Pair, pair_of
from muster.certify.isolation.group import Group
from muster.certify.isolation.plan import Cell, Plan, PlannedRun, Request, Role
from muster.certify.isolation.screening import Screening
from muster.resources.certification import Outcome, RunRecord

FILLERS_BELOW = 4
"""Partners join the group tests when fewer targets than this are good: a group of one proves nothing."""


@dataclass(frozen=True)
class CellState:
    """Immutable state of one cell. `seed` makes every choice repeatable."""

    seed: str
    screening: Screening
    groups: tuple[Group, ...] = ()
    """One per group test that was begun, in the order of the plan; only the last can be unfinished."""

    @classmethod
    def begin(cls, plan: Plan, cell: Cell, seed: str) -> CellState:
        return cls(seed, Screening(plan, cell))

    @property
    def group_bad(self) -> Mapping[str, str]:
        """Nodes condemned by group runs, with the test."""
        return {name: group.test for group in self.groups for name in group.bad}

    @cached_property
    def good(self) -> tuple[str, ...]:
        """Nodes that group tests may use, along the topology."""
        screening = self.screening
        bad = self.group_bad
        targets = [m for m in screening.cell.targets if screening.settled(m.name) and m.name not in bad]
        fillers = [m for m in screening.cell.partners if screening.settled(m.name) and m.name not in bad]
        members = targets if len(targets) >= FILLERS_BELOW else [*targets, *fillers]
        return tuple(m.name for m in sorted(members, key=lambda m: (m.domain, m.name))) if targets else ()

    @cached_property
    def _screening_requests(self) -> tuple[Request, ...]:
        rng = random.Random(f"{self.seed}/screening")  # noqa: S311 - repeatable choice, not a secret
        return self.screening.requests(rng)

    def requests(self) -> tuple[Request, ...]:
        """Runs wanted in the next round; none when the cell is done."""
        if self._screening_requests:
            return self._screening_requests
        if not self.groups or self.groups[-1].done:
            return ()
        pair = self.screening.plan.pair_test()
        return narrowing.requests(self.groups[-1], pair.name if pair else "")

    def settled(self, seed: str) -> CellState:
        """Take every step that needs no run: continue the group test, begin the next one."""
        state = replace(self, seed=seed)
        if state._screening_requests:
            return state
        tests = state.screening.plan.group_tests()
        while True:
            if state.groups and not state.groups[-1].done:
                lost = frozenset(state.groups[-1].order).difference(state.good)
                group = narrowing.resume(state.groups[-1], state.screening.bad_links, lost)
                state = replace(state, groups=(*state.groups[:-1], group))
                if not group.done:
                    return state
            if len(state.groups) == len(tests):
                return state
            limits = state.screening.limits
            group = narrowing.start(
                tests[len(state.groups)].name,
                state.good,
                state.screening.bad_links,
                state.screening.grid,
                limits.group,
            )
            state = replace(state, groups=(*state.groups, group))

    def after(self, runs: Sequence[PlannedRun], records: Mapping[str, RunRecord]) -> CellState:
        """The state after one round. `runs`: what this cell had asked for; `records` by run ID."""
        local: list[tuple[str, str, bool]] = []
        pairs: list[tuple[str, str, bool]] = []
        grouped: dict[tuple[str, ...], bool | None] = {}
        wasted: list[str] = []
        wasted_pairs: list[Pair] = []
        unmeasured = False
        for run in runs:
            record = records.get(run.id)
            passed = _passed(record)
            if passed is None:
                wasted += _who_wasted(run, record)
                wasted_pairs += [pair_of(*run.nodes)] if len(run.nodes) == 2 else []
                unmeasured |= record is not None and record.value is not None
            match run.role:
                case Role.LOCAL:
                    local += [] if passed is None else [(run.nodes[0], run.test, passed)]
                case Role.SCREEN | Role.PARTNER | Role.RERUN:
                    pairs += [] if passed is None else [(run.nodes[0], run.nodes[1], passed)]
                case Role.CANDIDATE:
                    is_pair = passed is not None and self._is_pair_test(run.test)
                    pairs += [(run.nodes[0], run.nodes[1], bool(passed))] if is_pair else []
                    grouped[run.nodes] = passed
                case _:
                    grouped[run.nodes] = passed
        screening = self.screening.after(local, pairs, wasted, wasted_pairs)
        for nodes, passed in sorted(grouped.items()):
            if passed and len(nodes) > 2 and self._sees_links(self.groups[-1].test):
                screening = screening.with_group_pass(nodes)
        groups = self.groups
        if grouped:
            group = narrowing.after(replace(groups[-1], unmeasured=unmeasured), grouped)
            if group.pointing and group.candidates != groups[-1].candidates:
                screening = screening.with_group_fails(group.candidates, group.pointing)
            groups = (*groups[:-1], group)
        return replace(self, screening=screening, groups=groups)

    def without(self, node: str, why: str) -> CellState:
        """The state with `node` withdrawn."""
        return replace(self, screening=self.screening.without(node, why))

    def _sees_links(self, test: str) -> bool:
        """A ring or tree uses few of the links of a group; all-to-all uses every one."""
        return self.screening.plan.test(test).collective == "all-to-all"

    def _is_pair_test(self, test: str) -> bool:
        pair = self.screening.plan.pair_test()
        return pair is not None and pair.name == test


def _passed(record: RunRecord | None) -> bool | None:
    """Pass, fail, or None: INVALID and UNKNOWN are evidence of nothing."""
    if record is None:
        return None
    match record.outcome:
        case Outcome.PASS | Outcome.WARN:
            return True
        case Outcome.FAIL:
            return False
        case Outcome.INVALID | Outcome.UNKNOWN:
            return None


def _who_wasted(run: PlannedRun, record: RunRecord | None) -> tuple[str, ...]:
    """Nodes that a run without a usable outcome is counted for: those it points at, otherwise all but of groups."""
    named = tuple(n for n in record.suspects if n in run.nodes) if record is not None else ()
    if named:
        return named
    return run.nodes if len(run.nodes) <= 2 else ()
