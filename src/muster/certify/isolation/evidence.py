"""Evidence from pairs: which nodes and which links explain the runs that failed.

Runs are facts: a pair failed or passed so and so often. A failed run has several possible causes (an end, the link
between them, chance), so the causes are weighed against each other by passing messages along failed pairs: how likely
is it that the other end, judged by its other runs alone, was the cause? Nothing depends on the order of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.certify.isolation.likelihood import (
    CLEARED,
    Grid,
    cause_probability,
    fail_factor,
    mixture,
    spurious_rate,
)

Pair = tuple[str, str]

NODE_PRIOR = 0.01
PARTNER_PRIOR = 0.002
LINK_PRIOR = 0.001
SWEEPS = 5
GROUP_FAILS_LIMIT = 8
"""Failed group runs that count at most, since their cause is inferred and not seen."""
COUNT_LIMIT = 60
"""Passes beyond this add nothing but floating point underflow."""


@dataclass(frozen=True)
class Tally:
    fails: int = 0
    passes: int = 0


def pair_of(a: str, b: str) -> Pair:
    return (a, b) if a <= b else (b, a)


@dataclass(frozen=True)
class PairEvidence:
    """Counts of conclusive pair runs. The dicts are never changed after construction."""

    tallies: Mapping[Pair, Tally] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    mates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Partners that each node was tested with, in no order that matters."""
    failed: tuple[Pair, ...] = ()
    """Pairs with at least one failure, sorted."""
    group_fails: Mapping[Pair, int] = field(default_factory=dict)
    """Failed group runs that pointed at the pair and at neither end: all with both ends failed, others passed."""

    def with_runs(self, runs: Iterable[tuple[str, str, bool]]) -> PairEvidence:
        """The evidence with further runs (two nodes, passed or not) added."""
        tallies, passes, mates = dict(self.tallies), dict(self.passes), dict(self.mates)
        failed = set(self.failed)
        for a, b, passed in runs:
            pair = pair_of(a, b)
            known = tallies.get(pair)
            if known is None:
                known = Tally()
                mates[a] = (*mates.get(a, ()), b)
                mates[b] = (*mates.get(b, ()), a)
            if passed:
                tallies[pair] = Tally(known.fails, known.passes + 1)
                passes[a] = passes.get(a, 0) + 1
                passes[b] = passes.get(b, 0) + 1
            else:
                tallies[pair] = Tally(known.fails + 1, known.passes)
                failed.add(pair)
        return replace(self, tallies=tallies, passes=passes, mates=mates, failed=tuple(sorted(failed)))

    def with_group_pass(self, nodes: Iterable[str]) -> PairEvidence:
        """The evidence with one passed run over a whole group that exercises all its links."""
        members = set(nodes)
        passes = dict(self.passes)
        for name in members:
            passes[name] = passes.get(name, 0) + 1
        tallies = dict(self.tallies)
        for pair in self.failed:
            if members.issuperset(pair):
                tallies[pair] = Tally(tallies[pair].fails, tallies[pair].passes + 1)
        return replace(self, tallies=tallies, passes=passes)

    def with_group_fails(self, pairs: Iterable[Pair], fails: int) -> PairEvidence:
        """The evidence with `fails` failed group runs that a bad link of any of `pairs` explains, and no bad end."""
        return replace(self, group_fails={**self.group_fails, **dict.fromkeys(pairs, min(fails, GROUP_FAILS_LIMIT))})

    def passes_without(self, node: str, mate: str) -> int:
        tally = self.tallies.get(pair_of(node, mate))
        return self.passes.get(node, 0) - (tally.passes if tally else 0)

    def tested(self, a: str, b: str) -> bool:
        return pair_of(a, b) in self.tallies

    def only_passed(self, a: str, b: str) -> bool:
        """Whether the pair ran and never failed."""
        tally = self.tallies.get(pair_of(a, b))
        return tally is not None and tally.passes > 0 and tally.fails == 0


@dataclass(frozen=True)
class Judgement:
    """What the pair evidence says. Ratios are bad : good (see `likelihood`)."""

    spurious: float
    nodes: Mapping[str, float]
    """Ratio of every node that has a failed run."""
    links: Mapping[Pair, float]
    """Ratio of every pair that has a failed run, both ends taken as good: a bad link against chance."""
    link_odds: Mapping[Pair, float]
    """How much likelier a bad link is than a bad end as the cause of the pair's failures, priors included."""
    link_cause: Mapping[Pair, float]
    """Probability that the link makes the next run of the pair fail."""
    grid: Grid

    def suspects(self) -> tuple[str, ...]:
        """Nodes with failed runs that are neither cleared nor explained away, sorted."""
        return tuple(sorted(node for node, ratio in self.nodes.items() if ratio > CLEARED))


def judge(evidence: PairEvidence, grid: Grid, priors: Mapping[str, float]) -> Judgement:
    """Weigh the causes of all failed pairs. `priors`: probability that a node is bad before any run."""
    adjacency: dict[str, list[str]] = {}
    for a, b in evidence.failed:
        adjacency.setdefault(a, []).append(b)
        adjacency.setdefault(b, []).append(a)
    for mates in adjacency.values():
        mates.sort()
    messages = _Messages(evidence, grid, priors, adjacency)
    for _ in range(SWEEPS):
        messages.sweep()
    return messages.judgement()


class _Messages:
    """Working state of `judge`; lives only inside one call.

    A node is good (rate 0) or fails with one of the rates of the grid; `states` lists them. A message is the
    distribution over these states. It is kept whole, not as a mean: that a pair fails time after time is likely if
    one end always fails, and very unlikely if it merely may be bad.
    """

    def __init__(
        self,
        evidence: PairEvidence,
        grid: Grid,
        priors: Mapping[str, float],
        adjacency: dict[str, list[str]],
    ) -> None:
        self.evidence = evidence
        self.grid = grid
        self.priors = priors
        self.adjacency = adjacency
        self.states = (0.0, *grid.rates)
        self.link_prior_cause = cause_probability(grid, LINK_PRIOR, [1.0] * len(grid.rates))
        self.spurious = spurious_rate(0.0, 0.0)
        self.total_runs = sum(t.passes + t.fails for t in evidence.tallies.values())
        self.base = {v: self._pass_factors(evidence.passes.get(v, 0)) for v in adjacency}
        # cause[a, b]: distribution over the states of `a`, judged by its runs without `b`.
        self.cause: dict[tuple[str, str], list[float]] = {}
        for a, b in evidence.failed:
            for one, other in ((a, b), (b, a)):
                self.cause[one, other] = self._posterior(one, self._pass_factors(evidence.passes_without(one, other)))

    def _pass_factors(self, passes: int) -> list[float]:
        return [(1.0 - q) ** min(passes, COUNT_LIMIT) for q in self.grid.rates]

    def _posterior(self, node: str, factors: list[float]) -> list[float]:
        """Distribution over the states of a node, from its likelihood ratios per rate."""
        prior = self.priors.get(node, NODE_PRIOR)
        bad = [prior * w * f for w, f in zip(self.grid.weights, factors, strict=True)]
        total = 1.0 - prior + sum(bad)
        return [(1.0 - prior) / total, *(v / total for v in bad)]

    def _mean(self, a: str, b: str) -> float:
        """Probability that `a`, judged without `b`, makes a run fail."""
        return sum(q * v for q, v in zip(self.states, self.cause[a, b], strict=True))

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

    def link_cause(self, pair: Pair, seen_from: str) -> float:
        """Probability that the link fails a run, from the pair's runs but one, the end `seen_from` taken as good."""
        other = pair[0] if pair[1] == seen_from else pair[1]
        tally = self.evidence.tallies[pair]
        if tally.fails == 1 and tally.passes == 0:
            return self.link_prior_cause
        ends = [(w, q) for q, w in zip(self.states, self.cause[other, seen_from], strict=True)]
        factors = self._link_factors(Tally(tally.fails - 1, tally.passes), ends)
        return cause_probability(self.grid, LINK_PRIOR, factors)

    def factors(self, node: str) -> tuple[list[float], dict[str, list[float]]]:
        """Likelihood ratios of `node` per rate: over all its runs, and of each failed pair alone.

        Failures with one partner count once: repeating a pair says something about the link, not about an end.
        """
        total = list(self.base[node])
        each: dict[str, list[float]] = {}
        for mate in self.adjacency[node]:
            link = self.link_cause(pair_of(node, mate), node)
            innocent = 1.0 - (1.0 - self.spurious) * (1.0 - self._mean(mate, node)) * (1.0 - link)
            each[mate] = [fail_factor(q, innocent) for q in self.grid.rates]
            total = [t * f for t, f in zip(total, each[mate], strict=True)]
        return total, each

    def sweep(self) -> None:
        """One synchronous update of all messages and of the spurious failure rate."""
        updated: dict[tuple[str, str], list[float]] = {}
        for node in self.adjacency:
            total, each = self.factors(node)
            for mate, factor in each.items():
                with_mate = self._pass_factors(self.evidence.tallies[pair_of(node, mate)].passes)
                others = [t / f / w for t, f, w in zip(total, factor, with_mate, strict=True)]
                updated[node, mate] = self._posterior(node, others)
        self.cause = updated
        self.spurious = spurious_rate(self._by_chance(), self.total_runs)

    def _by_chance(self) -> float:
        """Failures put down to chance. (A run that a bad node fails may have failed by chance as well.)"""
        by_chance = 0.0
        for pair in self.evidence.failed:
            a, b = pair
            nothing_else = (1.0 - self._mean(a, b)) * (1.0 - self._mean(b, a)) * (1.0 - self.link_cause(pair, a))
            responsible = self.spurious / (1.0 - (1.0 - self.spurious) * nothing_else)
            by_chance += self.evidence.tallies[pair].fails * responsible
        return by_chance

    def judgement(self) -> Judgement:
        nodes = {v: mixture(self.grid, self.factors(v)[0]) for v in sorted(self.adjacency)}
        links: dict[Pair, float] = {}
        odds: dict[Pair, float] = {}
        cause: dict[Pair, float] = {}
        for pair in self.evidence.failed:
            tally = self.evidence.tallies[pair]
            pointed = Tally(tally.fails + self.evidence.group_fails.get(pair, 0), tally.passes)
            a, b = self.cause[pair], self.cause[pair[1], pair[0]]
            links[pair] = mixture(self.grid, self._link_factors(tally, [(1.0, 0.0)]))
            ends = [
                (wa * wb, 1.0 - (1.0 - qa) * (1.0 - qb))
                for qa, wa in zip(self.states, a, strict=True)
                for qb, wb in zip(self.states, b, strict=True)
            ]
            factors = self._link_factors(tally, ends)
            cause[pair] = cause_probability(self.grid, LINK_PRIOR, factors)
            bad_link = LINK_PRIOR * mixture(self.grid, self._link_factors(pointed, [(1.0, 0.0)])) * a[0] * b[0]
            bad_end = sum(self._end_factors(pointed, ends[1:]))
            odds[pair] = bad_link / max(bad_end, 1e-280)
        return Judgement(self.spurious, nodes, links, odds, cause, self.grid)

    def _end_factors(self, tally: Tally, ends: list[tuple[float, float]]) -> list[float]:
        """Weight of each state of the ends (all but both good) over the likelihood with good ends and a good link."""
        fail, passed = self.spurious, 1.0 - self.spurious
        fails, passes = min(tally.fails, 40), min(tally.passes, COUNT_LIMIT)
        return [
            weight * ((1.0 - passed * (1.0 - rate)) / fail) ** fails * (1.0 - rate) ** passes for weight, rate in ends
        ]
