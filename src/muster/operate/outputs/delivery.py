"""Delivering events at least once, in order, to receivers that may be away for hours.

What is delivered comes from the histories of the NodeHealths, which are durable. For each receiver a ConfigMap keeps
up to which time everything was delivered; a new leader reads the histories from there. In memory only a bounded
number of events waits; when more happen, the histories are read again later.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    CONFIG_MAPS,
    NODE_HEALTHS,
    NODES,
    AlreadyExistsError,
    ApiError,
    KubeApi,
    NotFoundError,
    PatchType,
    ResourceType,
)
from muster.kube.backoff import Backoff
from muster.operate.outputs.config import SinkKind
from muster.operate.outputs.event import FleetEvent, events_for, events_of, in_order, rank
from muster.operate.outputs.http_sink import Answer, Sink
from muster.operate.together import run_together
from muster.operate.views import node_health, node_record
from muster.plain_text import printable
from muster.resources.base import CONTROLLER_MANAGER, SYSTEM_NAMESPACE
from muster.resources.node_health import Lifecycle, Transition
from muster.resources.topology import domain_of, pool_of
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)

CURSORS = "muster-outputs"
"""Name of the ConfigMap: receiver -> time up to which everything was delivered."""
CHUNK = 50
"""Events handed over together."""
GATHER_S = 1.0
"""What happens within this time is handed over together: a rack that fails is one message for people."""
CHAT_PAUSE_S = 10.0
"""A chat gets all that happened in such a time as one message: people read it."""
WAITING_LIMIT = 5000
REFUSED_ALONE = 3
"""So many events that are refused one by one in a row say that it is not about single events."""
REMEMBERED = timedelta(days=60)
"""A mark before that is no mark: histories hardly reach so far back."""
OVERLAP = timedelta(minutes=5)
"""How far before its mark a new leader reads again: clocks differ, and a second delivery does no harm."""
SAVE_S = 10.0
SAVED_ENOUGH = timedelta(minutes=1)
"""Marks move all the time. Once kept, they need not be newer than that: far less than is read again anyway."""


class _Outbox:
    """What waits for one receiver."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.mark: datetime | None = None
        """Everything before it was delivered."""
        self.waiting: dict[str, FleetEvent] = {}
        self.overflowed = False
        """Something happened that had no room; the histories have it."""
        self.missed = 0
        self._size = self._largest
        self._refused_alone = 0
        self.news = asyncio.Event()
        self.delivered: dict[str, datetime] = {}
        """IDs delivered lately, so that reading again does not send them again."""
        self.failing = ""

    @property
    def _largest(self) -> int:
        """Events in one request at most. A chat message tells of all: it shows few and counts the rest."""
        return WAITING_LIMIT if self.sink.config.kind is SinkKind.SLACK else CHUNK

    @property
    def pause_s(self) -> float:
        return CHAT_PAUSE_S if self.sink.config.kind is SinkKind.SLACK else 0.0

    def wants(self, event: FleetEvent) -> bool:
        return event.id not in self.delivered and event.id not in self.waiting and self.sink.config.only.takes(event)

    def offer(self, events: Iterable[FleetEvent]) -> None:
        for event in events:
            if not self.wants(event):
                continue
            if len(self.waiting) >= WAITING_LIMIT:
                self.overflowed = True
                self.missed += 1
                break
            self.waiting[event.id] = event
        if self.waiting:
            self.news.set()

    def chunk(self) -> list[FleetEvent]:
        return in_order(self.waiting.values())[: self._size]

    def narrowed(self, events: Sequence[FleetEvent]) -> bool:
        """After a refusal of `events`: whether fewer of them are to be tried, so that one costs no other."""
        config = self.sink.config
        if config.kind is SinkKind.CLOUDEVENTS and not config.batch:
            return False  # each had a request of its own
        if len(events) > 1 and self._refused_alone < REFUSED_ALONE:
            self._size = len(events) // 2
            return True
        self._refused_alone += len(events) == 1
        if self._refused_alone >= REFUSED_ALONE:
            self._size = self._largest
        return False

    def taken(self) -> None:
        """A request was taken."""
        self._refused_alone = 0
        self._size = min(self._largest, 2 * self._size)

    def done(self, events: Sequence[FleetEvent], now: datetime) -> None:
        for event in events:
            self.waiting.pop(event.id, None)
            self.delivered[event.id] = event.at
        oldest = min((e.at for e in self.waiting.values()), default=None)
        last = max((e.at for e in events), default=now)
        if not self.overflowed:
            self.mark = max(self.mark or last, min(oldest, last) if oldest is not None else last)
        keep = (self.mark or now) - 2 * OVERLAP
        self.delivered = {key: at for key, at in self.delivered.items() if at >= keep}
        if not self.waiting:
            self.news.clear()

    def rest(self, now: datetime) -> None:
        """Nothing waits: everything up to now was delivered."""
        if not self.waiting and not self.overflowed:
            self.mark = max(self.mark or now, now)

    def lag_s(self, now: datetime) -> float:
        oldest = min((e.at for e in self.waiting.values()), default=None)
        return max(0.0, (now - oldest).total_seconds()) if oldest is not None else 0.0


def _events(raw: bytes, labels: Mapping[str, Mapping[str, str]], since: datetime) -> tuple[FleetEvent, ...]:
    """The events since then of one NodeHealth; none of one that cannot be read, which the controller says."""
    try:
        health = node_health(raw)
    except msgspec.MsgspecError:
        return ()
    life, name = health.status.lifecycle, health.metadata.name
    if life is None:
        return ()
    own = labels.get(name, {})
    return events_of(name, life, since=since, domain=domain_of(own) or "", pool=pool_of(own))


async def _always() -> bool:
    return True


class Outputs:
    """Runs in the leading process beside the node controller, which tells it of each step that was written."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        sinks: Sequence[Sink],
        *,
        still_leading: Callable[[], Awaitable[bool]] = _always,
        observer: ControllerObserver | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._still_leading = still_leading
        self._observer = observer or ControllerObserver()
        self._outboxes = [_Outbox(sink) for sink in sinks]
        self._saved: dict[str, str] = {}
        self._saved_at: datetime | None = None

    def stepped(
        self, node: str, labels: Mapping[str, str], life: Lifecycle, transitions: Sequence[Transition]
    ) -> None:
        """The last `transitions` of `life` were just written. Never waits, never fails."""
        if transitions and self._outboxes:
            events = events_for(node, life, transitions, domain=domain_of(labels) or "", pool=pool_of(labels))
            for outbox in self._outboxes:
                outbox.offer(events)

    def lags(self) -> dict[str, float]:
        """Receiver -> age of the oldest event that waits for it, seconds."""
        now = self._clock.now()
        return {outbox.sink.config.name: outbox.lag_s(now) for outbox in self._outboxes}

    async def run(self) -> None:
        """Deliver for ever; cancel it to stop. What was not delivered then is delivered by the next leader."""
        if not self._outboxes:
            await asyncio.get_running_loop().create_future()
        try:
            await self._begin()
            await run_together(self._keep_marks(), *(self._serve(outbox) for outbox in self._outboxes))
        finally:
            for outbox in self._outboxes:
                await outbox.sink.close()

    # From where

    async def _begin(self) -> None:
        backoff = Backoff("outputs/begin", base_s=1.0, cap_s=60.0)
        while True:
            try:
                marks = await self._marks()
                for outbox in self._outboxes:
                    # A receiver that is new gets what happens from now on, not the whole past.
                    now = self._clock.now()
                    outbox.mark = min(max(marks.get(outbox.sink.config.name, now), now - REMEMBERED), now)
                await self._read_histories(self._outboxes)
            except (ApiError, UnreachableError) as error:
                log.warning("outputs: cannot read where deliveries stand: %s", error)
                await self._clock.sleep(backoff.next_s())
            else:
                return

    async def _marks(self) -> dict[str, datetime]:
        try:
            found = await self._api.get(CONFIG_MAPS, CURSORS, SYSTEM_NAMESPACE)
        except NotFoundError:
            return {}
        marks: dict[str, datetime] = {}
        for name, text in sorted((found.get("data") or {}).items()):
            try:
                at = datetime.fromisoformat(str(text))
            except ValueError:
                log.warning("outputs: %s of ConfigMap %s is no time and is ignored", printable(name), CURSORS)
                continue
            marks[name] = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return marks

    async def _read_histories(self, outboxes: Sequence[_Outbox]) -> None:
        """Offer everything since the mark of each of `outboxes`. Raises ApiError or UnreachableError."""
        missed = [outbox.missed for outbox in outboxes]
        now = self._clock.now()
        since = [(outbox.mark or now) - OVERLAP for outbox in outboxes]
        # The histories of a large fleet are large: a page at a time, and of its events no more than have room.
        oldest: list[list[FleetEvent]] = [[] for _ in outboxes]
        labels = {r.name: r.labels async for page in self._pages(NODES) for r in map(node_record, page)}
        async for page in self._pages(NODE_HEALTHS):
            events = [event for raw in page for event in _events(raw, labels, min(since))]
            for index, outbox in enumerate(outboxes):
                wanted = (e for e in events if e.at >= since[index] and outbox.wants(e))
                oldest[index] = heapq.nsmallest(WAITING_LIMIT + 1, (*oldest[index], *wanted), key=rank)
        for outbox, before, events in zip(outboxes, missed, oldest, strict=True):
            # What found no room while the histories were read may not be in them yet.
            outbox.overflowed = outbox.missed != before
            outbox.offer(events)

    async def _pages(self, resource: ResourceType) -> AsyncIterator[Sequence[bytes]]:
        token = ""
        while True:
            page = await self._api.list_page(resource, limit=500, continue_token=token)
            yield page.items
            token = page.continue_token
            if not token:
                return

    # One receiver

    async def _serve(self, outbox: _Outbox) -> None:
        backoff = Backoff(f"outputs/{outbox.sink.config.name}", base_s=1.0, cap_s=300.0)
        while True:
            await outbox.news.wait()
            await self._clock.sleep(GATHER_S)
            if not await self._still_leading():
                # The election ends this soon; another process delivers, from the mark.
                await self._clock.sleep(SAVE_S)
                continue
            events = outbox.chunk()
            if not events:
                await self._catch_up(outbox, backoff)
                continue
            answer, why = await outbox.sink.deliver(events)
            if answer is Answer.REFUSED and outbox.narrowed(events):
                self._observer.output(outbox.sink.config.name, Answer.AGAIN.value, len(events))
                continue
            self._observer.output(outbox.sink.config.name, answer.value, len(events))
            self._say(outbox, answer, why)
            if answer is Answer.AGAIN:
                await self._clock.sleep(backoff.next_s())
                continue
            backoff.reset()
            if answer is Answer.DELIVERED:
                outbox.taken()
            outbox.done(events, self._clock.now())
            if outbox.overflowed and not outbox.waiting:
                await self._catch_up(outbox, backoff)
            await self._clock.sleep(outbox.pause_s)

    async def _catch_up(self, outbox: _Outbox, backoff: Backoff) -> None:
        """Read what did not fit into memory."""
        outbox.news.clear()
        try:
            await self._read_histories([outbox])
        except (ApiError, UnreachableError) as error:
            log.warning("outputs: %s waits for the API server: %s", outbox.sink.config.name, error)
            outbox.news.set()
            await self._clock.sleep(backoff.next_s())

    def _say(self, outbox: _Outbox, answer: Answer, why: str) -> None:
        name = outbox.sink.config.name
        if answer is Answer.DELIVERED:
            if outbox.failing:
                log.warning("outputs: %s takes events again", name)
            outbox.failing = ""
            return
        if answer is Answer.REFUSED:
            log.warning("outputs: %s refuses events, they are not sent again: %s", name, why)
        elif why != outbox.failing:
            log.warning("outputs: %s cannot be reached, events wait for it: %s", name, why)
        outbox.failing = why if answer is Answer.AGAIN else ""

    # Marks

    async def _keep_marks(self) -> None:
        while True:
            await self._clock.sleep(SAVE_S)
            try:
                await self._save()
            except (ApiError, UnreachableError) as error:
                log.warning("outputs: cannot keep where deliveries stand: %s", error)

    async def _save(self) -> None:
        for outbox in self._outboxes:
            outbox.rest(self._clock.now())
        now = {o.sink.config.name: o.mark.isoformat() for o in self._outboxes if o.mark is not None}
        if now == self._saved or self._saved_lately(now) or not await self._still_leading():
            return
        body = {"data": now}
        try:
            await self._api.patch(
                CONFIG_MAPS, CURSORS, body, PatchType.MERGE, SYSTEM_NAMESPACE, manager=CONTROLLER_MANAGER
            )
        except NotFoundError:
            meta = {"name": CURSORS, "namespace": SYSTEM_NAMESPACE}
            created = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **body}
            try:
                await self._api.create(CONFIG_MAPS, created, SYSTEM_NAMESPACE, manager=CONTROLLER_MANAGER)
            except AlreadyExistsError:
                return
        self._saved, self._saved_at = now, self._clock.now()

    def _saved_lately(self, marks: Mapping[str, str]) -> bool:
        at = self._saved_at
        return at is not None and self._saved.keys() == marks.keys() and self._clock.now() < at + SAVED_ENOUGH
