"""How the parts of an object merge: which maps are granular, which lists are keyed, sets or atomic.

Server-side apply, managed fields and strategic merge patch read the same description. For built-in kinds it is
derived from the table of `builtin_fields`, for custom resources from the schema's `x-kubernetes-list-type` and its
relatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any

from muster.sim.builtin_fields import BuiltinField, FieldType, structs


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

    `keys` identify an item for server-side apply, `key_defaults` stand in for a key that an item leaves out. A
    strategic merge patch merges a list only with `patch_merges`, by `patch_key` ("" for a list of scalars), and
    replaces an object with `patch_replaces`. `items` is the shape of list items and of the values of a map.
    """

    merge: Merge = Merge.STRUCT
    fields: Mapping[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    patch_key: str = ""
    patch_merges: bool = False
    patch_replaces: bool = False

    def child(self, name: str) -> Shape:
        """Shape of a field or of a map's value; unknown fields are structs, or atomic when they hold a list."""
        found = self.fields.get(name)
        if found is not None:
            return found
        return self.items or UNKNOWN

    @staticmethod
    def builtin(kind: str) -> Shape:
        """Shape of a type in the table of built-in fields, such as a kind."""
        return _of_struct(kind)

    @staticmethod
    def of_schema(schema: Mapping[str, Any]) -> Shape:
        """Shape of a custom resource from its structural schema."""
        root = _of_schema(schema)
        fields = {**root.fields, "metadata": _of_struct("ObjectMeta")}
        return Shape(Merge.STRUCT, fields=fields)


UNKNOWN = Shape()
_ATOMIC = Shape(Merge.ATOMIC)


@cache
def _of_struct(name: str) -> Shape:
    """The shape of a type in the table of built-in fields."""
    struct = structs()[name]
    fields = {field.name: _of_field(field) for field in struct.fields.values()}
    return Shape(Merge.ATOMIC if struct.atomic else Merge.STRUCT, fields)


def _of_field(field: BuiltinField) -> Shape:
    if field.name == "managedFields":
        return _ATOMIC
    if "replace" in field.flags:
        return replace(_of_type(field.type), patch_replaces=True)
    if field.type.form == "list":
        return _of_builtin_list(field)
    if "atomic" in field.flags:
        return Shape(Merge.ATOMIC, items=UNKNOWN)
    if field.type.form == "map":
        element = field.type.element
        return Shape(Merge.MAP, items=_of_type(element) if element is not None else UNKNOWN)
    return _of_type(field.type)


def _of_type(kind: FieldType) -> Shape:
    if kind.form == "list":
        return _ATOMIC
    # A schema holds schemas, without end: its parts are taken as they come.
    return _of_struct(kind.name) if kind.form == "struct" and kind.name != "JSONSchemaProps" else UNKNOWN


def _of_builtin_list(field: BuiltinField) -> Shape:
    element = field.type.element
    items = UNKNOWN if element is None else _of_type(element)
    merges = "merge" in field.flags
    patch_key = field.flags.get("merge", "")
    if "map" in field.flags:
        keys = tuple(field.flags["map"].split(","))
        return Shape(Merge.KEYED, {}, items, keys, _key_defaults(keys), patch_key, merges)
    if "set" in field.flags:
        return Shape(Merge.SET, {}, items, (), {}, patch_key, merges)
    return Shape(Merge.ATOMIC, {}, items, (), {}, patch_key, merges)


def _key_defaults(keys: tuple[str, ...]) -> Mapping[str, Any]:
    """What a key is that an item leaves out."""
    known = {"protocol": "TCP", "containerPort": 0, "port": 0}
    return {key: known.get(key, "") for key in keys}


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
