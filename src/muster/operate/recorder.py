"""Keeps the ledger's raw material while it runs: transitions, busy intervals and repairs, as the API tells them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from muster.clock import Clock
from muster.kube.api import NODE_HEALTHS, PODS, REPAIRS, KubeApi
from muster.kube.cache import WatchCache
from muster.operate.ledger import Interval, NodeRecord, RungTime, merged
from muster.operate.records import PodUse, history_of, pod_use, present_from
from muster.resources.node_health import NodeHealth, Transition
from muster.resources.repair import Repair

MAX_TRANSITIONS = 4096
MAX_INTERVALS = 4096
MAX_RUNGS = 1024
"""Entries kept per node. Beyond them the oldest go, and the time that they told about becomes unknown."""


@dataclass
class _NodeNotes:
    """What was seen of one node."""

    present: Interval
    transitions: deque[Transition] = field(default_factory=lambda: deque(maxlen=MAX_TRANSITIONS))
    busy: deque[Interval] = field(default_factory=lambda: deque(maxlen=MAX_INTERVALS))
    rungs: deque[RungTime] = field(default_factory=lambda: deque(maxlen=MAX_RUNGS))
    known_from: datetime | None = None


class Recorder:
    """Watches NodeHealths, Pods and Repairs; `records()` gives what `ledger.build` wants.

    `on_health` and `on_repair` are told the name of an object that changed, after it was recorded.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        on_health: Callable[[str], None] | None = None,
        on_repair: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_health = on_health
        self._on_repair = on_repair
        self._started = clock.now()
        self._notes: dict[str, _NodeNotes] = {}
        self._open: dict[str, tuple[str, datetime]] = {}
        self._repairs_seen: dict[str, None] = {}
        health_json = msgspec.json.Decoder(NodeHealth, strict=False)
        repair_json = msgspec.json.Decoder(Repair, strict=False)
        self.healths: WatchCache[NodeHealth] = WatchCache(
            api, NODE_HEALTHS, health_json.decode, clock=clock, on_change=self._health_changed
        )
        self.pods: WatchCache[PodUse] = WatchCache(api, PODS, pod_use, clock=clock, on_change=self._pod_changed)
        self.repairs: WatchCache[Repair] = WatchCache(
            api, REPAIRS, repair_json.decode, clock=clock, on_change=self._repair_changed
        )

    async def run(self) -> None:
        """Record for ever."""
        async with asyncio.TaskGroup() as group:
            for cache in (self.healths, self.pods, self.repairs):
                group.create_task(cache.run())

    async def wait_synced(self) -> None:
        """Return when everything was seen once."""
        for cache in (self.healths, self.pods, self.repairs):
            await cache.wait_synced()

    def records(self) -> tuple[NodeRecord, ...]:
        """One record per node that was ever seen, sorted by name. Running pods have an open interval."""
        running: dict[str, list[Interval]] = {}
        for node, since in self._open.values():
            running.setdefault(node, []).append(Interval(since))
        return tuple(
            NodeRecord(
                name=name,
                present=notes.present,
                transitions=tuple(notes.transitions),
                busy=merged([*notes.busy, *running.get(name, ())]),
                watched=(Interval(notes.known_from or self._started),),
                rungs=tuple(notes.rungs),
            )
            for name, notes in sorted(self._notes.items())
        )

    def busy_nodes(self) -> frozenset[str]:
        """Nodes on which a user's GPU pod runs now."""
        return frozenset(node for node, _ in self._open.values())

    def _of(self, node: str) -> _NodeNotes:
        if node not in self._notes:
            self._notes[node] = _NodeNotes(Interval(self._clock.now()))
        return self._notes[node]

    def _health_changed(self, name: str) -> None:
        self._note_health(name)
        if self._on_health is not None:
            self._on_health(name)

    def _note_health(self, name: str) -> None:
        health = self.healths.get(name)
        notes = self._of(name)
        if health is None:
            notes.present = replace(notes.present, end=self._clock.now())
            return
        history = history_of(health)
        start = min(notes.present.start, present_from(health, history, notes.present.start))
        notes.present = Interval(start)
        last = notes.transitions[-1].at if notes.transitions else None
        for step in history:
            is_new = last is None or step.at > last or (step.at == last and step not in notes.transitions)
            if is_new:
                notes.transitions.append(step)

    def _pod_changed(self, key: str) -> None:
        use = self.pods.get(key)
        now = self._clock.now()
        opened = self._open.get(key)
        if use is not None and use.counts and use.running:
            if opened is None:
                self._open[key] = (use.node, min(use.started or now, now))
            return
        if opened is not None:
            node, since = self._open.pop(key)
            end = use.finished if use is not None and use.finished is not None else now
            self._close(node, since, end)
        elif use is not None and use.counts and use.ended and use.started and use.finished:
            # It ran and ended before, or between, the recorder's looks.
            self._close(use.node, use.started, use.finished)

    def _close(self, node: str, since: datetime, end: datetime) -> None:
        notes = self._of(node)
        if len(notes.busy) == MAX_INTERVALS:
            dropped = notes.busy[0]
            notes.known_from = max(notes.known_from or self._started, dropped.end or self._started)
        notes.busy.append(Interval(since, end))

    def _repair_changed(self, name: str) -> None:
        self._note_repair(name)
        if self._on_repair is not None:
            self._on_repair(name)

    def _note_repair(self, name: str) -> None:
        repair = self.repairs.get(name)
        if repair is None or name in self._repairs_seen:
            return
        self._repairs_seen[name] = None
        if len(self._repairs_seen) > 100_000:
            del self._repairs_seen[next(iter(self._repairs_seen))]
        ordered = repair.metadata.creation_timestamp or self._clock.now()
        self._of(repair.spec.node_name).rungs.append(RungTime(ordered, repair.spec.rung.value))
