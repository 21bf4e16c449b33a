"""How the parts of an object merge: which maps are granular, which lists are keyed, sets or atomic.

Server-side apply, managed fields and strategic merge patch read the same description. For built-in kinds it is a
table (source: the list types and patch merge keys in the published Kubernetes API reference); for custom resources it
is derived from the schema's `x-kubernetes-list-type` and its relatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Merge(Enum):
    """STRUCT: named fields. MAP: granular map of free keys. ATOMIC: replaced whole. KEYED: list of objects with keys.
    SET: list of scalars without duplicates."""

    STRUCT = "struct"
    MAP = "map"
    ATOMIC = "atomic"
    KEYED = "keyed"
    SET = "set"


@dataclass(frozen=True)
class Shape:
    """The shape of one value.

    `keys` identify an item for server-side apply, `patch_key` for a strategic merge patch ("" where the list is
    replaced). `key_defaults` stand in for a key that an item leaves out. `items` is the shape of list items and of
    the values of a map.
    """

    merge: Merge = Merge.STRUCT
    fields: Mapping[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    patch_key: str = ""
    patch_merges: bool = False

    def child(self, name: str) -> Shape:
        """Shape of a field or of a map's value; unknown fields are structs, or atomic when they hold a list."""
        found = self.fields.get(name)
        if found is not None:
            return found
        return self.items or UNKNOWN

    @staticmethod
    def builtin(kind: str) -> Shape:
        """Shape of a built-in kind."""
        return _BUILTIN.get(kind, _object())

    @staticmethod
    def of_schema(schema: Mapping[str, Any]) -> Shape:
        """Shape of a custom resource from its structural schema."""
        root = _of_schema(schema)
        fields = {**root.fields, "metadata": _METADATA}
        return Shape(Merge.STRUCT, fields=fields)


UNKNOWN = Shape()
_ATOMIC = Shape(Merge.ATOMIC)
_MAP = Shape(Merge.MAP, items=UNKNOWN)
_ATOMIC_MAP = _ATOMIC


def _keyed(*keys: str, patch: str | None = "", item: Mapping[str, Shape] | None = None, **defaults: Any) -> Shape:
    """A keyed list. `patch`: "" means the first key; None means a strategic merge patch replaces the list."""
    patch_key = "" if patch is None else (patch or keys[0])
    return Shape(
        Merge.KEYED,
        items=Shape(fields=item or {}),
        keys=keys,
        key_defaults=defaults,
        patch_key=patch_key,
        patch_merges=bool(patch_key),
    )


def _patch_only(key: str) -> Shape:
    """Merged by key in a strategic merge patch, atomic for server-side apply."""
    return Shape(Merge.ATOMIC, items=UNKNOWN, patch_key=key, patch_merges=True)


def _object(**fields: Shape) -> Shape:
    return Shape(fields={"metadata": _METADATA, **fields})


_SET = Shape(Merge.SET, patch_merges=True)
_METADATA = Shape(
    fields={
        "labels": _MAP,
        "annotations": _MAP,
        "finalizers": _SET,
        "ownerReferences": _keyed("uid"),
        "managedFields": _ATOMIC,
    }
)
_CONDITIONS = _keyed("type")
_RESOURCES = Shape(fields={"limits": _MAP, "requests": _MAP, "claims": _keyed("name", patch=None)})
_CONTAINER = {
    "ports": _keyed("containerPort", "protocol", protocol="TCP"),
    "env": _keyed("name"),
    "volumeMounts": _keyed("mountPath"),
    "volumeDevices": _keyed("devicePath"),
    "resources": _RESOURCES,
}
_POD_SPEC = Shape(
    fields={
        "containers": _keyed("name", item=_CONTAINER),
        "initContainers": _keyed("name", item=_CONTAINER),
        "ephemeralContainers": _keyed("name", item=_CONTAINER),
        "volumes": _keyed("name"),
        "imagePullSecrets": _keyed("name"),
        "hostAliases": _keyed("ip"),
        "topologySpreadConstraints": _keyed("topologyKey", "whenUnsatisfiable"),
        "schedulingGates": _keyed("name"),
        "resourceClaims": _keyed("name"),
        "nodeSelector": _ATOMIC_MAP,
        "overhead": _MAP,
    }
)
_TEMPLATE = Shape(fields={"metadata": _METADATA, "spec": _POD_SPEC})
_WORKLOAD = _object(
    spec=Shape(fields={"template": _TEMPLATE, "selector": _ATOMIC_MAP}),
    status=Shape(fields={"conditions": _CONDITIONS}),
)
_JOB = _object(
    spec=Shape(fields={"template": _TEMPLATE, "selector": _ATOMIC_MAP}),
    status=Shape(fields={"conditions": _patch_only("type")}),
)
_BUILTIN: dict[str, Shape] = {
    "Pod": _object(
        spec=_POD_SPEC,
        status=Shape(
            fields={
                "conditions": _CONDITIONS,
                "podIPs": _keyed("ip"),
                "hostIPs": _patch_only("ip"),
                "resourceClaimStatuses": _keyed("name"),
            }
        ),
    ),
    "Node": _object(
        spec=Shape(fields={"podCIDRs": _SET}),
        status=Shape(
            fields={
                "conditions": _CONDITIONS,
                "addresses": _keyed("type"),
                "capacity": _MAP,
                "allocatable": _MAP,
            }
        ),
    ),
    "Namespace": _object(status=Shape(fields={"conditions": _CONDITIONS})),
    "ConfigMap": _object(data=_MAP, binaryData=_MAP),
    "Secret": _object(data=_MAP, stringData=_MAP),
    "Service": _object(
        spec=Shape(fields={"ports": _keyed("port", "protocol", protocol="TCP"), "selector": _ATOMIC_MAP}),
        status=Shape(fields={"conditions": _CONDITIONS}),
    ),
    "ServiceAccount": _object(secrets=_keyed("name")),
    "PodDisruptionBudget": _object(
        spec=Shape(fields={"selector": _ATOMIC_MAP}),
        status=Shape(fields={"conditions": _CONDITIONS, "disruptedPods": _MAP}),
    ),
    "Deployment": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "Job": _JOB,
    "CustomResourceDefinition": _object(
        status=Shape(fields={"conditions": _keyed("type", patch=None)}),
    ),
    "ValidatingAdmissionPolicy": _object(
        status=Shape(fields={"conditions": _keyed("type", patch=None)}),
    ),
}


def _of_schema(schema: Mapping[str, Any]) -> Shape:
    kind = schema.get("type")
    if kind == "array":
        return _of_list(schema)
    if kind == "object":
        if schema.get("x-kubernetes-map-type") == "atomic":
            return _ATOMIC
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            return Shape(Merge.MAP, items=_of_schema(extra))
        if extra is True or schema.get("x-kubernetes-preserve-unknown-fields"):
            known = {name: _of_schema(part) for name, part in (schema.get("properties") or {}).items()}
            return Shape(Merge.MAP, fields=known, items=UNKNOWN)
        return Shape(fields={name: _of_schema(part) for name, part in (schema.get("properties") or {}).items()})
    return UNKNOWN


def _of_list(schema: Mapping[str, Any]) -> Shape:
    items = schema.get("items") or {}
    match schema.get("x-kubernetes-list-type"):
        case "map":
            properties = items.get("properties") or {}
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            defaults = {key: properties[key]["default"] for key in keys if "default" in properties.get(key, {})}
            return Shape(Merge.KEYED, items=_of_schema(items), keys=keys, key_defaults=defaults)
        case "set":
            return Shape(Merge.SET)
        case _:
            return _ATOMIC
