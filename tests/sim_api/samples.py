"""Objects that the tests of the simulated API server store."""

from __future__ import annotations

from typing import Any

from muster.kube.api import CRDS, NODES, POD_DISRUPTION_BUDGETS, PODS, Object, ResourceType
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock

WIDGETS = ResourceType("test.example.com", "v1", "widgets", "Widget", True)
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap", True)


def new_store(**options: Any) -> Store:
    return Store(VirtualClock(), seed=1, **options)


def node(name: str = "n1", **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def pod(name: str = "p1", node_name: str = "", **labels: str) -> Object:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "work:1"}]}
    if node_name:
        spec["nodeName"] = node_name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def add_node(store: Store, name: str = "n1", **labels: str) -> Object:
    return store.create(store.kind(NODES), node(name, **labels)).obj


def add_pod(store: Store, name: str = "p1", node_name: str = "", **labels: str) -> Object:
    return store.create(store.kind(PODS), pod(name, node_name, **labels), "default").obj


def make_ready(store: Store, name: str, ready: str = "True") -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    store.patch(store.kind(PODS), name, {"status": status}, MERGE, "default", subresource="status")


def add_budget(store: Store, spec: dict[str, Any], name: str = "pdb") -> None:
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec}}
    store.create(store.kind(POD_DISRUPTION_BUDGETS), body, "default")


JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

SPEC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "ratio": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "plain": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                    "weight": {"type": "integer"},
                },
            },
        },
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.ratio) || self.ratio < 1.0", "message": "ratio must be below one"},
        {"rule": "self.size >= oldSelf.size", "message": "size cannot shrink", "fieldPath": ".size"},
    ],
}


def widget_crd(spec_schema: dict[str, Any] | None = None, *, status: bool = True, versions: int = 1) -> Object:
    schema = {
        "type": "object",
        "properties": {
            "spec": spec_schema or SPEC_SCHEMA,
            "status": {"type": "object", "properties": {"phase": {"type": "string"}, "seen": {"type": "integer"}}},
        },
    }
    listed = [
        {
            "name": f"v{number}",
            "served": True,
            "storage": number == 1,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}} if status else {},
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
        }
        for number in range(1, versions + 1)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["things"]},
            "versions": listed,
        },
    }


def widget(**spec: Any) -> Object:
    body = {"size": 3, **spec}
    return {"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "w1"}, "spec": body}


def widget_store(**options: Any) -> Store:
    store = new_store()
    store.create(store.kind(CRDS), widget_crd(**options))
    return store
