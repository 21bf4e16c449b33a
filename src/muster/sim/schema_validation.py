"""Validation of custom resources against their structural schemas."""

from __future__ import annotations

import json
from typing import Any

from muster.sim.api_names import label_causes
from muster.sim.api_status import Cause, invalid_value, required, shown
from muster.sim.patch_json import same_json
from muster.sim.schema import Schema
from muster.sim.schema_formats import fits, number_fault
from muster.sim.schema_rules import NO_FIELD, evaluate

_MAX_CAUSES = 100
_ABSENT: Any = object()


def validate(value: Any, schema: Schema, old: Any, path: str, causes: list[Cause]) -> None:
    """Add what is wrong with `value` to `causes`. Parts equal to `old` were accepted before and are let through."""
    if value is old or len(causes) >= _MAX_CAUSES:
        return
    if old is not None and old is not _ABSENT and unchanged(old, value, schema):
        return
    if value is None and not schema.nullable and (schema.type or schema.int_or_string):
        causes.append(_wrong_type(path, value, schema))
        return
    if value is not None and not _has_type(value, schema):
        causes.append(_wrong_type(path, value, schema))
        _check_format(value, schema, path, causes)
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
            return (whole and -(2**63) <= value < 2**63) or (isinstance(value, float) and value.is_integer())
        case "number":
            return whole or isinstance(value, float)
        case _:
            return True


_NAMES = ((bool, "boolean"), (dict, "object"), (list, "array"), (str, "string"), (int, "integer"), (float, "number"))


def _wrong_type(path: str, value: Any, schema: Schema) -> Cause:
    wanted = "integer,string" if schema.int_or_string else schema.type
    actual = "null" if value is None else next(name for type_, name in _NAMES if isinstance(value, type_))
    actual = "number" if actual == "integer" and not -(2**63) <= value < 2**63 else actual
    return Cause(
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"',
        path,
    )


def _check_format(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    """The range of a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if fault := number_fault(value, schema.type, schema.format):
        text = f'Invalid value: "": Checked value must be of type {fault} in {path}'
        causes.append(Cause("FieldValueInvalid", text, NO_FIELD))


def _check_value(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    limits = schema.limits
    allowed = limits.get("enum")
    if allowed is not None and not any(same_json(value, item) for item in allowed):
        listed = ", ".join(f'"{item}"' if not isinstance(item, str) else shown(item) for item in allowed)
        text = f"Unsupported value: {shown(value)}: supported values: {listed}"
        causes.append(Cause("FieldValueNotSupported", text, path))
    if isinstance(value, str):
        _check_string(value, schema, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_format(value, schema, path, causes)
        _check_number(value, limits, path, causes)


def _check_string(value: str, schema: Schema, path: str, causes: list[Cause]) -> None:
    least, most = schema.limits.get("minLength"), schema.limits.get("maxLength")
    if least is not None and len(value) < least:
        causes.append(invalid_value(path, value, f"{path} in body should be at least {least} chars long"))
    if most is not None and len(value) > most:
        causes.append(Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path))
    if schema.pattern is not None and not schema.pattern.search(value):
        causes.append(invalid_value(path, value, f"{path} in body should match '{schema.pattern.pattern}'"))
    if schema.format and not fits(value, schema.format):
        text = f"Invalid value: {shown(value)}: {path} in body must be of type {schema.format}: {shown(value)}"
        causes.append(Cause("FieldValueTypeInvalid", text, path))


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
    missing = [name for name in schema.limits.get("required") or () if name not in value]
    if schema.embedded:
        missing += [name for name in ("apiVersion", "kind") if not value.get(name)]
        metadata = value.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        if isinstance(labels, dict):
            causes += [Cause(c.reason, c.message, f"{path}.{c.field}") for c in label_causes(labels)]
    causes += [required(_join(path, name)) for name in missing]
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
        text = f"Too many: {count}: must have at most {most} item{'' if most == 1 else 's'}"
        causes.append(Cause("FieldValueTooMany", text, path))


def _validate_list(value: list[Any], schema: Schema, old: list[Any], path: str, causes: list[Cause]) -> None:
    _check_count(len(value), "Items", schema, path, causes)
    if schema.items is None:
        return
    before = old_items(old, schema)
    seen: dict[str, int] = {}
    for at, item in enumerate(value):
        where = f"{path}[{at}]"
        identity = item_identity(item, schema)
        if identity is not None:
            text = _canonical(identity)
            seen[text] = seen.get(text, 0) + 1
            if seen[text] == 2:
                causes.append(Cause("FieldValueDuplicate", f"Duplicate value: {shown(identity)}", where))
        validate(item, schema.items, _find(before, identity), where, causes)


def _canonical(value: Any) -> str:
    """One text per value: keys in order, and a whole number the same however it is written."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


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
    if not schema.joined:
        return
    all_of = [_faults(value, part, path) for part in schema.all_of]
    if any(all_of):
        causes += [cause for found in all_of for cause in found]
        causes.append(_junctor(path, "must validate all the schemas (allOf)"))
    any_of = [_faults(value, part, path) for part in schema.any_of]
    if any_of and all(any_of):
        causes.append(_junctor(path, "must validate at least one schema (anyOf)"))
        causes += _mildest(any_of)
    one_of = [_faults(value, part, path) for part in schema.one_of]
    if one_of and (valid := sum(not found for found in one_of)) != 1:
        found = "none valid" if not valid else f"{valid} valid alternatives"
        causes.append(_junctor(path, f"must validate one and only one schema (oneOf). Found {found}"))
        causes += _mildest(one_of) if not valid else []
    if schema.negated is not None and not _faults(value, schema.negated, path):
        causes.append(_junctor(path, "must not validate the schema (not)"))


def _mildest(faults: list[list[Cause]]) -> list[Cause]:
    return sorted(faults, key=len)[0]


def _junctor(path: str, what: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "": "{path}" {what}', NO_FIELD)


def _faults(value: Any, schema: Schema, path: str) -> list[Cause]:
    causes: list[Cause] = []
    validate(value, schema, _ABSENT, path, causes)
    return causes


def unchanged(old: Any, new: Any, schema: Schema) -> bool:
    """Whether a value is what it was; the order of the items of a keyed list does not count."""
    if new is old:
        return True
    if isinstance(new, dict) and isinstance(old, dict):
        return new.keys() == old.keys() and all(
            unchanged(old[name], part, schema.properties.get(name) or schema.values or _ANY)
            for name, part in new.items()
        )
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        items = schema.items or _ANY
        if schema.list_type == "map":
            before = old_items(old, schema)
            pairs = [(_find(before, item_identity(item, schema)), item) for item in new]
            return all(was is not _ABSENT and unchanged(was, item, items) for was, item in pairs)
        return all(unchanged(was, item, items) for was, item in zip(old, new, strict=True))
    return same_json(old, new)


_ANY = Schema()


def validate_rules(value: Any, schema: Schema, old: Any, path: str, causes: list[Cause]) -> None:
    """Run the CEL rules of `schema` and below. `old` is None where there is no old value.

    Rules about an unchanged value are not run again, except those that compare with the old value.
    """
    if value is None or len(causes) >= _MAX_CAUSES:
        return
    if schema.rules:
        same = old is not None and unchanged(old, value, schema)
        for rule in schema.rules:
            if (same and not rule.transition) or (rule.transition and old is None and not rule.optional_old):
                continue
            if cause := evaluate(rule, value, old, schema, path):
                causes.append(cause)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is not None and has_rules(child):
                where = _join(path, name) if name in schema.properties else f"{path}[{name}]"
                validate_rules(part, child, before.get(name), where, causes)
    elif isinstance(value, list) and schema.items is not None and has_rules(schema.items):
        known = old_items(old, schema) if isinstance(old, list) else []
        for at, item in enumerate(value):
            found = _find(known, item_identity(item, schema)) if known else _ABSENT
            validate_rules(item, schema.items, None if found is _ABSENT else found, f"{path}[{at}]", causes)


BLOCKING = (
    *("FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"),
    "FieldValueNotSupported",
)
"""Causes after which rules are not run: an object that is not what the schema says cannot be judged."""


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


def find_nulls(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    """Nulls where `schema` allows none and has no default that could stand in."""
    if isinstance(value, dict):
        for name, part in value.items():
            child = schema.properties.get(name) or schema.values
            if child is not None:
                _find_null(part, child, _join(path, name), causes)
    elif isinstance(value, list) and schema.items is not None:
        for at, item in enumerate(value):
            _find_null(item, schema.items, f"{path}[{at}]", causes)


def _find_null(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    if value is not None:
        find_nulls(value, schema, path, causes)
    elif not (schema.nullable or schema.has_default) and (schema.type or schema.int_or_string):
        causes.append(_wrong_type(path, value, schema))
