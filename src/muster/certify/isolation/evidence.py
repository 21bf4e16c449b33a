"""Evidence from pairs: which nodes, links and shared parts explain the runs that failed.

A failed run has several possible causes (an end, the link between them, something that many links share, chance), so
the causes are weighed against each other by passing messages along failed pairs: how likely is it that the others,
judged by their other runs alone, were the cause? Nothing depends on the order of runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from muster.certify.isolation.likelihood import (
    ALWAYS,
    CLEARED,
    Grid,
    cause_probability,
    fail_factor,
    mixture,
    spurious_rate,
)
from muster.certify.isolation.shared import (
    PRIORS,
    Part,
    Shared,
    SharedRuns,
    only_way,
    parts_of,
    passes_between,
    worth_weighing,
)
from muster.certify.isolation.tallies import Pair, PairEvidence, Tally, pair_of

NODE_PRIOR = 0.01
PARTNER_PRIOR = 0.002
LINK_PRIOR = 0.001
SWEEPS = 5
COUNT_LIMIT = 60
"""Passes beyond this add nothing but floating point underflow."""
NETWORK_SHARE = 0.1
"""Of bad nodes that failed with another domain: how many are bad in what leaves the domain only (NIC, not NVLink)."""


@dataclass(frozen=True)
class Judgement:
    """What the pair evidence says. Ratios are bad : good (see `likelihood`)."""

    spurious: float
    nodes: Mapping[str, float]
    """Ratio of every node that has a failed run."""
    links: Mapping[Pair, float]
    """Ratio of every pair that has a failed run, both ends taken as good: a bad link against chance."""
    link_odds: Mapping[Pair, float]
    """How much likelier a bad link is than a bad end or trunk as the cause of the failures, priors included."""
    rival_rate: Mapping[Pair, float]
    """Share of the runs of a pair that fail if not the link is bad, but what else explains its failures."""
    link_cause: Mapping[Pair, float]
    """Probability that the link makes the next run of the pair fail."""
    grid: Grid
    shared: Mapping[Shared, float] = field(default_factory=dict)
    """Ratio of every shared part that the failures could point at."""
    shared_runs: Mapping[Shared, SharedRuns] = field(default_factory=dict)
    network_only: frozenset[str] = frozenset()
    """Nodes whose runs are explained better by a fault in what leaves their domain than by one in everything."""

    def suspects(self) -> tuple[str, ...]:
        """Nodes with failed runs that are neither cleared nor explained away, sorted."""
        return tuple(sorted(node for node, ratio in self.nodes.items() if ratio > CLEARED))


def judge(
    evidence: PairEvidence,
    grid: Grid,
    priors: Mapping[str, float],
    domains: Mapping[str, str] | None = None,
    out: Collection[str] = (),
) -> Judgement:
    """Weigh the causes of all failed pairs.

    `priors`: probability that a node is bad before any run; `domains`: failure domain by node, for shared causes;
    `out`: nodes that can be nobody's partner any more.
    """
    adjacency: dict[str, list[str]] = {}
    for a, b in evidence.failed:
        adjacency.setdefault(a, []).append(b)
        adjacency.setdefault(b, []).append(a)
    for mates in adjacency.values():
        mates.sort()
    messages = _Messages(evidence, grid, priors, adjacency, domains or {}, out)
    for _ in range(SWEEPS):
        messages.sweep()
    return messages.judgement()


class _Messages:
    """Working state of `judge`; lives only inside one call.

    A node is good (rate 0) or fails with one of the rates of the grid, either in every run or only in runs that leave
    its domain; `states` lists these. A message is the distribution over them. It is kept whole, not as a mean: that a
    pair fails time after time is likely if one end always fails, and very unlikely if it merely may be bad.
    """

    def __init__(
        self,
        evidence: PairEvidence,
        grid: Grid,
        priors: Mapping[str, float],
        adjacency: dict[str, list[str]],
        domains: Mapping[str, str],
        out: Collection[str],
    ) -> None:
        self.evidence = evidence
        self.grid = grid
        self.priors = priors
        self.adjacency = adjacency
        self.domains = domains
        self.available = [name for name in domains if name not in out]
        self.crossing = frozenset(pair for pair in evidence.failed if self._crosses(*pair))
        leaving = {end for pair in self.crossing for end in pair}
        share = NETWORK_SHARE if leaving else 0.0
        # Two sets of states: bad in everything, and (only where a run that leaves a domain failed) bad outside it.
        self.rates = grid.rates * 2 if leaving else grid.rates
        self.inside = (0.0, *grid.rates, *(0.0 for _ in grid.rates)) if leaving else (0.0, *grid.rates)
        self.across = (0.0, *self.rates)
        self.with_network = (*((1.0 - share) * w for w in grid.weights), *(share * w for w in grid.weights))
        self.without = (*grid.weights, *(0.0 for _ in grid.weights)) if leaving else grid.weights
        self.link_prior_cause = cause_probability(grid, LINK_PRIOR, [1.0] * len(grid.rates))
        self.spurious = spurious_rate(0.0, 0.0)
        self.total_runs = sum(t.passes + t.fails for t in evidence.tallies.values())
        self.far_passes = {v: self._passes_outside(v) for v in sorted(leaving)}
        # Who passed nothing inside its domain either is bad in everything, if bad at all.
        self.network = frozenset(v for v in leaving if evidence.passes.get(v, 0) > self.far_passes[v])
        self.base = {v: self._pass_factors(evidence.passes.get(v, 0), self._network_passes(v)) for v in adjacency}
        # cause[a, b]: distribution over the states of `a`, judged by its runs without `b`.
        self.cause: dict[tuple[str, str], list[float]] = {}
        for a, b in evidence.failed:
            for one, other in ((a, b), (b, a)):
                tally = evidence.tallies[pair_of(one, other)]
                far = self._network_passes(one) - tally.passes * ((a, b) in self.crossing)
                factors = self._pass_factors(evidence.passes_without(one, other), far)
                self.cause[one, other] = self._posterior(one, factors)
        self.shared_runs = worth_weighing(evidence, domains)
        self.shared_of = {pair: [s for s in self._parts(pair) if s in self.shared_runs] for pair in evidence.failed}
        # shared[s, pair]: probability that `s` fails the pair, judged by all other pairs.
        self.shared = {(s, pair): 0.0 for pair, found in self.shared_of.items() for s in found}
        self.members = Counter(self.domains.values())
        self.between = passes_between(evidence, domains) if self.crossing else {}
        self.trunk_odds = {pair: self._unweighed_trunk(pair) for pair in self.crossing}

    def _crosses(self, a: str, b: str) -> bool:
        one, other = self.domains.get(a, ""), self.domains.get(b, "")
        return bool(one) and bool(other) and one != other

    def _parts(self, pair: Pair) -> tuple[Shared, ...]:
        return parts_of(self.domains.get(pair[0], ""), self.domains.get(pair[1], ""))

    def _passes_outside(self, node: str) -> int:
        tallies = self.evidence.tallies
        mates = [m for m in self.evidence.mates.get(node, ()) if self._crosses(node, m)]
        return sum(tallies[pair_of(node, m)].passes for m in mates) + self._groups_passed(node)[1]

    def _groups_passed(self, node: str) -> tuple[int, int]:
        """Passed groups with the node in them; those of them that leave its domain."""
        near = ("", self.domains.get(node, ""))
        groups = [group for group in self.evidence.group_passed if node in group]
        return len(groups), sum(any(self.domains.get(m, "") not in near for m in group) for group in groups)

    def _network_passes(self, node: str) -> int:
        return self.far_passes.get(node, 0) + self.evidence.network_passes(node)

    def _pass_factors(self, passes: int, far: int) -> list[float]:
        every = [(1.0 - q) ** min(passes, COUNT_LIMIT) for q in self.grid.rates]
        if not self.crossing:
            return every
        return [*every, *((1.0 - q) ** max(0, min(far, COUNT_LIMIT)) for q in self.grid.rates)]

    def _weights(self, node: str) -> tuple[float, ...]:
        return self.with_network if node in self.network else self.without

    def _posterior(self, node: str, factors: list[float]) -> list[float]:
        """Distribution over the states of a node, from its likelihood ratios per rate."""
        prior = self.priors.get(node, NODE_PRIOR)
        bad = [prior * w * f for w, f in zip(self._weights(node), factors, strict=True)]
        total = 1.0 - prior + sum(bad)
        return [(1.0 - prior) / total, *(v / total for v in bad)]

    def _states(self, pair: Pair) -> tuple[float, ...]:
        """Rate at which an end fails a run of the pair, per state."""
        return self.across if pair in self.crossing else self.inside

    def _mean(self, a: str, b: str) -> float:
        """Probability that `a`, judged without `b`, makes a run with `b` fail."""
        return sum(q * v for q, v in zip(self._states(pair_of(a, b)), self.cause[a, b], strict=True))

    def _shared_cause(self, pair: Pair, without: Shared | None = None) -> float:
        """Probability that a shared part other than `without` fails the pair."""
        good = 1.0
        for shared in self.shared_of[pair]:
            if shared != without:
                good *= 1.0 - self.shared[shared, pair]
        return 1.0 - good

    def _link_factors(self, tally: Tally, ends: list[tuple[float, float]]) -> list[float]:
        """Likelihood of the pair's runs per rate of the link, over that with a good link.

        `ends`: (probability, rate at which the ends together fail a run).
        """

        def likelihood(link: float) -> float:
            total = 0.0
            for weight, rate in ends:
                passes = (1.0 - self.spurious) * (1.0 - rate) * (1.0 - link)
                total += weight * (1.0 - passes) ** min(tally.fails, 40) * passes ** min(tally.passes, COUNT_LIMIT)
            return total

        good = max(likelihood(0.0), 1e-280)
        return [likelihood(q) / good for q in self.grid.rates]

    def _or_shared(self, pair: Pair, ends: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """The states of the ends, with a shared part that may be broken beside them."""
        broken = self._shared_cause(pair)
        if broken <= 0.0:
            return ends
        always = [(w * broken, 1.0 - (1.0 - q) * (1.0 - ALWAYS)) for w, q in ends]
        return [*((w * (1.0 - broken), q) for w, q in ends), *always]

    def link_cause(self, pair: Pair, seen_from: str) -> float:
        """Probability that the link fails a run, from the pair's runs but one, the end `seen_from` taken as good."""
        other = pair[0] if pair[1] == seen_from else pair[1]
        tally = self.evidence.tallies[pair]
        if tally.fails == 1 and tally.passes == 0:
            return self.link_prior_cause
        ends = [(w, q) for q, w in zip(self._states(pair), self.cause[other, seen_from], strict=True)]
        factors = self._link_factors(Tally(tally.fails - 1, tally.passes), self._or_shared(pair, ends))
        return cause_probability(self.grid, LINK_PRIOR, factors)

    def factors(self, node: str) -> tuple[list[float], dict[str, list[float]]]:
        """Likelihood ratios of `node` per rate: over all its runs, and of each failed pair alone.

        Failures with one partner count once: repeating a pair says something about the link, not about an end.
        """
        total = list(self.base[node])
        each: dict[str, list[float]] = {}
        for mate in self.adjacency[node]:
            pair = pair_of(node, mate)
            link = self.link_cause(pair, node)
            nothing = (1.0 - self._mean(mate, node)) * (1.0 - link) * (1.0 - self._shared_cause(pair))
            innocent = 1.0 - (1.0 - self.spurious) * nothing
            each[mate] = [fail_factor(q, innocent) for q in self._states(pair)[1:]]
            total = [t * f for t, f in zip(total, each[mate], strict=True)]
        return total, each

    def sweep(self) -> None:
        """One update of all messages and of the spurious failure rate.

        Shared parts first, the widest before the others, or the trunks of a domain would hide its way out. Where they
        explain much, the nodes behind them need no explanation of their own. Nodes that are really bad are told from
        them by runs elsewhere, which remain suspects' due in any case.
        """
        for part in (Part.SPINE, Part.RACK, Part.UPLINK, Part.TRUNK):
            for shared in (s for s in self.shared_runs if s.part is part):
                self._sweep_shared(shared)
        updated: dict[tuple[str, str], list[float]] = {}
        for node in self.adjacency:
            total, each = self.factors(node)
            for mate, factor in each.items():
                pair = pair_of(node, mate)
                passes = self.evidence.tallies[pair].passes
                with_mate = self._pass_factors(passes, passes if pair in self.crossing else 0)
                others = [t / f / w for t, f, w in zip(total, factor, with_mate, strict=True)]
                updated[node, mate] = self._posterior(node, others)
        self.cause = updated
        self.spurious = spurious_rate(self._by_chance(), self.total_runs)

    def _shared_factors(self, shared: Shared) -> tuple[list[float], dict[Pair, list[float]]]:
        """Logarithms of the likelihood ratios per rate: of all runs over it, and of each failed pair alone."""
        runs = self.shared_runs[shared]
        total = [min(runs.passes, COUNT_LIMIT) * math.log1p(-q) for q in self.grid.rates]
        each: dict[Pair, list[float]] = {}
        for pair in runs.failed:
            a, b = pair
            nothing = (1.0 - self._mean(a, b)) * (1.0 - self._mean(b, a)) * (1.0 - self.link_prior_cause)
            innocent = 1.0 - (1.0 - self.spurious) * nothing * (1.0 - self._shared_cause(pair, shared))
            each[pair] = [math.log(fail_factor(q, innocent)) for q in self.grid.rates]
            total = [t + f for t, f in zip(total, each[pair], strict=True)]
        return total, each

    def _sweep_shared(self, shared: Shared) -> None:
        total, each = self._shared_factors(shared)
        prior = PRIORS[shared.part]
        for pair, factor in each.items():
            others = [_exp(t - f) for t, f in zip(total, factor, strict=True)]
            self.shared[shared, pair] = cause_probability(self.grid, prior, others)

    def _unweighed_trunk(self, pair: Pair) -> list[float]:
        """Weight of a bad trunk, per rate, as the cause of failures of one pair while few pairs over it failed.

        Empty when the pair is all there is between its domains.
        """
        one, other = sorted(self.domains[end] for end in pair)
        if min(self.members[one], self.members[other]) < 2:
            return []
        passes = self.between.get((one, other), 0) - self.evidence.tallies[pair].passes
        good = [(1.0 - q) ** min(passes, COUNT_LIMIT) for q in self.grid.rates]
        return [PRIORS[Part.TRUNK] * w * g for w, g in zip(self.grid.weights, good, strict=True)]

    def _by_chance(self) -> float:
        """Failures put down to chance. (A run that a bad node fails may have failed by chance as well.)"""
        by_chance = 0.0
        for pair in self.evidence.failed:
            a, b = pair
            nothing_else = (1.0 - self._mean(a, b)) * (1.0 - self._mean(b, a)) * (1.0 - self.link_cause(pair, a))
            nothing_else *= 1.0 - self._shared_cause(pair)
            responsible = self.spurious / (1.0 - (1.0 - self.spurious) * nothing_else)
            by_chance += self.evidence.tallies[pair].fails * responsible
        return by_chance

    def judgement(self) -> Judgement:
        nodes: dict[str, float] = {}
        network: list[str] = []
        for v in sorted(self.adjacency):
            weighted = [w * f for w, f in zip(self._weights(v), self.factors(v)[0], strict=True)]
            half = len(self.grid.rates)
            # Before any run across domains every node has the ratio of its share; only what failures add counts,
            # or a node that met a bad one out there would need a pass there that nobody else needs.
            unseen = [w * b for w, b in zip(self._weights(v), self.base[v], strict=True)][half:]
            outside = max(0.0, sum(weighted[half:]) - sum(unseen))
            nodes[v] = sum(weighted[:half]) + outside
            if outside > sum(weighted[:half]):
                network.append(v)
        links: dict[Pair, float] = {}
        odds: dict[Pair, float] = {}
        rivals: dict[Pair, float] = {}
        cause: dict[Pair, float] = {}
        for pair in self.evidence.failed:
            links[pair], odds[pair], rivals[pair], cause[pair] = self._judge_link(pair)
        shared = {s: mixture(self.grid, [_exp(f) for f in self._shared_factors(s)[0]]) for s in self.shared_runs}
        return Judgement(
            self.spurious, nodes, links, odds, rivals, cause, self.grid, shared, self.shared_runs, frozenset(network)
        )

    def _judge_link(self, pair: Pair) -> tuple[float, float, float, float]:
        """Ratio, odds, rival rate and cause of one pair, see `Judgement`."""
        tally = self.evidence.tallies[pair]
        pointed = Tally(tally.fails + self.evidence.group_fails.get(pair, 0), tally.passes)
        a, b = self._rival(pair[0], pair[1]), self._rival(pair[1], pair[0])
        ratio = mixture(self.grid, self._link_factors(tally, [(1.0, 0.0)]))
        rates = self._states(pair)
        ends = [
            (wa * wb, 1.0 - (1.0 - qa) * (1.0 - qb))
            for qa, wa in zip(rates, a, strict=True)
            for qb, wb in zip(rates, b, strict=True)
            if wa * wb > 0.0
        ]
        cause = cause_probability(self.grid, LINK_PRIOR, self._link_factors(tally, self._or_shared(pair, ends)))
        bad_link = LINK_PRIOR * mixture(self.grid, self._link_factors(pointed, [(1.0, 0.0)])) * a[0] * b[0]
        both_good = a[0] * b[0]
        others = [(self._shared_cause(pair) * both_good, ALWAYS)]
        others += [(w * both_good, q) for w, q in zip(self.trunk_odds.get(pair, ()), self.grid.rates, strict=False)]
        rivals = [*ends[1:], *others]
        weights = self._end_factors(pointed, rivals)
        bad_end = max(sum(weights), 1e-280)
        rate = sum(w * q for w, (_, q) in zip(weights, rivals, strict=True)) / bad_end
        return ratio, bad_link / bad_end, rate, cause

    def _rival(self, node: str, mate: str) -> list[float]:
        """Distribution over the states of an end, as a rival of the link.

        Groups that pass clear an end, and groups that fail are not counted against it, since much may be the cause.
        That is fair while the link explains them. Where it does not, no group counts.
        """
        known = self._beyond_reach(node, mate)
        if not self.evidence.groups_against(node, mate):
            return known
        groups, far = self._groups_passed(node)
        factors = self._pass_factors(min(groups, COUNT_LIMIT), min(far, COUNT_LIMIT))
        weights = [known[0], *(w / f for w, f in zip(known[1:], factors, strict=True))]
        total = sum(weights)
        return [w / total for w in weights]

    def _beyond_reach(self, node: str, mate: str) -> list[float]:
        """Distribution over the states of an end, without those that no further run could tell from a bad link.

        Where `mate` is the only node beyond the domain of `node`, the link and the way out of the node are the same
        thing in pairs. The link is named then, and the verdict on the node says so.
        """
        known = self.cause[node, mate]
        if pair_of(node, mate) not in self.crossing or not only_way(node, mate, self.available, self.domains):
            return known
        told = known[: 1 + len(self.grid.rates)]
        total = sum(told)
        return [*(w / total for w in told), *(0.0 for _ in self.grid.rates)]

    def _end_factors(self, tally: Tally, ends: list[tuple[float, float]]) -> list[float]:
        """Weight of each state of the ends (all but both good) over the likelihood with good ends and a good link."""
        fail, passed = self.spurious, 1.0 - self.spurious
        fails, passes = min(tally.fails, 40), min(tally.passes, COUNT_LIMIT)
        return [
            weight * ((1.0 - passed * (1.0 - rate)) / fail) ** fails * (1.0 - rate) ** passes for weight, rate in ends
        ]


def _exp(value: float) -> float:
    return math.exp(min(value, 270.0))
