"""The rows of the history: what was seen, each with a key of its own, so that telling it twice changes nothing. Pure.

Times are integer microseconds since 1970. `to_us` None: it goes on, as far as was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from muster.operate.ledger import EPOCH, Interval, NodeRecord, RungTime
from muster.resources.node_health import Cause, CauseKind, State, Transition

TEXT_LIMIT = 512
"""Characters of a text that are kept."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One incarnation of a node, by the UID of its NodeHealth."""

    name: str
    uid: str
    pool: str
    from_us: int
    to_us: int | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """The node entered `state`, for a cause."""

    node: str
    at_us: int
    state: str
    episode: str
    cause_kind: str
    cause_name: str
    seq: int = 0
    """Which of the steps that the node made in one moment this is, from 0."""


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A pod of a user's `job` ran on the GPUs of `node`."""

    pod: str
    node: str
    job: str
    from_us: int
    to_us: int | None = None


@dataclass(frozen=True, slots=True)
class RepairRow:
    """A repair on `rung` was ordered."""

    name: str
    node: str
    at_us: int
    rung: str
    attempt: int


@dataclass(frozen=True, slots=True)
class WatchedRow:
    """One process watched the pods without a break."""

    session: str
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class DelayRow:
    """The node waited for `kind` (see `muster.operate.model.BlockerKind`)."""

    node: str
    kind: str
    from_us: int
    to_us: int | None = None


Row: TypeAlias = NodeRow | StepRow | WorkRow | RepairRow | WatchedRow | DelayRow
ROWS: tuple[type[Row], ...] = (NodeRow, StepRow, WorkRow, RepairRow, WatchedRow, DelayRow)


@dataclass(frozen=True)
class Facts:
    """What a history knows of a window. `kept_from_us`: what was before it has been deleted; None: nothing was."""

    nodes: tuple[NodeRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    work: tuple[WorkRow, ...] = ()
    repairs: tuple[RepairRow, ...] = ()
    watched: tuple[WatchedRow, ...] = ()
    delays: tuple[DelayRow, ...] = field(default=())
    kept_from_us: int | None = None


def moment(at_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=at_us)


def interval(from_us: int, to_us: int | None) -> Interval:
    return Interval(moment(from_us), moment(to_us) if to_us is not None else None)


def records_of(facts: Facts) -> tuple[NodeRecord, ...]:
    """What the ledger is built from: a record for each incarnation of a node, by name and time.

    Of two incarnations that overlap the later one has the time. Words of a newer version (a state, a kind of cause)
    are left out: the time that they tell about belongs to the step before.
    """
    by_name: dict[str, list[NodeRow]] = {}
    for row in facts.nodes:
        by_name.setdefault(row.name, []).append(row)
    ordered = sorted(facts.steps, key=lambda s: (s.at_us, s.seq))
    steps = _grouped((s.node, _transition(s)) for s in ordered)
    work = _grouped((w.node, interval(w.from_us, w.to_us)) for w in facts.work)
    rungs = _grouped((r.node, RungTime(moment(r.at_us), r.rung)) for r in facts.repairs)
    watched = tuple(interval(w.from_us, w.to_us) for w in facts.watched)
    found = []
    for name, rows in sorted(by_name.items()):
        lives = sorted(rows, key=lambda r: (r.from_us, r.uid))
        for index, row in enumerate(lives):
            ends = [r.from_us for r in lives[index + 1 :]] + ([row.to_us] if row.to_us is not None else [])
            present = interval(row.from_us, min(ends, default=None))
            found.append(
                NodeRecord(
                    name=name,
                    present=present,
                    transitions=tuple(t for t in steps.get(name, ()) if t is not None and _within(present, t.at)),
                    busy=tuple(work.get(name, ())),
                    watched=watched,
                    rungs=tuple(r for r in rungs.get(name, ()) if _within(present, r.at)),
                    pool=row.pool,
                )
            )
    return tuple(found)


def _transition(row: StepRow) -> Transition | None:
    if row.state not in list(State) or row.cause_kind not in list(CauseKind):
        return None
    cause = Cause(kind=CauseKind(row.cause_kind), name=row.cause_name)
    return Transition(state=State(row.state), at=moment(row.at_us), episode=row.episode, cause=cause)


def _within(present: Interval, at: datetime) -> bool:
    return present.start <= at and (present.end is None or at < present.end)


T = TypeVar("T")


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found
