"""The disruption controller: what each PodDisruptionBudget allows, kept in its status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_status import qualified
from muster.sim.history import Change, Version
from muster.sim.selectors import from_label_selector, labels_match

if TYPE_CHECKING:
    from muster.sim.store import Store

DISRUPTION_TIMEOUT = timedelta(minutes=2)
"""How long an evicted pod may take to begin its end before it counts as healthy again."""
DISRUPTION_ALLOWED = "DisruptionAllowed"
SYNC_FAILED = "SyncFailed"


@dataclass(frozen=True)
class Need:
    """How many pods a budget counts on and how many of them must stay healthy. `problem`: that cannot be told."""

    expected: int = 0
    desired: int = 0
    problem: str = ""


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition says that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def selects(budget: Object, pod: Object) -> bool:
    """Whether a budget is about a pod. A budget without a selector is about none."""
    requirements = from_label_selector((budget.get("spec") or {}).get("selector"))
    return requirements is not None and labels_match(requirements, pod["metadata"].get("labels") or {})


def budgets_of(store: Store, pod: Object, namespace: str) -> list[Version]:
    """The budgets that are about a pod, by name."""
    storage = store.storage_named("poddisruptionbudgets.policy")
    if storage is None:
        return []
    return [v for key in storage.keys(namespace) if selects((v := storage.objects[key]).obj, pod)]


# What a budget needs


def need_of(store: Store, budget: Object, pods: list[Object], namespace: str) -> Need:
    """What `budget` asks of the pods that it selects."""
    spec = budget.get("spec") or {}
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if maximum is None and isinstance(minimum, int):
        return Need(len(pods), minimum)
    if maximum is None and minimum is None:
        return Need()
    scales: dict[str, int] = {}
    for pod in pods:
        problem = _add_scale(store, pod, namespace, scales)
        if problem:
            return Need(problem=problem)
    expected = sum(scales.values())
    if maximum is not None:
        return Need(expected, max(0, expected - _scaled(maximum, expected)))
    return Need(expected, _scaled(minimum, expected))


def _add_scale(store: Store, pod: Object, namespace: str, scales: dict[str, int]) -> str:
    """Put the size that the pod's controller wants under its uid; a sentence when that cannot be told.

    A pod without a controller adds nothing: a share of such pods, or a number that may be missing, allows nothing.
    """
    owner = _controller_of(pod)
    if owner is None or owner["uid"] in scales:
        return ""
    kind = store.registry.by_kind(str(owner.get("apiVersion")), str(owner.get("kind")))
    if kind is None:
        return f'no matches for kind "{owner.get("kind")}" in version "{owner.get("apiVersion")}"'
    found = store.find(kind, (namespace, str(owner.get("name"))))
    if found is not None and found.obj["metadata"]["uid"] != owner["uid"]:
        found = None
    above = _controller_of(found.obj) if found is not None and kind.storage == "replicasets.apps" else None
    if above is not None and above.get("kind") == "Deployment":
        deployments = store.registry_kind("apps", "v1", "deployments")
        kind, found, owner = deployments, store.find(deployments, (namespace, str(above.get("name")))), above
    if kind.storage not in ("replicasets.apps", "statefulsets.apps", "deployments.apps"):
        return f"{qualified(kind.plural, kind.group)} does not implement the scale subresource"
    if found is None:
        return f'found no controllers for pod "{pod["metadata"]["name"]}"'
    scales[owner["uid"]] = int((found.obj.get("spec") or {}).get("replicas", 1))
    return ""


def _controller_of(obj: Object) -> dict[str, Any] | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _scaled(value: Any, total: int) -> int:
    """An absolute number, or a percentage of `total` rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


# The status


def sync(store: Store, kind: Kind, change: Change) -> None:
    """Keep the status of the budgets in the namespace of a changed pod, controller or budget up to date."""
    storage = store.storage_named("poddisruptionbudgets.policy")
    if storage is None or not storage.objects:
        return
    budgets = store.registry_kind("policy", "v1", "poddisruptionbudgets")
    for key in storage.keys(change.key[0]):
        if kind.plural == "poddisruptionbudgets" and key != change.key:
            continue
        version = storage.objects[key]
        before = version.obj.get("status") or {}
        status = _status(store, version.obj, key[0])
        if status != before:
            store.commit(budgets, key, {**version.obj, "status": status}, version.managers)


def _status(store: Store, budget: Object, namespace: str) -> dict[str, Any]:
    storage = store.storage_named("pods")
    keys = storage.keys(namespace) if storage is not None else []
    pods = [pod for key in keys if storage and selects(budget, pod := storage.objects[key].obj)]
    before = budget.get("status") or {}
    need = need_of(store, budget, pods, namespace)
    if need.problem:
        failed = {**before, "disruptionsAllowed": 0}
        observed = before.get("observedGeneration", 0)
        return {**failed, "conditions": [_condition(store, before, SYNC_FAILED, need.problem, observed)]}
    generation = budget["metadata"].get("generation", 1)
    disrupted = _disrupted(store, before, pods)
    healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
    allowed = max(0, healthy - need.desired) if need.expected > 0 else 0
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": need.desired,
        "expectedPods": need.expected,
        "conditions": [allowed_condition(store, before, allowed, generation)],
    }
    return {**status, "disruptedPods": disrupted} if disrupted else status


def _is_healthy(pod: Object, disrupted: Mapping[str, str]) -> bool:
    leaving = "deletionTimestamp" in pod["metadata"] or pod["metadata"]["name"] in disrupted
    return is_ready(pod) and not leaving


def _disrupted(store: Store, status: dict[str, Any], pods: list[Object]) -> dict[str, str]:
    """The evicted pods whose end has not begun yet and may still be expected."""
    staying = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    now = store.now()
    return {
        name: at
        for name, at in (status.get("disruptedPods") or {}).items()
        if name in staying and datetime.fromisoformat(at) + DISRUPTION_TIMEOUT > now
    }


def allowed_condition(store: Store, status: dict[str, Any], allowed: int, generation: int) -> dict[str, Any]:
    """The condition that goes with the number of disruptions allowed."""
    return _condition(store, status, "SufficientPods" if allowed > 0 else "InsufficientPods", "", generation)


def _condition(store: Store, status: dict[str, Any], reason: str, message: str, generation: int) -> dict[str, Any]:
    """The condition, with the time of the last change of its status."""
    value = "True" if reason == "SufficientPods" else "False"
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    before = next((c for c in conditions if c.get("type") == DISRUPTION_ALLOWED), {})
    same = before.get("status") == value
    condition = {
        "type": DISRUPTION_ALLOWED,
        "status": value,
        "observedGeneration": generation,
        "lastTransitionTime": before.get("lastTransitionTime") if same else store.timestamp(),
        "reason": reason,
        "message": message,
    }
    if not generation:
        del condition["observedGeneration"]
    return condition
