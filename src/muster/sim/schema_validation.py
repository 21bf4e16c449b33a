"""Validation of custom resources against their structural schemas."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from muster.sim.api_status import Cause, invalid_value, required, shown, unsupported_value
from muster.sim.patch_json import same_json
from muster.sim.schema import Schema
from muster.sim.schema_rules import evaluate, to_cel

_MAX_CAUSES = 100
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_DURATION = re.compile(r"([+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|0")
_ABSENT: Any = object()


def validate(value: Any, schema: Schema, old: Any, path: str, causes: list[Cause]) -> None:
    """Add what is wrong with `value` to `causes`. Parts equal to `old` were accepted before and are let through."""
    if value is old or len(causes) >= _MAX_CAUSES:
        return
    if old is not None and old is not _ABSENT and type(old) is type(value) and old == value:
        return
    if value is None:
        if not schema.nullable and (schema.type or schema.int_or_string):
            causes.append(_wrong_type(path, value, schema))
        return
    if not _has_type(value, schema):
        causes.append(_wrong_type(path, value, schema))
        return
    _check_value(value, schema, path, causes)
    if isinstance(value, dict):
        _validate_object(value, schema, old if isinstance(old, dict) else {}, path, causes)
    elif isinstance(value, list):
        _validate_list(value, schema, old if isinstance(old, list) else [], path, causes)
    _check_junctors(value, schema, path, causes)


def _has_type(value: Any, schema: Schema) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if schema.int_or_string:
        return whole or isinstance(value, str)
    match schema.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return whole or (isinstance(value, float) and value.is_integer())
        case "number":
            return whole or isinstance(value, float)
        case _:
            return True


_NAMES = ((bool, "boolean"), (dict, "object"), (list, "array"), (str, "string"), (int, "integer"), (float, "number"))


def _wrong_type(path: str, value: Any, schema: Schema) -> Cause:
    wanted = "integer,string" if schema.int_or_string else schema.type
    actual = "null" if value is None else next(name for type_, name in _NAMES if isinstance(value, type_))
    return Cause(
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"',
        path,
    )


def _check_value(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    limits = schema.limits
    allowed = limits.get("enum")
    if allowed is not None and not any(same_json(value, item) for item in allowed):
        causes.append(unsupported_value(path, value, list(allowed)))
    if isinstance(value, str):
        _check_string(value, schema, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, limits, path, causes)


def _check_string(value: str, schema: Schema, path: str, causes: list[Cause]) -> None:
    least, most = schema.limits.get("minLength"), schema.limits.get("maxLength")
    if least is not None and len(value) < least:
        causes.append(invalid_value(path, value, f"{path} in body should be at least {least} chars long"))
    if most is not None and len(value) > most:
        causes.append(Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path))
    if schema.pattern is not None and not schema.pattern.search(value):
        causes.append(invalid_value(path, value, f"{path} in body should match '{schema.pattern.pattern}'"))
    if schema.format in _FORMATS and not _FORMATS[schema.format](value):
        text = f"{path} in body must be of type {schema.format}: {shown(value)}"
        causes.append(invalid_value(path, value, text))


def _is_date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value[:19].upper())
    except ValueError:
        return False
    return True


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == 10


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_date_time,
    "date": _is_date,
    "byte": _is_base64,
    "duration": lambda value: _DURATION.fullmatch(value) is not None,
}


def _check_number(value: float, limits: Any, path: str, causes: list[Cause]) -> None:
    least, most = limits.get("minimum"), limits.get("maximum")
    above, below = limits.get("exclusiveMinimum") is True, limits.get("exclusiveMaximum") is True
    if least is not None and (value < least or (above and value == least)):
        text = "greater than" if above else "greater than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {text} {least}"))
    if most is not None and (value > most or (below and value == most)):
        text = "less than" if below else "less than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {text} {most}"))
    step = limits.get("multipleOf")
    if step is not None and abs(value / step - round(value / step)) > 1e-9:
        causes.append(invalid_value(path, value, f"{path} in body should be a multiple of {step}"))


def _validate_object(
    value: dict[str, Any], schema: Schema, old: dict[str, Any], path: str, causes: list[Cause]
) -> None:
    causes += [required(_join(path, name)) for name in schema.limits.get("required") or () if name not in value]
    _check_count(len(value), "Properties", schema, path, causes)
    for name, part in value.items():
        child = schema.properties.get(name) or schema.values
        if child is not None:
            validate(part, child, old.get(name, _ABSENT), _join(path, name), causes)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_count(count: int, what: str, schema: Schema, path: str, causes: list[Cause]) -> None:
    least, most = schema.limits.get(f"min{what}"), schema.limits.get(f"max{what}")
    if least is not None and count < least:
        causes.append(invalid_value(path, count, f"{path} in body should have at least {least} {what.lower()}"))
    if most is not None and count > most:
        text = f"Too many: {count}: must have at most {most} {what.lower()}"
        causes.append(Cause("FieldValueTooMany", text, path))


def _validate_list(value: list[Any], schema: Schema, old: list[Any], path: str, causes: list[Cause]) -> None:
    _check_count(len(value), "Items", schema, path, causes)
    if schema.items is None:
        return
    before = old_items(old, schema)
    seen: list[Any] = []
    for at, item in enumerate(value):
        where = f"{path}[{at}]"
        identity = item_identity(item, schema)
        if identity is not None:
            if any(same_json(identity, other) for other in seen):
                causes.append(Cause("FieldValueDuplicate", f"Duplicate value: {shown(identity)}", where))
            seen.append(identity)
        validate(item, schema.items, _find(before, identity), where, causes)


def item_identity(item: Any, schema: Schema) -> Any:
    """What must be unique in a list: the keys of an item, or the item; None where duplicates are allowed."""
    if schema.list_type == "map" and isinstance(item, dict):
        return {key: item.get(key) for key in schema.map_keys}
    return item if schema.list_type == "set" or schema.limits.get("uniqueItems") else None


def old_items(old: list[Any], schema: Schema) -> list[tuple[Any, Any]]:
    """Identity and value of the items that new items are compared with; only keyed lists have them."""
    return [(item_identity(item, schema), item) for item in old] if schema.list_type == "map" else []


def _find(items: list[tuple[Any, Any]], identity: Any) -> Any:
    return next((item for known, item in items if known == identity), _ABSENT)


def _check_junctors(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    for part in schema.all_of:
        validate(value, part, _ABSENT, path, causes)
    if schema.any_of and not any(_holds(value, part) for part in schema.any_of):
        causes.append(invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)"))
    if schema.one_of and sum(_holds(value, part) for part in schema.one_of) != 1:
        causes.append(invalid_value(path, value, f"{path} in body must validate one and only one schema (oneOf)"))
    if schema.negated is not None and _holds(value, schema.negated):
        causes.append(invalid_value(path, value, f"{path} in body must not validate the schema (not)"))


def _holds(value: Any, schema: Schema) -> bool:
    causes: list[Cause] = []
    validate(value, schema, _ABSENT, "", causes)
    return not causes


def validate_rules(value: Any, schema: Schema, old: Any, path: str, causes: list[Cause]) -> None:
    """Run the CEL rules of `schema` and below. `old` is None where there is no old value.

    Rules about an unchanged value are not run again, except those that compare with the old value.
    """
    if value is None or len(causes) >= _MAX_CAUSES:
        return
    same = value is old or (type(value) is type(old) and value == old)
    if schema.rules:
        shown_value = schema.type if isinstance(value, dict | list) else value
        new_cel = to_cel(value, schema)
        old_cel = to_cel(old, schema) if old is not None else None
        for rule in schema.rules:
            if (same and not rule.transition) or (rule.transition and old is None):
                continue
            if cause := evaluate(rule, new_cel, old_cel, path, shown_value):
                causes.append(cause)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is not None and has_rules(child):
                validate_rules(part, child, before.get(name), _join(path, name), causes)
    elif isinstance(value, list) and schema.items is not None and has_rules(schema.items):
        known = old_items(old, schema) if isinstance(old, list) else []
        for at, item in enumerate(value):
            found = _find(known, item_identity(item, schema)) if known else _ABSENT
            validate_rules(item, schema.items, None if found is _ABSENT else found, f"{path}[{at}]", causes)


_with_rules: dict[int, tuple[Schema, bool]] = {}


def has_rules(schema: Schema) -> bool:
    """Whether this schema or one below it holds rules."""
    known = _with_rules.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    below = [*schema.properties.values(), *(part for part in (schema.values, schema.items) if part is not None)]
    found = bool(schema.rules) or any(has_rules(part) for part in below)
    _with_rules[id(schema)] = (schema, found)
    return found
