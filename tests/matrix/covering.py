"""Covering arrays: few rows in which every combination of a few axes appears at least once. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

Row = tuple[int, ...]
"""One value of each axis, as indices."""

CANDIDATES = 12
"""Rows that are tried for each row that is taken."""


def wanted(sizes: Sequence[int], groups: Sequence[tuple[int, ...]]) -> set[tuple[tuple[int, ...], Row]]:
    """All combinations of values of the axes of each group."""
    return {(g, values) for g in groups for values in product(*(range(sizes[axis]) for axis in g))}


def groups_of(axes: int, strength: int, also: Sequence[tuple[int, ...]] = ()) -> list[tuple[int, ...]]:
    """All groups of `strength` axes, and those of `also`."""
    return [*combinations(range(axes), strength), *also]


def covered(row: Row, groups: Sequence[tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], Row]]:
    """The combinations that `row` covers."""
    for group in groups:
        yield group, tuple(row[axis] for axis in group)


def covering_rows(sizes: Sequence[int], groups: Sequence[tuple[int, ...]], seed: int = 1) -> list[Row]:
    """Rows that cover every combination of values of the axes of each group of `groups`.

    Greedy: each row starts with a combination that is missing, and fills its other axes with the values that cover
    most of what is missing; the best of a few tries is taken. `sizes` has the number of values of each axis.
    """
    drawn = random.Random(seed)
    missing = wanted(sizes, groups)
    order = sorted(missing)
    drawn.shuffle(order)
    touching = [[g for g in groups if axis in g] for axis in range(len(sizes))]
    rows: list[Row] = []
    for start in order:
        if start not in missing:
            continue
        tries = [_filled(start, sizes, touching, missing, drawn) for _ in range(CANDIDATES)]
        best = max(tries, key=lambda row: sum(1 for c in covered(row, groups) if c in missing))
        rows.append(best)
        missing.difference_update(covered(best, groups))
    return rows


def _filled(
    start: tuple[tuple[int, ...], Row],
    sizes: Sequence[int],
    touching: Sequence[Sequence[tuple[int, ...]]],
    missing: set[tuple[tuple[int, ...], Row]],
    drawn: random.Random,
) -> Row:
    values: dict[int, int] = dict(zip(*start, strict=True))
    rest = [axis for axis in range(len(sizes)) if axis not in values]
    drawn.shuffle(rest)
    for axis in rest:
        ready = [g for g in touching[axis] if all(a == axis or a in values for a in g)]
        gains = []
        for value in range(sizes[axis]):
            full: Mapping[int, int] = {**values, axis: value}
            gain = sum(1 for g in ready if (g, tuple(full[a] for a in g)) in missing)
            gains.append((gain, drawn.random(), value))
        values[axis] = max(gains)[2]
    return tuple(values[axis] for axis in range(len(sizes)))
