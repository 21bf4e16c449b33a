"""The maintenance controller on the simulated API server: status, ownership of `handedBack`, Events, crashes."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from muster.clock import Clock, SystemClock
from muster.kube.api import (
    CRDS,
    EVENTS,
    MAINTENANCES,
    NODE_HEALTHS,
    NODES,
    AlreadyExistsError,
    ConnectionLostError,
    InvalidError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
    ResourceType,
)
from muster.kube.http import HttpApi
from muster.operate.carry_out import NotLeadingError
from muster.operate.maintenance.controller import MaintenanceController
from muster.operate.outputs.action import Action
from muster.resources import crd
from muster.resources.base import API_VERSION, CONTROLLER_MANAGER
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from muster.telemetry.observer import ControllerObserver
from tests.controlplane.plugin import RealCluster
from tests.operate.cluster import running, stamp

HOUR = 3600.0
WORKS = {"state": "InService"}
READY = {"state": "Quarantined", "blockers": [{"kind": "maintenance", "message": "handed over"}]}
TESTED = {"state": "Certifying"}


class Observer(ControllerObserver):
    def __init__(self) -> None:
        self.overruns = 0

    def overrun(self) -> None:
        self.overruns += 1


class Bed:
    """A store with nodes whose lifecycles the test writes, and a controller that may be started anew."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = Store(clock, seed=1)
        self.api: KubeApi = InProcessApi(self.store, user="test")
        self.observer = Observer()
        self.actions: list[Action] = []
        self.lines: list[str] = []

    async def install(self, *nodes: str) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        await self.api.create(
            ResourceType("", "v1", "namespaces", "Namespace", False),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "muster-system"}},
        )
        for name in nodes:
            await self.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            await self.life(name, WORKS)

    async def life(self, name: str, life: dict[str, Any]) -> None:
        base = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        try:
            await self.api.get(NODE_HEALTHS, name)
        except NotFoundError:
            await self.api.create(NODE_HEALTHS, {**base, "spec": {}})
        blockers = [{"since": stamp(self.clock.now()), **b} for b in life.get("blockers", [])]
        body = {"since": stamp(self.clock.now()), **life, "blockers": blockers}
        await self.api.apply(
            NODE_HEALTHS, {**base, "status": {"lifecycle": body}}, manager=CONTROLLER_MANAGER, subresource="status"
        )

    async def declare(self, name: str = "fw", **spec: Any) -> Object:
        now = self.clock.now()
        fields: dict[str, Any] = {
            "reason": "firmware",
            "requestedBy": "ana",
            "nodes": ["n1"],
            "opensAt": stamp(now + timedelta(hours=1)),
            "closesAt": stamp(now + timedelta(hours=5)),
        }
        body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": name}, "spec": fields | spec}
        return await self.api.create(MAINTENANCES, body)

    async def hand_back(self, *names: str, name: str = "fw") -> None:
        body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": name}}
        status = {"handedBack": list(names)}
        await self.api.apply(MAINTENANCES, {**body, "status": status}, manager="site", subresource="status")

    async def status(self, name: str = "fw") -> dict[str, Any]:
        found = await self.api.get(MAINTENANCES, name)
        status: dict[str, Any] = found.get("status", {})
        return status

    async def events(self) -> list[str]:
        import json

        page = await self.api.list_page(EVENTS)
        found = [json.loads(raw) for raw in page.items]
        return sorted(e["reason"] for e in found if e["regarding"]["kind"] == "Maintenance")

    def controller(self, api: KubeApi | None = None, **options: Any) -> MaintenanceController:
        return MaintenanceController(
            api or InProcessApi(self.store, user="muster"),
            self.clock,
            tell=self.lines.append,
            on_action=self.actions.append,
            observer=self.observer,
            **options,
        )


def test_the_whole_story_and_handed_back_stays_with_its_owner() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1", "n2")
        controller = bed.controller()
        async with running(controller.run()):
            # Events are kept for an hour; the whole story is to fit into it.
            await bed.declare(nodes=["n1", "n2"], opensAt=stamp(clock.now() + timedelta(minutes=10)))
            await clock.sleep(60)
            assert (await bed.status())["phase"] == "Announced"
            assert controller.figures() == {"Announced": 1}
            await clock.sleep(600)
            assert (await bed.status())["phase"] == "Waiting"
            await bed.life("n1", READY)
            await bed.life("n2", READY)
            await clock.sleep(60)
            status = await bed.status()
            assert status["phase"] == "HandedOver"
            assert [n["progress"] for n in status["nodes"]] == ["ready", "ready"]
            await bed.hand_back("n1")
            await clock.sleep(60)
            await bed.life("n1", TESTED)
            await bed.hand_back("n1", "n2")
            await clock.sleep(60)
            assert (await bed.status())["phase"] == "Returning"
            for name in ("n1", "n2"):
                await bed.life(name, WORKS)
            await clock.sleep(60)
            status = await bed.status()
            assert status["phase"] == "Completed"
            assert status["handedBack"] == ["n1", "n2"]
            assert status["openedAt"] < status["closedAt"]
            owners = {
                entry["manager"]
                for entry in (await bed.api.get(MAINTENANCES, "fw"))["metadata"]["managedFields"]
                if "f:handedBack" in entry["fieldsV1"].get("f:status", {})
            }
            assert owners == {"site"}
            assert await bed.events() == [
                "MaintenanceAnnounced",
                "MaintenanceCompleted",
                "MaintenanceNodeReady",
                "MaintenanceOpened",
            ]
            assert [a.action for a in bed.actions] == [
                "maintenance-announced",
                "maintenance-opened",
                "maintenance-node-ready",
                "maintenance-completed",
            ]
            assert (bed.actions[0].actor, bed.actions[1].actor) == ("ana", CONTROLLER_MANAGER)
            assert bed.actions[0].target == "Maintenance/fw"

    run_virtual(main)


def test_handed_back_by_a_merge_patch_stays_too() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        async with running(bed.controller().run()):
            await bed.declare()
            await clock.sleep(HOUR + 60)
            await bed.life("n1", READY)
            await clock.sleep(60)
            patch = {"status": {"handedBack": ["*"]}}
            await bed.api.patch(MAINTENANCES, "fw", patch, PatchType.MERGE, subresource="status", manager="kubectl")
            await bed.life("n1", WORKS)
            await clock.sleep(60)
            status = await bed.status()
            assert (status["phase"], status["handedBack"]) == ("Completed", ["*"])

    run_virtual(main)


def test_an_overrun_is_told_once_over_restarts() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        await bed.declare()
        for hours in (0.5, 1.0, 4.0, 3.0, 20.0):
            async with running(bed.controller().run()):
                await clock.sleep(hours * HOUR)
            if hours == 1.0:
                await bed.life("n1", READY)
        assert (await bed.status())["phase"] == "Overrun"
        assert bed.observer.overruns == 1
        assert [a.action for a in bed.actions].count("maintenance-overrun") == 1
        assert (await bed.events()).count("MaintenanceOverrun") == 1

    run_virtual(main)


class FailingApi(InProcessApi):
    """The `at`-th status write takes effect or not, and its answer is lost."""

    def __init__(self, store: Store, at: int, *, lands: bool) -> None:
        super().__init__(store, user="muster")
        self.at = at
        self.lands = lands
        self.writes = 0

    async def apply(
        self, res: ResourceType, obj: Object, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        if res == MAINTENANCES:
            self.writes += 1
            if self.writes == self.at:
                if self.lands:
                    await super().apply(res, obj, manager=manager, force=force, subresource=subresource)
                raise ConnectionLostError("the answer was lost")
        return await super().apply(res, obj, manager=manager, force=force, subresource=subresource)


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_lost_answer_at_any_write_changes_nothing(at: int, lands: bool) -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        async with running(bed.controller(FailingApi(bed.store, at, lands=lands)).run()):
            await bed.declare()
            await clock.sleep(HOUR + 60)
            await bed.life("n1", READY)
            await clock.sleep(120)
            await bed.hand_back("*")
            await bed.life("n1", TESTED)
            await clock.sleep(120)
            await bed.life("n1", WORKS)
            await clock.sleep(120)
            status = await bed.status()
            assert (status["phase"], status["nodes"][0]["progress"]) == ("Completed", "returned")
        actions = [a.action for a in bed.actions]
        assert len(actions) == len(set(actions))

    run_virtual(main)


@pytest.mark.parametrize("crash_s", [0.0, 0.5, 2.0, 3600.0, 3601.0, 3605.0, 3662.5, 3700.0])
def test_a_crash_at_any_moment_is_continued(crash_s: float) -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        await bed.declare()

        async def controllers() -> None:
            first = asyncio.ensure_future(bed.controller().run())
            await clock.sleep(crash_s)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await bed.controller().run()

        async with running(controllers()):
            await clock.sleep(HOUR + 60)
            await bed.life("n1", READY)
            await clock.sleep(120)
            await bed.hand_back("n1")
            await bed.life("n1", WORKS)
            await clock.sleep(120)
            assert (await bed.status())["phase"] == "Completed"
        actions = [a.action for a in bed.actions]
        assert len(actions) == len(set(actions))

    run_virtual(main)


def test_what_the_schema_lets_through_and_cannot_be_carried_out_says_why() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        async with running(bed.controller().run()):
            await bed.declare(emergency=True, requestedBy=" ")
            await clock.sleep(60)
            status = await bed.status()
            assert status["phase"] == "Invalid"
            assert "requestedBy" in status["conditions"][0]["message"]
            assert await bed.events() == ["MaintenanceInvalid"]
            await bed.api.patch(MAINTENANCES, "fw", {"spec": {"requestedBy": "ana"}}, PatchType.MERGE)
            await clock.sleep(60)
            assert (await bed.status())["phase"] == "Waiting"

    run_virtual(main)


def test_it_stops_when_it_no_longer_leads_and_writes_nothing() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        await bed.declare()

        async def leads() -> bool:
            return False

        with pytest.raises(NotLeadingError):
            await bed.controller(still_leading=leads).run()
        assert await bed.status() == {}

    run_virtual(main)


def test_a_maintenance_that_is_deleted_is_forgotten() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install("n1")
        controller = bed.controller()
        async with running(controller.run()):
            await bed.declare()
            await clock.sleep(60)
            await bed.api.delete(MAINTENANCES, "fw")
            await clock.sleep(2 * HOUR)
            assert controller.figures() == {}
            assert "opened" not in "".join(bed.lines)

    run_virtual(main)


async def _ownership(api: KubeApi, clock: Clock, name: str) -> None:
    """What the controller writes, what others own, and what the server refuses, on a Maintenance of its own."""
    spec = {
        "reason": "firmware",
        "nodes": [f"{name}-node"],
        "opensAt": "2026-01-05T08:00:00Z",
        "closesAt": "2126-01-05T08:00:00Z",
    }
    body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": name}}
    await api.create(MAINTENANCES, {**body, "spec": spec})
    by_label: dict[str, Any] = {"emergency": True, "nodeSelector": {"a": "b"}}
    refused: list[dict[str, Any]] = [{"closesAt": "2025-01-01T00:00:00Z"}, {"nodes": []}, by_label]
    for wrong in refused:
        with pytest.raises(InvalidError):
            await api.create(MAINTENANCES, {**body, "metadata": {"name": f"{name}-bad"}, "spec": spec | wrong})
    controller = MaintenanceController(api, clock)
    async with running(controller.run()):

        async def phase(wanted: str) -> dict[str, Any]:
            for _ in range(200):
                status: dict[str, Any] = (await api.get(MAINTENANCES, name)).get("status", {})
                if status.get("phase") == wanted:
                    return status
                await clock.sleep(0.1)
            raise AssertionError(f"{wanted} is not reached: {status}")

        await phase("Waiting")
        handed = {**body, "status": {"handedBack": ["*"]}}
        await api.apply(MAINTENANCES, handed, manager="site", subresource="status")
        status = await phase("Completed")
        assert status["handedBack"] == ["*"]
        assert [n["progress"] for n in status["nodes"]] == ["returned"]
        owners = {
            entry["manager"]
            for entry in (await api.get(MAINTENANCES, name))["metadata"]["managedFields"]
            if "f:handedBack" in entry["fieldsV1"].get("f:status", {})
        }
        assert owners == {"site"}
    await api.delete(MAINTENANCES, name)


def test_ownership_on_the_simulated_server() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install()
        await _ownership(bed.api, clock, "owned")

    run_virtual(main)


def test_ownership_on_a_real_server(real_cluster: RealCluster) -> None:
    async def main() -> None:
        api = HttpApi.from_kubeconfig(real_cluster.kubeconfig, None)
        try:
            for manifest in crd.manifests():
                try:
                    await api.create(CRDS, dict(manifest))
                except AlreadyExistsError:
                    continue
            await asyncio.sleep(1.0)
            await _ownership(api, SystemClock(), f"owned-{uuid.uuid4().hex[:8]}")
        finally:
            await api.close()

    asyncio.run(main())
