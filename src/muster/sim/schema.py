"""Structural schemas of custom resources: what a schema is, pruning and defaulting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from muster.sim.builtin_fields import structs
from muster.sim.schema_rules import Rule

_METADATA = frozenset(structs()["ObjectMeta"].fields)
_ABSENT: Any = object()


@dataclass(frozen=True)
class Schema:
    """One node of a structural schema. `type` "" means any (int-or-string, or unknown fields are preserved)."""

    type: str = ""
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False
    embedded: bool = False
    properties: Mapping[str, Schema] = field(default_factory=dict)
    values: Schema | None = None
    items: Schema | None = None
    default: Any = _ABSENT
    list_type: str = ""
    map_keys: tuple[str, ...] = ()
    format: str = ""
    pattern: re.Pattern[str] | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    negated: Schema | None = None

    @cached_property
    def joined(self) -> bool:
        """Whether other schemas have a say about the same value: allOf, anyOf, oneOf, not."""
        return bool(self.all_of or self.any_of or self.one_of or self.negated is not None)

    @property
    def has_default(self) -> bool:
        return self.default is not _ABSENT


def prune(value: Any, schema: Schema, old: Any, path: str, unknown: list[str]) -> Any:
    """`value` without fields that the schema does not know; their paths are added to `unknown`.

    What is shared with `old` (which is pruned already) is taken as it is.
    """
    if value is old or (schema.preserve and not schema.properties and not schema.embedded):
        return value
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        before = old if isinstance(old, dict) else {}
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is not None and not isinstance(part, dict | list):
                kept[name] = part
            elif child is not None:
                kept[name] = prune(part, child, before.get(name), f"{path}.{name}" if path else name, unknown)
            elif schema.embedded and name == "metadata" and isinstance(part, dict):
                unknown += [f"{path}.metadata.{field}" for field in part if field not in _METADATA]
                kept[name] = {field: inner for field, inner in part.items() if field in _METADATA}
            elif schema.preserve or (schema.embedded and name in ("apiVersion", "kind")):
                kept[name] = part
            else:
                unknown.append(f"{path}.{name}" if path else name)
        return kept
    if isinstance(value, list) and schema.items is not None:
        items, known = schema.items, _in_place(old, value)
        return [
            prune(item, items, before, f"{path}[{at}]", unknown)
            for at, (item, before) in enumerate(zip(value, known, strict=True))
        ]
    return value


def with_defaults(value: Any, schema: Schema, old: Any) -> Any:
    """`value` with the schema's defaults, and without nulls where null is not allowed."""
    if value is old:
        return value
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        filled: dict[str, Any] = {}
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is None or isinstance(part, str):
                filled[name] = part
            elif part is not None or child.nullable:
                filled[name] = with_defaults(part, child, before.get(name))
            elif child.has_default and name not in schema.properties:
                filled[name] = with_defaults(child.default, child, None)
        for name, child in schema.properties.items():
            if child.has_default and name not in filled:
                filled[name] = with_defaults(child.default, child, None)
        return filled
    if isinstance(value, list) and schema.items is not None:
        items, known = schema.items, _in_place(old, value)
        return [_item_with_defaults(item, items, before) for item, before in zip(value, known, strict=True)]
    return value


def _item_with_defaults(item: Any, schema: Schema, old: Any) -> Any:
    replaced = item is None and not schema.nullable and schema.has_default
    return with_defaults(schema.default if replaced else item, schema, old)


def _in_place(old: Any, value: list[Any]) -> list[Any]:
    """For each item of `value` the one that stands at its place in `old`, None where there is none.

    Enough for the usual append and change in place; an item that moved is read again.
    """
    known = old if isinstance(old, list) else []
    return [*known[: len(value)], *[None] * (len(value) - len(known))]
