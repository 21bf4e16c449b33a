"""The interval log of one run of the training test, from what its workers report. Pure.

Workers tell sums, not a sequence: the parts are laid one after the other, and what they do not explain is `unknown`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

from muster.read.training.interval_log import SECOND_US, Interval, IntervalLog, Kind, interval_log
from muster.resources.certification import RunDetail

PARTS: Final = (
    ("queued_s", Kind.QUEUED),
    ("startup_s", Kind.STARTUP),
    ("restart_s", Kind.RESTART),
    ("checkpoint_s", Kind.CHECKPOINT),
    ("stalled_s", Kind.STALLED),
)
"""Facts of a run that are no progress, in seconds of its wall time."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def run_intervals(detail: RunDetail) -> IntervalLog | None:
    """Where the time of a run went; None when it tells no time.

    Productive time is `productive_s`, else `goodput_ratio` of `wall_s`, else `steps` / `steps_per_s`. The wall time
    is from `started_at` to `ended_at`, else `wall_s`, else the sum of the parts. Parts that exceed the wall time
    (clocks differ) are cut at its end.
    """
    facts = {name: value for name, value in detail.facts.items() if math.isfinite(value) and 0 <= value < 1e9}
    steps, rate = facts.get("steps"), facts.get("steps_per_s")
    productive = facts.get("productive_s")
    if productive is None and "goodput_ratio" in facts and "wall_s" in facts:
        productive = facts["goodput_ratio"] * facts["wall_s"]
    if productive is None and steps is not None and rate:
        productive = steps / rate
    parts = [(kind, facts[name]) for name, kind in PARTS if name in facts]
    if productive is not None:
        parts.append((Kind.PRODUCTIVE, productive))
    start, wall = 0, _wall_us(detail, facts)
    if detail.started_at is not None:
        start = (detail.started_at - _EPOCH) // timedelta(microseconds=1)
    if wall is None:
        wall = sum(round(seconds * SECOND_US) for _, seconds in parts)
    if wall <= 0:
        return None
    mfu = facts.get("mfu_ratio")
    cursor, end, intervals = start, start + wall, []
    for kind, seconds in parts:
        to = min(end, cursor + round(seconds * SECOND_US))
        rated = mfu if kind is Kind.PRODUCTIVE and mfu is not None and mfu <= 1 else None
        intervals.append(Interval(cursor, to, kind, running=kind is not Kind.QUEUED, mfu=rated))
        cursor = to
    return interval_log(intervals, (), start, end)


def _wall_us(detail: RunDetail, facts: dict[str, float]) -> int | None:
    if detail.started_at is not None and detail.ended_at is not None:
        return max(0, (detail.ended_at - detail.started_at) // timedelta(microseconds=1))
    return round(facts["wall_s"] * SECOND_US) if "wall_s" in facts else None
