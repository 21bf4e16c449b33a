"""A scripted API server for the tests of the shells: every fault is switched on by the test itself.

It keeps objects with resource versions and a bounded history, and nothing else; likeness to a real server is the
business of the simulated API server's own tests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from muster.kube.api import (
    AlreadyExistsError,
    ConflictError,
    ConnectionLostError,
    EventType,
    GoneError,
    ListPage,
    NotFoundError,
    Object,
    ResourceType,
    WatchEvent,
)

Hook = Callable[[str], Awaitable[None]]


async def nothing(_verb: str) -> None:
    """The hook of a server that works."""


class FakeApi:
    """`before` runs before a request is carried out, `after` between its effect and its answer; both may raise."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.version = 0
        self.history: list[tuple[int, str, WatchEvent]] = []
        self.oldest = 0
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.lists = 0
        self.watches = 0
        self.streams: list[asyncio.Queue[WatchEvent | Exception]] = []
        self.page_size = 0

    # The world's side

    def put(self, res: ResourceType, obj: Object) -> Object:
        key = (res.plural, obj["metadata"]["name"])
        self.version += 1
        stored = json.loads(json.dumps(obj))
        stored["metadata"]["resourceVersion"] = str(self.version)
        kind = EventType.MODIFIED if key in self.objects else EventType.ADDED
        self.objects[key] = stored
        self._emit(res, kind, stored)
        return json.loads(json.dumps(stored))  # type: ignore[no-any-return]

    def remove(self, res: ResourceType, name: str) -> None:
        stored = self.objects.pop((res.plural, name))
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        self._emit(res, EventType.DELETED, stored)

    def bookmark(self) -> None:
        self.version += 1
        raw = json.dumps({"metadata": {"resourceVersion": str(self.version)}}).encode()
        for stream in self.streams:
            stream.put_nowait(WatchEvent(EventType.BOOKMARK, raw))

    def compact(self) -> None:
        """Forget the history: older versions are Gone from now on."""
        self.history.clear()
        self.oldest = self.version

    def break_watches(self, error: Exception | None = None) -> None:
        for stream in self.streams:
            stream.put_nowait(error or ConnectionLostError("the stream broke"))

    def _emit(self, res: ResourceType, kind: EventType, stored: Object) -> None:
        event = WatchEvent(kind, json.dumps(stored).encode())
        self.history.append((self.version, res.plural, event))
        for stream in self.streams:
            stream.put_nowait(event)

    # The client's side

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object:
        await self.before("get")
        await asyncio.sleep(0)
        if (res.plural, name) not in self.objects:
            raise NotFoundError(404, "NotFound", f"{res.plural} {name} not found")
        stored = json.loads(json.dumps(self.objects[res.plural, name]))
        await self.after("get")
        return stored  # type: ignore[no-any-return]

    async def list_page(
        self, res: ResourceType, namespace: str = "", *, limit: int = 0, continue_token: str = "", **_: Any
    ) -> ListPage:
        await self.before("list")
        self.lists += 1
        await asyncio.sleep(0)
        items = [
            json.dumps(obj).encode() for (plural, _), obj in sorted(self.objects.items()) if plural == res.plural
        ]
        start = int(continue_token or 0)
        size = self.page_size or len(items) or 1
        rest = str(start + size) if start + size < len(items) else ""
        return ListPage(tuple(items[start : start + size]), str(self.version), rest)

    async def watch(
        self, res: ResourceType, resource_version: str, namespace: str = "", *, timeout_s: float = 300.0, **_: Any
    ) -> AsyncIterator[WatchEvent]:
        await self.before("watch")
        self.watches += 1
        if int(resource_version) < self.oldest:
            raise GoneError(410, "Expired", "too old resource version")
        stream: asyncio.Queue[WatchEvent | Exception] = asyncio.Queue()
        for version, plural, event in self.history:
            if version > int(resource_version) and plural == res.plural:
                stream.put_nowait(event)
        self.streams.append(stream)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    got = await stream.get()
                    if isinstance(got, Exception):
                        raise got
                    yield got
        except TimeoutError:
            return
        finally:
            self.streams.remove(stream)

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        await self.before("create")
        if (res.plural, obj["metadata"]["name"]) in self.objects:
            raise AlreadyExistsError(409, "AlreadyExists", "exists")
        stored = self.put(res, obj)
        await self.after("create")
        return stored

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        await self.before("replace")
        current = self.objects.get((res.plural, obj["metadata"]["name"]))
        if current is None:
            raise NotFoundError(404, "NotFound", "not found")
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != current["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "the object has been modified")
        stored = self.put(res, obj)
        await self.after("replace")
        return stored
