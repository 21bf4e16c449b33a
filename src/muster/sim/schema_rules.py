"""CEL validation rules (`x-kubernetes-validations`) of custom resources: compiling and evaluating."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_optional, ext_strings

from muster.sim.api_status import Cause, invalid_value, required, shown, unsupported_value
from muster.sim.cel_library import functions
from muster.sim.cel_names import CelSchema, UndefinedFieldError, Variable, cel_type, to_cel, values_of, with_variables

_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_KNOWN = ("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf")
NO_FIELD = "<nil>"
"""What a real API server names as the field of a cause that has none."""
_HAS_OLD = "has_old_self"
_MAX_MESSAGE = 2048
"""Characters of a message, and of what a messageExpression yields."""
_OLD_SELF = re.compile(r"(?<![\w.])oldSelf\b")
_UNKNOWN_FUNCTION = re.compile(r"\.(reverse)\(")
"""Functions that the CEL library has and Kubernetes does not."""
_BOOL, _STRING = ("BOOL", "DYN"), ("STRING", "DYN")


@dataclass(frozen=True)
class Program:
    """A compiled expression and the paths in it that are variables of their own."""

    expression: cel.Expression
    variables: tuple[Variable, ...]

    def run(self, value: Any, old: Any, schema: CelSchema) -> cel.Value:
        """Evaluate over a value and the old one (None: there is none)."""
        data = values_of(self.variables, {"self": value, "oldSelf": old})
        data["self"] = to_cel(value, schema, top=True)
        data["oldSelf"] = data["self"] if old is None else to_cel(old, schema, top=True)
        data[_HAS_OLD] = old is not None
        return self.expression.eval(data=data)


@dataclass(frozen=True)
class Rule:
    """One compiled rule.

    `transition`: it compares with the old value and runs on updates only, unless `optional_old`: then it runs always,
    and its oldSelf is an optional value.
    """

    text: str
    program: Program
    transition: bool
    optional_old: bool
    message: str
    message_program: Program | None
    reason: str
    field_path: str

    @property
    def told(self) -> str:
        """The rule as evaluation errors name it."""
        return self.text if self.message == f"failed rule: {self.text}" else self.message


def compile_rules(
    raw: Any, schema: CelSchema, path: str, causes: list[Cause], *, lost_at: str, root: bool
) -> tuple[Rule, ...]:
    """Compile the rules of one schema node. What cannot be compiled is added to `causes`, never left out silently.

    `lost_at`: the path of the list from which on no old value can be found; empty when one can. `root`: the node is
    the object itself.
    """
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(rule, dict) for rule in raw):
        causes.append(invalid_value(path, None, "must be a list of objects"))
        return ()
    compiler = _Compiler(schema, causes, lost_at=lost_at, root=root)
    return tuple(rule for at, one in enumerate(raw) for rule in compiler.rule(one, f"{path}[{at}]"))


class _Compiler:
    def __init__(self, schema: CelSchema, causes: list[Cause], *, lost_at: str, root: bool) -> None:
        self._schema = schema
        self._causes = causes
        self._lost_at = lost_at
        self._root = root

    def rule(self, rule: dict[str, Any], path: str) -> Iterator[Rule]:
        """The compiled rule, or nothing."""
        text = rule.get("rule")
        if not isinstance(text, str) or not text.strip():
            self._causes.append(required(f"{path}.rule", "rule is not specified"))
            return
        for name in rule:
            if name not in _KNOWN:
                why = f"the rule field {name!r} is not supported by the simulated API server"
                self._causes.append(invalid_value(f"{path}.{name}", rule[name], why))
        before = len(self._causes)
        self._check_message(rule, text, path)
        reason = rule.get("reason", "FieldValueInvalid")
        if reason not in _REASONS:
            self._causes.append(unsupported_value(f"{path}.reason", reason, list(_REASONS)))
        self._check_field_path(rule.get("fieldPath"), path)
        transition = _OLD_SELF.search(text) is not None
        optional = rule.get("optionalOldSelf") is True
        self._check_old_self(text, path, transition=transition, given=rule.get("optionalOldSelf"))
        program = self._compile(text, rule, f"{path}.rule", _BOOL, optional=optional)
        message_program = None
        if rule.get("messageExpression"):
            where = f"{path}.messageExpression"
            message_program = self._compile(rule["messageExpression"], rule, where, _STRING, optional=optional)
        if program is None or len(self._causes) > before:
            return
        yield Rule(
            text=text,
            program=program,
            transition=transition,
            optional_old=optional,
            message=str(rule.get("message") or f"failed rule: {text}").strip(),
            message_program=message_program,
            reason=reason,
            field_path=str(rule.get("fieldPath") or ""),
        )

    def _check_message(self, rule: dict[str, Any], text: str, path: str) -> None:
        message = rule.get("message") or ""
        if message and not message.strip():
            self._causes.append(invalid_value(f"{path}.message", message, "must be non-empty if specified"))
        elif "\n" in message.strip():
            self._causes.append(invalid_value(f"{path}.message", message, "must not contain line breaks"))
        elif "\n" in text.strip() and not message:
            why = "message must be specified if rule contains line breaks"
            self._causes.append(required(f"{path}.message", why))

    def _check_field_path(self, field_path: Any, path: str) -> None:
        if not field_path:
            return
        current: Any = self._schema
        for name in str(field_path).split(".")[1:]:
            current = current.properties.get(name) or current.values if current is not None else None
        if not str(field_path).startswith(".") or current is None:
            self._causes.append(invalid_value(f"{path}.fieldPath", field_path, "must be a valid path"))

    def _check_old_self(self, text: str, path: str, *, transition: bool, given: Any) -> None:
        if given is not None and not transition:
            why = "may not be set if oldSelf is not used in rule"
            self._causes.append(invalid_value(f"{path}.optionalOldSelf", given, why))
        if transition and self._lost_at:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {self._lost_at}"
            self._causes.append(invalid_value(f"{path}.rule", text, why))

    def _compile(
        self, text: str, rule: dict[str, Any], path: str, types: tuple[str, ...], *, optional: bool
    ) -> Program | None:
        is_message = path.endswith("messageExpression")
        if unknown := _UNKNOWN_FUNCTION.search(text):
            why = f"found no matching overload for '{unknown[1]}' applied to 'string.()'"
            line, column = (
                text.count("\n", 0, unknown.end()) + 1,
                unknown.end() - text.rfind("\n", 0, unknown.end()) - 1,
            )
            self._refuse(rule, path, _located(text, line, column, why), is_message=is_message)
            return None
        try:
            spelled, variables = with_variables(_wrapped(text) if optional else text, self._schema, root=self._root)
            expression = _environment(self._schema, variables).compile(spelled)
        except UndefinedFieldError as error:
            self._refuse(rule, path, _located(text, error.line, error.column, str(error)), is_message=is_message)
            return None
        except RuntimeError as error:
            first = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
            found = re.match(r"ERROR: <input>:(\d+):(\d+): (.*)", first)
            told = (
                _located(text, int(found[1]), int(found[2]), found[3].replace("null_type", "null"))
                if found
                else first
            )
            self._refuse(rule, path, told, is_message=is_message)
            return None
        if expression.return_type().name() not in types:
            why = (
                "messageExpression must evaluate to a string"
                if is_message
                else "cel expression must evaluate to a bool"
            )
            self._causes.append(_invalid_rule(rule, path, why))
            return None
        return Program(expression, variables)

    def _refuse(self, rule: dict[str, Any], path: str, told: str, *, is_message: bool) -> None:
        what = "messageExpression compilation failed" if is_message else "compilation failed"
        self._causes.append(_invalid_rule(rule, path, f"{what}: {told}"))


def _wrapped(text: str) -> str:
    """A rule whose oldSelf is optional."""
    return _OLD_SELF.sub(f"({_HAS_OLD} ? optional.of(oldSelf) : optional.none())", text)


def _located(text: str, line: int, column: int, what: str) -> str:
    lines = text.split("\n")
    shown_line = lines[line - 1] if line <= len(lines) else ""
    return f"ERROR: <input>:{line}:{column}: {what}\n | {shown_line}\n | {'.' * (column - 1)}^"


def _invalid_rule(rule: dict[str, Any], path: str, detail: str) -> Cause:
    """A cause that quotes the whole rule, as a real API server does."""
    quoted = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = json.dumps(quoted, separators=(",", ":"), ensure_ascii=False)
    for character, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, code)
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {detail}", path)


_FUNCTIONS = functions()


def _environment(schema: CelSchema, variables: tuple[Variable, ...]) -> cel.Env:
    kind = cel_type(schema)
    typed = {variable.name: variable.type for variable in variables}
    return cel.NewEnv(
        variables={"self": kind, "oldSelf": kind, _HAS_OLD: cel.Type.BOOL, **typed},
        extensions=[
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_encoders.ExtEncoders(),
        ],
        functions=_FUNCTIONS,
    )


def evaluate(rule: Rule, value: Any, old: Any, schema: CelSchema, path: str) -> Cause | None:
    """Run one rule. `old`: the old value, None when there is none. Returns what to report when it does not hold."""
    result = rule.program.run(value, old, schema)
    if result.type() == cel.Type.BOOL and result.value() is True:
        return None
    where = path + rule.field_path if path else rule.field_path.lstrip(".") or NO_FIELD
    if result.type() != cel.Type.BOOL:
        shown_value = schema.type if isinstance(value, dict | list) else value
        told = f"{_plain_error(str(result.value()))} evaluating rule: {rule.told}"
        return invalid_value(path or NO_FIELD, shown_value, told)
    message = rule.message
    if rule.message_program is not None:
        told = rule.message_program.run(value, old, schema)
        if told.type() == cel.Type.STRING and _is_line(str(told.value())):
            message = str(told.value()).strip()
    match rule.reason:
        case "FieldValueForbidden":
            return Cause(rule.reason, f"Forbidden: {message}", where)
        case "FieldValueRequired":
            return Cause(rule.reason, f"Required value: {message}", where)
        case "FieldValueDuplicate":
            return Cause(rule.reason, f"Duplicate value: {shown(value)}", where)
        case _:
            return _invalid(where, value, message)


def _plain_error(text: str) -> str:
    """An evaluation error in the words of a real API server, where the libraries differ."""
    if missing := re.search(r"(?:No such key|Key not found in map|no such key)\W+'?\"?(\w+)", text, re.IGNORECASE):
        return f"no such key: {missing[1]}"
    if unbound := re.search(r"[Nn]o value with name \"(?:self|oldSelf)_(\w+)\" found", text):
        return f"no such key: {unbound[1]}"
    text = re.sub(r"^[A-Z_]+: ", "", text)
    for pattern, words in _ERRORS:
        text = pattern.sub(words, text)
    return text


_ERRORS = (
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"cannot convert (\w+) to (\w+)"), r"type conversion error from '\1' to '\2'"),
)


def _is_line(text: str) -> bool:
    return bool(text.strip()) and "\n" not in text.strip() and len(text) <= _MAX_MESSAGE


def _invalid(path: str, value: Any, detail: str) -> Cause:
    """The value is quoted unless it is an object or a list."""
    if isinstance(value, dict | list):
        return Cause("FieldValueInvalid", f"Invalid value: {detail}", path)
    return invalid_value(path, value, detail)
