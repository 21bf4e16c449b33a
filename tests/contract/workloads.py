"""Pods, nodes, budgets and owner references that the tests of lifecycles create."""

from __future__ import annotations

import time
from typing import Any

from tests.contract.client import STRATEGIC, Answer, Client
from tests.contract.server import Server

HOLD = "test.muster.dev/hold"
"""A finalizer that nobody but the test takes off."""
TEST_NODE = {"muster.dev/test": "true"}
"""The label by which other test runs know that a node is nobody's."""


def config_map(name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    references = {"ownerReferences": list(owners)} if owners else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **references, **metadata}}


def reference(owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An owner reference to an object as the server answered it."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


def pod(
    name: str, node: str = "", *, gpus: int = 0, meta: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod without a service account's token, so that two servers store the same."""
    container: dict[str, Any] = {"name": "main", "image": "work:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    bound = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"automountServiceAccountToken": False, "containers": [container], **bound, **spec},
    }


def node(name: str, *, gpus: int = 8, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    """A Node as a kubelet registers it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata, "labels": {**TEST_NODE, **metadata.get("labels", {})}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "KubeletReady",
                    "message": "up",
                    "lastHeartbeatTime": at,
                    "lastTransitionTime": at,
                }
            ],
        },
    }


def budget(name: str, app: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


class Place:
    """The paths of one namespace, and what tests do in it over and over again."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.admin: Client = server.admin
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}"
        self.config_maps = f"{self.path}/configmaps"
        self.pods = f"{self.path}/pods"
        self.budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def config(self, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        return self.admin.create(self.config_maps, config_map(name, *owners, **metadata)).ok()

    def is_gone(self, path: str) -> bool:
        return self.admin.get(path).status == 404

    def free(self, path: str) -> Answer:
        """Take all finalizers off."""
        return self.admin.patch(path, {"metadata": {"finalizers": None}})

    def run(self, name: str, *, app: str, ready: str = "True", phase: str = "Running", **more: Any) -> dict[str, Any]:
        """A pod on a node, in the state in which a kubelet reports it."""
        labels = {"labels": {"app": app}}
        self.admin.create(self.pods, pod(name, "some-node", meta={**labels, **more})).ok()
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        path = f"{self.pods}/{name}/status"
        return self.admin.patch(path, {"status": status}, STRATEGIC).ok()

    def evict(self, name: str, options: dict[str, Any] | None = None, **params: Any) -> Answer:
        body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if options is not None:
            body["deleteOptions"] = options
        return self.admin.create(f"{self.pods}/{name}/eviction", body, **params)
