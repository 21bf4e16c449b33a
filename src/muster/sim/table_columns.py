"""The columns that `kubectl get` shows of built-in kinds, as the printers of Kubernetes 1.37 make them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from muster.kube.api import Object
from muster.sim.table_cells import AGE, CREATED, NAME, NONE, UNKNOWN, Column, age, at, get


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
    ready = sum(bool(s.get("ready")) and "running" in (s.get("state") or {}) for s in _pod_statuses(obj))
    return f"{ready}/{len(get(obj, 'spec.containers', ()))}"


def _pod_status(obj: Object, _now: datetime) -> str:
    phase = get(obj, "status.phase", "")
    reason = str(get(obj, "status.reason", phase))
    conditions = get(obj, "status.conditions", ())
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        reason = "SchedulingGated"
    running = False
    for status in reversed(_pod_statuses(obj)):
        state = status.get("state") or {}
        reason = _container_reason(state) or reason
        running = running or (bool(status.get("ready")) and "running" in state)
    if reason == "Completed" and running:
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
        reason = "Running" if ready else "NotReady"
    reason = _init_reason(obj) or reason
    if "deletionTimestamp" in obj["metadata"]:
        if get(obj, "status.reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _container_reason(state: dict[str, Any]) -> str:
    """Why a container waits or how it ended; empty while it runs."""
    waiting, ended = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason"):
        return str(waiting["reason"])
    if ended is None:
        return ""
    signal = ended.get("signal")
    return str(ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"))


def _init_reason(obj: Object) -> str:
    """What an init container that is not done says; empty when there is none."""
    statuses = get(obj, "status.initContainerStatuses", ())
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        if "terminated" in state and not (state["terminated"] or {}).get("exitCode"):
            continue
        why = _container_reason(state)
        if why and why != "PodInitializing":
            return f"Init:{why}"
        return f"Init:{index}/{len(get(obj, 'spec.initContainers', ()))}"
    return ""


def _pod_restarts(obj: Object, now: datetime) -> str:
    statuses = _pod_statuses(obj)
    restarts = sum(int(status.get("restartCount") or 0) for status in statuses)
    ends = [get(status, "lastState.terminated.finishedAt") for status in statuses]
    latest = max((end for end in ends if end), default=None)
    return f"{restarts} ({age(latest, now)} ago)" if restarts and latest else str(restarts)


def _event_seen(first: bool) -> Callable[[Object, datetime], str]:
    def cell(obj: Object, now: datetime) -> str:
        began = get(obj, "firstTimestamp", get(obj, "deprecatedFirstTimestamp", get(obj, "eventTime")))
        if first:
            return age(began, now)
        last = get(obj, "lastTimestamp", get(obj, "deprecatedLastTimestamp", began))
        return age(get(obj, "series.lastObservedTime", last), now)

    return cell


def _event_object(obj: Object, _now: datetime) -> str:
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    return "/".join(part for part in (str(involved.get("kind", "")).lower(), str(involved.get("name", ""))) if part)


def _event_part(obj: Object, _now: datetime) -> str:
    return str(get(obj, "involvedObject.fieldPath", get(obj, "regarding.fieldPath", "")))


def _event_source(obj: Object, _now: datetime) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return ", ".join(part for part in (component, instance) if part)


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
    found = next((name for name in ("Complete", "Failed", "Suspended") if name in true), "Running")
    if found == "Running" and "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return "FailureTarget" if found == "Running" and "FailureTarget" in true else found


def _job_duration(obj: Object, now: datetime) -> str:
    began, ended = get(obj, "status.startTime"), get(obj, "status.completionTime")
    if began is None:
        return ""
    return age(began, now if ended is None else datetime.fromisoformat(ended))


def _service_ports(obj: Object, _now: datetime) -> str:
    ports = get(obj, "spec.ports", ())
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _labels(path: str) -> Callable[[Object, datetime], str]:
    """Labels at a path as a selector of equalities."""
    return lambda obj, _now: ",".join(f"{k}={v}" for k, v in sorted(get(obj, path, {}).items())) or NONE


def _selector(obj: Object, _now: datetime) -> str:
    """A LabelSelector in the words of a label selector."""
    selector = get(obj, "spec.selector", {})
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        key, listed = term.get("key", ""), ",".join(sorted(term.get("values") or ()))
        operator = term.get("operator")
        words = {"Exists": key, "DoesNotExist": f"!{key}", "In": f"{key} in ({listed})"}
        terms.append(words.get(str(operator), f"{key} notin ({listed})"))
    return ",".join(terms) or NONE


def _containers(field: str) -> Callable[[Object, datetime], str]:
    return lambda obj, _now: ",".join(str(c.get(field, "")) for c in get(obj, "spec.template.spec.containers", ()))


def _subjects(kind: str) -> Callable[[Object, datetime], str]:
    """The subjects of a binding that are of this kind; accounts with their namespace."""

    def cell(obj: Object, _now: datetime) -> str:
        found = [subject for subject in obj.get("subjects") or () if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)
        return ", ".join(str(subject.get("name", "")) for subject in found)

    return cell


def _role(obj: Object, _now: datetime) -> str:
    return f"{get(obj, 'roleRef.kind', '')}/{get(obj, 'roleRef.name', '')}"


def _param_kind(obj: Object, _now: datetime) -> str:
    kind = get(obj, "spec.paramKind")
    return "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _param_ref(obj: Object, _now: datetime) -> str:
    ref = get(obj, "spec.paramRef")
    if ref is None:
        return "<unset>"
    if ref.get("name"):
        return f"{ref['namespace']}/{ref['name']}" if ref.get("namespace") else str(ref["name"])
    return f"{ref.get('namespace') or '*'}/*"


def _served_versions(obj: Object, _now: datetime) -> str:
    versions = [version for version in get(obj, "spec.versions", ()) if version.get("served")]
    return ",".join(f"{v['name']}(storage)" if v.get("storage") else str(v["name"]) for v in versions)


def _established(obj: Object, _now: datetime) -> bool:
    conditions = get(obj, "status.conditions", ())
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


_WORKLOAD = (
    Column("Containers", _containers("name"), priority=1),
    Column("Images", _containers("image"), priority=1),
    Column("Selector", _selector, priority=1),
)
_BINDING = (
    *(NAME, Column("Role", _role), AGE),
    Column("Users", _subjects("User"), priority=1),
    Column("Groups", _subjects("Group"), priority=1),
    Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1),
)


COLUMNS: dict[str, tuple[Column, ...]] = {
    "Node": (
        *(NAME, Column("Status", _node_status), Column("Roles", _node_roles), AGE),
        at("Version", "status.nodeInfo.kubeletVersion", ""),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        at("OS-Image", "status.nodeInfo.osImage", UNKNOWN, priority=1),
        at("Kernel-Version", "status.nodeInfo.kernelVersion", UNKNOWN, priority=1),
        at("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", UNKNOWN, priority=1),
    ),
    "Pod": (
        *(NAME, Column("Ready", _pod_ready), Column("Status", _pod_status), Column("Restarts", _pod_restarts), AGE),
        at("IP", "status.podIP", priority=1),
        at("Node", "spec.nodeName", priority=1),
        at("Nominated Node", "status.nominatedNodeName", priority=1),
        Column("Readiness Gates", lambda _obj, _now: NONE, priority=1),
    ),
    "Namespace": (NAME, at("Status", "status.phase", ""), AGE),
    "Lease": (NAME, at("Holder", "spec.holderIdentity", ""), AGE),
    "Event": (
        Column("Last Seen", _event_seen(first=False)),
        *(at("Type", "type", ""), at("Reason", "reason", ""), Column("Object", _event_object)),
        Column("Subobject", _event_part, priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", _event_message),
        Column("First Seen", _event_seen(first=True), priority=1),
        Column("Count", _event_count, priority=1),
        Column("Name", lambda obj, _now: obj["metadata"]["name"], priority=1, format="name"),
    ),
    "ConfigMap": (NAME, Column("Data", _data_count), AGE),
    "Secret": (NAME, at("Type", "type", ""), Column("Data", _data_count), AGE),
    "Service": (
        *(NAME, at("Type", "spec.type", "ClusterIP"), at("Cluster-IP", "spec.clusterIP")),
        *(Column("External-IP", lambda _obj, _now: NONE), Column("Port(s)", _service_ports), AGE),
        Column("Selector", _labels("spec.selector"), priority=1),
    ),
    "ServiceAccount": (NAME, AGE),
    "PodDisruptionBudget": (
        *(
            NAME,
            Column("Min Available", lambda obj, _now: str(get(obj, "spec.minAvailable", "N/A"))),
            Column("Max Unavailable", lambda obj, _now: str(get(obj, "spec.maxUnavailable", "N/A"))),
        ),
        *(at("Allowed Disruptions", "status.disruptionsAllowed", 0, type="integer"), AGE),
    ),
    "CustomResourceDefinition": (
        *(NAME, at("Scope", "spec.scope", ""), Column("Versions", _served_versions), CREATED),
        at("Group", "spec.group", "", priority=1),
        at("Kind", "spec.names.kind", "", priority=1),
        Column("ShortNames", lambda obj, _now: ",".join(get(obj, "spec.names.shortNames", ())), priority=1),
        Column("Established", _established, type="boolean", priority=1),
    ),
    "Deployment": (
        *(NAME, Column("Ready", _ratio("status.readyReplicas", "spec.replicas"))),
        at("Up-to-date", "status.updatedReplicas", 0),
        *(at("Available", "status.availableReplicas", 0), AGE),
        *_WORKLOAD,
    ),
    "DaemonSet": (
        *(NAME, at("Desired", "status.desiredNumberScheduled", 0, type="integer")),
        at("Current", "status.currentNumberScheduled", 0, type="integer"),
        at("Ready", "status.numberReady", 0, type="integer"),
        at("Up-to-date", "status.updatedNumberScheduled", 0, type="integer"),
        at("Available", "status.numberAvailable", 0, type="integer"),
        *(Column("Node Selector", _labels("spec.template.spec.nodeSelector")), AGE),
        *_WORKLOAD,
    ),
    "ReplicaSet": (
        *(NAME, at("Desired", "spec.replicas", 0, type="integer")),
        at("Current", "status.replicas", 0, type="integer"),
        *(at("Ready", "status.readyReplicas", 0, type="integer"), AGE),
        *_WORKLOAD,
    ),
    "StatefulSet": (
        *(NAME, Column("Ready", _ratio("status.readyReplicas", "spec.replicas")), AGE),
        *_WORKLOAD[:2],
    ),
    "Job": (
        *(NAME, Column("Status", _job_status)),
        *(Column("Completions", _ratio("status.succeeded", "spec.completions")), Column("Duration", _job_duration)),
        *(AGE, *_WORKLOAD),
    ),
    "Role": (NAME, CREATED),
    "ClusterRole": (NAME, CREATED),
    "PriorityClass": (
        NAME,
        at("Value", "value", 0, type="integer"),
        at("Global-Default", "globalDefault", False, type="boolean"),
        *(AGE, at("PreemptionPolicy", "preemptionPolicy", "PreemptLowerPriority")),
    ),
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "ValidatingAdmissionPolicy": (
        NAME,
        Column("Validations", lambda obj, _now: len(get(obj, "spec.validations", ())), type="integer"),
        *(Column("ParamKind", _param_kind), AGE),
    ),
    "ValidatingAdmissionPolicyBinding": (
        *(NAME, at("PolicyName", "spec.policyName", ""), Column("ParamRef", _param_ref), AGE),
    ),
}
