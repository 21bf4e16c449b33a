"""Whether the steps of one log belong to one job: two jobs in one log leap to and fro between their own numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_TRACKS: Final = 8
FAR: Final = 20
"""Steps; ranks of one job are never so far apart."""
FAR_GAPS: Final = 3
NEARER: Final = 5
"""Times nearer to another track than to the one in hand: a step of that other one."""
LEAST_RETURNS: Final = 4
LEAST_SHARE: Final = 0.2
"""Of the step lines. A restart goes back once, and does not return."""


@dataclass
class Tracks:
    """Takes the numbers of steps as they are written (`add`); `mixed` says whether there are several jobs."""

    _last: list[int] = field(default_factory=list)
    """The last number of each track, the one in hand at the end."""
    _gap: int | None = None
    _returns: int = 0
    _count: int = 0

    @property
    def mixed(self) -> bool:
        """True when the log went back to an earlier track, and on in it, again and again."""
        return self._returns >= max(LEAST_RETURNS, LEAST_SHARE * self._count)

    def add(self, number: int) -> None:
        self._count += 1
        if not self._last:
            self._last.append(number)
            return
        distance = abs(number - self._last[-1])
        far = distance > max(FAR, FAR_GAPS * (self._gap or 1))
        if far and (other := self._nearer(number, distance)) is not None:
            self._returns += 1
            self._last.pop(other)
            self._last.append(number)
        elif far and number < self._last[-1]:
            self._last = [*self._last[1 - MAX_TRACKS :], number]
        elif number > self._last[-1]:
            self._gap = min(distance, self._gap or distance)
            self._last[-1] = number

    def _nearer(self, number: int, distance: int) -> int | None:
        others = [(number - last, place) for place, last in enumerate(self._last[:-1]) if number > last]
        nearest = min(others, default=None)
        return nearest[1] if nearest is not None and nearest[0] * NEARER < distance else None
