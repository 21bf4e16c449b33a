"""Disjoint pairs of nodes: the first time along the topology, later of nodes that were not tested together yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from muster.certify.isolation.tallies import Pair, PairEvidence


def along_topology(names: Sequence[str], domains: Mapping[str, str]) -> list[Pair]:
    """Neighbours inside each domain; what is left over in the domains is paired across them. One may be left out."""
    by_domain: dict[str, list[str]] = {}
    for name in names:
        by_domain.setdefault(domains[name], []).append(name)
    pairs: list[Pair] = []
    left: list[str] = []
    for domain in sorted(by_domain):
        members = by_domain[domain]
        pairs += [(members[i], members[i + 1]) for i in range(0, len(members) - 1, 2)]
        if len(members) % 2:
            left.append(members[-1])
    pairs += [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
    return pairs


def untested_pairs(
    tested: PairEvidence, names: Sequence[str], apart: Callable[[str, str], bool] = lambda _a, _b: False
) -> list[Pair]:
    """Pairs that have no conclusive run yet and are not `apart`, taken greedily in the order of `names`."""
    pairs: list[Pair] = []
    waiting = list(names)
    while len(waiting) > 1:
        first = waiting.pop(0)
        index = next(
            (i for i, name in enumerate(waiting) if not tested.tested(first, name) and not apart(first, name)), None
        )
        if index is not None:
            pairs.append((first, waiting.pop(index)))
    return pairs


def passed_pairs(tested: PairEvidence, names: Sequence[str]) -> list[Pair]:
    """Disjoint pairs that ran and never failed, taken greedily in the order of `names`."""
    pairs: list[Pair] = []
    waiting = list(names)
    while len(waiting) > 1:
        first = waiting.pop(0)
        index = next((i for i, name in enumerate(waiting) if tested.only_passed(first, name)), None)
        if index is not None:
            pairs.append((first, waiting.pop(index)))
    return pairs
