"""`KubeApi` straight on a `Store`, without HTTP: for deterministic simulation, the demo and tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from muster.kube.api import (
    ConnectionLostError,
    ListPage,
    Object,
    PatchType,
    ResourceType,
    WatchEvent,
)
from muster.sim.api_deletion import DeleteOptions
from muster.sim.api_faults import ConnectionDroppedError, Fault, Request
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListOptions
from muster.sim.api_status import StatusError, bad_request
from muster.sim.api_watch import Watch, WatchItem, WatchOptions, bookmark
from muster.sim.history import Version
from muster.sim.identities import trusted
from muster.sim.store import Store, WriteOptions

T = TypeVar("T")
_decode = msgspec.json.decode


class InProcessApi:
    """The store as one user sees it. `manager` is the field manager of writes that name none."""

    def __init__(self, store: Store, user: str = "system:admin", *, manager: str = "in-process") -> None:
        self._store = store
        self._user = user
        self._manager = manager

    # Reading

    async def get(self, res: ResourceType, name: str, namespace: str = "") -> Object:
        def act() -> Object:
            kind = self._store.kind(res)
            return self._object(kind, self._store.get(kind, name, namespace))

        return await self._serve(self._request("get", res, namespace, name), act)

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
        def act() -> ListPage:
            kind = self._store.kind(res)
            options = ListOptions(label_selector, field_selector, limit, continue_token, resource_version)
            found = self._store.list(kind, namespace, options)
            raws = tuple(self._store.raw_item(kind, version) for version in found.items)
            return ListPage(raws, str(found.version), found.continue_token)

        return await self._serve(self._request("list", res, namespace), act)

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
        request = self._request("watch", res, namespace)
        fault = await self._before(request)

        def act() -> tuple[Kind, Watch]:
            kind = self._store.kind(res)
            options = WatchOptions(
                resource_version=resource_version,
                label_selector=label_selector,
                field_selector=field_selector,
                timeout_s=timeout_s,
                bookmarks=True,
                drop_after_s=fault.drop_after_s if fault is not None else None,
            )
            return kind, Watch(self._store, kind, namespace, options)

        kind, watch = self._typed(act)
        try:
            async for batch in watch.batches():
                for item in batch:
                    yield WatchEvent(item.type, self._event_raw(kind, item))
        except StatusError as error:
            raise error.to_api_error() from None
        except ConnectionDroppedError:
            raise self._lost(request) from None

    def _event_raw(self, kind: Kind, item: WatchItem) -> bytes:
        return bookmark(kind, item) if item.version is None else self._store.raw(kind, item.version)

    # Writing

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        def act() -> Object:
            kind = self._store.kind(res)
            return self._object(kind, self._store.create(kind, obj, namespace, self._options(manager)))

        name = str((obj.get("metadata") or {}).get("name") or "")
        return await self._serve(self._request("create", res, namespace, name, "", manager), act)

    async def replace(self, res: ResourceType, obj: Object, *, subresource: str = "", manager: str = "") -> Object:
        name, namespace = _identity(obj)

        def act() -> Object:
            kind = self._store.kind(res)
            options = self._options(manager)
            return self._object(
                kind, self._store.update(kind, name, obj, namespace, options, subresource=subresource)
            )

        return await self._serve(self._request("update", res, namespace, name, subresource, manager), act)

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
        def act() -> Object:
            kind = self._store.kind(res)
            options = self._options(manager)
            version = self._store.patch(kind, name, patch, patch_type, namespace, options, subresource=subresource)
            return self._object(kind, version)

        return await self._serve(self._request("patch", res, namespace, name, subresource, manager), act)

    async def apply(
        self, res: ResourceType, obj: Object, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        name, namespace = _identity(obj)

        def act() -> Object:
            kind = self._store.kind(res)
            options = WriteOptions(manager=manager, user=self._user)
            version, _ = self._store.apply(kind, name, obj, namespace, options, force=force, subresource=subresource)
            return self._object(kind, version)

        return await self._serve(self._request("apply", res, namespace, name, subresource, manager), act)

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
        def act() -> None:
            kind = self._store.kind(res)
            options = DeleteOptions(
                grace_period_s=grace_period_s,
                uid=uid,
                resource_version=resource_version,
                identity=trusted(self._user),
            )
            self._store.delete(kind, name, namespace, options)

        await self._serve(self._request("delete", res, namespace, name), act)

    async def evict(self, pod: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        options: dict[str, Any] = {}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if uid:
            options["preconditions"] = {"uid": uid}
        eviction = {"metadata": {"name": pod, "namespace": namespace}, "deleteOptions": options}
        request = Request("evict", "", "pods", namespace, pod, "eviction", self._user)
        await self._serve(request, lambda: self._store.evict(pod, namespace, eviction))

    async def bind(self, pod: str, namespace: str, node: str) -> None:
        """Assign a pod to a node (`pods/binding`); a scheduler's write, beyond `KubeApi`."""
        request = Request("create", "", "pods", namespace, pod, "binding", self._user)
        await self._serve(request, lambda: self._store.bind(pod, namespace, {"target": {"name": node}}))

    # Serving

    def _options(self, manager: str) -> WriteOptions:
        return WriteOptions(manager=manager or self._manager, user=self._user)

    def _request(
        self,
        verb: str,
        res: ResourceType,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        manager: str = "",
    ) -> Request:
        return Request(verb, res.group, res.plural, namespace, name, subresource, self._user, manager)

    async def _before(self, request: Request) -> Fault | None:
        """Give way once, then carry out what the fault hook wants to happen before the request."""
        await asyncio.sleep(0)
        fault = self._store.faults(request) if self._store.faults is not None else None
        if fault is None:
            return None
        if fault.delay_s > 0:
            await self._store.clock.sleep(fault.delay_s)
        if not fault.after_write:
            self._fail(request, fault)
        return fault

    async def _serve(self, request: Request, act: Callable[[], T]) -> T:
        fault = await self._before(request)
        result = self._typed(act)
        if fault is not None and fault.after_write:
            self._fail(request, fault)
        return result

    def _fail(self, request: Request, fault: Fault) -> None:
        if fault.lost:
            raise self._lost(request)
        if fault.error is not None:
            raise fault.error.to_api_error()

    def _typed(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except StatusError as error:
            raise error.to_api_error() from None
        except RecursionError:
            raise bad_request("the object is nested too deeply").to_api_error() from None

    def _lost(self, request: Request) -> ConnectionLostError:
        what = f"{request.verb} of {request.plural} {request.name}".rstrip()
        return ConnectionLostError(f"The connection to the API server broke during {what}; try again.")

    def _object(self, kind: Kind, version: Version) -> Object:
        decoded: Object = _decode(self._store.raw(kind, version))
        return decoded


def _identity(obj: Object) -> tuple[str, str]:
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
