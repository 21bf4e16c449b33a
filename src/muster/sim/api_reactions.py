"""What the control plane does by itself after a change, in a fixed order.

A real cluster does this in controllers a moment later; here it follows the change at once.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from muster.kube.api import EventType
from muster.sim import (
    access_reactions,
    api_budgets,
    api_garbage,
    api_namespaces,
    api_node_reactions,
    custom_resources,
)
from muster.sim.api_kinds import Kind
from muster.sim.history import Change, Key

if TYPE_CHECKING:
    from muster.sim.store import Store

_SIZED = ("replicasets.apps", "statefulsets.apps", "deployments.apps")
"""Controllers whose size a budget's share is taken of."""


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


def react(store: Store, kind: Kind, change: Change) -> None:
    """Everything that follows from one change."""
    if kind.storage == "events":
        store.event_expiry.update(store, kind, change)
    if kind.plural == "customresourcedefinitions":
        custom_resources.react(store, change)
    if kind.storage in ("pods", "poddisruptionbudgets.policy", *_SIZED):
        api_budgets.sync(store, kind, change)
    if kind.storage == "nodes":
        api_node_reactions.react(store, kind, change)
    store.lost_nodes.update(store, kind, change)
    api_garbage.react(store, kind, change)
    api_namespaces.react(store, kind, change)
    if kind.custom is None:
        access_reactions.react(store, kind, change)
