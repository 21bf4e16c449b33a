"""One cell (nodes of one architecture): first single nodes and pairs, then one group test after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from muster.certify.isolation import narrowing
from muster.certify.isolation.group import Group
from muster.certify.isolation.layers import FLEET_PAIRS, Layers, Subject
from muster.certify.isolation.plan import Cell, Plan, PlannedRun, Request, Role
from muster.certify.isolation.screening import Screening
from muster.certify.isolation.shared import Part
from muster.certify.isolation.tallies import Pair, pair_of
from muster.resources.certification import Outcome, RunRecord

NO_LAYERS = Layers()
FILLERS_BELOW = 4
"""Partners join the group tests when fewer targets than this are good: a group of one proves nothing."""


@dataclass(frozen=True)
class CellState:
    """Immutable state of one cell. `seed` makes every choice repeatable."""

    seed: str
    screening: Screening
    groups: tuple[Group, ...] = ()
    """One per group test that was begun, in the order of the plan; only the last can be unfinished."""
    layers: Layers = NO_LAYERS
    """Runs of what failed over fewer layers, once everything else is known."""

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
            return self._layer_requests
        pair = self.screening.plan.pair_test()
        return narrowing.requests(self.groups[-1], pair.name if pair else "")

    @property
    def rails(self) -> int:
        """NICs per node that a rail test can take one at a time."""
        return self.screening.cell.rails or self.screening.cell.gpus

    @cached_property
    def subjects(self) -> tuple[Subject, ...]:
        """What is known to fail in pairs, and may be looked at layer by layer; nodes first."""
        screening, pair = self.screening, self.screening.plan.pair_test()
        if pair is None or not any(t.variant_of == pair.name for t in screening.plan.tests):
            return ()
        fleet = self.fleet_pairs
        if fleet:
            return fleet
        network = screening.judgement.network_only
        found = [
            Subject((name,), pair.name, screening.fail_rate(name), name in network)
            for name in sorted(screening.condemned)
            if screening.pair_failed(name)
        ]
        paths = list(screening.bad_links)
        for shared in screening.bad_shared:
            paths += screening.judgement.shared_runs[shared].failed[:2]
        return (*found, *(Subject(path, pair.name) for path in paths))

    @cached_property
    def fleet_pairs(self) -> tuple[Subject, ...]:
        """Disjoint failed pairs where none passed, in the cell or between its domains: one layer for everybody?"""
        screening, pair = self.screening, self.screening.plan.pair_test()
        spine = next((s for s in screening.bad_shared if s.part is Part.SPINE), None)
        if pair is None or (spine is None and any(screening.pairs.passes.values())):
            return ()
        failed = screening.judgement.shared_runs[spine].failed if spine is not None else screening.pairs.failed
        chosen: list[Pair] = []
        busy: set[str] = set(screening.condemned) | set(screening.given_up)
        for a, b in failed:
            if a not in busy and b not in busy and len(chosen) < FLEET_PAIRS:
                busy.update((a, b))
                chosen.append((a, b))
        return tuple(Subject(path, pair.name) for path in chosen)

    @cached_property
    def _layer_requests(self) -> tuple[Request, ...]:
        if not self.subjects:
            return ()
        lost = frozenset(self.screening.given_up)
        subjects = [s for s in self.subjects if not lost.intersection(s.nodes)]
        avoid = frozenset(self.screening.bad_links)
        proven = () if self.fleet_pairs else self.good
        return self.layers.requests(self.screening.plan, subjects, self.rails, proven, avoid)

    def settled(self, seed: str) -> CellState:
        """Take every step that needs no run: continue the group test, begin the next one."""
        state = replace(self, seed=seed)
        if state._screening_requests:
            return state
        tests = state.screening.plan.group_tests()
        while True:
            if state.groups and not state.groups[-1].done:
                lost = frozenset(state.groups[-1].order).difference(state.good)
                group = narrowing.resume(state.groups[-1], state.screening.bad_links, lost, state.screening.apart)
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
                state.screening.apart,
                state.screening.domains,
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
        layers = self.layers
        numbers: list[tuple[str, str, float]] = []
        network: list[tuple[tuple[str, ...], bool | None]] = []
        for run in runs:
            record = records.get(run.id)
            passed = _passed(record)
            if self.screening.plan.test(run.test).variant_of and run.role is Role.PARTNER:
                network.append((run.nodes, passed))
                continue
            if self.screening.plan.test(run.test).variant_of:
                layers = layers.after(run, self.subjects, passed)
                continue
            if passed is None:
                wasted += _who_wasted(run, record)
                wasted_pairs += [pair_of(*run.nodes)] if len(run.nodes) == 2 else []
                unmeasured |= record is not None and record.value is not None
            match run.role:
                case Role.LOCAL:
                    if passed is not None and record is not None and record.value and record.value > 0:
                        numbers.append((run.nodes[0], run.test, record.value))
                    local += [] if passed is None else [(run.nodes[0], run.test, passed)]
                case Role.SCREEN | Role.PARTNER | Role.RERUN | Role.SHARED:
                    pairs += [] if passed is None else [(run.nodes[0], run.nodes[1], passed)]
                case Role.CANDIDATE:
                    is_pair = passed is not None and self._is_pair_test(run.test)
                    pairs += [(run.nodes[0], run.nodes[1], bool(passed))] if is_pair else []
                    grouped[run.nodes] = passed
                case _:
                    grouped[run.nodes] = passed
        screening = self.screening.after(local, pairs, wasted, wasted_pairs, numbers)
        for nodes, seen in network:
            screening = screening.with_network_run(nodes, seen)
        for nodes, passed in sorted(grouped.items()):
            if passed is False and len(nodes) > 2 and self._sees_links(self.groups[-1].test):
                screening = screening.with_group_fail(nodes)
            if passed and len(nodes) > 2 and self._sees_links(self.groups[-1].test):
                screening = screening.with_group_pass(nodes)
        groups = self.groups
        if grouped:
            group = narrowing.after(replace(groups[-1], unmeasured=unmeasured), grouped)
            if group.pointing and group.candidates != groups[-1].candidates:
                screening = screening.with_group_fails(group.candidates, group.pointing)
            groups = (*groups[:-1], group)
        return replace(self, screening=screening, groups=groups, layers=layers)

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
