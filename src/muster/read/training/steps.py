"""Reads the lines of a training log into a `TrainingLog`. Pure; the lines come one by one, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from muster.errors import BadInputError
from muster.read.moment import Basis, Moment
from muster.read.training.lines import Line
from muster.read.training.log import Attempt, Clock, SaveEvent, Step, TrainingLog
from muster.read.training.profiles import Event, Pattern, Profile
from muster.read.training.tracks import Tracks

MAX_STEPS: Final = 1_000_000
MAX_LISTED: Final = 100
SAME_SAVE_S: Final = 2.0
"""Lines of several ranks about one checkpoint lie closer together than this; two checkpoints do not."""
_DAY_S: Final = 86_400.0
_QUANTITIES: Final = ("tflops_per_gpu", "mfu", "tokens_per_s", "samples_per_s")


@dataclass
class _Open:
    """The attempt that is being read."""

    start_s: float | None = None
    last_s: float | None = None
    steps: list[Step] = field(default_factory=list)
    saves: list[SaveEvent] = field(default_factory=list)
    validations_s: list[float] = field(default_factory=list)
    loaded_step: int | None = None
    source: str | None = None

    def closed(self) -> Attempt:
        return Attempt(
            self.start_s,
            self.last_s,
            tuple(self.steps),
            tuple(self.saves),
            tuple(self.validations_s),
            self.loaded_step,
        )


class StepReader:
    """Takes lines (`feed`) of one job in the order of writing; `finish` gives the log."""

    def __init__(self, profile: Profile, outer: bool = True) -> None:
        self._profile = profile
        self._outer = outer
        self._done: list[_Open] = []
        self._now = _Open()
        self._base: Moment | None = None
        self._latest: Moment | None = None
        self._last_s: float | None = None
        self._days = 0
        self._bar_s: float | None = None
        self._bar_offset_s = 0.0
        self._by_bar = False
        self._pending: dict[str, float] = {}
        self._starting = False
        self._total: int | None = None
        self._count = 0
        self._skipped = 0
        self._skipped_total = 0
        self._nan: list[int] = []
        self._nan_count = 0
        self._cut = 0
        self._went_back = 0
        self._figures = 0
        self._stem = ""
        self._tracks = Tracks()

    @property
    def first(self) -> Moment | None:
        """The first time told."""
        return self._base

    @property
    def last(self) -> Moment | None:
        """The last time told."""
        return self._latest

    def start_file(self) -> None:
        """A further file follows: another start of the same job."""
        if self._now.steps:
            self._begin(None)

    def feed(self, line: Line) -> bool:
        """Take a line; True when the profile knows it."""
        at_s = self._time(line)
        read = self._profile.read(line.text)
        if read is None:
            self._cut += not line.ended and self._looks_like_a_step(line.text)
            self._touch(at_s)
            return False
        pattern, found = read
        if not line.ended and pattern.event is Event.STEP and len(found) < self._figures:
            # A cut line may hold half a number; it is no step that can be trusted.
            self._cut += 1
            return True
        if pattern.event is Event.STEP:
            self._stem = line.text.split(maxsplit=1)[0]
        self._take(pattern, found, at_s, line.source)
        return True

    def _looks_like_a_step(self, text: str) -> bool:
        """True for the beginning of a step line, as far as its first word tells."""
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        return bool(word and self._stem) and (word == self._stem or self._stem.startswith(word))

    def _touch(self, at_s: float | None) -> None:
        if at_s is not None and not self._by_bar:
            self._now.start_s = at_s if self._now.start_s is None else self._now.start_s
            self._now.last_s = at_s

    def _time(self, line: Line) -> float | None:
        moment = line.outer if self._outer else line.inner
        if moment is None:
            return None
        if self._base is None:
            self._base = moment
        self._latest = moment
        since = moment.since(self._base)
        if since is None:
            return None
        if moment.basis is Basis.DAYTIME:
            since += self._days * _DAY_S
            if self._last_s is not None and since < self._last_s - _DAY_S / 2:
                self._days += 1
                since += _DAY_S
        if self._last_s is not None and since < self._last_s:
            self._went_back += 1
            since = self._last_s
        self._last_s = since
        return since

    def _take(self, pattern: Pattern, found: dict[str, float], at_s: float | None, source: str) -> None:
        match pattern.event:
            case Event.STEP:
                self._step(pattern, found, at_s, source)
                return
            case Event.START:
                self._begin(at_s)
            case Event.LOAD:
                self._begin(at_s)
                if (step := _whole(found.get("step"))) is not None:
                    self._now.loaded_step = step
            case Event.DETAIL if pattern.attach == "next":
                self._pending.update(found)
            case Event.DETAIL:
                self._merge(found)
            case Event.SAVE_BEGIN:
                self._save_begin(_whole(found.get("step")), at_s, pattern.background)
            case Event.SAVE_END:
                self._save_end(_whole(found.get("step")), at_s, found.get("duration"))
            case Event.VALIDATION:
                when = at_s if at_s is not None else self._now.last_s
                if when is not None and len(self._now.validations_s) < MAX_STEPS:
                    self._now.validations_s.append(when)
            case Event.SKIP:
                self._skipped += 1
            case Event.END:
                pass
        self._touch(at_s)

    def _begin(self, at_s: float | None) -> None:
        """A line that only a starting program writes."""
        self._starting = True
        if self._now.steps:
            self._done.append(self._now)
            self._now = _Open(start_s=at_s)
            self._pending = {}

    def _step(self, pattern: Pattern, found: dict[str, float], at_s: float | None, source: str) -> None:
        number = _step_number(pattern, found)
        total = _whole(found.get("total_steps"))
        if number is None or (total is not None and self._total is not None and total < self._total):
            self._touch(at_s)
            return
        now = self._now
        self._tracks.add(number)
        if source and now.source not in (None, source) and not self._far_ahead(number):
            self._touch(at_s)
            return
        if total is not None:
            self._total = total
        if at_s is None and "elapsed" in found and (self._base is None or self._by_bar):
            at_s = self._bar(found["elapsed"])
        last = now.steps[-1] if now.steps else None
        if last is not None and number == last.number:
            self._merge(found)
            self._touch(at_s)
            return
        if last is not None and number < last.number:
            if last.number - number <= self._interval() and not self._starting:
                # Several ranks write into one log: their lines of the same step mix.
                self._touch(at_s)
                return
            self._done.append(now)
            now = self._now = _Open(start_s=None)
        self._append(number, found, at_s, source)

    def _append(self, number: int, found: dict[str, float], at_s: float | None, source: str) -> None:
        self._count += 1
        if self._count > MAX_STEPS:
            raise BadInputError(f"The log holds more than {MAX_STEPS} step lines; give a part of it.")
        self._figures = len(found)
        figures = {**self._pending, **found}
        self._pending, self._starting = {}, False
        now = self._now
        now.source = source or now.source
        now.steps.append(_with(Step(number, at_s), figures))
        skipped = _whole(found.get("skipped"))
        self._skipped += skipped or 0
        self._skipped_total = max(self._skipped_total, _whole(found.get("skipped_total")) or 0)
        self._note_loss(number, found)
        if at_s is not None:
            now.last_s = at_s
            if now.start_s is None and not now.steps[:-1] and not self._done:
                now.start_s = at_s

    def _merge(self, found: dict[str, float]) -> None:
        if self._now.steps:
            step = self._now.steps[-1]
            if step.loss is None:
                self._note_loss(step.number, found)
            self._now.steps[-1] = _with(step, found)

    def _note_loss(self, number: int, found: dict[str, float]) -> None:
        loss = found.get("loss")
        if (loss is not None and not math.isfinite(loss)) or (found.get("nan_iterations") or 0) > 0:
            self._nan_count += 1
            if len(self._nan) < MAX_LISTED:
                self._nan.append(number)

    def _far_ahead(self, number: int) -> bool:
        return not self._now.steps or number > self._now.steps[-1].number + 3 * self._interval()

    def _interval(self) -> int:
        steps = self._now.steps[-3:]
        return max(1, *(b.number - a.number for a, b in pairwise(steps)), 0)

    def _bar(self, elapsed_s: float) -> float | None:
        if not math.isfinite(elapsed_s):
            return None
        self._by_bar = True
        if self._bar_s is not None and elapsed_s < self._bar_s:
            self._bar_offset_s += self._bar_s
        self._bar_s = elapsed_s
        return self._bar_offset_s + elapsed_s

    def _save_begin(self, step: int | None, at_s: float | None, background: bool) -> None:
        saves = self._now.saves
        if len(saves) >= MAX_STEPS:
            return
        if saves and saves[-1].end_s is None and saves[-1].step == step and saves[-1].duration_s is None:
            # Every rank says it, or the same save is told in two ways.
            saves[-1] = replace(saves[-1], background=saves[-1].background or background)
            return
        saves.append(SaveEvent(step, at_s if at_s is not None else self._now.last_s, background=background))

    def _save_end(self, step: int | None, at_s: float | None, duration_s: float | None) -> None:
        duration_s = duration_s if duration_s is not None and 0 <= duration_s < math.inf else None
        saves = self._now.saves
        for position in reversed(range(max(0, len(saves) - 8), len(saves))):
            save = saves[position]
            if step is not None and save.step not in (None, step):
                continue
            if save.complete and step is None and not _told_again(save, at_s, duration_s):
                break
            saves[position] = replace(
                save,
                step=save.step if save.step is not None else step,
                end_s=save.end_s if save.end_s is not None else at_s,
                duration_s=save.duration_s if save.duration_s is not None else duration_s,
                complete=True,
            )
            return
        if len(saves) < MAX_STEPS:
            end_s = at_s if at_s is not None else self._now.last_s
            saves.append(SaveEvent(step, None, end_s, duration_s, complete=True))

    def finish(self) -> TrainingLog:
        """The log read so far."""
        attempts = [part for part in (*self._done, self._now) if part.steps or part is not self._now]
        if self._now not in attempts and (self._now.last_s is not None and attempts):
            attempts.append(self._now)
        log = TrainingLog(
            profile=self._profile.name,
            attempts=tuple(attempt.closed() for attempt in attempts),
            clock=Clock.NONE,
            total_steps=self._total,
            skipped=max(self._skipped, self._skipped_total),
            nan_steps=tuple(self._nan),
            nan_count=self._nan_count,
            truncated_lines=self._cut,
            clock_went_back=self._went_back,
            mixed=self._tracks.mixed,
        )
        return _timed(log, self._by_bar)


def _told_again(save: SaveEvent, at_s: float | None, duration_s: float | None) -> bool:
    """True for the line of another rank, or of a timer, about a checkpoint that is known to be there."""
    if duration_s is not None and save.duration_s is None:
        return True
    return at_s is not None and save.end_s is not None and at_s - save.end_s <= SAME_SAVE_S


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 1e15 else None


def _step_number(pattern: Pattern, found: dict[str, float]) -> int | None:
    if "step" in found:
        return _whole(found["step"])
    inside, per_epoch = _whole(found.get("epoch_step")), _whole(found.get("epoch_steps"))
    epoch = _whole(found.get("epoch"))
    if inside is None or per_epoch is None or epoch is None:
        return inside
    return max(0, epoch - pattern.first_epoch) * per_epoch + inside


def _with(step: Step, found: dict[str, float]) -> Step:
    """The step with what `found` adds; what it has already stays."""
    step_time = found.get("step_time")
    rate = found.get("steps_per_s")
    if step_time is None and rate is not None and rate > 0:
        step_time = 1 / rate
    if step.step_time_s is None and step_time is not None and 0 < step_time < math.inf:
        step = replace(step, step_time_s=step_time)
    more = {
        name: value
        for name in _QUANTITIES
        if getattr(step, name) is None and (value := found.get(name)) is not None and 0 <= value < math.inf
    }
    if step.loss is None and "loss" in found:
        more["loss"] = found["loss"]
    return replace(
        step,
        tflops_per_gpu=more.get("tflops_per_gpu", step.tflops_per_gpu),
        mfu=more.get("mfu", step.mfu),
        tokens_per_s=more.get("tokens_per_s", step.tokens_per_s),
        samples_per_s=more.get("samples_per_s", step.samples_per_s),
        loss=more.get("loss", step.loss),
    )


def _timed(log: TrainingLog, by_bar: bool) -> TrainingLog:
    """The log with its clock; without any time the steps are laid end to end."""
    steps = log.steps
    timed = sum(step.at_s is not None for step in steps)
    if timed >= 2 or (timed and log.attempts and log.attempts[0].start_s not in (None, steps[0].at_s)):
        return replace(log, clock=Clock.BAR if by_bar else Clock.LINES)
    if not steps or not any(step.step_time_s is not None for step in steps):
        return log
    usual, interval, at_s = log.median_step_s() or 0.0, log.log_interval, 0.0
    attempts = []
    for attempt in log.attempts:
        laid: list[Step] = []
        started, before = at_s, attempt.loaded_step
        for step in attempt.steps:
            count = interval if before is None else max(1, step.number - before)
            at_s += min(count, interval if before is None or not laid else count) * (step.step_time_s or usual)
            laid.append(replace(step, at_s=at_s))
            before = step.number
        attempts.append(replace(attempt, start_s=started, last_s=at_s, steps=tuple(laid), saves=_untimed(attempt)))
    return replace(log, attempts=tuple(attempts), clock=Clock.STEP_TIMES)


def _untimed(attempt: Attempt) -> tuple[SaveEvent, ...]:
    return tuple(replace(save, begin_s=None, end_s=None) for save in attempt.saves)
