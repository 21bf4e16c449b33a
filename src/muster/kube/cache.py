"""Watch cache: list, then watch, and keep one slim projection for each object.

The cache never decides anything. It tells which key changed; whoever is told looks at the present state.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import ApiError, EventType, GoneError, KubeApi, ResourceType, TooManyRequestsError, WatchEvent
from muster.kube.backoff import Backoff

T = TypeVar("T")
log = logging.getLogger(__name__)

PAGE_SIZE = 500
"""Objects per list request; the default page of client-go's pager."""

WATCH_TIMEOUT_S = (300.0, 600.0)
"""Range from which the time limit of each watch is drawn, so that many clients do not reconnect at one moment."""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Header(msgspec.Struct):
    metadata: _Metadata


_header = msgspec.json.Decoder(_Header)


class WatchCache(Generic[T]):
    """List-watch of one resource, kept as slim projections.

    `project` turns the JSON of one object into the value that is kept. When it raises, the object is treated as
    absent, the reason is logged and stands in `rejected`. `on_change` is called with the key (`name` or
    `namespace/name`) after the projection changed, appeared or went away; an event that leaves the projection equal
    is not passed on.
    """

    def __init__(
        self,
        api: KubeApi,
        res: ResourceType,
        project: Callable[[bytes], T],
        *,
        clock: Clock,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        on_change: Callable[[str], None] | None = None,
        seed: int = 0,
    ) -> None:
        self._api = api
        self._res = res
        self._project = project
        self._clock = clock
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._on_change = on_change
        name = f"{res.plural}.{res.group}/{namespace}/{label_selector}/{field_selector}/{seed}"
        self._random = random.Random(zlib.crc32(name.encode()))  # noqa: S311 - jitter, not a secret
        self._backoff = Backoff(name)
        self._items: dict[str, T] = {}
        self._versions: dict[str, str] = {}
        self._rejected: dict[str, str] = {}
        self._version = ""
        self._synced = asyncio.Event()

    @property
    def synced(self) -> bool:
        """True once the first list is complete; stays true, the cache then lags at most by an outage."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """Up to which version of the collection the cache has seen everything; empty before the first list."""
        return self._version

    @property
    def rejected(self) -> Mapping[str, str]:
        """Objects that could not be projected, with the reason."""
        return MappingProxyType(self._rejected)

    async def wait_synced(self) -> None:
        """Return when the first list is complete. Waits for ever while the API server refuses or is away."""
        await self._synced.wait()

    def get(self, key: str) -> T | None:
        """The projection of `name` or `namespace/name`, or None."""
        return self._items.get(key)

    def items(self) -> Mapping[str, T]:
        """A read-only live view, in no promised order: sort before the order can matter."""
        return MappingProxyType(self._items)

    async def run(self) -> None:
        """List and watch for ever. May be cancelled and run again: it resumes from the last version seen."""
        while True:
            try:
                if not self._version:
                    await self._relist()
                    self._synced.set()
                if await self._watch():
                    self._backoff.reset()
                else:
                    # A server that ends each watch at once must not be asked in a tight loop.
                    await self._clock.sleep(self._backoff.next_s())
            except GoneError:
                self._version = ""
                await self._clock.sleep(self._backoff.next_s())
            except TooManyRequestsError as error:
                await self._clock.sleep(max(error.retry_after_s or 0.0, self._backoff.next_s()))
            except (ApiError, UnreachableError, msgspec.MsgspecError) as error:
                wait_s = self._backoff.next_s()
                log.warning("watch of %s: %s; again in %.1f s", self._res.plural, error, wait_s)
                await self._clock.sleep(wait_s)

    async def _relist(self) -> None:
        """Read the whole collection, page by page, and report what differs, deletions included."""
        found: set[str] = set()
        token = ""
        while True:
            page = await self._api.list_page(
                self._res, self._namespace, limit=PAGE_SIZE, continue_token=token, **self._selectors
            )
            # Page by page: the JSON of a large fleet at once is many times what is kept of it.
            for raw in page.items:
                found.add(_key(_header.decode(raw).metadata))
                self._put(raw)
            token = page.continue_token
            if not token:
                break
        for key in [key for key in self._versions if key not in found]:
            self._remove(key)
        self._version = page.resource_version

    async def _watch(self) -> bool:
        """One watch until it ends. Returns whether the connection was of use (an event, or its time was up)."""
        limit_s = self._random.uniform(*WATCH_TIMEOUT_S)
        started = self._clock.now()
        useful = False
        stream = self._api.watch(self._res, self._version, self._namespace, timeout_s=limit_s, **self._selectors)
        try:
            async for event in stream:
                self._take(event)
                if not useful:
                    useful = True
                    self._backoff.reset()
        finally:
            await close_watch(stream)
        return useful or (self._clock.now() - started).total_seconds() >= 1.0

    def _take(self, event: WatchEvent) -> None:
        if event.type is EventType.BOOKMARK:
            self._version = _header.decode(event.raw).metadata.resource_version
        elif event.type is EventType.DELETED:
            metadata = _header.decode(event.raw).metadata
            self._remove(_key(metadata))
            self._version = metadata.resource_version
        else:
            self._version = self._put(event.raw)

    def _put(self, raw: bytes) -> str:
        """Keep the projection of one object; returns the object's version."""
        metadata = _header.decode(raw).metadata
        key = _key(metadata)
        if self._versions.get(key) == metadata.resource_version:
            return metadata.resource_version
        self._versions[key] = metadata.resource_version
        try:
            value = self._project(raw)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"[:300]
            log.warning("%s %s is not readable and counts as absent: %s", self._res.kind, key, reason)
            self._rejected[key] = reason
            if key in self._items:
                del self._items[key]
                self._notify(key)
            return metadata.resource_version
        self._rejected.pop(key, None)
        if key in self._items and self._items[key] == value:
            return metadata.resource_version
        self._items[key] = value
        self._notify(key)
        return metadata.resource_version

    def _remove(self, key: str) -> None:
        self._versions.pop(key, None)
        self._rejected.pop(key, None)
        if key in self._items:
            del self._items[key]
            self._notify(key)

    def _notify(self, key: str) -> None:
        if self._on_change is not None:
            self._on_change(key)


def _key(metadata: _Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


async def close_watch(stream: Any) -> None:
    """Close a watch now: an abandoned generator would keep its connection until the garbage collector comes by."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()
