"""Goodput of jobs and test runs: one interval log, four definitions, a waterfall, and advice on checkpoints. Pure.

The log itself and the definitions are shared with `muster read` and live in `muster.read.training`.
"""

from __future__ import annotations

from muster.certify.goodput.advice import (
    CheckpointAdvice,
    checkpoint_advice,
    daly_interval_s,
    expected_ettr,
    young_interval_s,
)
from muster.certify.goodput.runs import run_intervals
from muster.certify.goodput.waterfall import Bar, waterfall
from muster.read.training.goodput import Goodput, goodput
from muster.read.training.interval_log import Interval, IntervalLog, Kind, Save, interval_log
from muster.read.training.intervals import intervals_of

__all__ = [
    "Bar",
    "CheckpointAdvice",
    "Goodput",
    "Interval",
    "IntervalLog",
    "Kind",
    "Save",
    "checkpoint_advice",
    "daly_interval_s",
    "expected_ettr",
    "goodput",
    "interval_log",
    "intervals_of",
    "run_intervals",
    "waterfall",
    "young_interval_s",
]
