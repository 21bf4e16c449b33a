"""What jobs made of the node time that they had, from the intervals of their pods and, where it was read, their log.

Pure. A log tells times from its first line; that line counts as the moment at which the first pod of the job started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from muster.operate.ledger import Interval, merged, microseconds
from muster.read.training.goodput import Goodput, goodput
from muster.read.training.interval_log import IntervalLog, Kind


@dataclass(frozen=True)
class JobWork:
    """One pod of a job ran on a node."""

    job: str
    node: str
    interval: Interval


@dataclass(frozen=True)
class JobTime:
    """Node time of one job inside the window, in microseconds.

    `parts_us` says what it went to as far as the job's log was read; with `unread_us` it adds up to `node_us`.
    `wall_us` is from the job's first moment in the window to its last, `running_us` when any of its pods ran.
    """

    job: str
    nodes: int
    node_us: int
    wall_us: int
    running_us: int
    interruptions: int
    """Times in between at which no pod ran."""
    unread_us: int
    parts_us: Mapping[Kind, int] = field(default_factory=dict)
    figures: Goodput | None = None
    """Goodput of the whole job by the four definitions, from its log."""

    @property
    def ettr_at_most(self) -> float:
        """Without a log: the time in which the job ran over its wall time. Lost steps and start-up are not seen."""
        return self.running_us / self.wall_us if self.wall_us else 0.0


def job_times(
    work: Iterable[JobWork], logs: Mapping[str, IntervalLog], start: datetime, end: datetime
) -> tuple[JobTime, ...]:
    """One entry for each job with time in [`start`, `end`), the one with the most node time first."""
    by_job: dict[str, dict[str, list[Interval]]] = {}
    for item in work:
        by_job.setdefault(item.job, {}).setdefault(item.node, []).append(item.interval)
    found = [_job(job, nodes, logs.get(job), start, end) for job, nodes in by_job.items()]
    return tuple(sorted((j for j in found if j.node_us), key=lambda j: (-j.node_us, j.job)))


def _job(
    job: str, by_node: Mapping[str, list[Interval]], log: IntervalLog | None, start: datetime, end: datetime
) -> JobTime:
    first, last = microseconds(start), microseconds(end)
    of_nodes = [_clipped(merged(intervals), first, last) for intervals in by_node.values()]
    everywhere = [i for intervals in by_node.values() for i in intervals]
    together = _clipped(merged(everywhere), first, last)
    node_us = sum(b - a for pairs in of_nodes for a, b in pairs)
    parts: dict[Kind, int] = {}
    if log is not None and everywhere:
        began = min(microseconds(i.start) for i in everywhere)
        parts = _parts(of_nodes, log, began - log.start_us)
    return JobTime(
        job=job,
        nodes=sum(1 for pairs in of_nodes if pairs),
        node_us=node_us,
        wall_us=together[-1][1] - together[0][0] if together else 0,
        running_us=sum(b - a for a, b in together),
        interruptions=max(0, len(together) - 1),
        unread_us=node_us - sum(parts.values()),
        parts_us=parts,
        figures=goodput(log) if log is not None else None,
    )


def _parts(of_nodes: Iterable[list[tuple[int, int]]], log: IntervalLog, shift_us: int) -> dict[Kind, int]:
    parts: dict[Kind, int] = {}
    for pairs in of_nodes:
        for begin, until in pairs:
            for part in log.intervals:
                shared = min(until, part.end_us + shift_us) - max(begin, part.start_us + shift_us)
                if shared > 0:
                    parts[part.kind] = parts.get(part.kind, 0) + shared
    return {kind: parts[kind] for kind in Kind if kind in parts}


def _clipped(intervals: Iterable[Interval], first: int, last: int) -> list[tuple[int, int]]:
    pairs = (
        (max(first, microseconds(i.start)), last if i.end is None else min(last, microseconds(i.end)))
        for i in intervals
    )
    return [(a, b) for a, b in pairs if b > a]


@dataclass(frozen=True)
class Wait:
    """How long nodes waited for one thing (see `muster.operate.model.BlockerKind`)."""

    kind: str
    nodes: int
    node_us: int
    longest: timedelta


def waits(found: Iterable[tuple[str, str, Interval]], start: datetime, end: datetime) -> tuple[Wait, ...]:
    """(Node, kind, interval) summed by kind inside the window, the longest sum first."""
    first, last = microseconds(start), microseconds(end)
    by_kind: dict[str, dict[str, list[Interval]]] = {}
    for node, kind, item in found:
        by_kind.setdefault(kind, {}).setdefault(node, []).append(item)
    rows = []
    for kind, nodes in by_kind.items():
        lengths = [b - a for each in nodes.values() for a, b in _clipped(merged(each), first, last)]
        if lengths:
            waited = sum(1 for each in nodes.values() if _clipped(merged(each), first, last))
            rows.append(Wait(kind, waited, sum(lengths), timedelta(microseconds=max(lengths))))
    return tuple(sorted(rows, key=lambda row: (-row.node_us, row.kind)))
