"""What the API server fills in where a client leaves fields of built-in kinds out.

Source of the values: the defaults in the published Kubernetes API reference, v1.37.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim import admission_rules, custom_resources
from muster.sim.api_kinds import Kind
from muster.sim.pod_defaults import pod_spec, template_spec

if TYPE_CHECKING:
    from muster.sim.store import Store

Fields = dict[str, Any]

_TEMPLATED = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job")
_ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}
_SERVICE_NETWORK = int(IPv4Address("10.96.0.0"))
_SERVICE_ADDRESSES = 1 << 16


def with_missing(value: Fields, defaults: Mapping[str, Any]) -> Fields:
    """`value` with the defaults that it lacks; itself when it lacks none."""
    missing = {name: part for name, part in defaults.items() if name not in value}
    return {**value, **missing} if missing else value


def filled(kind: Kind, obj: Object, old: Object | None) -> Object:
    """The object with defaults. What is shared with `old` (which has them) is taken as it is."""
    before = old or {}
    spec = obj.get("spec")
    changed = isinstance(spec, dict) and spec is not before.get("spec")
    match kind.name:
        case "Pod":
            return _pod({**obj, "spec": pod_spec(obj["spec"])} if changed else obj, before)
        case "DaemonSet" if old is None:
            return {**_counted_template(obj), "spec": _workload(kind.name, obj["spec"])}
        case name if name in _TEMPLATED and changed:
            return {**obj, "spec": _workload(name, obj["spec"])}
        case "Service" if changed:
            return {**obj, "spec": _service(obj["spec"], before.get("spec"))}
        case "Node":
            return _node(obj, before)
        case "Namespace":
            return _labelled(obj)
        case "Secret":
            return _secret(obj)
        case "CustomResourceDefinition":
            return custom_resources.crd_defaults(obj)
        case "PriorityClass":
            return with_missing(obj, {"preemptionPolicy": "PreemptLowerPriority"})
        case _:
            return admission_rules.defaulted(kind, obj)


def begun(store: Store, kind: Kind, obj: Object) -> Object:
    """A new object with what it begins with: its first status, addresses, generated selectors."""
    match kind.name:
        case "CustomResourceDefinition":
            return custom_resources.crd_begun(obj)
        case "Namespace":
            return {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        case "Pod":
            return {**obj, "status": {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}}
        case "Service":
            return {**obj, "spec": _addressed(store, obj), "status": {"loadBalancer": {}}}
        case "Job":
            return {**_selecting(obj), "status": {}}
        case "PodDisruptionBudget":
            zeros = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
            return {**obj, "status": dict.fromkeys(zeros, 0)}
        case "DaemonSet":
            zeros = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
            return {**obj, "status": dict.fromkeys(zeros, 0)}
        case "ReplicaSet":
            return {**obj, "status": {"replicas": 0}}
        case "StatefulSet":
            return {**obj, "status": {"replicas": 0, "availableReplicas": 0}}
        case _ if kind.has_status and not kind.keeps_status_on_create:
            return {**obj, "status": {}}
        case _:
            return obj


def _labelled(obj: Object) -> Object:
    """A namespace carries its name as a label."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    labels = metadata.get("labels") or {}
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return obj
    return {**obj, "metadata": {**metadata, "labels": {**labels, "kubernetes.io/metadata.name": name}}}


def _pod(obj: Object, before: Object) -> Object:
    """A status whose one address and list of addresses say the same, and whose class stays."""
    status, old = obj.get("status"), before.get("status") or {}
    if not isinstance(status, dict) or status is old:
        return obj
    address, listed = status.get("podIP"), status.get("podIPs") or []
    kept = {"qosClass": old["qosClass"]} if old.get("qosClass") and not status.get("qosClass") else {}
    if address and (not listed or listed[0].get("ip") != address):
        kept["podIPs"] = [{"ip": address}]
    elif listed and not address:
        kept["podIP"] = listed[0].get("ip", "")
    return {**obj, "status": {**status, **kept}} if kept else obj


def _secret(obj: Object) -> Object:
    plain = obj.get("stringData") or {}
    secret = {name: value for name, value in obj.items() if name != "stringData"}
    if plain:
        coded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **coded}
    return with_missing(secret, {"type": "Opaque"})


def _node(obj: Object, before: Object) -> Object:
    spec, status = obj["spec"], obj["status"]
    if spec is not before.get("spec"):
        # The old single range and the list of ranges say the same.
        ranges = spec.get("podCIDRs") or ([spec["podCIDR"]] if "podCIDR" in spec else [])
        if ranges:
            obj = {**obj, "spec": {**spec, "podCIDR": ranges[0], "podCIDRs": ranges}}
    if status is not before.get("status") and "capacity" in status and "allocatable" not in status:
        obj = {**obj, "status": {**status, "allocatable": status["capacity"]}}
    return obj


# Workloads


def _workload(kind: str, spec: Fields) -> Fields:
    spec = with_missing(spec, _WORKLOADS[kind])
    match kind:
        case "Deployment":
            spec = {**spec, "strategy": _rolling(spec.get("strategy") or {}, _ROLLING)}
        case "DaemonSet":
            rolling = {"maxUnavailable": 1, "maxSurge": 0}
            spec = {**spec, "updateStrategy": _rolling(spec.get("updateStrategy") or {}, rolling)}
        case "StatefulSet":
            strategy = _rolling(spec.get("updateStrategy") or {}, {"partition": 0, "maxUnavailable": 1})
            kept = with_missing(
                spec.get("persistentVolumeClaimRetentionPolicy") or {},
                {"whenDeleted": "Retain", "whenScaled": "Retain"},
            )
            spec = {**spec, "updateStrategy": strategy, "persistentVolumeClaimRetentionPolicy": kept}
        case "Job":
            spec = _job(spec)
        case _:
            pass
    template = spec["template"]
    return {**spec, "template": {**template, "spec": template_spec(template["spec"])}}


_WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "Deployment": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "DaemonSet": {"revisionHistoryLimit": 10},
    "ReplicaSet": {"replicas": 1},
    "StatefulSet": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"},
    "Job": {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
}


def _rolling(strategy: Fields, defaults: Mapping[str, Any]) -> Fields:
    strategy = with_missing(strategy, {"type": "RollingUpdate"})
    if strategy["type"] != "RollingUpdate":
        return strategy
    return {**strategy, "rollingUpdate": with_missing(strategy.get("rollingUpdate") or {}, defaults)}


def _job(spec: Fields) -> Fields:
    if "completions" not in spec and "parallelism" not in spec:
        return {**spec, "completions": 1, "parallelism": 1}
    return with_missing(spec, {"parallelism": 1})


TEMPLATE_COUNTER = "deprecated.daemonset.template.generation"
"""The annotation of a DaemonSet that counts the changes of its template."""


def _counted_template(obj: Object) -> Object:
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), TEMPLATE_COUNTER: "1"}},
    }


def _selecting(job: Object) -> Object:
    """A job's pods are selected by the job's uid, unless the client asks for a selector of its own."""
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return job
    prefix = "batch.kubernetes.io/"
    uid = {f"{prefix}controller-uid": metadata["uid"]}
    name = metadata["name"]
    added = {**uid, f"{prefix}job-name": name, "controller-uid": metadata["uid"], "job-name": name}
    template = spec["template"]
    labels = {**(template["metadata"].get("labels") or {}), **added}
    template = {**template, "metadata": {**template["metadata"], "labels": labels}}
    selector = spec.get("selector") or {}
    selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **uid}}
    labelled = metadata if metadata.get("labels") else {**metadata, "labels": labels}
    return {**job, "metadata": labelled, "spec": {**spec, "selector": selector, "template": template}}


# Services


_ADDRESS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def _service(spec: Fields, old: Fields | None) -> Fields:
    spec = with_missing(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
    if spec.get("ports"):
        spec = {**spec, "ports": [_port(port) for port in spec["ports"]]}
    if spec["type"] == "ExternalName":
        return {name: part for name, part in spec.items() if name not in (*_ADDRESS, "internalTrafficPolicy")}
    spec = with_missing(spec, {"internalTrafficPolicy": "Cluster"})
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec = with_missing(spec, {"externalTrafficPolicy": "Cluster"})
    if old is None or "clusterIP" not in old:
        return spec
    if "clusterIP" in spec:
        return {**spec, "clusterIPs": [spec["clusterIP"]]}
    return {**spec, **{name: old[name] for name in _ADDRESS if name in old}}


def _port(port: Fields) -> Fields:
    port = with_missing(port, {"protocol": "TCP"})
    return port if port.get("targetPort") not in (None, 0, "") else {**port, "targetPort": port["port"]}


def _addressed(store: Store, service: Object) -> Fields:
    """The service's spec with a cluster address of its own."""
    spec: Fields = service["spec"]
    if spec["type"] == "ExternalName":
        return spec
    address = spec.get("clusterIP") or _free_address(store, service)
    families = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
    if address == "None" and not spec.get("selector"):
        families = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    return with_missing({**spec, "clusterIP": address, "clusterIPs": [address]}, families)


def _free_address(store: Store, service: Object) -> str:
    """An address that no service has; the same one in every run of the same story."""
    storage = store.storage_named("services")
    taken = [version.obj["spec"].get("clusterIP") for version in storage.objects.values()] if storage else []
    metadata = service["metadata"]
    start = zlib.crc32(f"{metadata['namespace']}/{metadata['name']}".encode())
    for step in range(_SERVICE_ADDRESSES - 2):
        address = str(IPv4Address(_SERVICE_NETWORK + 1 + (start + step) % (_SERVICE_ADDRESSES - 2)))
        if address not in taken:
            return address
    raise RuntimeError("every service address is taken")


# Pods


def quality_of_service(spec: Fields) -> str:
    """The class of a pod: Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    parts = [container.get("resources") or {} for container in containers if isinstance(container, dict)]
    pairs = [(_counted(part, "requests"), _counted(part, "limits")) for part in parts]
    if not any(requests or limits for requests, limits in pairs):
        return "BestEffort"
    guaranteed = all(requests == limits and len(limits) == 2 for requests, limits in pairs)
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(resources: Fields, which: str) -> Fields:
    listed = (resources.get(which) or {}).items()
    return {name: amount for name, amount in listed if name in ("cpu", "memory") and amount != "0"}
