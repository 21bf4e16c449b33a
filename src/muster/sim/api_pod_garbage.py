"""The pod garbage collector: pods of a Node that is gone go after it."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from muster.kube.api import EventType, Object
from muster.sim import api_deletion
from muster.sim.api_kinds import Kind
from muster.sim.history import Change
from muster.sim.pod_conditions import condition, with_condition

if TYPE_CHECKING:
    from muster.sim.store import Store

QUARANTINE = timedelta(seconds=40)
"""How long the pod garbage collector waits for a Node to come back (source: its constant in Kubernetes)."""


class LostNodes:
    """Nodes that were deleted a short while ago. Their pods go with the first change after the quarantine."""

    def __init__(self) -> None:
        self._queue: deque[tuple[datetime, str]] = deque()

    def update(self, store: Store, kind: Kind, change: Change) -> None:
        now = store.now()
        if kind.storage == "nodes" and change.type is EventType.DELETED:
            self._queue.append((now + QUARANTINE, change.key[1]))
        while self._queue and self._queue[0][0] <= now:
            _, node = self._queue.popleft()
            if store.find(store.registry_kind("", "v1", "nodes"), ("", node)) is None:
                _collect_pods(store, node)


def _collect_pods(store: Store, node: str) -> None:
    pods = store.registry_kind("", "v1", "pods")
    storage = store.storage(pods)
    for key in storage.keys(""):
        found = storage.objects.get(key)
        if found is None or (found.obj.get("spec") or {}).get("nodeName") != node:
            continue
        if (found.obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            _fail(store, pods, found.obj)
        api_deletion.delete(store, pods, key[1], key[0], api_deletion.DeleteOptions(grace_period_s=0))


def _fail(store: Store, pods: Kind, pod: Object) -> None:
    message = "PodGC: node no longer exists"
    target = condition("DisruptionTarget", "True", store.timestamp(), "DeletionByPodGC", message)
    failed = with_condition(pod, target)
    key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
    found = store.find(pods, key)
    managers = found.managers if found is not None else ()
    store.commit(pods, key, {**failed, "status": {**failed["status"], "phase": "Failed"}}, managers)
