"""Node-local tests and pairs: which runs a cell needs next, and what its evidence says so far.

Every node goes its own way: while one repeats a failed local test, the others are paired. Per round a node takes part
in at most one run. Suspects come first (each with a proven partner of its own), then failed pairs whose ends pass
elsewhere, then nodes that were not paired often enough.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from muster.certify.isolation.evidence import (
    NODE_PRIOR,
    PARTNER_PRIOR,
    Judgement,
    Pair,
    PairEvidence,
    Tally,
    judge,
    pair_of,
)
from muster.certify.isolation.likelihood import CLEARED, Grid, evidence, grid_for, spurious_rate
from muster.certify.isolation.limits import Limits
from muster.certify.isolation.matching import along_topology, passed_pairs, untested_pairs
from muster.certify.isolation.plan import Cell, Plan, Request, Role

MAX_INCONCLUSIVE = 4
"""Runs without a usable outcome after which a node is given up."""

MAX_SEED_MATCHINGS = 6
"""Further matchings tried while nobody is proven good: no pair passed yet, or too few runs did."""

LINK_OPEN_FROM = 0.02
"""A link stays in question while it is at least this likely to make the next run of its pair fail."""


NO_PAIRS = PairEvidence()


@dataclass(frozen=True)
class Screening:
    """State of one cell as far as single nodes and pairs go. Dicts are never changed after construction."""

    plan: Plan
    cell: Cell
    local: Mapping[tuple[str, str], Tally] = field(default_factory=dict)
    """Tallies by (node, test)."""
    pairs: PairEvidence = NO_PAIRS
    inconclusive: Mapping[str, int] = field(default_factory=dict)
    wasted: Mapping[Pair, int] = field(default_factory=dict)
    """Runs of a pair without a usable outcome: others are tried first."""
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
        return judge(self.pairs, self.grid, priors)

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
        """The test was passed, and failures that it may have had are put down to chance."""
        tally = self.local.get((node, test), Tally())
        return tally.passes > 0 and (tally.fails == 0 or self.local_ratio(node, test) <= CLEARED)

    def local_failed(self, node: str) -> str:
        """The local test that condemns the node, or an empty string."""
        failed = (t.name for t in self.plan.local_tests() if self.local.get((node, t.name), Tally()).fails)
        return next((name for name in failed if self.local_ratio(node, name) >= self.limits.local), "")

    def pair_failed(self, node: str) -> bool:
        """Condemned by pairs: enough evidence, and failures with two partners at least."""
        ratio = self.judgement.nodes.get(node)
        if ratio is None or ratio < self.limits.pair:
            return False
        return self._failed_mates[node] >= 2

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
            and all(end not in self.condemned and self.pairs.passes_without(end, _other(pair, end)) for end in pair)
        )

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
        if node in self.condemned or node in self.given_up or node in self._suspected:
            return False
        if not all(self.local_done(node, t.name) for t in self.plan.local_tests()) and node not in self._borrowed:
            return False
        return self.plan.pair_test() is None or node in self._borrowed or self.pairs.passes.get(node, 0) > 0

    def _in_play(self, node: str) -> bool:
        return node not in self.condemned and node not in self.given_up

    @cached_property
    def _ready(self) -> tuple[str, ...]:
        """Nodes that passed their local tests and may be paired, in plan order."""
        tests = self.plan.local_tests()
        return tuple(
            name
            for name in (*self.targets, *self.partners)
            if self._in_play(name) and (name in self._borrowed or all(self.local_done(name, t.name) for t in tests))
        )

    # --- the next runs ---

    def requests(self, rng: random.Random) -> tuple[Request, ...]:
        """Runs wanted in the next round, node-disjoint; none when singles and pairs have nothing left to say."""
        runs = self._local_requests()
        test = self.plan.pair_test()
        if test is None:
            return tuple(runs)
        busy = {node for run in runs for node in run.nodes}
        pairs = [*self._reruns(busy), *self._with_partners(busy), *self._matching(busy, rng)]
        if not pairs and not runs:
            pairs = self._seed_matching(rng)
        return (*runs, *(Request(test.name, pair, role) for pair, role in pairs))

    def _local_requests(self) -> list[Request]:
        runs = []
        for node in self.targets:
            if not self._in_play(node):
                continue
            todo = next((t.name for t in self.plan.local_tests() if not self.local_done(node, t.name)), None)
            if todo is not None:
                runs.append(Request(todo, (node,), Role.LOCAL))
        return runs

    @cached_property
    def open_links(self) -> tuple[Pair, ...]:
        """Failed pairs whose ends pass elsewhere: is it the link, an end, or was it chance?"""
        found = []
        for pair in self.pairs.failed:
            if pair in self.bad_links or not all(self._in_play(end) for end in pair):
                continue
            if not all(self.pairs.passes_without(end, _other(pair, end)) for end in pair):
                continue
            tally = self.pairs.tallies[pair]
            first = tally.fails + tally.passes == 1 and any(end in self._suspected for end in pair)
            # An end with several failed partners is looked at with new partners first: two bad links are rarer.
            if (first and all(self._failed_mates[end] == 1 for end in pair)) or (
                self.judgement.link_cause[pair] >= LINK_OPEN_FROM
            ):
                found.append(pair)
        return tuple(found)

    def _wants_rerun(self, pair: Pair) -> bool:
        """Repeat the pair, or rather test its ends elsewhere? Whatever is further from its limit."""
        against_chance = math.log(max(self.judgement.links[pair], 1.0)) / math.log(self.limits.link)
        against_ends = math.log(max(self.judgement.link_odds[pair], 1.0)) / math.log(self.limits.link_odds)
        return against_chance <= against_ends or against_ends >= 1.0

    def _reruns(self, busy: set[str]) -> list[tuple[Pair, Role]]:
        """Open links that are repeated now."""
        chosen: list[tuple[Pair, Role]] = []
        for pair in self.open_links:
            if self._wants_rerun(pair) and not any(end in busy for end in pair):
                busy.update(pair)
                chosen.append((pair, Role.RERUN))
        return chosen

    def _with_partners(self, busy: set[str]) -> list[tuple[Pair, Role]]:
        """Each suspect with its own proven partner, one that it was not tested with before if there is one."""
        chosen: list[tuple[Pair, Role]] = []
        free = [name for name in self.proven if name not in busy]
        use = {name: len(self.pairs.mates.get(name, ())) for name in free}
        ready = frozenset(self._ready)
        ends = {end for pair in self.open_links for end in pair}
        for suspect in sorted({*self.suspects, *ends}, key=lambda s: (-self.judgement.nodes[s], s)):
            if suspect in busy or suspect not in ready:
                continue
            best = min(
                (
                    (self._pair_runs(suspect, name), use[name], self._far(suspect, name), index)
                    for index, name in enumerate(free)
                    if name not in busy and name != suspect and pair_of(suspect, name) not in self.bad_links
                ),
                default=None,
            )
            if best is None:
                continue
            if best[0] > 0 and self._failed_with(suspect, free[best[3]]):
                # Only a partner with whom it failed before is left; repeating that tells nothing about the node.
                continue
            busy.update((suspect, free[best[3]]))
            chosen.append(((suspect, free[best[3]]), Role.PARTNER))
        return chosen

    def _matching(self, busy: set[str], rng: random.Random) -> list[tuple[Pair, Role]]:
        """Disjoint pairs of nodes that were not paired often enough; the first time along the topology."""
        waiting = [
            name
            for name in self._ready
            if name not in self._borrowed
            and name not in busy
            and name not in self._suspected
            and self._wants_pair(name)
        ]
        # After a run without an outcome: with a proven node, so that the trouble does not stay in one pair.
        troubled = [name for name in waiting if self.inconclusive.get(name)]
        calm = [name for name in waiting if not self.inconclusive.get(name)]
        fresh = [name for name in calm if not self.pairs.mates.get(name)]
        again = [name for name in calm if self.pairs.mates.get(name)]
        rng.shuffle(again)
        chosen = along_topology(fresh, self.domains)
        matched = {name for pair in chosen for name in pair}
        left = [name for name in fresh if name not in matched]
        chosen += untested_pairs(self.pairs, [*left, *again])
        taken = {name for pair in chosen for name in pair}
        spare = [name for name in self.proven if name not in busy and name not in taken]
        rng.shuffle(spare)
        spare.sort(key=lambda name: len(self.pairs.mates.get(name, ())))
        for name in waiting:
            if name in taken or name in spare:
                continue
            untested = [m for m in spare if m not in taken and not self.pairs.tested(name, m)]
            mate = min(untested, key=lambda m: self.wasted.get(pair_of(name, m), 0), default=None)
            if mate is not None:
                taken.update((name, mate))
                chosen.append((name, mate))
        chosen += untested_pairs(self.pairs, [name for name in troubled if name not in taken])
        return [(pair, Role.SCREEN) for pair in chosen]

    def _wants_pair(self, name: str) -> bool:
        """Too few partners so far, and somebody is left that it was not tested with."""
        mates = self.pairs.mates.get(name, ())
        if len(mates) >= self.plan.matchings:
            return False
        return len(self._ready) - 1 > sum(1 for m in mates if m in self._ready)

    def _seed_matching(self, rng: random.Random) -> list[tuple[Pair, Role]]:
        """Nobody is proven good yet: other pairs among the suspects, in the hope that one passes.

        When all pairs were tried, those that always passed are repeated: each further pass speaks for both ends. So
        two good nodes clear each other whose only failures were with a bad third one.
        """
        if not self.suspects or self.seed_matchings >= MAX_SEED_MATCHINGS or self.proven:
            return []
        stuck = list(self._ready)
        rng.shuffle(stuck)
        pairs = untested_pairs(self.pairs, stuck) or passed_pairs(self.pairs, stuck)
        return [(pair, Role.SCREEN) for pair in pairs]

    def _pair_runs(self, a: str, b: str) -> int:
        tally = self.pairs.tallies.get(pair_of(a, b), Tally())
        return tally.fails + tally.passes + self.wasted.get(pair_of(a, b), 0)

    def _failed_with(self, a: str, b: str) -> bool:
        tally = self.pairs.tallies.get(pair_of(a, b))
        return tally is not None and tally.fails > 0

    def _far(self, a: str, b: str) -> bool:
        return self.domains[a] != self.domains[b]

    # --- outcomes ---

    def after(
        self,
        local: Iterable[tuple[str, str, bool]],
        pairs: Iterable[tuple[str, str, bool]],
        inconclusive: Iterable[str],
        wasted_pairs: Iterable[Pair] = (),
    ) -> Screening:
        """The state after one round: local runs (node, test, passed), pair runs (a, b, passed), wasted runs.

        `inconclusive` names a node once for each wasted run that is counted for it.
        """
        tallies = dict(self.local)
        for node, test, passed in local:
            known = tallies.get((node, test), Tally())
            tallies[node, test] = Tally(known.fails + (not passed), known.passes + passed)
        wasted = dict(self.inconclusive)
        pairs_wasted = dict(self.wasted)
        for pair in wasted_pairs:
            pairs_wasted[pair] = pairs_wasted.get(pair, 0) + 1
        gone = dict(self.given_up)
        for node in sorted(inconclusive):
            wasted[node] = wasted.get(node, 0) + 1
            if wasted[node] >= MAX_INCONCLUSIVE and node not in gone:
                gone[node] = f"{wasted[node]} runs with this node ended without a usable outcome"
        return replace(
            self,
            local=tallies,
            pairs=self.pairs.with_runs(pairs),
            inconclusive=wasted,
            wasted=pairs_wasted,
            given_up=gone,
            seed_matchings=self.seed_matchings + (not self.proven and bool(self.suspects)),
        )

    def with_group_pass(self, nodes: Sequence[str]) -> Screening:
        """The state after a group passed whose run exercises every link in it."""
        return replace(self, pairs=self.pairs.with_group_pass(nodes))

    def with_group_fails(self, pairs: Sequence[Pair], fails: int) -> Screening:
        """The state after group runs failed in a way that a bad link among `pairs` explains."""
        return replace(self, pairs=self.pairs.with_group_fails(pairs, fails))

    def without(self, node: str, why: str) -> Screening:
        """The state with `node` out of the game."""
        return replace(self, given_up={**self.given_up, node: why})


def _other(pair: Pair, end: str) -> str:
    return pair[0] if pair[1] == end else pair[1]
