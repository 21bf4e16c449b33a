"""Role-based access control over a store: who holds which rights there, and who may hand them on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_status import forbidden, not_found
from muster.sim.identities import User
from muster.sim.rbac import RBAC_GROUP, Attributes, Decision, Grant, Rule, decide, grants_of, not_covered, rules_of

if TYPE_CHECKING:
    from muster.sim.store import Store

_EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), urls=("*",)))


def grants(store: Store, user: User, namespace: str) -> list[Grant]:
    """What the bindings in a store give to a user cluster-wide and (unless "") in one namespace."""
    cluster = _stored(store, "clusterrolebindings", "")
    local = _stored(store, "rolebindings", namespace) if namespace else []

    def role_of(kind: str, where: str, name: str) -> Object | None:
        plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(kind)
        storage = store.storage_named(f"{plural}.{RBAC_GROUP}") if plural else None
        found = storage.objects.get((where, name)) if storage is not None else None
        return None if found is None else found.obj

    return grants_of(user, cluster, local, role_of)


def _stored(store: Store, plural: str, namespace: str) -> list[Object]:
    storage = store.storage_named(f"{plural}.{RBAC_GROUP}")
    return [storage.objects[key].obj for key in storage.keys(namespace)] if storage is not None else []


def decision(store: Store, user: User, asked: Attributes) -> Decision:
    """Whether a user may do what is asked."""
    if user.unrestricted:
        return Decision(True)
    return decide(grants(store, user, asked.namespace), asked)


def check_escalation(store: Store, kind: Kind, obj: Object, user: User) -> None:
    """Raise StatusError 403 when a role or binding would grant rights that its writer does not hold."""
    if kind.group != RBAC_GROUP or kind.custom is not None or user.unrestricted:
        return
    metadata = obj["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    if kind.name.endswith("Binding"):
        reference = obj.get("roleRef") or {}
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        if decision(store, user, _on_role("bind", plural, namespace, str(reference.get("name")))).allowed:
            return
        wanted = rules_of(_referenced(store, kind, reference, namespace))
    else:
        if decision(store, user, _on_role("escalate", kind.plural, namespace, name)).allowed:
            return
        wanted = rules_of(obj)
    held = grants(store, user, namespace)
    owned = [rule for grant in held for rule in grant.rules]
    if obj.get("aggregationRule") and not_covered(owned, _EVERYTHING):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(kind.plural, kind.group, name, why)
    missing = not_covered(owned, wanted)
    if missing:
        raise forbidden(kind.plural, kind.group, name, _refusal(user, missing, held))


def _on_role(verb: str, plural: str, namespace: str, name: str) -> Attributes:
    return Attributes(verb, RBAC_GROUP, plural, "", namespace, name)


def _referenced(store: Store, kind: Kind, reference: Object, namespace: str) -> Object:
    plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
    storage = store.storage_named(f"{plural}.{RBAC_GROUP}")
    key = (namespace if plural == "roles" else "", str(reference.get("name")))
    found = storage.objects.get(key) if storage is not None else None
    if found is None:
        # A real server names the binding's resource and the role's name.
        raise not_found(kind.plural, kind.group, key[1])
    return found.obj


def _refusal(user: User, missing: list[Rule], held: list[Grant]) -> str:
    groups = " ".join(map(json.dumps, user.groups))
    lines = "\n".join(map(str, missing))
    # Here a real server names the resource (roles), elsewhere the kind (role).
    absent = [grant.missing.replace(".", "s.", 1) for grant in held if grant.missing]
    errors = f"; resolution errors: [{', '.join(absent)}]" if absent else ""
    return (
        f"user {json.dumps(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently "
        f"held:\n{lines}{errors}"
    )


def resolved(store: Store, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
    """All rules that a user holds, and the roles that bindings name in vain. For rules reviews."""
    held = grants(store, user, namespace)
    rules = [rule for grant in held for rule in grant.rules]
    if user.unrestricted:
        rules = [*_EVERYTHING, *(rule for rule in rules if rule not in _EVERYTHING)]
    return rules, [grant.missing for grant in held if grant.missing]
