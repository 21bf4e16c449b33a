"""Tables of custom resources and of their definitions."""

from __future__ import annotations

from typing import Any

from tests.contract.client import Client
from tests.contract.server import Server
from tests.contract.test_tables import cells, table
from tests.contract.things import CRDS, definition, served


def test_the_columns_of_a_custom_resource(server: Server, admin: Client, namespace: str) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "its color"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "format": "int32"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1},
        {"name": "Text", "type": "string", "jsonPath": ".spec.size"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.color"},
        {"name": "Whole", "type": "string", "jsonPath": ".spec"},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Day", "type": "date", "jsonPath": ".spec.color"},
    ]
    thing = definition(server, scope="Namespaced", additionalPrinterColumns=columns)
    with served(admin, thing) as path_of:
        path = path_of(namespace)
        body = {"apiVersion": thing.api_version, "kind": thing.kind}
        admin.create(path, {**body, "metadata": {"name": "a"}, "spec": {"color": "red", "size": 3, "on": True}}).ok()
        admin.create(path, {**body, "metadata": {"name": "b"}}).ok()
        found = table(admin, path)
        shown = [(c["name"], c["type"], c["format"], c["priority"]) for c in found["columnDefinitions"]]
        assert shown == [
            ("Name", "string", "name", 0),
            *((c["name"], c["type"], c.get("format", ""), c.get("priority", 0)) for c in columns),
        ]
        told = [c["description"] for c in found["columnDefinitions"][1:3]]
        assert told == ["its color", "Custom resource definition column (in JSONPath format): .spec.size"]
        first, second = cells(found)
        assert first[:6] == ["a", "red", 3, True, "3", None]
        assert first[7:] == ["AGE", "<invalid>"]
        assert second == ["b", None, None, None, None, None, None, "AGE", None]


def test_a_custom_resource_without_columns_shows_name_and_age(server: Server, admin: Client, namespace: str) -> None:
    thing = definition(server, scope="Namespaced")
    with served(admin, thing) as path_of:
        body = {"apiVersion": thing.api_version, "kind": thing.kind, "metadata": {"name": "a"}}
        admin.create(path_of(namespace), body).ok()
        assert cells(table(admin, path_of(namespace))) == [["a", "AGE"]]


def test_the_cells_of_a_definition(server: Server, admin: Client) -> None:
    thing = definition(server, scope="Cluster")
    (version,) = thing.body["spec"]["versions"]
    thing.body["spec"]["versions"] += [
        {**version, "name": "v1beta1", "storage": False},
        {**version, "name": "v1alpha1", "storage": False, "served": False},
    ]
    thing.body["spec"]["names"]["shortNames"] = [f"{thing.plural}a", f"{thing.plural}b"]
    with served(admin, thing):
        name = thing.body["metadata"]["name"]
        created = admin.get(f"{CRDS}/{name}").ok()["metadata"]["creationTimestamp"]
        (row,) = cells(table(admin, CRDS, fieldSelector=f"metadata.name={name}"))
        short = f"{thing.plural}a,{thing.plural}b"
        assert row == [name, "Cluster", "v1(storage),v1beta1", created, thing.group, thing.kind, short, True]
