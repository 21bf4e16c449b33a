"""Watches: from a version or from the present state, through selectors, with bookmarks and a time limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from muster.kube.api import EventType, Object
from muster.sim.api_faults import ConnectionDroppedError
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import matcher_of, parse_version, too_large
from muster.sim.api_paths import Query
from muster.sim.api_status import StatusError, forbidden_field, invalid, unsupported_value
from muster.sim.history import Change, Storage, Version
from muster.sim.selectors import Matcher

if TYPE_CHECKING:
    from muster.sim.store import Store

BOOKMARK_EVERY_S = 60.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the initial events."""


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
    resource_version_match: str = ""
    continue_token: str = ""
    drop_after_s: float | None = None


def watch_options(query: Query, drop_after_s: float | None = None) -> WatchOptions:
    """What the query of a watch asks for. Raises StatusError 400."""
    timeout = query.number("timeoutSeconds")
    return WatchOptions(
        resource_version=query.text("resourceVersion"),
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        timeout_s=float(timeout) if timeout else 1800.0,
        bookmarks=query.flag("allowWatchBookmarks"),
        send_initial_events=query.flag_or_none("sendInitialEvents"),
        resource_version_match=query.text("resourceVersionMatch"),
        continue_token=query.text("continue"),
        drop_after_s=drop_after_s,
    )


@dataclass(frozen=True)
class WatchItem:
    """One event. `version` is None for a bookmark, which only carries `number`; `initial_end` marks the bookmark that
    ends the initial events. `first`: nothing came before it."""

    type: EventType
    number: int
    version: Version | None = None
    initial_end: bool = False
    first: bool = False


class Watch:
    """One open watch. Made synchronously, so that bad requests fail before anything is streamed."""

    def __init__(self, store: Store, kind: Kind, namespace: str, options: WatchOptions) -> None:
        _check(options)
        self._store = store
        self._namespace = namespace
        self._options = options
        self._matches: Matcher | None = matcher_of(kind, options.label_selector, options.field_selector)
        self._storage: Storage = store.storage(kind)
        self._epoch = store.watch_epoch
        self._start = store.version
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._began = False
        self._refusal: StatusError | None = None
        try:
            self._after = parse_version(options.resource_version)
        except ValueError as error:
            # Not a refusal of the request but an accident inside the API server: no reason, and 500.
            raise StatusError(500, "", str(error)) from None
        initial = options.send_initial_events
        from_now = self._after == 0 or initial is True
        self._first: list[Version] = self._present() if from_now and initial is not False else []
        self._mark_end = from_now and initial is not False and options.bookmarks
        self._position = self._storage.end
        if not from_now:
            try:
                self._position = self._storage.position(self._after)
            except StatusError as error:
                self._refusal = error
        elif self._after > store.version:
            self._refusal = too_large(self._after, store.version)

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

        Raises StatusError: 410 when history was or is forgotten, 504 for initial events at a future version. Raises
        ConnectionDroppedError.
        """
        if self._refusal is not None:
            raise self._refusal
        try:
            async for batch in self._batches():
                if not self._began:
                    self._began = True
                    batch = [replace(batch[0], first=True), *batch[1:]]
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
            # A watch that is shorter than the pause between bookmarks gets none at its end.
            last = ends and self._options.timeout_s >= BOOKMARK_EVERY_S
            if self._options.bookmarks and (last or now >= next_bookmark):
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
            if change.number <= self._after:
                continue
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


def _check(options: WatchOptions) -> None:
    """Raises StatusError 422 for options that exclude each other."""
    match, initial, causes = options.resource_version_match, options.send_initial_events, []
    if initial is not None and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(forbidden_field("resourceVersionMatch", text))
    if match and initial is None:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden_field("resourceVersionMatch", text))
    if match and match != "NotOlderThan":
        causes.append(unsupported_value("resourceVersionMatch", match, ["NotOlderThan"]))
    if options.continue_token:
        text = "resourceVersionMatch is forbidden when continue is provided"
        causes.append(forbidden_field("resourceVersionMatch", text))
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)


def bookmark(kind: Kind, item: WatchItem) -> bytes:
    """The JSON of a bookmark's object."""
    metadata: Object = {"resourceVersion": str(item.number)}
    if item.initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return json.dumps({"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}).encode()


def _as_left(change: Change) -> Version:
    """What a selector no longer shows: the last state that it showed, under the number of the change."""
    shown = change.previous.obj if change.previous is not None else change.current.obj
    return Version({**shown, "metadata": {**shown["metadata"], "resourceVersion": str(change.number)}}, change.number)
