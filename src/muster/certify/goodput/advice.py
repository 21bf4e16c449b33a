"""How often to save a checkpoint, and which goodput to expect from it. Pure.

Young (1974): dt = sqrt(2 C M), C the pause of one checkpoint, M the mean time between interruptions of the job. Daly
(2006) adds two terms, exact to a few percent while C < 2 M. Expected ETTR after Kokolis and others (2024): 1 / (1 +
(u0 + dt / 2) r N), u0 the time of a restart, r failures per node and time, N nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from muster.read.training.interval_log import SECOND_US, IntervalLog, Kind


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints. Raises ValueError for figures that are not positive."""
    _check(save_s, mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s)


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Daly's higher-order estimate in seconds; `mtbf_s` where a checkpoint takes as long as the job survives."""
    _check(save_s, mtbf_s)
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def expected_ettr(restart_s: float, interval_s: float, mtbf_s: float) -> float:
    """The share of time that trains, 0 to 1, with failures at random and a checkpoint each `interval_s` of work."""
    _check(interval_s, mtbf_s)
    if not (math.isfinite(restart_s) and restart_s >= 0):
        raise ValueError("the time of a restart must not be negative")
    return 1 / (1 + (restart_s + interval_s / 2) / mtbf_s)


def _check(*figures: float) -> None:
    if not all(math.isfinite(figure) and figure > 0 for figure in figures):
        raise ValueError("times must be positive")


@dataclass(frozen=True)
class CheckpointAdvice:
    """What one job's log says about its checkpoints. Seconds."""

    save_s: float
    mtbf_s: float
    interval_s: float
    """As advised (Daly)."""
    current_s: float | None
    """Median distance of the checkpoints that were taken; None with fewer than two."""
    interruptions: int
    """On so many the estimate rests; one or two give a rough figure at best."""


def checkpoint_advice(log: IntervalLog) -> CheckpointAdvice | None:
    """Advice from the pauses and interruptions of a job; None without a pause or an interruption to reckon with."""
    pauses = [i.length_us / SECOND_US for i in log.intervals if i.kind is Kind.CHECKPOINT]
    ran_s = sum(i.length_us for i in log.intervals if i.running) / SECOND_US
    if not pauses or log.interruptions < 1 or ran_s <= 0:
        return None
    save_s, mtbf_s = median(pauses), ran_s / log.interruptions
    times = [save.at_us / SECOND_US for save in log.saves]
    gaps = [b - a for a, b in pairwise(times) if b > a]
    return CheckpointAdvice(
        save_s, mtbf_s, daly_interval_s(save_s, mtbf_s), median(gaps) if gaps else None, log.interruptions
    )
