"""One report from a training log: its progress, its goodput, and what it says about slow ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from statistics import median
from typing import Final

from muster.errors import BadInputError
from muster.read.moment import Moment
from muster.read.report import Report, Result, Value, Verdict
from muster.read.source import SAMPLE_BYTES, Context, Input
from muster.read.tables.source import tidy
from muster.read.training import STEP_WORDS
from muster.read.training.choice import best_profile, uses_outer_time
from muster.read.training.finding import Finding, merged
from muster.read.training.goodput import Goodput, goodput
from muster.read.training.interval_log import SECOND_US, IntervalLog, Kind
from muster.read.training.intervals import intervals_of
from muster.read.training.lines import Line, lines_of, sample_lines
from muster.read.training.log import Clock, TrainingLog
from muster.read.training.profiles import GENERIC, Profile, profiles, user_profile
from muster.read.training.steps import StepReader
from muster.read.training.stragglers import readers
from muster.read.training.stragglers.reader import Reader

TRAINING_LOG: Final = "training-log"
STRAGGLER: Final = "straggler"

PROBE_LINES: Final = 5000
LEAST_STEPS: Final = 2
WORTH_TELLING: Final = 0.05
"""Share of the wall time that a loss must have to be named in the advice."""

_FOREIGN = ("NCCL WARN", "NCCL INFO", "ProcessGroupNCCL", "Watchdog", "NVRM:")


@dataclass(frozen=True)
class Reading:
    """What was read from all inputs together."""

    log: TrainingLog | None
    stragglers: Finding | None
    truncated: bool


def training_score(sample: bytes) -> float:
    """How sure it is that a sample is the log of a training job: the share of its lines that a profile reads."""
    lines = [line for line in sample_lines(sample) if line.text.strip()]
    profile, steps = best_profile(lines, profiles())
    if profile is None or (profile.name == GENERIC and steps < LEAST_STEPS):
        return 0.0
    known = sum(1 for line in lines if profile.read(line.text) is not None)
    score = 0.35 + 0.1 * min(steps, 3) + 0.3 * known / len(lines)
    foreign = sum(1 for line in lines if any(word in line.text for word in _FOREIGN))
    # Which steps ran before a collective failed is a side note of that failure.
    return min(score, 0.32) if foreign >= steps else score


def straggler_score(sample: bytes) -> float:
    """1 when a sample holds a report about slow ranks."""
    marks = [mark.encode() for reader in readers() for mark in reader.marks]
    if not any(mark in sample for mark in marks):
        return 0.0
    found = readers()
    for line in sample_lines(sample):
        for reader in found:
            reader.feed(line)
    return 1.0 if any(reader.finish({}) is not None for reader in found) else 0.0


def parse_training(inputs: Sequence[Input], context: Context) -> Report:
    """Read training logs. Raises BadInputError when no line is a step."""
    reading = read(inputs, context)
    if reading.log is None and reading.stragglers is None:
        name = inputs[0].name if inputs else "the input"
        raise BadInputError(
            f"{name} holds no line of a training step that is known; name a log_profile in the context."
        )
    return _report(TRAINING_LOG, inputs, reading, context)


def parse_straggler(inputs: Sequence[Input], context: Context) -> Report:
    """Read reports about slow ranks, and the steps around them. Raises BadInputError when there is neither."""
    reading = read(inputs, context)
    if reading.stragglers is None:
        name = inputs[0].name if inputs else "the input"
        raise BadInputError(f"{name} holds no report about slow ranks that is known.")
    return _report(STRAGGLER, inputs, reading, context)


def read(inputs: Sequence[Input], context: Context) -> Reading:
    """The inputs together. Files whose times follow each other are parts of one job, in that order; files that cover
    the same time are logs of several ranks of it, of which the one with the most steps counts. Without times they
    follow each other as given.
    """
    own = user_profile(context)
    known = (own, *profiles()) if own is not None else profiles()
    found = readers()
    pieces = [_piece(item, known, own, found) for item in inputs]
    pieces = [piece for piece in pieces if piece.log.steps]
    log = _joined(pieces)
    findings = [finding for reader in found if (finding := reader.finish(context)) is not None]
    return Reading(log, merged(findings) if findings else None, log.truncated_lines > 0 if log else False)


@dataclass(frozen=True)
class _Piece:
    item: Input
    profile: Profile
    outer: bool
    log: TrainingLog
    first: Moment | None
    last: Moment | None


def _piece(item: Input, known: Sequence[Profile], own: Profile | None, found: Sequence[Reader]) -> _Piece:
    sample = [line for line in sample_lines(item.sample) if line.text.strip()]
    profile, _ = best_profile(sample, (own,) if own is not None else known)
    if profile is None and len(item.sample) >= SAMPLE_BYTES:
        sample = list(islice((line for line in lines_of(item) if _hinted(line)), PROBE_LINES))
        profile, _ = best_profile(sample, known)
    profile = profile or own or known[0]
    outer = uses_outer_time(sample, profile)
    steps = StepReader(profile, outer)
    armed: list[Reader] = []
    for line in lines_of(item):
        if len(armed) < len(found):
            armed = [r for r in found if r in armed or any(mark in line.text for mark in r.marks)]
        for reader in armed:
            reader.feed(line)
        steps.feed(line)
    return _Piece(item, profile, outer, steps.finish(), steps.first, steps.last)


def _hinted(line: Line) -> bool:
    return STEP_WORDS.search(line.text.encode()) is not None


def _joined(pieces: Sequence[_Piece]) -> TrainingLog | None:
    if len(pieces) < 2:
        return pieces[0].log if pieces else None
    first = pieces[0].first
    starts = [(piece.first.since(first), piece) for piece in pieces if piece.first is not None]
    ordered = list(pieces)
    if len(starts) == len(pieces):
        if any(at is None for at, _ in starts):
            return max(pieces, key=lambda piece: len(piece.log.steps)).log
        ordered = [piece for _, piece in sorted(starts, key=lambda pair: pair[0] or 0.0)]
        overlap = any(
            (later.first.since(earlier.last) or 0.0) < 0
            for earlier, later in pairwise(ordered)
            if later.first is not None
        )
        if overlap:
            return max(pieces, key=lambda piece: len(piece.log.steps)).log
    elif starts:
        return max(pieces, key=lambda piece: len(piece.log.steps)).log
    steps = StepReader(ordered[0].profile, ordered[0].outer)
    for piece in ordered:
        steps.start_file()
        for line in lines_of(piece.item):
            steps.feed(line)
    return steps.finish()


def _report(kind: str, inputs: Sequence[Input], reading: Reading, context: Context) -> Report:
    findings = [reading.stragglers] if reading.stragglers is not None else []
    if reading.log is not None and (kind == TRAINING_LOG or len(reading.log.steps) >= LEAST_STEPS):
        judged = {verdict.of for finding in findings for verdict in finding.verdicts}
        steps = progress(reading.log, context)
        # One word on the job: a stall that a report explains is not steady progress as well.
        findings.append(replace(steps, verdicts=tuple(v for v in steps.verdicts if v.of not in judged)))
    whole = merged(findings)
    return Report(
        kind=kind,
        files=tuple(item.name for item in inputs),
        truncated=reading.truncated,
        incidents=whole.incidents,
        verdicts=whole.verdicts,
        values=whole.values,
        next=whole.next or "Nothing has to be done.",
    )


def progress(log: TrainingLog, context: Context) -> Finding:
    """How far the job came, what it reached, and where its time went."""
    values = _progress_values(log)
    if log.mixed:
        text = "Steps of several jobs follow each other by turns; none of them can be told apart."
        invalid = Verdict("job", Result.INVALID, "several-jobs", text)
        return Finding(values, (invalid,), (), "Give the log of each job by itself.")
    intervals = intervals_of(log, context)
    advice = ""
    if intervals is not None and intervals.wall_us:
        values |= _goodput_values(intervals, goodput(intervals))
        advice = _advice(intervals)
    if log.nan_count:
        advice = f"{_after_nan(log)} {advice}".strip()
    return Finding(values, tuple(_verdicts(log, intervals)), (), advice)


def _after_nan(log: TrainingLog) -> str:
    """What to do about a loss that is no number: where it went wrong, and what is left to go back to."""
    first, last = log.nan_steps[0], log.steps[-1].loss
    if last is not None and math.isfinite(last):
        return f"Look at the data of step {first}: the loss was no number there, and is one again."
    saves = [save.step for attempt in log.attempts for save in attempt.saves if save.step is not None]
    before = max((step for step in saves if step < first), default=None)
    back = (
        f"go back to the checkpoint of step {before}" if before is not None else "go back to a checkpoint before it"
    )
    return f"Stop the job: its loss is no number from step {first} on; {back}."


def _progress_values(log: TrainingLog) -> dict[str, Value]:
    steps = log.steps
    highest = max(step.number for step in steps)
    saves = [save for attempt in log.attempts for save in attempt.saves]
    saved = [save.step for save in saves if save.step is not None]
    values = {
        "format": Value(log.profile),
        "first_step": Value(steps[0].number),
        "last_completed_step": Value(steps[-1].number),
        "highest_step": Value(highest),
        "step_lines": Value(len(steps)),
        "restarts": Value(log.restarts),
        "repeated_steps": Value(_repeated(log)),
        "checkpoints": Value(len(saves)),
        "skipped_steps": Value(log.skipped),
        "nan_steps": Value(log.nan_count),
        "truncated_lines": Value(log.truncated_lines),
        "clock": Value(log.clock.value),
    }
    if log.total_steps is not None:
        values["total_steps"] = Value(log.total_steps)
    if saved:
        values["last_checkpoint_step"] = Value(max(saved))
    usual = log.median_step_s()
    if usual is not None:
        values["step_time_median"] = Value(round(usual, 6), "s")
    for name, unit in _RATES.items():
        rates = [rate for step in steps if (rate := getattr(step, name)) is not None]
        if rates:
            values[f"{name}_median"] = Value(tidy(round(median(rates), 6)), unit)
    if log.clock_went_back:
        values["clock_went_back"] = Value(log.clock_went_back)
    return values


def _repeated(log: TrainingLog) -> int:
    """Steps that were done more than once, by their numbers."""
    highest, repeated = -1, 0
    for attempt in log.attempts:
        if attempt.steps:
            first, last = attempt.steps[0].number, attempt.steps[-1].number
            start = attempt.loaded_step if attempt.loaded_step is not None else first - log.log_interval
            if highest >= 0:
                repeated += max(0, min(last, highest) - max(start, -1))
            highest = max(highest, last)
    return repeated


def _goodput_values(log: IntervalLog, figures: Goodput) -> dict[str, Value]:
    def share(figure: float | None) -> Value:
        return Value(None if figure is None else round(figure, 6))

    return {
        "wall_time": Value(tidy(log.wall_us / SECOND_US), "s"),
        "parts": Value({kind.value: us / SECOND_US for kind, us in log.parts_us().items()}, "s"),
        "lost_by_cause": Value(
            {f"{kind}/{cause}": us / SECOND_US for (kind, cause), us in log.causes_us().items() if cause}, "s"
        ),
        "goodput_time": share(figures.time),
        "goodput_ettr": share(figures.ettr),
        "goodput_ettr_without_queue": share(figures.ettr_without_queue),
        "goodput_useful_progress": share(figures.useful_progress),
        "goodput_flop": share(figures.flop),
    }


def _verdicts(log: TrainingLog, intervals: IntervalLog | None) -> list[Verdict]:
    verdicts = []
    if log.nan_count:
        where = ", ".join(map(str, log.nan_steps[:5]))
        verdicts.append(Verdict("loss", Result.FAIL, "not-a-number", f"The loss is no number at step {where}."))
    if log.clock is Clock.NONE or intervals is None:
        verdicts.append(Verdict("goodput", Result.UNKNOWN, "no-times", "The log tells no time of its steps."))
        return verdicts
    if len(log.steps) < LEAST_STEPS:
        verdicts.append(Verdict("job", Result.UNKNOWN, "too-few-steps", "One step tells nothing about the next."))
        return verdicts
    parts = intervals.parts_us()
    if parts[Kind.STALLED]:
        text = f"No step for {parts[Kind.STALLED] / SECOND_US:.0f} s longer than usual in total."
        verdicts.append(Verdict("job", Result.WARN, "stall", text))
    if log.restarts:
        text = f"{log.restarts} restart{'s' if log.restarts > 1 else ''}."
        verdicts.append(Verdict("job", Result.WARN, "restarted", text))
    if not verdicts:
        verdicts.append(Verdict("job", Result.PASS, "steady"))
    return verdicts


def _advice(log: IntervalLog) -> str:
    """The largest loss, when it is worth a word."""
    losses = {kind: us for kind, us in log.parts_us().items() if kind is not Kind.PRODUCTIVE}
    kind = max(losses, key=lambda k: losses[k])
    if losses[kind] < WORTH_TELLING * log.wall_us:
        return ""
    return f"{_WORDS[kind]} took {losses[kind] / log.wall_us:.0%} of the time, the largest loss."


_RATES: Final = {
    "tflops_per_gpu": "TFLOP/s",
    "tokens_per_s": "tokens/s",
    "samples_per_s": "samples/s",
}
_WORDS: Final = {
    Kind.PRODUCTIVE: "Steps",
    Kind.STARTUP: "Starting up",
    Kind.CHECKPOINT: "Saving checkpoints",
    Kind.RESTART: "Restarting",
    Kind.RECOMPUTED: "Repeating steps after a restart",
    Kind.STALLED: "Standing still",
    Kind.QUEUED: "Waiting in the queue",
    Kind.UNKNOWN: "What the log does not explain",
}
