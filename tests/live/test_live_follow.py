"""Looking again after each change: watches, no lists, one look for a group of changes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from muster.configure.live.assess import assess
from muster.configure.live.follow import PROBE_S, Outage, follow
from muster.configure.live.read import Memory
from muster.configure.live.state import LiveState
from muster.errors import UnreachableError
from muster.kube.api import SECRETS, ConnectionLostError, ListPage, ResourceType
from muster.resources.baseline import AssertionResult
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.live.bed import APPS, World, on_gpu_nodes, recipe_of, well, workload

RECIPE = recipe_of(on_gpu_nodes("op"))


class Counting(InProcessApi):
    lists = 0

    async def list_page(self, res: ResourceType, *args: Any, **more: Any) -> ListPage:
        self.lists += 1
        return await super().list_page(res, *args, **more)


async def built(clock: VirtualClock) -> World:
    world = World(clock, RECIPE)
    await world.node("gpu-1")
    await world.install("op", (workload("DaemonSet", "driver", "op"), well("DaemonSet")))
    return world


async def version() -> str:
    return "v1.34.1"


def test_a_change_is_seen_soon_and_nothing_is_listed_again() -> None:
    async def main(clock: VirtualClock) -> None:
        world = await built(clock)
        api = Counting(world.store)
        states = follow(api, RECIPE, world.plan, clock, version=version, resync_s=3600.0)
        async with aclosing(states):
            await anext(states)
            await anext(states)  # what the first lists brought in
            started, lists = clock.now(), api.lists
            coming = asyncio.ensure_future(anext(states))
            await clock.sleep(100.0)
            await world.status(APPS["DaemonSet"], "driver", "op", {"numberReady": 0})
            state = await coming
            assert isinstance(state, LiveState)
            found = {a.name: a.result for a in assess(RECIPE, world.plan, state)}
            assert found["op/DaemonSet/op/driver"] is AssertionResult.FAILED
            assert (clock.now() - started).total_seconds() == pytest.approx(101.0, abs=1.0)
            # Kinds that the server does not serve (Argo CD, Flux) are asked for again, nothing else.
            assert api.lists - lists <= 3

    run_virtual(main)


def test_without_a_change_it_looks_again_after_the_interval() -> None:
    async def main(clock: VirtualClock) -> None:
        world = await built(clock)
        states = follow(world.api, RECIPE, world.plan, clock, version=version, resync_s=600.0)
        async with aclosing(states):
            await anext(states)
            await anext(states)
            started = clock.now()
            await anext(states)
            assert (clock.now() - started).total_seconds() >= 600.0

    run_virtual(main)


def test_an_outage_is_told_and_waited_out_but_not_at_the_start() -> None:
    async def main(clock: VirtualClock) -> None:
        world = await built(clock)
        up = True

        async def asked() -> str:
            if not up:
                raise ConnectionLostError("No answer.")
            return "v1.34.1"

        states = follow(world.api, RECIPE, world.plan, clock, version=asked, resync_s=60.0)
        async with aclosing(states):
            await anext(states)
            up = False
            assert await anext(states) == Outage("No answer.")
            up = True
            assert isinstance(await anext(states), LiveState)
        up = False
        first = follow(world.api, RECIPE, world.plan, clock, version=asked)
        with pytest.raises(UnreachableError):
            await anext(first)

    run_virtual(main)


def test_an_outage_in_quiet_times_is_told_once_and_soon_and_so_is_its_end() -> None:
    async def main(clock: VirtualClock) -> None:
        world = await built(clock)
        up = True

        async def asked() -> str:
            if not up:
                raise ConnectionLostError("No answer.")
            return "v1.34.1"

        states = follow(world.api, RECIPE, world.plan, clock, version=asked, resync_s=3600.0)
        async with aclosing(states):
            await anext(states)
            await anext(states)
            up, since = False, clock.now()
            assert await anext(states) == Outage("No answer.")
            assert (clock.now() - since).total_seconds() <= 2 * PROBE_S
            coming = asyncio.ensure_future(anext(states))
            await clock.sleep(600.0)
            assert not coming.done()
            up, since = True, clock.now()
            assert isinstance(await coming, LiveState)
            assert (clock.now() - since).total_seconds() <= PROBE_S

    run_virtual(main)


def test_records_that_did_not_change_are_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.configure.live import read as module

    decoded: list[str] = []
    decode = module.decode_release
    monkeypatch.setattr(module, "decode_release", lambda s: decoded.append(s["metadata"]["name"]) or decode(s))

    async def main(clock: VirtualClock) -> None:
        world = await built(clock)
        memory = Memory()
        first = await world.look(memory=memory)
        second = await world.look(memory=memory)
        assert first.installed == second.installed
        assert len(decoded) == 1
        secret = await world.api.get(SECRETS, "sh.helm.release.v1.op.v1", "op")
        secret["metadata"]["labels"]["status"] = "failed"
        await world.api.replace(SECRETS, secret)
        await world.look(memory=memory)
        assert len(decoded) == 2

    run_virtual(main)
