"""Event recorder: what is sent, what is folded into a series, what is dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster.kube import events
from muster.kube.api import EVENTS, ConnectionLostError, NotFoundError, Object, PatchType, ResourceType
from muster.kube.events import EventKind, EventRecorder, Regarding, node_reference
from muster.sim.virtual import VirtualClock, run_virtual
from tests.kube.fake_api import FakeApi


class EventApi(FakeApi):
    """The scripted server with the merge patch that a series needs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def create(self, res: ResourceType, obj: Object, namespace: str = "", *, manager: str = "") -> Object:
        self.calls.append("create")
        assert namespace == obj["metadata"]["namespace"]
        return await super().create(res, obj, namespace, manager=manager)

    async def patch(
        self, res: ResourceType, name: str, patch: Any, patch_type: PatchType, namespace: str = "", **_: Any
    ) -> Object:
        self.calls.append("patch")
        assert patch_type is PatchType.MERGE
        if (res.plural, name) not in self.objects:
            raise NotFoundError(404, "NotFound", "gone")
        return self.put(res, {**self.objects[res.plural, name], **patch})


def recorder(api: FakeApi, clock: VirtualClock, rate_per_s: float = 10.0) -> EventRecorder:
    return EventRecorder(api, clock=clock, controller="muster", instance="pod-1", rate_per_s=rate_per_s)  # type: ignore[arg-type]


def sent(api: FakeApi) -> list[Object]:
    return [obj for (plural, _), obj in api.objects.items() if plural == EVENTS.plural]


def test_an_event_says_what_happened_to_what() -> None:
    async def main(clock: VirtualClock) -> Object:
        api = EventApi()
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        events.record(node_reference("n1"), "Held", "Hold", "xid 79 on GPU 3", EventKind.WARNING)
        await clock.sleep(1)
        (event,) = sent(api)
        return event

    event = run_virtual(main)
    assert event["metadata"]["name"].startswith("n1.")
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert event["eventTime"] == "2026-01-05T08:00:00.000000Z"
    assert (event["reason"], event["action"], event["note"]) == ("Held", "Hold", "xid 79 on GPU 3")
    assert (event["type"], event["reportingController"], event["reportingInstance"]) == ("Warning", "muster", "pod-1")
    assert "series" not in event


def test_repeats_become_one_series_and_few_requests() -> None:
    async def main(clock: VirtualClock) -> tuple[list[Object], list[str]]:
        api = EventApi()
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        for _ in range(100):
            events.record(node_reference("n1"), "Held", "Hold", "again")
            await clock.sleep(1)
        await clock.sleep(60)
        return sent(api), api.calls

    (event,), calls = run_virtual(main)
    assert event["series"] == {"count": 100, "lastObservedTime": "2026-01-05T08:01:39.000000Z"}
    assert calls[0] == "create"
    assert 3 <= calls.count("patch") <= 4


def test_after_the_window_a_repeat_is_a_new_event() -> None:
    async def main(clock: VirtualClock) -> int:
        api = EventApi()
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        for _ in range(2):
            events.record(Regarding("v1", "Pod", "p", "ns", "u"), "Evicted", "Drain", "same words")
            await clock.sleep(361)
        return len(sent(api))

    assert run_virtual(main) == 2


def test_a_series_that_the_server_forgot_is_created_again() -> None:
    async def main(clock: VirtualClock) -> list[Object]:
        api = EventApi()
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        events.record(node_reference("n1"), "Held", "Hold", "x")
        await clock.sleep(1)
        api.objects.clear()
        events.record(node_reference("n1"), "Held", "Hold", "x")
        await clock.sleep(60)
        return sent(api)

    (event,) = run_virtual(main)
    assert event["series"]["count"] == 2


def test_a_lost_answer_does_not_double_the_event() -> None:
    async def main(clock: VirtualClock) -> tuple[int, int]:
        api = EventApi()
        first = True

        async def after(verb: str) -> None:
            nonlocal first
            if first:
                first = False
                raise ConnectionLostError("lost")

        api.after = after
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        events.record(node_reference("n1"), "Held", "Hold", "x")
        await clock.sleep(60)
        return len(sent(api)), events.dropped

    assert run_virtual(main) == (1, 0)


def test_an_outage_drops_and_counts_instead_of_waiting_for_ever() -> None:
    async def main(clock: VirtualClock) -> tuple[int, int]:
        api = EventApi()
        down = True

        async def before(verb: str) -> None:
            if down:
                raise ConnectionLostError("down")

        api.before = before
        events = recorder(api, clock)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        events.record(node_reference("n1"), "Held", "Hold", "x")
        await clock.sleep(60)
        down = False
        events.record(node_reference("n2"), "Held", "Hold", "x")
        await clock.sleep(60)
        return events.dropped, len(sent(api))

    assert run_virtual(main) == (1, 1)


def test_the_number_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_SERIES", 5)

    async def main(clock: VirtualClock) -> int:
        events_ = recorder(EventApi(), clock)
        for number in range(20):
            events_.record(node_reference(f"n{number}"), "Held", "Hold", "x" * 5000)
        return events_.dropped

    assert run_virtual(main) == 15


def test_the_rate_is_bounded() -> None:
    async def main(clock: VirtualClock) -> int:
        api = EventApi()
        events = recorder(api, clock, rate_per_s=2.0)
        asyncio.ensure_future(events.run())  # noqa: RUF006
        for number in range(100):
            events.record(node_reference(f"n{number}"), "Held", "Hold", "x")
        await clock.sleep(10)
        return len(sent(api))

    assert 18 <= run_virtual(main) <= 22
