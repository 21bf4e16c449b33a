"""Admission policies, pure: which requests a policy concerns, what it says about them, and how it changes them.

ValidatingAdmissionPolicy and MutatingAdmissionPolicy of admissionregistration.k8s.io/v1. Facts and wording:
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ and the answers of a real server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from muster.kube.api import Object
from muster.sim.admission_cel import (
    CompileError,
    EvaluationError,
    Expression,
    compile_expression,
    evaluate,
    maps_for_messages,
)
from muster.sim.identities import User
from muster.sim.selectors import from_label_selector, labels_match

ALL = "*"
POLICY_GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True)
class Attempt:
    """One write as policies see it. `obj` None: a deletion; `old` None: a creation.

    `namespace_object` is the Namespace around a namespaced object.
    """

    operation: str
    group: str
    version: str
    resource: str
    kind: str
    subresource: str
    name: str
    namespace: str
    obj: Object | None
    old: Object | None
    user: User
    dry_run: bool = False
    namespace_object: Object | None = None

    def request(self) -> dict[str, Any]:
        """The variable `request`; what is empty is absent, as on a real server."""
        kind = {"group": self.group, "version": self.version, "kind": self.kind}
        resource = {"group": self.group, "version": self.version, "resource": self.resource}
        named = {"subResource": self.subresource, "requestSubResource": self.subresource}
        named |= {"name": self.name, "namespace": self.namespace}
        options = {"CREATE": "CreateOptions", "DELETE": "DeleteOptions"}.get(self.operation, "UpdateOptions")
        return {
            **{key: value for key, value in named.items() if value},
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "operation": self.operation,
            "userInfo": self.user.to_json(),
            "dryRun": self.dry_run,
            "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
        }

    def data(self) -> dict[str, Any]:
        return {
            "object": self.obj,
            "oldObject": self.old,
            "request": self.request(),
            "namespaceObject": self.namespace_object,
        }


# Which requests


def concerns(match: Mapping[str, Any], attempt: Attempt) -> bool:
    """Whether matchConstraints (or a binding's matchResources) select a request."""
    if not _namespace_selected(match.get("namespaceSelector"), attempt):
        return False
    if not _object_selected(match.get("objectSelector"), attempt):
        return False
    exact = match.get("matchPolicy") == "Exact"
    if any(_rule_matches(rule, attempt, exact) for rule in match.get("excludeResourceRules") or ()):
        return False
    rules = match.get("resourceRules") or ()
    return not rules or any(_rule_matches(rule, attempt, exact) for rule in rules)


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    requirements = from_label_selector(selector or {})
    return requirements is not None and labels_match(requirements, labels)


def _namespace_selected(selector: Any, attempt: Attempt) -> bool:
    if not selector:
        return True
    if attempt.resource == "namespaces" and not attempt.group:
        return _selects(selector, _labels(attempt.obj or attempt.old))
    return not attempt.namespace or _selects(selector, _labels(attempt.namespace_object))


def _object_selected(selector: Any, attempt: Attempt) -> bool:
    if not selector:
        return True
    return any(obj is not None and _selects(selector, _labels(obj)) for obj in (attempt.obj, attempt.old))


def _rule_matches(rule: Mapping[str, Any], attempt: Attempt, exact: bool) -> bool:
    namespaced = bool(attempt.namespace) and not (attempt.resource == "namespaces" and not attempt.group)
    if rule.get("scope", ALL) not in (ALL, "Namespaced" if namespaced else "Cluster"):
        return False
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("operations"), attempt.operation)
        and _has(rule.get("apiGroups"), attempt.group)
        # Equivalent: another version of the same resource is converted before it is compared.
        and (not exact or _has(rule.get("apiVersions"), attempt.version))
        and any(_resource_matches(resource, attempt) for resource in rule.get("resources") or ())
        and (not names or attempt.name in names)
    )


def _has(values: Any, wanted: str) -> bool:
    return ALL in (values or ()) or wanted in (values or ())


def _resource_matches(pattern: str, attempt: Attempt) -> bool:
    resource, _, subresource = pattern.partition("/")
    return resource in (ALL, attempt.resource) and subresource in (ALL, attempt.subresource)


# Compiled policies


@dataclass(frozen=True)
class Validation:
    """One validation. `message` "" leaves the expression itself to be shown."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


@dataclass(frozen=True)
class Mutation:
    """`kind` is ApplyConfiguration or JSONPatch."""

    kind: str
    expression: Expression


@dataclass(frozen=True)
class Policy:
    """The compiled spec of a policy."""

    match: Mapping[str, Any]
    fail_closed: bool
    conditions: tuple[Expression, ...]
    variables: tuple[tuple[str, Expression], ...]
    validations: tuple[Validation, ...] = ()
    mutations: tuple[Mutation, ...] = ()


@dataclass
class Problems:
    """What cannot be compiled: path below `spec`, text, detail."""

    found: list[tuple[str, Any, str]] = field(default_factory=list)

    def compiled(self, path: str, raw: Any, wanted: str, declared: tuple[str, ...] = ()) -> Expression | None:
        try:
            return compile_expression(raw if isinstance(raw, str) else "", wanted, declared)
        except CompileError as error:
            self.found.append((path, raw, str(error)))
            return None

    def mutation(self, path: str, raw: Any, kind: str, declared: tuple[str, ...]) -> Expression | None:
        text = raw if isinstance(raw, str) else ""
        wanted, shown = ("map", "Object") if kind == "ApplyConfiguration" else ("list", "list(JSONPatch)")
        rewritten = maps_for_messages(text)
        try:
            if text.strip() and rewritten == text:
                plain = compile_expression(text, wanted, declared)
                found = plain.program.return_type().name().lower().replace("<", "(").replace(">", ")")
                if not found.startswith("list(dyn"):
                    raise CompileError(f"must evaluate to {shown} but got {found}")
            return compile_expression(rewritten, wanted, declared, source=text)
        except CompileError as error:
            self.found.append((path, raw, str(error)))
            return None


@lru_cache(maxsize=512)
def compiled(spec_json: bytes) -> tuple[Policy, tuple[tuple[str, Any, str], ...]]:
    """The policy of a spec (JSON), and what is wrong with its expressions. Compiled once per text."""
    spec: dict[str, Any] = msgspec.json.decode(spec_json)
    problems = Problems()
    conditions = [
        problems.compiled(f"matchConditions[{at}].expression", raw.get("expression"), "bool")
        for at, raw in enumerate(spec.get("matchConditions") or ())
    ]
    variables: list[tuple[str, Expression]] = []
    for at, raw in enumerate(spec.get("variables") or ()):
        declared = tuple(name for name, _ in variables)
        expression = problems.compiled(f"variables[{at}].expression", raw.get("expression"), "", declared)
        if expression is not None:
            variables.append((str(raw.get("name", "")), expression))
    declared = tuple(str(raw.get("name", "")) for raw in spec.get("variables") or ())
    policy = Policy(
        match=spec.get("matchConstraints") or {},
        fail_closed=spec.get("failurePolicy", "Fail") != "Ignore",
        conditions=tuple(condition for condition in conditions if condition is not None),
        variables=tuple(variables),
        validations=_validations(spec, declared, problems),
        mutations=_mutations(spec, declared, problems),
    )
    return policy, tuple(problems.found)


def _validations(spec: Mapping[str, Any], declared: tuple[str, ...], problems: Problems) -> tuple[Validation, ...]:
    found = []
    for at, raw in enumerate(spec.get("validations") or ()):
        path = f"validations[{at}]"
        expression = problems.compiled(f"{path}.expression", raw.get("expression"), "bool", declared)
        message = None
        if raw.get("messageExpression"):
            message = problems.compiled(f"{path}.messageExpression", raw["messageExpression"], "string", declared)
        if expression is not None:
            reason = str(raw.get("reason") or "Invalid")
            found.append(Validation(expression, str(raw.get("message") or "").strip(), message, reason))
    return tuple(found)


def _mutations(spec: Mapping[str, Any], declared: tuple[str, ...], problems: Problems) -> tuple[Mutation, ...]:
    found = []
    for at, raw in enumerate(spec.get("mutations") or ()):
        kind = str(raw.get("patchType"))
        name = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(kind)
        if name is not None:
            text = (raw.get(name) or {}).get("expression")
            expression = problems.mutation(f"mutations[{at}].{name}.expression", text, kind, declared)
            if expression is not None:
                found.append(Mutation(kind, expression))
    return tuple(found)


# Evaluation


@dataclass(frozen=True)
class Finding:
    """A validation that does not hold, or (reason Invalid) an expression without a value."""

    message: str
    reason: str = "Invalid"


class Evaluation:
    """One policy over one request. Variables are evaluated once; one that has no value harms only who uses it."""

    def __init__(self, policy: Policy, attempt: Attempt) -> None:
        self._policy = policy
        self._data = attempt.data()
        self._failed: dict[str, str] = {}
        self._prepared = False

    def applies(self) -> bool:
        """Whether the match conditions hold. Raises EvaluationError when that cannot be told."""
        error: EvaluationError | None = None
        for condition in self._policy.conditions:
            try:
                if self.value(condition) is not True:
                    return False
            except EvaluationError as problem:
                error = error or problem
        if error is not None:
            raise error
        return True

    def value(self, expression: Expression) -> Any:
        """Raises EvaluationError, with the expression in its text."""
        if expression.variables:
            self._prepare()
        try:
            return evaluate(expression, self._data, self._failed)
        except EvaluationError as error:
            raise EvaluationError(f"expression '{expression.text}' resulted in error: {error}") from None

    def _prepare(self) -> None:
        if self._prepared:
            return
        self._prepared = True
        values: dict[str, Any] = {}
        self._data["variables"] = values
        for name, expression in self._policy.variables:
            try:
                values[name] = evaluate(expression, self._data, self._failed)
            except EvaluationError as error:
                self._failed[name] = str(error)

    def findings(self) -> list[Finding]:
        """What the policy objects to, in the order of its validations."""
        try:
            if not self.applies():
                return []
        except EvaluationError as error:
            return [Finding(str(error))] if self._policy.fail_closed else []
        found = []
        for validation in self._policy.validations:
            try:
                if self.value(validation.expression) is not True:
                    found.append(Finding(self._message(validation), validation.reason))
            except EvaluationError as error:
                if self._policy.fail_closed:
                    found.append(Finding(str(error)))
        return found

    def _message(self, validation: Validation) -> str:
        if validation.message_expression is not None:
            try:
                told = str(self.value(validation.message_expression)).strip()
            except EvaluationError:
                told = ""
            # A message expression that fails, or yields nothing or several lines, counts as absent.
            if told and "\n" not in told and len(told) <= 5 * 1024:
                return told
        return validation.message or f"failed expression: {validation.expression.text}"


def findings(policy: Policy, attempt: Attempt) -> list[Finding]:
    return Evaluation(policy, attempt).findings()


def denial(policy: str, binding: str, finding: Finding) -> str:
    """What a refused client reads."""
    return f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {finding.message}"


def warning(policy: str, binding: str, finding: Finding) -> str:
    return f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {finding.message}"


def code_of(reason: str) -> int:
    return {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}.get(reason, 422)


def bound(bindings: Sequence[Object], policy: str) -> list[Object]:
    """The bindings of one policy, by name."""
    named = [binding for binding in bindings if (binding.get("spec") or {}).get("policyName") == policy]
    return sorted(named, key=lambda binding: str(binding["metadata"]["name"]))
