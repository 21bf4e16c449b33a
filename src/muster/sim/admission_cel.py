"""CEL expressions of admission policies: compiling, evaluating, and errors worded as a real API server words them.

A policy sees `object`, `oldObject`, `request`, `namespaceObject` and its own `variables`. What the engine here lacks
(`authorizer`, `params`, Kubernetes' own functions) does not compile, so a policy that needs it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math, ext_optional, ext_strings

_VARIABLES = ("object", "oldObject", "request", "namespaceObject", "variables")
_UNSUPPORTED = ("authorizer", "params")
_REQUEST_FIELDS = (
    *("kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource"),
    *("name", "namespace", "operation", "userInfo", "dryRun", "options"),
)


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `variables`: the policy's own variables that it uses."""

    text: str
    program: cel.Expression
    variables: tuple[str, ...]


class CompileError(Exception):
    """Why an expression is not accepted, as the detail of an invalid value."""


class EvaluationError(Exception):
    """Why an expression has no value."""


def _escape_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


_ENV = cel.NewEnv(
    variables=dict.fromkeys(_VARIABLES, cel.Type.DYN),
    extensions=[
        ext_strings.ExtStrings(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_encoders.ExtEncoders(),
    ],
    functions=[
        cel.FunctionDecl(
            "jsonpatch.escapeKey",
            [cel.Overload("escape_key", cel.Type.STRING, [cel.Type.STRING], False, _escape_key)],
        )
    ],
)


def compile_expression(text: str, wanted: str, declared: tuple[str, ...], *, source: str = "") -> Expression:
    """Compile `text`. `wanted`: bool, string, list, map or "" (anything). `declared`: variables that it may use.

    `source`: what the author wrote, where `text` was derived from it. Raises CompileError.
    """
    bare = _without_strings(text)
    for name in _UNSUPPORTED:
        if re.search(rf"(?<![\w.]){name}\b", bare):
            raise CompileError(f"the simulated API server does not support {name!r} in admission policies")
    if re.search(r"(?<![\w.])request\s*\.\s*options\s*\.", bare):
        raise CompileError("the simulated API server does not support fields of 'request.options'")
    used = _checked_fields(bare, declared, text)
    try:
        program = _ENV.compile(text)
    except RuntimeError as error:
        raise CompileError("compilation failed: " + _compile_text(str(error))) from None
    found = _type_name(program.return_type().name())
    if wanted and found.partition("(")[0] != wanted:
        raise CompileError(f"must evaluate to {wanted} but got {found}")
    return Expression(source or text, program, used)


def _checked_fields(bare: str, declared: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The variables that an expression uses. Raises CompileError for fields that a real server knows not to exist."""
    used: list[str] = []
    for base, fields in (("variables", declared), ("request", _REQUEST_FIELDS)):
        for match in re.finditer(rf"(?<![\w.]){base}\s*\.\s*\??\s*([A-Za-z_]\w*)", bare):
            if base == "variables" and not declared:
                raise CompileError(
                    _pointed("undeclared reference to 'variables' (in container '')", text, match.start())
                )
            if match[1] not in fields:
                raise CompileError(_pointed(f"undefined field '{match[1]}'", text, match.start(1) - 1))
            if base == "variables" and match[1] not in used:
                used.append(match[1])
    return tuple(used)


def _pointed(what: str, text: str, at: int) -> str:
    return f"compilation failed: ERROR: <input>:1:{at + 1}: {what}\n | {text}\n | {'.' * at}^"


def _without_strings(text: str) -> str:
    """The same text with the contents of string literals blanked out."""
    return re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", lambda m: "'" + " " * (len(m[0]) - 2) + "'", text)


_UNDECLARED = re.compile(
    r"ERROR: <input>:(?P<line>\d+):(?P<column>\d+): undeclared reference to '(?P<root>\w+)(?P<rest>(?:\.\w+)+)'"
    r"(?P<where>[^\n]*)\n \| (?P<text>[^\n]*)\n \| \.*\^"
)


def _compile_text(text: str) -> str:
    """A compilation error in the words of the engine that Kubernetes uses: it points at the unknown name itself."""

    def pointed(match: re.Match[str]) -> str:
        at = match["text"].rfind(match["root"], 0, int(match["column"]))
        where = f"ERROR: <input>:{match['line']}:{at + 1}: undeclared reference to '{match['root']}'{match['where']}"
        return f"{where}\n | {match['text']}\n | {'.' * at}^"

    plain = text.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]").removesuffix("\n")
    return _UNDECLARED.sub(pointed, plain)


def _type_name(name: str) -> str:
    lowered = name.lower().replace("<", "(").replace(">", ")")
    return "null_type" if lowered == "null" else lowered


def evaluate(expression: Expression, data: Mapping[str, Any], failed: Mapping[str, str]) -> Any:
    """The plain value of an expression. `failed`: errors of variables that have no value. Raises EvaluationError."""
    given = {**dict.fromkeys(_VARIABLES), **data}
    result = expression.program.eval(data=given)
    if result.type() != cel.Type.ERROR:
        return result.plain_value()
    for name in expression.variables:
        if name in failed:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {failed[name]}')
    raise EvaluationError(_error_text(str(result.value())))


def _error_text(text: str) -> str:
    """An error of this engine in the words of the engine that Kubernetes uses."""
    if match := re.search(r'Key not found in map : "?(.*?)"?$', text):
        return f"no such key: {match[1]}"
    if "No matching overloads" in text:
        return "no such overload"
    if match := re.search(r"Index error: index=(-?\d+)", text):
        return f"index out of bounds: {match[1]}"
    if "divide by zero" in text:
        return "division by zero"
    return text.partition(": ")[2] or text


_PATH = re.compile(r"(?:Object(?:\s*\.\s*[A-Za-z_]\w*)*|JSONPatch)(?=\s*\{)")
_TOKEN = re.compile(
    r"""(?P<text>[rR]?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))|(?P<word>[A-Za-z_]\w*)|(?P<other>\s+|.)""", re.DOTALL
)


def maps_for_messages(text: str) -> str:
    """`Object.spec{replicas: 1}` and `JSONPatch{op: "add"}` as maps: the engine here has no such message types.

    Only what stands in the braces of a message is changed: field names become string keys.
    """
    out: list[str] = []
    opened: list[str] = []
    at, message_next, key_next = 0, False, False
    while at < len(text):
        before = text[at - 1] if at else " "
        path = _PATH.match(text, at) if not (before.isalnum() or before in "_.") else None
        if path is not None:
            at, message_next = path.end(), True
            continue
        token = _TOKEN.match(text, at)
        if token is None:  # cannot be: `other` takes any character
            break
        at, value = token.end(), token[0]
        if token["word"] and key_next:
            value = f"'{value}'"
        elif value in ("{", "(", "["):
            opened.append("message" if value == "{" and message_next else value)
            message_next = False
        elif value in ("}", ")", "]") and opened:
            opened.pop()
        inside = bool(opened) and opened[-1] == "message"
        if not value.isspace():
            key_next = inside and (value in ("{", ",") or (value == "?" and key_next))
        out.append(value)
    return "".join(out)
