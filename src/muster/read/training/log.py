"""A training log as values: attempts with their steps, checkpoints and times. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Clock(StrEnum):
    """Where the times of a log come from."""

    LINES = "lines"
    """Times before the lines."""
    BAR = "progress-bar"
    STEP_TIMES = "step-times"
    """Added up from the time that each step took; what lies between steps is not seen."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Step:
    """The line of one step. `at_s` counts from the first time of the log; None: not told."""

    number: int
    at_s: float | None = None
    step_time_s: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    """Share of the peak, 0 to 1."""
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    """May be NaN: the program printed that."""


@dataclass(frozen=True, slots=True)
class SaveEvent:
    """One checkpoint. `background`: written while training went on."""

    step: int | None
    begin_s: float | None = None
    end_s: float | None = None
    duration_s: float | None = None
    background: bool = False
    complete: bool = False
    """The log says that it is written."""

    @property
    def pause_s(self) -> float | None:
        """How long training stood still for it; None: not told."""
        if self.background:
            return 0.0
        if self.duration_s is not None:
            return self.duration_s
        if self.begin_s is not None and self.end_s is not None:
            return self.end_s - self.begin_s
        return None

    @property
    def at_s(self) -> float | None:
        """When it was there."""
        return self.end_s if self.end_s is not None else self.begin_s


@dataclass(frozen=True)
class Attempt:
    """From a start of the program to its end. `steps` rise; times rise."""

    start_s: float | None
    last_s: float | None
    """The last time told on any line."""
    steps: tuple[Step, ...] = ()
    saves: tuple[SaveEvent, ...] = ()
    validations_s: tuple[float, ...] = ()
    loaded_step: int | None = None


@dataclass(frozen=True)
class TrainingLog:
    """What a training log tells. `attempts` has one entry more than there were restarts."""

    profile: str
    attempts: tuple[Attempt, ...]
    clock: Clock
    total_steps: int | None = None
    skipped: int = 0
    nan_steps: tuple[int, ...] = ()
    nan_count: int = 0
    """Steps with a loss that is no number; `nan_steps` holds the first of them."""
    truncated_lines: int = 0
    clock_went_back: int = 0
    """Lines whose time lies before an earlier line's."""
    mixed: bool = False
    """Steps of several jobs follow each other by turns."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for attempt in self.attempts for step in attempt.steps)

    @property
    def restarts(self) -> int:
        return max(0, len(self.attempts) - 1)

    @property
    def log_interval(self) -> int:
        """Steps from one step line to the next, the least that occurs; 1 when there are too few lines."""
        gaps = [
            later.number - earlier.number
            for attempt in self.attempts
            for earlier, later in zip(attempt.steps, attempt.steps[1:], strict=False)
        ]
        return min(gaps, default=1)

    def step_times(self) -> list[float]:
        """Seconds per step of every step line: as printed, else from the times of the lines."""
        found = []
        for attempt in self.attempts:
            before: Step | None = None
            for step in attempt.steps:
                if step.step_time_s is not None:
                    found.append(step.step_time_s)
                elif before is not None and step.at_s is not None and before.at_s is not None:
                    found.append((step.at_s - before.at_s) / (step.number - before.number))
                before = step
        return found

    def median_step_s(self) -> float | None:
        """Median seconds per step; None when no time is told."""
        times = self.step_times()
        return median(times) if times else None
