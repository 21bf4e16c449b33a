"""The node lifecycle controller and the pod garbage collector: taints follow conditions and cordon, and the pods of a
Node that is gone go after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.kube.api import EventType, Object
from muster.sim.api_kinds import Kind
from muster.sim.history import Change
from muster.sim.managed_fields import owners_after_update

if TYPE_CHECKING:
    from muster.sim.store import Store

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_TAINT_OF = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
"""The taint that goes with a condition (source: the table of node conditions in the Kubernetes documentation)."""
_MANAGED = (*dict.fromkeys(_TAINT_OF.values()), UNSCHEDULABLE)
_CONTROLLERS = "kube-controller-manager"
"""The name under which the controllers own fields."""
_TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
"""How long a kubelet may keep secrets in its cache; 0 s in clusters of up to 100 nodes."""


def react(store: Store, kind: Kind, change: Change) -> None:
    """Bring taints and annotation of a Node in line with what it says of itself."""
    if change.type is EventType.DELETED:
        return
    version = store.find(kind, change.key)
    if version is None:
        return
    obj = _tainted(store, _annotated(version.obj))
    if obj is not version.obj:
        now = store.timestamp()
        owned = owners_after_update(kind, version.managers, version.obj, obj, _CONTROLLERS, "", now)
        store.commit(kind, change.key, obj, owned)


def _annotated(node: Object) -> Object:
    annotations = node["metadata"].get("annotations") or {}
    if _TTL_ANNOTATION in annotations:
        return node
    return {**node, "metadata": {**node["metadata"], "annotations": {**annotations, _TTL_ANNOTATION: "0"}}}


def _tainted(store: Store, node: Object) -> Object:
    spec = node.get("spec") or {}
    present = list(spec.get("taints") or ())
    wanted = _wanted(node)
    ours = [t["key"] for t in present if _is_ours(t)]
    if sorted(ours) == sorted(wanted):
        return node
    kept = [t for t in present if not _is_ours(t) or t["key"] in wanted]
    added = [
        {"key": key, "effect": "NoSchedule", "timeAdded": store.timestamp()} for key in wanted if key not in ours
    ]
    taints = kept + added
    others = {name: value for name, value in spec.items() if name != "taints"}
    return {**node, "spec": {**others, "taints": taints} if taints else others}


def _wanted(node: Object) -> list[str]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    found = [_TAINT_OF.get((c.get("type"), c.get("status")), "") for c in conditions]
    if (node.get("spec") or {}).get("unschedulable"):
        found.append(UNSCHEDULABLE)
    return [key for key in found if key]


def _is_ours(taint: dict[str, Any]) -> bool:
    return taint.get("effect") == "NoSchedule" and taint.get("key") in _MANAGED
