"""Publishing: on change, the latest state, through outages, and nothing but the agent's own part."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from muster.agent.publish import Heartbeat, Publisher
from muster.kube.api import (
    CRDS,
    LEASES,
    NAMESPACES,
    NODE_HEALTHS,
    ConnectionLostError,
    NotFoundError,
    Object,
    PatchType,
    ResourceType,
)
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import Observed
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import DEFAULT_START, VirtualClock, run_virtual


class CountingApi(InProcessApi):
    """The simulated API server, with a switch for outages and a record of what was applied."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Store(clock))
        self.down = False
        self.applied: list[Object] = []
        self.patched = 0

    async def apply(self, res: ResourceType, obj: Object, **options: Any) -> Object:
        if self.down:
            raise ConnectionLostError("the API server is away")
        self.applied.append(obj)
        return await super().apply(res, obj, **options)

    async def patch(self, res: ResourceType, name: str, *args: Any, **options: Any) -> Object:
        if self.down:
            raise ConnectionLostError("the API server is away")
        self.patched += 1
        return await super().patch(res, name, *args, **options)


async def cluster(clock: VirtualClock) -> CountingApi:
    api = CountingApi(clock)
    for manifest in crd.manifests():
        await api.create(CRDS, manifest)
    await api.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    return api


def seen(boot: str = "boot-1") -> Observed:
    return Observed(observed_at=DEFAULT_START, node_uid="u", boot_id=boot, fingerprint=fingerprint(()))


def start(publisher: Publisher) -> asyncio.Task[None]:
    return asyncio.ensure_future(publisher.run())


def test_the_first_state_creates_the_object_and_only_the_observed_part() -> None:
    async def main(clock: VirtualClock) -> Object:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock)
        start(publisher)
        publisher.offer(seen())
        await clock.sleep(1)
        return await api.get(NODE_HEALTHS, "n1")

    obj = run_virtual(main)
    assert list(obj["status"]) == ["observed"]
    assert obj["status"]["observed"]["bootId"] == "boot-1"
    assert not obj.get("spec")


def test_the_parts_of_others_stay_theirs() -> None:
    async def main(clock: VirtualClock) -> Object:
        api = await cluster(clock)
        head = {"apiVersion": NODE_HEALTHS.api_version, "kind": "NodeHealth", "metadata": {"name": "n1"}}
        await api.create(NODE_HEALTHS, {**head, "spec": {"paused": True}})
        lifecycle = {"state": "InService", "since": "2026-01-05T08:00:00Z", "next": "nothing"}
        await api.apply(
            NODE_HEALTHS,
            {**head, "status": {"lifecycle": lifecycle}},
            manager="muster-controller",
            subresource="status",
        )
        publisher = Publisher(api, "n1", clock)
        await publisher.send(seen())
        await publisher.send(seen("boot-2"))
        return await api.get(NODE_HEALTHS, "n1")

    obj = run_virtual(main)
    assert obj["spec"] == {"paused": True}
    assert obj["status"]["lifecycle"] == {"state": "InService", "since": "2026-01-05T08:00:00Z", "next": "nothing"}
    entries = [entry for entry in obj["metadata"]["managedFields"] if entry.get("subresource") == "status"]
    owned = {entry["manager"]: list(entry["fieldsV1"]["f:status"]) for entry in entries}
    assert owned["muster-agent"] == ["f:observed"]
    assert owned["muster-controller"] == ["f:lifecycle"]


def test_an_equal_state_is_not_sent_again_before_the_resync() -> None:
    async def main(clock: VirtualClock) -> tuple[int, int]:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock, resync_s=600)
        start(publisher)
        for _ in range(50):
            publisher.offer(seen())
            await clock.sleep(10)
        before = len(api.applied)
        await clock.sleep(600)
        return before, len(api.applied)

    # The first attempt finds no object and is repeated.
    assert run_virtual(main) == (2, 3)


def test_a_resync_brings_back_what_somebody_deleted_and_writes_nothing_otherwise() -> None:
    async def main(clock: VirtualClock) -> tuple[bool, bool]:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock, resync_s=600)
        start(publisher)
        publisher.offer(seen())
        await clock.sleep(1)
        version = (await api.get(NODE_HEALTHS, "n1"))["metadata"]["resourceVersion"]
        await clock.sleep(700)
        unchanged = (await api.get(NODE_HEALTHS, "n1"))["metadata"]["resourceVersion"] == version
        await api.delete(NODE_HEALTHS, "n1")
        await clock.sleep(700)
        back = (await api.get(NODE_HEALTHS, "n1"))["status"]["observed"]["bootId"] == "boot-1"
        return unchanged, back

    assert run_virtual(main) == (True, True)


def test_after_an_outage_the_latest_state_arrives_alone() -> None:
    async def main(clock: VirtualClock) -> tuple[list[str], str]:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock)
        start(publisher)
        publisher.offer(seen())
        await clock.sleep(1)
        api.down = True
        for number in range(2, 100):
            publisher.offer(seen(f"boot-{number}"))
            await clock.sleep(20)
        failing = publisher.failing
        api.down = False
        await clock.sleep(61)
        boots = [obj["status"]["observed"]["bootId"] for obj in api.applied[2:]]
        assert publisher.failing == ""
        return boots, failing

    assert run_virtual(main) == (["boot-99"], "the API server is away")


@pytest.mark.requirement("companion/OBS05")
def test_a_change_is_sent_at_once() -> None:
    async def main(clock: VirtualClock) -> bool:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock)
        start(publisher)
        publisher.offer(seen())
        await clock.sleep(5)
        publisher.offer(seen("boot-2"))
        await clock.sleep(0.001)
        return publisher.published == seen("boot-2")

    assert run_virtual(main) is True


def test_the_heartbeat_renews_the_lease_of_the_node() -> None:
    async def main(clock: VirtualClock) -> list[Any]:
        api = await cluster(clock)
        asyncio.ensure_future(Heartbeat(api, "n1", clock, heartbeat_s=60).run())  # noqa: RUF006
        found = []
        for _ in range(3):
            await clock.sleep(60)
            found.append((await api.get(LEASES, agent_lease("n1"), SYSTEM_NAMESPACE))["spec"])
        return found

    specs = run_virtual(main)
    assert [spec["leaseDurationSeconds"] for spec in specs] == [180] * 3
    assert {spec["holderIdentity"] for spec in specs} == {"n1"}
    times = [msgspec.convert(spec["renewTime"], type=type(DEFAULT_START)) for spec in specs]
    assert times[1] - times[0] == times[2] - times[1] == timedelta(seconds=60)
    assert {spec["acquireTime"] for spec in specs} == {"2026-01-05T08:00:00.000000Z"}


def test_the_heartbeat_comes_back_soon_after_an_outage() -> None:
    async def main(clock: VirtualClock) -> float:
        api = await cluster(clock)
        asyncio.ensure_future(Heartbeat(api, "n1", clock, heartbeat_s=60).run())  # noqa: RUF006
        await clock.sleep(10)
        api.down = True
        await clock.sleep(600)
        api.down = False
        before = api.patched
        started = clock.elapsed_s
        while api.patched == before:
            await clock.sleep(1)
        return clock.elapsed_s - started

    assert run_virtual(main) <= 61


def test_a_person_may_hold_a_node_that_the_agent_has_not_met() -> None:
    async def main(clock: VirtualClock) -> Object:
        api = await cluster(clock)
        publisher = Publisher(api, "n1", clock)
        try:
            await api.patch(NODE_HEALTHS, "n1", {"spec": {"paused": True}}, PatchType.MERGE)
        except NotFoundError:
            head = {"apiVersion": NODE_HEALTHS.api_version, "kind": "NodeHealth", "metadata": {"name": "n1"}}
            await api.create(NODE_HEALTHS, {**head, "spec": {"paused": True}})
        await publisher.send(seen())
        return await api.get(NODE_HEALTHS, "n1")

    assert run_virtual(main)["spec"] == {"paused": True}
