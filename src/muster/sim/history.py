"""Versions of objects and the bounded history of their changes: what lists, watches and snapshots read."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from muster.kube.api import EventType, Object
from muster.sim.api_status import too_old
from muster.sim.managed_fields import Managers

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""

_encode = msgspec.json.Encoder().encode


@dataclass(eq=False, slots=True)
class Version:
    """One version of one object. `obj` is never changed. Its JSON is encoded once per API version."""

    obj: Object
    number: int
    managers: Managers = ()
    _raw: dict[str, bytes] = field(default_factory=dict)

    def raw(self, api_version: str, convert: Callable[[Object], Object] | None = None) -> bytes:
        """The object's JSON in `api_version`; `convert` makes that form from the stored one."""
        found = self._raw.get(api_version)
        if found is None:
            found = self._raw[api_version] = _encode(self.obj if convert is None else convert(self.obj))
        return found

    def forget_raw(self) -> None:
        """Free the encoded forms of a version that is no longer current; whoever lags behind encodes again."""
        self._raw.clear()


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history. For a deletion `current` is the last state under the deletion's number."""

    number: int
    type: EventType
    key: Key
    current: Version
    previous: Version | None


class Storage:
    """All objects of one resource, and the last `limit` changes to them."""

    def __init__(self, limit: int) -> None:
        self.objects: dict[Key, Version] = {}
        self._keys: list[Key] = []
        self._log: list[Change] = []
        self._trimmed = 0
        self._compacted = 0
        self._limit = limit
        self._waiters: list[asyncio.Future[None]] = []
        self.closed = False

    def keys(self, namespace: str = "") -> list[Key]:
        """Keys in order, of one namespace or of all."""
        if not namespace:
            return list(self._keys)
        return self._keys[bisect_left(self._keys, (namespace, "")) : bisect_left(self._keys, (namespace + "\0", ""))]

    def record(self, change: Change) -> None:
        """Take over a change and wake the watchers."""
        if change.type is EventType.DELETED:
            del self.objects[change.key]
            del self._keys[bisect_left(self._keys, change.key)]
        else:
            if change.previous is None:
                insort(self._keys, change.key)
            self.objects[change.key] = change.current
        if change.previous is not None:
            change.previous.forget_raw()
        self._log.append(change)
        if len(self._log) > 2 * self._limit:
            gone = len(self._log) - self._limit
            self._compacted = max(self._compacted, self._log[gone - 1].number)
            self._trimmed += gone
            del self._log[:gone]
        self.wake()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """A future that is done at the next change."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def drop_waiter(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    @property
    def oldest(self) -> int:
        """The lowest version from which a watch can still begin."""
        start = len(self._log) - self._limit
        trimmed = self._log[start - 1].number if start > 0 else 0
        return max(self._compacted, trimmed)

    def compact(self, number: int) -> None:
        """Forget history up to and including version `number`."""
        self._compacted = max(self._compacted, number)

    @property
    def end(self) -> int:
        """Position behind the newest change."""
        return self._trimmed + len(self._log)

    def position(self, number: int) -> int:
        """Position of the first change after version `number`. Raises StatusError 410 when that is forgotten."""
        if number < self.oldest:
            raise too_old(number, self.oldest)
        return self._trimmed + bisect_left(self._log, number + 1, key=lambda change: change.number)

    def since(self, position: int) -> Iterator[Change]:
        """Changes from `position` on. Raises StatusError 410 when some of them are forgotten."""
        at = position - self._trimmed
        if at < 0 or (at < len(self._log) and self._log[at].number <= self.oldest):
            raise too_old(self._log[at].number if at >= 0 else 0, self.oldest)
        return iter(self._log[at:])

    def snapshot(self, number: int) -> dict[Key, Version]:
        """The objects as they were at version `number`. Raises StatusError 410 when that is forgotten."""
        start = self.position(number) - self._trimmed
        objects = dict(self.objects)
        for change in reversed(self._log[start:]):
            if change.previous is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.previous
        return objects
