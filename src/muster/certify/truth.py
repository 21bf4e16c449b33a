"""A known truth that answers runs: what tests and benchmarks of isolation compare verdicts with.

Pure. The outcome of a run depends on the truth, the seed, and the run itself, never on the order of questions.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.certify import catalogue
from muster.certify.isolate import IsolationState, begin, next_round, observe
from muster.certify.isolation.plan import Plan, PlannedRun, Round, Verdicts
from muster.certify.isolation.tallies import Pair, pair_of
from muster.certify.measure import slow_limit
from muster.resources.certification import FaultAt, LinkResult, NodeVerdict, Outcome, Reason, RunRecord

Named = tuple[FaultAt, str, str]
"""A shared part: where, domain or nothing, second domain or rail."""


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
    domains: Mapping[str, str] = field(default_factory=dict)
    """Failure domain by node; what follows needs it."""
    trunks: Mapping[Pair, float] = field(default_factory=dict)
    """Pairs of domains between which every path fails."""
    uplinks: Mapping[str, float] = field(default_factory=dict)
    """Domains out of which every path fails."""
    racks: Mapping[str, float] = field(default_factory=dict)
    """Domains of which every path fails, inside too."""
    nvlink: Mapping[str, float] = field(default_factory=dict)
    """Nodes that fail runs over NVLink, and no run with NVLink off."""
    network: Mapping[str, float] = field(default_factory=dict)
    """Nodes that fail runs that leave their domain, and those with NVLink off."""
    rails: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """(node, rail): one NIC; fails whatever uses it."""
    rail_switches: Mapping[int, float] = field(default_factory=dict)
    """Rails that fail for everybody."""
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
        return found + self._shared_causes(run) + self._layer_causes(run, inside)

    def _shared_causes(self, run: PlannedRun) -> list[tuple[str, float]]:
        inside = {self.domains.get(n, "") for n in run.nodes}
        found = [(f"{a}={b}", rate) for (a, b), rate in sorted(self.trunks.items()) if a in inside and b in inside]
        found += [(f"{d}->", rate) for d, rate in sorted(self.uplinks.items()) if d in inside and len(inside) > 1]
        distributed = len(run.nodes) > 1
        return found + [(d, rate) for d, rate in sorted(self.racks.items()) if d in inside and distributed]

    def _layer_causes(self, run: PlannedRun, inside: set[str]) -> list[tuple[str, float]]:
        if len(inside) < 2:
            return []
        test = catalogue.tests().get(run.test)
        only_network = test is not None and bool(test.variant)
        found = [] if only_network else [(n, rate) for n, rate in sorted(self.nvlink.items()) if n in inside]
        if only_network or len({self.domains.get(n, "") for n in inside}) > 1:
            found += [(n, rate) for n, rate in sorted(self.network.items()) if n in inside]
            uses = [int(run.variant.removeprefix("rail="))] if run.variant.startswith("rail=") else None
            for (n, rail), rate in sorted(self.rails.items()):
                found += [(f"{n}/{rail}", rate)] if n in inside and (uses is None or rail in uses) else []
            for rail, rate in sorted(self.rail_switches.items()):
                found += [(f"rail {rail}", rate)] if uses is None or rail in uses else []
        return found

    def record(self, run: PlannedRun) -> RunRecord:
        """The record of the run."""
        draw = random.Random(hashlib.sha256(f"{self.seed}/{run.id}/{run.nodes}".encode()).digest())  # noqa: S311
        outcome, reason = Outcome.PASS, Reason.NONE
        if draw.random() < self.unusable:
            outcome, reason = Outcome.INVALID, Reason.HARNESS
        elif any(draw.random() < rate for _, rate in self.causes(run)) or draw.random() < self.noise:
            outcome, reason = Outcome.FAIL, Reason.BANDWIDTH
        return RunRecord(
            id=run.id,
            round=run.round,
            test=run.test,
            nodes=run.nodes,
            outcome=outcome,
            reason=reason,
            variant=run.variant,
        )

    def answer(self, step: Round, _before: Sequence[RunRecord] = ()) -> list[RunRecord]:
        """Records of a round."""
        return [self.record(run) for run in step.runs]

    @property
    def bad_nodes(self) -> frozenset[str]:
        found = frozenset(self.nodes) | {n for n, _ in self.tests} | frozenset(self.scale)
        return found | frozenset(self.nvlink) | frozenset(self.network) | {n for n, _ in self.rails}

    @property
    def bad_links(self) -> frozenset[Pair]:
        return frozenset(pair_of(*pair) for pair in self.links)

    @property
    def bad_shared(self) -> frozenset[Named]:
        """What many paths share and is broken, as `Comparison` names it."""
        trunks = {(FaultAt.TRUNK, *pair_of(*pair)) for pair in self.trunks}
        domains = {(FaultAt.DOMAIN, d, "") for d in (*self.uplinks, *self.racks)}
        return frozenset(trunks | domains | {(FaultAt.RAIL, "", str(rail)) for rail in self.rail_switches})

    @property
    def shadowed(self) -> frozenset[str]:
        """Good nodes that nobody can prove, since what they hang on is broken."""
        domains = {*self.uplinks, *self.racks}
        everybody = frozenset(self.domains) if self.rail_switches else frozenset()
        return everybody | frozenset(n for n, d in self.domains.items() if d in domains) - self.bad_nodes


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
    """Neither passed nor failed, although they could have been proven."""
    named_shared: frozenset[Named] = frozenset()
    innocent_shared: frozenset[Named] = frozenset()
    missed_shared: frozenset[Named] = frozenset()

    @property
    def blamed(self) -> bool:
        """Whether anything innocent was named."""
        return bool(self.innocent or self.innocent_links or self.innocent_shared)

    @property
    def exact(self) -> bool:
        missed = self.missed or self.missed_links or self.missed_shared
        return not (self.blamed or missed or self.undetermined)


def compare(truth: Truth, verdicts: Verdicts) -> Comparison:
    """Who was named, who was wronged, who was missed."""
    failed = frozenset(n.name for n in verdicts.nodes if n.verdict is NodeVerdict.FAILED)
    passed = frozenset(n.name for n in verdicts.nodes if n.verdict is NodeVerdict.PASSED)
    bad = [v for v in verdicts.links if v.verdict is NodeVerdict.FAILED]
    links = frozenset(pair_of(v.a, v.b) for v in bad if v.at is FaultAt.LINK)
    # A rail of one node is told with the verdict on the node.
    shared = frozenset(_named(v) for v in bad if v.at is not FaultAt.LINK and not (v.at is FaultAt.RAIL and v.a))
    return Comparison(
        named=failed & truth.bad_nodes,
        named_links=links & truth.bad_links,
        innocent=failed - truth.bad_nodes,
        innocent_links=links - truth.bad_links,
        missed=truth.bad_nodes & passed,
        missed_links=truth.bad_links - links,
        undetermined=frozenset(n.name for n in verdicts.nodes) - failed - passed - truth.shadowed,
        named_shared=shared & truth.bad_shared,
        innocent_shared=shared - truth.bad_shared,
        missed_shared=truth.bad_shared - shared,
    )


def _named(link: LinkResult) -> Named:
    return (link.at, link.a, str(link.rail) if link.at is FaultAt.RAIL else link.b)


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
    lasting: float = 0.0
    """Standard deviation of what healthy nodes differ by for good; `spread` comes anew with each run."""

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
        slowest = min(self.factors.get(name, 1.0) * self._make(name) for name in run.nodes)
        return 100.0 * slowest * (1.0 + draw.gauss(0.0, self.spread))

    def _make(self, name: str) -> float:
        if not self.lasting:
            return 1.0
        draw = random.Random(hashlib.sha256(f"{self.seed}/make/{name}".encode()).digest())  # noqa: S311
        return 1.0 + draw.gauss(0.0, self.lasting)
