"""The objects of workers, in all their variants: both API servers take them, and a Job goes only after its pods."""

from __future__ import annotations

from typing import Any

import pytest

from muster.certify.catalogue import tests as catalogue_tests
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.runners import Owner
from muster.certify.runners.test_pod import build
from muster.certify.runners.worker_pods import Images, job, secret, service
from muster.resources.certification import Gang, GangScheduler, Pods, Toleration
from tests.contract.client import Client
from tests.contract.server import eventually
from tests.contract.workloads import HOLD, pod

OWNER = Owner("bring-up", "7e1bb6f4-0000-4000-8000-000000000001")
IMAGES = Images("registry.example/torch:1", "registry.example/muster:1")
VARIANTS = {
    "plain": Pods(),
    "nics": Pods(nic_resource="rdma/ib", nics=8, env={"NCCL_IB_HCA": "mlx5"}, image_pull_secrets=("mine",)),
    "claims": Pods(gpu_claim_template="gpus", nic_claim_template="nics"),
    "host": Pods(host_network=True, storage_claim="shared", image="other:2"),
    "tolerant": Pods(tolerations=(Toleration(key="team", operator="Equal", value="x", effect="NoSchedule"),)),
    "kueue": Pods(gang=Gang(scheduler=GangScheduler.KUEUE, queue="gpus")),
    "kai": Pods(gang=Gang(scheduler=GangScheduler.KAI, queue="gpus")),
    "volcano": Pods(gang=Gang(scheduler=GangScheduler.VOLCANO, queue="gpus")),
}


def moved(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object in a namespace of the test, without an owner that the collector would miss."""
    metadata = {k: v for k, v in body["metadata"].items() if k != "ownerReferences"}
    return {**body, "metadata": {**metadata, "namespace": namespace}}


def kept(sent: Any, got: Any, where: str = "") -> None:
    """Everything that was sent is there: no field was dropped or changed."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            assert name in got or value in ({}, []), f"{where}.{name} was dropped"
            if name in got:
                kept(value, got[name], f"{where}.{name}")
    elif isinstance(sent, list):
        assert len(sent) == len(got) or where.endswith(".tolerations"), where  # the server adds some of its own
        for number, (mine, theirs) in enumerate(zip(sent, got, strict=False)):
            kept(mine, theirs, f"{where}[{number}]")
    else:
        assert sent == got, where


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_job_of_workers_is_taken_as_it_is(admin: Client, namespace: str, variant: str) -> None:
    body = moved(job(OWNER, VARIANTS[variant], ["n1", "n2"], 8, IMAGES, 600.0), namespace)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = admin.create(path, body, dryRun="All", fieldValidation="Strict").ok()
    kept(body, made)


@pytest.mark.parametrize("variant", ["plain", "nics", "claims", "host"])
def test_a_pod_with_an_image_of_its_own_is_taken_as_it_is(admin: Client, namespace: str, variant: str) -> None:
    run = PlannedRun("r01-000", 1, "dcgm-diag", ("n1",), Role.SCREEN, 0)
    test = catalogue_tests()["dcgm-diag"]
    body = moved(build(OWNER, run, 0, test, 8, "unused", VARIANTS[variant]), namespace)
    made = admin.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All", fieldValidation="Strict").ok()
    kept(body, made)


def test_secret_and_service_are_taken_as_they_are(admin: Client, namespace: str) -> None:
    for plural, body in (("secrets", secret(OWNER, bytes(32))), ("services", service(OWNER))):
        sent = moved(body, namespace)
        kept(sent, admin.create(f"/api/v1/namespaces/{namespace}/{plural}", sent, fieldValidation="Strict").ok())


def test_a_job_with_the_finalizer_goes_after_its_pods_however_it_is_deleted(
    admin: Client, namespace: str, controllers: None
) -> None:
    suspended = {"gang": Gang(scheduler=GangScheduler.KUEUE, queue="gpus")}
    body = moved(job(OWNER, Pods(**suspended), ["n1"], 8, IMAGES, 600.0), namespace)
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    made = admin.create(jobs, body).ok()
    name = made["metadata"]["name"]
    owned = pod("w")
    owned["metadata"]["finalizers"] = [HOLD]
    owned["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": made["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    admin.create(pods, owned).ok()
    admin.delete(f"{jobs}/{name}").ok()
    going = eventually(lambda: admin.get(f"{pods}/w").ok()["metadata"].get("deletionTimestamp"))
    assert going
    assert admin.get(f"{jobs}/{name}").ok()["metadata"]["finalizers"] == ["foregroundDeletion"]
    admin.patch(f"{pods}/w", {"metadata": {"finalizers": None}}).ok()
    eventually(lambda: admin.get(f"{jobs}/{name}").status == 404)
