"""Maintenance end to end: both controllers, agents, certifier, work on the nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import MAINTENANCES, NODE_HEALTHS, PODS, REPAIRS, PatchType
from muster.operate.maintenance.controller import MaintenanceController
from muster.resources.base import API_VERSION
from muster.resources.fault_policy import Disposition, MaintenancePolicy
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus, State
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import Machine, TestCluster, cluster, running, stamp
from tests.operate.worlds import AUTOMATED, serving, states

HOUR = 3600.0


async def declare(bed: TestCluster, name: str, **spec: Any) -> None:
    now = bed.clock.now()
    fields: dict[str, Any] = {
        "reason": "firmware",
        "requestedBy": "ana",
        "opensAt": stamp(now + timedelta(hours=2)),
        "closesAt": stamp(now + timedelta(hours=8)),
    }
    body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": name}, "spec": fields | spec}
    await bed.api.create(MAINTENANCES, body)


async def kubelets(bed: TestCluster) -> None:
    """Pods that are told to end do so."""
    while True:
        for pod in await bed.all(PODS):
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                await bed.api.delete(PODS, meta["name"], meta["namespace"], grace_period_s=0)
        await bed.clock.sleep(10)


async def phase(bed: TestCluster, name: str) -> str:
    found = await bed.api.get(MAINTENANCES, name)
    return str(found.get("status", {}).get("phase", ""))


async def pods(bed: TestCluster) -> set[str]:
    found = await bed.all(PODS)
    return {p["metadata"]["name"] for p in found if p["metadata"]["namespace"] == "work"}


def test_a_node_is_taken_out_in_its_window_handed_over_and_comes_back_by_its_tests() -> None:
    async def main(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine(f"n{n}") for n in range(4)]) as bed:
            works = MaintenanceController(bed.api, clock)
            async with running(works.run(), kubelets(bed)):
                await bed.until_settled()
                await bed.add_pod("train", "n1")
                await declare(bed, "fw", nodes=["n1"])
                await clock.sleep(2 * HOUR - 60)
                assert "train" in await pods(bed)
                assert (await bed.states())["n1"] == "InService"

                async def handed_over() -> bool:
                    return await phase(bed, "fw") == "HandedOver"

                await bed.until(handed_over, 1 * HOUR)
                assert "train" not in await pods(bed)
                life = await bed.life("n1")
                assert life is not None
                assert (life.state, life.held) == (State.QUARANTINED, True)
                # The owner at work: it reboots and its agent is silent. Nobody repairs that.
                bed.machines["n1"].silent = True
                bed.machines["n1"].boot += 1
                await clock.sleep(2 * HOUR)
                assert await bed.all(REPAIRS) == []
                assert await phase(bed, "fw") == "HandedOver"
                bed.machines["n1"].silent = False
                patch = {"status": {"handedBack": ["n1"]}}
                await bed.api.patch(MAINTENANCES, "fw", patch, PatchType.MERGE, subresource="status")

                async def completed() -> bool:
                    return await phase(bed, "fw") == "Completed"

                await bed.until(completed, 2 * HOUR)
                assert (await bed.states())["n1"] == "InService"
                status = (await bed.api.get(MAINTENANCES, "fw"))["status"]
                assert status["handedBack"] == ["n1"]
                others = [await bed.life(f"n{n}") for n in (0, 2, 3)]
                assert all(o is not None and o.history[-1].at < clock.now() - timedelta(hours=4) for o in others)

    run_virtual(main)


def test_a_cancelled_notice_releases_the_node_and_a_completed_one_when_it_is_quiet() -> None:
    policy = replace(AUTOMATED, maintenance=MaintenancePolicy(disposition=Disposition.DRAIN, return_after_s=900))
    for status, wait_s in ((NoticeStatus.CANCELLED, 0), (NoticeStatus.COMPLETED, 900)):
        world = serving(policy)
        soon = world.now + timedelta(minutes=20)
        notice = Notice(id="e1", source="aws", kind=NoticeKind.REBOOT, status=NoticeStatus.SCHEDULED, not_before=soon)
        world.observe(notices=(notice,))
        world.settle()
        assert world.life.state.value == "Quarantined"
        assert "aws announced reboot" in world.waits["maintenance"]
        world.pass_time(3600)
        world.observe(notices=(with_fields(notice, status=status, ends_at=world.now),), boot="boot-2")
        world.settle()
        if wait_s:
            assert world.life.state.value == "Quarantined"
            world.pass_time(wait_s)
            world.settle()
        assert "maintenance" not in world.waits
        assert states(world.life)[-1] == "Uncertified"
        assert world.rungs == []
        world.certify()
        assert world.life.state.value == "InService"


def test_the_owner_puts_it_off_and_the_status_says_so() -> None:
    async def main(clock: VirtualClock) -> None:
        async with (
            cluster(clock, [Machine(f"n{n}") for n in range(4)]) as bed,
            running(MaintenanceController(bed.api, clock).run(), kubelets(bed)),
        ):
            await bed.until_settled()
            await bed.add_pod("train", "n1")
            await declare(bed, "fw", nodes=["n1"], deferLimit=stamp(clock.now() + timedelta(hours=5)))
            await clock.sleep(60)
            wish = {"id": "d1", "verb": "defer", "by": "ben", "until": stamp(clock.now() + timedelta(hours=9))}
            await bed.api.patch(NODE_HEALTHS, "n1", {"spec": {"decision": wish}}, PatchType.MERGE)
            await clock.sleep(4 * HOUR)
            assert await pods(bed) == {"train"}
            (node,) = (await bed.api.get(MAINTENANCES, "fw"))["status"]["nodes"]
            assert node["progress"] == "deferred"
            await clock.sleep(0.9 * HOUR)
            assert await pods(bed) == {"train"}
            await clock.sleep(0.3 * HOUR)
            assert await pods(bed) == set()

    run_virtual(main)


@pytest.mark.requirement("v2.4/OFM04")
def test_an_emergency_begins_at_once_in_its_scope_alone() -> None:
    async def main(clock: VirtualClock) -> None:
        async with (
            cluster(clock, [Machine(f"n{n}") for n in range(4)]) as bed,
            running(MaintenanceController(bed.api, clock).run(), kubelets(bed)),
        ):
            await bed.until_settled()
            await bed.add_pod("one", "n1")
            await bed.add_pod("two", "n2")
            await declare(bed, "water", nodes=["n1"], emergency=True)

            async def handed_over() -> bool:
                return await phase(bed, "water") == "HandedOver"

            await bed.until(handed_over, 0.5 * HOUR)
            assert await pods(bed) == {"two"}
            assert (await bed.states())["n2"] == "InService"

    run_virtual(main)


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_a_maintenance_that_is_given_up_lets_its_node_back(how: str) -> None:
    async def main(clock: VirtualClock) -> None:
        async with (
            cluster(clock, [Machine(f"n{n}") for n in range(4)]) as bed,
            running(MaintenanceController(bed.api, clock).run(), kubelets(bed)),
        ):
            await bed.until_settled()
            await declare(bed, "fw", nodes=["n1"])
            await clock.sleep(2.5 * HOUR)
            await bed.until_state("n1", State.QUARANTINED, HOUR)
            if how == "cancel":
                await bed.api.patch(MAINTENANCES, "fw", {"spec": {"cancelled": True}}, PatchType.MERGE)
            else:
                await bed.api.delete(MAINTENANCES, "fw")
            await bed.until_state("n1", State.IN_SERVICE, 2 * HOUR)
            if how == "cancel":
                assert await phase(bed, "fw") == "Cancelled"

    run_virtual(main)
