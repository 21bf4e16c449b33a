"""Watches: from a version or from the present state, through selectors, with bookmarks and a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.kube.api import EventType
from muster.sim.api_faults import ConnectionDroppedError
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import matcher_of, parse_version
from muster.sim.api_status import StatusError, bad_request
from muster.sim.history import Change, Storage, Version
from muster.sim.selectors import Matcher

if TYPE_CHECKING:
    from muster.sim.store import Store

BOOKMARK_EVERY_S = 60.0


@dataclass(frozen=True)
class WatchOptions:
    """`resource_version` "" or "0" begins with the present objects as ADDED events.

    `drop_after_s` breaks the connection after that time (a fault).
    """

    resource_version: str = ""
    label_selector: str = ""
    field_selector: str = ""
    timeout_s: float = 1800.0
    bookmarks: bool = False
    send_initial_events: bool | None = None
    drop_after_s: float | None = None


@dataclass(frozen=True)
class WatchItem:
    """One event. `version` is None for a bookmark, which only carries `number`; `initial_end` marks the bookmark that
    ends the initial events."""

    type: EventType
    number: int
    version: Version | None = None
    initial_end: bool = False


class Watch:
    """One open watch. Made synchronously, so that bad requests fail before anything is streamed."""

    def __init__(self, store: Store, kind: Kind, namespace: str, options: WatchOptions) -> None:
        self._store = store
        self._namespace = namespace
        self._options = options
        self._matches: Matcher | None = matcher_of(kind, options.label_selector, options.field_selector)
        self._storage: Storage = store.storage(kind)
        self._epoch = store.watch_epoch
        self._start = store.version
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        number = parse_version(options.resource_version)
        initial = options.send_initial_events
        if initial and not options.bookmarks:
            raise bad_request("sendInitialEvents is set: allowWatchBookmarks must be set too")
        if number > store.version:
            raise StatusError(504, "Timeout", f"Too large resource version: {number}, current: {store.version}")
        from_now = number == 0 or initial is True
        self._first: list[Version] = self._present() if from_now and initial is not False else []
        self._mark_end = initial is True
        self._position = self._storage.end if from_now else self._storage.position(number)

    def _present(self) -> list[Version]:
        found = [self._storage.objects[key] for key in self._storage.keys(self._namespace)]
        return [version for version in found if self._matches is None or self._matches(version.obj)]

    async def events(self) -> AsyncIterator[WatchItem]:
        """Events one by one; see `batches`."""
        async for batch in self.batches():
            for item in batch:
                yield item

    async def batches(self) -> AsyncIterator[list[WatchItem]]:
        """Events until the time limit, as many at a time as there are.

        Raises StatusError 410 when history was forgotten, ConnectionDroppedError.
        """
        try:
            async for batch in self._batches():
                yield batch
        finally:
            self._end()

    async def _batches(self) -> AsyncIterator[list[WatchItem]]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.timeout_s
        drop_at = None if self._options.drop_after_s is None else loop.time() + self._options.drop_after_s
        first = [WatchItem(EventType.ADDED, version.number, version) for version in self._first]
        if self._mark_end:
            first.append(WatchItem(EventType.BOOKMARK, self._start, initial_end=True))
        self._first = []
        if first:
            yield first
        next_bookmark = loop.time() + BOOKMARK_EVERY_S
        while True:
            if self._store.watch_epoch != self._epoch or (drop_at is not None and loop.time() >= drop_at):
                raise ConnectionDroppedError
            if pending := self._pending():
                yield pending
            if self._position != self._storage.end or self._store.watch_epoch != self._epoch:
                continue
            if self._storage.closed:
                return
            now = loop.time()
            ends = now >= deadline
            if self._options.bookmarks and (ends or now >= next_bookmark):
                next_bookmark = now + BOOKMARK_EVERY_S
                yield [WatchItem(EventType.BOOKMARK, self._store.version)]
                if not ends:
                    continue
            if ends:
                return
            wake_at = min(
                x for x in (deadline, drop_at, next_bookmark if self._options.bookmarks else None) if x is not None
            )
            await self._sleep_until(wake_at)

    def _pending(self) -> list[WatchItem]:
        items = []
        for change in self._storage.since(self._position):
            self._position += 1
            if not self._namespace or change.key[0] == self._namespace:
                seen = self._seen(change)
                if seen is not None:
                    left = seen is EventType.DELETED and change.type is not EventType.DELETED
                    items.append(WatchItem(seen, change.number, _as_left(change) if left else change.current))
        return items

    def _seen(self, change: Change) -> EventType | None:
        """How the change looks through the selectors; None when it does not show."""
        if self._matches is None:
            return change.type
        before = change.previous is not None and self._matches(change.previous.obj)
        if change.type is EventType.DELETED:
            return EventType.DELETED if before else None
        after = self._matches(change.current.obj)
        if after:
            return EventType.MODIFIED if before else EventType.ADDED
        return EventType.DELETED if before else None

    async def _sleep_until(self, when: float) -> None:
        """Wait for the next change, at most until `when` on the loop's clock."""
        if self._timer is None or self._timer.cancelled() or self._timer.when() != when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(when, self._ring)
        self._waiter = self._storage.wait()
        try:
            await self._waiter
        finally:
            self._storage.drop_waiter(self._waiter)

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _as_left(change: Change) -> Version:
    """What a selector no longer shows: the last state that it showed, under the number of the change."""
    shown = change.previous.obj if change.previous is not None else change.current.obj
    return Version({**shown, "metadata": {**shown["metadata"], "resourceVersion": str(change.number)}}, change.number)
