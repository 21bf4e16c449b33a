"""The metered client changes nothing on the way, and says how watches and requests end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muster.kube.api import (
    NODES,
    ApiError,
    ConnectionLostError,
    ForbiddenError,
    GoneError,
    KubeApi,
    ListPage,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    WatchEvent,
)
from muster.kube.cache import WatchCache
from muster.kube.metered import MeteredApi, MeteredQueue, WatchEnd, watch_end
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from muster.telemetry.observer import ControllerObserver


class Told(ControllerObserver):
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.ends: list[tuple[str, str]] = []
        self.waits: list[float] = []

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self.requests.append((verb, resource, code))

    def watch_ended(self, resource: str, reason: str) -> None:
        self.ends.append((resource, reason))

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)


def test_it_has_every_method_of_the_interface_with_the_same_parameters() -> None:
    for name, method in inspect.getmembers(KubeApi, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(MeteredApi, name)) == inspect.signature(method), name


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (GoneError(410, "Expired", ""), WatchEnd.EXPIRED),
        (TooManyRequestsError(429, "TooManyRequests", ""), WatchEnd.THROTTLED),
        (ForbiddenError(403, "Forbidden", ""), WatchEnd.REFUSED),
        (ServerError(503, "ServiceUnavailable", ""), WatchEnd.LOST),
        (ConnectionLostError(""), WatchEnd.LOST),
    ],
)
def test_every_end_of_a_watch_has_a_word(error: ApiError | ConnectionLostError, end: WatchEnd) -> None:
    assert watch_end(error) is end


class Scripted(InProcessApi):
    """Each watch ends with the next of `ends`: an error, or by itself (None)."""

    def __init__(self, store: Store, ends: list[Exception | None]) -> None:
        super().__init__(store)
        self.ends = ends
        self.closed = 0

    async def watch(self, *arguments: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        try:
            if self.ends:
                error = self.ends.pop(0)
                if error is not None:
                    raise error
                return
            async for event in super().watch(*arguments, **options):
                yield event
        finally:
            self.closed += 1


def test_a_cache_behind_it_follows_and_every_end_is_told() -> None:
    async def story(clock: VirtualClock) -> None:
        ends = [None, GoneError(410, "Expired", ""), ConnectionLostError("cut"), ForbiddenError(403, "Forbidden", "")]
        inner, told = Scripted(Store(clock, seed=1), list(ends)), Told()
        cache = WatchCache(MeteredApi(inner, told), NODES, bytes, clock=clock)
        running = asyncio.ensure_future(cache.run())
        await clock.sleep(100)
        await inner.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await clock.sleep(1)
        assert set(cache.items()) == {"n1"}
        assert told.ends == [("nodes", reason) for reason in ("timeout", "expired", "lost", "refused")]
        assert [r for r in told.requests if r[0] == "list"] == [("list", "nodes", 200)] * 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        # A watch that its reader closes has not ended by itself, yet it is closed at once.
        assert len(told.ends) == 4
        assert inner.closed == 5

    run_virtual(story)


def test_errors_come_through_as_they_are() -> None:
    async def story(clock: VirtualClock) -> None:
        told = Told()
        api = MeteredApi(InProcessApi(Store(clock, seed=1)), told)
        with pytest.raises(NotFoundError):
            await api.get(NODES, "nobody")
        assert isinstance(await api.list_page(NODES), ListPage)
        assert told.requests == [("get", "nodes", 404), ("list", "nodes", 200)]

    run_virtual(story)


def test_the_queue_counts_from_the_moment_a_key_is_due() -> None:
    async def story(clock: VirtualClock) -> None:
        told = Told()
        queue = MeteredQueue(clock, told)
        queue.add("a")
        queue.add_after("b", 5.0)
        await clock.sleep(3.0)
        queue.add("a")
        assert await queue.get() == "a"
        await clock.sleep(4.0)
        assert await queue.get() == "b"
        queue.add("a")
        await clock.sleep(1.0)
        queue.done("a")
        assert await queue.get() == "a"
        assert told.waits == pytest.approx([3.0, 2.0, 1.0])
        queue.close()

    run_virtual(story)
