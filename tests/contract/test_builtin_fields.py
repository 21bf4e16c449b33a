"""The simulator's table of built-in fields is what a real server says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from muster.sim.api_kinds import BUILTINS
from muster.sim.builtin_fields import BuiltinField, FieldType, struct_name, structs
from tests.contract.client import Client
from tests.contract.server import real
from tests.controlplane.plugin import RealCluster

PREFIX = "#/components/schemas/"
OPAQUE = ("fieldsV1", "status", "managedFields")
"""Fields that the table does not look into, in the types of which they are."""
UNTYPED = ("schedulingPolicy", "schedulingConstraints", "disruptionMode", "resourceClaims")
"""Fields of API groups that are not served by default."""
SCALARS = {
    "quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "int-or-string": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "time": "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "microtime": "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
}
TYPES = {"string": "string", "bool": "boolean", "float64": "number", "bytes": "string"}


@pytest.fixture
def described(real_cluster: RealCluster) -> tuple[Client, dict[str, Any]]:
    """The schemas of every group version that the simulator serves."""
    admin = real(real_cluster).admin
    paths = admin.get("/openapi/v3").ok()["paths"]
    schemas: dict[str, Any] = {}
    for kind in BUILTINS:
        path = f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"
        schemas |= admin.get(paths[path]["serverRelativeURL"]).ok()["components"]["schemas"]
    return admin, schemas


def test_the_table_matches(described: tuple[Client, dict[str, Any]]) -> None:
    _, schemas = described
    differences: list[str] = []
    seen: dict[str, None] = {}
    roots = [(struct_name(kind.group, kind.name), _schema_of(schemas, kind.group, kind.name)) for kind in BUILTINS]
    while roots:
        name, schema = roots.pop()
        if name in seen:
            continue
        seen[name] = None
        properties = {key: value for key, value in schema["properties"].items() if key not in ("apiVersion", "kind")}
        known = {key for key in structs()[name].fields if key not in ("apiVersion", "kind")}
        differences += [f"{name}: {key} is in one only" for key in sorted(known ^ set(properties))]
        for field in structs()[name].fields.values():
            if field.name not in properties or field.name in (*OPAQUE, *UNTYPED):
                continue
            problem = _difference(field, properties[field.name])
            if problem:
                differences.append(f"{name}.{field.name}: {problem}")
            roots += _below(field.type, properties[field.name], schemas)
    assert differences == []
    assert len(seen) > 150


def _schema_of(schemas: dict[str, Any], group: str, kind: str) -> dict[str, Any]:
    for schema in schemas.values():
        for named in schema.get("x-kubernetes-group-version-kind", ()):
            if (named["group"], named["kind"], named["version"]) == (group, kind, "v1"):
                found: dict[str, Any] = schema
                return found
    raise AssertionError(f"{group}/{kind} is not described")


def _reference(schema: dict[str, Any]) -> str:
    parts = [schema, *schema.get("allOf", ())]
    return next((part["$ref"].removeprefix(PREFIX) for part in parts if "$ref" in part), "")


def _below(kind: FieldType, schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    while kind.element is not None:
        kind = kind.element
        schema = schema.get("items") or schema.get("additionalProperties") or {}
    return [(kind.name, schemas[_reference(schema)])] if kind.form == "struct" else []


def _difference(field: BuiltinField, schema: dict[str, Any]) -> str:
    """What is wrong with the table's idea of a field; "" when nothing is."""
    kind = field.type
    if kind.form == "list" and kind.name != "bytes":
        wanted = "map" if "map" in field.flags else "set" if "set" in field.flags else "atomic"
        if schema.get("type") != "array":
            return "is no list"
        if schema.get("x-kubernetes-list-type", "atomic") != wanted:
            return f"merges as {schema.get('x-kubernetes-list-type')}, not {wanted}"
        if wanted == "map" and schema["x-kubernetes-list-map-keys"] != field.flags["map"].split(","):
            return f"has the keys {schema['x-kubernetes-list-map-keys']}"
    if kind.form == "map" and "additionalProperties" not in schema:
        return "is no map"
    if kind.form == "struct" and not _reference(schema):
        return "is no object"
    if kind.form == "scalar" and kind.name != "any" and not _same_scalar(kind.name, schema):
        return f"is no {kind.name}"
    strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
    if ("merge" in strategies) != ("merge" in field.flags):
        return f"is patched by {strategies}"
    if schema.get("x-kubernetes-patch-merge-key", "") != field.flags.get("merge", ""):
        return f"is patched by the key {schema.get('x-kubernetes-patch-merge-key')}"
    return ""


def _same_scalar(name: str, schema: dict[str, Any]) -> bool:
    if name in SCALARS:
        return _reference(schema) == SCALARS[name]
    if name.startswith("int"):
        return bool(schema.get("type") == "integer")
    return bool(schema.get("type") == TYPES[name])
