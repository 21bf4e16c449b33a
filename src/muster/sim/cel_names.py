"""How a rule's text meets the schema: which fields it names, and of what type they are.

The CEL library knows no types of objects. So every path of fields that a rule spells out, such as `self.at.start`,
becomes a variable of its own, `self_at_start`, of the type in the schema: by that the library checks types, knows
times and durations, and reports errors at the right column (the text keeps its length).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from cel_expr_python import cel

_WORDS = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)
_LITERAL = re.compile(r"""[rRbB]*(""" + r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')''', re.DOTALL)
_PATH = re.compile(r"(?<![\w.])(self|oldSelf)((?:\.[A-Za-z_]\w*)*)(\s*\()?")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|m|h|d|w)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
ROOT = ("apiVersion", "kind", "metadata")
"""Fields that the root of an object and an embedded object have besides those in the schema."""


class CelSchema(Protocol):
    """The part of a schema that decides how values look to CEL."""

    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def preserve(self) -> bool: ...
    @property
    def embedded(self) -> bool: ...
    @property
    def int_or_string(self) -> bool: ...
    @property
    def format(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> Any: ...
    @property
    def items(self) -> Any: ...


@dataclass(frozen=True)
class Variable:
    """A path that a rule spells out. `root` is self or oldSelf; `path` holds the names as they are in the object."""

    name: str
    root: str
    path: tuple[str, ...]
    type: Any
    schema: CelSchema | None


class UndefinedFieldError(Exception):
    """A rule names a field that the schema does not have. `column` counts from 1."""

    def __init__(self, field: str, line: int, column: int) -> None:
        super().__init__(f"undefined field '{field}'")
        self.line = line
        self.column = column


def escaped(name: str) -> str:
    """The name of a property in CEL."""
    if name in _WORDS:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    replaced = name.replace("__", "__underscores__")
    return replaced.replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")


def with_variables(text: str, schema: CelSchema, *, root: bool) -> tuple[str, tuple[Variable, ...]]:
    """The rule with its paths replaced by variables, and the variables.

    `root`: the rule stands at the root of the object. Raises UndefinedFieldError.
    """
    written: list[str] = []
    found: dict[str, Variable] = {}
    end = 0
    for at, stop in _code(text):
        written.append(text[end:at])
        for match in _PATH.finditer(text, at, stop):
            written.append(text[max(at, end) : match.start()])
            names = match[2].split(".")[1:]
            if match[3] and names:
                names.pop()
            has = re.search(r"\bhas\s*\(\s*$", text[: match.start()])
            in_has = has is not None
            try:
                variable = _variable(text, match.start(), match[1], names, schema, root=root)
            except UndefinedFieldError as error:
                if has is not None:
                    error.column = has.start() + text[has.start() :].index("(") - text.rfind("\n", 0, has.start())
                raise
            if variable.path and not in_has:
                found[variable.name] = variable
                written.append(variable.name)
                end = match.start() + len(variable.name)
            else:
                end = match.start()
                written.append(text[end : match.start() + len(match[1])])
                end = match.start() + len(match[1])
            at = end
        written.append(text[max(at, end) : stop])
        end = stop
    written.append(text[end:])
    return "".join(written), tuple(found.values())


def _code(text: str) -> Iterator[tuple[int, int]]:
    """The stretches of the text that are not string literals."""
    at = 0
    for literal in _LITERAL.finditer(text):
        yield at, literal.start()
        at = literal.end()
    yield at, len(text)


def _variable(text: str, start: int, root_name: str, names: list[str], schema: CelSchema, *, root: bool) -> Variable:
    path: list[str] = []
    current: CelSchema | None = schema
    kind = cel_type(schema)
    at = start + len(root_name)
    for name in names:
        if current is None or current.type != "object" or current.values is not None or current.nullable:
            break
        known = {escaped(field): field for field in current.properties}
        implied = ROOT if (root and not path) or current.embedded else ()
        if name in implied:
            if name == "metadata":
                break
            path.append(name)
            current, kind = None, cel.Type.STRING
        elif name in known:
            path.append(known[name])
            current = current.properties[known[name]]
            kind = cel_type(current)
        elif current.preserve and not current.properties:
            break
        else:
            line = text.count("\n", 0, at) + 1
            raise UndefinedFieldError(name, line, at - (text.rfind("\n", 0, at) + 1) + 1)
        at += 1 + len(name)
    spoken = "_".join([root_name, *(escaped(name) for name in path)])
    return Variable(spoken, root_name, tuple(path), kind, current)


def cel_type(schema: CelSchema) -> Any:
    """The CEL type of a value, dynamic where the library has no type for it."""
    kinds = cel.Type
    if schema.nullable or schema.int_or_string or schema.preserve:
        return kinds.DYN
    match schema.type:
        case "string":
            by_format = {"date-time": kinds.TIMESTAMP, "date": kinds.TIMESTAMP, "duration": kinds.DURATION}
            return by_format.get(schema.format, kinds.BYTES if schema.format == "byte" else kinds.STRING)
        case "integer":
            return kinds.INT
        case "number":
            return kinds.DOUBLE
        case "boolean":
            return kinds.BOOL
        case "array":
            return kinds.List(_element_type(schema.items))
        case "object" if schema.values is not None:
            return kinds.Map(kinds.STRING, _element_type(schema.values))
        case _:
            return kinds.DYN


def _element_type(schema: CelSchema | None) -> Any:
    """The library takes no times inside lists and maps: there they stay text."""
    if schema is None or schema.type in ("array", "object"):
        return cel.Type.DYN
    kind = cel_type(schema)
    return cel.Type.DYN if kind in (cel.Type.TIMESTAMP, cel.Type.DURATION) else kind


def values_of(variables: tuple[Variable, ...], roots: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that have a value; a path that leads nowhere stays unbound."""
    data: dict[str, Any] = {}
    for variable in variables:
        value = roots.get(variable.root)
        for name in variable.path:
            value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            data[variable.name] = to_cel(value, variable.schema, top=True) if variable.schema is not None else value
    return data


_ABSENT: Any = object()


def to_cel(value: Any, schema: CelSchema, *, top: bool = False) -> Any:
    """A JSON value as CEL sees it. `top`: it stands alone, so that times and durations can be what they are."""
    if isinstance(value, dict):
        return _map_to_cel(value, schema)
    if isinstance(value, list):
        return [to_cel(item, schema.items) for item in value] if schema.items is not None else value
    if isinstance(value, int) and not isinstance(value, bool) and schema.type == "number":
        return float(value)
    if isinstance(value, str) and schema.type == "string" and not schema.nullable:
        return _text_to_cel(value, schema.format, top=top)
    return value


def _map_to_cel(value: dict[str, Any], schema: CelSchema) -> dict[str, Any]:
    converted = {}
    for name, part in value.items():
        child = schema.properties.get(name)
        key = escaped(name) if child is not None else name
        child = child or schema.values
        converted[key] = to_cel(part, child) if child is not None else part
    return converted


def _text_to_cel(value: str, form: str, *, top: bool) -> Any:
    if form == "byte":
        import base64

        return base64.b64decode(value)
    if top and form in ("date-time", "date"):
        moment = datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if top and form == "duration":
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
        return timedelta(seconds=-seconds if value.startswith("-") else seconds)
    return value
