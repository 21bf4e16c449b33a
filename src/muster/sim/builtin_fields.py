"""The fields of built-in kinds: their types, and what the API server makes of an object that a client sends.

A real API server reads an object into typed structures and writes it back. By that, fields that it does not know
vanish, quantities and times get their one form, empty optional fields go, and fields that are always written appear
with their zero value.

The table `builtin_fields.txt` holds the types; source: the published Go types of the Kubernetes API,
v1.37 (a contract test compares it with the description that a real server gives of itself).

Form of the table: a type on a line of its own, below it one field per line: name, type, flags. Types are scalars
(`string`, or `string:` with the name that error messages use), `[T]` for lists, `{T}` for maps and names of other
types. Flags: `optional` (absent is not the same as zero), `always` (written also when zero), `map=<keys>` and `set`
(how a list merges in server-side apply; otherwise it is replaced), `atomic`, and `merge`, `merge=<key>`,
`retainKeys` (how a strategic merge patch merges).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from muster.sim.quantities import canonical_quantity

_INTEGERS = {"int32": 31, "int64": 63, "int": 63}


class DecodeError(ValueError):
    """A value is not of its field's type; worded as a real API server words it."""


@dataclass(frozen=True)
class FieldType:
    """`form`: scalar, list, map or struct. `name`: the scalar or the struct. `spoken`: its name in messages."""

    form: str
    name: str
    spoken: str
    element: FieldType | None = None


@dataclass(frozen=True)
class BuiltinField:
    name: str
    type: FieldType
    optional: bool
    always: bool
    flags: Mapping[str, str]


@dataclass(frozen=True)
class Struct:
    name: str
    fields: Mapping[str, BuiltinField]
    always: tuple[BuiltinField, ...]
    atomic: bool


def struct_name(group: str, kind: str) -> str:
    """The name under which the table holds a kind."""
    return "Event_events" if (group, kind) == ("events.k8s.io", "Event") else kind


@cache
def structs() -> Mapping[str, Struct]:
    """Every type of the table."""
    found: dict[str, Struct] = {}
    text = resources.files("muster.sim").joinpath("builtin_fields.txt").read_text()
    for block in re.split(r"\n(?! )", text.rstrip()):
        head, *lines = block.splitlines()
        name, *marks = head.split()
        fields = {field.name: field for field in map(_field, lines)}
        always = tuple(field for field in fields.values() if field.always)
        found[name] = Struct(name, fields, always, "atomic" in marks)
    return found


def _field(line: str) -> BuiltinField:
    name, kind, *words = line.split()
    flags = dict(word.partition("=")[::2] for word in words)
    return BuiltinField(name, _type(kind), "optional" in flags, "always" in flags, flags)


_SCALARS = frozenset(
    ("string", "bool", "float64", "bytes", "time", "microtime", "quantity", "int-or-string", "any", *_INTEGERS)
)


@cache
def _type(text: str) -> FieldType:
    if text[0] == "[":
        element = _type(text[1:-1])
        return FieldType("list", "", f"[]{element.spoken}", element)
    if text[0] == "{":
        element = _type(text[1:-1])
        return FieldType("map", "", f"map[string]{element.spoken}", element)
    name, _, spoken = text.partition(":")
    if name in _SCALARS:
        return FieldType("scalar", name, spoken or name)
    return FieldType("struct", name, f"v1.{name.partition('_')[0]}")


def read(struct: str, value: Any, old: Any, unknown: list[str]) -> dict[str, Any]:
    """`value` as the server stores it. What is shared with `old` (stored already) is taken as it is.

    Paths of unknown fields are added to `unknown`. Raises DecodeError for a value of the wrong type.
    """
    reader = _Reader(unknown)
    if not isinstance(value, dict):
        raise DecodeError(f"json: cannot unmarshal {_spoken(value)} into Go value of type v1.{struct}")
    body = {name: part for name, part in value.items() if name not in ("apiVersion", "kind")}
    before = old if isinstance(old, dict) else {}
    found = reader.struct(structs()[struct], body, before, "", "")
    return {**{name: value[name] for name in ("apiVersion", "kind") if name in value}, **found}


class _Reader:
    """Reads one object. `path` has indexes (for people), `fields` has none (for type errors)."""

    def __init__(self, unknown: list[str]) -> None:
        self.unknown = unknown

    def struct(
        self, struct: Struct, value: dict[str, Any], old: dict[str, Any], path: str, fields: str
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, part in value.items():
            field = struct.fields.get(name)
            if field is None:
                self.unknown.append(f"{path}.{name}" if path else name)
                continue
            before = old.get(name)
            if part is not None and part is before:
                found[name] = part
                continue
            if type(part) is str and part and field.type.name == "string":
                # Most values are plain text: no paths for a message that nobody will need.
                found[name] = part
                continue
            here = f"{path}.{name}" if path else name
            where = f"{fields}.{name}" if fields else name
            if name == "managedFields" and part is not None:
                # An empty list means something: it takes all ownership away.
                found[name] = part
                continue
            kept = self._part(struct, field.type, part, before, here, where)
            if not _left_out(field, kept):
                found[name] = kept
        for field in struct.always:
            if found.get(field.name) is None:
                found[field.name] = None if field.optional else zero(field.type)
        return found

    def _part(self, struct: Struct, type_: FieldType, value: Any, old: Any, path: str, fields: str) -> Any:
        if value is None:
            return None
        match type_.form:
            case "struct":
                if not isinstance(value, dict):
                    raise self._wrong(struct, type_, value, fields)
                before = old if isinstance(old, dict) else {}
                return self.struct(structs()[type_.name], value, before, path, fields)
            case "list":
                return self._list(struct, type_, value, old, path, fields)
            case "map":
                return self._map(struct, type_, value, old, path, fields)
            case _:
                return self._scalar(struct, type_, value, fields)

    def _list(self, struct: Struct, type_: FieldType, value: Any, old: Any, path: str, fields: str) -> Any:
        if not isinstance(value, list):
            raise self._wrong(struct, type_, value, fields)
        # Items keep their identity by place or not at all: enough for the usual append and change in place.
        before = old if isinstance(old, list) else []
        items: list[Any] = []
        element = type_.element or _type("any")
        for at, item in enumerate(value):
            previous = before[at] if at < len(before) else None
            if item is not None and item is previous:
                items.append(item)
                continue
            read_item = self._part(struct, element, item, previous, f"{path}[{at}]", fields)
            items.append(zero(element) if read_item is None else read_item)
        return items

    def _map(self, struct: Struct, type_: FieldType, value: Any, old: Any, path: str, fields: str) -> Any:
        if not isinstance(value, dict):
            raise self._wrong(struct, type_, value, fields)
        before = old if isinstance(old, dict) else {}
        found = {}
        element = type_.element or _type("any")
        plain = element.name == "string"
        for name, part in value.items():
            previous = before.get(name)
            if (part is not None and part is previous) or (plain and type(part) is str):
                found[name] = part
                continue
            kept = self._part(struct, element, part, previous, f"{path}[{name}]", fields)
            found[name] = zero(element) if kept is None else kept
        return found

    def _scalar(self, struct: Struct, type_: FieldType, value: Any, fields: str) -> Any:
        name = type_.name
        if name == "string" and isinstance(value, str):
            return value
        if name == "bool" and isinstance(value, bool):
            return value
        if name in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
            if not -(1 << _INTEGERS[name]) <= value < 1 << _INTEGERS[name]:
                raise DecodeError(self._sentence(struct, type_, f"number {value}", fields))
            return value
        if name in _INTEGERS and isinstance(value, float):
            raise DecodeError(self._sentence(struct, type_, f"number {value}", fields))
        if name == "float64" and isinstance(value, int | float) and not isinstance(value, bool):
            return value
        if name == "int-or-string" and not isinstance(value, str):
            return self._scalar(struct, _type("int32"), value, fields)
        special = _SPECIAL.get(name)
        if special is None:
            raise self._wrong(struct, type_, value, fields)
        return special(value)

    def _wrong(self, struct: Struct, type_: FieldType, value: Any, fields: str) -> DecodeError:
        return DecodeError(self._sentence(struct, type_, _spoken(value), fields))

    def _sentence(self, struct: Struct, type_: FieldType, what: str, fields: str) -> str:
        owner = struct.name.partition("_")[0]
        return f"json: cannot unmarshal {what} into Go struct field {owner}.{fields} of type {type_.spoken}"


def _left_out(field: BuiltinField, value: Any) -> bool:
    """Whether the server does not write the field."""
    if value is None:
        return True
    if field.type.form in ("list", "map") or field.type.name == "bytes":
        return not value
    return field.type.form == "scalar" and not field.optional and not field.always and value in ("", 0, False)


def zero(type_: FieldType) -> Any:
    """The value of a field that nobody set, where the server writes it all the same."""
    if type_.form == "struct":
        always = structs()[type_.name].always
        return {field.name: None if field.optional else zero(field.type) for field in always}
    return {"string": "", "bool": False, "float64": 0, "quantity": "0", "int-or-string": 0, "bytes": ""}.get(
        type_.name, 0 if type_.name in _INTEGERS else None
    )


def _spoken(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


# Scalars with a form of their own


def _quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    found = canonical_quantity(text) if isinstance(text, str) else None
    if found is None:
        raise DecodeError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return found


def _bytes(value: Any) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {_spoken(value)} into Go value of type []uint8")
    plain = value.replace("\n", "").replace("\r", "")
    try:
        base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"illegal base64 data at input byte {_first_bad(plain)}") from None
    return plain


def _first_bad(text: str) -> int:
    found = re.search(r"[^A-Za-z0-9+/]", text)
    return found.start() if found else len(text) - len(text) % 4


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<fraction>\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d)")
_SECONDS, _MICROSECONDS = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
"""How Go writes the two forms of time."""


def _moment(value: Any, form: str) -> tuple[datetime, re.Match[str]]:
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {_spoken(value)} into Go value of type string")
    found = _TIME.fullmatch(value) if len(value) <= 40 else None
    try:
        if found is None:
            raise ValueError
        return datetime.fromisoformat(value).astimezone(UTC), found
    except (ValueError, OverflowError):
        shown = f'"{value[:40]}"'
        raise DecodeError(f'parsing time {shown} as "{form}": cannot parse {shown} as "2006"') from None


def _time(value: Any) -> str:
    """A time in whole seconds."""
    moment, _ = _moment(value, _SECONDS)
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _microtime(value: Any) -> str:
    """A time with exactly six digits behind the second."""
    moment, found = _moment(value, _MICROSECONDS)
    fraction, zone = found["fraction"] or "", found["zone"]
    if len(fraction) != 7:
        rest = (fraction[7:] if len(fraction) > 7 else fraction) + zone
        wanted = "Z07:00" if len(fraction) > 7 else ".000000"
        raise DecodeError(f'parsing time "{value}" as "{_MICROSECONDS}": cannot parse "{rest}" as "{wanted}"')
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


_SPECIAL: Mapping[str, Any] = {
    "quantity": _quantity,
    "int-or-string": lambda value: value,
    "bytes": _bytes,
    "time": _time,
    "microtime": _microtime,
    "any": lambda value: value,
}
