"""Evictions and bindings of pods, and the status of PodDisruptionBudgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import api_deletion
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, StatusError, bad_request, conflict, invalid, required
from muster.sim.history import Change, Version
from muster.sim.selectors import from_label_selector, labels_match

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

_SCALED = {"ReplicaSet": ("apps", "replicasets"), "StatefulSet": ("apps", "statefulsets")}


@dataclass(frozen=True)
class Allowance:
    """What a budget allows now. `problem` is set when that cannot be told; then nothing is allowed."""

    healthy: int
    desired: int
    expected: int
    problem: str = ""

    @property
    def allowed(self) -> int:
        return 0 if self.problem or self.expected <= 0 else max(0, self.healthy - self.desired)


def evict(store: Store, pod: str, namespace: str, eviction: Object, *, dry_run: bool) -> None:
    """Evict a pod. Raises StatusError: 404, 409 precondition, 429 forbidden by a budget, 500 several budgets."""
    pods = store.registry_kind("", "v1", "pods")
    name = (eviction.get("metadata") or {}).get("name") or pod
    if name != pod:
        raise bad_request(f"name in URL does not match name in Eviction object: {name!r} != {pod!r}")
    version = store.get(pods, pod, namespace)
    asked = eviction.get("deleteOptions") or {}
    preconditions = asked.get("preconditions") or {}
    options = api_deletion.DeleteOptions(
        grace_period_s=asked.get("gracePeriodSeconds"),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=dry_run,
    )
    if options.uid and options.uid != version.obj["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: " + str(
            version.obj["metadata"]["uid"]
        )
        raise conflict("pods", "", pod, why)
    if not _ignores_budget(version.obj):
        _check_budgets(store, version, namespace)
    api_deletion.delete(store, pods, pod, namespace, options)


def _ignores_budget(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _check_budgets(store: Store, pod: Version, namespace: str) -> None:
    budgets = _budgets_of(store, pod.obj, namespace)
    if not budgets:
        return
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "InternalError", text)
    budget = budgets[0]
    allowance = allowance_of(store, budget.obj, namespace)
    if not is_healthy(pod.obj):
        policy = (budget.obj.get("spec") or {}).get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        enough = allowance.healthy >= allowance.desired and allowance.desired > 0
        if policy == "AlwaysAllow" or (enough and not allowance.problem):
            return
    if allowance.allowed <= 0:
        raise _disrupted(budget.obj["metadata"]["name"], allowance)


def _disrupted(name: str, allowance: Allowance) -> StatusError:
    detail = allowance.problem or (
        f"The disruption budget {name} needs {allowance.desired} healthy pods and has {allowance.healthy} currently"
    )
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(429, "TooManyRequests", text, causes=(Cause("DisruptionBudget", detail),))


def is_healthy(pod: Object) -> bool:
    """Ready and not terminating: what counts for a budget."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _selects(budget: Object, pod: Object) -> bool:
    requirements = from_label_selector((budget.get("spec") or {}).get("selector"))
    return requirements is not None and labels_match(requirements, pod["metadata"].get("labels") or {})


def _budgets_of(store: Store, pod: Object, namespace: str) -> list[Version]:
    storage = store.storage_named("poddisruptionbudgets.policy")
    if storage is None:
        return []
    return [v for key in storage.keys(namespace) if _selects((v := storage.objects[key]).obj, pod)]


def allowance_of(store: Store, budget: Object, namespace: str) -> Allowance:
    """Count the pods that a budget selects."""
    storage = store.storage_named("pods")
    keys = storage.keys(namespace) if storage is not None else []
    pods = [pod for key in keys if storage and _selects(budget, pod := storage.objects[key].obj)]
    counted = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    healthy = sum(is_healthy(pod) for pod in counted)
    spec = budget.get("spec") or {}
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(minimum, int) or (minimum is None and maximum is None):
        return Allowance(healthy, minimum if isinstance(minimum, int) else 1, len(counted))
    expected, problem = _expected(store, counted, namespace)
    if problem:
        return Allowance(healthy, len(counted), len(counted), problem)
    if minimum is not None:
        return Allowance(healthy, _scaled(minimum, expected), expected)
    return Allowance(healthy, max(0, expected - _scaled(maximum, expected)), expected)


def _expected(store: Store, pods: list[Object], namespace: str) -> tuple[int, str]:
    """How many pods the controllers of these pods want; a sentence instead when one of them cannot tell."""
    total = 0
    seen: set[str] = set()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        owner = next((o for o in owners if o.get("controller")), None)
        if owner is None:
            return 0, f"found no controllers for pod {pod['metadata']['name']!r}"
        if owner["uid"] in seen:
            continue
        seen.add(owner["uid"])
        place = _SCALED.get(owner["kind"])
        if place is None:
            return 0, f"{owner['kind']} {owner['name']!r} does not implement the scale subresource"
        kind = store.registry_kind(place[0], "v1", place[1])
        controller = store.find(kind, (namespace, owner["name"]))
        total += 0 if controller is None else int((controller.obj.get("spec") or {}).get("replicas", 1))
    return total, ""


def _scaled(value: Any, total: int) -> int:
    """An absolute number, or a percentage of `total` rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


def sync_budgets(store: Store, kind: Kind, change: Change) -> None:
    """Keep the status of the budgets in the namespace of a changed pod or budget up to date."""
    storage = store.storage_named("poddisruptionbudgets.policy")
    if storage is None or not storage.objects:
        return
    pdbs = store.registry_kind("policy", "v1", "poddisruptionbudgets")
    for key in storage.keys(change.key[0]):
        if kind.plural == "poddisruptionbudgets" and key != change.key:
            continue
        version = storage.objects[key]
        status = _budget_status(store, version.obj, key[0])
        before = version.obj.get("status") or {}
        if any(before.get(name) != value for name, value in status.items() if name != "conditions") or (
            _condition_key(before) != _condition_key(status)
        ):
            store.commit(pdbs, key, {**version.obj, "status": status}, version.managers)


def _condition_key(status: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(c.get("status"), c.get("reason")) for c in status.get("conditions") or ()]


def _budget_status(store: Store, budget: Object, namespace: str) -> dict[str, Any]:
    allowance = allowance_of(store, budget, namespace)
    if allowance.problem:
        reason, message = "SyncFailed", allowance.problem
    elif allowance.allowed > 0:
        reason, message = "SufficientPods", ""
    else:
        reason, message = "InsufficientPods", ""
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowance.allowed > 0 else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": store.timestamp(),
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowance.allowed,
        "currentHealthy": allowance.healthy,
        "desiredHealthy": allowance.desired,
        "expectedPods": allowance.expected,
        "conditions": [condition],
    }


def bind(store: Store, pod: str, namespace: str, binding: Object, options: WriteOptions) -> None:
    """Assign a pod to a node. Raises StatusError: 404, 409 when it is assigned already, 422 without a node name."""
    pods = store.registry_kind("", "v1", "pods")
    version = store.get(pods, pod, namespace)
    node = (binding.get("target") or {}).get("name")
    if not isinstance(node, str) or not node:
        raise invalid("Binding", "", pod, [required("target.name")])
    spec = version.obj.get("spec") or {}
    if "deletionTimestamp" in version.obj["metadata"]:
        raise conflict("pods/binding", "", pod, f"pod {pod} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("pods/binding", "", pod, f"pod {pod} is already assigned to node {spec['nodeName']!r}")
    status = dict(version.obj.get("status") or {})
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.timestamp(),
    }
    status["conditions"] = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"] + [
        scheduled
    ]
    obj = {**version.obj, "spec": {**spec, "nodeName": node}, "status": status}
    store.commit(pods, (namespace, pod), obj, version.managers, dry_run=options.dry_run)
