"""Reading `openAPIV3Schema` into a `Schema`, and what makes one not structural."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from muster.sim.api_status import Cause, forbidden_field, invalid_value, required, unsupported_value
from muster.sim.schema import Schema, prune
from muster.sim.schema_formats import NOT_IMPLEMENTED
from muster.sim.schema_rules import compile_rules
from muster.sim.schema_validation import validate

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("string", "integer", "number", "boolean")
_LIMITS = (
    *("required", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
    *("maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
_FORBIDDEN = ("$ref", "definitions", "dependencies", "patternProperties", "id", "additionalItems", "$schema")
"""Keywords of JSON Schema that Kubernetes refuses."""
_NOT_IN_JUNCTORS = ("type", "description", "title", "default", "additionalProperties", "nullable", "example")
_KNOWN = frozenset(
    (
        *("description", "title", "example", "externalDocs", "format", "type", "properties", "items", "default"),
        *("additionalProperties", "nullable", "pattern", "allOf", "anyOf", "oneOf", "not", *_LIMITS, *_FORBIDDEN),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
        "x-kubernetes-validations",
    )
)
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
"""What an int-or-string may say of itself below anyOf, the one place there where a type may stand."""
_PRESERVE, _EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"


_KEPT_SCHEMAS = 128
"""A cluster reads the schema of each definition three times, and a simulation starts many clusters with the same."""


def read_root(raw: Any, path: str, causes: list[Cause]) -> Schema:
    """Read the schema of an object. What is wrong, or not supported here, is added to `causes` under `path`."""
    schema, found = _read_text(msgspec.json.encode(raw), path)
    causes += found
    return schema


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _read_text(text: bytes, path: str) -> tuple[Schema, tuple[Cause, ...]]:
    """`read_root` of a schema as JSON: what it returns is shared, so it holds nothing that a caller may change."""
    raw, causes = msgspec.json.decode(text), list[Cause]()
    if isinstance(raw, dict):
        _check_root(raw, path, causes)
    return read_schema(raw, path, causes, root=True), tuple(causes)


def _check_root(raw: dict[str, Any], path: str, causes: list[Cause]) -> None:
    kind = raw.get("type", "")
    if not kind:
        causes.append(required(f"{path}.type", "must not be empty at the root"))
    elif kind != "object":
        causes.append(invalid_value(f"{path}.type", kind, "must be object at the root"))
    if raw.get("nullable"):
        causes.append(forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    if raw.get("additionalProperties") is not None:
        causes.append(forbidden_field(f"{path}.additionalProperties", "must not be used at the root"))
    properties = raw.get("properties") or {}
    for name in ("apiVersion", "kind"):
        kind = (properties.get(name) or {}).get("type", "string")
        if kind != "string":
            causes.append(invalid_value(f"{path}.properties[{name}].type", kind, "must be string"))
    metadata = properties.get("metadata") or {}
    where = f"{path}.properties[metadata]"
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        causes.append(forbidden_field(where, why))
    if "default" in metadata:
        causes.append(forbidden_field(f"{where}.default", "must not be set in top-level metadata"))


def read_schema(
    raw: Any,
    path: str,
    causes: list[Cause],
    *,
    within_value: bool = False,
    lost_at: str = "",
    root: bool = False,
) -> Schema:
    """Read one node. `within_value`: below allOf, anyOf, oneOf or not, where a type is forbidden instead of needed.

    `lost_at`: the list from which on no old value can be found, so that rules may not use oldSelf.
    """
    if not isinstance(raw, dict):
        causes.append(invalid_value(path, raw, "must be an object"))
        return Schema()
    _check_keywords(raw, path, causes, within_value=within_value)
    if not within_value and not root:
        _check_type(raw, path, causes)
    schema = Schema(
        type=raw.get("type", ""),
        nullable=raw.get("nullable") is True,
        int_or_string=raw.get("x-kubernetes-int-or-string") is True,
        preserve=raw.get(_PRESERVE) is True,
        embedded=raw.get(_EMBEDDED) is True,
        list_type=raw.get("x-kubernetes-list-type", ""),
        map_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        format=raw.get("format", ""),
        pattern=_pattern(raw, path, causes),
        limits={name: raw[name] for name in _LIMITS if name in raw},
        **_children(raw, path, causes, within_value=within_value, lost_at=lost_at),
    )
    _check_lists(raw, path, causes)
    if "default" in raw and raw["default"] is not None and not within_value:
        schema = replace(schema, default=raw["default"])
        _check_default(schema, f"{path}.default", causes)
    elif "default" in raw and not within_value:
        schema = replace(schema, default=None)
    rules = compile_rules(
        raw.get("x-kubernetes-validations"),
        schema,
        f"{path}.x-kubernetes-validations",
        causes,
        lost_at=lost_at,
        root=root,
    )
    return replace(schema, rules=rules) if rules else schema


def _check_keywords(raw: dict[str, Any], path: str, causes: list[Cause], *, within_value: bool) -> None:
    for name, value in raw.items():
        where = f"{path}.{name}"
        if name not in _KNOWN:
            text = f"the schema field {name!r} is not supported by the simulated API server"
            causes.append(invalid_value(where, "", text))
        elif name in _FORBIDDEN:
            causes.append(forbidden_field(where, f"{name} is not supported"))
        elif name == "uniqueItems" and value is True:
            why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            causes.append(forbidden_field(where, why))
        elif within_value and name in _NOT_IN_JUNCTORS and value not in ("", None, False):
            be = "undefined" if name in ("default", "additionalProperties") else "empty"
            causes.append(forbidden_field(where, f"must be {be} to be structural"))
        elif name == "format" and value in NOT_IMPLEMENTED:
            text = f"the simulated API server does not check the format {value!r}"
            causes.append(invalid_value(where, value, text))


def _check_type(raw: dict[str, Any], path: str, causes: list[Cause]) -> None:
    kind = raw.get("type", "")
    int_or_string, embedded = raw.get("x-kubernetes-int-or-string") is True, raw.get(_EMBEDDED) is True
    if kind and kind not in _TYPES:
        listed = list(_TYPES)
        causes.append(unsupported_value(f"{path}.type", kind, listed))
    if kind == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        causes.append(forbidden_field(f"{path}.type", why))
    if not kind and "$ref" not in raw and not int_or_string and raw.get(_PRESERVE) is not True:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if raw.get(_PRESERVE) is False:
        causes.append(invalid_value(f"{path}.{_PRESERVE}", False, "must be true or undefined"))
    if embedded and kind != "object":
        causes.append(invalid_value(f"{path}.type", kind, f"must be object if {_EMBEDDED} is true"))
    if embedded and not raw.get("properties") and raw.get(_PRESERVE) is not True:
        why = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        causes.append(required(f"{path}.properties", why))


def _children(
    raw: dict[str, Any], path: str, causes: list[Cause], *, within_value: bool, lost_at: str
) -> dict[str, Any]:
    def read(part: Any, where: str, *, value: bool = within_value, lost: str = lost_at) -> Schema:
        return read_schema(part, f"{path}.{where}", causes, within_value=value, lost_at=lost)

    found: dict[str, Any] = {}
    properties = raw.get("properties") or {}
    found["properties"] = {name: read(part, f"properties[{name}]") for name, part in properties.items()}
    extra = raw.get("additionalProperties")
    if extra is not None and properties and not within_value:
        why = "additionalProperties and properties are mutual exclusive"
        causes.append(forbidden_field(f"{path}.additionalProperties", why))
    if isinstance(extra, dict):
        found["values"] = read(extra, "additionalProperties")
    elif extra is True:
        found["values"] = Schema()
    keyed = raw.get("x-kubernetes-list-type") == "map"
    if isinstance(raw.get("items"), list):
        why = "items must be a schema object and not an array"
        causes.append(forbidden_field(f"{path}.items", why))
    elif "items" in raw:
        found["items"] = read(raw["items"], "items", lost=lost_at or ("" if keyed else path))
    elif raw.get("type") == "array" and not within_value:
        causes.append(required(f"{path}.items", "must be specified"))
    for name, attribute in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        parts = raw.get(name) or ()
        if name == "anyOf" and raw.get("x-kubernetes-int-or-string") and list(parts) == _INT_OR_STRING:
            continue
        found[attribute] = tuple(read(part, f"{name}[{at}]", value=True) for at, part in enumerate(parts))
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
        why = f"must be a valid regular expression, but isn't: {_go_regexp_error(text, str(error))}"
        causes.append(invalid_value(f"{path}.pattern", text, why))
        return None


def _go_regexp_error(text: str, error: str) -> str:
    if "missing )" in error:
        return f"error parsing regexp: missing closing ): `{text}`"
    return f"error parsing regexp: {error}: `{text}`"


def _check_lists(raw: dict[str, Any], path: str, causes: list[Cause]) -> None:
    kind = raw.get("type", "")
    list_type, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys") or []
    items = raw["items"] if isinstance(raw.get("items"), dict) else {}
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        causes.append(unsupported_value(f"{path}.x-kubernetes-list-type", list_type, ["atomic", "set", "map"]))
    if list_type is not None and kind != "array":
        why = "must be array if x-kubernetes-list-type is specified"
        causes.append(invalid_value(f"{path}.type", kind, why))
    map_type = raw.get("x-kubernetes-map-type")
    if map_type is not None and map_type not in ("atomic", "granular"):
        causes.append(unsupported_value(f"{path}.x-kubernetes-map-type", map_type, ["atomic", "granular"]))
    if map_type is not None and kind != "object":
        why = "must be object if x-kubernetes-map-type is specified"
        causes.append(invalid_value(f"{path}.type", kind, why))
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        causes.append(required(f"{path}.x-kubernetes-list-type", why))
    if list_type == "set" and items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        where = f"{path}.items.x-kubernetes-map-type"
        why = "must be atomic as item of a list with x-kubernetes-list-type=set"
        causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {why}", where))
    if list_type == "map":
        causes += _keyed_causes(items, keys, path)


def _keyed_causes(items: dict[str, Any], keys: list[Any], path: str) -> Iterator[Cause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(where, "must not be empty if x-kubernetes-list-type is map")
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid_value(f"{path}.items.type", items.get("type", ""), why)
        return
    if len(set(keys)) != len(keys):
        yield invalid_value(where, keys, "must not contain duplicate entries")
    properties = items.get("properties") or {}
    if any(key not in properties for key in keys):
        yield invalid_value(where, keys, "entries must all be names of item properties")
    for key in dict.fromkeys(key for key in keys if key in properties):
        kind = properties[key].get("type", "")
        if kind not in _SCALARS:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", kind, why)
        if key not in (items.get("required") or ()) and "default" not in properties[key]:
            why = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield required(f"{path}.items.properties[{key}].default", why)


def _check_default(schema: Schema, path: str, causes: list[Cause]) -> None:
    unknown: list[str] = []
    prune(schema.default, schema, None, "", unknown)
    if unknown:
        causes.append(invalid_value(path, schema.default, "must not have unknown fields"))
        return
    wrong: list[Cause] = []
    validate(schema.default, schema, None, "", wrong)
    causes += [Cause(cause.reason, cause.message, f"{path}.{cause.field}".removesuffix(".")) for cause in wrong]
