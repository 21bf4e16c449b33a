"""A custom resource for a test of its own: defined, waited for, and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.contract.client import Client
from tests.contract.server import Server, eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Thing:
    """One definition. `body` is the CustomResourceDefinition."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    body: dict[str, Any]

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1"

    def path(self, namespace: str = "") -> str:
        where = f"namespaces/{namespace}/" if namespace else ""
        return f"/apis/{self.group}/v1/{where}{self.plural}"


def definition(server: Server, *, scope: str, **version: Any) -> Thing:
    """A kind with `spec.color` (text), `spec.size` (number) and `spec.on` (boolean). `version`: further fields."""
    plural = server.unique("things").replace("-", "")
    kind = plural.capitalize()
    group = "lists.muster.test"
    spec = {"color": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    served_version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [served_version],
        },
    }
    return Thing(group, plural, kind, scope == "Namespaced", body)


@contextmanager
def served(admin: Client, thing: Thing) -> Iterator[Callable[[str], str]]:
    """While the context lasts the kind is served; it yields the path of its list in a namespace ("": all)."""
    admin.create(CRDS, thing.body).ok()
    name = thing.body["metadata"]["name"]
    try:
        eventually(lambda: _established(admin.get(f"{CRDS}/{name}").ok()))
        eventually(lambda: admin.get(thing.path()).status == 200)
        yield thing.path
    finally:
        admin.delete(f"{CRDS}/{name}")


def _established(found: dict[str, Any]) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
