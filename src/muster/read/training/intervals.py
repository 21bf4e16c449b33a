"""From a training log to the interval log of its job. Pure.

Between two step lines the steps themselves come first: as long as the program says, else the whole distance unless it
is more than STALL_FACTOR times the usual. What is left is a checkpoint, a validation, a stall, or not explained. The
order of the parts between two lines is not told; their sums are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.errors import BadInputError
from muster.read.training.interval_log import SECOND_US, Interval, IntervalLog, Kind, Save, interval_log
from muster.read.training.log import Attempt, Clock, SaveEvent, Step, TrainingLog

STALL_FACTOR: Final = 3.0
"""Times the median step; NVCRE's stall rule uses the same factor."""
RESOLUTION_S: Final = 1.0
"""Many logs tell whole seconds: what is left below that is rounding, not a loss."""
SLACK: Final = 0.1
"""Share of the work that may be left without a reason: printing, data, garbage collection."""
MAX_SPAN_S: Final = 10 * 366 * 86_400.0


def intervals_of(log: TrainingLog, context: Mapping[str, Any] | None = None) -> IntervalLog | None:
    """The interval log of a job; None when the log tells no time, or no duration of any step.

    The context may tell `queued_s` (time in the queue before the first line), `peak_tflops` (per GPU, for the
    FLOP-weighted definition), `stall_factor`, and `interrupt_cause`. Raises BadInputError for one that cannot be
    used.
    """
    told = context or {}
    usual = log.median_step_s()
    if log.clock is Clock.NONE or usual is None:
        return None
    queued_s = _positive(told, "queued_s", 0.0)
    writer = _Writer(
        usual_s=usual,
        interval=log.log_interval,
        factor=_positive(told, "stall_factor", STALL_FACTOR) or STALL_FACTOR,
        peak=_positive(told, "peak_tflops", 0.0),
    )
    first = next((a.start_s for a in log.attempts if a.start_s is not None), 0.0)
    writer.cursor = _us(first)
    start = writer.cursor - _us(queued_s)
    if queued_s:
        writer.intervals.append(Interval(start, writer.cursor, Kind.QUEUED, "queue", running=False))
    cause = str(told.get("interrupt_cause", ""))[:200]
    for number, attempt in enumerate(log.attempts):
        writer.attempt(number, attempt, cause, last=number == len(log.attempts) - 1)
    return interval_log(writer.intervals, writer.saves, start, writer.cursor)


def _positive(context: Mapping[str, Any], key: str, default: float) -> float:
    value = context.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SPAN_S:
        raise BadInputError(f"{key} in the context must be a number from 0, not {value!r:.40}.")
    return float(value)


def _us(seconds: float) -> int:
    return round(min(max(seconds, -MAX_SPAN_S), 100 * MAX_SPAN_S) * SECOND_US)


@dataclass
class _Writer:
    """Appends intervals at `cursor`, which only moves forward."""

    usual_s: float
    interval: int
    factor: float
    peak: float
    cursor: int = 0
    highest: int = -1
    now: int = 0
    intervals: list[Interval] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    found: list[SaveEvent] = field(default_factory=list)
    """Checkpoints of the attempt in hand, in the order of `seen_s`."""
    seen_s: list[float] = field(default_factory=list)

    def until(
        self, at_us: int, kind: Kind, cause: str = "", *, running: bool = True, mfu: float | None = None
    ) -> None:
        if at_us > self.cursor:
            self.intervals.append(Interval(self.cursor, at_us, kind, cause, self.now, running, mfu))
            self.cursor = at_us

    def attempt(self, number: int, attempt: Attempt, cause: str, last: bool) -> None:
        self.now = number
        self.found = sorted((s for s in attempt.saves if s.at_s is not None), key=_seen_at)
        self.seen_s = [_seen_at(save) for save in self.found]
        if number and attempt.start_s is not None:
            self.until(_us(attempt.start_s), Kind.RESTART, cause or "down", running=False)
        before: Step | None = None
        for step in attempt.steps:
            if step.at_s is None:
                continue
            if before is None or before.at_s is None:
                self._first(number, attempt, step)
            else:
                self._between(attempt, before, before.at_s, step, step.at_s)
            before = step
        self._tail(number, attempt, before, last)
        done = max((step.number for step in attempt.steps), default=-1)
        self.highest = max(self.highest, done)
        self._note_saves(attempt)

    def _first(self, number: int, attempt: Attempt, step: Step) -> None:
        at = _us(step.at_s or 0.0)
        loaded = attempt.loaded_step if attempt.loaded_step is not None else step.number - self.interval
        count = min(max(1, step.number - loaded), self.interval)
        work = min(_us(count * (step.step_time_s or self.usual_s)), max(0, at - self.cursor))
        kind, cause = (Kind.RESTART, "resume") if number else (Kind.STARTUP, "start-up")
        self.until(at - work, kind, cause)
        self._work(step.number - count, step, at)

    def _between(self, attempt: Attempt, before: Step, from_s: float, step: Step, to_s: float) -> None:
        count = step.number - before.number
        distance = to_s - from_s
        until_s = max(to_s, from_s + 1e-6)
        saves = self.found[bisect_left(self.seen_s, from_s) : bisect_left(self.seen_s, until_s)]
        told = [pause for save in saves if (pause := save.pause_s) is not None]
        untold = len(told) < len(saves)
        usual = count * self.usual_s
        work = min(count * step.step_time_s if step.step_time_s is not None else distance, distance)
        if step.step_time_s is None:
            work = max(0.0, distance - min(sum(told), distance))
            work = min(work, usual) if untold or work > self.factor * usual else work
        elif work > self.factor * usual:
            work = usual
        rest = distance - work
        paused = rest if untold else min(rest, sum(told))
        rest -= paused
        kind, cause = self._reason(attempt, from_s, to_s, rest, work, usual)
        if kind is Kind.PRODUCTIVE:
            work, rest = work + rest, 0.0
        self.until(_us(from_s + paused), Kind.CHECKPOINT, "save")
        self.until(_us(from_s + paused + rest), kind, cause)
        self._work(before.number, step, _us(to_s))

    def _reason(
        self, attempt: Attempt, from_s: float, to_s: float, rest: float, work: float, usual: float
    ) -> tuple[Kind, str]:
        """What the time between two step lines went to that is neither work nor a checkpoint."""
        where = bisect_left(attempt.validations_s, from_s)
        if rest > 0 and where < len(attempt.validations_s) and attempt.validations_s[where] <= to_s:
            return Kind.UNKNOWN, "validation"
        if work + rest > self.factor * max(usual, 1e-9) and rest > RESOLUTION_S:
            return Kind.STALLED, "no-step"
        if rest <= max(RESOLUTION_S, SLACK * work):
            return Kind.PRODUCTIVE, ""
        return Kind.UNKNOWN, "between-steps"

    def _work(self, done: int, step: Step, to_us: int) -> None:
        """Steps after `done` up to `step`, of which those up to the highest seen before are repeated."""
        count = max(1, step.number - done)
        again = min(max(0, self.highest - done), count)
        length = max(0, to_us - self.cursor)
        mfu = step.mfu
        if mfu is None and step.tflops_per_gpu is not None and self.peak > 0:
            mfu = step.tflops_per_gpu / self.peak
        mfu = mfu if mfu is not None and 0 <= mfu <= 1 else None
        self.until(self.cursor + length * again // count, Kind.RECOMPUTED, "after-restart", mfu=mfu)
        self.until(to_us, Kind.PRODUCTIVE, mfu=mfu)

    def _tail(self, number: int, attempt: Attempt, before: Step | None, last: bool) -> None:
        """From the last step line to the last line of the attempt."""
        if attempt.last_s is None:
            return
        end = _us(attempt.last_s)
        if before is None or before.at_s is None:
            kind, cause = (Kind.RESTART, "resume") if number else (Kind.STARTUP, "start-up")
            self.until(end, kind, cause)
            return
        for save in self.found[bisect_left(self.seen_s, before.at_s) :]:
            pause = save.pause_s
            at = min(end, _us(save.at_s or 0.0)) if pause is None else min(end, self.cursor + _us(pause))
            self.until(at, Kind.CHECKPOINT, "save")
        left_s = (end - self.cursor) / SECOND_US
        if left_s > self.factor * self.interval * self.usual_s + RESOLUTION_S:
            self.until(end, Kind.STALLED, "no-step")
        else:
            self.until(end, Kind.UNKNOWN, "end" if last else "lost-step")

    def _note_saves(self, attempt: Attempt) -> None:
        last_step_s = max((s.at_s for s in attempt.steps if s.at_s is not None), default=-math.inf)
        for save in attempt.saves:
            at_s = save.at_s
            if at_s is not None and (save.complete or (not save.background and at_s < last_step_s)):
                self.saves.append(Save(_us(at_s), save.step if save.step is not None else -1))


def _seen_at(save: SaveEvent) -> float:
    """Where the pause of a checkpoint counts: at its begin where that is told."""
    if save.begin_s is not None:
        return save.begin_s
    end_s = save.end_s or 0.0
    return end_s - min(save.duration_s or 0.0, 1e-3)
