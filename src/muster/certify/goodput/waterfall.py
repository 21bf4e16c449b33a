"""The rows of a goodput waterfall: from wall time, less each kind of loss, to productive time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.read.training.interval_log import SECOND_US, IntervalLog, Kind

ORDER: Final = (
    Kind.QUEUED,
    Kind.STARTUP,
    Kind.RESTART,
    Kind.RECOMPUTED,
    Kind.CHECKPOINT,
    Kind.STALLED,
    Kind.UNKNOWN,
    Kind.PRODUCTIVE,
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One row. It spans [`from_s`, `to_s`] of the wall time; `share` is its part of it, 0 to 1."""

    kind: Kind
    from_s: float
    to_s: float
    share: float
    causes: tuple[tuple[str, float], ...] = ()
    """Seconds per cause, the largest first; what has no cause is left out."""

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s


def waterfall(log: IntervalLog) -> tuple[Bar, ...]:
    """One bar for each kind that occurs, the losses first: each begins where the one before ended, and productive
    time, always there, is last and ends at zero. A log without time has no bars."""
    if not log.wall_us:
        return ()
    parts, causes = log.parts_us(), log.causes_us()
    bars = []
    left_us = log.wall_us
    for kind in ORDER:
        length = parts[kind]
        if not length and kind is not Kind.PRODUCTIVE:
            continue
        named = [(cause, us / SECOND_US) for (of, cause), us in causes.items() if of is kind and cause]
        named.sort(key=lambda pair: (-pair[1], pair[0]))
        low = (left_us - length) / SECOND_US
        bars.append(Bar(kind, low, left_us / SECOND_US, length / log.wall_us, tuple(named)))
        left_us -= length
    return tuple(bars)
