"""Objects that several contract tests use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.contract.client import Client
from tests.contract.server import Server, eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def pod_spec(**more: Any) -> dict[str, Any]:
    """The least spec of a pod that no controller touches."""
    return {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i:1"}], **more}


def workload_spec(**more: Any) -> dict[str, Any]:
    """The least spec of a Deployment and its relatives."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    return {"selector": {"matchLabels": {"a": "b"}}, "template": template, **more}


@dataclass(frozen=True)
class Things:
    """A custom resource of one test: where its objects live, and how one looks."""

    group: str
    path: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1"

    @property
    def resource(self) -> str:
        return f"things.{self.group}"

    def thing(self, name: str = "", **metadata: Any) -> dict[str, Any]:
        named = {"name": name} if name else {}
        return {
            "apiVersion": self.api_version,
            "kind": "Thing",
            "metadata": {**named, **metadata},
            "spec": {"count": 1, "parts": ["a"]},
        }


def define_things(server: Server, namespace: str, *, status: bool = True) -> Things:
    """A new custom resource, served already. `status`: with a status subresource."""
    group = f"{server.unique('g')}.example.com"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["count"],
                "properties": {
                    "count": {"type": "integer", "minimum": 1},
                    "colour": {"type": "string", "default": "red"},
                    "parts": {"type": "array", "items": {"type": "string"}},
                    "more": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
            "status": {"type": "object", "properties": {"seen": {"type": "string"}}},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if status:
        version["subresources"] = {"status": {}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    server.admin.create(CRDS, {"metadata": {"name": f"things.{group}"}, "spec": spec}).ok()
    things = Things(group, f"/apis/{group}/v1/namespaces/{namespace}/things")
    eventually(lambda: _served(server.admin, things))
    return things


def _served(admin: Client, things: Things) -> bool:
    """A real server lists a resource a moment before it takes writes."""
    probe = {**things.thing("probe"), "spec": {"count": 1}}
    return admin.create(things.path, probe, dryRun="All").status == 201


def configs_of(namespace: str) -> str:
    """Where the config maps of a namespace live."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def meta(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["metadata"]
    return found


def causes(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Field and reason of every cause of a Status, sorted."""
    return sorted((cause.get("field", ""), cause["reason"]) for cause in body["details"]["causes"])
