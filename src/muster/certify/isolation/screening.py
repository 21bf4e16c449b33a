"""Node-local tests and pairs: which runs a cell needs next.

Every node goes its own way: while one repeats a failed local test, the others are paired. Per round a node takes part
in at most one run. Suspects come first (each with a proven partner of its own), then failed pairs whose ends pass
elsewhere, then nodes that were not paired often enough.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from muster.certify.isolation.findings import MAX_INCONCLUSIVE, Findings, mate_in
from muster.certify.isolation.matching import along_topology, passed_pairs, untested_pairs
from muster.certify.isolation.plan import Request, Role
from muster.certify.isolation.probing import MOST_PROBES, SIBLINGS, pairs_over, wanted
from muster.certify.isolation.tallies import Pair, Tally, pair_of

MAX_SEED_MATCHINGS = 6
"""Further matchings tried while nobody is proven good: no pair passed yet, or too few runs did."""

LINK_OPEN_FROM = 0.02
"""A link stays in question while it is at least this likely to make the next run of its pair fail."""

END_CLEARED = 0.001
"""An end of a failed pair is no rival of the link once its ratio fell to this."""

RARE_RIVAL = 0.5
"""A pass elsewhere speaks against an end with rate q by 1 - q, a failure of the pair by q."""


@dataclass(frozen=True)
class Screening(Findings):
    """State of one cell as far as single nodes and pairs go, and what follows from it."""

    # --- the next runs ---

    def requests(self, rng: random.Random) -> tuple[Request, ...]:
        """Runs wanted in the next round, node-disjoint; none when singles and pairs have nothing left to say."""
        runs = self._local_requests()
        test = self.plan.pair_test()
        if test is None:
            return tuple(runs)
        busy = {node for run in runs for node in run.nodes}
        pairs = self._reruns(busy)
        partners = self._with_partners(busy)
        pairs += [*self._last_reruns(busy), *self._shared_probes(busy), *self._matching(busy, rng)]
        if not pairs and not partners and not runs:
            pairs = self._seed_matching(rng)
        return (*runs, *partners, *(Request(test.name, pair, role) for pair, role in pairs))

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
            if self.parted(*pair) or not all(self.pairs.passes_without(end, mate_in(pair, end)) for end in pair):
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
        """Repeat the pair, or rather test its ends elsewhere? Whatever is further from its limit.

        Where the ends were tested with everybody, a rival that fails less than half of the runs is told from the link
        sooner by repeating the pair.
        """
        against_chance = math.log(max(self.judgement.links[pair], 1.0)) / math.log(self.limits.link)
        against_ends = math.log(max(self.judgement.link_odds[pair], 1.0)) / math.log(self.limits.link_odds)
        if against_chance <= against_ends or against_ends >= 1.0 or not self._doubtful_ends(pair):
            return True
        if self.judgement.rival_rate[pair] >= RARE_RIVAL or any(self._failed_mates[end] > 1 for end in pair):
            return False
        return not any(self._has_new_partner(end) for end in pair)

    def _has_new_partner(self, end: str) -> bool:
        """Whether a proven node is left that it was not tested with, and that could tell something about it."""
        outside = end in self.judgement.network_only
        return any(
            name != end and not self.pairs.tested(end, name) and (self._far(end, name) or not outside)
            for name in self.proven
        )

    def _doubtful_ends(self, pair: Pair) -> list[str]:
        """Ends that further partners could still say something about."""
        return [end for end in pair if self.judgement.nodes.get(end, 0.0) > END_CLEARED]

    def _reruns(self, busy: set[str]) -> list[tuple[Pair, Role]]:
        """Open links that are repeated now."""
        chosen: list[tuple[Pair, Role]] = []
        for pair in self.open_links:
            if self._wants_rerun(pair) and not any(end in busy for end in pair):
                busy.update(pair)
                chosen.append((pair, Role.RERUN))
        return chosen

    def _last_reruns(self, busy: set[str]) -> list[tuple[Pair, Role]]:
        """Open links whose ends find no partner that could say more: repeated, at least, until it was not chance."""
        chosen: list[tuple[Pair, Role]] = []
        for pair in self.open_links:
            if self.judgement.links[pair] < self.limits.link and not any(end in busy for end in pair):
                busy.update(pair)
                chosen.append((pair, Role.RERUN))
        return chosen

    def _shared_probes(self, busy: set[str]) -> list[tuple[Pair, Role]]:
        """Pairs that tell a bad link from a bad trunk, and a trunk from a way out of a domain."""
        # Where only a trunk that fails now and then could still be meant instead, more pairs over it decide.
        links = {
            pair: MOST_PROBES if self.judgement.links[pair] >= self.limits.link else SIBLINGS
            for pair in self.open_links
        }
        probes = wanted(links, self.judgement.shared, self.bad_shared, self.pairs, self.domains)
        chosen: list[tuple[Pair, Role]] = []
        for probe in probes:
            free = [name for name in self._ready if name not in busy and name not in self._suspected]
            free.sort(key=lambda name: len(self.pairs.mates.get(name, ())))
            for pair in pairs_over(probe, free, self.pairs, self.domains):
                busy.update(pair)
                chosen.append((pair, Role.SHARED))
        return chosen

    def _with_partners(self, busy: set[str]) -> list[Request]:
        """Each suspect with its own proven partner, one that it was not tested with before if there is one.

        Who failed outside its domain only is tested there. Where nobody outside is left, it runs with NVLink off
        inside its domain, which needs the network as well; another run over NVLink would tell nothing.
        """
        chosen: list[Request] = []
        test = self.plan.pair_test()
        if test is None:
            return []
        network = self.plan.variant_of(test.name, "net")
        free = [name for name in self.proven if name not in busy]
        use = {name: len(self.pairs.mates.get(name, ())) for name in free}
        ready = frozenset(self._ready)
        ends = {end for pair in self.open_links for end in self._doubtful_ends(pair)}
        for suspect in sorted({*self.suspects, *ends}, key=lambda s: (-self.judgement.nodes[s], s)):
            if suspect in busy or suspect not in ready:
                continue
            outside = suspect in self.judgement.network_only
            mate = self._partner(suspect, [name for name in free if name not in busy], use, outside)
            if mate is None:
                continue
            name = test.name
            if outside and not self._far(suspect, mate):
                if network is None or not self._network_may_tell(suspect):
                    continue
                name = network.name
            busy.update((suspect, mate))
            chosen.append(Request(name, (suspect, mate), Role.PARTNER))
        return chosen

    def _network_may_tell(self, suspect: str) -> bool:
        """Whether a run with NVLink off is worth having: none failed, and not too many came to nothing."""
        failed = self.pairs.network.get(suspect, Tally()).fails
        return not failed and self.network_wasted.get(suspect, 0) < MAX_INCONCLUSIVE

    def _partner(self, suspect: str, free: Sequence[str], use: Mapping[str, int], outside: bool) -> str | None:
        """The partner that says most about the suspect."""
        best = min(
            (
                (outside and not self._far(suspect, name), self._pair_runs(suspect, name), use[name], index)
                for index, name in enumerate(free)
                if name != suspect
                and not self.parted(suspect, name)
                # Repeating a pair that failed before tells something about the link, and nothing about the node.
                and not self._failed_with(suspect, name)
            ),
            default=None,
        )
        return None if best is None else free[best[-1]]

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
        chosen += untested_pairs(self.pairs, [*left, *again], self.parted)
        taken = {name for pair in chosen for name in pair}
        spare = [name for name in self.proven if name not in busy and name not in taken]
        rng.shuffle(spare)
        spare.sort(key=lambda name: len(self.pairs.mates.get(name, ())))
        for name in waiting:
            if name in taken or name in spare:
                continue
            untested = [
                m for m in spare if m not in taken and not self.pairs.tested(name, m) and not self.parted(name, m)
            ]
            mate = min(untested, key=lambda m: self.wasted.get(pair_of(name, m), 0), default=None)
            if mate is not None:
                taken.update((name, mate))
                chosen.append((name, mate))
        chosen += untested_pairs(self.pairs, [name for name in troubled if name not in taken], self.parted)
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
        numbers: Iterable[tuple[str, str, float]] = (),
    ) -> Screening:
        """The state after one round: local runs (node, test, passed), pair runs (a, b, passed), wasted runs, numbers.

        `inconclusive` names a node once for each wasted run that is counted for it.
        """
        tallies = dict(self.local)
        for node, test, passed in local:
            known = tallies.get((node, test), Tally())
            tallies[node, test] = Tally(known.fails + (not passed), known.passes + passed)
        measured = dict(self.numbers)
        for node, test, value in numbers:
            measured[node, test] = (*measured.get((node, test), ()), value)
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
            numbers=measured,
            pairs=self.pairs.with_runs(pairs),
            inconclusive=wasted,
            wasted=pairs_wasted,
            given_up=gone,
            seed_matchings=self.seed_matchings + (not self.proven and bool(self.suspects)),
        )

    def with_group_pass(self, nodes: Sequence[str]) -> Screening:
        """The state after a group passed whose run exercises every link in it."""
        return replace(self, pairs=self.pairs.with_group_pass(nodes))

    def with_network_run(self, nodes: Sequence[str], passed: bool | None) -> Screening:
        """The state after two nodes of one domain ran with NVLink off; None for a run without a usable outcome."""
        if passed is not None:
            return replace(self, pairs=self.pairs.with_network_run(nodes, passed))
        wasted = {name: self.network_wasted.get(name, 0) + 1 for name in nodes}
        return replace(self, network_wasted={**self.network_wasted, **wasted})

    def with_group_fail(self, nodes: Sequence[str]) -> Screening:
        """The state after a group failed, whatever the cause."""
        return replace(self, pairs=self.pairs.with_group_fail(nodes))

    def with_group_fails(self, pairs: Sequence[Pair], fails: int) -> Screening:
        """The state after group runs failed in a way that a bad link among `pairs` explains."""
        return replace(self, pairs=self.pairs.with_group_fails(pairs, fails))

    def without(self, node: str, why: str) -> Screening:
        """The state with `node` out of the game."""
        return replace(self, given_up={**self.given_up, node: why})
