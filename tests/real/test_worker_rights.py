"""Tests in workers under the chart's own service account: its rights suffice, and each of them is needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from muster.certify import catalogue
from muster.certify.parts import PartStore
from muster.certify.picture import read_claimed_gpus
from muster.certify.runners import Owner, Work
from muster.certify.runners.worker_objects import WorkerObjects
from muster.certify.runners.worker_pods import Images
from muster.errors import BadInputError
from muster.kube.api import CERTIFICATIONS, CRDS, KubeApi
from muster.kube.http import HttpApi
from muster.resources.base import API_VERSION
from muster.resources.certification import (
    Gang,
    GangScheduler,
    NodeVerdict,
    Outcome,
    Pods,
    RunRecord,
)
from tests.certify.test_claimed_gpus import gpu, published
from tests.certify.test_workers_on_real import CLOCK, scene, until, working
from tests.certify.worker_bed import POD_GROUP_CRD
from tests.contract.server import server_of
from tests.controlplane import audit
from tests.controlplane.cluster import ControlPlane
from tests.real.rights import CONTROLLER, WITH_WORKERS, Rights

pytestmark = [pytest.mark.real_api, pytest.mark.timeout(400)]


@asynccontextmanager
async def watching(objects: WorkerObjects) -> AsyncIterator[None]:
    task = asyncio.ensure_future(objects.run())
    try:
        await objects.wait_synced()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def objects_of(api: KubeApi) -> WorkerObjects:
    return WorkerObjects(
        api,
        CLOCK,
        Images("torch:1", "muster:1"),
        random_bytes=lambda count: bytes(count),
        alive=lambda _: True,
        on_change=lambda _: None,
    )


async def in_trouble(admin: KubeApi, mine: KubeApi) -> None:
    """What only gangs, a leader that knows less than its predecessor, and a cluster that refuses pods need."""
    await admin.create(CRDS, POD_GROUP_CRD)
    spec = {"nodes": ["nowhere"], "profile": "repair"}
    body = {"apiVersion": API_VERSION, "kind": "Certification", "metadata": {"name": "gang"}, "spec": spec}
    uid = str((await admin.create(CERTIFICATIONS, body))["metadata"]["uid"])
    owner = Owner("gang", uid)
    pods = Pods(gang=Gang(scheduler=GangScheduler.VOLCANO, queue="gpus"))
    work = Work(owner, (), catalogue.tests(), {"nowhere": 1}, CLOCK.now() + timedelta(minutes=5), pods)
    objects = objects_of(mine)
    async with watching(objects):

        async def made() -> bool:
            try:
                return bool(await objects.ensure(work, _nobody))
            except BadInputError:  # the definition is served a moment after it was made
                return False

        await until(made)
        again = await objects_of(mine).ensure(work, _nobody)
        assert await objects.why_no_pods(again.job_of["nowhere"]) == ""

        async def known() -> bool:
            return bool(objects.jobs("gang"))

        await until(known)
        await objects.remove(owner, _nobody)
    parts = PartStore(mine, CLOCK, "gang", uid)
    for outcome in (Outcome.PASS, Outcome.FAIL):  # the second leader has another end of the same run
        run = RunRecord(id="r01-000", round=1, test="host", nodes=("nowhere",), outcome=outcome)
        assert await parts.add(0, [run], ()) == 1
    assert [r.outcome for p in await parts.read(1) for r in p.spec.runs] == [Outcome.FAIL]
    await admin.delete(CERTIFICATIONS, "gang")


async def _nobody(_: str) -> None:
    return


@pytest.mark.requirement("v2.4/SEC04")
def test_workers_have_the_rights_they_need_and_no_others(story_plane: ControlPlane, tmp_path: Path) -> None:
    rights = Rights(story_plane)
    rights.install()
    kubeconfig = story_plane.kubeconfig_file("controller", rights.controller())
    with server_of("real", story_plane.kubeconfig_file()).admin as admin:
        published_by_driver = json.loads(published("n1", gpu(0), gpu(1)))
        admin.create(
            "/apis/resource.k8s.io/v1/resourceslices", {**published_by_driver, "metadata": {"name": "n1-gpus"}}
        ).ok()

    async def story() -> None:
        async with scene(story_plane, tmp_path) as s, HttpApi.from_kubeconfig(kubeconfig) as mine:
            bad = s.kubelet.names[1]
            check = {"name": "check", "command": ["sh", "-c", f'test "$MUSTER_NODE" != {bad}']}
            async with working(s.controller(mine)):
                await s.certify(check, {"name": "also", "command": ["true"]})
                found = (await s.ended()).status
            assert {n.name for n in found.nodes if n.verdict is NodeVerdict.FAILED} == {bad}, found
            assert await s.left() == []
            assert {node: c.count for node, c in (await read_claimed_gpus(mine)).items()} == {"n1": 2}
            await in_trouble(s.api, mine)
            assert await s.left() == []

    with story_plane.scheduler():
        asyncio.run(story())
    asked = rights.requests(CONTROLLER)
    assert audit.refused(asked) == []
    used = {right for request in asked for right in request.rights}
    assert [right for right in WITH_WORKERS if right not in used] == []
