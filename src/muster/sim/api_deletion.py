"""Deletion: grace periods, finalizers, preconditions, propagation, namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListOptions, ListResult, list_objects
from muster.sim.api_status import StatusError, bad_request, conflict, forbidden
from muster.sim.history import Key, Version

if TYPE_CHECKING:
    from muster.sim.store import Store

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_DEFAULT_POD_GRACE_S = 30
_PROTECTED_NAMESPACES = ("default", "kube-public", "kube-system")


@dataclass(frozen=True)
class DeleteOptions:
    """`grace_period_s` None takes the object's own. `propagation`: Background, Foreground or Orphan."""

    grace_period_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = "Background"
    dry_run: bool = False


def delete(store: Store, kind: Kind, name: str, namespace: str, options: DeleteOptions) -> tuple[Version, bool]:
    """Delete one object. Returns its last version, and whether it is gone (otherwise it is terminating)."""
    version = store.get(kind, name, namespace)
    key: Key = (namespace if kind.namespaced else "", name)
    _check(kind, name, version, options)
    if kind.plural == "namespaces" and name in _PROTECTED_NAMESPACES:
        raise forbidden(kind.plural, kind.group, name, "this namespace may not be deleted")
    grace_s = _grace_s(kind, version.obj, options)
    metadata = version.obj["metadata"]
    finalizers = _finalizers(metadata, options.propagation)
    waits = bool(finalizers) or (kind.plural == "namespaces" and not kind.custom)
    if grace_s == 0 and not waits:
        return (version, True) if options.dry_run else (store.remove(kind, key), True)
    marked = _marked(store, version.obj, grace_s, finalizers)
    if marked is version.obj or options.dry_run:
        return version, False
    if kind.plural == "namespaces":
        marked = {**marked, "status": {**marked.get("status", {}), "phase": "Terminating"}}
    committed = store.commit(kind, key, marked, version.managers)
    _propagate(store, kind, key)
    current = store.find(kind, key)
    return (current, False) if current is not None else (committed, True)


def _check(kind: Kind, name: str, version: Version, options: DeleteOptions) -> None:
    metadata = version.obj["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
        raise conflict(kind.plural, kind.group, name, why)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise conflict(kind.plural, kind.group, name, why)
    if options.propagation not in ("Background", "Foreground", "Orphan"):
        raise bad_request(f"propagationPolicy {options.propagation!r} is not Background, Foreground or Orphan")
    if options.grace_period_s is not None and options.grace_period_s < -1:
        raise bad_request(f"gracePeriodSeconds {options.grace_period_s} must not be negative")


def _grace_s(kind: Kind, obj: Object, options: DeleteOptions) -> int:
    """Only pods that are bound to a node and have not finished end gracefully."""
    if kind.plural != "pods" or kind.group:
        return 0
    spec = obj.get("spec", {})
    if not spec.get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_s is not None and options.grace_period_s >= 0:
        return options.grace_period_s
    return int(spec.get("terminationGracePeriodSeconds", _DEFAULT_POD_GRACE_S))


def _finalizers(metadata: dict[str, Any], propagation: str) -> list[str]:
    kept = [f for f in metadata.get("finalizers") or [] if f not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if propagation == "Foreground":
        kept.append(FOREGROUND_FINALIZER)
    elif propagation == "Orphan":
        kept.append(ORPHAN_FINALIZER)
    return kept


def _marked(store: Store, obj: Object, grace_s: int, finalizers: list[str]) -> Object:
    """`obj` as terminating; the same object when it already is, with these finalizers and no longer grace."""
    metadata = obj["metadata"]
    before_s = metadata.get("deletionGracePeriodSeconds")
    same_finalizers = (metadata.get("finalizers") or []) == finalizers
    if before_s is not None and grace_s >= before_s:
        if same_finalizers:
            return obj
        grace_s = before_s
    if before_s is None:
        requested = store.now()
    else:
        requested = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=before_s)
    metadata = {
        **metadata,
        "deletionTimestamp": store.timestamp(requested + timedelta(seconds=grace_s)),
        "deletionGracePeriodSeconds": grace_s,
    }
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**obj, "metadata": metadata}


def _propagate(store: Store, kind: Kind, key: Key) -> None:
    version = store.find(kind, key)
    if version is None:
        return
    finalizers = version.obj["metadata"].get("finalizers") or []
    uid = version.obj["metadata"]["uid"]
    if ORPHAN_FINALIZER in finalizers:
        for dependent, where in store.owners.dependents_of(uid):
            _disown(store, dependent, where, uid)
        drop_finalizer(store, kind, key, ORPHAN_FINALIZER)
    elif FOREGROUND_FINALIZER in finalizers:
        for dependent, where in store.owners.dependents_of(uid):
            found = store.find(dependent, where)
            if found is not None and "deletionTimestamp" not in found.obj["metadata"]:
                delete(store, dependent, where[1], where[0], DeleteOptions(propagation="Foreground"))
        finish_foreground(store, kind, key)
    if kind.plural == "namespaces" and not kind.custom:
        _empty_namespace(store, key[1])


def _disown(store: Store, kind: Kind, key: Key, owner_uid: str) -> None:
    version = store.find(kind, key)
    if version is None:
        return
    metadata = dict(version.obj["metadata"])
    left = [owner for owner in metadata.get("ownerReferences") or [] if owner["uid"] != owner_uid]
    metadata.pop("ownerReferences", None)
    if left:
        metadata["ownerReferences"] = left
    store.commit(kind, key, {**version.obj, "metadata": metadata}, version.managers)


def drop_finalizer(store: Store, kind: Kind, key: Key, finalizer: str) -> None:
    """Take a finalizer of the server's own off; the object goes when it was the last."""
    version = store.find(kind, key)
    if version is None:
        return
    metadata = dict(version.obj["metadata"])
    left = [name for name in metadata.get("finalizers") or [] if name != finalizer]
    metadata.pop("finalizers", None)
    if left:
        metadata["finalizers"] = left
    obj = {**version.obj, "metadata": metadata}
    if ready_to_go(obj):
        store.remove(kind, key, obj)
    else:
        store.commit(kind, key, obj, version.managers)


def ready_to_go(obj: Object) -> bool:
    """Whether a terminating object has nothing left to wait for."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and "kubernetes" not in (obj.get("spec") or {}).get("finalizers", ())
    )


def finish_foreground(store: Store, kind: Kind, key: Key) -> None:
    """Let an owner in foreground deletion go once no dependent blocks it."""
    version = store.find(kind, key)
    if version is None or FOREGROUND_FINALIZER not in (version.obj["metadata"].get("finalizers") or []):
        return
    uid = version.obj["metadata"]["uid"]
    for dependent, where in store.owners.dependents_of(uid):
        found = store.find(dependent, where)
        owners = found.obj["metadata"].get("ownerReferences", []) if found is not None else []
        if any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners):
            return
    drop_finalizer(store, kind, key, FOREGROUND_FINALIZER)


def _empty_namespace(store: Store, namespace: str) -> None:
    for kind in store.registry.all():
        storage = store.storage_named(kind.storage)
        if storage is None or not kind.namespaced:
            continue
        for key in storage.keys(namespace):
            found = storage.objects.get(key)
            if found is not None and "deletionTimestamp" not in found.obj["metadata"]:
                delete(store, kind, key[1], key[0], DeleteOptions())
    finish_namespace(store, namespace)


def finish_namespace(store: Store, namespace: str) -> None:
    """Remove a terminating namespace once it is empty."""
    kind = store.registry_kind("", "v1", "namespaces")
    version = store.find(kind, ("", namespace))
    if version is None or "deletionTimestamp" not in version.obj["metadata"]:
        return
    for other in store.registry.all():
        storage = store.storage_named(other.storage)
        if other.namespaced and storage is not None and storage.keys(namespace):
            return
    spec = {name: value for name, value in version.obj.get("spec", {}).items() if name != "finalizers"}
    emptied = {**version.obj, "spec": spec}
    if ready_to_go(emptied):
        store.remove(kind, ("", namespace), emptied)


def delete_collection(
    store: Store, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
) -> ListResult:
    """Delete everything that a list would show. Returns what was there."""
    found = list_objects(store, kind, namespace, selection)
    for version in found.items:
        metadata = version.obj["metadata"]
        try:
            delete(store, kind, metadata["name"], metadata.get("namespace", ""), options)
        except StatusError as error:
            if error.code != 404:
                raise
    return found
