"""From what the caches tell to rows of the history: what is new since the last look, bounded. No client, no clock."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from muster.operate.history.facts import (
    TEXT_LIMIT,
    DelayRow,
    NodeRow,
    RepairRow,
    Row,
    StepRow,
    WorkRow,
)
from muster.operate.history.schema import KEYS
from muster.operate.ledger import microseconds
from muster.operate.records import PodUse
from muster.plain_text import plain
from muster.resources.node_health import Blocker, NodeHealth, Transition
from muster.resources.repair import Repair

MOST_PENDING = 200_000
"""Rows that wait to be written, about 100 MiB. More than that are lost, and the time is then not known."""


class HealthFacts(msgspec.Struct, frozen=True):
    """What the history keeps of a NodeHealth."""

    name: str
    uid: str
    created: datetime | None
    history: tuple[Transition, ...]
    blockers: tuple[Blocker, ...]


_healths = msgspec.json.Decoder(NodeHealth, strict=False)
_repairs = msgspec.json.Decoder(Repair, strict=False)


def health_facts(raw: bytes) -> HealthFacts:
    """Raises msgspec.MsgspecError."""
    health = _healths.decode(raw)
    life = health.status.lifecycle
    return HealthFacts(
        name=health.metadata.name,
        uid=health.metadata.uid,
        created=health.metadata.creation_timestamp,
        history=life.history if life is not None else (),
        blockers=life.blockers if life is not None else (),
    )


def repair_row(raw: bytes) -> RepairRow | None:
    """None: the repair does not say yet when it was ordered. Raises msgspec.MsgspecError."""
    repair = _repairs.decode(raw)
    ordered = repair.metadata.creation_timestamp or repair.status.started_at
    if ordered is None:
        return None
    spec = repair.spec
    return RepairRow(
        _text(repair.metadata.name), spec.node_name, microseconds(ordered), spec.rung.value, spec.attempt
    )


class Collector:
    """Remembers what was told, so that only news become rows. `take` empties it, `give_back` undoes that."""

    def __init__(self, pool_of: Callable[[str], str], most_pending: int = MOST_PENDING) -> None:
        """`pool_of` names the pool of a node."""
        self._pool_of = pool_of
        self._most = most_pending
        self._pending: dict[tuple[Any, ...], Row] = {}
        self._nodes: dict[str, NodeRow] = {}
        self._told: dict[str, tuple[Transition, ...]] = {}
        self._work: dict[str, WorkRow] = {}
        self._delays: dict[str, dict[str, DelayRow]] = {}
        self.lost = 0
        """Rows that found no room since the last `forget`."""

    def __len__(self) -> int:
        return len(self._pending)

    def health(self, key: str, facts: HealthFacts | None, now_us: int) -> None:
        """The NodeHealth `key` is now `facts`; None: it is gone."""
        known = self._nodes.get(key)
        if known is not None and (facts is None or facts.uid != known.uid):
            self._put(replace(known, to_us=now_us))
            self._nodes.pop(key)
            self._told.pop(key, None)
            self._delays_of(key, (), now_us)
        if facts is None:
            return
        began = [microseconds(t.at) for t in facts.history]
        if facts.created is not None:
            began.append(microseconds(facts.created))
        row = NodeRow(key, facts.uid, _text(self._pool_of(key)), min(began, default=now_us))
        if self._nodes.get(key) != row:
            self._nodes[key] = row
            self._put(row)
        before = set(self._told.get(key, ()))
        seq = 0
        for index, step in enumerate(facts.history):
            seq = seq + 1 if index and facts.history[index - 1].at == step.at else 0
            if step not in before:
                self._put(_step_row(key, step, seq))
        self._told[key] = facts.history
        self._delays_of(key, facts.blockers, now_us)

    def pod(self, key: str, use: PodUse | None, now_us: int) -> None:
        """The pod `key` is now `use`; None: it is gone, by `now_us` at the latest."""
        known = self._work.get(key)
        if known is not None and (use is None or use.uid != known.pod or not use.running):
            same = use if use is not None and use.uid == known.pod else None
            end = same.finished if same is not None else None
            self._close_work(known, microseconds(end) if end is not None else now_us)
            self._work.pop(key)
            known = None
        if use is None or not use.counts:
            return
        started = microseconds(use.started) if use.started is not None else now_us
        row = WorkRow(_text(use.uid), use.node, _text(use.job), min(started, now_us))
        if use.running:
            if known is None:
                self._work[key] = row
                self._put(row)
        elif use.ended and use.started is not None and use.finished is not None:
            self._close_work(row, microseconds(use.finished))

    def repair(self, row: RepairRow | None) -> None:
        if row is not None:
            self._put(row)

    def settle(self, unfinished: Iterable[Row], last_watched_us: int | None, unreadable: Container[str] = ()) -> None:
        """Close what an earlier process left open and what is no more: it ended when nobody watched. What waits to
        be written is known better; of nodes that are `unreadable` nothing is known.

        It is said to have ended when somebody watched last: what came after that is not known.
        """
        nodes = {(r.name, r.uid) for r in self._nodes.values()}
        pods = {(r.pod, r.node) for r in self._work.values()}
        delays = {(r.node, r.kind, r.from_us) for of_node in self._delays.values() for r in of_node.values()}
        for row in unfinished:
            match row:
                case NodeRow():
                    there = (row.name, row.uid) in nodes or row.name in unreadable
                case WorkRow():
                    there = (row.pod, row.node) in pods
                case DelayRow():
                    there = (row.node, row.kind, row.from_us) in delays
                case _:
                    there = True
            if not there and self._key(row) not in self._pending and isinstance(row, NodeRow | WorkRow | DelayRow):
                self._put(replace(row, to_us=max(row.from_us, last_watched_us or 0)))

    def take(self) -> list[Row]:
        """Everything that is new. The caller writes it, or gives it back."""
        rows = list(self._pending.values())
        self._pending = {}
        return rows

    def give_back(self, rows: Iterable[Row]) -> None:
        """Rows that were taken and could not be written. What is newer stays."""
        newer = self._pending
        self._pending = {}
        for row in rows:
            self._put(row)
        self._pending.update(newer)

    def forget(self) -> None:
        """Begin anew, as if nothing had been told: the caches tell everything again afterwards."""
        self._pending, self._nodes, self._told, self._work, self._delays = {}, {}, {}, {}, {}
        self.lost = 0

    def _delays_of(self, node: str, blockers: Iterable[Blocker], now_us: int) -> None:
        before = self._delays.get(node, {})
        now: dict[str, DelayRow] = {}
        for blocker in blockers:
            row = DelayRow(node, _text(blocker.kind), min(microseconds(blocker.since), now_us))
            # Of several blockers of one kind the oldest counts.
            if row.kind not in now or row.from_us < now[row.kind].from_us:
                now[row.kind] = row
        for kind, row in before.items():
            if now.get(kind) != row:
                self._put(replace(row, to_us=now_us))
        for kind, row in now.items():
            if before.get(kind) != row:
                self._put(row)
        if now:
            self._delays[node] = now
        else:
            self._delays.pop(node, None)

    def _close_work(self, row: WorkRow, end_us: int) -> None:
        self._put(replace(row, to_us=max(row.from_us, end_us)))

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return (type(row), *(getattr(row, name) for name in KEYS[type(row)]))

    def _put(self, row: Row) -> None:
        key = self._key(row)
        if key not in self._pending and len(self._pending) >= self._most:
            self.lost += 1
            return
        self._pending[key] = row


def _step_row(node: str, step: Transition, seq: int) -> StepRow:
    return StepRow(
        node=node,
        at_us=microseconds(step.at),
        state=step.state.value,
        episode=_text(step.episode),
        cause_kind=step.cause.kind.value,
        cause_name=_text(step.cause.name),
        seq=seq,
    )


def _text(text: str) -> str:
    """What a database takes and a terminal shows: no control characters, bounded."""
    return plain(text, TEXT_LIMIT)
