"""Deployment order: Kahn's algorithm with an alphabetical ready set, and levels by longest path."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

import msgspec

from muster.errors import BadInputError


class Order(msgspec.Struct, frozen=True):
    """`sequence` respects every edge; `levels[i]` holds (sorted) what may start once all lower levels are up."""

    sequence: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]

    def level_of(self, name: str) -> int:
        return next(at for at, names in enumerate(self.levels) if name in names)


def order(edges: Mapping[str, Collection[str]]) -> Order:
    """Order the keys of `edges` so that each comes after everything in its own entry.

    The result depends on the names and edges alone, not on the order in which they are given. Raises BadInputError
    for a dependency that is not a key, and for a cycle, with its path.
    """
    for name in sorted(edges):
        for needed in sorted(edges[name]):
            if needed not in edges:
                raise BadInputError(
                    f"Component {name[:60]!r} depends on {needed[:60]!r}, which is not part of the recipe; "
                    "add that component or drop the dependency."
                )
    waiting = {name: set(edges[name]) for name in edges}
    dependents: dict[str, list[str]] = {name: [] for name in edges}
    for name in sorted(edges):
        for needed in sorted(set(edges[name])):
            dependents[needed].append(name)
    ready = sorted(name for name in edges if not waiting[name])
    depth = dict.fromkeys(ready, 0)
    sequence: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        sequence.append(name)
        for dependent in dependents[name]:
            waiting[dependent].discard(name)
            depth[dependent] = max(depth.get(dependent, 0), depth[name] + 1)
            if not waiting[dependent]:
                heapq.heappush(ready, dependent)
    if len(sequence) < len(edges):
        path = _cycle({name: sorted(needed) for name, needed in waiting.items() if needed})
        raise BadInputError(f"The dependencies form a cycle: {' -> '.join(path)}; drop one of these edges.")
    count = max(depth.values(), default=-1) + 1
    return Order(tuple(sequence), tuple(tuple(sorted(n for n in sequence if depth[n] == at)) for at in range(count)))


def _cycle(waiting: Mapping[str, list[str]]) -> list[str]:
    """One cycle among names that all still wait for another name of `waiting`; starts at its smallest name."""
    path: list[str] = [min(waiting)]
    while True:
        following = next(needed for needed in waiting[path[-1]] if needed in waiting)
        if following in path:
            loop = path[path.index(following) :]
            start = loop.index(min(loop))
            return [*loop[start:], *loop[:start], loop[start]]
        path.append(following)
