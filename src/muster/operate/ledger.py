"""The ledger: for every node and microsecond one class of time, with its cause and rung. Pure.

It is rebuilt from lifecycle transitions and from the intervals in which GPU pods of users ran. Times are integer
microseconds, so the classes of a node add up to its wall time exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar, assert_never

from muster.resources.node_health import CauseKind, State, Transition

HOUR_US = 3_600_000_000
"""An hour in microseconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
K = TypeVar("K")


class TimeClass(StrEnum):
    """What a node's time went to."""

    BUSY = "in-service-busy"
    IDLE = "in-service-idle"
    HELD = "held"
    CERTIFYING = "certifying"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    REPAIRING = "repairing"
    OUT_OF_SERVICE = "out-of-service"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Interval:
    """From `start` up to, not including, `end` (None: still open)."""

    start: datetime
    end: datetime | None = None


@dataclass(frozen=True)
class RungTime:
    """The repair on `rung` that was ordered at `at`."""

    at: datetime
    rung: str


@dataclass(frozen=True)
class NodeRecord:
    """What is known about one node. Nothing in it needs to be sorted.

    `present` is when the node existed. `watched` is when somebody watched the pods, None: all the time. Outside of it
    a node in service counts as `unknown` unless a busy interval covers the time.
    """

    name: str
    present: Interval
    transitions: tuple[Transition, ...] = ()
    busy: tuple[Interval, ...] = ()
    watched: tuple[Interval, ...] | None = None
    rungs: tuple[RungTime, ...] = ()
    pool: str = "default"


@dataclass(frozen=True)
class Span:
    """A stretch of one node's time. `busy` tells whether a user's GPU pod ran, whatever the class.

    `cause` is what opened the episode that the time belongs to, None in service and where it is not known. `rung` is
    set while repairing.
    """

    node: str
    pool: str
    start_us: int
    end_us: int
    time_class: TimeClass
    busy: bool = False
    cause: CauseKind | None = None
    cause_name: str = ""
    rung: str = ""
    episode: str = ""

    @property
    def length_us(self) -> int:
        return self.end_us - self.start_us


@dataclass(frozen=True)
class Ledger:
    """All spans of all nodes inside the window [`start_us`, `end_us`), sorted by node and time, without gaps."""

    start_us: int
    end_us: int
    spans: tuple[Span, ...]

    @property
    def total_us(self) -> int:
        """Node time of the window: the sum over nodes of how long each existed in it."""
        return sum(span.length_us for span in self.spans)

    def by_class(self) -> dict[TimeClass, int]:
        """Microseconds per class; every class is present."""
        sums = self.sums(lambda span: span.time_class)
        return {time_class: sums.get(time_class, 0) for time_class in TimeClass}

    def sums(self, key: Callable[[Span], K]) -> dict[K, int]:
        """Microseconds per `key(span)`, in the order of first appearance."""
        found: dict[K, int] = {}
        for span in self.spans:
            name = key(span)
            found[name] = found.get(name, 0) + span.length_us
        return found


def microseconds(at: datetime) -> int:
    """Integer microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def build(records: Iterable[NodeRecord], start: datetime, end: datetime) -> Ledger:
    """The ledger of `records` over [`start`, `end`). Raises ValueError when the window ends before it starts."""
    first, last = microseconds(start), microseconds(end)
    if last < first:
        raise ValueError("the window ends before it starts")
    spans: list[Span] = []
    for record in sorted(records, key=lambda r: r.name):
        spans.extend(_spans(record, first, last))
    return Ledger(first, last, tuple(spans))


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The union of `intervals` as disjoint intervals in order; empty and reversed ones vanish."""
    result: list[Interval] = []
    for item in sorted(intervals, key=lambda i: i.start):
        if item.end is not None and item.end <= item.start:
            continue
        if not result or (result[-1].end is not None and result[-1].end < item.start):
            result.append(item)
            continue
        before = result[-1]
        if before.end is not None and (item.end is None or item.end > before.end):
            result[-1] = Interval(before.start, item.end)
    return tuple(result)


def _spans(record: NodeRecord, first: int, last: int) -> list[Span]:
    start = max(first, microseconds(record.present.start))
    end = min(last, microseconds(record.present.end)) if record.present.end is not None else last
    if end <= start:
        return []
    steps = sorted(record.transitions, key=lambda t: t.at)
    step_times = [microseconds(t.at) for t in steps]
    busy = _pairs(record.busy, end)
    rungs = sorted(((microseconds(r.at), r.rung) for r in record.rungs), key=lambda r: r[0])
    watched = _pairs(record.watched, end) if record.watched is not None else [(start, end)]
    marks = [*step_times, *(edge for pair in (*busy, *watched) for edge in pair), *(at for at, _ in rungs)]
    edges = [start, *sorted({m for m in marks if start < m < end}), end]
    origins = _origins(steps)
    return _joined(
        _span(record, begin, until, steps, step_times, busy, rungs, watched, origins)
        for begin, until in pairwise(edges)
    )


def _pairs(intervals: Iterable[Interval], end: int) -> list[tuple[int, int]]:
    return [(microseconds(i.start), microseconds(i.end) if i.end is not None else end) for i in merged(intervals)]


def _covers(pairs: Sequence[tuple[int, int]], moment: int) -> bool:
    at = bisect_right(pairs, moment, key=lambda pair: pair[0]) - 1
    return at >= 0 and moment < pairs[at][1]


def _span(
    record: NodeRecord,
    begin: int,
    until: int,
    steps: Sequence[Transition],
    step_times: Sequence[int],
    busy: Sequence[tuple[int, int]],
    rungs: Sequence[tuple[int, str]],
    watched: Sequence[tuple[int, int]],
    origins: Sequence[Transition],
) -> Span:
    is_busy = _covers(busy, begin)
    index = bisect_right(step_times, begin) - 1
    if index < 0:
        return Span(record.name, record.pool, begin, until, TimeClass.UNKNOWN, is_busy)
    step = steps[index]
    time_class = _class_of(step.state, is_busy, _covers(watched, begin))
    if step.state is State.IN_SERVICE:
        return Span(record.name, record.pool, begin, until, time_class, is_busy)
    origin = origins[index]
    rung_at = bisect_right(rungs, begin, key=lambda pair: pair[0]) - 1
    rung = rungs[rung_at][1] if time_class is TimeClass.REPAIRING and rung_at >= 0 else ""
    return Span(
        record.name,
        record.pool,
        begin,
        until,
        time_class,
        is_busy,
        origin.cause.kind,
        origin.cause.name,
        rung,
        step.episode,
    )


PLANNED = (CauseKind.NEW_NODE, CauseKind.DRIFT, CauseKind.AGE)
TROUBLE = (CauseKind.CERTIFICATION, CauseKind.FAULT, CauseKind.PERSON)


def _origins(steps: Sequence[Transition]) -> list[Transition]:
    """For each transition the one whose cause its time is booked on.

    That is the one with which the node left service. When it left for a planned test and that went wrong, the time
    from then on is booked on what went wrong.
    """
    origin: Transition | None = None
    found = []
    for step in steps:
        kind = step.cause.kind
        went_wrong = step.state is State.QUARANTINED and kind in TROUBLE
        if origin is None or kind is CauseKind.NEW_NODE or (went_wrong and origin.cause.kind in PLANNED):
            origin = step
        found.append(origin)
        if step.state is State.IN_SERVICE:
            origin = None
    return found


def _class_of(state: State, busy: bool, watched: bool) -> TimeClass:
    match state:
        case State.IN_SERVICE:
            if busy:
                return TimeClass.BUSY
            return TimeClass.IDLE if watched else TimeClass.UNKNOWN
        case State.UNCERTIFIED:
            return TimeClass.HELD
        case State.CERTIFYING:
            return TimeClass.CERTIFYING
        case State.QUARANTINED:
            return TimeClass.QUARANTINED
        case State.DRAINING:
            return TimeClass.DRAINING
        case State.REPAIRING:
            return TimeClass.REPAIRING
        case State.OUT_OF_SERVICE:
            return TimeClass.OUT_OF_SERVICE
        case _:
            assert_never(state)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Neighbours that differ in nothing but time become one."""
    result: list[Span] = []
    for span in spans:
        before = result[-1] if result else None
        if before is not None and _same(before, span):
            result[-1] = replace(before, end_us=span.end_us)
        else:
            result.append(span)
    return result


def _same(a: Span, b: Span) -> bool:
    return replace(a, start_us=b.start_us, end_us=b.end_us) == b
