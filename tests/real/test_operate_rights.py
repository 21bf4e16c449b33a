"""Checkpoints, cancelled repairs and maintenance under the chart's own service account: its rights suffice."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from muster.clock import SystemClock
from muster.kube.api import MAINTENANCES, PODS, REPAIRS, ForbiddenError, KubeApi
from muster.kube.http import HttpApi
from muster.operate.carry_out import Writer
from muster.operate.maintenance.controller import MaintenanceController
from muster.operate.model import AskCheckpoint, CancelRepair, PodView
from muster.resources.base import API_VERSION
from tests.contract.server import server_of
from tests.controlplane import audit
from tests.controlplane.cluster import ControlPlane
from tests.real.rights import CONTROLLER, WHEN_ASKED, Rights

pytestmark = [pytest.mark.real_api, pytest.mark.timeout(300)]
CLOCK = SystemClock()


async def a_pod(admin: KubeApi) -> PodView:
    spec = {"containers": [{"name": "c", "image": "registry.example/train:1"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0"}, "spec": spec}
    made = await admin.create(PODS, body, "default")
    return PodView(name="train-0", namespace="default", uid=made["metadata"]["uid"], node="n1", gpus=1)


async def a_repair(admin: KubeApi) -> str:
    spec = {"nodeName": "n1", "nodeUid": "u", "episode": "e", "rung": "reboot", "provider": "cloud"}
    body = {"apiVersion": API_VERSION, "kind": "Repair", "metadata": {"name": "n1-reboot"}, "spec": spec}
    return str((await admin.create(REPAIRS, body))["metadata"]["uid"])


async def story(admin: KubeApi, mine: KubeApi) -> None:
    writer = Writer(mine, CLOCK)
    await writer.intent(AskCheckpoint(await a_pod(admin), "e"))
    annotations = (await admin.get(PODS, "train-0", "default"))["metadata"]["annotations"]
    assert "e" in annotations.values()

    await writer.intent(CancelRepair("n1-reboot", await a_repair(admin), "e", "nobody wants it"))
    assert (await admin.get(REPAIRS, "n1-reboot"))["spec"]["cancel"] is True

    now = CLOCK.now()
    spec = {
        "reason": "firmware",
        "nodes": ["n1"],
        "opensAt": (now + timedelta(hours=1)).isoformat(),
        "closesAt": (now + timedelta(hours=9)).isoformat(),
    }
    body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": "fw"}, "spec": spec}
    await admin.create(MAINTENANCES, body)
    running = asyncio.ensure_future(MaintenanceController(mine, CLOCK).run())
    try:
        for _ in range(300):
            if (await admin.get(MAINTENANCES, "fw")).get("status", {}).get("phase"):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("nobody wrote the status of the maintenance")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.requirement("v2.4/OMA01")
def test_what_is_done_on_demand_is_allowed_and_needed(story_plane: ControlPlane) -> None:
    rights = Rights(story_plane)
    rights.install()
    with server_of("real", story_plane.kubeconfig_file()).admin as admin:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        admin.create("/api/v1/namespaces/default/serviceaccounts", account)
    mine = story_plane.kubeconfig_file("controller", rights.controller())

    async def work() -> None:
        async with (
            HttpApi.from_kubeconfig(story_plane.kubeconfig_file()) as admin,
            HttpApi.from_kubeconfig(mine) as api,
        ):
            await story(admin, api)

    asyncio.run(work())
    asked = rights.requests(CONTROLLER)
    assert audit.refused(asked) == []
    used = {right for request in asked for right in request.rights}
    assert [right for right in WHEN_ASKED if right not in used] == []


def test_without_the_right_to_annotate_pods_the_checkpoint_is_refused(story_plane: ControlPlane) -> None:
    rights = Rights(story_plane)
    rights.install({"controller": {"annotatePods": False}})
    mine = story_plane.kubeconfig_file("controller", rights.controller())

    async def work() -> None:
        async with HttpApi.from_kubeconfig(mine) as api:
            pod = PodView(name="x", namespace="default", uid="u", node="n1", gpus=1)
            with pytest.raises(ForbiddenError):
                await Writer(api, CLOCK).intent(AskCheckpoint(pod, "e"))

    asyncio.run(work())
