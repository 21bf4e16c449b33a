"""Answers to reviews: what a client asks about its own rights, about those of others, and about tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.api_status import Cause, StatusError, bad_request, invalid_value, method_not_allowed
from muster.sim.identities import User
from muster.sim.rbac import Attributes
from muster.sim.rbac_grants import resolved
from muster.sim.service_accounts import ISSUER

if TYPE_CHECKING:
    from muster.sim.api_access import Access
    from muster.sim.api_paths import Target
    from muster.sim.store import Store

_AUTHORIZATION = "authorization.k8s.io"


def review(store: Store, access: Access, target: Target, verb: str, body: Any, user: User) -> Object:
    """The answer to a created review. Raises StatusError: 400, 405, 422."""
    if verb != "create":
        raise method_not_allowed("the server does not allow this method on the requested resource")
    asked: Object = {name: value for name, value in (body or {}).items() if name != "status"}
    spec = asked.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    match target.plural:
        case "selfsubjectreviews":
            metadata = {"creationTimestamp": store.timestamp()}
            return _answer(target, asked, metadata, {"userInfo": user.to_json()}, with_spec=False)
        case "selfsubjectaccessreviews":
            return _answer(target, asked, {}, _decided(access, user, spec))
        case "subjectaccessreviews" | "localsubjectaccessreviews":
            metadata = {"namespace": target.namespace} if target.namespace else {}
            return _answer(target, asked, metadata, _decided(access, _subject(spec, target), spec))
        case "selfsubjectrulesreviews":
            return _answer(target, {"spec": {}}, {}, _rules(store, access, user, spec))
        case _:
            return _answer(target, asked, {}, _token(access, spec))


_KINDS = {
    "selfsubjectreviews": "SelfSubjectReview",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "subjectaccessreviews": "SubjectAccessReview",
    "localsubjectaccessreviews": "LocalSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "tokenreviews": "TokenReview",
}


def _answer(
    target: Target, asked: Object, metadata: dict[str, Any], status: dict[str, Any], *, with_spec: bool = True
) -> Object:
    head = {"kind": _KINDS[target.plural], "apiVersion": f"{target.group}/{target.version}"}
    sent = asked.get("metadata") if isinstance(asked.get("metadata"), dict) else {}
    spec = {"spec": asked.get("spec") or {}} if with_spec else {}
    return {**head, "metadata": {**(sent or {}), **metadata}, **spec, "status": status}


def _decided(access: Access, user: User, spec: dict[str, Any]) -> dict[str, Any]:
    found = access.decide(user, _attributes(spec))
    # A real server says where a refusal comes from, an admission from where it was granted.
    reason = found.reason if found.allowed or not found.reason else f"rbac: {found.reason}"
    return {"allowed": found.allowed, **({"reason": reason} if reason else {})}


def _attributes(spec: dict[str, Any]) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid(invalid_value("spec", None, detail))
    asked = resource if resource is not None else path
    if not isinstance(asked, dict) or not all(isinstance(value, str) for value in asked.values()):
        raise bad_request("the attributes of an access review must be strings")
    if path is not None:
        return Attributes(asked.get("verb", ""), path=asked.get("path", "") or "/")
    return Attributes(
        verb=asked.get("verb", ""),
        group=asked.get("group", ""),
        resource=asked.get("resource", ""),
        subresource=asked.get("subresource", ""),
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
    )


def _subject(spec: dict[str, Any], target: Target) -> User:
    name, groups, extra = spec.get("user") or "", spec.get("groups") or [], spec.get("extra") or {}
    if not name and not groups:
        raise _invalid(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    if not isinstance(name, str) or not isinstance(groups, list) or not isinstance(extra, dict):
        raise bad_request("an access review needs spec.user as a string, spec.groups as a list, spec.extra as a map")
    attributes = spec.get("resourceAttributes")
    if target.namespace and (not isinstance(attributes, dict) or attributes.get("namespace") != target.namespace):
        raise bad_request("spec.resourceAttributes.namespace must match namespace: " + target.namespace)
    return User(name, tuple(map(str, groups)), str(spec.get("uid") or ""))


def _rules(store: Store, access: Access, user: User, spec: dict[str, Any]) -> dict[str, Any]:
    namespace = spec.get("namespace")
    if not isinstance(namespace, str) or not namespace:
        raise bad_request("no namespace on request")
    rules, missing = resolved(store, user, namespace)
    status: dict[str, Any] = {
        "resourceRules": [rule.to_json() for rule in rules if not rule.urls],
        "nonResourceRules": [rule.to_json() for rule in rules if rule.urls],
        "incomplete": any(denial.user in ("*", user.name) for denial in access.denials),
    }
    if missing:
        status["evaluationError"] = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
    return status


def _token(access: Access, spec: dict[str, Any]) -> dict[str, Any]:
    token, audiences = spec.get("token"), spec.get("audiences") or [ISSUER]
    if not isinstance(token, str) or not token:
        raise bad_request("token is required for TokenReview in authentication")
    if not isinstance(audiences, list):
        raise bad_request("spec.audiences must be a list of strings")
    for audience in audiences:
        user = access.user_of_token(token, str(audience))
        if user is not None:
            return {"authenticated": True, "user": user.to_json(), "audiences": [audience]}
    return {"user": {}, "error": "invalid bearer token"}


def _invalid(cause: Cause) -> StatusError:
    message = f'.{_AUTHORIZATION} "" is invalid: {cause.field}: {cause.message}'
    return StatusError(422, "Invalid", message, group=_AUTHORIZATION, causes=(cause,))
