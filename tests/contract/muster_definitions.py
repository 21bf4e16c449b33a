"""Muster's own definitions in the contract tests: where their bounds are, and values just outside of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as types

from muster.kube.api import (
    BASELINES,
    CERTIFICATIONS,
    FAULT_POLICIES,
    MAINTENANCES,
    NODE_HEALTHS,
    REPAIRS,
    ResourceType,
)
from muster.resources import crd
from muster.resources.crd_tables import KINDS
from tests.resources.test_crd import SAMPLES, sample

RESOURCES: tuple[ResourceType, ...] = (
    NODE_HEALTHS,
    CERTIFICATIONS,
    REPAIRS,
    MAINTENANCES,
    FAULT_POLICIES,
    BASELINES,
)
Step = str | int
_WRONG = {"string": 5, "integer": "x", "number": "x", "boolean": "x", "object": "x", "array": "x"}


@dataclass(frozen=True)
class Breach:
    """One way to break a definition: `part` (spec or status) with a wrong value, and where that will be noticed."""

    kind: str
    what: str
    part: str
    value: Any
    field: str


def path_of(res: ResourceType) -> str:
    return f"/apis/{res.group}/{res.version}/{res.plural}"


@cache
def schema_of(kind: str) -> dict[str, Any]:
    for info, manifest in zip(KINDS, crd.manifests(), strict=True):
        if info.kind == kind:
            found: dict[str, Any] = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return found
    raise KeyError(kind)


def full_object(kind: str) -> dict[str, Any]:
    """An object with every field of the model set."""
    info = next(info for info in KINDS if info.kind == kind)
    found: dict[str, Any] = _full(types.type_info(info.model))
    return found


def _full_of(model: type, field: types.Field) -> Any:
    key = (model, field.name)
    return msgspec.to_builtins(SAMPLES[key]) if key in SAMPLES else _full(field.type)


def _full(kind: types.Type) -> Any:
    match kind:
        case types.UnionType():
            return _full(next(option for option in kind.types if not isinstance(option, types.NoneType)))
        case types.StructType():
            return {field.encode_name: _full_of(kind.cls, field) for field in kind.fields}
        case types.VarTupleType():
            return [_full(kind.item_type)]
        case types.DictType():
            return {"key": _full(kind.value_type)}
        case _:
            return msgspec.to_builtins(sample(kind))


def breaches(kind: str) -> Iterator[Breach]:
    """Every bound of a kind, broken once."""
    whole = full_object(kind)
    schema = schema_of(kind)
    for part in ("spec", "status"):
        for steps, node in _nodes(schema["properties"][part], whole[part], ()):
            for what, wrong, below in _violations(node, _at(whole[part], steps)):
                value = _replaced(whole[part], steps, wrong)
                yield Breach(kind, f"{_shown(part, steps)} {what}", part, value, _shown(part, (*steps, *below)))


def _nodes(
    schema: dict[str, Any], value: Any, steps: tuple[Step, ...]
) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
    yield steps, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _nodes(inner, value[name], (*steps, name))
    if isinstance(schema.get("items"), dict):
        yield from _nodes(schema["items"], value[0], (*steps, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        (name, inner_value), *_ = value.items()
        yield from _nodes(schema["additionalProperties"], inner_value, (*steps, name))


def _violations(schema: dict[str, Any], value: Any) -> Iterator[tuple[str, Any, tuple[Step, ...]]]:
    """(what is broken, a value that breaks it, where below it is noticed)."""
    kind = schema["type"]
    yield f"is no {kind}", _WRONG[kind], ()
    if "enum" in schema:
        yield "is not in the enum", "no-such-word", ()
    if kind == "string":
        yield from _text_violations(schema)
    if kind in ("integer", "number"):
        yield from _number_violations(schema)
    if kind == "array":
        yield from _list_violations(schema, value)
    for name in schema.get("required", ()):
        yield f"lacks {name}", {key: part for key, part in value.items() if key != name}, (name,)
    if "maxProperties" in schema:
        (part, *_) = value.values()
        yield "has too many keys", {f"k{number}": part for number in range(schema["maxProperties"] + 1)}, ()


def _text_violations(schema: dict[str, Any]) -> Iterator[tuple[str, Any, tuple[Step, ...]]]:
    if "maxLength" in schema:
        yield "is too long", "1" * (schema["maxLength"] + 1), ()
    if schema.get("minLength"):
        yield "is empty", "", ()
    if "pattern" in schema:
        yield "does not match", "abc", ()
    if schema.get("format") == "date-time":
        yield "is no time", "yesterday", ()


def _number_violations(schema: dict[str, Any]) -> Iterator[tuple[str, Any, tuple[Step, ...]]]:
    if "minimum" in schema:
        exclusive = schema.get("exclusiveMinimum") is True
        yield "is too small", schema["minimum"] - (0 if exclusive else 1), ()
    if "maximum" in schema:
        yield "is too large", schema["maximum"] + 1, ()


def _list_violations(schema: dict[str, Any], value: list[Any]) -> Iterator[tuple[str, Any, tuple[Step, ...]]]:
    item = _least(schema["items"], value[0])
    kind = schema.get("x-kubernetes-list-type")
    many = [f"n{number}" if isinstance(item, str) else item for number in range(schema["maxItems"] + 1)]
    yield "has too many items", many, ()
    if schema.get("minItems"):
        yield "has no items", [], ()
    if kind in ("set", "map"):
        yield "has an item twice", [value[0], value[0]], (1,)


def _least(schema: dict[str, Any], value: Any) -> Any:
    """The value with required fields only, so that thousands of it still fit into a request."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    return {name: _least(schema["properties"][name], value[name]) for name in schema.get("required", ())}


def _at(value: Any, steps: tuple[Step, ...]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _replaced(value: Any, steps: tuple[Step, ...], new: Any) -> Any:
    if not steps:
        return new
    copied = copy.copy(value)
    copied[steps[0]] = _replaced(copied[steps[0]], steps[1:], new)
    return copied


def _shown(part: str, steps: tuple[Step, ...]) -> str:
    return part + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
