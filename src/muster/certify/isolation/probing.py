"""Is it the link, or what many links share? Further pairs over the same trunk or out of the same domain.

They share no node with the failed pair or with each other, so they go in the round in which that pair is repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.certify.isolation.shared import PRIORS, Part, Shared, disjoint
from muster.certify.isolation.tallies import Pair, PairEvidence, pair_of

SIBLINGS = 3
"""Other pairs over the trunk that are tested before a link between two domains is named."""
MOST_PROBES = 12
"""Pairs over one shared part after which no further one is asked for."""
AT_ONCE = 4
WORTH_A_LOOK = 0.001
"""A shared part is looked at while it is at least this likely to be broken."""


def broken(
    shared: Mapping[Shared, float],
    failed: Mapping[Shared, Sequence[Pair]],
    limit: float,
    passed: Iterable[tuple[str, str]],
) -> tuple[Shared, ...]:
    """Shared parts that are bad beyond the allowed error, sorted.

    `failed`: pairs over each that failed; `passed`: the domains of the two nodes of every pair that passed. A part is
    named only where what lies around it works: a trunk when both its ends pass with a third domain (inside
    themselves, when no third one works), a way out when other domains pass with each other, a rack when
    something outside it passes.
    """
    between = sorted(set(passed))
    working = {d for pair in between for d in pair}
    leaving = {(d, e) for one, other in between if one != other for d, e in ((one, other), (other, one))}
    found = []
    for part, ratio in shared.items():
        if ratio < limit or disjoint(tuple(failed[part])) < SIBLINGS:
            continue
        if part.part is Part.SPINE:
            around = bool(working)
        elif part.part is Part.UPLINK:
            around = any(part.a not in pair for pair in leaving)
        elif part.part is Part.RACK:
            around = bool(working - {part.a})
        elif working - {part.a, part.b}:
            around = all(any(d == end and e not in (part.a, part.b) for d, e in leaving) for end in (part.a, part.b))
        else:
            around = part.a in working and part.b in working
        if around:
            found.append(part)
    # The wider part explains the narrower one.
    racks = {s.a for s in found if s.part is Part.RACK}
    ways = racks | {s.a for s in found if s.part is Part.UPLINK}
    spine = any(s.part is Part.SPINE for s in found)
    return tuple(sorted(s for s in found if not _explained(s, spine, racks, ways)))


def _explained(shared: Shared, spine: bool, racks: set[str], ways: set[str]) -> bool:
    match shared.part:
        case Part.SPINE | Part.RACK:
            return False
        case Part.UPLINK:
            return spine or shared.a in racks
        case Part.TRUNK:
            return spine or bool(ways.intersection((shared.a, shared.b)))


@dataclass(frozen=True)
class Probe:
    """Further pairs over `shared` that are worth a run; of those out of a domain none towards `not_to`."""

    shared: Shared
    count: int
    not_to: str = ""


def wanted(
    links: Mapping[Pair, int],
    weighed: Mapping[Shared, float],
    named: Sequence[Shared],
    evidence: PairEvidence,
    domains: Mapping[str, str],
) -> list[Probe]:
    """What to test further. `links`: pairs in question as single bad links, and how many siblings each is to have."""
    ask: dict[tuple[Shared, str], int] = {}
    # Nodes of a rack in doubt are suspects, which get partners outside it anyway.
    weighed = {s: ratio for s, ratio in weighed.items() if s not in named and s.part is not Part.RACK}
    doubtful = [s for s, ratio in weighed.items() if PRIORS[s.part] * ratio >= WORTH_A_LOOK]
    for (a, b), siblings in links.items():
        one, other = sorted((domains[a], domains[b]))
        if one and other and one != other:
            ask[Shared(Part.TRUNK, one, other), ""] = 1 + siblings
    for shared in doubtful:
        ask[shared, ""] = MOST_PROBES
        if shared.part is Part.TRUNK:
            # Is it this trunk, or everything that leaves one of the two domains?
            ask[Shared(Part.UPLINK, shared.a), shared.b] = 2 * SIBLINGS
            ask[Shared(Part.UPLINK, shared.b), shared.a] = 2 * SIBLINGS
        if shared.part in (Part.TRUNK, Part.UPLINK):
            # Or does nothing pass between domains at all?
            ask[Shared(Part.SPINE, ""), shared.a] = SIBLINGS
    if not ask:
        return []
    between = Counter((domains[a], domains[b]) for a, b in evidence.tallies)
    tested = {
        (shared, not_to): sum(n for (one, other), n in between.items() if _over(shared, not_to, one, other))
        for shared, not_to in ask
    }
    return [
        Probe(shared, min(AT_ONCE, most - tested[shared, not_to]), not_to)
        for (shared, not_to), most in sorted(ask.items())
        if most > tested[shared, not_to]
    ]


def _over(shared: Shared, not_to: str, one: str, other: str) -> bool:
    return one != other and shared.holds(one, other) and (not not_to or not_to not in (one, other))


def pairs_over(probe: Probe, free: Sequence[str], evidence: PairEvidence, domains: Mapping[str, str]) -> list[Pair]:
    """Disjoint pairs of `free` nodes for the probe that were not tested yet, in the order of `free`.

    Out of a domain they go to different domains where there are several.
    """
    left = list(free)
    used: dict[str, int] = {}
    chosen: list[Pair] = []
    for name in free:
        home = domains[name]
        if len(chosen) == probe.count:
            break
        if name not in left or (probe.shared.a and home != probe.shared.a):
            continue
        mates = [
            m for m in left if _over(probe.shared, probe.not_to, home, domains[m]) and not evidence.tested(name, m)
        ]
        mate = min(mates, key=lambda m: used.get(domains[m], 0), default=None)
        if mate is not None:
            used[domains[mate]] = used.get(domains[mate], 0) + 1
            left = [m for m in left if m not in (name, mate)]
            chosen.append(pair_of(name, mate))
    return chosen
