"""Goodput of one job by four definitions, all as queries over its interval log. Each is a share from 0 to 1. Pure.

- time: productive time over wall time, queue included (as Google's ml-goodput-measurement has it);
- ETTR, effective training time ratio (Kokolis and others at Meta, 2024): time in which training ran, less restarts
  and repeated work, over wall time; checkpoints and stalls are no loss in it. With queueing and without;
- useful progress, as NVCRE reports it: (w - lost - resume - down - save) / (w - down) with w from the start of
  training, lost = from the last checkpoint to the interruption (0 without one), resume = start of the program to the
  first step;
- FLOP: the share of the peak rate, averaged over wall time; productive time alone counts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from muster.read.training.interval_log import IntervalLog, Kind


@dataclass(frozen=True)
class Goodput:
    """The four definitions (ETTR twice). None: there is no time, or no FLOP rate is told."""

    time: float | None
    ettr: float | None
    ettr_without_queue: float | None
    useful_progress: float | None
    flop: float | None


def goodput(log: IntervalLog) -> Goodput:
    """All definitions for one job."""
    return Goodput(
        time=time_goodput(log),
        ettr=ettr(log),
        ettr_without_queue=ettr(log, queueing=False),
        useful_progress=useful_progress(log),
        flop=flop_goodput(log),
    )


def time_goodput(log: IntervalLog) -> float | None:
    """Productive time over wall time."""
    return log.parts_us()[Kind.PRODUCTIVE] / log.wall_us if log.wall_us else None


def ettr(log: IntervalLog, *, queueing: bool = True) -> float | None:
    """Effective training time ratio; `queueing` says whether time in the queue is part of the wall time."""
    parts = log.parts_us()
    wall = log.wall_us - (0 if queueing else parts[Kind.QUEUED])
    return (parts[Kind.PRODUCTIVE] + parts[Kind.CHECKPOINT] + parts[Kind.STALLED]) / wall if wall else None


def useful_progress(log: IntervalLog) -> float | None:
    """NVCRE's ratio: 0 when its denominator is not positive or its numerator negative."""
    started = next((i.start_us for i in log.intervals if i.running), None)
    if started is None:
        return None
    inside = [i for i in log.intervals if i.start_us >= started]
    down = sum(i.length_us for i in inside if not i.running)
    resume = sum(i.length_us for i in inside if i.running and i.kind in (Kind.STARTUP, Kind.RESTART))
    save = sum(i.length_us for i in inside if i.kind is Kind.CHECKPOINT)
    wall = log.end_us - started
    useful = wall - lost_us(log) - resume - down - save
    return max(0, useful) / (wall - down) if wall > down else 0.0


def lost_us(log: IntervalLog) -> int:
    """Time from the last checkpoint to each interruption, summed; 0 for an interruption without a checkpoint before
    it."""
    ends: dict[int, int] = {}
    for interval in log.intervals:
        if interval.running:
            ends[interval.attempt] = interval.end_us
    last = max(ends, default=0)
    saved = [save.at_us for save in log.saves]
    lost = 0
    for attempt, at_us in ends.items():
        before = bisect_right(saved, at_us)
        if attempt != last and before:
            lost += at_us - saved[before - 1]
    return lost


def flop_goodput(log: IntervalLog) -> float | None:
    """FLOPs of productive time over what the peak rate gives in the wall time; None when a part has no rate."""
    productive = [i for i in log.intervals if i.kind is Kind.PRODUCTIVE]
    rates = [(i.mfu, i.length_us) for i in productive]
    if not log.wall_us or any(rate is None for rate, _ in rates):
        return None
    return sum((rate or 0.0) * length for rate, length in rates) / log.wall_us
