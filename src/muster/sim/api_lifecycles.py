"""What admission and the beginning of a life add to new pods, nodes and budgets.

Nobody owns these fields: they are there before anybody claims them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_names import generated_name
from muster.sim.api_node_reactions import NOT_READY, UNREACHABLE
from muster.sim.api_status import forbidden
from muster.sim.builtin_defaults import TEMPLATE_COUNTER
from muster.sim.pod_conditions import condition

if TYPE_CHECKING:
    from muster.sim.store import Store

TOLERATION_S = 300
"""How long a pod stays on a node that is not ready or out of reach, unless it says otherwise."""
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""The priority classes of every cluster (source: their values in a fresh cluster)."""
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where pods find their token
_TOKEN_S = 3607
_NODE_INFO = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
    *("machineID", "operatingSystem", "osImage", "systemUUID"),
)
TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""What a pod learns of the place of its node."""
_NO_PODS = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def on_create(store: Store, kind: Kind, obj: Object) -> Object:
    """A new object as it is stored. Raises StatusError 403: unknown priority class or service account."""
    match kind.storage:
        case "pods":
            return _pod(store, obj)
        case "nodes":
            return _node(obj)
        case "poddisruptionbudgets.policy":
            return {**obj, "status": dict(_NO_PODS)}
        case _:
            return obj


def on_update(store: Store, kind: Kind, obj: Object, old: Object) -> Object:  # noqa: ARG001 - as `on_create`
    """A changed object as it is stored: pods get their tolerations back, daemon sets count their templates."""
    if kind.storage == "daemonsets.apps":
        return _daemon_set(obj, old)
    if kind.storage != "pods":
        return obj
    spec = dict(obj.get("spec") or {})
    _set_tolerations(spec)
    return obj if spec == obj.get("spec") else {**obj, "spec": spec}


def with_topology(store: Store, pod: Object, node: str) -> Object:
    """A pod that comes to a node with the labels that say where the node is."""
    found = store.find(store.registry_kind("", "v1", "nodes"), ("", node))
    labels = (found.obj["metadata"].get("labels") or {}) if found is not None else {}
    added = {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}
    if not added:
        return pod
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **added}}}


# Workloads


def _daemon_set(obj: Object, old: Object) -> Object:
    count = (old["metadata"].get("annotations") or {}).get(TEMPLATE_COUNTER, "1")
    if obj["spec"]["template"] != old["spec"]["template"]:
        count = str(int(count) + 1)
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(TEMPLATE_COUNTER) == count:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, TEMPLATE_COUNTER: count}}}


# Pods


def _pod(store: Store, pod: Object) -> Object:
    spec = dict(pod.get("spec") or {})
    if isinstance(spec.get("terminationGracePeriodSeconds"), int) and spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _set_account(store, pod, spec)
    _set_priority(store, pod, spec)
    _set_tolerations(spec)
    changed = {**pod, "spec": spec}
    if spec.get("nodeName"):
        changed = with_topology(store, changed, spec["nodeName"])
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = condition("PodScheduled", "False", store.timestamp(), "SchedulingGated", message)
        changed["status"] = {**(pod.get("status") or {}), "conditions": [gated]}
    return changed


def _set_account(store: Store, pod: Object, spec: dict[str, Any]) -> None:
    metadata = pod["metadata"]
    name, namespace = spec.get("serviceAccountName") or "default", metadata["namespace"]
    account = store.find(store.registry_kind("", "v1", "serviceaccounts"), (namespace, name))
    if account is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("pods", "", metadata["name"], why)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    mounts = spec.get("automountServiceAccountToken", account.obj.get("automountServiceAccountToken"))
    if mounts is not False:
        _mount_token(store, spec)


def _mount_token(store: Store, spec: dict[str, Any]) -> None:
    """Put the volume with the account's token into the pod and every container that has nothing in its place."""
    places = [(part, at) for part in ("initContainers", "containers") for at in range(len(spec.get(part) or ()))]
    free = [
        (part, at)
        for part, at in places
        if all(m.get("mountPath") != _TOKEN_PATH for m in spec[part][at].get("volumeMounts") or ())
    ]
    if not free:
        return
    name = generated_name("kube-api-access-", store.rng)
    mount = {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}
    for part, at in free:
        container = spec[part][at]
        mounted = {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
        spec[part] = [*spec[part][:at], mounted, *spec[part][at + 1 :]]
    namespace_field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace_field}]}},
    ]
    volume = {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]


def _set_priority(store: Store, pod: Object, spec: dict[str, Any]) -> None:
    wanted = spec.get("priorityClassName") or ""
    priority, policy = _priority_of(store, wanted, pod["metadata"]["name"])
    given = spec.get("priority")
    if given is not None and given != priority:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("pods", "", pod["metadata"]["name"], why)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", policy)


def _priority_of(store: Store, name: str, pod: str) -> tuple[int, str]:
    """Value and preemption policy of a priority class."""
    usual = "PreemptLowerPriority"
    if not name:
        return 0, usual
    found = store.find(store.registry_kind("scheduling.k8s.io", "v1", "priorityclasses"), ("", name))
    if found is not None:
        return int(found.obj.get("value", 0)), found.obj.get("preemptionPolicy") or usual
    if name not in _SYSTEM_PRIORITIES:
        raise forbidden("pods", "", pod, f"no PriorityClass with name {name} was found")
    return _SYSTEM_PRIORITIES[name], usual


def _set_tolerations(spec: dict[str, Any]) -> None:
    tolerations = list(spec.get("tolerations") or ())
    for key in (NOT_READY, UNREACHABLE):
        if not any(
            t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute") for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
            )
    spec["tolerations"] = tolerations


# Nodes


def _node(node: Object) -> Object:
    """A new Node takes no pods before its conditions say that it is ready."""
    spec = node.get("spec") or {}
    taints = list(spec.get("taints") or ())
    if not any(t.get("key") == NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    status = dict(node.get("status") or {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(status.get("nodeInfo") or {})}
    return {**node, "spec": {**spec, "taints": taints}, "status": status}
