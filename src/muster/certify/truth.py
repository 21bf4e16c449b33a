"""A known truth that answers runs: what tests and benchmarks of isolation compare verdicts with.

Pure. The outcome of a run depends on the truth, the seed, and the run itself, never on the order of questions.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.certify.isolate import IsolationState, begin, next_round, observe
from muster.certify.isolation.evidence import Pair, pair_of
from muster.certify.isolation.plan import Plan, PlannedRun, Round, Verdicts
from muster.certify.measure import slow_limit
from muster.resources.certification import NodeVerdict, Outcome, Reason, RunRecord


@dataclass(frozen=True)
class Truth:
    """What is wrong with a fleet. Rates are probabilities per run; 1 is a deterministic fault."""

    seed: int = 0
    nodes: Mapping[str, float] = field(default_factory=dict)
    """Nodes that fail any run they are in."""
    tests: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(node, test): fails runs of this test only."""
    links: Mapping[Pair, float] = field(default_factory=dict)
    """Pairs of nodes that fail any run that holds both."""
    scale: Mapping[str, int] = field(default_factory=dict)
    """Nodes that fail runs over at least so many nodes."""
    noise: float = 0.0
    """Probability that a run fails without a cause."""
    unusable: float = 0.0
    """Probability that a run ends without a usable outcome."""

    def causes(self, run: PlannedRun) -> list[tuple[str, float]]:
        """Every cause that may fail the run, with its rate, in a fixed order."""
        inside = set(run.nodes)
        found = [(n, rate) for n, rate in sorted(self.nodes.items()) if n in inside]
        found += [(f"{n}/{t}", rate) for (n, t), rate in sorted(self.tests.items()) if n in inside and t == run.test]
        found += [(f"{a}-{b}", rate) for (a, b), rate in sorted(self.links.items()) if a in inside and b in inside]
        found += [(n, 1.0) for n, least in sorted(self.scale.items()) if n in inside and len(inside) >= least]
        return found

    def record(self, run: PlannedRun) -> RunRecord:
        """The record of the run."""
        draw = random.Random(hashlib.sha256(f"{self.seed}/{run.id}/{run.nodes}".encode()).digest())  # noqa: S311
        outcome, reason = Outcome.PASS, Reason.NONE
        if draw.random() < self.unusable:
            outcome, reason = Outcome.INVALID, Reason.HARNESS
        elif any(draw.random() < rate for _, rate in self.causes(run)) or draw.random() < self.noise:
            outcome, reason = Outcome.FAIL, Reason.BANDWIDTH
        return RunRecord(id=run.id, round=run.round, test=run.test, nodes=run.nodes, outcome=outcome, reason=reason)

    def answer(self, step: Round, _before: Sequence[RunRecord] = ()) -> list[RunRecord]:
        """Records of a round."""
        return [self.record(run) for run in step.runs]

    @property
    def bad_nodes(self) -> frozenset[str]:
        return frozenset(self.nodes) | {n for n, _ in self.tests} | frozenset(self.scale)

    @property
    def bad_links(self) -> frozenset[Pair]:
        return frozenset(pair_of(*pair) for pair in self.links)


@dataclass(frozen=True)
class Comparison:
    """Verdicts against the truth."""

    named: frozenset[str]
    named_links: frozenset[Pair]
    innocent: frozenset[str]
    """Failed, though nothing is wrong with them."""
    innocent_links: frozenset[Pair]
    missed: frozenset[str]
    """Bad, yet Passed."""
    missed_links: frozenset[Pair]
    undetermined: frozenset[str]

    @property
    def exact(self) -> bool:
        return not (self.innocent or self.innocent_links or self.missed or self.missed_links or self.undetermined)


def compare(truth: Truth, verdicts: Verdicts) -> Comparison:
    """Who was named, who was wronged, who was missed."""
    failed = frozenset(n.name for n in verdicts.nodes if n.verdict is NodeVerdict.FAILED)
    passed = frozenset(n.name for n in verdicts.nodes if n.verdict is NodeVerdict.PASSED)
    links = frozenset(pair_of(v.a, v.b) for v in verdicts.links if v.verdict is NodeVerdict.FAILED)
    return Comparison(
        named=failed & truth.bad_nodes,
        named_links=links & truth.bad_links,
        innocent=failed - truth.bad_nodes,
        innocent_links=links - truth.bad_links,
        missed=truth.bad_nodes & passed,
        missed_links=truth.bad_links - links,
        undetermined=frozenset(n.name for n in verdicts.nodes) - failed - passed,
    )


Answer = Callable[[Round, Sequence[RunRecord]], Sequence[RunRecord]]
"""Carries out a round; sees the records of the rounds before."""


def carry_out(
    plan: Plan, answer: Answer, *, watch: Callable[[IsolationState], None] | None = None
) -> tuple[Verdicts, IsolationState]:
    """Run a whole certification against `answer`. `watch` sees the state after every round."""
    state = begin(plan)
    while isinstance(step := next_round(state), Round):
        state = observe(state, answer(step, state.records))
        if watch is not None:
            watch(state)
    return step, state


@dataclass(frozen=True)
class SlowNodes:
    """A fleet in which some nodes are slower by a factor and numbers scatter; judged by comparison with peers.

    `spread` is the standard deviation of one number as a share of it. The number of a run follows its slowest node.
    """

    seed: int
    factors: Mapping[str, float]
    spread: float = 0.01

    def answer(self, step: Round, before: Sequence[RunRecord]) -> list[RunRecord]:
        values = {run.id: self._value(run) for run in step.runs}
        records = []
        for run in step.runs:
            others = [values[r.id] for r in step.runs if r.test == run.test and len(r.nodes) == len(run.nodes)]
            earlier = [
                r.value
                for r in before
                if r.test == run.test
                and len(r.nodes) == len(run.nodes)
                and r.outcome is Outcome.PASS
                and r.value is not None
            ]
            peers = [*others, *earlier]
            slow = len(peers) >= 4 and values[run.id] < slow_limit(peers, len(others))[1]
            records.append(
                RunRecord(
                    id=run.id,
                    round=run.round,
                    test=run.test,
                    nodes=run.nodes,
                    outcome=Outcome.FAIL if slow else Outcome.PASS,
                    reason=Reason.BANDWIDTH if slow else Reason.NONE,
                    value=values[run.id],
                )
            )
        return records

    def _value(self, run: PlannedRun) -> float:
        draw = random.Random(hashlib.sha256(f"{self.seed}/{run.id}/{run.nodes}".encode()).digest())  # noqa: S311
        return 100.0 * min(self.factors.get(name, 1.0) for name in run.nodes) * (1.0 + draw.gauss(0.0, self.spread))
