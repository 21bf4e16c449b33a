"""Clients and queues that tell an observer what goes through them. Nothing is changed on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    PODS,
    ApiError,
    GoneError,
    KubeApi,
    ListPage,
    Object,
    PatchType,
    ResourceType,
    ServerError,
    TooManyRequestsError,
    WatchEvent,
)
from muster.kube.cache import close_watch
from muster.kube.queue import WorkQueue
from muster.telemetry.observer import ControllerObserver, RequestObserver

T = TypeVar("T")

OK = 200
NO_ANSWER = 0


class WatchEnd(StrEnum):
    """Why a watch ended."""

    TIMEOUT = "timeout"
    """Its time was up, as agreed."""
    EXPIRED = "expired"
    """The resource version is too old: the cache lists again."""
    LOST = "lost"
    """The connection broke or stayed silent."""
    REFUSED = "refused"
    THROTTLED = "throttled"


def watch_end(error: ApiError | UnreachableError) -> WatchEnd:
    """The reason that stands for what a watch raised."""
    match error:
        case GoneError():
            return WatchEnd.EXPIRED
        case TooManyRequestsError():
            return WatchEnd.THROTTLED
        case ServerError() | UnreachableError():
            return WatchEnd.LOST
        case ApiError():
            return WatchEnd.REFUSED


class MeteredApi:
    """`api`, whose requests are told to `observer`: verb as in RBAC, resource (with subresource), status, seconds.

    Times are the event loop's: they say how a real server behaves, whatever time is simulated. A request that is
    given up (cancelled) is not told.
    """

    def __init__(self, api: KubeApi, observer: RequestObserver) -> None:
        self._api = api
        self._observer = observer

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object:
        return await self._told("get", res.plural, self._api.get(res, name, namespace))

    async def list_page(
        self,
        res: ResourceType,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        request = self._api.list_page(
            res,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )
        return await self._told("list", res.plural, request)

    async def watch(
        self,
        res: ResourceType,
        resource_version: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
    ) -> AsyncIterator[WatchEvent]:
        stream = self._api.watch(
            res,
            resource_version,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_s=timeout_s,
        )
        try:
            async for event in stream:
                yield event
        except (ApiError, UnreachableError) as error:
            self._observer.watch_ended(res.plural, watch_end(error).value)
            raise
        finally:
            await close_watch(stream)
        # Reached only when the watch ended by itself: one that its reader closes is not told.
        self._observer.watch_ended(res.plural, WatchEnd.TIMEOUT.value)

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        return await self._told("create", res.plural, self._api.create(res, obj, namespace, manager=manager))

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        request = self._api.replace(res, obj, subresource=subresource, manager=manager)
        return await self._told("update", _with(res, subresource), request)

    async def patch(
        self,
        res: ResourceType,
        name: str,
        patch: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        request = self._api.patch(res, name, patch, patch_type, namespace, subresource=subresource, manager=manager)
        return await self._told("patch", _with(res, subresource), request)

    async def apply(
        self,
        res: ResourceType,
        obj: Object,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> Object:
        request = self._api.apply(res, obj, manager=manager, force=force, subresource=subresource)
        return await self._told("apply", _with(res, subresource), request)

    async def delete(
        self,
        res: ResourceType,
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        request = self._api.delete(
            res, name, namespace, grace_period_s=grace_period_s, uid=uid, resource_version=resource_version
        )
        await self._told("delete", res.plural, request)

    async def evict(self, pod: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        request = self._api.evict(pod, namespace, uid=uid, grace_period_s=grace_period_s)
        await self._told("create", _with(PODS, "eviction"), request)

    async def _told(self, verb: str, resource: str, request: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            answer = await request
        except ApiError as error:
            self._observer.request(verb, resource, error.code, loop.time() - started)
            raise
        except UnreachableError:
            self._observer.request(verb, resource, NO_ANSWER, loop.time() - started)
            raise
        self._observer.request(verb, resource, OK, loop.time() - started)
        return answer


class MeteredQueue(WorkQueue):
    """A work queue that tells how long each key that was due waited for a worker."""

    def __init__(self, clock: Clock, observer: ControllerObserver) -> None:
        super().__init__(clock)
        self._observer = observer
        self._due_since: dict[str, float] = {}

    def add(self, key: str) -> None:
        self._due_since.setdefault(key, asyncio.get_running_loop().time())
        super().add(key)

    async def get(self) -> str:
        key = await super().get()
        since = self._due_since.pop(key, None)
        if since is not None:
            self._observer.waited(asyncio.get_running_loop().time() - since)
        return key


def _with(res: ResourceType, subresource: str) -> str:
    return f"{res.plural}/{subresource}" if subresource else res.plural
