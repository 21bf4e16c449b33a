"""Evictions and bindings of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import api_budgets, api_deletion, api_lifecycles
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, StatusError, bad_request, conflict
from muster.sim.history import Version
from muster.sim.pod_conditions import condition, with_condition

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

_TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_UNPROCESSED_RETRY_S = 10
"""What a real server asks for while the disruption controller has not seen a budget yet."""


def evict(store: Store, pod: str, namespace: str, eviction: Object, *, dry_run: bool) -> None:
    """Evict a pod. Raises StatusError: 400, 404, 409 precondition, 429 forbidden by a budget, 500 several budgets."""
    pods = store.registry_kind("", "v1", "pods")
    if (eviction.get("metadata") or {}).get("name") != pod:
        raise bad_request("name in URL does not match name in Eviction object")
    asked = eviction.get("deleteOptions")
    if asked is not None and not isinstance(asked, dict):
        raise bad_request('Eviction in version "v1" cannot be handled as a Eviction: deleteOptions is no object')
    options = api_deletion.options_of(asked if asked is not None else {}, {})
    if dry_run and not options.dry_run:
        options = api_deletion.options_of({**(asked or {}), "dryRun": ["All"]}, {})
    version = store.get(pods, pod, namespace)
    if not _ignores_budget(version.obj):
        _spend(store, version, namespace, dry_run=options.dry_run)
    version = store.get(pods, pod, namespace)
    api_deletion.check_preconditions(pods, version.obj, options)
    if not options.dry_run:
        version = _targeted(store, pods, version)
    if options.resource_version:
        options = api_deletion.at_version(options, version.obj["metadata"]["resourceVersion"])
    api_deletion.delete(store, pods, pod, namespace, options)


def _ignores_budget(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _spend(store: Store, pod: Version, namespace: str, *, dry_run: bool) -> None:
    """Take the eviction out of the pod's budget, as far as its status allows. Raises StatusError: 429, 500."""
    budgets = api_budgets.budgets_of(store, pod.obj, namespace)
    if len(budgets) > 1:
        raise StatusError(500, "", _SEVERAL)
    if not budgets:
        return
    budget = budgets[0].obj
    status = budget.get("status") or {}
    if not api_budgets.is_ready(pod.obj) and _lets_unready_go(budget):
        return
    _check_allowance(budget, status)
    if dry_run:
        return
    allowed = status["disruptionsAllowed"] - 1
    disrupted = {**(status.get("disruptedPods") or {}), pod.obj["metadata"]["name"]: store.timestamp()}
    status = {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}
    if allowed == 0:
        generation = status.get("observedGeneration", 0)
        status["conditions"] = [api_budgets.allowed_condition(store, status, 0, generation)]
    kind = store.registry_kind("policy", "v1", "poddisruptionbudgets")
    key = (namespace, budget["metadata"]["name"])
    store.commit(kind, key, {**budget, "status": status}, budgets[0].managers)


def _lets_unready_go(budget: Object) -> bool:
    """Whether the budget does not protect a pod that is not ready."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _check_allowance(budget: Object, status: dict[str, Any]) -> None:
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        cause = Cause("DisruptionBudget", f"The disruption budget {name} is still being processed by the server.")
        raise StatusError(429, "TooManyRequests", _TOO_MANY, causes=(cause,), retry_after_s=_UNPROCESSED_RETRY_S)
    if status.get("disruptionsAllowed", 0) > 0:
        return
    failed = next((c for c in status.get("conditions") or () if c.get("reason") == api_budgets.SYNC_FAILED), None)
    if failed is not None:
        detail = (
            f"The disruption budget {name} does not allow evicting pods currently because it failed sync: "
            f"{failed['message']}"
        )
    else:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        detail = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    raise StatusError(429, "TooManyRequests", _TOO_MANY, causes=(Cause("DisruptionBudget", detail),))


def _targeted(store: Store, pods: Kind, version: Version) -> Version:
    """The pod with the condition that says why it ends."""
    reason, message = "EvictionByEvictionAPI", "Eviction API: evicting"
    target = condition("DisruptionTarget", "True", store.timestamp(), reason, message)
    obj = with_condition(version.obj, target)
    if obj is version.obj:
        return version
    metadata = obj["metadata"]
    return store.commit(pods, (metadata["namespace"], metadata["name"]), obj, version.managers)


def bind(store: Store, pod: str, namespace: str, binding: Object, options: WriteOptions) -> None:
    """Assign a pod to a node (`pods/binding`). Raises StatusError: 400, 404, 409 another uid or assigned already, 500
    bad target."""
    _check_binding(binding)
    metadata = binding.get("metadata") or {}
    if "metadata" in binding and metadata.get("name") != pod:
        raise bad_request("name in URL does not match name in Binding object")
    version = _bindable(store, pod, namespace, binding, str(metadata.get("uid") or ""))
    node = binding["target"]["name"]
    _assign(store, api_lifecycles.with_topology(store, version.obj, node), version, binding, options)


def bind_by_name(store: Store, binding: Object, namespace: str, options: WriteOptions) -> None:
    """Assign the pod that a Binding is named after (`bindings`, the old way). Its uid is not looked at."""
    _check_binding(binding)
    pod = (binding.get("metadata") or {}).get("name")
    if not isinstance(pod, str) or not pod:
        raise bad_request("Name parameter required.")
    version = _bindable(store, pod, namespace, binding, "")
    _assign(store, version.obj, version, binding, options)


def _check_binding(binding: Object) -> None:
    for name, wanted in (("metadata", "v1.ObjectMeta"), ("target", "v1.ObjectReference")):
        value = binding.get(name)
        if value is not None and not isinstance(value, dict):
            found = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
            raise bad_request(
                f'Binding in version "v1" cannot be handled as a Binding: json: cannot unmarshal {found} into Go '
                f"struct field Binding.{name} of type {wanted}"
            )


def _bindable(store: Store, pod: str, namespace: str, binding: Object, uid: str) -> Version:
    """The pod, when it can be assigned."""
    _check_target(binding.get("target") or {})
    version = store.get(store.registry_kind("", "v1", "pods"), pod, namespace)
    spec, metadata = version.obj.get("spec") or {}, version.obj["metadata"]
    if uid and uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        where = f"Key: /registry/pods/{namespace}/{pod}, ResourceVersion: 0"
        raise conflict("pods", "", pod, f"StorageError: invalid object, Code: 4, {where}, AdditionalErrorMsg: {why}")
    if "deletionTimestamp" in metadata:
        raise _unbindable(pod, f"pod {pod} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(pod, f'pod {pod} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(pod, f"pod {pod} has non-empty .spec.schedulingGates")
    return version


def _assign(store: Store, pod: Object, version: Version, binding: Object, options: WriteOptions) -> None:
    obj = with_condition(pod, condition("PodScheduled", "True", store.timestamp()))
    obj = {**obj, "spec": {**obj["spec"], "nodeName": binding["target"]["name"]}}
    sent = binding.get("metadata") or {}
    for name in ("annotations", "labels"):
        if sent.get(name):
            merged = {**(obj["metadata"].get(name) or {}), **sent[name]}
            obj = {**obj, "metadata": {**obj["metadata"], name: merged}}
    metadata = obj["metadata"]
    key = (metadata["namespace"], metadata["name"])
    store.commit(store.registry_kind("", "v1", "pods"), key, obj, version.managers, dry_run=options.dry_run)


def _check_target(target: dict[str, Any]) -> None:
    """A real server words these mistakes of its client as errors of its own."""
    if target.get("kind") not in (None, "", "Node"):
        text = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise StatusError(500, "", text)
    if not isinstance(target.get("name"), str) or not target["name"]:
        raise StatusError(500, "", "target.name: Required value")


def _unbindable(pod: str, why: str) -> StatusError:
    return conflict("pods/binding", "", pod, why)
