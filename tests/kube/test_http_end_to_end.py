"""HttpApi against the simulated API server over TLS: every call of the interface, and the cache on a live watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SystemClock
from muster.errors import UnreachableError
from muster.kube.api import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    AlreadyExistsError,
    ConflictError,
    EventType,
    ForbiddenError,
    NotFoundError,
    Object,
    PatchType,
)
from muster.kube.cache import WatchCache
from muster.kube.http import HttpApi
from muster.sim.server import ApiServer
from muster.sim.store import Store


def with_server(folder: Path, use: Callable[[HttpApi, Path], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with ApiServer(Store(SystemClock())) as server:
            file = folder / "kubeconfig"
            file.write_text(server.kubeconfig())
            async with HttpApi.from_kubeconfig(file) as api:
                return await asyncio.wait_for(use(api, file), timeout=60)

    return asyncio.run(main())


def node(name: str, color: str = "red") -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"color": color}}}


def test_objects_are_written_and_read_in_every_way(tmp_path: Path) -> None:
    async def use(api: HttpApi, _: Path) -> None:
        assert (await api.server_version()).startswith("v1.")
        created = await api.create(NODES, node("n1"), manager="m")
        with pytest.raises(AlreadyExistsError):
            await api.create(NODES, node("n1"))
        with pytest.raises(NotFoundError):
            await api.get(NODES, "none")
        changed = await api.patch(NODES, "n1", {"metadata": {"labels": {"color": "blue"}}}, PatchType.MERGE)
        assert changed["metadata"]["labels"] == {"color": "blue"}
        with pytest.raises(ConflictError):
            await api.replace(NODES, {**created, "spec": {"unschedulable": True}})
        await api.replace(NODES, {**changed, "spec": {"unschedulable": True}})
        applied = await api.apply(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}, manager="muster"
        )
        assert applied["metadata"]["name"] == "n2"
        test = [{"op": "test", "path": "/spec/unschedulable", "value": True}]
        assert (await api.patch(NODES, "n1", test, PatchType.JSON))["spec"]["unschedulable"] is True
        first = await api.list_page(NODES, limit=1)
        rest = await api.list_page(NODES, limit=1, continue_token=first.continue_token)
        names = [json.loads(raw)["metadata"]["name"] for raw in first.items + rest.items]
        assert names == ["n1", "n2"]
        with pytest.raises(ConflictError):
            await api.delete(NODES, "n1", uid="another")
        await api.delete(NODES, "n1", uid=created["metadata"]["uid"])
        with pytest.raises(NotFoundError):
            await api.get(NODES, "n1")

    with_server(tmp_path, use)


def test_namespaced_objects_status_and_eviction(tmp_path: Path) -> None:
    async def use(api: HttpApi, _: Path) -> None:
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": "x", "namespace": "ns"},
            "spec": {"holderIdentity": "a"},
        }
        await api.create(LEASES, lease, "ns")
        assert (await api.get(LEASES, "x", "ns"))["spec"]["holderIdentity"] == "a"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        await api.create(PODS, pod)
        await api.patch(PODS, "p", {"status": {"phase": "Running"}}, PatchType.MERGE, "ns", subresource="status")
        assert (await api.get(PODS, "p", "ns"))["status"]["phase"] == "Running"
        await api.evict("p", "ns")
        page = await api.list_page(PODS, "ns", field_selector="metadata.name=p")
        assert all(json.loads(raw)["metadata"].get("deletionTimestamp") for raw in page.items)

    with_server(tmp_path, use)


def test_a_watch_gives_events_as_they_happen(tmp_path: Path) -> None:
    async def use(api: HttpApi, _: Path) -> list[tuple[EventType, str]]:
        start = (await api.list_page(CONFIG_MAPS)).resource_version
        found: list[tuple[EventType, str]] = []
        stream = api.watch(CONFIG_MAPS, start, label_selector="color=red")

        async def write() -> None:
            await api.create(CONFIG_MAPS, {"metadata": {"name": "n1", "labels": {"color": "red"}}}, "default")
            blue = {"metadata": {"labels": {"color": "blue"}}}
            await api.patch(CONFIG_MAPS, "n1", blue, PatchType.MERGE, "default")

        writing = asyncio.ensure_future(write())
        async for event in stream:
            found.append((event.type, json.loads(event.raw)["metadata"]["name"]))
            if event.type is EventType.DELETED:
                break
        await writing
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    assert with_server(tmp_path, use) == [(EventType.ADDED, "n1"), (EventType.DELETED, "n1")]


def test_the_cache_follows_a_live_server(tmp_path: Path) -> None:
    async def use(api: HttpApi, _: Path) -> list[str]:
        changes: asyncio.Queue[str] = asyncio.Queue()
        await api.create(NODES, node("n1"))
        cache: WatchCache[str] = WatchCache(
            api,
            NODES,
            lambda raw: str(json.loads(raw)["metadata"]["labels"]["color"]),
            clock=SystemClock(),
            on_change=changes.put_nowait,
        )
        running = asyncio.ensure_future(cache.run())
        assert await changes.get() == "n1"
        await api.create(NODES, node("n2", "green"))
        assert await changes.get() == "n2"
        assert dict(cache.items()) == {"n1": "red", "n2": "green"}
        await api.delete(NODES, "n1")
        assert await changes.get() == "n1"
        running.cancel()
        await asyncio.wait({running})
        return sorted(cache.items())

    assert with_server(tmp_path, use) == ["n2"]


def test_a_wrong_token_is_forbidden_and_a_wrong_authority_is_no_answer(tmp_path: Path) -> None:
    async def use(api: HttpApi, file: Path) -> None:
        text = file.read_text()
        token = next(line for line in text.splitlines() if "token:" in line)
        file.write_text(text.replace(token, token.split("token:")[0] + "token: wrong"))
        async with HttpApi.from_kubeconfig(file) as stranger:
            with pytest.raises(ForbiddenError):
                await stranger.get(NODES, "n1")
        authority = next(line for line in text.splitlines() if "certificate-authority-data:" in line)
        file.write_text(text.replace(authority + "\n", ""))
        async with HttpApi.from_kubeconfig(file) as stranger:
            with pytest.raises(UnreachableError, match="No answer from the API server"):
                await stranger.get(NODES, "n1")

    with_server(tmp_path, use)
