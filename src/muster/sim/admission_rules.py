"""Defaults and validation of roles, bindings and admission policies.

The facts are those of the published API reference (rbac.authorization.k8s.io/v1, admissionregistration.k8s.io/v1) and
the wording that of a real server. What the simulated server cannot evaluate is refused here, with its name.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from muster.kube.api import Object
from muster.sim.admission_policies import POLICY_GROUP, compiled
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, StatusError, invalid_value, required, unsupported_value
from muster.sim.rbac import RBAC_GROUP
from muster.sim.selectors import from_label_selector

_POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
_BINDINGS = ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding")
_OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_REASONS = ["Forbidden", "Invalid", "RequestEntityTooLarge"]
_ACTIONS = ["Audit", "Deny", "Warn"]


def defaulted(kind: Kind, obj: Object) -> Object:
    """The object with the defaults of its kind; the same object where nothing is missing."""
    if kind.custom is not None:
        return obj
    if kind.group == RBAC_GROUP and kind.name.endswith("Binding"):
        return _defaulted_binding(obj)
    spec = obj.get("spec")
    if kind.group != POLICY_GROUP or not isinstance(spec, dict):
        return obj
    filled = dict(spec)
    if kind.name in _POLICIES:
        filled.setdefault("failurePolicy", "Fail")
        if isinstance(spec.get("matchConstraints"), dict):
            filled["matchConstraints"] = _defaulted_match(spec["matchConstraints"])
    elif kind.name in _BINDINGS and isinstance(spec.get("matchResources"), dict):
        filled["matchResources"] = _defaulted_match(spec["matchResources"])
    return obj if filled == spec else {**obj, "spec": filled}


def _defaulted_binding(obj: Object) -> Object:
    reference, subjects = obj.get("roleRef"), obj.get("subjects")
    filled = dict(obj)
    if isinstance(reference, dict) and not reference.get("apiGroup"):
        filled["roleRef"] = {**reference, "apiGroup": RBAC_GROUP}
    if isinstance(subjects, list):
        filled["subjects"] = [
            {**subject, "apiGroup": RBAC_GROUP}
            if isinstance(subject, dict) and subject.get("kind") in ("User", "Group") and not subject.get("apiGroup")
            else subject
            for subject in subjects
        ]
    return obj if filled == obj else filled


def _defaulted_match(match: dict[str, Any]) -> dict[str, Any]:
    filled = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent", **match}
    for name in ("resourceRules", "excludeResourceRules"):
        if isinstance(match.get(name), list):
            filled[name] = [{"scope": "*", **rule} if isinstance(rule, dict) else rule for rule in match[name]]
    return filled


def causes_of(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a role, a binding or a policy; nothing for other kinds."""
    if kind.custom is not None:
        return []
    match kind.group, kind.name:
        case "rbac.authorization.k8s.io", ("Role" | "ClusterRole"):
            return _role_causes(kind, obj)
        case "rbac.authorization.k8s.io", ("RoleBinding" | "ClusterRoleBinding"):
            return _role_binding_causes(kind, obj, old)
        case "admissionregistration.k8s.io", name if name in _POLICIES:
            return _policy_causes(kind, obj)
        case "admissionregistration.k8s.io", name if name in _BINDINGS:
            return _policy_binding_causes(kind, obj)
        case _:
            return []


# Roles and their bindings


def _role_causes(kind: Kind, obj: Object) -> list[Cause]:
    rules = obj.get("rules") or []
    if not isinstance(rules, list):
        return [invalid_value("rules", None, "must be a list")]
    causes: list[Cause] = []
    for at, rule in enumerate(rules):
        where = f"rules[{at}]"
        if not isinstance(rule, dict):
            causes.append(invalid_value(where, None, "must be an object"))
            continue
        fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        wrong = [name for name in fields if not _is_strings(rule.get(name))]
        causes += [invalid_value(f"{where}.{name}", None, "must be a list of strings") for name in wrong]
        if not wrong:
            causes += _rule_causes(kind, rule, where)
    return causes


def _is_strings(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _rule_causes(kind: Kind, rule: dict[str, Any], where: str) -> list[Cause]:
    if not rule.get("verbs"):
        return [required(f"{where}.verbs")]
    urls = rule.get("nonResourceURLs")
    if urls:
        if kind.namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            return [invalid_value(f"{where}.nonResourceURLs", urls, detail)]
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            return [invalid_value(f"{where}.nonResourceURLs", urls, detail)]
        return []
    causes = []
    if not rule.get("apiGroups"):
        causes.append(required(f"{where}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(required(f"{where}.resources", "resource rules must supply at least one resource"))
    return causes


def _role_binding_causes(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    reference = obj.get("roleRef")
    reference = reference if isinstance(reference, dict) else {}
    shown = {"APIGroup": reference.get("apiGroup"), "Kind": reference.get("kind"), "Name": reference.get("name")}
    if old is not None and reference != (old.get("roleRef") or {}):
        return [invalid_value("roleRef", shown, "field is immutable")]
    causes: list[Cause] = []
    kinds = ["Role", "ClusterRole"] if kind.namespaced else ["ClusterRole"]
    if reference.get("apiGroup", RBAC_GROUP) != RBAC_GROUP:
        causes.append(unsupported_value("roleRef.apiGroup", reference["apiGroup"], [RBAC_GROUP]))
    if reference.get("kind") not in kinds:
        causes.append(unsupported_value("roleRef.kind", reference.get("kind", ""), kinds))
    if not reference.get("name"):
        causes.append(required("roleRef.name"))
    subjects = obj.get("subjects") or []
    if not isinstance(subjects, list) or not all(isinstance(subject, dict) for subject in subjects):
        return [*causes, invalid_value("subjects", None, "must be a list of objects")]
    for at, subject in enumerate(subjects):
        causes += _subject_causes(kind, subject, f"subjects[{at}]")
    return causes


def _subject_causes(kind: Kind, subject: dict[str, Any], where: str) -> list[Cause]:
    causes: list[Cause] = []
    if not subject.get("name"):
        causes.append(required(f"{where}.name"))
    match subject.get("kind"):
        case "ServiceAccount":
            if subject.get("apiGroup"):
                causes.append(unsupported_value(f"{where}.apiGroup", subject["apiGroup"], [""]))
            if not kind.namespaced and not subject.get("namespace"):
                causes.append(required(f"{where}.namespace"))
        case "User" | "Group":
            if subject.get("apiGroup") != RBAC_GROUP:
                causes.append(unsupported_value(f"{where}.apiGroup", subject.get("apiGroup"), [RBAC_GROUP]))
        case other:
            kinds = ["ServiceAccount", "User", "Group"]
            causes.append(unsupported_value(f"{where}.kind", other or "", kinds))
    return causes


# Policies and their bindings


def _policy_causes(kind: Kind, obj: Object) -> list[Cause]:
    spec = obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    causes: list[Cause] = []
    if spec.get("failurePolicy", "Fail") not in ("Fail", "Ignore"):
        causes.append(unsupported_value("spec.failurePolicy", spec["failurePolicy"], ["Fail", "Ignore"]))
    for name in ("paramKind", "auditAnnotations"):
        if spec.get(name):
            detail = f"the simulated API server does not support {name} of admission policies"
            causes.append(invalid_value(f"spec.{name}", None, detail))
    lists = ("matchConditions", "variables", "validations", "mutations")
    wrong = [name for name in lists if not _is_objects(spec.get(name))]
    if wrong:
        return causes + [invalid_value(f"spec.{name}", None, "must be a list of objects") for name in wrong]
    causes += _match_causes(spec.get("matchConstraints"), "spec.matchConstraints", rules_needed=True)
    for at, condition in enumerate(spec.get("matchConditions") or ()):
        if not condition.get("name"):
            causes.append(required(f"spec.matchConditions[{at}].name"))
    for at, variable in enumerate(spec.get("variables") or ()):
        if not re.fullmatch(r"[A-Za-z_]\w*", str(variable.get("name", ""))):
            detail = "must be a valid CEL identifier"
            causes.append(invalid_value(f"spec.variables[{at}].name", variable.get("name", ""), detail))
    causes += _expression_causes(spec)
    return causes + (_validation_causes(spec) if kind.name == _POLICIES[0] else _mutation_causes(spec))


def _is_objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _expression_causes(spec: dict[str, Any]) -> list[Cause]:
    try:
        _, problems = compiled(msgspec.json.encode(spec))
    except (AttributeError, TypeError) as error:
        return [invalid_value("spec", None, f"is not shaped like the spec of a policy ({error})")]
    return [
        required(f"spec.{path}") if not text else invalid_value(f"spec.{path}", text, detail)
        for path, text, detail in problems
    ]


def _validation_causes(spec: dict[str, Any]) -> list[Cause]:
    validations = spec.get("validations") or []
    detail = "validations or auditAnnotations must contain at least one item"
    causes = [] if validations else [required(f"spec.{name}", detail) for name in ("validations", "auditAnnotations")]
    for at, validation in enumerate(validations):
        where = f"spec.validations[{at}]"
        if "\n" in str(validation.get("message") or "").strip():
            causes.append(invalid_value(f"{where}.message", validation["message"], "must not contain line breaks"))
        if validation.get("reason") not in (None, "", *_REASONS):
            causes.append(unsupported_value(f"{where}.reason", validation["reason"], _REASONS))
    return causes


def _mutation_causes(spec: dict[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    if not spec.get("mutations"):
        causes.append(required("spec.mutations", "mutations must contain at least one item"))
    for at, mutation in enumerate(spec.get("mutations") or ()):
        types = ["ApplyConfiguration", "JSONPatch"]
        if mutation.get("patchType") not in types:
            causes.append(unsupported_value(f"spec.mutations[{at}].patchType", mutation.get("patchType", ""), types))
    policy = spec.get("reinvocationPolicy")
    if not policy:
        causes.append(required("spec.reinvocationPolicy"))
    elif policy not in ("IfNeeded", "Never"):
        causes.append(unsupported_value("spec.reinvocationPolicy", policy, ["IfNeeded", "Never"]))
    return causes


def _match_causes(match: Any, where: str, *, rules_needed: bool) -> list[Cause]:
    if not isinstance(match, dict):
        return [required(where)]
    causes: list[Cause] = []
    if match.get("matchPolicy", "Equivalent") not in ("Equivalent", "Exact"):
        causes.append(unsupported_value(f"{where}.matchPolicy", match["matchPolicy"], ["Equivalent", "Exact"]))
    for name in ("namespaceSelector", "objectSelector"):
        try:
            from_label_selector(match.get(name))
        except (StatusError, AttributeError, TypeError) as error:
            causes.append(invalid_value(f"{where}.{name}", None, str(error)))
    if rules_needed and not match.get("resourceRules"):
        causes.append(required(f"{where}.resourceRules"))
    for name in ("resourceRules", "excludeResourceRules"):
        if not _is_objects(match.get(name)):
            causes.append(invalid_value(f"{where}.{name}", None, "must be a list of objects"))
            continue
        for at, rule in enumerate(match.get(name) or ()):
            causes += _resource_rule_causes(rule, f"{where}.{name}[{at}]")
    return causes


def _resource_rule_causes(rule: dict[str, Any], where: str) -> list[Cause]:
    fields = ("operations", "apiGroups", "apiVersions", "resources", "resourceNames")
    wrong = [name for name in fields if not _is_strings(rule.get(name))]
    if wrong:
        return [invalid_value(f"{where}.{name}", None, "must be a list of strings") for name in wrong]
    causes = [
        unsupported_value(f"{where}.operations[{at}]", operation, _OPERATIONS)
        for at, operation in enumerate(rule.get("operations") or ())
        if operation not in _OPERATIONS
    ]
    causes += [required(f"{where}.{name}") for name in fields[:4] if not rule.get(name)]
    if rule.get("scope", "*") not in ("*", "Cluster", "Namespaced"):
        causes.append(unsupported_value(f"{where}.scope", rule["scope"], ["*", "Cluster", "Namespaced"]))
    return causes


def _policy_binding_causes(kind: Kind, obj: Object) -> list[Cause]:
    spec = obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    causes = [] if spec.get("policyName") else [required("spec.policyName")]
    if spec.get("paramRef"):
        detail = "the simulated API server does not support parameters of admission policies"
        causes.append(invalid_value("spec.paramRef", None, detail))
    if spec.get("matchResources") is not None:
        causes += _match_causes(spec["matchResources"], "spec.matchResources", rules_needed=False)
    if kind.name != _BINDINGS[0]:
        return causes
    actions = spec.get("validationActions")
    if not actions or not _is_strings(actions):
        return [*causes, required("spec.validationActions")]
    for at, action in enumerate(actions):
        if action not in _ACTIONS:
            causes.append(unsupported_value(f"spec.validationActions[{at}]", action, _ACTIONS))
        elif action in actions[:at]:
            where = f"spec.validationActions[{at}]"
            causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{action}"', where))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        causes.append(invalid_value("spec.validationActions", actions, detail))
    return causes
