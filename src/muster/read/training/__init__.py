"""Logs of training programs: steps, checkpoints, restarts, goodput, and reports of slow ranks.

Most inputs of `muster read` are none of these: a word decides whether the readers are imported at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input

STEP_WORDS = re.compile(rb"[Ss]tep|[Ii]ter|Epoch|it/s|s/it|SamplesPerSec")
"""Every step line of a profile that comes with Muster holds one of them."""
STRAGGLER_WORDS = re.compile(
    rb"step_time=|data_time|performance:|_perf/|raggler|STRAGGLER|/Rnk|Etpt|elapsed time|check time|node_times"
    rb"|times across ranks| perf: \{|_perf_scores"
)
"""Every report about slow ranks holds one of them."""
RANK_TABLE_WORDS = re.compile(rb"rank|world_size", re.IGNORECASE)


def _training_score(sample: bytes) -> float:
    if not STEP_WORDS.search(sample):
        return 0.0
    from muster.read.training import report

    return report.training_score(sample)


def _parse_training(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.training import report

    return report.parse_training(inputs, context)


def _straggler_score(sample: bytes) -> float:
    if not STRAGGLER_WORDS.search(sample):
        return 0.0
    from muster.read.training import report

    return report.straggler_score(sample)


def _parse_straggler(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.training import report

    return report.parse_straggler(inputs, context)


def _rank_table_score(sample: bytes) -> float:
    if not RANK_TABLE_WORDS.search(sample[:16384]):
        return 0.0
    from muster.read.training.stragglers import rank_table

    return rank_table.score(sample)


def _parse_rank_table(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.training.stragglers import rank_table

    return rank_table.parse(inputs, context)


FORMATS: tuple[Format, ...] = (
    Format("times per rank", ("straggler",), _rank_table_score, _parse_rank_table),
    Format("straggler report", ("straggler",), _straggler_score, _parse_straggler),
    Format("training log", ("training-log",), _training_score, _parse_training),
)
