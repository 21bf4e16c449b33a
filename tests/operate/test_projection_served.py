"""The same writes to Nodes, pods and Repairs on the simulated API server and on a real one."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

from msgspec.structs import replace as with_fields

from muster.clock import SystemClock
from muster.kube.api import (
    CRDS,
    NAMESPACES,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    KubeApi,
    Object,
    PatchType,
    ResourceType,
)
from muster.kube.http import HttpApi
from muster.operate.carry_out import Writer
from muster.operate.model import AskCheckpoint, CancelRepair, PodView
from muster.operate.views import node_record, pod_view
from muster.resources import crd
from muster.resources.base import to_object
from muster.resources.node_health import Cause, CauseKind, Episode, Lifecycle, State
from muster.resources.repair import RepairSpec, Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from tests.controlplane.plugin import RealCluster

SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount", True)


def encoded(obj: Object) -> bytes:
    import json

    return json.dumps(obj).encode()


def effects(node: Object) -> list[tuple[str, str]]:
    """Key and effect of each taint, without those that Kubernetes itself places."""
    found = node["spec"].get("taints") or ()
    return sorted((t["key"], t["effect"]) for t in found if not t["key"].startswith("node.kubernetes.io/"))


async def check(api: KubeApi, writer: Writer) -> None:
    """Everything that a hold writes, on a node and a namespace of its own."""
    suffix = uuid.uuid4().hex[:8]
    for manifest in crd.manifests():
        try:
            await api.create(CRDS, dict(manifest))
        except AlreadyExistsError:
            continue
    name = f"served-{suffix}"
    foreign = {"key": "other", "value": "x", "effect": "NoExecute"}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [foreign]}}
    await api.create(NODES, made)
    try:
        await _hold_and_release(api, writer, name)
        await _cancel(api, writer, name)
        await _ask(api, writer, f"served-{suffix}")
    finally:
        await api.delete(NODES, name)


async def _hold_and_release(api: KubeApi, writer: Writer, name: str) -> None:
    cause = Cause(kind=CauseKind.FAULT, name="xid/79")
    episode = Episode(id="e1", cause=cause, opened_at=datetime(2026, 1, 5, tzinfo=UTC))
    held = Lifecycle(
        state=State.QUARANTINED,
        since=datetime(2026, 1, 5, tzinfo=UTC),
        held=True,
        hold_reason="quarantined",
        cordon=True,
        no_execute=True,
        episode=episode,
    )
    for _ in range(2):  # the second time nothing is left to write
        node = await api.get(NODES, name)
        await writer.project(node_record(encoded(node)), held)
    once = await api.get(NODES, name)
    assert effects(once) == [
        ("muster.dev/hold", "NoExecute"),
        ("muster.dev/hold", "NoSchedule"),
        ("other", "NoExecute"),
    ]
    assert once["spec"]["unschedulable"] is True
    assert once["metadata"]["annotations"]["muster.dev/cordoned-by"] == "e1"
    await writer.project(node_record(encoded(once)), held)
    assert (await api.get(NODES, name))["metadata"]["resourceVersion"] == once["metadata"]["resourceVersion"]
    await writer.project(node_record(encoded(once)), with_fields(held, no_execute=False))
    assert effects(await api.get(NODES, name)) == [("muster.dev/hold", "NoSchedule"), ("other", "NoExecute")]
    released = with_fields(held, held=False, hold_reason="", cordon=False, no_execute=False)
    await writer.project(node_record(encoded(await api.get(NODES, name))), released)
    node = await api.get(NODES, name)
    assert effects(node) == [("other", "NoExecute")]
    assert not node["spec"].get("unschedulable")
    # A cordon that was there before stays.
    await api.patch(NODES, name, {"spec": {"unschedulable": True}}, PatchType.MERGE)
    for life in (held, released):
        await writer.project(node_record(encoded(await api.get(NODES, name))), life)
    assert (await api.get(NODES, name))["spec"]["unschedulable"] is True


async def _cancel(api: KubeApi, writer: Writer, name: str) -> None:
    for begun in (False, True):
        repair = f"{name}-{'begun' if begun else 'waits'}"
        spec = RepairSpec(node_name=name, node_uid="u", episode="e1", rung=Rung.REBOOT, provider="p")
        made = await api.create(
            REPAIRS,
            {
                "apiVersion": "muster.dev/v1alpha1",
                "kind": "Repair",
                "metadata": {"name": repair},
                "spec": to_object(spec),
            },
        )
        if begun:
            status = {"status": {"phase": "Running", "startedAt": "2026-01-05T08:00:00Z", "externalId": "op-1"}}
            await api.patch(REPAIRS, repair, status, PatchType.MERGE, subresource="status")
        for uid in ("of-another", made["metadata"]["uid"]):
            await writer.intent(CancelRepair(repair, uid, "e1", "released"))
            cancelled = (await api.get(REPAIRS, repair))["spec"].get("cancel", False)
            assert cancelled is (uid == made["metadata"]["uid"] and not begun)
        await api.delete(REPAIRS, repair)


async def _ask(api: KubeApi, writer: Writer, namespace: str) -> None:
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    try:
        await api.create(SERVICE_ACCOUNTS, account, namespace)
    except AlreadyExistsError:
        pass
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "annotations": {"muster.dev/checkpoint": "true"}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": limits}]},
    }
    made = await api.create(PODS, pod, namespace)
    view = pod_view(encoded(made))
    assert view is not None
    assert view.checkpoint
    other = PodView(name="train", namespace=namespace, uid="11111111-2222-3333-4444-555555555555", node="")
    await writer.intent(AskCheckpoint(other, "e0"))
    assert "muster.dev/checkpoint-asked" not in (await api.get(PODS, "train", namespace))["metadata"]["annotations"]
    await writer.intent(AskCheckpoint(view, "e1"))
    asked = pod_view(encoded(await api.get(PODS, "train", namespace)))
    assert asked is not None
    assert asked.checkpoint_asked == "e1"
    await api.delete(NAMESPACES, namespace)


def test_on_the_simulated_server() -> None:
    async def story(clock: VirtualClock) -> None:
        api = InProcessApi(Store(clock, seed=1), user="test")
        await check(api, Writer(api, clock))

    run_virtual(story)


def test_on_a_real_server(real_cluster: RealCluster) -> None:
    async def story() -> None:
        api = HttpApi.from_kubeconfig(real_cluster.kubeconfig, None)
        try:
            await check(api, Writer(api, SystemClock()))
        finally:
            await api.close()

    asyncio.run(story())
