"""Validation of workloads and services, worded as a real API server words it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from muster.kube.api import Object
from muster.sim.api_names import label_causes, label_name_faults, qualified_name_faults
from muster.sim.api_status import Cause, forbidden_field, invalid_value, required, unsupported_value
from muster.sim.pod_rules import duplicate, port_number_causes, spec_causes

Fields = dict[str, Any]

_NOT_NEGATIVE = "must be greater than or equal to 0"
_IMMUTABLE = "field is immutable"
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_SERVICE_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_JOB_COUNTS = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_CALLED = {
    "Deployment": "deployment",
    "ReplicaSet": "deployment",
    "DaemonSet": "daemonset",
    "StatefulSet": "statefulset",
}


def selector_causes(selector: Fields | None, path: str) -> list[Cause]:
    """What is wrong with a label selector."""
    if selector is None:
        return []
    causes = label_causes(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        where, operator, values = f"{path}.matchExpressions[{at}]", expression["operator"], expression.get("values")
        if operator in ("In", "NotIn") and not values:
            causes.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        if operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden_field(f"{where}.values", text))
        if operator not in _OPERATORS:
            causes.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
        causes += [
            invalid_value(f"{where}.key", expression["key"], f) for f in qualified_name_faults(expression["key"])
        ]
    return causes


def workload_causes(kind: str, obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a Deployment, DaemonSet, ReplicaSet, StatefulSet or Job."""
    spec = obj["spec"]
    if old is not None and spec is old["spec"]:
        return []
    if kind == "Job":
        return _job_causes(spec, None if old is None else old["spec"])
    counts = [name for name in _COUNTS if (spec.get(name) or 0) < 0]
    causes = [invalid_value(f"spec.{name}", spec[name], _NOT_NEGATIVE) for name in counts]
    causes += _selector_causes(kind, spec) + _template_causes(spec["template"])
    if kind == "Deployment":
        causes += _strategy_causes(spec["strategy"])
    if old is not None and old["spec"].get("selector") != spec.get("selector"):
        fixed = invalid_value("spec.selector", spec.get("selector"), _IMMUTABLE)
        causes = [fixed, *causes] if kind == "DaemonSet" else [*causes, fixed]
    return causes


def _selector_causes(kind: str, spec: Fields) -> list[Cause]:
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels")
    causes: list[Cause] = []
    if selector is None:
        if kind != "DaemonSet":
            causes.append(required("spec.selector"))
    else:
        causes += selector_causes(selector, "spec.selector")
        if not selector:
            causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {_CALLED[kind]}"))
        elif causes and kind != "DaemonSet":
            text = "" if kind == "StatefulSet" else "invalid label selector"
            causes.append(invalid_value("spec.selector", selector, text))
    if selector is None or (not causes and not _selects(selector, labels or {})):
        causes.append(_unselected(labels))
    return causes


def _unselected(labels: dict[str, str] | None) -> Cause:
    return invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _selects(selector: Fields, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_fits(expression, labels) for expression in selector.get("matchExpressions") or ())


def _fits(expression: Fields, labels: dict[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _template_causes(template: Fields, *, always: bool = True) -> list[Cause]:
    causes = spec_causes(template["spec"], "spec.template.spec")
    policy = template["spec"]["restartPolicy"]
    if always and policy in ("Never", "OnFailure"):
        causes.append(unsupported_value("spec.template.spec.restartPolicy", policy, ["Always"]))
    return causes


def _strategy_causes(strategy: Fields) -> list[Cause]:
    if strategy["type"] not in ("Recreate", "RollingUpdate"):
        told = {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}
        return [unsupported_value("spec.strategy", told, ["Recreate", "RollingUpdate"])]
    rolling = strategy.get("rollingUpdate") or {}
    if strategy["type"] == "Recreate" and rolling:
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden_field("spec.strategy.rollingUpdate", text)]
    unavailable = rolling.get("maxUnavailable")
    if unavailable in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        path = "spec.strategy.rollingUpdate.maxUnavailable"
        return [invalid_value(path, unavailable, "may not be 0 when `maxSurge` is 0")]
    return []


def _job_causes(spec: Fields, old: Fields | None) -> list[Cause]:
    counts = [name for name in _JOB_COUNTS if (spec.get(name) or 0) < 0]
    causes = [invalid_value(f"spec.{name}", spec[name], _NOT_NEGATIVE) for name in counts]
    causes += selector_causes(spec.get("selector"), "spec.selector") + _template_causes(
        spec["template"], always=False
    )
    if spec["template"]["spec"]["restartPolicy"] == "Always":
        text = 'valid values: "OnFailure", "Never"'
        causes.append(required("spec.template.spec.restartPolicy", text))
    generated = list(spec["selector"].get("matchLabels") or {}) == ["batch.kubernetes.io/controller-uid"]
    if not spec.get("manualSelector") and not generated:
        causes.append(invalid_value("spec.selector", spec["selector"], "`selector` not auto-generated"))
    labels = spec["template"]["metadata"].get("labels")
    if not _selects(spec["selector"], labels or {}):
        causes.append(_unselected(labels))
    if old is None:
        return causes
    for name in ("completions", "selector", "completionMode"):
        if spec.get(name) != old.get(name):
            causes.append(invalid_value(f"spec.{name}", spec.get(name), _IMMUTABLE))
    if spec["template"]["spec"] != old["template"]["spec"]:
        causes.append(invalid_value("spec.template.spec", spec["template"]["spec"], _IMMUTABLE))
    return causes


# Services


def service_causes(obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a Service."""
    spec = obj["spec"]
    if old is not None and spec is old["spec"]:
        return []
    ports, address, kind = spec.get("ports") or [], spec.get("clusterIP", ""), spec["type"]
    causes: list[Cause] = []
    if not ports and address != "None" and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind == "ExternalName" and not spec.get("externalName"):
        causes.append(required("spec.externalName"))
    causes += _service_port_causes(ports)
    causes += label_causes(spec.get("selector") or {}, "spec.selector")
    if kind not in _SERVICE_TYPES:
        causes.append(unsupported_value("spec.type", kind, _SERVICE_TYPES))
    if address and address != "None" and not _is_address(address):
        text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        causes.append(invalid_value("spec.clusterIPs[0]", address, text))
    before = {} if old is None else old["spec"]
    if before.get("clusterIP") and kind != "ExternalName" and before["clusterIP"] != address:
        causes.append(invalid_value("spec.clusterIPs[0]", [address], "may not change once set"))
    return causes


def _service_port_causes(ports: list[Fields]) -> list[Cause]:
    causes: list[Cause] = []
    names: list[str] = []
    for at, port in enumerate(ports):
        path, name = f"spec.ports[{at}]", port.get("name", "")
        if not name and len(ports) > 1:
            causes.append(required(f"{path}.name"))
        elif name in names:
            causes.append(duplicate(f"{path}.name", name))
        elif name:
            causes += [invalid_value(f"{path}.name", name, fault) for fault in label_name_faults(name)]
            names.append(name)
        causes += port_number_causes(port["port"], f"{path}.port")
        if port["protocol"] not in _PROTOCOLS:
            causes.append(unsupported_value(f"{path}.protocol", port["protocol"], _PROTOCOLS))
        target = port.get("targetPort", 0)
        if isinstance(target, int):
            causes += port_number_causes(target, f"{path}.targetPort")
    seen: list[tuple[Any, Any]] = []
    for at, port in enumerate(ports):
        place = (port["protocol"], port["port"])
        if place in seen:
            causes.append(duplicate(f"spec.ports[{at}]", {"Protocol": place[0], "Port": place[1]}))
        seen.append(place)
    return causes


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
