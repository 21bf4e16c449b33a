"""Cache, election and events on the simulated API server: the same shells, a server that behaves like a real one."""

from __future__ import annotations

import asyncio
import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.api import EVENTS, LEASES, NAMESPACES, NODES, Object
from muster.kube.cache import WatchCache
from muster.kube.election import Election
from muster.kube.events import EventRecorder, node_reference
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual


def color(raw: bytes) -> str:
    return str(json.loads(raw)["metadata"]["labels"]["color"])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_the_cache_equals_the_server_also_when_the_history_is_short(seed: int, history: int) -> None:
    random_ = random.Random(seed)

    async def main(clock: VirtualClock) -> None:
        api = InProcessApi(Store(clock, history_limit=history))
        told: dict[str, str | None] = {}
        cache: WatchCache[str] = WatchCache(
            api,
            NODES,
            color,
            clock=clock,
            label_selector="color!=hidden",
            on_change=lambda key: told.__setitem__(key, cache.get(key)),
        )
        running = asyncio.ensure_future(cache.run())
        truth: dict[str, str] = {}
        for _ in range(60):
            name, wanted = random_.choice("abcd"), random_.choice(["red", "blue", "hidden"])
            obj: Object = {"metadata": {"name": name, "labels": {"color": wanted}}}
            if name not in truth:
                await api.create(NODES, obj)
                truth[name] = wanted
            elif random_.random() < 0.3:
                await api.delete(NODES, name)
                del truth[name]
            else:
                await api.replace(NODES, obj)
                truth[name] = wanted
            if random_.random() < 0.2:
                running.cancel()
                await asyncio.wait({running})
            if running.done():
                running = asyncio.ensure_future(cache.run())
            await clock.sleep(random_.choice([0, 0, 0, 0.01, 700]))
        await clock.sleep(1500)
        shown = {name: value for name, value in truth.items() if value != "hidden"}
        assert dict(cache.items()) == shown
        assert {name: value for name, value in told.items() if value is not None} == shown

    run_virtual(main)


def test_candidates_take_turns_with_growing_tokens() -> None:
    async def main(clock: VirtualClock) -> tuple[list[tuple[str, int]], Object]:
        api = InProcessApi(Store(clock))
        await api.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        terms: list[tuple[str, int]] = []

        async def candidate(name: str) -> None:
            async def lead(token: int) -> None:
                terms.append((name, token))
                await asyncio.Event().wait()

            await Election(api, CONTROLLER_LEASE, name, clock=clock).run(lead)

        for name in ("a", "b", "c"):
            running = asyncio.ensure_future(candidate(name))
            await clock.sleep(30)
            running.cancel()
            await asyncio.wait({running})
        return terms, await api.get(LEASES, CONTROLLER_LEASE, SYSTEM_NAMESPACE)

    terms, lease = run_virtual(main)
    assert terms == [("a", 1), ("b", 2), ("c", 3)]
    assert lease["spec"]["leaseTransitions"] == 3


def test_events_are_accepted_and_counted() -> None:
    async def main(clock: VirtualClock) -> list[Object]:
        api = InProcessApi(Store(clock))
        recorder = EventRecorder(api, clock=clock, controller="muster.dev/controller", instance="pod-1")
        running = asyncio.ensure_future(recorder.run())
        for _ in range(5):
            recorder.record(node_reference("n1"), "Held", "Hold", "xid 79")
            await clock.sleep(20)
        await clock.sleep(60)
        running.cancel()
        return [json.loads(raw) for raw in (await api.list_page(EVENTS)).items]

    (event,) = run_virtual(main)
    assert event["series"]["count"] == 5
    assert event["regarding"]["name"] == "n1"
