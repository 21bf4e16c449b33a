"""Which layer: what failed is run again with NVLink off, and over one NIC at a time.

These runs blame nobody. They only say more about a node, a link or a shared part that is named already, or about a
fleet in which no pair passes at all. The plan must hold the variants (`pair-net`, `pair-rail`); otherwise the layer
stays unknown. Each run has a proven partner, another one each time, and a few proven pairs run the same beside it, so
that its number has something to be compared with, and that a variant which fails for everybody is seen as that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from muster.certify.isolation.plan import Plan, PlannedRun, Request, Role
from muster.certify.isolation.tallies import Pair, Tally, pair_of
from muster.resources.certification import Layer

Key = tuple[tuple[str, ...], str, str]
"""Subject (one node, or the two ends of a path), test, variant."""

ENOUGH_FAILS = 2
MOST_RUNS = 6
"""Runs of one subject in one variant, usable or not, after which it stays undecided."""
CHANCE = 0.05
"""Passes are repeated until a fault at the rate seen so far would have shown with all but this probability."""
CONTROLS = 3
FLEET_PAIRS = 8
"""Pairs that are looked at when no pair of the fleet passes."""
LEAST_FLEET_PAIRS = 3


class Seen(Enum):
    """What a variant did with a subject."""

    PASSES = auto()
    FAILS = auto()
    OPEN = auto()


@dataclass(frozen=True)
class Subject:
    """A node or a path that failed `test` at `rate`, an estimate from its runs."""

    nodes: tuple[str, ...]
    test: str
    rate: float = 1.0
    network: bool = False
    """Known already to fail in what leaves the domain only."""


@dataclass(frozen=True)
class Layers:
    """Runs of variants so far. Dicts are never changed after construction."""

    tallies: Mapping[Key, Tally] = field(default_factory=dict)
    wasted: Mapping[Key, int] = field(default_factory=dict)
    controls: Mapping[tuple[str, str], Tally] = field(default_factory=dict)
    """By test and variant."""

    def seen(self, subject: Subject, test: str, variant: str = "") -> Seen:
        """What the variant says about the subject, once its runs suffice."""
        tally = self.tallies.get((subject.nodes, test, variant), Tally())
        beside = self.controls.get((test, variant), Tally())
        if beside.fails > beside.passes:
            return Seen.OPEN
        if tally.fails >= ENOUGH_FAILS and tally.fails > tally.passes:
            return Seen.FAILS
        if not tally.fails and tally.passes >= _passes_needed(subject.rate):
            return Seen.PASSES
        return Seen.OPEN

    def layer(self, plan: Plan, subject: Subject) -> Layer:
        """The layer at fault as far as the variants tell."""
        net = plan.variant_of(subject.test, "net")
        if subject.network:
            return Layer.NETWORK
        if net is not None:
            match self.seen(subject, net.name):
                case Seen.PASSES:
                    return Layer.NVLINK
                case Seen.FAILS:
                    return Layer.NETWORK
                case Seen.OPEN:
                    pass
        return plan.test(subject.test).layer

    def bad_rails(self, plan: Plan, subject: Subject, rails: int) -> tuple[int, ...]:
        """Rails that fail while others of the subject pass; none when all fail alike or nothing is known."""
        test = plan.variant_of(subject.test, "rail")
        if test is None:
            return ()
        found = [self.seen(subject, test.name, rail_variant(rail)) for rail in range(rails)]
        if Seen.PASSES not in found:
            return ()
        return tuple(rail for rail, seen in enumerate(found) if seen is Seen.FAILS)

    def after(self, run: PlannedRun, subjects: Sequence[Subject], passed: bool | None) -> Layers:
        """The state after one run of a variant."""
        if run.role is Role.CONTROL:
            if passed is None:
                return self
            known = self.controls.get((run.test, run.variant), Tally())
            beside = Tally(known.fails + (not passed), known.passes + passed)
            return replace(self, controls={**self.controls, (run.test, run.variant): beside})
        paths = {s.nodes for s in subjects if len(s.nodes) == 2}
        nodes = run.nodes if run.nodes in paths else run.nodes[:1]
        key = (nodes, run.test, run.variant)
        if passed is None:
            return replace(self, wasted={**self.wasted, key: self.wasted.get(key, 0) + 1})
        known = self.tallies.get(key, Tally())
        return replace(self, tallies={**self.tallies, key: Tally(known.fails + (not passed), known.passes + passed)})

    def requests(
        self, plan: Plan, subjects: Sequence[Subject], rails: int, proven: Sequence[str], avoid: frozenset[Pair]
    ) -> tuple[Request, ...]:
        """Runs wanted in the next round, node-disjoint.

        `proven`: partners, along the topology; empty when nothing passes, the subjects then are compared among
        themselves.
        """
        busy = {name for subject in subjects for name in subject.nodes}
        free = [name for name in proven if name not in busy]
        taken: set[str] = set()
        runs: list[Request] = []
        for subject in subjects:
            step = next(self._open_steps(plan, subject, rails), None)
            if step is None or taken.intersection(subject.nodes):
                continue
            test, variant = step
            nodes = subject.nodes if len(subject.nodes) == 2 else self._with_partner(subject, step, free, avoid)
            if nodes:
                free = [name for name in free if name not in nodes]
                taken.update(nodes)
                runs.append(Request(test, nodes, Role.LAYER, variant))
        for request in list(dict.fromkeys((r.test, r.variant) for r in runs)):
            for _ in range(CONTROLS):
                if len(free) >= 2:
                    runs.append(Request(request[0], (free[0], free[1]), Role.CONTROL, request[1]))
                    free = free[2:]
        return tuple(runs)

    def _open_steps(self, plan: Plan, subject: Subject, rails: int) -> Iterator[tuple[str, str]]:
        """Variants whose answer is open and worth having."""
        net, rail = plan.variant_of(subject.test, "net"), plan.variant_of(subject.test, "rail")
        if net is not None and not subject.network:
            if self._unfinished(subject, net.name, ""):
                yield net.name, ""
                return
            if self.seen(subject, net.name) is not Seen.FAILS:
                return
        if rail is not None and rails > 1:
            for number in range(rails):
                if self._unfinished(subject, rail.name, rail_variant(number)):
                    yield rail.name, rail_variant(number)

    def _unfinished(self, subject: Subject, test: str, variant: str) -> bool:
        return self.seen(subject, test, variant) is Seen.OPEN and self._runs(subject, test, variant) < MOST_RUNS

    def _runs(self, subject: Subject, test: str, variant: str) -> int:
        key = (subject.nodes, test, variant)
        tally = self.tallies.get(key, Tally())
        return tally.fails + tally.passes + self.wasted.get(key, 0)

    def _with_partner(
        self, subject: Subject, step: tuple[str, str], free: Sequence[str], avoid: frozenset[Pair]
    ) -> tuple[str, ...]:
        node = subject.nodes[0]
        mates = [name for name in free if pair_of(node, name) not in avoid]
        return (node, mates[self._runs(subject, *step) % len(mates)]) if mates else ()


def rail_variant(rail: int) -> str:
    """`RunRecord.variant` of a run over one NIC."""
    return f"rail={rail}"


def _passes_needed(rate: float) -> int:
    """Passes after which a fault at `rate` would have shown. At least two, at most `MOST_RUNS`."""
    rate = min(0.95, max(0.05, rate))
    return max(2, min(MOST_RUNS, math.ceil(math.log(CHANCE) / math.log1p(-rate))))


def fleet_rails(layers: Layers, plan: Plan, subjects: Sequence[Subject], rails: int) -> tuple[int, ...]:
    """Rails that fail for every pair looked at, while others pass for every one: a rail switch, no NIC."""
    test = next((plan.variant_of(s.test, "rail") for s in subjects), None)
    if test is None or len(subjects) < LEAST_FLEET_PAIRS:
        return ()
    seen = {
        rail: {layers.seen(subject, test.name, rail_variant(rail)) for subject in subjects} for rail in range(rails)
    }
    if not any(found == {Seen.PASSES} for found in seen.values()):
        return ()
    return tuple(rail for rail, found in seen.items() if found == {Seen.FAILS})
