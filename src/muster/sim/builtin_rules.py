"""Defaults and validation of built-in kinds: what the simulated fleet, the controllers and kubectl rely on.

Fields of built-in kinds that no rule here mentions are stored as they come.
"""

from __future__ import annotations

from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, StatusError, forbidden_field, invalid_value, required, unsupported_value
from muster.sim.custom_resources import crd_causes
from muster.sim.selectors import from_label_selector

_WORKLOADS = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job")
_MUTABLE_POD_SPEC = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
_TAINT_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_POD_PHASES = ["Pending", "Running", "Succeeded", "Failed", "Unknown"]


def on_create(kind: Kind, obj: Object) -> Object:
    """The object with defaults, and with the status that a new object of this kind begins with."""
    name = obj["metadata"]["name"]
    match kind.name:
        case "Namespace":
            labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
            return {
                **obj,
                "metadata": {**obj["metadata"], "labels": labels},
                "spec": {**(obj.get("spec") or {}), "finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }
        case "Pod":
            spec = _pod_defaults(obj.get("spec") or {})
            return {**obj, "spec": spec, "status": {"phase": "Pending", "qosClass": _qos(spec)}}
        case "Node":
            return {**obj, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}
        case "Secret":
            return _secret(obj)
        case _ if kind.has_status and not kind.keeps_status_on_create:
            return {**obj, "status": {}}
        case _:
            return obj


def on_update(kind: Kind, obj: Object) -> Object:
    """Defaults for an updated object."""
    match kind.name:
        case "Secret":
            return _secret(obj)
        case "Pod" if isinstance(obj.get("spec"), dict):
            return {**obj, "spec": _pod_defaults(obj["spec"])}
        case "Namespace":
            labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
            return {**obj, "metadata": {**obj["metadata"], "labels": labels}}
        case _:
            return obj


def _secret(obj: Object) -> Object:
    import base64

    secret = {name: value for name, value in obj.items() if name != "stringData"}
    plain = obj.get("stringData") or {}
    if plain:
        coded = {name: base64.b64encode(str(value).encode()).decode() for name, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **coded}
    secret.setdefault("type", "Opaque")
    return secret


_POD_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: dict[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def _pod_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    missing = {name: value for name, value in _POD_DEFAULTS.items() if name not in spec}
    filled = {**spec, **missing} if missing else dict(spec)
    for name in ("containers", "initContainers"):
        containers = spec.get(name)
        if isinstance(containers, list):
            filled[name] = [_container_defaults(c) if isinstance(c, dict) else c for c in containers]
    return spec if filled == spec else filled


def _container_defaults(container: dict[str, Any]) -> dict[str, Any]:
    defaults = dict(_CONTAINER_DEFAULTS)
    image = container.get("image")
    if isinstance(image, str):
        tag = image.rpartition("/")[2].partition(":")[2]
        defaults["imagePullPolicy"] = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    missing = {name: value for name, value in defaults.items() if name not in container}
    filled = {**container, **missing} if missing else dict(container)
    resources = filled.get("resources")
    if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        if requests != resources.get("requests"):
            filled["resources"] = {**resources, "requests": requests}
    return filled


def _qos(spec: dict[str, Any]) -> str:
    containers = [c for c in spec.get("containers") or [] if isinstance(c, dict)]
    parts = [c.get("resources") or {} for c in containers]
    wanted = [
        {k: v for k, v in (p.get(which) or {}).items() if k in ("cpu", "memory")} for p in parts for which in _BOTH
    ]
    if not any(wanted):
        return "BestEffort"
    pairs = list(zip(wanted[::2], wanted[1::2], strict=True))
    return "Guaranteed" if all(r == lim and len(lim) == 2 for r, lim in pairs) else "Burstable"


_BOTH = ("requests", "limits")


def causes_of(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a built-in object (None as `old`: it is new)."""
    causes = _type_causes(kind, obj, old or {})
    if causes:
        return causes
    match kind.name:
        case "Pod":
            return _pod_causes(obj, old)
        case "Node":
            return _node_causes(obj)
        case "PodDisruptionBudget":
            return _budget_causes(obj)
        case "ConfigMap" | "Secret":
            return _data_causes(obj, old)
        case "Lease":
            return _lease_causes(obj)
        case "Namespace" if old is not None and (obj.get("spec") or {}) != (old.get("spec") or {}):
            return [forbidden_field("spec", "finalizers change through the finalize subresource only")]
        case "CustomResourceDefinition":
            return crd_causes(obj, old)
        case name if name in _WORKLOADS:
            return _workload_causes(kind.name, obj, old)
        case _:
            return []


_OBJECTS = (
    "spec",
    "status",
    "spec.selector",
    "spec.template",
    "spec.template.spec",
    "involvedObject",
    "source",
    "series",
)
_LISTS_OF_OBJECTS = (
    *("spec.containers", "spec.initContainers", "spec.taints", "spec.tolerations", "spec.ports", "status.conditions"),
    *("status.containerStatuses", "status.addresses", "spec.template.spec.containers", "secrets"),
)
_WHOLE_NUMBERS = ("spec.replicas", "spec.terminationGracePeriodSeconds", "spec.completions", "count")
_TEXTS = ("spec.nodeName", "status.phase", "status.reason", "reason", "message")


_TYPED: tuple[tuple[tuple[str, ...], type, str], ...] = tuple(
    (tuple(path.split(".")), wanted, word)
    for paths, wanted, word in (
        (_OBJECTS, dict, "an object"),
        (_LISTS_OF_OBJECTS, list, "a list of objects"),
        (_WHOLE_NUMBERS, int, "a whole number"),
        (_TEXTS, str, "a string"),
    )
    for path in paths
)


def _type_causes(kind: Kind, obj: Object, old: Object) -> list[Cause]:
    """Changed fields that the server itself reads and that are not of their JSON type."""
    changed = [name for name in kind.top if name in obj and obj[name] is not old.get(name)]
    causes: list[Cause] = []
    if not changed:
        return causes
    for path, wanted, word in _TYPED:
        if path[0] not in changed:
            continue
        value: Any = obj
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        fits = value is None or (isinstance(value, wanted) and not isinstance(value, bool))
        if fits and isinstance(value, list):
            fits = all(isinstance(item, dict) for item in value)
        if not fits:
            causes.append(invalid_value(".".join(path), value, f"must be {word}"))
    return causes


def _pod_causes(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = _pod_spec_causes(spec, "spec")
    phase = (obj.get("status") or {}).get("phase")
    if phase and phase not in _POD_PHASES:
        causes.append(unsupported_value("status.phase", phase, _POD_PHASES))
    if old is not None and _frozen_pod_spec(spec) != _frozen_pod_spec(old.get("spec") or {}):
        detail = (
            "pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "
            "`spec.terminationGracePeriodSeconds` and additions to `spec.tolerations`"
        )
        causes.append(forbidden_field("spec", detail))
    if old is not None:
        before = (old.get("spec") or {}).get("tolerations") or []
        if any(toleration not in (spec.get("tolerations") or []) for toleration in before):
            causes.append(
                forbidden_field(
                    "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
                )
            )
    return causes


def _pod_spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [required(f"{path}.containers")]
    causes = []
    seen: list[str] = []
    for at, container in enumerate(containers):
        where = f"{path}.containers[{at}]"
        if not isinstance(container, dict):
            causes.append(invalid_value(where, container, "must be an object"))
            continue
        causes += [
            required(f"{where}.{name}")
            for name in ("name", "image")
            if not isinstance(container.get(name), str) or not container[name]
        ]
        if container.get("name") in seen:
            causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{container["name"]}"', f"{where}.name"))
        seen.append(str(container.get("name")))
    policy = spec.get("restartPolicy")
    if policy not in (None, "Always", "OnFailure", "Never"):
        causes.append(unsupported_value(f"{path}.restartPolicy", policy, ["Always", "OnFailure", "Never"]))
    return causes


def _frozen_pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a pod's spec that no update may change."""
    frozen = {name: value for name, value in spec.items() if name not in _MUTABLE_POD_SPEC}
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            frozen[name] = [{k: v for k, v in c.items() if k not in ("image", "imagePullPolicy")} for c in spec[name]]
    return frozen


def _node_causes(obj: Object) -> list[Cause]:
    causes: list[Cause] = []
    taints = (obj.get("spec") or {}).get("taints") or []
    if not isinstance(taints, list):
        return [invalid_value("spec.taints", taints, "must be a list")]
    seen: list[tuple[Any, Any]] = []
    for at, taint in enumerate(taints):
        where = f"spec.taints[{at}]"
        if not isinstance(taint, dict) or not taint.get("key"):
            causes.append(required(f"{where}.key"))
            continue
        if taint.get("effect") not in _TAINT_EFFECTS:
            causes.append(unsupported_value(f"{where}.effect", taint.get("effect"), _TAINT_EFFECTS))
        if (taint["key"], taint.get("effect")) in seen:
            causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{taint["key"]}"', where))
        seen.append((taint["key"], taint.get("effect")))
    return causes


def _budget_causes(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        percent = isinstance(value, str) and value.endswith("%") and value[:-1].isdigit() and int(value[:-1]) <= 100
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value is not None and not percent and not whole:
            causes.append(
                invalid_value(f"spec.{name}", value, "must be a whole number from 0 or a percentage up to 100%")
            )
    try:
        from_label_selector(spec.get("selector"))
    except (StatusError, AttributeError, TypeError) as error:
        causes.append(invalid_value("spec.selector", None, str(error)))
    return causes


def _data_causes(obj: Object, old: Object | None) -> list[Cause]:
    data = obj.get("data") or {}
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        return [invalid_value("data", None, "must be an object whose values are strings")]
    if old is not None and old.get("immutable") and data != (old.get("data") or {}):
        return [forbidden_field("data", "field is immutable when `immutable` is set")]
    return []


def _lease_causes(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and (not isinstance(duration, int) or duration <= 0):
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and (not isinstance(transitions, int) or transitions < 0):
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def _workload_causes(name: str, obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    causes = _pod_spec_causes(template.get("spec") or {}, "spec.template.spec")
    if name != "Job" and not spec.get("selector"):
        causes.append(required("spec.selector"))
    if old is not None and name != "ReplicaSet":
        before = (old.get("spec") or {}).get("selector")
        if before != spec.get("selector"):
            causes.append(invalid_value("spec.selector", spec.get("selector"), "field is immutable"))
    return causes
