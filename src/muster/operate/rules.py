"""CEL rules: compiled once, type-checked, bounded, evaluated over one fault on one node.

The variables are declared one by one with their types, so that a misspelt field is an error when the rule is read and
not a rule that silently never matches. CEL has no loops of unknown length; its `matches` runs in linear time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from muster.resources.fault import Fault
from muster.resources.topology import domain_of, pool_of

MAX_EXPRESSION_CHARS = 4096
MAX_MESSAGE_CHARS = 1024
UNKNOWN_NUMBER = -1
"""Value of `fault.entity.index`, `.link` and `.port` when the source does not tell; text fields are then empty."""

_TEXT = cel.Type.STRING
_VARIABLES: dict[str, Any] = {
    "fault.source": _TEXT,
    "fault.check": _TEXT,
    "fault.code": _TEXT,
    "fault.severity": _TEXT,
    "fault.scope": _TEXT,
    "fault.hint": _TEXT,
    "fault.count": cel.Type.INT,
    "fault.message": _TEXT,
    "fault.age_s": cel.Type.INT,
    "fault.entity.kind": _TEXT,
    "fault.entity.name": _TEXT,
    "fault.entity.uuid": _TEXT,
    "fault.entity.pci": _TEXT,
    "fault.entity.device": _TEXT,
    "fault.entity.index": cel.Type.INT,
    "fault.entity.link": cel.Type.INT,
    "fault.entity.port": cel.Type.INT,
    "node.name": _TEXT,
    "node.labels": cel.Type.Map(_TEXT, _TEXT),
    "node.domain": _TEXT,
    "node.pool": _TEXT,
}
VARIABLES = tuple(sorted(_VARIABLES))
"""Names that an expression may use."""


@dataclass(frozen=True)
class Program:
    """A compiled expression, or why it does not compile."""

    expression: Any
    problem: str = ""


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(variables=_VARIABLES)


@lru_cache(maxsize=4096)
def compile_rule(when: str) -> Program:
    """Compile `when`, which must yield a bool. Never raises: the problem is in the result, one clause for people."""
    if len(when) > MAX_EXPRESSION_CHARS:
        return Program(None, f"the expression is longer than {MAX_EXPRESSION_CHARS} characters")
    try:
        expression = _environment().compile(when)
    except RuntimeError as error:
        return Program(None, _first_line(error))
    if expression.return_type() != cel.Type.BOOL:
        return Program(None, f"the expression yields {expression.return_type().name()} and must yield BOOL")
    return Program(expression)


def variables(fault: Fault, node_name: str, node_labels: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """The values that the rules see. Ages are whole seconds since the fault was first seen, never negative."""
    entity = fault.entity
    return {
        "fault.source": fault.source,
        "fault.check": fault.check,
        "fault.code": fault.code,
        "fault.severity": fault.severity.value,
        "fault.scope": fault.scope.value,
        "fault.hint": fault.hint.value,
        "fault.count": fault.count,
        "fault.message": fault.message[:MAX_MESSAGE_CHARS],
        "fault.age_s": max(0, int((now - fault.first_seen).total_seconds())),
        "fault.entity.kind": entity.kind.value,
        "fault.entity.name": entity.name or "",
        "fault.entity.uuid": entity.uuid or "",
        "fault.entity.pci": entity.pci or "",
        "fault.entity.device": entity.device or "",
        "fault.entity.index": UNKNOWN_NUMBER if entity.index is None else entity.index,
        "fault.entity.link": UNKNOWN_NUMBER if entity.link is None else entity.link,
        "fault.entity.port": UNKNOWN_NUMBER if entity.port is None else entity.port,
        "node.name": node_name,
        "node.labels": dict(node_labels),
        "node.domain": domain_of(node_labels) or "",
        "node.pool": pool_of(node_labels),
    }


def holds(when: str, values: Mapping[str, Any]) -> bool | str:
    """Whether `when` is true of `values`; a text instead of a bool says why it could not be told."""
    program = compile_rule(when)
    if program.problem:
        return program.problem
    try:
        result = program.expression.eval(data=values)
    except RuntimeError as error:
        return _first_line(error)
    value = result.value()
    # An error during evaluation comes back as a value of type ERROR, not as an exception.
    return value if isinstance(value, bool) else str(value)[:200]


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0]
    for noise in ("INVALID_ARGUMENT: ", "ERROR: <input>:", " [INVALID_ARGUMENT]", " (in container '')"):
        text = text.replace(noise, "")
    return text[:200]
