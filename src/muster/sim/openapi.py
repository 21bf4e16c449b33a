"""OpenAPI v3 documents: enough for kubectl to validate, apply, diff and explain.

Custom resources are described by their schemas. Built-in kinds are described by the names and types of their fields,
without words; the descriptions say so.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind, Registry
from muster.sim.builtin_fields import BuiltinField, FieldType, struct_name, structs
from muster.sim.discovery import VERSION

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PREFIX = "#/components/schemas/"
_NOT_DESCRIBED = (
    "The simulated API server does not describe built-in kinds in words; see the Kubernetes API reference."
)
_OWN = "sim.muster."
"""Prefix of the schemas that describe parts of built-in kinds."""
_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "int": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "int-or-string": {"type": "string", "format": "int-or-string"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}

_ROOT_DESCRIPTIONS = {
    "apiVersion": "APIVersion defines the versioned schema of this representation of an object.",
    "kind": "Kind is a string value representing the REST resource this object represents.",
}

_METADATA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Metadata that every object has.",
    "properties": {
        **{
            name: {"type": "string", "description": text}
            for name, text in (
                ("name", "Name of the object, unique in its namespace."),
                ("generateName", "Prefix from which the server makes a unique name."),
                ("namespace", "Namespace of the object."),
                ("uid", "Identity of this object in time and space, set by the server."),
                ("resourceVersion", "Version of the object, set by the server."),
                ("creationTimestamp", "When the object was created, set by the server."),
                ("deletionTimestamp", "When the object is to be gone, set by the server."),
                ("selfLink", "No longer set."),
            )
        },
        "generation": {"type": "integer", "format": "int64", "description": "Sequence number of the desired state."},
        "deletionGracePeriodSeconds": {
            "type": "integer",
            "format": "int64",
            "description": "Time to end gracefully.",
        },
        "labels": {"type": "object", "description": "Labels.", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "description": "Annotations.", "additionalProperties": {"type": "string"}},
        "finalizers": {
            "type": "array",
            "description": "What must happen before removal.",
            "items": {"type": "string"},
        },
        "ownerReferences": {"type": "array", "description": "Owners.", "items": {"type": "object"}},
        "managedFields": {"type": "array", "description": "Who owns which fields.", "items": {"type": "object"}},
    },
}


def index(registry: Registry) -> Object:
    """The paths of all documents."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(document(registry, path))}"}
            for path in dict.fromkeys(_path(kind) for kind in registry.all())
        }
    }


def _path(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


def _digest(doc: Object | None) -> str:
    return hashlib.sha256(json.dumps(doc, sort_keys=True).encode()).hexdigest().upper()


def document(registry: Registry, path: str) -> Object | None:
    """The document of one group version (`apis/muster.dev/v1alpha1`, `api/v1`); None when it is not served."""
    kinds = [kind for kind in registry.all() if _path(kind) == path]
    if not kinds:
        return None
    schemas: dict[str, Any] = {_META: _METADATA_SCHEMA}
    paths: dict[str, Any] = {}
    for kind in kinds:
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
        if kind.custom is None:
            _describe(struct_name(kind.group, kind.name), schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Simulated Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(kind: Kind) -> str:
    reversed_group = ".".join(reversed((kind.group or "core.api.k8s.io").split(".")))
    return f"{reversed_group}.{kind.resource.version}.{kind.name}"


def _gvk(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.resource.version, "kind": kind.name}


def _schema(kind: Kind) -> dict[str, Any]:
    if kind.custom is not None:
        raw = {**kind.custom.raw}
        properties = {**raw.get("properties", {})}
    else:
        raw = {"description": f"{kind.name}. {_NOT_DESCRIBED}"}
        struct = structs().get(struct_name(kind.group, kind.name))
        fields = {} if struct is None else struct.fields
        properties = {name: _field(fields.get(name)) for name in kind.top}
    properties |= {name: {"type": "string", "description": text} for name, text in _ROOT_DESCRIPTIONS.items()}
    properties["metadata"] = {
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": _PREFIX + _META}],
        "default": {},
    }
    return {
        **raw,
        "type": "object",
        "properties": {name: properties[name] for name in sorted(properties)},
        "x-kubernetes-group-version-kind": [_gvk(kind)],
    }


def _field(field: BuiltinField | None) -> dict[str, Any]:
    found = _SCALARS["any"] if field is None else _typed(field.type)
    return {"allOf": [found], "default": {}} if "$ref" in found else found


def _typed(found: FieldType) -> dict[str, Any]:
    if found.form == "scalar":
        return _SCALARS.get(found.name, _SCALARS["any"])
    if found.form == "struct":
        return {"$ref": f"{_PREFIX}{_OWN}{found.name}" if found.name != "ObjectMeta" else _PREFIX + _META}
    element = {} if found.element is None else _typed(found.element)
    inner = {"allOf": [element], "default": {}} if "$ref" in element else element
    if found.form == "list":
        return {"type": "array", "items": inner}
    return {"type": "object", "additionalProperties": inner}


def _describe(name: str, schemas: dict[str, Any]) -> None:
    """Add the schemas of every type that a built-in type refers to."""
    struct = structs().get(name)
    for field in struct.fields.values() if struct is not None else ():
        part: FieldType | None = field.type
        while part is not None and part.form != "struct":
            part = part.element
        if part is None or part.name == "ObjectMeta" or f"{_OWN}{part.name}" in schemas:
            continue
        inner = structs().get(part.name)
        fields = {} if inner is None else inner.fields
        properties = {child: _field(fields[child]) for child in sorted(fields)}
        schemas[f"{_OWN}{part.name}"] = {
            "type": "object",
            "description": f"{part.name}. {_NOT_DESCRIBED}",
            "properties": properties,
        }
        _describe(part.name, schemas)


def _paths(kind: Kind) -> dict[str, Any]:
    base = f"/{_path(kind)}/" + ("namespaces/{namespace}/" if kind.namespaced else "") + kind.plural
    content = {"application/json": {"schema": {"$ref": _PREFIX + _schema_name(kind)}}}
    answer = {"200": {"description": "OK", "content": content}}
    write = [_parameter(name) for name in ("dryRun", "fieldManager", "fieldValidation")]

    def operation(
        action: str, *, body: tuple[str, ...] = (), parameters: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "operationId": f"{action}{kind.name}",
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(kind),
            "responses": answer,
        }
        if parameters:
            found["parameters"] = parameters
        if body:
            schema = {"schema": {"$ref": _PREFIX + _schema_name(kind)}}
            found["requestBody"] = {"content": dict.fromkeys(body, schema), "required": True}
        return found

    patches = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
    return {
        base: {
            "get": operation("list"),
            "post": operation("post", body=("application/json",), parameters=write),
        },
        base + "/{name}": {
            "get": operation("get"),
            "put": operation("put", body=("application/json",), parameters=write),
            "patch": operation("patch", body=patches, parameters=[*write, _parameter("force", "boolean")]),
            "delete": operation("delete", parameters=[_parameter("dryRun")]),
        },
    }


def _parameter(name: str, type: str = "string") -> dict[str, Any]:  # noqa: A002 - the word of OpenAPI
    return {"name": name, "in": "query", "schema": {"type": type, "uniqueItems": True}}
