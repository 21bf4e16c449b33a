"""A cluster for tests of snapshots: nodes, agents, pods, releases, definitions, policies, storage classes."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from muster.kube.api import (
    CRDS,
    DAEMON_SETS,
    LEASES,
    NODE_HEALTHS,
    NODES,
    PODS,
    SECRETS,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
)
from muster.kube.election import micro_time
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease, to_object
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import Gpu, Observed
from muster.sim.nodes import ensure_namespace

STARTED = {"ready": True, "restartCount": 0, "started": True, "state": {"running": {}}, "lastState": {}}
VERSION = {"gitVersion": "v1.34.2", "platform": "linux/amd64"}


def observed(now: datetime, node_uid: str, *, gpus: int = 8, driver: str = "580.95.05") -> Observed:
    """What an agent publishes."""
    readings = [
        Reading(name="driver.version", value=driver, reading_class=ReadingClass.STACK),
        Reading(name="gpu.count", value=str(gpus), reading_class=ReadingClass.IDENTITY),
        Reading(name="kernel.version", value="6.8.0-1028-aws", reading_class=ReadingClass.STACK),
    ]
    found = tuple(Gpu(index=n, uuid=f"GPU-{n}", pci=f"0000:{n:02x}:00.0") for n in range(gpus))
    return Observed(observed_at=now, node_uid=node_uid, boot_id="b", fingerprint=fingerprint(readings), gpus=found)


def node(name: str, *, gpus: int = 8, **spec: Any) -> Object:
    capacity = {"cpu": "192", "memory": "2113929216Ki", "nvidia.com/gpu": str(gpus)}
    info = {
        "kernelVersion": "6.8.0-1028-aws",
        "osImage": "Ubuntu 24.04.2 LTS",
        "kubeletVersion": "v1.34.2",
        "containerRuntimeVersion": "containerd://2.1.4",
        "operatingSystem": "linux",
        "architecture": "amd64",
        "machineID": f"m-{name}",
        "systemUUID": f"s-{name}",
        "bootID": f"b-{name}",
        "kubeProxyVersion": "",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"topology.kubernetes.io/zone": "us-west-2a", "a.b/c": "d", "a/b.c": "d"},
        },
        "spec": {"providerID": f"aws:///us-west-2a/i-{name}", **spec},
        "status": {"capacity": capacity, "allocatable": capacity, "nodeInfo": info},
    }


def pod(name: str, image: str, owner: Object | None = None) -> Object:
    """A pod in the namespace `default`; its owner has to exist, or the garbage collector takes it."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if owner is not None:
        about = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", **about}]
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def daemon_set(name: str) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def release(
    name: str,
    namespace: str,
    *,
    version: str = "1.2.3",
    revision: int = 1,
    status: str = "deployed",
    values: Mapping[str, Any] | None = None,
) -> Object:
    """Helm's record, as Helm writes it."""
    record = {
        "name": name,
        "namespace": namespace,
        "version": revision,
        "info": {"status": status},
        "chart": {"metadata": {"name": name, "version": version, "appVersion": "9"}},
        "config": dict(values or {}),
        "manifest": "",
    }
    packed = base64.b64encode(gzip.compress(json.dumps(record).encode(), mtime=0))
    labels = {"owner": "helm", "name": name, "status": status, "version": str(revision)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.{name}.v{revision}", "namespace": namespace, "labels": labels},
        "type": "helm.sh/release.v1",
        "data": {"release": base64.b64encode(packed).decode()},
    }


def definition(plural: str, group: str, kind: str, version: str = "v1") -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def storage_class(name: str) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3"},
        "volumeBindingMode": "WaitForFirstConsumer",
    }


async def install_muster(api: KubeApi) -> None:
    for manifest in crd.manifests():
        await api.create(CRDS, dict(manifest))
    await ensure_namespace(api, SYSTEM_NAMESPACE)


async def add_agent(
    api: KubeApi, name: str, now: datetime, *, uid: str = "", gpus: int = 8, driver: str = "580.95.05"
) -> None:
    """Publish what the agent of a node sees, and its heartbeat."""
    own = uid or str((await api.get(NODES, name))["metadata"]["uid"])
    seen = {"gpus": [], **to_object(observed(now, own, gpus=gpus, driver=driver))}
    status = {"status": {"observed": seen}}
    base = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": name}}
    try:
        await api.get(NODE_HEALTHS, name)
    except NotFoundError:
        await api.create(NODE_HEALTHS, base)
    await api.patch(NODE_HEALTHS, name, status, PatchType.MERGE, subresource="status")
    await beat(api, name, now)


async def beat(api: KubeApi, name: str, now: datetime) -> None:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 180, "renewTime": micro_time(now)}
    try:
        await api.patch(LEASES, agent_lease(name), {"spec": spec}, PatchType.MERGE, SYSTEM_NAMESPACE)
    except NotFoundError:
        metadata = {"name": agent_lease(name), "namespace": SYSTEM_NAMESPACE}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        await api.create(LEASES, lease, SYSTEM_NAMESPACE)


async def fill(api: KubeApi) -> None:
    """Everything that a snapshot of a cluster records, but for Muster's own part."""
    await ensure_namespace(api, "default")
    for name in ("gpu-1", "gpu-2"):
        await api.create(NODES, node(name))
    owner = await api.create(DAEMON_SETS, daemon_set("o"), "default")
    for name, image in (("a", "reg.example.com:5000/team/app:1.0"), ("b", "reg.example.com:5000/team/app:2.0")):
        await api.create(PODS, pod(name, image, owner), "default")
        started = [{"name": "main", "image": image, "imageID": f"{image}@sha256:{name * 64}", **STARTED}]
        running = {"status": {"phase": "Running", "containerStatuses": started}}
        await api.patch(PODS, name, running, PatchType.MERGE, "default", subresource="status")
    values = {"driver": {"version": "580.95.05", "licensing": {"token": "t0p-secret"}}, "list": [1]}
    for revision, status in ((1, "superseded"), (2, "deployed")):
        secret = release(
            "gpu-operator", "default", version=f"26.3.{revision}", revision=revision, status=status, values=values
        )
        await api.create(SECRETS, secret, "default")
    await api.create(CRDS, definition("clusterpolicies", "nvidia.com", "ClusterPolicy"))
