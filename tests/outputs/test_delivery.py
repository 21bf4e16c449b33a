"""At least once, in order: with receivers that are away, controllers that die, and more events than memory holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.clock import Clock
from muster.kube.api import CONFIG_MAPS, CRDS, NAMESPACES, NODE_HEALTHS, NODES
from muster.operate.outputs import delivery
from muster.operate.outputs.config import SinkConfig, SinkKind
from muster.operate.outputs.delivery import CURSORS, Outputs
from muster.operate.outputs.event import FleetEvent
from muster.operate.outputs.http_sink import Answer
from muster.resources import crd
from muster.resources.base import API_VERSION, SYSTEM_NAMESPACE, to_object
from muster.resources.node_health import Cause, CauseKind, Lifecycle, State, Transition
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual


class Receiver:
    """Takes events while it is up; remembers them."""

    def __init__(self, name: str = "ops") -> None:
        self.config = SinkConfig(name=name, kind=SinkKind.WEBHOOK, url="http://receiver.example")
        self.up = True
        self.answer = Answer.DELIVERED
        self.got: list[FleetEvent] = []
        self.asked = 0

    async def deliver(self, events: Sequence[FleetEvent]) -> tuple[Answer, str]:
        self.asked += 1
        if not self.up:
            return Answer.AGAIN, "away"
        if self.answer is Answer.DELIVERED:
            self.got += events
        return self.answer, ""

    async def close(self) -> None:
        return


class Bed:
    """A cluster of NodeHealths whose histories grow, and the outputs of one leader after the other."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.api = InProcessApi(Store(clock, seed=1))
        self.lives: dict[str, Lifecycle] = {}
        self.outputs: Outputs | None = None
        self.leads = True
        self._task: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, manifest)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        await self.api.create(NAMESPACES, space)
        await self.clock.sleep(5)

    async def start(self, *receivers: Receiver) -> None:
        async def leading() -> bool:
            return self.leads

        self.outputs = Outputs(self.api, self.clock, receivers, still_leading=leading)
        self._task = asyncio.ensure_future(self.outputs.run())
        await self.clock.sleep(1)

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.outputs = None

    async def node(self, name: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.api.create(NODES, node)
        health = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}, "spec": {}}
        await self.api.create(NODE_HEALTHS, health)
        self.lives[name] = Lifecycle(state=State.IN_SERVICE, since=self.clock.now())

    async def step(self, name: str, state: State, *, told: bool = True) -> None:
        """Write a step, and tell the outputs, unless the controller died right after the write."""
        now = self.clock.now()
        cause = Cause(kind=CauseKind.FAULT, name=f"step {len(self.lives[name].history)}")
        entry = Transition(state=state, at=now, episode="e", cause=cause)
        life = Lifecycle(state=state, since=now, history=(*self.lives[name].history, entry)[-64:])
        self.lives[name] = life
        body = {
            "apiVersion": API_VERSION,
            "kind": "NodeHealth",
            "metadata": {"name": name},
            "status": {"lifecycle": to_object(life)},
        }
        await self.api.apply(NODE_HEALTHS, body, manager="test", subresource="status")
        if told and self.outputs is not None:
            self.outputs.stepped(name, {}, life, (entry,))

    def expected(self, since: datetime) -> list[tuple[str, str]]:
        found = [
            (e.at, name, e.cause.name) for name, life in self.lives.items() for e in life.history if e.at >= since
        ]
        return [(name, cause) for _, name, cause in sorted(found)]


def told(receiver: Receiver) -> list[tuple[str, str]]:
    """What the receiver knows, second deliveries dropped as the IDs allow."""
    seen: dict[str, tuple[str, str]] = {}
    for event in receiver.got:
        seen.setdefault(event.id, (event.node, event.cause_name))
    return list(seen.values())


def on_bed(test: Callable[[Bed], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def work(clock: Clock) -> None:
            assert isinstance(clock, VirtualClock)
            bed = Bed(clock)
            await bed.prepare()
            await test(bed)

        run_virtual(work)

    run.__name__ = test.__name__
    return run


@on_bed
@pytest.mark.requirement("companion/BFX06", "sla/sev-1")
async def test_a_step_is_delivered_within_seconds(bed: Bed) -> None:
    receiver = Receiver()
    await bed.node("n1")
    await bed.start(receiver)
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(3)
    assert told(receiver) == [("n1", "step 0")]


@on_bed
@pytest.mark.requirement("v2.4/OIE04")
async def test_a_receiver_that_is_away_for_hours_misses_nothing(bed: Bed) -> None:
    receiver = Receiver()
    await bed.node("n1")
    await bed.node("n2")
    await bed.start(receiver)
    begun = bed.clock.now()
    receiver.up = False
    for number in range(20):
        await bed.step("n1" if number % 3 else "n2", State.QUARANTINED)
        await bed.clock.sleep(600)
    assert bed.outputs is not None
    assert bed.outputs.lags()["ops"] > 3600
    assert receiver.asked < 100, "a receiver that is away must not be stormed"
    receiver.up = True
    await bed.clock.sleep(700)
    assert told(receiver) == bed.expected(begun)
    assert bed.outputs.lags()["ops"] == 0


@on_bed
async def test_what_happened_while_the_controller_was_dead_is_delivered_by_the_next(bed: Bed) -> None:
    receiver = Receiver()
    await bed.node("n1")
    await bed.start(receiver)
    begun = bed.clock.now()
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(60)
    await bed.step("n1", State.DRAINING, told=False)
    await bed.kill()
    await bed.step("n1", State.REPAIRING)
    await bed.clock.sleep(3600)
    await bed.start(receiver)
    await bed.clock.sleep(60)
    assert told(receiver) == bed.expected(begun)


@on_bed
async def test_a_new_receiver_gets_no_flood_of_old_news(bed: Bed) -> None:
    old = Receiver("old")
    await bed.node("n1")
    await bed.start(old)
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(3600)
    await bed.kill()
    new = Receiver("new")
    await bed.start(old, new)
    await bed.clock.sleep(60)
    assert new.got == []
    await bed.step("n1", State.DRAINING)
    await bed.clock.sleep(5)
    assert told(new) == [("n1", "step 1")]


@on_bed
async def test_one_receiver_that_is_away_keeps_no_other_waiting(bed: Bed) -> None:
    away, there = Receiver("away"), Receiver("there")
    away.up = False
    await bed.node("n1")
    await bed.start(away, there)
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(5)
    assert told(there) == [("n1", "step 0")]
    assert away.got == []


@on_bed
async def test_events_that_are_refused_do_not_block_what_follows(bed: Bed) -> None:
    receiver = Receiver()
    receiver.answer = Answer.REFUSED
    await bed.node("n1")
    await bed.start(receiver)
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(5)
    receiver.answer = Answer.DELIVERED
    await bed.step("n1", State.DRAINING)
    await bed.clock.sleep(5)
    assert told(receiver) == [("n1", "step 1")]


@on_bed
async def test_marks_are_kept_soon_and_then_once_a_minute(bed: Bed) -> None:
    async def version() -> str:
        found = await bed.api.get(CONFIG_MAPS, CURSORS, SYSTEM_NAMESPACE)
        return str(found["metadata"]["resourceVersion"])

    await bed.start(Receiver())
    await bed.clock.sleep(15)
    versions = [await version()]
    for _ in range(60):
        await bed.clock.sleep(10)
        versions.append(await version())
    assert 9 <= len(set(versions)) <= 11, "ten minutes"


@on_bed
async def test_who_does_not_lead_delivers_nothing_and_moves_no_mark(bed: Bed) -> None:
    receiver = Receiver()
    await bed.node("n1")
    await bed.start(receiver)
    await bed.clock.sleep(30)
    bed.leads = False
    before = (await bed.api.get(CONFIG_MAPS, CURSORS, SYSTEM_NAMESPACE))["data"]
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(120)
    assert receiver.got == []
    assert (await bed.api.get(CONFIG_MAPS, CURSORS, SYSTEM_NAMESPACE))["data"] == before


@on_bed
async def test_a_mark_that_somebody_spoiled_is_ignored(bed: Bed) -> None:
    receiver = Receiver()
    spoiled = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CURSORS}, "data": {"ops": "yesterday"}}
    await bed.api.create(CONFIG_MAPS, spoiled, SYSTEM_NAMESPACE)
    await bed.node("n1")
    await bed.start(receiver)
    await bed.step("n1", State.QUARANTINED)
    await bed.clock.sleep(5)
    assert told(receiver) == [("n1", "step 0")]


def test_more_than_memory_holds_comes_from_the_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WAITING_LIMIT", 10)
    monkeypatch.setattr(delivery, "CHUNK", 4)

    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed = Bed(clock)
        await bed.prepare()
        receiver = Receiver()
        receiver.up = False
        for number in range(8):
            await bed.node(f"n{number}")
        await bed.start(receiver)
        begun = bed.clock.now()
        for _ in range(6):
            for number in range(8):
                await bed.step(f"n{number}", State.QUARANTINED)
            await clock.sleep(400)
        receiver.up = True
        await clock.sleep(3600)
        assert sorted(told(receiver)) == sorted(bed.expected(begun))

    run_virtual(work)


ACTS = st.lists(st.sampled_from(["step", "step-untold", "away", "back", "kill", "wait"]), min_size=3, max_size=25)


@settings(max_examples=40, deadline=None)
@given(ACTS)
@pytest.mark.requirement("v2.4/OIE04")
def test_whatever_happens_nothing_is_lost(acts: list[str]) -> None:
    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed, receiver = Bed(clock), Receiver()
        await bed.prepare()
        for name in ("n1", "n2"):
            await bed.node(name)
        await bed.start(receiver)
        await clock.sleep(30)
        begun = clock.now()
        for number, act in enumerate(acts):
            match act:
                case "step":
                    await bed.step(f"n{1 + number % 2}", State.QUARANTINED)
                case "step-untold":
                    await bed.step(f"n{1 + number % 2}", State.DRAINING, told=False)
                    await bed.kill()
                    await bed.start(receiver)
                case "away" | "back":
                    receiver.up = act == "back"
                case "kill":
                    await bed.kill()
                    await bed.start(receiver)
                case _:
                    await clock.sleep(45)
        receiver.up = True
        await clock.sleep(timedelta(hours=2).total_seconds())
        assert sorted(told(receiver)) == sorted(bed.expected(begun))

    run_virtual(work)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "2099-01-01T00:00:00Z"])
def test_a_mark_far_from_now_neither_stops_nor_blinds(text: str) -> None:
    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed, receiver = Bed(clock), Receiver()
        await bed.prepare()
        spoiled = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CURSORS}, "data": {"ops": text}}
        await bed.api.create(CONFIG_MAPS, spoiled, SYSTEM_NAMESPACE)
        await bed.node("n1")
        await bed.start(receiver)
        begun = clock.now()
        await clock.sleep(60)
        await bed.kill()
        await bed.step("n1", State.QUARANTINED)
        await bed.start(receiver)
        await clock.sleep(5)
        assert told(receiver) == bed.expected(begun)

    run_virtual(work)


class Picky(Receiver):
    """Refuses a request that holds one certain event, or more events than it takes."""

    def __init__(self, poison: str = "", most: int = 1000) -> None:
        super().__init__()
        self.poison = poison
        self.most = most

    async def deliver(self, events: Sequence[FleetEvent]) -> tuple[Answer, str]:
        self.asked += 1
        if len(events) > self.most or any(e.cause_name == self.poison for e in events):
            return Answer.REFUSED, "no"
        self.got += events
        return Answer.DELIVERED, ""


@pytest.mark.parametrize("picky", [lambda: Picky(poison="step 7"), lambda: Picky(most=3)])
def test_one_event_that_is_refused_costs_no_other(picky: Callable[[], Picky]) -> None:
    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed, receiver = Bed(clock), picky()
        await bed.prepare()
        await bed.node("n1")
        await bed.start(receiver)
        begun = clock.now()
        for _ in range(20):
            await bed.step("n1", State.QUARANTINED)
        await clock.sleep(120)
        expected = [step for step in bed.expected(begun) if step[1] != receiver.poison]
        assert sorted(told(receiver)) == sorted(expected)
        assert receiver.asked < 40

    run_virtual(work)


def test_a_storm_is_few_messages_in_a_chat() -> None:
    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed, chat = Bed(clock), Receiver()
        chat.config = SinkConfig(name="chat", kind=SinkKind.SLACK, url="http://chat.example")
        await bed.prepare()
        for number in range(150):
            await bed.node(f"n{number}")
        await bed.start(chat)
        begun = clock.now()
        for state in (State.QUARANTINED, State.DRAINING):
            for number in range(150):
                await bed.step(f"n{number}", state)
                await clock.sleep(0.2)
        await clock.sleep(60)
        assert sorted(told(chat)) == sorted(bed.expected(begun))
        # A minute of steps, ten a second on average.
        assert chat.asked <= 8

    run_virtual(work)


def test_a_step_that_finds_no_room_while_the_histories_are_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WAITING_LIMIT", 3)

    async def work(clock: Clock) -> None:
        assert isinstance(clock, VirtualClock)
        bed, receiver = Bed(clock), Receiver()
        await bed.prepare()
        for number in range(6):
            await bed.node(f"n{number}")
        begun = clock.now()
        plain_page = bed.api.list_page
        stepped = False

        async def slow_page(*args: Any, **more: Any) -> Any:
            """Steps happen after the page was read and before it arrives."""
            nonlocal stepped
            page = await plain_page(*args, **more)
            if args[0] is NODE_HEALTHS and not stepped:
                stepped = True
                for number in range(6):
                    await bed.step(f"n{number}", State.DRAINING)
            return page

        monkeypatch.setattr(bed.api, "list_page", slow_page)
        await bed.start(receiver)
        await clock.sleep(120)
        assert stepped
        assert sorted(told(receiver)) == sorted(bed.expected(begun))

    run_virtual(work)
