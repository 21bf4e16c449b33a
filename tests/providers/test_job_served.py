"""The Job of a reset on a real API server: accepted, made once, its pod made by the Job controller, its end read."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable

import pytest

from muster.clock import SystemClock
from muster.kube.api import (
    CRDS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    ApiError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
    ResourceType,
)
from muster.kube.http import HttpApi
from muster.operate.providers.config import JobSettings
from muster.operate.providers.job.objects import REPAIR_LABEL, job_name
from muster.operate.providers.job.provider import JobProvider
from muster.operate.repair_controller import RepairController
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE
from tests.controlplane.plugin import RealCluster
from tests.providers.bed import GPUS, running

SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount", True)
LABEL = "nvidia.com/gpu.deploy.dcgm"


async def until(there: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
    for _ in range(int(limit_s / 0.2)):
        if await there():
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"not so after {limit_s} s")


async def install(api: KubeApi) -> None:
    for manifest in crd.manifests():
        try:
            await api.create(CRDS, dict(manifest))
        except AlreadyExistsError:
            continue
    for name in (SYSTEM_NAMESPACE, "gpu-operator"):
        try:
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExistsError:
            continue


async def scenario(api: KubeApi, controllers: bool) -> None:
    await install(api)
    suffix = uuid.uuid4().hex[:8]
    node, name = f"reset-{suffix}", f"reset-{suffix}-e1-reset-gpu-1"
    body: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {LABEL: "true"}}}
    made = await api.create(NODES, body)
    repair: Object = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Repair",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "nodeUid": made["metadata"]["uid"],
            "episode": "e1",
            "rung": "reset-gpu",
            "provider": "jobs",
            "gpuUuids": list(GPUS),
        },
    }

    async def created() -> bool:
        try:
            await api.create(REPAIRS, repair)
        except AlreadyExistsError:
            return True
        except ApiError:
            return False  # the CRD is not served yet
        return True

    await until(created)

    async def account_there() -> bool:
        try:
            await api.get(SERVICE_ACCOUNTS, "default", SYSTEM_NAMESPACE)
        except NotFoundError:
            return not controllers
        return True

    # Without it the API server takes no pods, and the Job controller waits ever longer before it tries again.
    await until(account_there)
    lines: list[str] = []
    provider = JobProvider(JobSettings(name="jobs"), api, SystemClock())
    controller = RepairController(api, SystemClock(), [provider], tell=lines.append, poll_s=0.5)
    pods_of = f"{REPAIR_LABEL}={job_name(name)}"

    async def job_there() -> bool:
        page = await api.list_page(JOBS, SYSTEM_NAMESPACE, label_selector=pods_of)
        return len(page.items) == 1

    async def pod_there() -> bool:
        page = await api.list_page(PODS, SYSTEM_NAMESPACE, label_selector=pods_of)
        return len(page.items) == 1

    async def over() -> bool:
        return (await api.get(REPAIRS, name)).get("status", {}).get("phase") in ("Done", "Failed")

    try:
        async with running(controller.run()):
            await until(job_there)
            labels = (await api.get(NODES, node))["metadata"]["labels"]
            assert labels[LABEL] == "false"
            if not controllers:
                return
            await until(pod_there, 90)
            (raw,) = (await api.list_page(PODS, SYSTEM_NAMESPACE, label_selector=pods_of)).items
            pod = json.loads(raw)
            assert pod["spec"]["nodeName"] == node
            await api.patch(
                PODS,
                pod["metadata"]["name"],
                {"status": ended_status(pod)},
                PatchType.STRATEGIC,
                SYSTEM_NAMESPACE,
                subresource="status",
            )
            await until(over)
        found = (await api.get(REPAIRS, name))["status"]
        assert (found["phase"], found["message"]) == ("Done", "reset-gpu: reset: both"), found
        labels = (await api.get(NODES, node))["metadata"]["labels"]
        assert labels[LABEL] == "true"
        assert "muster.dev/gpu-clients-off" not in labels
    finally:
        await api.delete(REPAIRS, name)
        await api.delete(NODES, node)


def ended_status(pod: Object) -> Object:
    """What a kubelet writes when the container has ended."""
    at = "2026-01-05T08:00:00Z"
    ended = {"exitCode": 0, "message": "ok reset: both", "startedAt": at, "finishedAt": at, "reason": "Completed"}
    container = {"name": "repair", "state": {"terminated": ended}, "ready": False, "restartCount": 0}
    return {
        "phase": "Succeeded",
        "containerStatuses": [{**container, "image": pod["spec"]["containers"][0]["image"], "imageID": ""}],
    }


@pytest.mark.requirement("v2.4/BFX01")
def test_a_reset_on_a_real_api_server(real_cluster: RealCluster) -> None:
    async def main() -> None:
        async with HttpApi.from_kubeconfig(real_cluster.kubeconfig, rate_per_s=1000.0) as api:
            await scenario(api, real_cluster.controllers)

    asyncio.run(main())
