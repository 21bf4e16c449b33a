"""What many paths share: the trunk between two domains, the way out of a domain, a whole rack.

A shared part is a hypothesis only when several disjoint pairs failed that run over it; one failed pair is a link.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from muster.certify.isolation.tallies import Pair, PairEvidence

LEAST_FAILED = 3
"""Failed pairs without a common node from which on a shared part is thought of at all."""


class Part(StrEnum):
    TRUNK = "trunk"
    """Between domains `a` and `b`; nothing inside them."""
    UPLINK = "uplink"
    """Whatever leaves domain `a`; nothing inside it."""
    RACK = "rack"
    """Everything that has an end in domain `a`."""
    SPINE = "spine"
    """Everything between domains, whichever; nothing inside them. Without `a`."""


@dataclass(frozen=True, order=True)
class Shared:
    """One shared part. `b` is empty but for trunks; of a trunk `a` < `b`."""

    part: Part
    a: str
    b: str = ""

    def holds(self, one: str, other: str) -> bool:
        """Whether a run between a node of domain `one` and a node of domain `other` uses it."""
        match self.part:
            case Part.TRUNK:
                return (one, other) in ((self.a, self.b), (self.b, self.a))
            case Part.UPLINK:
                return one != other and self.a in (one, other)
            case Part.RACK:
                return self.a in (one, other)
            case Part.SPINE:
                return bool(one) and bool(other) and one != other


PRIORS: Mapping[Part, float] = {Part.TRUNK: 0.0005, Part.UPLINK: 0.0005, Part.RACK: 0.0005, Part.SPINE: 0.0005}
"""Probability of each before any run."""


def parts_of(one: str, other: str) -> tuple[Shared, ...]:
    """Every shared part that a run between the two domains uses. Nodes without a domain share nothing."""
    if one == other:
        return (Shared(Part.RACK, one),) if one else ()
    found = [Shared(part, d) for d in sorted((one, other)) if d for part in (Part.RACK, Part.UPLINK)]
    if one and other:
        found += [Shared(Part.TRUNK, *sorted((one, other))), Shared(Part.SPINE, "")]
    return tuple(found)


@dataclass(frozen=True)
class SharedRuns:
    """What pairs say about one shared part."""

    failed: tuple[Pair, ...]
    """Pairs over it that failed at least once, sorted."""
    passes: int


def passes_between(evidence: PairEvidence, domains: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Passed pair runs by the domains of the two nodes, the lesser first."""
    found: dict[tuple[str, str], int] = {}
    for (a, b), tally in evidence.tallies.items():
        if tally.passes:
            one, other = domains.get(a, ""), domains.get(b, "")
            key = (one, other) if one <= other else (other, one)
            found[key] = found.get(key, 0) + tally.passes
    return found


def worth_weighing(evidence: PairEvidence, domains: Mapping[str, str]) -> dict[Shared, SharedRuns]:
    """Shared parts that the failures could point at, with their runs."""
    failed: dict[Shared, list[Pair]] = {}
    for pair in evidence.failed:
        for shared in parts_of(domains.get(pair[0], ""), domains.get(pair[1], "")):
            failed.setdefault(shared, []).append(pair)
    if len(set(domains.values()) - {""}) < 2:
        return {}
    found = {s: pairs for s, pairs in sorted(failed.items()) if _many(s, pairs, domains, evidence.passes)}
    if not found:
        return {}
    passes = dict.fromkeys(found, 0)
    for between, count in passes_between(evidence, domains).items():
        for shared in parts_of(*between):
            if shared in passes:
                passes[shared] += count
    for members in evidence.group_passed:
        inside = sorted({domains.get(name, "") for name in members})
        for shared in passes:
            passes[shared] += any(shared.holds(a, b) for i, a in enumerate(inside) for b in inside[i:])
    runs = {shared: SharedRuns(tuple(pairs), passes[shared]) for shared, pairs in found.items()}
    # A rack, or a way out, is thought of as broken only while nothing ever passed there: what works for some has bad
    # nodes or bad trunks.
    return {shared: r for shared, r in runs.items() if shared.part is Part.TRUNK or not r.passes}


def _many(shared: Shared, pairs: list[Pair], domains: Mapping[str, str], passes: Mapping[str, int]) -> bool:
    """Whether enough pairs failed that nothing else explains: pairs of nodes that pass elsewhere.

    Of a rack no node passes, so there it is enough that the nodes outside do that its nodes failed with.
    """
    if shared.part is Part.RACK:
        leaving = [p for p in pairs if any(domains.get(end) != shared.a and passes.get(end) for end in p)]
        return disjoint(leaving) >= LEAST_FAILED and any(domains.get(a) == domains.get(b) for a, b in pairs)
    sound = [pair for pair in pairs if all(passes.get(end) for end in pair)]
    if disjoint(sound) < LEAST_FAILED:
        return False
    match shared.part:
        case Part.TRUNK:
            return True
        case Part.SPINE:
            # Failures that all have one domain in common are its way out.
            return not set.intersection(*({domains.get(a, ""), domains.get(b, "")} for a, b in sound))
        case Part.UPLINK:
            # Failures towards one other domain only are its trunk, so those towards the others must be enough.
            ends = [domains.get(b if domains.get(a) == shared.a else a, "") for a, b in sound]
            most = max(sorted(set(ends)), key=ends.count)
            others = [pair for pair, end in zip(sound, ends, strict=True) if end != most]
            return disjoint(others) >= LEAST_FAILED - 1
    assert_never(shared.part)


def only_way(node: str, mate: str, available: Collection[str], domains: Mapping[str, str]) -> bool:
    """Whether no available node but `mate` lies beyond the domain of `node`."""
    home = domains.get(node, "")
    return not any(name != mate and domains.get(name, "") not in ("", home) for name in available)


def disjoint(pairs: list[Pair] | tuple[Pair, ...]) -> int:
    """How many of the pairs share no node, taken greedily in their order."""
    busy: set[str] = set()
    count = 0
    for a, b in pairs:
        if a not in busy and b not in busy:
            busy.update((a, b))
            count += 1
    return count
