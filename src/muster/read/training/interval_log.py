"""The interval log of one job: where each microsecond of its time went. Pure.

Times are integer microseconds on the job's own clock, so the parts add up to the wall time exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

SECOND_US: Final = 1_000_000


class Kind(StrEnum):
    """What the time of a job went to."""

    PRODUCTIVE = "productive"
    STARTUP = "startup"
    CHECKPOINT = "checkpoint"
    RESTART = "restart"
    """From an interruption to the first step after it."""
    RECOMPUTED = "recomputed"
    """Steps that had been done before an interruption."""
    STALLED = "stalled"
    QUEUED = "queued"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Interval:
    """From `start_us` up to, not including, `end_us`.

    `attempt` counts starts of the program from 0. `running` is False while nothing of the job runs (queue, between an
    interruption and the next start). `mfu` is the share of the peak FLOP rate reached in it, None when not known.
    """

    start_us: int
    end_us: int
    kind: Kind
    cause: str = ""
    attempt: int = 0
    running: bool = True
    mfu: float | None = None

    @property
    def length_us(self) -> int:
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True, order=True)
class Save:
    """A checkpoint that was complete at `at_us`."""

    at_us: int
    step: int = -1


@dataclass(frozen=True)
class IntervalLog:
    """A partition of [`start_us`, `end_us`) in order of time. Made by `interval_log`."""

    start_us: int
    end_us: int
    intervals: tuple[Interval, ...]
    saves: tuple[Save, ...] = ()

    @property
    def wall_us(self) -> int:
        return self.end_us - self.start_us

    def parts_us(self) -> dict[Kind, int]:
        """Microseconds per kind; every kind is there, and they add up to the wall time."""
        sums = dict.fromkeys(Kind, 0)
        for interval in self.intervals:
            sums[interval.kind] += interval.length_us
        return sums

    def causes_us(self) -> dict[tuple[Kind, str], int]:
        """Microseconds per kind and cause, in order of kind and name."""
        sums: dict[tuple[Kind, str], int] = {}
        for interval in self.intervals:
            key = (interval.kind, interval.cause)
            sums[key] = sums.get(key, 0) + interval.length_us
        order = list(Kind)
        return dict(sorted(sums.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))

    @property
    def interruptions(self) -> int:
        """Starts of the program after the first."""
        return len({interval.attempt for interval in self.intervals}) - 1 if self.intervals else 0


def interval_log(
    intervals: Iterable[Interval], saves: Iterable[Save] = (), start_us: int | None = None, end_us: int | None = None
) -> IntervalLog:
    """The log of `intervals` in any order. Gaps become `unknown`; empty intervals vanish.

    Without `start_us` and `end_us` the log reaches from the first to the last interval. Raises ValueError when
    intervals overlap, end before they start, or lie outside.
    """
    ordered = sorted((i for i in intervals if i.length_us != 0), key=lambda i: (i.start_us, i.end_us))
    first = ordered[0].start_us if start_us is None and ordered else start_us or 0
    last = max(i.end_us for i in ordered) if end_us is None and ordered else end_us if end_us is not None else first
    if last < first or any(i.length_us < 0 or i.start_us < first or i.end_us > last for i in ordered):
        raise ValueError("an interval ends before it starts or lies outside of the log")
    if any(later.start_us < earlier.end_us for earlier, later in pairwise(ordered)):
        raise ValueError("intervals of one job overlap")
    filled: list[Interval] = []
    cursor, attempt = first, 0
    for interval in ordered:
        if interval.start_us > cursor:
            filled.append(Interval(cursor, interval.start_us, Kind.UNKNOWN, "not-told", attempt))
        filled.append(interval)
        cursor, attempt = interval.end_us, interval.attempt
    if cursor < last:
        filled.append(Interval(cursor, last, Kind.UNKNOWN, "not-told", attempt))
    return IntervalLog(first, last, tuple(filled), tuple(sorted(saves)))
