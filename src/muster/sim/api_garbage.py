"""The garbage collector: what becomes of objects whose owners go, in the background, the foreground or as orphans."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from muster.kube.api import EventType, Object
from muster.sim.api_deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeleteOptions, delete, drop_finalizer
from muster.sim.api_kinds import Kind
from muster.sim.history import Change, Key, Version

if TYPE_CHECKING:
    from muster.sim.store import Store

Place = tuple[str, Key]
"""Storage and key of an object."""


class OwnerIndex:
    """Where each uid lives, and who names it as an owner."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[Kind, Key]] = {}
        self.dependents: dict[str, dict[Place, Kind]] = {}

    def update(self, kind: Kind, change: Change) -> None:
        uid = change.current.obj["metadata"]["uid"]
        place = (kind.storage, change.key)
        before = owners_of(change.previous.obj) if change.previous is not None else ()
        after = () if change.type is EventType.DELETED else owners_of(change.current.obj)
        for owner in before:
            if owner not in after and owner in self.dependents:
                self.dependents[owner].pop(place, None)
                if not self.dependents[owner]:
                    del self.dependents[owner]
        for owner in after:
            if owner not in before:
                self.dependents.setdefault(owner, {})[place] = kind
        if change.type is EventType.DELETED:
            self.places.pop(uid, None)
        elif change.type is EventType.ADDED:
            self.places[uid] = (kind, change.key)

    def dependents_of(self, uid: str) -> list[tuple[Kind, Key]]:
        """Objects that name `uid` as an owner, in the order in which they began to."""
        return [(kind, key) for (_, key), kind in self.dependents.get(uid, {}).items()]


class Owner(Enum):
    """What an owner reference points to. UNKNOWN: the collector cannot look it up and leaves the object alone."""

    SOLID = "solid"
    DANGLING = "dangling"
    WAITING = "waiting"
    UNKNOWN = "unknown"


def owners_of(obj: Object) -> tuple[str, ...]:
    """The uids of an object's owners."""
    return tuple(owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ())


def react(store: Store, kind: Kind, change: Change) -> None:
    """Collect what a change leaves without an owner."""
    store.owners.update(kind, change)
    uid = change.current.obj["metadata"]["uid"]
    if change.type is EventType.DELETED:
        for dependent, key in store.owners.dependents_of(uid):
            collect(store, dependent, key)
        _look_at_owners(store, change)
        return
    for finalizer, act in ((ORPHAN_FINALIZER, _orphan), (FOREGROUND_FINALIZER, _begin_foreground)):
        if _waits_for(change.current.obj, finalizer) and not (
            change.previous is not None and _waits_for(change.previous.obj, finalizer)
        ):
            act(store, kind, change.key, uid)
            return
    if change.current.obj["metadata"].get("ownerReferences"):
        collect(store, kind, change.key)
    if change.previous is not None and _references(change.previous.obj) != _references(change.current.obj):
        _look_at_owners(store, change)


def _references(obj: Object) -> list[dict[str, Any]]:
    return obj["metadata"].get("ownerReferences") or []


def _waits_for(obj: Object, finalizer: str) -> bool:
    metadata = obj["metadata"]
    return "deletionTimestamp" in metadata and finalizer in (metadata.get("finalizers") or [])


def _look_at_owners(store: Store, change: Change) -> None:
    """Owners that wait for their dependents may be free to go after a dependent was deleted or let go."""
    uids = owners_of(change.current.obj) + (owners_of(change.previous.obj) if change.previous is not None else ())
    for uid in dict.fromkeys(uids):
        place = store.owners.places.get(uid)
        if place is not None:
            _finish_foreground(store, *place)


# One object


def collect(store: Store, kind: Kind, key: Key) -> None:
    """Delete an object none of whose owners is left; otherwise drop the references to those that are gone."""
    version = store.find(kind, key)
    if version is None:
        return
    metadata = version.obj["metadata"]
    if "deletionTimestamp" in metadata:
        _finish_foreground(store, kind, key)
        return
    references = _references(version.obj)
    found = [_owner(store, kind, key, reference) for reference in references]
    if Owner.UNKNOWN in found or all(owner is Owner.SOLID for owner in found):
        return
    if Owner.SOLID in found:
        kept = [reference for reference, owner in zip(references, found, strict=True) if owner is Owner.SOLID]
        _write_references(store, kind, key, kept)
        return
    dependents = store.owners.dependents_of(metadata["uid"])
    if Owner.WAITING in found and dependents:
        if any(_waits_for(store.storage(k).objects[at].obj, FOREGROUND_FINALIZER) for k, at in dependents):
            # Objects that own each other: without this neither would ever go.
            freed = [{**reference, "blockOwnerDeletion": False} for reference in references]
            _write_references(store, kind, key, freed)
        _delete(store, kind, key, "Foreground")
        return
    finalizers = metadata.get("finalizers") or []
    policy = "Foreground" if FOREGROUND_FINALIZER in finalizers else "Background"
    _delete(store, kind, key, "Orphan" if ORPHAN_FINALIZER in finalizers else policy)


def _owner(store: Store, kind: Kind, key: Key, reference: dict[str, Any]) -> Owner:
    """Look an owner up as the collector does: by kind and name in the dependent's own namespace, then by uid."""
    api_version, name = str(reference.get("apiVersion")), str(reference.get("kind"))
    known, _ = store.owners.places.get(reference["uid"], (None, key))
    if known is not None and (known.api_version, known.name) == (api_version, name):
        owner_kind: Kind | None = known
    else:
        owner_kind = store.registry.by_kind(api_version, name)
    if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
        return Owner.UNKNOWN
    where: Key = (key[0] if owner_kind.namespaced else "", str(reference.get("name")))
    found = store.find(owner_kind, where)
    if found is None or found.obj["metadata"]["uid"] != reference["uid"]:
        return Owner.DANGLING
    return Owner.WAITING if _waits_for(found.obj, FOREGROUND_FINALIZER) else Owner.SOLID


def _delete(store: Store, kind: Kind, key: Key, propagation: str) -> None:
    if store.find(kind, key) is not None:
        delete(store, kind, key[1], key[0], DeleteOptions(propagation=propagation))


def _write_references(store: Store, kind: Kind, key: Key, references: list[dict[str, Any]]) -> None:
    version = store.find(kind, key)
    if version is None or _references(version.obj) == references:
        return
    metadata = {name: value for name, value in version.obj["metadata"].items() if name != "ownerReferences"}
    if references:
        metadata["ownerReferences"] = references
    store.commit(kind, key, {**version.obj, "metadata": metadata}, version.managers)


# Owners that go in the foreground, or leave orphans


def _orphan(store: Store, kind: Kind, key: Key, uid: str) -> None:
    for dependent, where in store.owners.dependents_of(uid):
        found = store.find(dependent, where)
        if found is not None:
            kept = [reference for reference in _references(found.obj) if reference["uid"] != uid]
            _write_references(store, dependent, where, kept)
    drop_finalizer(store, kind, key, ORPHAN_FINALIZER)


def _begin_foreground(store: Store, kind: Kind, key: Key, uid: str) -> None:
    for dependent, where in store.owners.dependents_of(uid):
        collect(store, dependent, where)
    _finish_foreground(store, kind, key)


def _finish_foreground(store: Store, kind: Kind, key: Key) -> None:
    """Let an owner in foreground deletion go once no dependent blocks it."""
    version = store.find(kind, key)
    if version is None or not _waits_for(version.obj, FOREGROUND_FINALIZER):
        return
    uid = version.obj["metadata"]["uid"]
    if not any(_blocks(store.find(dependent, where), uid) for dependent, where in store.owners.dependents_of(uid)):
        drop_finalizer(store, kind, key, FOREGROUND_FINALIZER)


def _blocks(dependent: Version | None, uid: str) -> bool:
    references = _references(dependent.obj) if dependent is not None else []
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in references)
