"""The first look at an applied configuration: does it fit the schema well enough to be merged field by field?

A real API server answers 500 here, in the words of its merge library; only then come the validation and its 422.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_status import StatusError
from muster.sim.builtin_fields import FieldType, struct_name, structs
from muster.sim.field_sets import item_element, shown_element
from muster.sim.schema import Schema
from muster.sim.shapes import Merge, Shape

Problem = tuple[str, str]
"""Path and what is wrong there."""


def check_config(kind: Kind, config: Object) -> None:
    """Raise StatusError 500 when `config` cannot be read as an object of `kind`."""
    problems: list[Problem] = []
    if kind.custom is None:
        struct = FieldType("struct", struct_name(kind.group, kind.name), "")
        _check_builtin(_body(config), struct, kind.shape, "", problems)
    else:
        metadata = FieldType("struct", "ObjectMeta", "")
        _check_builtin(config.get("metadata"), metadata, kind.shape.child("metadata"), ".metadata", problems)
        body = {name: value for name, value in _body(config).items() if name != "metadata"}
        _check_object(body, kind.custom.schema, kind.shape, "", problems)
    if problems:
        raise _refusal(kind, config, problems)


def _body(config: Object) -> Object:
    return {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}


_UNKNOWN = "field not declared in schema"


def _refusal(kind: Kind, config: Object, problems: list[Problem]) -> StatusError:
    metadata = config.get("metadata") if isinstance(config.get("metadata"), dict) else {}
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}" if metadata else "/"
    group = kind.group
    texts = [f"{path}: {what}" for path, what in problems]
    listed = texts[0] if len(texts) == 1 else "\n  ".join(["errors:", *texts])
    subject = f"{name}; {group}/{kind.resource.version}, Kind={kind.name}"
    return StatusError(500, "", f"failed to create typed patch object ({subject}): {listed}")


def _check_builtin(value: Any, type_: FieldType, shape: Shape, path: str, problems: list[Problem]) -> None:
    if value is None:
        return
    match type_.form:
        case "struct" | "map":
            if not isinstance(value, dict):
                problems.append((path, f"expected map, got {_go(value)}"))
                return
            fields = structs()[type_.name].fields if type_.form == "struct" else {}
            for name, part in value.items():
                below = type_.element if type_.form == "map" else fields[name].type if name in fields else None
                if below is None:
                    problems.append((f"{path}.{name}", _UNKNOWN))
                else:
                    _check_builtin(part, below, shape.child(name), f"{path}.{name}", problems)
        case "list":
            _check_builtin_list(value, type_, shape, path, problems)
        case _:
            _check_scalar(value, _SCALARS.get(type_.name, ""), path, problems)


_SCALARS = {
    **dict.fromkeys(("string", "time", "microtime", "bytes"), "string"),
    **dict.fromkeys(("int32", "int64", "int", "float64"), "number"),
    "bool": "boolean",
}
"""Scalars of the built-in table as the merge library knows them; others are of any scalar type."""


def _check_builtin_list(value: Any, type_: FieldType, shape: Shape, path: str, problems: list[Problem]) -> None:
    element = type_.element
    if not isinstance(value, list):
        problems.append((path, f"expected list, got {_go(value)}"))
    elif element is not None:
        of_items = shape.items or Shape()
        _visit(
            value, shape, path, problems, lambda item, where: _check_builtin(item, element, of_items, where, problems)
        )


def _check(value: Any, schema: Schema, shape: Shape, path: str, problems: list[Problem]) -> None:
    if value is None:
        return
    if schema.int_or_string or not schema.type:
        return
    if schema.type == "object":
        _check_object(value, schema, shape, path, problems)
    elif schema.type == "array":
        _check_list(value, schema, shape, path, problems)
    else:
        _check_scalar(value, schema.type, path, problems)


_PLAIN: Mapping[str, type] = {"string": str, "boolean": bool, "integer": int, "number": float}
"""Nearly all values are of the one type that decoding makes of their schema's type: no need to look further."""


def _check_object(value: Any, schema: Schema, shape: Shape, path: str, problems: list[Problem]) -> None:
    if not isinstance(value, dict):
        if not schema.preserve:
            problems.append((path, f"expected map, got {_go(value)}"))
        return
    for name, part in value.items():
        child = schema.properties.get(name) or schema.values
        if child is not None:
            if type(part) is _PLAIN.get(child.type):
                continue
            _check(part, child, shape.child(name), f"{path}.{name}", problems)
        elif not (schema.preserve or (schema.embedded and name in ("apiVersion", "kind", "metadata"))):
            problems.append((f"{path}.{name}", _UNKNOWN))


def _check_list(value: Any, schema: Schema, shape: Shape, path: str, problems: list[Problem]) -> None:
    if not isinstance(value, list):
        problems.append((path, f"expected list, got {_go(value)}"))
        return
    items = schema.items
    if items is None:
        return
    of_items = shape.items or Shape()

    def check(item: Any, where: str) -> None:
        _check(item, items, of_items, where, problems)

    _visit(value, shape, path, problems, check)


def _visit(
    value: list[Any], shape: Shape, path: str, problems: list[Problem], check: Callable[[Any, str], None]
) -> None:
    seen: dict[str, None] = {}
    keyed = shape.merge in (Merge.KEYED, Merge.SET)
    for at, item in enumerate(value):
        if not keyed:
            check(item, f"{path}[{at}]")
            continue
        try:
            element = item_element(item, shape)
        except ValueError as error:
            problems.append((path, f"element {at}: {error}"))
            return
        if element in seen:
            problems.append((path, f"duplicate entries for key {shown_element(element)}"))
        seen[element] = None
        check(item, path + shown_element(element))


def _check_scalar(value: Any, wanted: str, path: str, problems: list[Problem]) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        return
    match wanted:
        case "string":
            if not isinstance(value, str):
                problems.append((path, f"expected string, got &value.valueUnstructured{{Value:{_go_inner(value)}}}"))
        case "boolean":
            if not isinstance(value, bool):
                problems.append((path, f"expected boolean, got {_go(value)}"))
        case "":
            pass
        case _:
            if not number:
                problems.append((path, f"expected numeric (int or float), got {_go_type(value)}"))


def _go(value: Any) -> str:
    return "&{" + _go_inner(value) + "}"


def _go_inner(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{_go_inner(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_inner(item) for item in value) + "]"
    return value if isinstance(value, str) else "<nil>" if value is None else json.dumps(value)


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "bool" if isinstance(value, bool) else "string"
