"""Watch cache: equal to the server's objects after any history of changes, cuts, relists and outages."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.api import LEASES, NODES, ConnectionLostError, Object, ServerError
from muster.kube.cache import WatchCache
from muster.sim.virtual import VirtualClock, run_virtual
from tests.kube.fake_api import FakeApi


class Slim(msgspec.Struct, frozen=True):
    """What the tests keep of a node: its colour label, nothing else."""

    color: str


def project(raw: bytes) -> Slim:
    return Slim(json_of(raw)["metadata"]["labels"]["color"])


def json_of(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


def node(name: str, color: str) -> Object:
    return {"metadata": {"name": name, "labels": {"color": color}}, "status": {"big": "x" * 100}}


def make(api: FakeApi, clock: VirtualClock, changed: list[str]) -> WatchCache[Slim]:
    return WatchCache(api, NODES, project, clock=clock, on_change=changed.append)  # type: ignore[arg-type]


def start(cache: WatchCache[Slim]) -> asyncio.Task[None]:
    return asyncio.ensure_future(cache.run())


def test_lists_then_follows_and_tells_which_key_changed() -> None:
    async def main(clock: VirtualClock) -> None:
        api, changed = FakeApi(), []  # type: ignore[var-annotated]
        api.page_size = 2
        for name in ("a", "b", "c"):
            api.put(NODES, node(name, "red"))
        cache = make(api, clock, changed)
        assert not cache.synced
        start(cache)
        await cache.wait_synced()
        assert dict(cache.items()) == {name: Slim("red") for name in "abc"}
        assert changed == ["a", "b", "c"]
        await clock.sleep(1)
        api.put(NODES, node("b", "blue"))
        api.remove(NODES, "c")
        await clock.sleep(1)
        assert changed[3:] == ["b", "c"]
        assert cache.get("b") == Slim("blue")
        assert cache.get("c") is None
        assert api.lists == 2  # two pages of one list

    run_virtual(main)


def test_an_event_that_leaves_the_projection_equal_is_not_passed_on() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        api, changed = FakeApi(), []  # type: ignore[var-annotated]
        api.put(NODES, node("a", "red"))
        start(make(api, clock, changed))
        await clock.sleep(1)
        api.put(NODES, {**node("a", "red"), "status": {"heartbeat": 1}})
        await clock.sleep(1)
        return list(changed)

    assert run_virtual(main) == ["a"]


def test_the_live_view_is_read_only_and_keys_carry_the_namespace() -> None:
    async def main(clock: VirtualClock) -> bool:
        api = FakeApi()
        api.put(LEASES, {"metadata": {"name": "x", "namespace": "team"}})
        cache: WatchCache[bytes] = WatchCache(api, LEASES, bytes, clock=clock)  # type: ignore[arg-type]
        asyncio.ensure_future(cache.run())  # noqa: RUF006
        await cache.wait_synced()
        assert list(cache.items()) == ["team/x"]
        return hasattr(cache.items(), "__setitem__")

    assert run_virtual(main) is False


def test_a_broken_stream_resumes_from_the_last_version_without_a_list() -> None:
    async def main(clock: VirtualClock) -> tuple[int, int, Slim | None]:
        api = FakeApi()
        api.put(NODES, node("a", "red"))
        cache = make(api, clock, [])
        start(cache)
        await clock.sleep(1)
        api.break_watches()
        api.put(NODES, node("a", "blue"))
        await clock.sleep(60)
        return api.lists, api.watches, cache.get("a")

    assert run_virtual(main) == (1, 2, Slim("blue"))


def test_a_bookmark_moves_the_version_so_that_compaction_does_no_harm() -> None:
    async def main(clock: VirtualClock) -> tuple[int, str]:
        api = FakeApi()
        api.put(NODES, node("a", "red"))
        cache = make(api, clock, [])
        start(cache)
        await clock.sleep(1)
        for _ in range(5):
            api.bookmark()
        api.compact()
        api.break_watches()
        await clock.sleep(60)
        return api.lists, cache.resource_version

    assert run_virtual(main) == (1, "6")


def test_gone_relists_and_computes_deletions() -> None:
    async def main(clock: VirtualClock) -> None:
        api, changed = FakeApi(), []  # type: ignore[var-annotated]
        for name in ("a", "b", "c"):
            api.put(NODES, node(name, "red"))
        cache = make(api, clock, changed)
        start(cache)
        await clock.sleep(1)
        api.break_watches()
        await clock.sleep(0)
        api.streams.clear()
        api.remove(NODES, "b")
        api.put(NODES, node("c", "blue"))
        api.compact()
        await clock.sleep(60)
        assert dict(cache.items()) == {"a": Slim("red"), "c": Slim("blue")}
        assert sorted(changed[3:]) == ["b", "c"]
        assert api.lists == 2

    run_virtual(main)


@pytest.mark.requirement("v2.4/K8S32")
def test_an_outage_is_met_with_backoff_not_with_a_storm() -> None:
    async def main(clock: VirtualClock) -> tuple[int, bool]:
        api = FakeApi()
        asked = 0

        async def down(verb: str) -> None:
            nonlocal asked
            asked += 1
            if clock.elapsed_s < 600:
                raise ConnectionLostError("down")

        api.before = down
        cache = make(api, clock, [])
        start(cache)
        await clock.sleep(599)
        during = asked
        await clock.sleep(60)
        return during, cache.synced

    during, synced = run_virtual(main)
    assert synced
    assert 10 < during < 60


def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop() -> None:
    async def main(clock: VirtualClock) -> int:
        api = FakeApi()
        original = api.watch

        def brief(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **{**kwargs, "timeout_s": 0.0})

        api.watch = brief  # type: ignore[method-assign]
        start(make(api, clock, []))
        await clock.sleep(300)
        return api.watches

    assert 5 < run_virtual(main) < 40


def test_an_unreadable_object_counts_as_absent_with_its_reason() -> None:
    async def main(clock: VirtualClock) -> None:
        api, changed = FakeApi(), []  # type: ignore[var-annotated]
        api.put(NODES, node("a", "red"))
        cache = make(api, clock, changed)
        start(cache)
        await clock.sleep(1)
        api.put(NODES, {"metadata": {"name": "a"}})
        await clock.sleep(1)
        assert cache.get("a") is None
        assert "KeyError" in cache.rejected["a"]
        api.put(NODES, node("a", "green"))
        await clock.sleep(1)
        assert cache.get("a") == Slim("green")
        assert not cache.rejected
        assert changed == ["a", "a", "a"]

    run_virtual(main)


def test_cancelled_and_run_again_it_resumes() -> None:
    async def main(clock: VirtualClock) -> tuple[int, Slim | None]:
        api = FakeApi()
        api.put(NODES, node("a", "red"))
        cache = make(api, clock, [])
        task = start(cache)
        await clock.sleep(1)
        task.cancel()
        await asyncio.wait({task})
        assert not api.streams
        api.put(NODES, node("a", "blue"))
        start(cache)
        await clock.sleep(1)
        return api.lists, cache.get("a")

    assert run_virtual(main) == (1, Slim("blue"))


step = st.sampled_from(["put", "put", "put", "remove", "break", "compact", "bookmark", "fail", "mend"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(step, st.sampled_from("abcd"), st.sampled_from(["red", "blue"])), max_size=40), st.integers()
)
def test_equals_the_server_whatever_happened(steps: list[tuple[str, str, str]], seed: int) -> None:
    random_ = random.Random(seed)

    async def main(clock: VirtualClock) -> None:
        api = FakeApi()
        told: dict[str, Slim | None] = {}
        failing = False

        async def before(verb: str) -> None:
            if failing and random_.random() < 0.7:
                raise ServerError(503, "ServiceUnavailable", "no")

        api.before = before
        cache: WatchCache[Slim]

        def changed(key: str) -> None:
            told[key] = cache.get(key)

        cache = WatchCache(api, NODES, project, clock=clock, on_change=changed)  # type: ignore[arg-type]
        start(cache)
        for what, name, color in steps:
            if what == "put":
                api.put(NODES, node(name, color))
            elif what == "remove" and ("nodes", name) in api.objects:
                api.remove(NODES, name)
            elif what == "break":
                api.break_watches()
            elif what == "compact":
                api.compact()
            elif what == "bookmark":
                api.bookmark()
            elif what == "fail":
                failing = True
            elif what == "mend":
                failing = False
            await clock.sleep(random_.choice([0, 0, 0.1, 5]))
        failing = False
        await clock.sleep(120)
        truth = {name: Slim(obj["metadata"]["labels"]["color"]) for (_, name), obj in sorted(api.objects.items())}
        assert dict(cache.items()) == truth
        assert {key: value for key, value in told.items() if value is not None} == truth

    run_virtual(main)
