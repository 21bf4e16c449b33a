"""When a fault was seen: sightings that follow each other closely, with equal details, are one burst. Pure.

Bursts are joined by single linkage, so their order of arrival does not matter until there are more than may be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from muster.resources.fault import BURST_LIMIT, Burst


def join(bursts: Iterable[Burst], gap_s: float, limit: int = BURST_LIMIT) -> tuple[Burst, ...]:
    """The bursts, oldest first, those with equal details and at most `gap_s` between them as one; at most `limit`.

    Beyond the limit the two of equal details that lie closest together become one, and when no details are equal, the
    two closest of all with the details they share. The sum of counts is kept.
    """
    gap = timedelta(seconds=gap_s)
    last: dict[tuple[tuple[str, str], ...], int] = {}
    joined: list[Burst] = []
    for burst in sorted(bursts, key=_order):
        kind = _kind(burst)
        before = last.get(kind)
        if before is not None and burst.at - joined[before].until <= gap:
            joined[before] = _one(joined[before], burst)
        else:
            last[kind] = len(joined)
            joined.append(burst)
    while len(joined) > max(1, limit):
        first, second = _closest(joined)
        joined[first] = _one(joined[first], joined.pop(second))
        joined.sort(key=_order)
    return tuple(joined)


def prolonged(bursts: tuple[Burst, ...], by: Burst) -> tuple[Burst, ...]:
    """A state goes on: the latest burst reaches to `by.until`, whatever lies between; counts stay."""
    if not bursts:
        return (by,)
    latest = max(range(len(bursts)), key=lambda n: (bursts[n].until, n))
    old = bursts[latest]
    longer = Burst(at=old.at, until=max(old.until, by.until), count=old.count, details=old.details)
    return (*bursts[:latest], longer, *bursts[latest + 1 :])


def _kind(burst: Burst) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(burst.details.items()))


def _order(burst: Burst) -> tuple[object, ...]:
    return (burst.at, burst.until, _kind(burst), burst.count)


def _one(a: Burst, b: Burst) -> Burst:
    shared = {name: value for name, value in a.details.items() if b.details.get(name) == value}
    return Burst(at=min(a.at, b.at), until=max(a.until, b.until), count=a.count + b.count, details=shared)


def _closest(bursts: list[Burst]) -> tuple[int, int]:
    """Numbers of the two neighbours that become one: of equal details if there are such, else any."""
    last: dict[tuple[tuple[str, str], ...], int] = {}
    pairs: list[tuple[bool, timedelta, int, int]] = []
    for number, burst in enumerate(bursts):
        kind = _kind(burst)
        if kind in last:
            pairs.append((False, burst.at - bursts[last[kind]].until, last[kind], number))
        if number:
            pairs.append((True, burst.at - bursts[number - 1].until, number - 1, number))
        last[kind] = number
    _, _, first, second = min(pairs)
    return first, second
