"""Custom resources for the contract tests: define one, wait until it is served, and ask about its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.contract.client import MERGE, Answer, Client
from tests.contract.server import Server, eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Schema = dict[str, Any]
INTEGER: Schema = {"type": "integer"}
STRING: Schema = {"type": "string"}


def with_spec(spec: Schema, status: Schema | None = None, **root: Any) -> Schema:
    """The schema of an object with this spec (and status)."""
    properties = {"spec": spec} | ({"status": status} if status is not None else {})
    return {"type": "object", "properties": properties, **root}


def of(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": dict(properties), **more}


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, **more}]}


def definition(server: Server, schema: Schema, **version: Any) -> dict[str, Any]:
    """A definition of cluster-scoped widgets in a group of this test alone."""
    group = f"{server.unique('g')}.example.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


@dataclass(frozen=True)
class Widgets:
    """A custom resource that is served."""

    admin: Client
    group: str

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/v1/widgets"

    @property
    def definition(self) -> str:
        return f"{DEFINITIONS}/widgets.{self.group}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1"

    def at(self, name: str, subresource: str = "") -> str:
        return f"{self.path}/{name}" + (f"/{subresource}" if subresource else "")

    def body(self, name: str, spec: Any = None, **more: Any) -> dict[str, Any]:
        found = {"apiVersion": self.api_version, "kind": "Widget", "metadata": {"name": name}}
        return {**found, **({"spec": spec} if spec is not None else {}), **more}

    def create(self, name: str, spec: Any = None, status: Any = None, **params: Any) -> Answer:
        more = {"status": status} if status is not None else {}
        return self.admin.create(self.path, self.body(name, spec, **more), **params)

    def merge(self, name: str, patch: Any, subresource: str = "", **params: Any) -> Answer:
        return self.admin.patch(self.at(name, subresource), patch, MERGE, **params)

    def apply(self, name: str, spec: Any = None, *, manager: str, subresource: str = "", **more: Any) -> Answer:
        """Apply a spec; `more`: other fields of the object, and `force="true"`, `dryRun="All"`, `fieldValidation`."""
        params = {key: more.pop(key) for key in ("force", "dryRun", "fieldValidation") if key in more}
        return self.admin.apply(self.at(name, subresource), self.body(name, spec, **more), manager=manager, **params)

    def stored(self, name: str) -> dict[str, Any]:
        return self.admin.get(self.at(name)).ok()


def define(server: Server, schema: Schema, **version: Any) -> Widgets:
    """Create a definition and wait until its objects can be read and written."""
    crd = definition(server, schema, **version)
    server.admin.create(DEFINITIONS, crd).ok()
    widgets = Widgets(server.admin, crd["spec"]["group"])
    wait_served(widgets)
    return widgets


def wait_served(widgets: Widgets) -> None:
    eventually(lambda: widgets.admin.get(widgets.path).status == 200)


def causes(answer: Answer, code: int = 422) -> set[tuple[str, str, str]]:
    """(field, reason, message) of every cause: their order says nothing on a real server."""
    answer.refused(code, {422: "Invalid", 409: "Conflict"}[code])
    return {(c.get("field", ""), c["reason"], c["message"]) for c in answer.body["details"]["causes"]}


def messages(answer: Answer) -> dict[str, str]:
    """Field -> message of an object that is invalid."""
    return {field: message for field, _, message in causes(answer)}


def owners(obj: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(manager, operation, subresource) -> fields."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", ())
    }


def applied_by(obj: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    """What a manager that applies owns; empty when it has no entry."""
    return owners(obj).get((manager, "Apply", subresource), {})


def updated_by(obj: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    return owners(obj).get((manager, "Update", subresource), {})
