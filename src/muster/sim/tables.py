"""Tables (`meta.k8s.io/v1 Table`): what `kubectl get` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.json_path import JsonPathError, compile_path

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Column:
    """`cell` makes the cell from an object and the time now. Columns of priority 1 show with `-o wide` only."""

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def table_of(
    kind: Kind, objects: Iterable[Object], metadata: dict[str, Any], now: datetime, include: str = "Metadata"
) -> Object:
    """A Table of `objects`. `include`: what each row carries besides its cells: Metadata, Object or None."""
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


def _row(columns: tuple[Column, ...], obj: Object, now: datetime, include: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial_metadata(obj)
    return row


def partial_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind: its own, the printer columns of a custom resource, or name and age."""
    if kind.custom is not None:
        extra = tuple(_printer_column(column) for column in kind.custom.columns)
        return (_NAME, *(extra or (_AGE,)))
    return _BUILTIN.get(kind.name, (_NAME, _AGE))


def age(created: Any, now: datetime) -> str:
    """How long ago, in kubectl's words: `5m10s`, `3h`, `2d4h`."""
    try:
        moment = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return UNKNOWN
    return duration((now - moment).total_seconds())


def duration(seconds: float) -> str:
    """A duration in kubectl's words, coarser the longer it is."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // 86400 // 365
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    if years < 8:
        return _pair(years, "y", days % 365, "d")
    return f"{years}y"


def _pair(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def get(obj: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default` where it is missing or empty."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return default if obj in (None, "", [], {}) else obj


def _at(name: str, path: str, default: Any = NONE, *, type: str = "string", priority: int = 0) -> Column:  # noqa: A002
    return Column(name, lambda obj, _now: get(obj, path, default), type, priority)


_NAME = Column("Name", lambda obj, _now: obj["metadata"]["name"], format="name")
_AGE = Column("Age", lambda obj, now: age(get(obj, "metadata.creationTimestamp"), now))
_CREATED = _at("Created At", "metadata.creationTimestamp", UNKNOWN)


def _printer_column(column: Any) -> Column:
    try:
        find = compile_path(column.json_path)
    except JsonPathError:
        return Column(column.name, lambda _obj, _now: "<unsupported path>", column.type, column.priority)

    def cell(obj: Object, now: datetime) -> Any:
        values = find(obj)
        if not values:
            return None
        match column.type:
            case "date":
                return age(values[0], now)
            case "string":
                return " ".join(_text(value) for value in values)
            case _:
                return values[0]

    return Column(column.name, cell, column.type, column.priority, column.format, column.description)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _node_status(obj: Object, _now: datetime) -> str:
    ready = [c for c in get(obj, "status.conditions", ()) if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[0].get("status") == "True" else "NotReady"]
    if get(obj, "spec.unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(obj: Object, _now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = get(obj, "metadata.labels", {})
    roles = [name[len(prefix) :] for name in labels if name.startswith(prefix) and len(name) > len(prefix)]
    roles += [value for name, value in labels.items() if name == "kubernetes.io/role" and value]
    return ",".join(sorted(roles)) or NONE


def _node_address(wanted: str) -> Callable[[Object, datetime], str]:
    def cell(obj: Object, _now: datetime) -> str:
        addresses = get(obj, "status.addresses", ())
        return next((a["address"] for a in addresses if a.get("type") == wanted and a.get("address")), NONE)

    return cell


def _pod_statuses(obj: Object) -> list[dict[str, Any]]:
    return list(get(obj, "status.containerStatuses", []))


def _pod_ready(obj: Object, _now: datetime) -> str:
    ready = sum(bool(status.get("ready")) for status in _pod_statuses(obj))
    return f"{ready}/{len(get(obj, 'spec.containers', ()))}"


def _pod_status(obj: Object, _now: datetime) -> str:
    reason = str(get(obj, "status.reason", get(obj, "status.phase", "Unknown")))
    for status in reversed(_pod_statuses(obj)):
        state = status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason") or ended.get("reason"):
            reason = str(waiting.get("reason") or ended.get("reason"))
        elif ended:
            signal = ended.get("signal")
            reason = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
    if "deletionTimestamp" in obj["metadata"]:
        return "Unknown" if get(obj, "status.reason") == "NodeLost" else "Terminating"
    return reason


def _pod_restarts(obj: Object, now: datetime) -> str:
    statuses = _pod_statuses(obj)
    restarts = sum(int(status.get("restartCount") or 0) for status in statuses)
    ends = [get(status, "lastState.terminated.finishedAt") for status in statuses]
    latest = max((end for end in ends if end), default=None)
    return f"{restarts} ({age(latest, now)} ago)" if restarts and latest else str(restarts)


def _event_seen(first: bool) -> Callable[[Object, datetime], str]:
    def cell(obj: Object, now: datetime) -> str:
        early, late = get(obj, "firstTimestamp"), get(obj, "series.lastObservedTime", get(obj, "lastTimestamp"))
        return age((early or get(obj, "eventTime")) if first else (late or get(obj, "eventTime")), now)

    return cell


def _event_object(obj: Object, _now: datetime) -> str:
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_source(obj: Object, _now: datetime) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    return ", ".join(part for part in (component, source.get("host", "")) if part)


def _event_message(obj: Object, _now: datetime) -> str:
    return str(obj.get("message") or obj.get("note") or "").strip()


def _event_count(obj: Object, _now: datetime) -> int:
    return int(get(obj, "series.count", obj.get("count") or obj.get("deprecatedCount") or 1))


def _data_count(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _ratio(have: str, want: str) -> Callable[[Object, datetime], str]:
    return lambda obj, _now: f"{get(obj, have, 0)}/{get(obj, want, 0)}"


def _job_status(obj: Object, _now: datetime) -> str:
    true = [c.get("type") for c in get(obj, "status.conditions", ()) if c.get("status") == "True"]
    return next((name for name in ("Complete", "Failed", "Suspended") if name in true), "Running")


def _service_ports(obj: Object, _now: datetime) -> str:
    ports = get(obj, "spec.ports", ())
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


_BUILTIN: dict[str, tuple[Column, ...]] = {
    "Node": (
        *(_NAME, Column("Status", _node_status), Column("Roles", _node_roles), _AGE),
        _at("Version", "status.nodeInfo.kubeletVersion", ""),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        _at("OS-Image", "status.nodeInfo.osImage", UNKNOWN, priority=1),
        _at("Kernel-Version", "status.nodeInfo.kernelVersion", UNKNOWN, priority=1),
        _at("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", UNKNOWN, priority=1),
    ),
    "Pod": (
        *(_NAME, Column("Ready", _pod_ready), Column("Status", _pod_status), Column("Restarts", _pod_restarts), _AGE),
        _at("IP", "status.podIP", priority=1),
        _at("Node", "spec.nodeName", priority=1),
        _at("Nominated Node", "status.nominatedNodeName", priority=1),
        Column("Readiness Gates", lambda _obj, _now: NONE, priority=1),
    ),
    "Namespace": (_NAME, _at("Status", "status.phase", ""), _AGE),
    "Lease": (_NAME, _at("Holder", "spec.holderIdentity", ""), _AGE),
    "Event": (
        Column("Last Seen", _event_seen(first=False)),
        *(_at("Type", "type", ""), _at("Reason", "reason", ""), Column("Object", _event_object)),
        _at("Subobject", "involvedObject.fieldPath", "", priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", _event_message),
        Column("First Seen", _event_seen(first=True), priority=1),
        Column("Count", _event_count, type="integer", priority=1),
        Column("Name", lambda obj, _now: obj["metadata"]["name"], priority=1, format="name"),
    ),
    "ConfigMap": (_NAME, Column("Data", _data_count, type="integer"), _AGE),
    "Secret": (_NAME, _at("Type", "type", ""), Column("Data", _data_count, type="integer"), _AGE),
    "Service": (
        *(_NAME, _at("Type", "spec.type", "ClusterIP"), _at("Cluster-IP", "spec.clusterIP")),
        *(Column("External-IP", lambda _obj, _now: NONE), Column("Port(s)", _service_ports), _AGE),
    ),
    "ServiceAccount": (_NAME, Column("Secrets", lambda o, _now: len(o.get("secrets") or ()), type="integer"), _AGE),
    "PodDisruptionBudget": (
        *(
            _NAME,
            _at("Min Available", "spec.minAvailable", "N/A"),
            _at("Max Unavailable", "spec.maxUnavailable", "N/A"),
        ),
        *(_at("Allowed Disruptions", "status.disruptionsAllowed", 0, type="integer"), _AGE),
    ),
    "CustomResourceDefinition": (_NAME, _CREATED),
    "Deployment": (
        *(_NAME, Column("Ready", _ratio("status.readyReplicas", "spec.replicas"))),
        _at("Up-to-date", "status.updatedReplicas", 0, type="integer"),
        *(_at("Available", "status.availableReplicas", 0, type="integer"), _AGE),
    ),
    "DaemonSet": (
        *(_NAME, _at("Desired", "status.desiredNumberScheduled", 0, type="integer")),
        _at("Current", "status.currentNumberScheduled", 0, type="integer"),
        _at("Ready", "status.numberReady", 0, type="integer"),
        *(_at("Available", "status.numberAvailable", 0, type="integer"), _AGE),
    ),
    "ReplicaSet": (
        *(_NAME, _at("Desired", "spec.replicas", 0, type="integer")),
        _at("Current", "status.replicas", 0, type="integer"),
        *(_at("Ready", "status.readyReplicas", 0, type="integer"), _AGE),
    ),
    "StatefulSet": (_NAME, Column("Ready", _ratio("status.readyReplicas", "spec.replicas")), _AGE),
    "Job": (
        *(_NAME, Column("Status", _job_status)),
        *(Column("Completions", _ratio("status.succeeded", "spec.completions")), _AGE),
    ),
    "Role": (_NAME, _CREATED),
    "ClusterRole": (_NAME, _CREATED),
    "PriorityClass": (
        _NAME,
        _at("Value", "value", 0, type="integer"),
        _at("Global-Default", "globalDefault", False),
        _AGE,
    ),
}
