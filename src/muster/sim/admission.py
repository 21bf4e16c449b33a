"""What admission does with a write before it is stored: refuse it, change it, or warn about it.

Admission policies concern everybody, also clients in process. Handing on rights that one does not hold is refused
only to clients who are known by a token; clients in process are trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from muster.kube.api import Object
from muster.sim.admission_cel import EvaluationError
from muster.sim.admission_mutations import MutationError, mutated
from muster.sim.admission_policies import (
    POLICY_GROUP,
    Attempt,
    Evaluation,
    Policy,
    bound,
    code_of,
    compiled,
    concerns,
    denial,
    findings,
    warning,
)
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, StatusError, forbidden
from muster.sim.identities import trusted
from muster.sim.rbac_grants import check_escalation

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

_VALIDATING, _MUTATING = "validatingadmissionpolic", "mutatingadmissionpolic"
_ENDS = ("ies", "ybindings")


def mutate(
    store: Store, kind: Kind, obj: Object, old: Object | None, options: WriteOptions, subresource: str = ""
) -> Object:
    """The object as mutating policies leave it; the same object when none applies.

    `old` None: it is new. Raises StatusError when a policy that fails closed cannot be carried out.
    """
    pairs = _policies(store, kind, _MUTATING)
    for name, binding, policy, narrowed in pairs:
        attempt = _attempt(store, kind, obj, old, options, subresource)
        if not concerns(policy.match, attempt) or not (narrowed is None or concerns(narrowed, attempt)):
            continue
        try:
            evaluation = Evaluation(policy, attempt)
            if not evaluation.applies():
                continue
            for mutation in policy.mutations:
                obj = mutated(evaluation, mutation, obj, kind.shape, kind.top)
                evaluation = Evaluation(policy, replace(attempt, obj=obj))
        except (EvaluationError, MutationError) as error:
            if policy.fail_closed:
                text = f"policy '{name}' with binding '{binding}' denied request: {error}"
                raise StatusError(
                    403, "Invalid", text, attempt.name, kind.group, kind.plural, causes=(_told(text),)
                ) from None
    return obj


def validate(
    store: Store,
    kind: Kind,
    obj: Object | None,
    old: Object | None,
    options: WriteOptions,
    subresource: str = "",
    *,
    named: bool = True,
) -> None:
    """Raise StatusError for a write that admission refuses; `obj` None: a deletion.

    `named`: the request names the object; deleting a collection names none.
    """
    if obj is not None and options.identity is not None:
        check_escalation(store, kind, obj, options.identity)
    pairs = _policies(store, kind, _VALIDATING)
    if not pairs:
        return
    attempt = _attempt(store, kind, obj, old, options, subresource)
    if not named:
        attempt = replace(attempt, name="")
    denied: StatusError | None = None
    for name, binding, policy, narrowed in pairs:
        if not concerns(policy.match, attempt) or not (narrowed is None or concerns(narrowed, attempt)):
            continue
        actions = _actions(store, binding)
        for finding in findings(policy, attempt):
            if "Warn" in actions:
                options.warnings.append(warning(name, binding, finding))
            if "Deny" in actions and denied is None:
                text = denial(name, binding, finding)
                refusal = forbidden(kind.plural, kind.group, attempt.name or "Unknown", text)
                denied = replace(refusal, code=code_of(finding.reason), reason=finding.reason, causes=(_told(text),))
    if denied is not None:
        raise denied


@dataclass(frozen=True)
class _Told(Cause):
    """What a policy says. A real server gives it no reason."""

    def to_json(self) -> dict[str, str]:
        return {"message": self.message}


def _told(text: str) -> Cause:
    return _Told("", text)


Found = tuple[str, str, Policy, dict[str, object] | None]
"""Names of policy and binding, the policy, and what the binding narrows it to."""


def _policies(store: Store, kind: Kind, which: str) -> list[Found]:
    """Every bound policy, by name. Policies never concern policies and their bindings."""
    if kind.group == POLICY_GROUP and kind.custom is None:
        return []
    policies, bindings = (_stored(store, f"{which}{end}.{POLICY_GROUP}") for end in _ENDS)
    if not policies or not bindings:
        return []
    found: list[Found] = []
    for policy in sorted(policies, key=lambda obj: str(obj["metadata"]["name"])):
        name = policy["metadata"]["name"]
        ready, problems = compiled(msgspec.json.encode(policy.get("spec") or {}))
        if problems:  # refused when it was written, so never here
            continue
        for binding in bound(bindings, name):
            narrowed = (binding.get("spec") or {}).get("matchResources")
            found.append((name, binding["metadata"]["name"], ready, narrowed))
    return found


def _stored(store: Store, storage_name: str) -> list[Object]:
    storage = store.storage_named(storage_name)
    return [storage.objects[key].obj for key in storage.keys("")] if storage is not None else []


def _actions(store: Store, binding: str) -> tuple[str, ...]:
    for obj in _stored(store, f"{_VALIDATING}{_ENDS[1]}.{POLICY_GROUP}"):
        if obj["metadata"]["name"] == binding:
            return tuple((obj.get("spec") or {}).get("validationActions") or ())
    return ()


def _attempt(
    store: Store, kind: Kind, obj: Object | None, old: Object | None, options: WriteOptions, subresource: str
) -> Attempt:
    metadata = (obj or old or {}).get("metadata") or {}
    namespace = str(metadata.get("namespace") or "") if kind.namespaced else ""
    around = None
    if namespace:
        found = store.find(store.registry_kind("", "v1", "namespaces"), ("", namespace))
        around = None if found is None else _typed(store.registry_kind("", "v1", "namespaces"), found.obj)
    operation = "DELETE" if obj is None else "CREATE" if old is None else "UPDATE"
    return Attempt(
        operation=operation,
        group=kind.group,
        version=kind.resource.version,
        resource=kind.plural,
        kind=kind.name,
        subresource=subresource,
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("name") or "") if kind.plural == "namespaces" and not kind.group else namespace,
        obj=None if obj is None else _typed(kind, obj),
        old=None if old is None else _typed(kind, old),
        user=options.identity or trusted(options.user),
        dry_run=options.dry_run,
        namespace_object=around,
    )


def _typed(kind: Kind, obj: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.name, **obj}
