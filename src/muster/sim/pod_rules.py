"""Validation of pods and of the pod templates of workloads, worded as a real API server words it.

What no rule here mentions is stored as it comes, once its types fit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from muster.kube.api import Object
from muster.sim.api_names import label_causes, label_name_faults, qualified_name_faults, subdomain_faults
from muster.sim.api_status import Cause, forbidden_field, invalid_value, required, shown, unsupported_value
from muster.sim.quantities import quantity_value

Fields = dict[str, Any]

_RESTART = ["Always", "OnFailure", "Never"]
_DNS = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
_PULL = ["Always", "IfNotPresent", "Never"]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_MAX_SECONDS = 2**31 - 1
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def duplicate(path: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", path)


def pod_causes(obj: Object, old: Object | None) -> list[Cause]:
    """What is wrong with a pod."""
    spec = obj["spec"]
    if old is not None and spec is old["spec"]:
        return _class_causes(obj["status"], old["status"])
    causes = spec_causes(spec, "spec")
    if old is not None:
        causes += _update_causes(spec, old["spec"])
    return causes


def _class_causes(status: Fields, old: Fields) -> list[Cause]:
    found, before = status.get("qosClass", ""), old.get("qosClass", "")
    return [] if found == before else [invalid_value("status.qosClass", found, "field is immutable")]


def spec_causes(spec: Fields, path: str) -> list[Cause]:
    """What is wrong with the spec of a pod or of a template at `path`."""
    volumes = spec.get("volumes") or []
    causes = _volume_causes(volumes, f"{path}.volumes")
    containers = spec.get("containers") or []
    if not containers:
        causes.append(required(f"{path}.containers"))
    known = [volume["name"] for volume in volumes]
    taken: list[str] = []
    for name in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(name) or ()):
            causes += _container_causes(container, f"{path}.{name}[{at}]", known, taken)
            taken.append(container["name"])
    for name, allowed in (("restartPolicy", _RESTART), ("dnsPolicy", _DNS)):
        if spec[name] not in allowed:
            causes.append(unsupported_value(f"{path}.{name}", spec[name], allowed))
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_SECONDS:
        text = f"must be between 1 and {_MAX_SECONDS}, inclusive"
        causes.append(invalid_value(f"{path}.activeDeadlineSeconds", seconds, text))
    causes += label_causes(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for name in ("nodeName", "serviceAccountName"):
        if spec.get(name):
            causes += [invalid_value(f"{path}.{name}", spec[name], fault) for fault in subdomain_faults(spec[name])]
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        causes += _toleration_causes(toleration, f"{path}.tolerations[{at}]")
    return causes


def _volume_causes(volumes: list[Fields], path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: list[str] = []
    for at, volume in enumerate(volumes):
        where, name = f"{path}[{at}]", volume["name"]
        sources = [source for source in volume if source != "name"]
        text = "may not specify more than 1 volume type"
        causes += [forbidden_field(f"{where}.{source}", text) for source in _in_order(sources)[1:]]
        if not name:
            causes.append(required(f"{where}.name"))
        elif name in seen:
            causes.append(duplicate(f"{where}.name", name))
        else:
            causes += [invalid_value(f"{where}.name", name, fault) for fault in label_name_faults(name)]
        seen.append(name)
    return causes


def _in_order(sources: list[str]) -> list[str]:
    """Sources of a volume in the order in which a real server looks at them."""
    first = ("emptyDir", "hostPath")
    return sorted(sources, key=lambda name: first.index(name) if name in first else len(first))


def _container_causes(container: Fields, path: str, volumes: list[str], taken: list[str]) -> list[Cause]:
    name = container["name"]
    causes: list[Cause] = []
    if not name:
        causes.append(required(f"{path}.name"))
    elif name in taken:
        causes.append(duplicate(f"{path}.name", name))
    else:
        causes += [invalid_value(f"{path}.name", name, fault) for fault in label_name_faults(name)]
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for at, port in enumerate(container.get("ports") or ()):
        causes += _port_causes(port, f"{path}.ports[{at}]")
    for at, variable in enumerate(container.get("env") or ()):
        causes += _variable_causes(variable["name"], f"{path}.env[{at}].name")
    for at, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount["name"]:
            causes.append(required(f"{path}.volumeMounts[{at}].name"))
        elif mount["name"] not in volumes:
            text = f"Not found: {shown(mount['name'])}"
            causes.append(Cause("FieldValueNotFound", text, f"{path}.volumeMounts[{at}].name"))
        if not mount["mountPath"]:
            causes.append(required(f"{path}.volumeMounts[{at}].mountPath"))
    if container["imagePullPolicy"] not in _PULL:
        causes.append(unsupported_value(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULL))
    return causes + _resource_causes(container["resources"], f"{path}.resources")


def _port_causes(port: Fields, path: str) -> list[Cause]:
    causes: list[Cause] = []
    if port.get("name"):
        causes += [invalid_value(f"{path}.name", port["name"], fault) for fault in port_name_faults(port["name"])]
    if not port["containerPort"]:
        causes.append(required(f"{path}.containerPort"))
    else:
        causes += port_number_causes(port["containerPort"], f"{path}.containerPort")
    if port["protocol"] not in _PROTOCOLS:
        causes.append(unsupported_value(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    return causes


def port_number_causes(number: int, path: str) -> list[Cause]:
    if 1 <= number <= 65535:
        return []
    return [invalid_value(path, number, "must be between 1 and 65535, inclusive")]


def port_name_faults(name: str) -> list[str]:
    """What is wrong with the name of a port."""
    faults = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not all(character in "abcdefghijklmnopqrstuvwxyz0123456789-" for character in name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= character <= "z" for character in name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name[:1] == "-" or name[-1:] == "-":
        faults.append("must not begin or end with a hyphen")
    return faults


def _variable_causes(name: str, path: str) -> list[Cause]:
    if not name:
        return [required(path)]
    if "=" in name or not name.isascii() or not name.isprintable():
        text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        return [invalid_value(path, name, text)]
    return []


def _resource_causes(resources: Fields, path: str) -> list[Cause]:
    causes: list[Cause] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for which, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            causes += _amount_causes(name, amount, f"{path}.{which}[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if "/" in name:
                text = "Limit must be set for non overcommitable resources"
                causes.append(required(f"{path}.limits", text))
        elif "/" in name and quantity_value(amount) != quantity_value(limit):
            text = f"must be equal to {name} limit of {limit}"
            causes.append(invalid_value(f"{path}.requests", amount, text))
        elif quantity_value(amount) > quantity_value(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            causes.append(invalid_value(f"{path}.requests", amount, text))
    return causes


def _amount_causes(name: str, amount: str, path: str) -> list[Cause]:
    causes = [invalid_value(path, name, fault) for fault in qualified_name_faults(name)]
    if not causes and "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        told = (
            "must be a standard resource type or fully qualified",
            "must be a standard resource for containers",
        )
        return [invalid_value(path, name, text) for text in told]
    value = quantity_value(amount)
    if value < 0:
        causes.append(invalid_value(path, amount, "must be greater than or equal to 0"))
    if "/" in name and value != value.to_integral_value():
        causes.append(invalid_value(path, amount, "must be an integer"))
    return causes


def _toleration_causes(toleration: Fields, path: str) -> list[Cause]:
    causes: list[Cause] = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        causes += [invalid_value(f"{path}.key", key, fault) for fault in qualified_name_faults(key)]
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{path}.operator", operator, text))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid_value(f"{path}.effect", effect, text))
    if operator == "Exists" and value:
        text = "value must be empty when `operator` is 'Exists'"
        causes.append(invalid_value(f"{path}.operator", value, text))
    if operator not in ("", "Equal", "Exists", "Lt", "Gt"):
        causes.append(unsupported_value(f"{path}.operator", operator, ["Equal", "Exists"]))
    if effect and effect not in _EFFECTS:
        causes.append(unsupported_value(f"{path}.effect", effect, _EFFECTS))
    return causes


# Updates


def _update_causes(spec: Fields, old: Fields) -> list[Cause]:
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(old.get(name) or ()):
            text = "pod updates may not add or remove containers"
            return [forbidden_field(f"spec.{name}", text)]
    causes = _deadline_causes(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if causes:
        return causes
    causes += _kept_tolerations(spec.get("tolerations") or [], old.get("tolerations") or [])
    gates, before = spec.get("schedulingGates") or [], old.get("schedulingGates") or []
    for at, gate in enumerate(gates):
        if gate not in before:
            text = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            causes.append(forbidden_field(f"spec.schedulingGates[{at}].name", text))
    frozen = "nodeSelector" if before else ""
    if _unchangeable(spec, frozen) != _unchangeable(old, frozen):
        causes.append(forbidden_field("spec", _FROZEN))
    return causes


def _deadline_causes(seconds: int | None, before: int | None) -> list[Cause]:
    path = "spec.activeDeadlineSeconds"
    if seconds is None:
        text = "must not update from a positive integer to nil value"
        return [] if before is None else [invalid_value(path, None, text)]
    if before is not None and before < seconds:
        return [invalid_value(path, seconds, "must be less than or equal to previous value")]
    return []


def _kept_tolerations(tolerations: list[Fields], before: list[Fields]) -> list[Cause]:
    def identity(toleration: Fields) -> Fields:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    known = [identity(toleration) for toleration in tolerations]
    if all(identity(toleration) in known for toleration in before):
        return []
    text = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_field("spec.tolerations", text)]


def _unchangeable(spec: Fields, also_mutable: str) -> Fields:
    """The part of a pod's spec that no update may change."""
    frozen = {name: value for name, value in spec.items() if name not in _MUTABLE and name != also_mutable}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            frozen[name] = [{k: v for k, v in c.items() if k != "image"} for c in spec[name]]
    return frozen


def taint_causes(taints: list[Fields], path: str) -> list[Cause]:
    """What is wrong with the taints of a node."""
    causes: list[Cause] = []
    seen: list[tuple[str, str]] = []
    for at, taint in enumerate(taints):
        where, key, effect = f"{path}[{at}]", taint["key"], taint["effect"]
        causes += [invalid_value(f"{where}.key", key, fault) for fault in qualified_name_faults(key)]
        causes += [
            Cause(cause.reason, cause.message, f"{where}.value")
            for cause in label_causes({"value": taint.get("value", "")})
        ]
        if not effect:
            causes.append(required(f"{where}.effect"))
        elif effect not in _EFFECTS:
            causes.append(unsupported_value(f"{where}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            told = {
                "Key": key,
                "Value": taint.get("value", ""),
                "Effect": effect,
                "TimeAdded": taint.get("timeAdded"),
            }
            text = f"Duplicate value: {shown(told)}: taints must be unique by key and effect pair"
            causes.append(Cause("FieldValueDuplicate", text, where))
        seen.append((key, effect))
    return causes


def amounts_causes(amounts: Fields, path: str) -> list[Cause]:
    """What is wrong with the capacity of a node."""
    return [
        invalid_value(f"{path}.{name}", amount, "must be greater than or equal to 0")
        for name, amount in amounts.items()
        if quantity_value(amount) < Decimal(0)
    ]
