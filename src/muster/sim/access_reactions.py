"""What follows from a change in the matters of access: default service accounts and aggregated roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.kube.api import EventType
from muster.sim.api_kinds import Kind
from muster.sim.history import Change

if TYPE_CHECKING:
    from muster.sim.store import Store

DEFAULT_ACCOUNT = "default"


def react(store: Store, kind: Kind, change: Change) -> None:
    """A real cluster does this in controllers a moment later; here it follows the change at once."""
    match kind.plural:
        case "namespaces" if change.type is EventType.ADDED:
            _make_default_account(store, change.key[1])
        case "serviceaccounts" if change.type is EventType.DELETED and change.key[1] == DEFAULT_ACCOUNT:
            _make_default_account(store, change.key[0])
        case "clusterroles" if kind.group == "rbac.authorization.k8s.io":
            aggregate_roles(store, kind)
        case _:
            pass


def _make_default_account(store: Store, namespace: str) -> None:
    from muster.sim.store import WriteOptions

    found = store.find(store.registry_kind("", "v1", "namespaces"), ("", namespace))
    accounts = store.registry_kind("", "v1", "serviceaccounts")
    if found is None or "deletionTimestamp" in found.obj["metadata"]:
        return
    if store.find(accounts, (namespace, DEFAULT_ACCOUNT)) is None:
        options = WriteOptions(manager="kube-controller-manager")
        store.create(accounts, {"metadata": {"name": DEFAULT_ACCOUNT}}, namespace, options)


def aggregate_roles(store: Store, kind: Kind) -> None:
    """Write the rules of every aggregated role anew where they differ."""
    from muster.sim.rbac import aggregated_rules
    from muster.sim.store import WriteOptions

    storage = store.storage(kind)
    roles = [storage.objects[key].obj for key in storage.keys("")]
    for role in roles:
        rules = aggregated_rules(role, roles)
        if rules is not None and rules != (role.get("rules") or []):
            options = WriteOptions(manager="clusterrole-aggregation-controller")
            name = role["metadata"]["name"]
            found = store.find(kind, ("", name))
            if found is not None:
                store.update(kind, name, {**found.obj, "rules": rules}, options=options)
            return  # this change leads here again
