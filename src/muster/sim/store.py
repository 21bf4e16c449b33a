"""The one in-memory store behind the simulated API server: objects, versions, history, and every verb on them.

Nothing here waits: each verb is one synchronous step, so requests are atomic. The front ends `inprocess` and `server`
add waiting, faults and encoding.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from muster.clock import Clock
from muster.kube.api import EventType, Object, ResourceType
from muster.sim import (
    api_apply,
    api_deletion,
    api_eviction,
    api_garbage,
    api_lists,
    api_patches,
    api_pod_garbage,
    api_reactions,
    api_writes,
)
from muster.sim.api_conversion import from_storage
from muster.sim.api_deletion import DeleteOptions
from muster.sim.api_faults import FaultHook
from muster.sim.api_kinds import Kind, Registry
from muster.sim.api_lists import ListOptions, ListResult
from muster.sim.api_status import StatusError, not_found, unknown_resource
from muster.sim.history import Change, Key, Storage, Version
from muster.sim.identities import User
from muster.sim.managed_fields import Managers, encode

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


@dataclass
class WriteOptions:
    """How to carry out a write. `warnings` collects what the client should be told besides the answer.

    `identity` is who writes, for admission; None is the trusted client in process named `user`.
    """

    manager: str = "unknown"
    user: str = "system:admin"
    identity: User | None = None
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


class Store:
    """Kubernetes objects of every served kind.

    `seed` determines uids and generated names. `history_limit` is the number of changes per resource from which a
    watch can resume. `faults`, when set, decides per request what goes wrong.
    """

    def __init__(self, clock: Clock, seed: int = 0, *, history_limit: int = 10_000) -> None:
        self.clock = clock
        self.registry = Registry()
        self.faults: FaultHook | None = None
        self.version = 0
        self.watch_epoch = 0
        self.owners = api_garbage.OwnerIndex()
        self.event_expiry = api_reactions.EventExpiry()
        self.lost_nodes = api_pod_garbage.LostNodes()
        self.rng = Random(seed)  # noqa: S311 - reproducible names, not secrets
        self._storages: dict[str, Storage] = {}
        self._history_limit = history_limit
        for name in SYSTEM_NAMESPACES:
            self.create(self.registry_kind("", "v1", "namespaces"), {"metadata": {"name": name}})

    # Kinds and storages

    def registry_kind(self, group: str, version: str, plural: str) -> Kind:
        """The served kind. Raises StatusError 404."""
        found = self.registry.find(group, version, plural)
        if found is None:
            raise unknown_resource()
        return found

    def kind(self, res: ResourceType) -> Kind:
        return self.registry_kind(res.group, res.version, res.plural)

    def storage(self, kind: Kind) -> Storage:
        found = self._storages.get(kind.storage)
        if found is None:
            found = self._storages[kind.storage] = Storage(self._history_limit)
        return found

    def storage_named(self, name: str) -> Storage | None:
        return self._storages.get(name)

    def drop_storage(self, name: str) -> None:
        """End the watches of a resource that is served no more."""
        storage = self._storages.pop(name, None)
        if storage is not None:
            storage.closed = True
            storage.wake()

    # Time and identity

    def now(self) -> datetime:
        return self.clock.now()

    def timestamp(self, at: datetime | None = None) -> str:
        """RFC 3339 text in whole seconds, as metadata carries it."""
        moment = (at or self.clock.now()).astimezone(UTC).replace(microsecond=0, tzinfo=None)
        return moment.isoformat() + "Z"

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    # Reading

    def find(self, kind: Kind, key: Key) -> Version | None:
        storage = self._storages.get(kind.storage)
        return None if storage is None else storage.objects.get(key)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Version:
        """The current version. Raises StatusError 404."""
        found = self.find(kind, (namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found(kind.plural, kind.group, name)
        return found

    def list(self, kind: Kind, namespace: str = "", options: ListOptions | None = None) -> ListResult:
        return api_lists.list_objects(self, kind, namespace, options or ListOptions())

    # Writing

    def create(self, kind: Kind, obj: Object, namespace: str = "", options: WriteOptions | None = None) -> Version:
        return api_writes.create(self, kind, obj, namespace, options or WriteOptions())

    def update(
        self,
        kind: Kind,
        name: str,
        obj: Object,
        namespace: str = "",
        options: WriteOptions | None = None,
        *,
        subresource: str = "",
    ) -> Version:
        return api_writes.update(self, kind, name, obj, namespace, options or WriteOptions(), subresource)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        patch_type: str,
        namespace: str = "",
        options: WriteOptions | None = None,
        *,
        subresource: str = "",
    ) -> Version:
        return api_patches.patch(
            self, kind, name, patch, patch_type, namespace, options or WriteOptions(), subresource
        )

    def apply(
        self,
        kind: Kind,
        name: str,
        config: Object,
        namespace: str = "",
        options: WriteOptions | None = None,
        *,
        force: bool = False,
        subresource: str = "",
    ) -> tuple[Version, bool]:
        """Server-side apply; the second value tells whether the object was created."""
        return api_apply.apply(self, kind, name, config, namespace, options or WriteOptions(), force, subresource)

    def delete(
        self, kind: Kind, name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> tuple[Version, bool]:
        """Delete; the second value tells whether the object is gone already (else it is terminating)."""
        return api_deletion.delete(self, kind, name, namespace, options or DeleteOptions())

    def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions | None = None
    ) -> ListResult:
        return api_deletion.delete_collection(self, kind, namespace, selection, options or DeleteOptions())

    def evict(self, pod: str, namespace: str, eviction: Object, *, dry_run: bool = False) -> None:
        api_eviction.evict(self, pod, namespace, eviction, dry_run=dry_run)

    def bind(self, pod: str, namespace: str, binding: Object, options: WriteOptions | None = None) -> None:
        api_eviction.bind(self, pod, namespace, binding, options or WriteOptions())

    # Committing

    def commit(
        self, kind: Kind, key: Key, obj: Object, managers: Managers, *, dry_run: bool = False, limit_bytes: int = 0
    ) -> Version:
        """Store `obj` (in storage form) as the next version and let the built-in controllers react to it.

        Raises StatusError 413 when its JSON is longer than `limit_bytes` (0: no limit).
        """
        storage = self.storage(kind)
        previous = storage.objects.get(key)
        number = self.version + (0 if dry_run else 1)
        metadata = {**obj["metadata"], "resourceVersion": str(number)}
        metadata.pop("managedFields", None)
        if managers:
            metadata["managedFields"] = encode(managers)
        version = Version({**obj, "metadata": metadata}, number, managers)
        if limit_bytes and len(version.raw(kind.storage_api_version)) > limit_bytes:
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit_bytes}")
        if dry_run:
            return version
        self.version = number
        kind_of_change = EventType.ADDED if previous is None else EventType.MODIFIED
        self._record(kind, storage, Change(number, kind_of_change, key, version, previous))
        return version

    def remove(self, kind: Kind, key: Key, last: Object | None = None) -> Version:
        """Delete the object for good. `last` is its final state where that differs from the stored one."""
        storage = self.storage(kind)
        previous = storage.objects[key]
        self.version += 1
        final = previous.obj if last is None else last
        metadata = {**final["metadata"], "resourceVersion": str(self.version)}
        version = Version({**final, "metadata": metadata}, self.version, previous.managers)
        self._record(kind, storage, Change(self.version, EventType.DELETED, key, version, previous))
        return version

    def _record(self, kind: Kind, storage: Storage, change: Change) -> None:
        storage.record(change)
        api_reactions.react(self, kind, change)

    # For tests and chaos

    def compact(self, number: int | None = None) -> None:
        """Forget history up to version `number` (default: all of it), so that older watches meet 410."""
        for storage in self._storages.values():
            storage.compact(self.version if number is None else number)
            storage.wake()

    def drop_watches(self) -> None:
        """Break every watch connection that is open now."""
        self.watch_epoch += 1
        for storage in self._storages.values():
            storage.wake()

    def converter(self, kind: Kind) -> Callable[[Object], Object] | None:
        return from_storage(kind)

    def raw(self, kind: Kind, version: Version) -> bytes:
        """JSON of a version as `kind` serves it, encoded once."""
        return version.raw(kind.api_version, from_storage(kind))

    def raw_item(self, kind: Kind, version: Version) -> bytes:
        """JSON of a version as an item of a list: items of built-in kinds do not repeat the list's kind."""
        raw = self.raw(kind, version)
        if kind.custom is not None:
            return raw
        head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.name}",'.encode()
        if raw.startswith(head):
            return b"{" + raw[len(head) :]
        obj = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({name: part for name, part in obj.items() if name not in ("apiVersion", "kind")})
