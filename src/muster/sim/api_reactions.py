"""What the control plane does by itself after a change: garbage collection, namespaces, disruption budgets, CRDs.

A real cluster does this in controllers a moment later; here it follows the change at once, in a fixed order.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import EventType
from muster.sim import api_deletion, api_eviction, custom_resources
from muster.sim.api_kinds import Kind
from muster.sim.history import Change, Key

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


class EventExpiry:
    """Events go an hour after they were last written, as on a real server."""

    def __init__(self, ttl_s: float = 3600.0) -> None:
        self._ttl = timedelta(seconds=ttl_s)
        self._queue: deque[tuple[datetime, Key, int]] = deque()

    def update(self, store: Store, kind: Kind, change: Change) -> None:
        now = store.now()
        if change.type is not EventType.DELETED:
            self._queue.append((now + self._ttl, change.key, change.number))
        while self._queue and self._queue[0][0] <= now:
            _, key, number = self._queue.popleft()
            found = store.find(kind, key)
            if found is not None and found.number == number:
                store.remove(kind, key)


def owners_of(obj: dict[str, Any]) -> tuple[str, ...]:
    """The uids of an object's owners."""
    return tuple(owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ())


def react(store: Store, kind: Kind, change: Change) -> None:
    """Everything that follows from one change."""
    store.owners.update(kind, change)
    if kind.storage == "events":
        store.event_expiry.update(store, kind, change)
    if kind.plural == "customresourcedefinitions":
        custom_resources.react(store, change)
    if kind.plural in ("pods", "poddisruptionbudgets") and not kind.custom:
        api_eviction.sync_budgets(store, kind, change)
    if change.type is EventType.DELETED:
        _collect_dependents(store, change)
        _finish_namespace(store, kind, change.key[0])
        _finish_foreground_owners(store, change)
    elif change.current.obj["metadata"].get("ownerReferences"):
        _collect_if_orphaned(store, kind, change.key)


def _collect_dependents(store: Store, change: Change) -> None:
    for kind, key in store.owners.dependents_of(change.current.obj["metadata"]["uid"]):
        _collect_if_orphaned(store, kind, key)


def _collect_if_orphaned(store: Store, kind: Kind, key: Key) -> None:
    """Delete an object none of whose owners exists; otherwise drop only the references to missing owners."""
    version = store.find(kind, key)
    if version is None:
        return
    owners = version.obj["metadata"].get("ownerReferences") or []
    living = [owner for owner in owners if owner["uid"] in store.owners.places]
    if len(living) == len(owners):
        return
    if living:
        metadata = {**version.obj["metadata"], "ownerReferences": living}
        store.commit(kind, key, {**version.obj, "metadata": metadata}, version.managers)
    elif "deletionTimestamp" not in version.obj["metadata"]:
        api_deletion.delete(store, kind, key[1], key[0], api_deletion.DeleteOptions())


def _finish_foreground_owners(store: Store, change: Change) -> None:
    for uid in owners_of(change.current.obj):
        place = store.owners.places.get(uid)
        if place is not None:
            api_deletion.finish_foreground(store, *place)


def _finish_namespace(store: Store, kind: Kind, namespace: str) -> None:
    if namespace and kind.namespaced:
        api_deletion.finish_namespace(store, namespace)
