"""CEL validation rules (`x-kubernetes-validations`) of custom resources: compiling and evaluating."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math, ext_optional, ext_strings

from muster.sim.api_status import Cause, invalid_value, required

_REASONS = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")
_KNOWN = ("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf")
_WORDS = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)


@dataclass(frozen=True)
class Rule:
    """One compiled rule. `transition`: it compares with the old value and runs on updates only."""

    text: str
    program: cel.Expression
    transition: bool
    message: str
    message_program: cel.Expression | None
    reason: str
    field_path: str


class CelSchema(Protocol):
    """The part of a schema that decides how values look to CEL."""

    @property
    def type(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> Any: ...
    @property
    def items(self) -> Any: ...


def _environment(variables: tuple[str, ...]) -> cel.Env:
    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[
            ext_strings.ExtStrings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_encoders.ExtEncoders(),
        ],
    )


_ENV = _environment(("self", "oldSelf"))


def compile_rules(raw: Any, path: str, causes: list[Cause], correlatable: bool) -> tuple[Rule, ...]:
    """Compile the rules of one schema node. What cannot be compiled is added to `causes`, never left out silently."""
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(rule, dict) for rule in raw):
        causes.append(invalid_value(path, None, "must be a list of objects"))
        return ()
    rules = []
    for at, rule in enumerate(raw):
        compiled = _compile_rule(rule, f"{path}[{at}]", causes, correlatable)
        if compiled is not None:
            rules.append(compiled)
    return tuple(rules)


def _compile_rule(rule: dict[str, Any], path: str, causes: list[Cause], correlatable: bool) -> Rule | None:
    text = rule.get("rule")
    if not isinstance(text, str) or not text.strip():
        causes.append(required(f"{path}.rule", "rule is not specified"))
        return None
    for name in rule:
        if name not in _KNOWN or name == "optionalOldSelf":
            text_of = f"the rule field {name!r} is not supported by the simulated API server"
            causes.append(invalid_value(f"{path}.{name}", rule[name], text_of))
    reason = rule.get("reason", "FieldValueInvalid")
    if reason not in _REASONS:
        causes.append(invalid_value(f"{path}.reason", reason, f"must be one of {', '.join(_REASONS)}"))
    transition = re.search(r"\boldSelf\b", text) is not None
    if transition and not correlatable:
        detail = "oldSelf cannot be used on the uncorrelatable portion of the schema"
        causes.append(invalid_value(f"{path}.rule", text, detail))
    program = _compile(text, f"{path}.rule", causes, ("BOOL", "DYN"), "a bool")
    message_text = rule.get("messageExpression")
    message_program = None
    if message_text is not None:
        message_program = _compile(message_text, f"{path}.messageExpression", causes, ("STRING", "DYN"), "a string")
    if program is None:
        return None
    return Rule(
        text=text,
        program=program,
        transition=transition,
        message=str(rule.get("message") or f"failed rule: {text}"),
        message_program=message_program,
        reason=reason,
        field_path=str(rule.get("fieldPath") or ""),
    )


def _compile(text: str, path: str, causes: list[Cause], types: tuple[str, ...], wanted: str) -> cel.Expression | None:
    try:
        program = _ENV.compile(text)
    except RuntimeError as error:
        first_line = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        unknown = re.search(r"undeclared reference to '([^']*)'", first_line)
        why = f"compilation failed: {first_line}"
        if unknown:
            name = unknown[1]
            why += f"; the simulated API server has no CEL function or variable {name!r}, reword the rule"
        causes.append(invalid_value(path, text, why))
        return None
    if program.return_type().name() not in types:
        causes.append(invalid_value(path, text, f"must evaluate to {wanted}"))
        return None
    return program


def evaluate(rule: Rule, value: Any, old: Any, path: str, shown: Any) -> Cause | None:
    """Run one rule over values made by `to_cel`. Returns what to report when it does not hold."""
    data = {"self": value, "oldSelf": old} if rule.transition else {"self": value}
    result = rule.program.eval(data=data)
    if result.type() == cel.Type.BOOL and result.value() is True:
        return None
    where = path + rule.field_path if path else rule.field_path.lstrip(".")
    if result.type() != cel.Type.BOOL:
        return invalid_value(where, shown, f"rule evaluation error: {result.value()}: evaluating rule: {rule.text}")
    message = rule.message
    if rule.message_program is not None:
        told = rule.message_program.eval(data=data)
        if told.type() == cel.Type.STRING and str(told.value()).strip():
            message = str(told.value())
    cause = invalid_value(where, shown, message)
    return cause if rule.reason == "FieldValueInvalid" else Cause(rule.reason, message, where)


def to_cel(value: Any, schema: CelSchema) -> Any:
    """A JSON value as CEL sees it: numbers as doubles, awkward names escaped.

    Date-times stay text, because the CEL library takes no timestamps inside dynamic values: a rule must write
    `timestamp(self.at)`, which a real API server accepts too.
    """
    if isinstance(value, dict):
        converted = {}
        for name, part in value.items():
            child = schema.properties.get(name)
            key = escaped(name) if child is not None else name
            child = child or schema.values
            converted[key] = to_cel(part, child) if child is not None else part
        return converted
    if isinstance(value, list):
        return [to_cel(item, schema.items) for item in value] if schema.items is not None else value
    if isinstance(value, int) and not isinstance(value, bool) and schema.type == "number":
        return float(value)
    return value


def escaped(name: str) -> str:
    """The name of a property in CEL."""
    if name in _WORDS:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    replaced = name.replace("__", "__underscores__")
    return replaced.replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")
