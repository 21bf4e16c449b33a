"""The end of a namespace: first its pods go, then everything else in it, then the namespace itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.kube.api import EventType, Object
from muster.sim.api_kinds import Kind
from muster.sim.api_status import conflict, forbidden
from muster.sim.history import Change, Version

if TYPE_CHECKING:
    from muster.sim.store import Store

PROTECTED = ("default", "kube-public", "kube-system")
_NO_LEFTOVERS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The conditions that a namespace controller writes, as they read when nothing is in the way."""


def refuse_protected(name: str) -> None:
    """Raises StatusError 403 for the namespaces that a cluster cannot lose."""
    if name in PROTECTED:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")


def check_preconditions(namespace: Object, uid: str, resource_version: str) -> None:
    """Raises StatusError 409. Namespaces word it in their own way."""
    metadata = namespace["metadata"]
    for what, wanted, found in (
        ("UID", uid, metadata["uid"]),
        ("ResourceVersion", resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            raise conflict("namespaces", "", metadata["name"], why)


def terminating(store: Store, namespace: Object, finalizers: list[str]) -> Object:
    """The namespace as it begins to end."""
    metadata = {name: value for name, value in namespace["metadata"].items() if name != "finalizers"}
    metadata["deletionTimestamp"] = store.timestamp()
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**namespace, "metadata": metadata, "status": {**namespace.get("status", {}), "phase": "Terminating"}}


def react(store: Store, kind: Kind, change: Change) -> None:
    """Empty a namespace that begins to end; go on with it when something in it is gone or holds out."""
    if kind.plural == "namespaces" and not kind.group:
        if change.type is not EventType.DELETED and "deletionTimestamp" in change.current.obj["metadata"]:
            begun = change.previous is None or "deletionTimestamp" not in change.previous.obj["metadata"]
            if begun:
                go_on(store, change.key[1])
    elif kind.namespaced and change.type is EventType.DELETED and not store.storage(kind).keys(change.key[0]):
        # Only the last of its kind: going on after every object would call itself once for each of them.
        go_on(store, change.key[0])


def go_on(store: Store, namespace: str) -> None:
    """Take the next steps towards the end of a terminating namespace. Does nothing for any other."""
    kind = store.registry_kind("", "v1", "namespaces")
    version = store.find(kind, ("", namespace))
    if version is None or "deletionTimestamp" not in version.obj["metadata"]:
        return
    if not version.obj.get("spec", {}).get("finalizers"):
        return
    pods = [kind for kind in store.registry.all() if kind.storage == "pods"]
    if not _emptied(store, pods, namespace):
        _tell(store, namespace)
        return
    others = [kind for kind in store.registry.all() if kind.namespaced and kind.storage != "pods"]
    if not _emptied(store, others, namespace):
        _tell(store, namespace)
        return
    _finalize(store, kind, namespace)


def _emptied(store: Store, kinds: list[Kind], namespace: str) -> bool:
    """Delete all objects of these kinds. Whether none is left."""
    from muster.sim.api_deletion import DeleteOptions, delete

    for kind in kinds:
        storage = store.storage_named(kind.storage)
        for key in storage.keys(namespace) if storage is not None else ():
            found = store.find(kind, key)
            if found is not None and "deletionTimestamp" not in found.obj["metadata"]:
                delete(store, kind, key[1], key[0], DeleteOptions(propagation="Background"))
    storages = [store.storage_named(kind.storage) for kind in kinds]
    return not any(storage.keys(namespace) for storage in storages if storage is not None)


def _finalize(store: Store, kind: Kind, namespace: str) -> None:
    """Take the server's own finalizer off the spec; the namespace goes unless others hold it."""
    from muster.sim.api_deletion import ready_to_go

    version = store.find(kind, ("", namespace))
    if version is None or not version.obj.get("spec", {}).get("finalizers"):
        return
    spec = {name: value for name, value in version.obj["spec"].items() if name != "finalizers"}
    finalized = {**version.obj, "spec": spec}
    if ready_to_go(finalized):
        store.remove(kind, ("", namespace))
    else:
        store.commit(kind, ("", namespace), finalized, version.managers)


def _tell(store: Store, namespace: str) -> None:
    """Say in the namespace's conditions what is left in it and what it waits for."""
    kind = store.registry_kind("", "v1", "namespaces")
    version = store.find(kind, ("", namespace))
    if version is None:
        return
    status = version.obj.get("status", {})
    wanted = _conditions(store, namespace)
    told = [(c["type"], c["status"], c["message"]) for c in status.get("conditions") or []]
    if [(c["type"], c["status"], c["message"]) for c in wanted] == told:
        return
    obj = {**version.obj, "status": {**status, "conditions": wanted}}
    store.commit(kind, ("", namespace), obj, version.managers)


def _conditions(store: Store, namespace: str) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    for kind, found in _contents(store, namespace):
        name = f"{kind.plural}.{kind.group}"
        counts[name] = counts.get(name, 0) + 1
        for finalizer in found.obj["metadata"].get("finalizers") or []:
            finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    said = dict(_NO_LEFTOVERS)
    if counts:
        left = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(counts.items()))
        said["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {left}")
    if finalizers:
        left = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        text = f"Some content in the namespace has finalizers remaining: {left}"
        said["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
    return [
        {
            "type": name,
            "status": "False" if (reason, message) == _NO_LEFTOVERS[name] else "True",
            "lastTransitionTime": store.timestamp(),
            "reason": reason,
            "message": message,
        }
        for name, (reason, message) in said.items()
    ]


def _contents(store: Store, namespace: str) -> list[tuple[Kind, Version]]:
    """Everything in the namespace, each object once though several versions of its kind may be served."""
    found: list[tuple[Kind, Version]] = []
    seen: list[str] = []
    for kind in store.registry.all():
        storage = store.storage_named(kind.storage)
        if not kind.namespaced or storage is None or kind.storage in seen:
            continue
        seen.append(kind.storage)
        found += [(kind, storage.objects[key]) for key in storage.keys(namespace)]
    return found
