"""State of one group test, and the sets of nodes that its runs are made of: covers, halves, fillers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from muster.certify.isolation.likelihood import Grid
from muster.certify.isolation.tallies import Pair, pair_of

Apart = tuple[frozenset[str], frozenset[str]]


class Step(Enum):
    CONFIRM = auto()
    SPLIT = auto()
    CANDIDATES = auto()
    SCALE = auto()
    DONE = auto()


@dataclass(frozen=True)
class Item:
    """Labels that hold a cause; on the bits of `differ` the ends of its link differ."""

    nodes: tuple[int, ...]
    differ: int = 0


@dataclass(frozen=True)
class Tallied:
    fails: int = 0
    passes: int = 0


@dataclass(frozen=True)
class Group:
    """State of one group test in one cell. Dicts are never changed after construction."""

    test: str
    order: tuple[str, ...]
    """All nodes to be covered, in topological order."""
    limit: float
    """Ratio at which a node that fails only in groups is condemned."""
    grid: Grid
    domains: Mapping[str, str] = field(default_factory=dict)
    """Failure domain by node; empty or missing where unknown."""
    step: Step = Step.CONFIRM
    sets: tuple[tuple[str, ...], ...] = ()
    """Sets still to be confirmed, the first one now."""
    links: tuple[Pair, ...] = ()
    """Bad links known: never together in a set."""
    apart: tuple[Apart, ...] = ()
    """Two and two sets of nodes with something broken between them: never together in a set."""
    fails: int = 0
    passes: int = 0
    attempt: int = 0
    labels: Mapping[int, str] = field(default_factory=dict)
    """Node by label, ascending. Labels are spread evenly over the bits, so that each bit splits about in half."""
    bit: int = 0
    agreed: int = 0
    """Bits of the present split in which exactly one half failed."""
    items: tuple[Item, ...] = ()
    candidates: tuple[Pair, ...] = ()
    pointing: int = 0
    """Failed runs that a bad link among the candidates explains, if the whole split spoke of one link only."""
    tried: tuple[Pair, ...] = ()
    size: int = 2
    """Size of the groups in the last split."""
    scale: Mapping[str, Tallied] = field(default_factory=dict)
    scale_open: tuple[str, ...] = ()
    scale_verdicts: Mapping[str, Tallied] = field(default_factory=dict)
    """Nodes condemned in groups, with their runs."""
    confirmed: tuple[frozenset[str], ...] = ()
    """Sets that passed."""
    unresolved: tuple[tuple[str, ...], ...] = ()
    wasted: int = 0
    unmeasured: bool = False
    """The last run gave a number that could not be compared with anything."""
    quartered: int = 0
    """Size of the largest set that could not be judged. Its halves are run instead: they compare with each other."""

    @property
    def covered(self) -> frozenset[str]:
        """Nodes that took part in a set that passed."""
        return frozenset().union(*self.confirmed)

    @property
    def bad(self) -> tuple[str, ...]:
        """Nodes condemned in groups, sorted."""
        return tuple(sorted(self.scale_verdicts))

    @property
    def done(self) -> bool:
        return self.step is Step.DONE


def cover_sets(
    order: Sequence[str], links: Sequence[Pair], confirmed: Sequence[frozenset[str]], apart: Sequence[Apart] = ()
) -> tuple[tuple[str, ...], ...]:
    """Sets that hold every node and every pair of `order` but the bad links, less those inside a confirmed set.

    No set holds nodes of both sides of an entry of `apart`.
    """
    blocks = [tuple(order)]
    for one, other in apart:
        halves: list[tuple[str, ...]] = []
        for block in blocks:
            both = bool(one.intersection(block)) and bool(other.intersection(block))
            parts = [tuple(n for n in block if n not in side) for side in (other, one)] if both else [block]
            halves += [part for part in parts if part not in halves]
        blocks = [b for b in halves if not any(b != c and set(b) <= set(c) for c in halves)]
    sets = [members for block in blocks for members in _cover_block(block, links)]
    return tuple(s for s in dict.fromkeys(sets) if len(s) >= 2 and not any(c.issuperset(s) for c in confirmed))


def _cover_block(order: Sequence[str], links: Sequence[Pair]) -> list[tuple[str, ...]]:
    inside = [pair for pair in links if pair[0] in order and pair[1] in order]
    ends = _vertex_cover(order, inside)
    sets = [tuple(name for name in order if name not in ends)]
    for end in ends:
        beside = {a if b == end else b for a, b in inside if end in (a, b)}
        sets.append(tuple(name for name in order if name == end or (name not in ends and name not in beside)))
    sets += [(a, b) for i, a in enumerate(ends) for b in ends[i + 1 :] if pair_of(a, b) not in inside]
    return sets


def quarter_pairs(members: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """All pairs of quarters, complementary ones side by side: three rounds that exercise every pair of members.

    For a set whose number has no floor and no peer: two halves of one round can be compared with each other. A fault
    that shows only above half the size stays unseen.
    """
    cut = [len(members) * i // 4 for i in range(5)]
    part = [tuple(members[cut[i] : cut[i + 1]]) for i in range(4)]
    return tuple(part[a] + part[b] for a, b in ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)))


def _vertex_cover(order: Sequence[str], links: Sequence[Pair]) -> tuple[str, ...]:
    """Few nodes that touch every bad link: the most burdened first."""
    open_links, ends = list(links), []
    while open_links:
        burden: dict[str, int] = {}
        for a, b in open_links:
            burden[a], burden[b] = burden.get(a, 0) + 1, burden.get(b, 0) + 1
        worst = min((name for name in order if name in burden), key=lambda name: -burden[name])
        ends.append(worst)
        open_links = [pair for pair in open_links if worst not in pair]
    return tuple(ends)


def pairs_outside(group: Group, nodes: Sequence[str]) -> list[Pair]:
    """Each of `nodes` with a partner of another domain, none of them used twice, and no pair that was tried.

    What fails whole groups may be a NIC, or the way out of a domain, that pairs inside the domain do not use.
    """
    inside = frozenset(nodes)
    free = [name for name in group.sets[0] if name not in inside]
    chosen: list[Pair] = []
    used: dict[str, int] = {}
    for name in nodes:
        home = group.domains.get(name, "")
        away = [m for m in free if home and group.domains.get(m, "") not in ("", home)]
        fresh = [m for m in away if pair_of(name, m) not in (*group.tried, *group.links)]
        mate = min(fresh, key=lambda m: used.get(group.domains[m], 0), default=None)
        if mate is not None:
            used[group.domains[mate]] = used.get(group.domains[mate], 0) + 1
            free.remove(mate)
            chosen.append(pair_of(name, mate))
    return chosen


def whole_domains(group: Group, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Of `nodes`, those that are three or more, and at least half, of their domain in the group; by domain."""
    found: dict[str, tuple[str, ...]] = {}
    for domain in sorted({group.domains.get(name, "") for name in nodes} - {""}):
        members = [name for name in group.order if group.domains.get(name, "") == domain]
        named = tuple(name for name in nodes if group.domains.get(name, "") == domain)
        if len(named) >= 3 and 2 * len(named) >= len(members) and len(members) < len(group.order):
            found[domain] = named
    return found


def split_runs(group: Group) -> list[tuple[tuple[str, ...], int, int]]:
    """(nodes, index of the item, value of the bit) of every half of every item, with fillers where asked for."""
    halves = [
        ([n for n in item.nodes if n >> group.bit & 1 == value], index, value)
        for index, item in enumerate(group.items)
        for value in (0, 1)
    ]
    if group.attempt % 2 == 0:
        inside = {n for item in group.items for n in item.nodes}
        fillers = [n for n in group.labels if n not in inside]
        size = (len(group.labels) + 1) // 2 if len(group.items) == 1 else len(group.labels) // len(halves)
        # First fillers that share the bit of the half, so that one item alone is split like the whole set.
        for alike in (True, False):
            for nodes, _, value in halves:
                wanted = [n for n in fillers if (n >> group.bit & 1 == value) is alike]
                chosen = wanted[: max(0, size - len(nodes))] if nodes else []
                nodes += chosen
                taken = set(chosen)
                fillers = [n for n in fillers if n not in taken]
    return [(tuple(group.labels[n] for n in sorted(nodes)), index, value) for nodes, index, value in halves]


def filler_blocks(fillers: Sequence[str], size: int) -> list[list[tuple[str, ...]]]:
    """For each run of a suspect: disjoint blocks of fillers to choose from, about `size` - 1 nodes each.

    A node that fails with all of them is itself the cause unless it has three bad links at least: no two fillers are
    in every block. Four disjoint blocks where there are enough fillers, otherwise the six pairs of four quarters.
    """
    wide = len(fillers) // max(1, size - 1)
    parts = max(4, 2 * wide)
    if len(fillers) < 4:
        return []
    cut = [len(fillers) * i // parts for i in range(parts + 1)]
    part = [tuple(fillers[cut[i] : cut[i + 1]]) for i in range(parts)]
    if parts >= 8:
        whole = [part[i] + part[i + 1] for i in range(0, parts - 1, 2)]
        return [[whole[(place + turn) % len(whole)] for place in range(len(whole))] for turn in range(4)]
    turns = ((0, 1, 2, 3), (2, 3, 0, 1), (0, 2, 1, 3), (1, 3, 0, 2), (0, 3, 1, 2), (1, 2, 0, 3))
    return [[part[a] + part[b], part[c] + part[d]] for a, b, c, d in turns]
