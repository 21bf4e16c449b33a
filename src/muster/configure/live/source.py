"""Where objects are read from: lists for one look, watch caches for who looks again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from muster.clock import Clock
from muster.errors import MusterError, UnreachableError
from muster.kube.api import KubeApi, ResourceType
from muster.kube.cache import WatchCache

T = TypeVar("T")
PAGE = 250
HEAVY_PAGE = 25
"""A CRD, or a secret with Helm's record, can be a megabyte."""
_HEAVY = frozenset({"customresourcedefinitions", "secrets"})
MAX_OBJECTS = 200_000


SYNC_LIMIT_S = 120.0
"""The first list of a watch must be there after so long."""


class TooManyError(MusterError):
    """There are more objects than are looked at."""


class Source(Protocol):
    """Objects of one kind in one namespace (empty: all), each projected; a projection of None is left out.

    Raises ApiError, UnreachableError, TooManyError.
    """

    async def objects(
        self, res: ResourceType, namespace: str, project: Callable[[bytes], T | None], label_selector: str = ""
    ) -> tuple[T, ...]: ...


class Lists:
    """Lists anew each time, page by page; an object that cannot be read is an error of its kind."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def objects(
        self, res: ResourceType, namespace: str, project: Callable[[bytes], T | None], label_selector: str = ""
    ) -> tuple[T, ...]:
        found: list[T] = []
        token, seen = "", 0
        limit = HEAVY_PAGE if res.plural in _HEAVY else PAGE
        while True:
            page = await self._api.list_page(
                res, namespace, label_selector=label_selector, limit=limit, continue_token=token
            )
            seen += len(page.items)
            if seen > MAX_OBJECTS:
                raise TooManyError(f"there are more than {MAX_OBJECTS} {res.plural}; narrow what is compared")
            found.extend(value for raw in page.items if (value := project(raw)) is not None)
            token = page.continue_token
            if not token:
                return tuple(found)


class Caches:
    """Watches what was asked for once, and answers from memory from then on.

    `on_change` is called whenever anything that is kept changes. Run it as a context manager: leaving it ends the
    watches. A kind that the server refuses is asked for anew each time, so a grant of rights is noticed.
    """

    def __init__(self, api: KubeApi, clock: Clock, on_change: Callable[[], None]) -> None:
        self._api = api
        self._clock = clock
        self._on_change = on_change
        self._caches: dict[tuple[ResourceType, str, str], tuple[WatchCache[Any], asyncio.Task[None]]] = {}

    async def objects(
        self, res: ResourceType, namespace: str, project: Callable[[bytes], T | None], label_selector: str = ""
    ) -> tuple[T, ...]:
        key = (res, namespace, label_selector)
        if key not in self._caches:
            # A cache waits for ever on a server that refuses; one page tells whether it does.
            await self._api.list_page(res, namespace, label_selector=label_selector, limit=1)
            cache: WatchCache[Any] = WatchCache(
                self._api,
                res,
                project,
                clock=self._clock,
                namespace=namespace,
                label_selector=label_selector,
                on_change=lambda _: self._on_change(),
            )
            self._caches[key] = (cache, asyncio.ensure_future(cache.run()))
        cache, _ = self._caches[key]
        try:
            async with asyncio.timeout(SYNC_LIMIT_S):
                await cache.wait_synced()
        except TimeoutError as error:
            raise UnreachableError(f"The API server did not list {res.plural} within {SYNC_LIMIT_S:g} s.") from error
        if cache.rejected:
            name, why = sorted(cache.rejected.items())[0]
            raise msgspec.ValidationError(f"{res.kind} {name}: {why}")
        items = cache.items()
        return tuple(items[name] for name in sorted(items) if items[name] is not None)

    async def __aenter__(self) -> Caches:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for _, task in self._caches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
