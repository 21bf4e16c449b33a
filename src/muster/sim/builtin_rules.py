"""Validation of built-in kinds: what the simulated fleet, the controllers, kubectl and Helm rely on.

The fields have their types already (`builtin_fields`). What no rule here mentions is stored as it comes.
"""

from __future__ import annotations

import base64
import json
import re
from ipaddress import ip_network
from typing import Any

from muster.kube.api import Object
from muster.sim import admission_rules
from muster.sim.api_conversion import to_storage
from muster.sim.api_kinds import Kind
from muster.sim.api_status import Cause, forbidden_field, invalid_value, required, unsupported_value
from muster.sim.custom_resources import crd_causes
from muster.sim.event_rules import event_causes
from muster.sim.pod_rules import amounts_causes, pod_causes, taint_causes
from muster.sim.workload_rules import selector_causes, service_causes, workload_causes

_WORKLOADS = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job")
_MAX_DATA_BYTES = 1024 * 1024
_MAX_PRIORITY = 1_000_000_000
_UNHEALTHY = ["AlwaysAllow", "IfHealthyBudget"]
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_ADVICE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_PERCENT_ADVICE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_FROZEN_DATA = "field is immutable when `immutable` is set"
_TOO_LONG = f"Too long: may not be more than {_MAX_DATA_BYTES} bytes"
_IMMUTABLE = "field is immutable"


def causes_of(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a built-in object (None as `old`: it is new)."""
    match kind.name:
        case "Pod":
            return pod_causes(obj, old)
        case "Node":
            return _node_causes(obj, old)
        case "PodDisruptionBudget":
            return _budget_causes(obj, old)
        case "ConfigMap":
            return _config_causes(obj, old)
        case "Secret":
            return _secret_causes(obj, old)
        case "Service":
            return service_causes(obj, old)
        case "Lease":
            return _lease_causes(obj)
        case "Event":
            return _event_causes(kind, obj, old)
        case "PriorityClass":
            return _priority_causes(obj, old)
        case "CustomResourceDefinition":
            return crd_causes(obj, old)
        case name if name in _WORKLOADS:
            return workload_causes(kind.name, obj, old)
        case _:
            return admission_rules.causes_of(kind, obj, old)


def _event_causes(kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
    convert = to_storage(kind)
    if convert is None:
        return event_causes(obj, old, strict=False)
    return event_causes(convert(obj), None if old is None else convert(old), strict=True)


def _node_causes(obj: Object, old: Object | None) -> list[Cause]:
    spec, status = obj["spec"], obj["status"]
    before = {} if old is None else old["spec"]
    causes: list[Cause] = []
    if old is None or status is not old["status"]:
        for name in ("capacity", "allocatable"):
            causes += amounts_causes(status.get(name) or {}, f"status.{name}")
    if old is not None and spec is before:
        return causes
    ranges, former = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    for at, text in enumerate(ranges):
        if not _is_range(text):
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            causes.append(invalid_value(f"spec.podCIDRs[{at}]", text, detail))
    if sum("." in text for text in ranges) > 1 or sum(":" in text for text in ranges) > 1:
        detail = "may specify no more than one CIDR for each IP family"
        causes.append(invalid_value("spec.podCIDRs", ranges, detail))
    if former and ranges != former:
        detail = 'node updates may not change podCIDR except from "" to valid'
        causes.append(forbidden_field("spec.podCIDRs", detail))
    provider = before.get("providerID")
    if provider and provider != spec.get("providerID"):
        verb = "modified" if spec.get("providerID") else "cleared"
        causes.append(invalid_value("spec.providerID", None, f"field cannot be {verb} once set"))
    # A real server names the taints below metadata.
    return causes + taint_causes(spec.get("taints") or [], "metadata.taints")


def _is_range(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _budget_causes(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj["spec"]
    if old is not None and spec is old["spec"]:
        return []
    causes: list[Cause] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        told = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(invalid_value("spec", told, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            causes += _amount_causes(spec[name], f"spec.{name}")
    causes += selector_causes(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _UNHEALTHY:
        causes.append(unsupported_value("spec.unhealthyPodEvictionPolicy", policy, _UNHEALTHY))
    return causes


def _amount_causes(value: int | str, path: str) -> list[Cause]:
    """A number of pods, or a share of them."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(path, value, "must be greater than or equal to 0")]
    if not re.fullmatch(r"[0-9]+%", value):
        return [invalid_value(path, value, _PERCENT_ADVICE)]
    return [] if int(value[:-1]) <= 100 else [invalid_value(path, value, "must not be greater than 100%")]


# Configuration


def _key_faults(key: str) -> list[str]:
    faults = ["must be no more than 253 characters"] if len(key) > 253 else []
    if not _KEY.fullmatch(key):
        faults.append(_KEY_ADVICE)
    if key == ".":
        faults.append("must not be '.'")
    elif key == "..":
        faults.append("must not be '..'")
    elif key.startswith(".."):
        faults.append("must not start with '..'")
    return faults


def _key_causes(values: dict[str, Any], path: str) -> list[Cause]:
    return [invalid_value(f"{path}[{key}]", key, fault) for key in values for fault in _key_faults(key)]


def _frozen_causes(obj: Object, old: Object | None, fields: tuple[str, ...]) -> list[Cause]:
    """Changes of an object that calls itself immutable."""
    if old is None or not old.get("immutable"):
        return []
    causes = [] if obj.get("immutable") else [forbidden_field("immutable", _FROZEN_DATA)]
    return causes + [forbidden_field(name, _FROZEN_DATA) for name in fields if obj.get(name) != old.get(name)]


def _decoded_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def _config_causes(obj: Object, old: Object | None) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = _frozen_causes(obj, old, ("data", "binaryData"))
    if old is not None and obj.get("data") is old.get("data") and obj.get("binaryData") is old.get("binaryData"):
        return causes
    causes += _key_causes(data, "data")
    doubled = [key for key in data if key in binary]
    causes += [invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in doubled]
    causes += _key_causes(binary, "binaryData")
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_length, binary.values()))
    if size > _MAX_DATA_BYTES:
        causes.append(Cause("FieldValueTooLong", _TOO_LONG, "[]"))
    return causes


_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret_causes(obj: Object, old: Object | None) -> list[Cause]:
    data, kind = obj.get("data") or {}, obj["type"]
    causes: list[Cause] = []
    if old is not None and old["type"] != kind:
        causes.append(invalid_value("type", kind, _IMMUTABLE))
    causes += _frozen_causes(obj, old, ("data",)) + _key_causes(data, "data")
    if sum(map(_decoded_length, data.values())) > _MAX_DATA_BYTES:
        causes.append(Cause("FieldValueTooLong", _TOO_LONG, "data"))
    causes += [required(f"data[{key}]") for key in _NEEDED.get(kind, ()) if key not in data]
    if kind in ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"):
        key = _NEEDED[kind][0]
        if key in data and not _is_json(base64.b64decode(data[key])):
            text = "unexpected end of JSON input"
            causes.append(invalid_value(f"data[{key}]", "<secret contents redacted>", text))
    account = "kubernetes.io/service-account.name"
    if kind == "kubernetes.io/service-account-token" and not (obj["metadata"].get("annotations") or {}).get(account):
        causes.append(required(f"metadata.annotations[{account}]"))
    return causes


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def _lease_causes(obj: Object) -> list[Cause]:
    spec = obj["spec"]
    causes = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def _priority_causes(obj: Object, old: Object | None) -> list[Cause]:
    name, value, policy = obj["metadata"]["name"], obj["value"], obj["preemptionPolicy"]
    causes: list[Cause] = []
    if old is not None:
        if value != old["value"]:
            causes.append(forbidden_field("value", "may not be changed in an update."))
        if policy != old["preemptionPolicy"]:
            causes.append(invalid_value("preemptionPolicy", policy, _IMMUTABLE))
        return causes
    if name.startswith("system-"):
        text = (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            f"{name} is not a known system priority class"
        )
        causes.append(forbidden_field("metadata.name", text))
    elif value > _MAX_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}"
        causes.append(forbidden_field("value", text))
    if policy not in ("PreemptLowerPriority", "Never"):
        causes.append(unsupported_value("preemptionPolicy", policy, ["PreemptLowerPriority", "Never"]))
    return causes
