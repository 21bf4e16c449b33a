"""Counts of what pairs did. Runs are facts: a pair failed or passed so and so often, in whatever order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

Pair = tuple[str, str]

GROUP_FAILS_LIMIT = 8
"""Failed group runs that count at most, since their cause is inferred and not seen."""


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
    group_passed: tuple[frozenset[str], ...] = ()
    """Groups that passed in a run that uses every link in them."""
    group_failed: tuple[frozenset[str], ...] = ()
    """Groups that failed, whatever the cause."""
    network: Mapping[str, Tally] = field(default_factory=dict)
    """Runs of each node with NVLink off inside its domain."""
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
        known = self.group_passed
        return replace(self, tallies=tallies, passes=passes, group_passed=(*known, frozenset(members)))

    def with_group_fail(self, nodes: Iterable[str]) -> PairEvidence:
        """The evidence with one failed run over a whole group."""
        return replace(self, group_failed=(*self.group_failed, frozenset(nodes)))

    def with_network_run(self, nodes: Iterable[str], passed: bool) -> PairEvidence:
        """The evidence with one run of nodes of one domain with NVLink off."""
        network = dict(self.network)
        for name in nodes:
            known = network.get(name, Tally())
            network[name] = Tally(known.fails + (not passed), known.passes + passed)
        return replace(self, network=network)

    def network_passes(self, node: str) -> int:
        """Passes with NVLink off. None count once one failed: such a node is not to be cleared by them."""
        tally = self.network.get(node, Tally())
        return 0 if tally.fails else tally.passes

    def groups_against(self, node: str, mate: str) -> bool:
        """Whether a group without `mate` failed with `node` in it, and with no pair in it that ever failed."""
        return any(
            node in group and mate not in group and not any(group.issuperset(pair) for pair in self.failed)
            for group in self.group_failed
        )

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
