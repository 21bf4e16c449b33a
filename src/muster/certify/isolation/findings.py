"""What the runs of a cell say so far: who is bad, who is suspected, who is proven, what lies between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from muster.certify.isolation.evidence import NODE_PRIOR, PARTNER_PRIOR, Judgement, judge
from muster.certify.isolation.likelihood import CLEARED, Grid, evidence, grid_for, spurious_rate
from muster.certify.isolation.limits import Limits
from muster.certify.isolation.plan import Cell, Plan
from muster.certify.isolation.probing import broken
from muster.certify.isolation.shared import Part, Shared, only_way
from muster.certify.isolation.slowness import Slowness
from muster.certify.isolation.tallies import Pair, PairEvidence, Tally, pair_of

MAX_INCONCLUSIVE = 4
"""Runs without a usable outcome after which a node is given up."""

NO_PAIRS = PairEvidence()


@dataclass(frozen=True)
class Findings:
    """State of one cell as far as single nodes and pairs go. Dicts are never changed after construction."""

    plan: Plan
    cell: Cell
    local: Mapping[tuple[str, str], Tally] = field(default_factory=dict)
    """Tallies by (node, test)."""
    numbers: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Numbers of local tests by (node, test), in the order of rounds."""
    pairs: PairEvidence = NO_PAIRS
    inconclusive: Mapping[str, int] = field(default_factory=dict)
    wasted: Mapping[Pair, int] = field(default_factory=dict)
    """Runs of a pair without a usable outcome: others are tried first."""
    network_wasted: Mapping[str, int] = field(default_factory=dict)
    """Runs with NVLink off, by node, that said nothing about a suspect."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """Nodes that take no further part, with the reason in a sentence."""
    seed_matchings: int = 0

    @cached_property
    def grid(self) -> Grid:
        return grid_for(self.plan.weakest_rate)

    @cached_property
    def limits(self) -> Limits:
        return Limits.of(self.plan)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.cell.targets)

    @cached_property
    def partners(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.cell.partners)

    @cached_property
    def _borrowed(self) -> frozenset[str]:
        return frozenset(self.partners)

    @cached_property
    def domains(self) -> Mapping[str, str]:
        return {m.name: m.domain for m in (*self.cell.targets, *self.cell.partners)}

    @cached_property
    def judgement(self) -> Judgement:
        priors = dict.fromkeys(self.targets, NODE_PRIOR) | dict.fromkeys(self.partners, PARTNER_PRIOR)
        return judge(self.pairs, self.grid, priors, self.domains, self._out)

    @cached_property
    def _out(self) -> frozenset[str]:
        """Nodes that can be nobody's partner in a pair."""
        return frozenset(name for name in self.domains if name in self.given_up or self.local_failed(name))

    # --- verdicts so far ---

    @cached_property
    def spurious_local(self) -> float:
        """Spurious failure rate of local tests: failures of tests that passed on the same node count as chance."""
        tallies = self.local.values()
        by_chance = sum(min(t.fails, t.passes) for t in tallies)
        return spurious_rate(by_chance, sum(t.passes for t in tallies) + by_chance)

    def local_ratio(self, node: str, test: str) -> float:
        tally = self.local.get((node, test), Tally())
        return evidence(self.grid, tally.fails, tally.passes, self.spurious_local)

    def local_done(self, node: str, test: str) -> bool:
        """The test was passed, failures that it may have had are put down to chance, its numbers are no question."""
        tally = self.local.get((node, test), Tally())
        if node in self._measured_again(test):
            return False
        return tally.passes > 0 and (tally.fails == 0 or self.local_ratio(node, test) <= CLEARED)

    def local_failed(self, node: str) -> str:
        """The local test that condemns the node, or an empty string."""
        failed = (t.name for t in self.plan.local_tests() if self.local.get((node, t.name), Tally()).fails)
        by_runs = next((name for name in failed if self.local_ratio(node, name) >= self.limits.local), "")
        return by_runs or self.slow_in(node)

    @cached_property
    def slowness(self) -> Mapping[str, Slowness]:
        """What the numbers of each local test say, by test."""
        by_test: dict[str, dict[str, tuple[float, ...]]] = {}
        for (node, test), values in self.numbers.items():
            by_test.setdefault(test, {})[node] = values
        return {test: Slowness(values, self.limits.number_blame) for test, values in sorted(by_test.items())}

    @cached_property
    def _slow(self) -> Mapping[str, str]:
        """Test by node that is condemned by the mean of its numbers."""
        found: dict[str, str] = {}
        for test, slowness in self.slowness.items():
            for node in slowness.numbers:
                if len(slowness.numbers[node]) > 1 and slowness.ratio(node) >= self.limits.number:
                    found.setdefault(node, test)
        return found

    def slow_in(self, node: str) -> str:
        """The local test whose numbers condemn the node, or an empty string."""
        return self._slow.get(node, "")

    def _measured_again(self, test: str) -> frozenset[str]:
        slowness = self.slowness.get(test)
        return slowness.wanted if slowness is not None else frozenset()

    def pair_failed(self, node: str) -> bool:
        """Condemned by pairs: enough evidence, and failures with two partners at least."""
        ratio = self.judgement.nodes.get(node)
        if ratio is None or ratio < self.limits.pair:
            return False
        return self._failed_mates[node] >= 2

    def fail_rate(self, node: str) -> float:
        """Share of the pair runs of the node that failed."""
        tallies = [self.pairs.tallies[pair_of(node, mate)] for mate in self.pairs.mates.get(node, ())]
        runs = sum(t.fails + t.passes for t in tallies)
        return sum(t.fails for t in tallies) / runs if runs else 0.0

    @cached_property
    def condemned(self) -> frozenset[str]:
        """Nodes that are bad beyond the allowed error."""
        return frozenset(
            name for name in (*self.targets, *self.partners) if self.local_failed(name) or self.pair_failed(name)
        )

    @cached_property
    def bad_links(self) -> tuple[Pair, ...]:
        """Links that are bad beyond the allowed error while both ends are good, sorted."""
        return tuple(
            pair
            for pair in self.pairs.failed
            if self.judgement.links[pair] >= self.limits.link
            and self.judgement.link_odds[pair] >= self.limits.link_odds
            and not self.parted(*pair)
            and all(end not in self.condemned and self.pairs.passes_without(end, mate_in(pair, end)) for end in pair)
        )

    def unproven_way(self, node: str) -> str:
        """The other end of a bad link, where it was the only way to see whether the node works beyond its domain."""
        if self.pairs.network_passes(node):
            return ""
        left = [name for name in self.domains if name not in self._out]
        mates = [mate_in(pair, node) for pair in self.bad_links if node in pair and self._beyond(*pair)]
        return next((mate for mate in mates if only_way(node, mate, left, self.domains)), "")

    def _beyond(self, a: str, b: str) -> bool:
        one, other = self.domains[a], self.domains[b]
        return bool(one) and bool(other) and one != other

    @cached_property
    def bad_shared(self) -> tuple[Shared, ...]:
        """Trunks, ways out of a domain and racks that are bad beyond the allowed error, sorted."""
        if not self.judgement.shared:
            return ()
        failed = {s: runs.failed for s, runs in self.judgement.shared_runs.items()}
        passed = {(self.domains[a], self.domains[b]) for (a, b), tally in self.pairs.tallies.items() if tally.passes}
        named = broken(self.judgement.shared, failed, self.limits.shared, passed)
        return tuple(s for s in named if s.part is not Part.RACK or self._whole_rack(s, failed[s]))

    def _whole_rack(self, rack: Shared, failed: Sequence[Pair]) -> bool:
        """Whether every node of the rack that may be paired failed with a node outside it that passes."""
        outside = {
            end
            for a, b in failed
            for end, mate in ((a, b), (b, a))
            if self.domains[mate] != rack.a and self.pairs.passes.get(mate)
        }
        tests = self.plan.local_tests()
        members = [m for m in self.domains if self.domains[m] == rack.a and m not in self.given_up]
        return all(
            m in outside
            for m in members
            if m in self._borrowed or all(self.local.get((m, t.name), Tally()).passes for t in tests)
        )

    @cached_property
    def in_bad_rack(self) -> Mapping[str, Shared]:
        """Nodes that cannot be judged by pairs because everything in their domain fails."""
        racks = {s.a: s for s in self.bad_shared if s.part is Part.RACK}
        return {n: racks[d] for n, d in self.domains.items() if d in racks} if racks else {}

    @cached_property
    def behind_bad_way(self) -> Mapping[str, Shared]:
        """Nodes whose domain has no way out that works."""
        spine = next((s for s in self.bad_shared if s.part is Part.SPINE), None)
        if spine is not None:
            return {n: spine for n, d in self.domains.items() if d}
        ways = {s.a: s for s in self.bad_shared if s.part is Part.UPLINK}
        return {n: ways[d] for n, d in self.domains.items() if d in ways} if ways else {}

    def parted(self, a: str, b: str) -> bool:
        """Whether a part that is known to be broken lies between the two."""
        return any(s.holds(self.domains[a], self.domains[b]) for s in self.bad_shared)

    @cached_property
    def apart(self) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
        """Sets of nodes that no group run may put together, two and two."""
        sides = []
        spine = any(s.part is Part.SPINE for s in self.bad_shared)
        every = [Shared(Part.UPLINK, d) for d in sorted(set(self.domains.values()))] if spine else []
        for shared in (*self.bad_shared, *every):
            if shared.part is Part.SPINE:
                continue
            inside = frozenset(n for n, d in self.domains.items() if d == shared.a)
            beyond = frozenset(n for n in self.domains if n not in inside and shared.holds(shared.a, self.domains[n]))
            sides.append((inside, beyond))
        return tuple(sides)

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        return tuple(s for s in self.judgement.suspects() if self._in_play(s))

    @cached_property
    def _suspected(self) -> frozenset[str]:
        return frozenset(self.suspects)

    @cached_property
    def _failed_mates(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for pair in self.pairs.failed:
            for end in pair:
                counts[end] = counts.get(end, 0) + 1
        return counts

    @cached_property
    def proven(self) -> tuple[str, ...]:
        """Nodes that may serve as partners of suspects: passed a pair and are not suspected; in plan order."""
        return tuple(
            name
            for name in self._ready
            if name not in self._suspected and (self.pairs.passes.get(name, 0) > 0 or name in self._borrowed)
        )

    def settled(self, node: str) -> bool:
        """Good as far as single nodes and pairs tell: everything asked for was passed, nothing is suspected."""
        if not self._in_play(node) or node in self._suspected:
            return False
        if not all(self.local_done(node, t.name) for t in self.plan.local_tests()) and node not in self._borrowed:
            return False
        return self.plan.pair_test() is None or node in self._borrowed or self.pairs.passes.get(node, 0) > 0

    def _in_play(self, node: str) -> bool:
        return node not in self.condemned and node not in self.given_up and node not in self.in_bad_rack

    @cached_property
    def _ready(self) -> tuple[str, ...]:
        """Nodes that passed their local tests and may be paired, in plan order."""
        tests = self.plan.local_tests()
        return tuple(
            name
            for name in (*self.targets, *self.partners)
            if self._in_play(name) and (name in self._borrowed or all(self.local_done(name, t.name) for t in tests))
        )


def mate_in(pair: Pair, end: str) -> str:
    return pair[0] if pair[1] == end else pair[1]
