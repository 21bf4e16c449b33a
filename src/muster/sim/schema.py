"""Structural schemas of custom resources: reading, pruning and defaulting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.sim.api_status import Cause, invalid_value, required
from muster.sim.schema_rules import Rule, compile_rules

_TYPES = ("object", "array", "string", "integer", "number", "boolean")
_IGNORED = ("description", "title", "example", "externalDocs", "format", "id")
_KNOWN = frozenset(
    (
        *_IGNORED,
        *("type", "properties", "additionalProperties", "items", "required", "enum", "default", "nullable"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("allOf", "anyOf", "oneOf", "not"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"),
        *(
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "x-kubernetes-validations",
        ),
    )
)
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

    @property
    def has_default(self) -> bool:
        return self.default is not _ABSENT


def read_schema(
    raw: Any, path: str, causes: list[Cause], *, within_value: bool = False, correlatable: bool = True
) -> Schema:
    """Read one node of `openAPIV3Schema`; what is wrong or not supported is added to `causes` under `path`.

    `within_value`: below allOf, anyOf, oneOf or not, where a type is not needed. `correlatable`: whether an old value
    exists for this place, so that rules may use oldSelf.
    """
    if not isinstance(raw, dict):
        causes.append(invalid_value(path, raw, "must be an object"))
        return Schema()
    for name in raw:
        if name not in _KNOWN:
            text = f"the schema field {name!r} is not supported by the simulated API server"
            causes.append(invalid_value(f"{path}.{name}", "", text))
    kind = raw.get("type", "")
    preserve = raw.get("x-kubernetes-preserve-unknown-fields") is True
    int_or_string = raw.get("x-kubernetes-int-or-string") is True
    if kind and kind not in _TYPES:
        causes.append(invalid_value(f"{path}.type", kind, f"must be one of {', '.join(_TYPES)}"))
    if not kind and not within_value and not preserve and not int_or_string:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    list_type = raw.get("x-kubernetes-list-type", "")
    children = _children(raw, path, causes, within_value, correlatable, list_type)
    schema = Schema(
        type=kind,
        nullable=raw.get("nullable") is True,
        int_or_string=int_or_string,
        preserve=preserve,
        embedded=raw.get("x-kubernetes-embedded-resource") is True,
        default=raw.get("default", _ABSENT),
        list_type=list_type,
        map_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        format=raw.get("format", ""),
        pattern=_pattern(raw, path, causes),
        limits={name: raw[name] for name in _LIMITS if name in raw},
        rules=compile_rules(
            raw.get("x-kubernetes-validations"), f"{path}.x-kubernetes-validations", causes, correlatable
        ),
        **children,
    )
    _check_list(schema, path, causes)
    return schema


_LIMITS = (
    *("required", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)


def _children(
    raw: dict[str, Any], path: str, causes: list[Cause], within_value: bool, correlatable: bool, list_type: str
) -> dict[str, Any]:
    def read(part: Any, where: str, *, value: bool = within_value, old: bool = correlatable) -> Schema:
        return read_schema(part, f"{path}.{where}", causes, within_value=value, correlatable=old)

    found: dict[str, Any] = {}
    properties = raw.get("properties") or {}
    if not isinstance(properties, dict):
        causes.append(invalid_value(f"{path}.properties", None, "must be an object"))
        properties = {}
    found["properties"] = {name: read(part, f"properties[{name}]") for name, part in properties.items()}
    extra = raw.get("additionalProperties")
    if extra is not None and properties and not within_value:
        causes.append(
            Cause(
                "FieldValueForbidden",
                "Forbidden: additionalProperties and properties are mutual exclusive",
                f"{path}.additionalProperties",
            )
        )
    if isinstance(extra, dict):
        found["values"] = read(extra, "additionalProperties")
    elif extra is True:
        found["values"] = Schema(preserve=True)
    elif extra is False and not within_value:
        causes.append(
            Cause(
                "FieldValueForbidden",
                "Forbidden: additionalProperties must not be false",
                f"{path}.additionalProperties",
            )
        )
    if "items" in raw:
        found["items"] = read(raw["items"], "items", old=correlatable and list_type == "map")
    elif raw.get("type") == "array" and not within_value:
        causes.append(required(f"{path}.items", "must be specified"))
    for name, attribute in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        found[attribute] = tuple(
            read(part, f"{name}[{at}]", value=True) for at, part in enumerate(raw.get(name) or ())
        )
    if "not" in raw:
        found["negated"] = read(raw["not"], "not", value=True)
    return found


def _pattern(raw: dict[str, Any], path: str, causes: list[Cause]) -> re.Pattern[str] | None:
    text = raw.get("pattern")
    if not text:
        return None
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        causes.append(
            invalid_value(f"{path}.pattern", text, f"must be a valid regular expression, but isn't: {error}")
        )
        return None


def _check_list(schema: Schema, path: str, causes: list[Cause]) -> None:
    if schema.list_type not in ("", "atomic", "set", "map"):
        causes.append(invalid_value(f"{path}.x-kubernetes-list-type", schema.list_type, "must be atomic, set or map"))
    if (schema.list_type == "map") != bool(schema.map_keys):
        causes.append(required(f"{path}.x-kubernetes-list-map-keys", "is needed for, and only for, list type map"))
    if schema.list_type == "map" and schema.items is not None:
        for key in schema.map_keys:
            if key not in schema.items.properties:
                causes.append(invalid_value(f"{path}.x-kubernetes-list-map-keys", key, "must be a property of items"))
            elif (
                key not in (schema.items.limits.get("required") or ())
                and not schema.items.properties[key].has_default
            ):
                causes.append(
                    invalid_value(f"{path}.items.properties[{key}]", key, "must be required or have a default")
                )


def prune(value: Any, schema: Schema, old: Any, path: str, unknown: list[str]) -> Any:
    """`value` without fields that the schema does not know; their paths are added to `unknown`.

    What is shared with `old` (which is pruned already) is taken as it is.
    """
    if value is old or (schema.preserve and not schema.properties):
        return value
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        before = old if isinstance(old, dict) else {}
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is not None:
                kept[name] = prune(part, child, before.get(name), f"{path}.{name}" if path else name, unknown)
            elif schema.preserve or (schema.embedded and name in ("apiVersion", "kind", "metadata")):
                kept[name] = part
            else:
                unknown.append(f"{path}.{name}" if path else name)
        return kept
    if isinstance(value, list) and schema.items is not None:
        return [prune(item, schema.items, None, f"{path}[{at}]", unknown) for at, item in enumerate(value)]
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
            if child is None:
                filled[name] = part
            elif part is not None or child.nullable or (child.preserve and not child.type):
                filled[name] = with_defaults(part, child, before.get(name))
        for name, child in schema.properties.items():
            if child.has_default and name not in filled:
                filled[name] = with_defaults(child.default, child, None)
        return filled
    if isinstance(value, list) and schema.items is not None:
        return [with_defaults(item, schema.items, None) for item in value]
    return value
