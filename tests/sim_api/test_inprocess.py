"""`InProcessApi`: typed errors, private copies, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.kube.api import (
    NODES,
    PODS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ConnectionLostError,
    InvalidError,
    KubeApi,
    NotFoundError,
    PatchType,
    ServerError,
    TooManyRequestsError,
)
from muster.sim.api_faults import Fault, Request, internal_error, timed_out, too_many_requests, unavailable
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

from .samples import add_budget, make_ready, node, pod

Scene = Callable[[Store, InProcessApi, VirtualClock], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    async def main(clock: VirtualClock) -> None:
        store = Store(clock)
        await scene(store, InProcessApi(store), clock)

    run_virtual(main)


def test_it_is_a_kube_api() -> None:
    api: KubeApi = InProcessApi(Store(VirtualClock()))
    assert api is not None


def test_objects_are_private_copies() -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        mine = node(a="1")
        created = await api.create(NODES, mine)
        mine["metadata"]["labels"]["a"] = "changed"
        created["metadata"]["labels"]["a"] = "changed"
        assert (await api.get(NODES, "n1"))["metadata"]["labels"] == {"a": "1"}

    play(scene)


def test_errors_are_typed() -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        with pytest.raises(NotFoundError, match='nodes "n1" not found'):
            await api.get(NODES, "n1")
        old = await api.create(NODES, node())
        with pytest.raises(AlreadyExistsError):
            await api.create(NODES, node())
        with pytest.raises(InvalidError):
            await api.create(NODES, node("Bad Name"))
        await api.patch(NODES, "n1", {"metadata": {"labels": {"a": "1"}}}, PatchType.MERGE)
        with pytest.raises(ConflictError):
            await api.replace(NODES, old)
        with pytest.raises(ConflictError):
            await api.delete(NODES, "n1", uid="other")
        await api.create(PODS, pod("p1", "n1", app="a"), "default")
        make_ready(store, "p1")
        add_budget(store, {"minAvailable": 1})
        with pytest.raises(TooManyRequestsError):
            await api.evict("p1", "default")
        with pytest.raises(InvalidError, match="not a JSON value"):
            await api.create(NODES, {"metadata": {"name": object()}})

    play(scene)


def test_every_write_of_the_protocol() -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        obj = await api.create(NODES, node(), manager="maker")
        assert "managedFields" not in obj["metadata"]
        obj = await api.get(NODES, "n1")
        obj["metadata"]["labels"] = {"a": "1"}
        obj = await api.replace(NODES, obj, manager="replacer")
        obj = await api.apply(NODES, node(b="2"), manager="applier")
        assert obj["metadata"]["labels"] == {"a": "1", "b": "2"}
        managers = [entry["manager"] for entry in obj["metadata"]["managedFields"]]
        assert managers == ["applier", "before-first-apply"]
        await api.create(PODS, pod(), "default")
        await api.bind("p1", "default", "n1")
        await api.evict("p1", "default", grace_period_s=0)
        with pytest.raises(NotFoundError):
            await api.get(PODS, "p1", "default")
        page = await api.list_page(NODES, limit=1)
        assert (len(page.items), page.continue_token) == (1, "")
        await api.delete(NODES, "n1")
        assert (await api.list_page(NODES)).items == ()

    play(scene)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (too_many_requests(3), TooManyRequestsError),
        (internal_error(), ServerError),
        (unavailable(), ServerError),
        (timed_out(), ServerError),
    ],
)
def test_faults_before_the_write(error: Any, kind: type[ApiError]) -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        store.faults = lambda request: Fault(error=error) if request.verb == "create" else None
        with pytest.raises(kind) as caught:
            await api.create(NODES, node())
        assert caught.value.retry_after_s == (3 if kind is TooManyRequestsError else None)
        with pytest.raises(NotFoundError):
            await api.get(NODES, "n1")

    play(scene)


def test_faults_after_the_write_and_delays() -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        seen: list[Request] = []

        def hook(request: Request) -> Fault | None:
            seen.append(request)
            return Fault(delay_s=7, lost=True, after_write=True) if request.verb == "apply" else None

        store.faults = hook
        with pytest.raises(ConnectionLostError):
            await api.apply(NODES, node(), manager="m")
        assert clock.elapsed_s == pytest.approx(7)
        assert (await api.get(NODES, "n1"))["metadata"]["name"] == "n1"
        assert (seen[0].verb, seen[0].plural, seen[0].name, seen[0].manager) == ("apply", "nodes", "n1", "m")

    play(scene)


def test_dropped_watches() -> None:
    async def scene(store: Store, api: InProcessApi, clock: VirtualClock) -> None:
        async def watch() -> None:
            async for _ in api.watch(NODES, "0"):
                pass

        first = asyncio.create_task(watch())
        await clock.sleep(1)
        store.drop_watches()
        with pytest.raises(ConnectionLostError):
            await first
        store.faults = lambda request: Fault(drop_after_s=5) if request.verb == "watch" else None
        began = clock.elapsed_s
        with pytest.raises(ConnectionLostError):
            await watch()
        assert clock.elapsed_s - began == pytest.approx(5)

    play(scene)
