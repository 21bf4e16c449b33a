"""Group tests: one run over everything that is good so far; if it fails, the node or link behind it is narrowed down.

Labels and bits. The n nodes of a failed group get labels 0..n-1. In round j the group is split by bit j of the label,
and both halves run at the same time. A bad link fails a half when both its ends are in it, so for each bit one learns
the bit of both ends, or (both halves pass) that the ends differ in it. A node that fails only in large groups always
fails its half. After ceil(log2 n) rounds the labels are known but for the differing bits, and the pairs that remain
share no node: all of them are tested in one more round. That is 1 + ceil(log2 n) rounds after the failed run for a
bad link, against 2 log2 n by successive cuts. With several causes both halves may fail; then both are followed.

Two manners of splitting take turns. FILLED keeps the groups as large as the first split (fillers come from the halves
that passed), which a fault that shows only at size needs. BARE takes no fillers, which several bad links need, since
another bad link could reach into the fillers. All runs must exercise every pair of the group (all-to-all) to see
every link.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from muster.certify.isolation.group import (
    Apart,
    Group,
    Item,
    Step,
    Tallied,
    cover_sets,
    filler_blocks,
    pairs_outside,
    quarter_pairs,
    split_runs,
    whole_domains,
)
from muster.certify.isolation.likelihood import Grid, evidence, spurious_rate
from muster.certify.isolation.plan import Request, Role
from muster.certify.isolation.tallies import Pair, pair_of

MAX_ATTEMPTS = 6
"""Times a failing set is narrowed before it is left unresolved."""

STEADY_PASSES = 4
"""Passes in a row that a set needs after it failed twice and narrowing named nothing."""

MAX_WASTED = 4
"""Runs of one set in a row without a usable outcome."""

UNSEEN = 0.01
"""Probability that a proven filler, or a link to it, fails a run; added to the spurious rate."""


def start(
    test: str,
    order: Sequence[str],
    links: Sequence[Pair],
    grid: Grid,
    limit: float,
    apart: Sequence[Apart] = (),
    domains: Mapping[str, str] | None = None,
) -> Group:
    """The state before the first group run over `order`; bad `links` and what is `apart` are never together."""
    group = Group(
        test=test,
        order=tuple(order),
        limit=limit,
        grid=grid,
        domains=domains or {},
        links=tuple(links),
        apart=tuple(apart),
    )
    return _next_set(replace(group, sets=cover_sets(group.order, group.links, (), group.apart)))


# --- the next runs ---


def requests(group: Group, pair_test: str) -> tuple[Request, ...]:
    """Runs wanted in the next round, node-disjoint. `pair_test` looks at single links."""
    match group.step:
        case Step.CONFIRM:
            return tuple(Request(group.test, members, Role.CONFIRM) for members in _together(group.sets))
        case Step.SPLIT:
            return tuple(
                Request(group.test, nodes, Role.SPLIT) for nodes, _, _ in split_runs(group) if len(nodes) >= 2
            )
        case Step.CANDIDATES:
            return tuple(Request(pair_test or group.test, pair, Role.CANDIDATE) for pair in _disjoint(group))
        case Step.SCALE:
            return _scale_runs(group)
        case Step.DONE:
            return ()
    assert_never(group.step)


def _together(sets: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The first set, and others that share no node with it or with each other."""
    chosen: list[tuple[str, ...]] = []
    busy: set[str] = set()
    for members in sets:
        if not busy.intersection(members):
            chosen.append(members)
            busy.update(members)
    return chosen


def _disjoint(group: Group) -> tuple[Pair, ...]:
    """As many candidate pairs as fit into one round."""
    chosen: list[Pair] = []
    busy: set[str] = set()
    for pair in group.candidates:
        if not busy.intersection(pair):
            chosen.append(pair)
            busy.update(pair)
    return tuple(chosen)


def _scale_runs(group: Group) -> tuple[Request, ...]:
    """First the fillers alone (they must pass together), then suspects among them; see `filler_blocks`."""
    fillers = _fillers(group)
    if not _proven_together(group, fillers):
        return (Request(group.test, fillers, Role.CONTROL),) if len(fillers) >= 2 else ()
    runs = []
    for place, suspect in enumerate(_at_once(group, fillers)):
        tally = group.scale[suspect]
        block = filler_blocks(fillers, group.size)[tally.fails + tally.passes]
        runs.append(Request(group.test, (suspect, *block[place % len(block)]), Role.SCALE))
    return tuple(runs)


def _fillers(group: Group) -> tuple[str, ...]:
    return tuple(name for name in group.sets[0] if name not in group.scale)


def _proven_together(group: Group, fillers: Sequence[str]) -> bool:
    return any(members.issuperset(fillers) for members in group.confirmed)


def _at_once(group: Group, fillers: Sequence[str]) -> tuple[str, ...]:
    """Suspects that find disjoint fillers in one round."""
    blocks = filler_blocks(fillers, group.size)
    return group.scale_open[: len(blocks[0])] if blocks else ()


# --- outcomes ---


def after(group: Group, results: Mapping[tuple[str, ...], bool | None]) -> Group:
    """The state after one round. `results`: by nodes of the run; None for a run without a usable outcome."""
    match group.step:
        case Step.CONFIRM:
            return _settle(_after_confirm(group, results))
        case Step.SPLIT:
            return _settle(_after_split(group, results))
        case Step.CANDIDATES:
            tested = {pair_of(*nodes) for nodes, ok in results.items() if ok is not None and len(nodes) == 2}
            wasted = group.wasted + (not tested)
            left = tuple(pair for pair in group.candidates if pair_of(*pair) not in tested)
            if wasted > MAX_WASTED:
                left = ()
            return replace(group, candidates=left, wasted=0 if tested else wasted)
        case Step.SCALE:
            return _after_scale(group, results)
        case Step.DONE:
            return group
    assert_never(group.step)


def _settle(group: Group) -> Group:
    """Skip splits that need no run because every half has less than two nodes."""
    while group.step is Step.SPLIT and all(len(nodes) < 2 for nodes, _, _ in split_runs(group)):
        group = _after_split(group, {})
    return group


def _after_confirm(group: Group, results: Mapping[tuple[str, ...], bool | None]) -> Group:
    first = group.sets[0]
    passed = results.get(first)
    others = [members for members in group.sets[1:] if results.get(members)]
    group = replace(
        group,
        sets=(first, *(members for members in group.sets[1:] if members not in others)),
        confirmed=(*group.confirmed, *(frozenset(members) for members in others)),
    )
    if passed is None:
        if group.wasted >= MAX_WASTED:
            return _give_up(group)
        if group.unmeasured and len(first) >= 4 and 4 * len(first) > 3 * group.quartered:
            halves = [h for h in quarter_pairs(first) if not any(c.issuperset(h) for c in group.confirmed)]
            size = max(group.quartered, len(first))
            return _next_set(replace(group, sets=(*halves, *group.sets[1:]), quartered=size))
        return replace(group, wasted=group.wasted + 1)
    group = replace(group, wasted=0, fails=group.fails + (not passed), passes=group.passes + passed)
    if passed and group.passes >= (STEADY_PASSES if group.attempt else 1):
        confirmed = (*group.confirmed, frozenset(first))
        return _next_set(replace(group, confirmed=confirmed, sets=group.sets[1:], attempt=0))
    return _narrow(group) if group.fails >= 2 and not passed else group


def _narrow(group: Group) -> Group:
    """Start a new attempt on the present set; the first along the topology, later ones with other labels."""
    if group.attempt >= MAX_ATTEMPTS:
        return _give_up(group)
    members = group.sets[0]
    if len(members) == 2:
        pair = pair_of(*members)
        if pair in group.tried:
            return _give_up(group)
        return replace(group, step=Step.CANDIDATES, candidates=(pair,), tried=(*group.tried, pair))
    names = list(members)
    if group.attempt:
        random.Random(f"labels/{group.test}/{group.attempt}/{len(names)}").shuffle(names)  # noqa: S311
    bits = (len(names) - 1).bit_length()
    labels = {(i << bits) // len(names): name for i, name in enumerate(names)}
    everything = Item(tuple(labels))
    start_of_split = replace(group, candidates=(), agreed=0, pointing=0, wasted=0)
    return replace(start_of_split, step=Step.SPLIT, labels=labels, bit=bits - 1, items=(everything,))


def _after_split(group: Group, results: Mapping[tuple[str, ...], bool | None]) -> Group:
    runs = split_runs(group)
    outcomes = [results.get(nodes) if len(nodes) >= 2 else True for nodes, _, _ in runs]
    if any(outcome is None for outcome in outcomes):
        # A half without an outcome is repeated with the others of its round: a split needs both sides.
        return replace(group, wasted=group.wasted + 1) if group.wasted < MAX_WASTED else _give_up(group)
    items: list[Item] = []
    agreed = group.agreed + (sum(1 for ok in outcomes if not ok) == 1)
    for index, item in enumerate(group.items):
        failed = [value for (_, i, value), ok in zip(runs, outcomes, strict=True) if i == index and not ok]
        halves = [Item(tuple(n for n in item.nodes if n >> group.bit & 1 == v), item.differ) for v in failed]
        items += halves or [Item(item.nodes, item.differ | 1 << group.bit)]
    group = replace(group, items=tuple(items), bit=group.bit - 1, agreed=agreed, wasted=0)
    return group if group.bit >= 0 else _leaves(group)


def _leaves(group: Group) -> Group:
    """All bits are known: what is left are single nodes, or pairs whose labels differ in known bits."""
    nodes: list[str] = []
    pairs: list[Pair] = []
    for item in group.items:
        inside = set(item.nodes)
        if item.differ:
            pairs += [
                pair_of(group.labels[n], group.labels[n ^ item.differ])
                for n in item.nodes
                if n < n ^ item.differ and n ^ item.differ in inside
            ]
        else:
            nodes += [group.labels[n] for n in item.nodes]
    fresh = tuple(p for p in dict.fromkeys(pairs) if p not in group.links)
    open_nodes = tuple(n for n in dict.fromkeys(nodes) if n not in group.bad)
    outside = pairs_outside(group, open_nodes)
    return replace(
        group,
        step=Step.CANDIDATES if fresh or outside else Step.SCALE,
        pointing=group.agreed + group.fails if len(group.items) == 1 and fresh else 0,
        candidates=(*fresh, *outside),
        tried=(*group.tried, *outside),
        size=max(2, len(group.labels) // (2 * len(group.items))),
        scale={n: Tallied() for n in open_nodes},
        scale_open=open_nodes,
    )


def _after_scale(group: Group, results: Mapping[tuple[str, ...], bool | None]) -> Group:
    fillers = _fillers(group)
    control = results.get(fillers)
    if control:
        return replace(group, confirmed=(*group.confirmed, frozenset(fillers)), wasted=0)
    if fillers in results:
        # Twice without a pass: the fillers prove nothing, so neither do runs of suspects among them.
        group = replace(group, wasted=group.wasted + 1)
        return replace(group, scale_open=(), wasted=0) if group.wasted >= 2 else group
    tallies, still = dict(group.scale), list(group.scale_open)
    conclusive = False
    for nodes, ok in sorted(results.items()):
        if ok is None or nodes[0] not in group.scale_open:
            continue
        conclusive = True
        name, known = nodes[0], tallies[nodes[0]]
        tallies[name] = Tallied(known.fails + (not ok), known.passes + ok)
        if ok or tallies[name].fails == len(filler_blocks(fillers, group.size)):
            still.remove(name)
    wasted = 0 if conclusive else group.wasted + 1
    if wasted > MAX_WASTED:
        still = []
    group = replace(group, scale=tallies, scale_open=tuple(still), wasted=wasted)
    return group if still else _with_scale_verdicts(group, len(filler_blocks(fillers, group.size)))


def _with_scale_verdicts(group: Group, runs: int) -> Group:
    """Condemn the nodes that failed with all fillers, unless a domain they share explains that as well."""
    named = [
        name
        for name, tally in group.scale.items()
        if tally.fails == runs and not tally.passes and scale_ratio(group.grid, tally) >= group.limit
    ]
    domains = whole_domains(group, named)
    shadowed = {name for members in domains.values() for name in members}
    bad = {**group.scale_verdicts, **{name: group.scale[name] for name in named if name not in shadowed}}
    if shadowed:
        group = _next_set(
            replace(group, unresolved=(*group.unresolved, *domains.values()), sets=_without(group, shadowed))
        )
    return replace(group, scale_verdicts=bad)


def _without(group: Group, names: set[str]) -> tuple[tuple[str, ...], ...]:
    sets = [tuple(n for n in members if n not in names) for members in group.sets]
    return tuple(s for s in sets if len(s) >= 2 and not any(c.issuperset(s) for c in group.confirmed))


def scale_ratio(grid: Grid, tally: Tallied) -> float:
    """Likelihood ratio of a node that fails only in large groups, from its runs among proven fillers."""
    return evidence(grid, tally.fails, tally.passes, spurious_rate(0, 0) + UNSEEN)


def resume(group: Group, links: Sequence[Pair], lost: frozenset[str], apart: Sequence[Apart] = ()) -> Group:
    """Continue once pairs are quiet. `links`, `apart`: all that is known now; `lost`: nodes condemned or gone.

    A set that holds something newly found is replaced by sets without it; a set that explains nothing new is narrowed
    again.
    """
    if group.done:
        return group
    gone = lost.union(group.bad)
    learned = (
        any(pair not in group.links for pair in links)
        or any(sides not in group.apart for sides in apart)
        or any(name in gone for members in group.sets for name in members)
    )
    if learned:
        order = tuple(name for name in group.order if name not in gone)
        sets = cover_sets(order, tuple(links), group.confirmed, apart)
        return _next_set(replace(group, order=order, links=tuple(links), apart=tuple(apart), attempt=0, sets=sets))
    if group.step is Step.CANDIDATES and not group.candidates:
        return replace(group, step=Step.SCALE) if group.scale_open else _again(group)
    if group.step is Step.SCALE and not (group.scale_open and _scale_runs(group)):
        return _again(group)
    return group


def _again(group: Group) -> Group:
    """The attempt named nothing: look at the whole set once more, then narrow in the other manner."""
    if group.attempt + 1 >= MAX_ATTEMPTS:
        return _give_up(group)
    return replace(group, step=Step.CONFIRM, attempt=group.attempt + 1, fails=1, passes=0, items=(), wasted=0)


def _give_up(group: Group) -> Group:
    return _next_set(replace(group, unresolved=(*group.unresolved, group.sets[0]), sets=group.sets[1:], attempt=0))


def _next_set(group: Group) -> Group:
    step = Step.CONFIRM if group.sets else Step.DONE
    return replace(group, step=step, fails=0, passes=0, items=(), candidates=(), scale={}, scale_open=(), wasted=0)
