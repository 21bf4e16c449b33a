"""Pods and events: what keeps work from running. Most of it is no fault of a node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.faults import catalogue
from muster.read.fabric_ports.finding import Finding
from muster.read.kubernetes.conditions import xids_in
from muster.read.kubernetes.objects import Event, Pod
from muster.read.report import Result, Value
from muster.resources.fault import Hint, Scope, Severity

STUCK_AFTER_S = 600
"""A pod that is terminating for longer than this, far beyond the usual 30 s, is stuck. Ours."""


@dataclass(frozen=True)
class Reason:
    """What an event or a container state of that reason means."""

    code: str
    scope: Scope
    next: str
    severity: Severity = Severity.WARNING
    hint: Hint = Hint.INSPECT
    of_node: bool = False
    """The node is concerned, not the pod alone."""


_IMAGE = Reason(
    "image-pull",
    Scope.SOFTWARE,
    "Look at the image name, the pull secret and the registry; the node is not at fault.",
)
_CRASH = Reason("container-crash", Scope.APPLICATION, "Read the log of the container's last run (kubectl logs -p).")
_STACK_CRASH = Reason(
    "gpu-stack-crash",
    Scope.SOFTWARE,
    "Read the log of the pod: without it the node has no driver, or offers no GPUs.",
    of_node=True,
)
_STACK = re.compile(
    r"nvidia-(?:driver|device-plugin|container-toolkit|operator-validator|mig-manager|fabricmanager|dra)"
    r"|nvidia-gpu-driver|gpu-operator"
)
"""Names of the pods that bring the driver and the GPUs of a node."""
_REASONS: Mapping[str, Reason] = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "CrashLoopBackOff": _CRASH,
    "Error": _CRASH,
    "OOMKilled": Reason(
        "container-out-of-memory", Scope.APPLICATION, "Raise the memory limit or find the leak; the node is fine."
    ),
    "CreateContainerConfigError": Reason(
        "container-config", Scope.SOFTWARE, "Look for a missing ConfigMap, Secret or key."
    ),
    "RunContainerError": Reason(
        "container-start",
        Scope.NODE,
        "Look at the container runtime and the GPU runtime hook of the node.",
        of_node=True,
    ),
    "CreateContainerError": Reason(
        "container-start",
        Scope.NODE,
        "Look at the container runtime and the GPU runtime hook of the node.",
        of_node=True,
    ),
    "StartError": Reason(
        "container-start",
        Scope.NODE,
        "Look at the container runtime and the GPU runtime hook of the node.",
        of_node=True,
    ),
    "FailedCreatePodSandBox": Reason(
        "pod-sandbox", Scope.NODE, "Look at the network plugin and the container runtime of the node.", of_node=True
    ),
    "UnexpectedAdmissionError": Reason(
        "gpu-allocation-failed",
        Scope.NODE,
        "Look at the GPUs of the node and its device plugin: the kubelet found no healthy device for the pod.",
        Severity.FATAL,
        of_node=True,
    ),
    "FailedScheduling": Reason(
        "pod-unschedulable",
        Scope.JOB,
        "Look at which pods hold the resources and at taints of the nodes.",
        hint=Hint.NONE,
    ),
    "FailedMount": Reason("volume-mount", Scope.SOFTWARE, "Look at the volume, its secret and the storage driver."),
    "FailedAttachVolume": Reason("volume-mount", Scope.SOFTWARE, "Look at the volume and where else it is attached."),
    "Evicted": Reason(
        "pod-evicted",
        Scope.NODE,
        "Look which resource ran out on the node; the pod was sent away for it.",
        of_node=True,
    ),
    "EvictionThresholdMet": Reason(
        "eviction-pressure", Scope.NODE, "Free the resource that the event names.", of_node=True
    ),
    "TaintManagerEviction": Reason(
        "pod-evicted",
        Scope.NODE,
        "Look at the taints of the node: a NoExecute taint sent the pod away.",
        of_node=True,
    ),
    "Preempted": Reason("pod-preempted", Scope.JOB, "A pod of higher priority took its place.", hint=Hint.NONE),
    "NodeNotReady": Reason(
        "node-not-ready", Scope.NODE, "Look at the kubelet and the network of the node.", Severity.FATAL, of_node=True
    ),
    "NodeLost": Reason("node-unreachable", Scope.NODE, "Look whether the node is up.", Severity.FATAL, of_node=True),
    "Rebooted": Reason(
        "node-rebooted", Scope.NODE, "Find out who rebooted the node, or why it did.", Severity.INFO, of_node=True
    ),
    "SystemOOM": Reason(
        "node-out-of-memory", Scope.NODE, "Find which process took the memory of the node.", of_node=True
    ),
    "ContainerGCFailed": Reason("runtime-error", Scope.NODE, "Look at the container runtime.", of_node=True),
    "TaskHung": Reason(
        "task-hung",
        Scope.NODE,
        "Read the kernel log of the node: a task waits for more than two minutes.",
        of_node=True,
    ),
    "KernelOops": Reason(
        "kernel-oops",
        Scope.NODE,
        "Read the kernel log of the node and plan a reboot.",
        Severity.FATAL,
        Hint.REBOOT,
        True,
    ),
    "FilesystemIsReadOnly": Reason(
        "fs-readonly", Scope.NODE, "Take the node out of service and check its disk.", Severity.FATAL, of_node=True
    ),
}
_RUNTIME = re.compile(
    r"failed to (?:create|start) (?:containerd task|shim task|container)|OCI runtime|nvidia-container-(?:cli|runtime)"
)
"""An event `Failed` with such words: the node's runtime or its GPU hook did not start the container."""
_INSUFFICIENT = re.compile(r"(\d{1,6}) Insufficient ([A-Za-z0-9./-]{3,100})")
_AVAILABLE = re.compile(r"(\d{1,6})/(\d{1,6}) nodes are available")
_TAINTED = re.compile(r"(\d{1,6}) node\(s\) had (?:untolerated )?taint \{([^}]{1,200})\}")
_UNSCHEDULABLE = re.compile(r"(\d{1,6}) node\(s\) were unschedulable")


def judge(pod: Pod, file: str) -> list[Finding]:
    """What is wrong with one pod; each reason once."""
    found: dict[str, Finding] = {}
    for finding in [*_stuck(pod, file), *_containers(pod, file), *_status(pod, file)]:
        found.setdefault(finding.reason, finding)
    for event in pod.events:
        if event.type == "Warning" and (told := of_event(event, pod, file)) is not None:
            found.setdefault(told.reason, told)
    return list(found.values())


def judge_events(events: Sequence[Event], file: str, ready: bool | None = None) -> list[Finding]:
    """Events of a list: one finding for each object and reason, with their sum. `ready`: the node is ready now."""
    back = {event.object: event.age_s for event in events if event.reason == "NodeReady"}
    groups: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        if event.type != "Normal" or event.reason in ("NodeNotReady", "TaintManagerEviction", "Preempted"):
            groups.setdefault((event.namespace, event.object, event.reason), []).append(event)
    found = []
    for (namespace, about, _), rows in groups.items():
        kind, _, name = about.partition("/")
        pod = Pod(name or None, namespace or None)
        finding = of_event(rows[-1], pod, file, kind, sum(row.count for row in rows))
        if finding is not None:
            last = rows[-1]
            since, gone = back.get(about), min((row.age_s for row in rows if row.age_s is not None), default=None)
            over = ready if ready is not None else since is not None and gone is not None and since < gone
            found.append(_over(finding) if last.reason in ("NodeNotReady", "NodeLost") and over else finding)
    return found


def _over(finding: Finding) -> Finding:
    """The node was not ready for a time and is ready again: why it went away is still open."""
    return replace(
        finding,
        result=Result.WARN,
        reason="node-was-not-ready",
        message=f"{finding.message.rstrip('.')}; it is ready again.",
        next="Find out why the node was away: its kubelet, a reboot, the network.",
        severity=Severity.WARNING,
        details={**finding.details, "recovered": True},
    )


def of_event(event: Event, pod: Pod, file: str, kind: str = "pod", count: int | None = None) -> Finding | None:
    """What an event says; None for one whose reason is not known or means nothing here."""
    codes = xids_in(event.reason) or xids_in(event.message)
    if event.type == "Warning" and codes:
        return _xid(event, codes[0], pod, file, kind, count or event.count)
    reason = _REASONS.get(event.reason)
    if event.reason in ("Failed", "BackOff") and ("image" in event.message.lower()):
        reason = _IMAGE
    elif event.reason == "Failed" and _RUNTIME.search(event.message):
        reason = _REASONS["RunContainerError"]
    elif event.reason == "BackOff":
        reason = _CRASH
    if reason is None:
        return None
    return _finding(
        pod,
        reason,
        event.reason,
        event.message,
        event.line,
        file,
        kind,
        count or event.count,
        _scheduling(event.message) if event.reason == "FailedScheduling" else {},
    )


def _xid(event: Event, code: int, pod: Pod, file: str, kind: str, count: int) -> Finding:
    """An event that names an XID. It tells neither the GPU nor the time for sure; the kernel log does."""
    known = catalogue.xid(code)
    about = {"kind": "node", "name": pod.name if kind == "node" else pod.node}
    return Finding(
        f"{kind or 'node'} {pod.label}",
        Result.FAIL if known.severity is Severity.FATAL else Result.WARN,
        f"xid-{code}",
        f"Event {event.reason} names XID {code}: {known.name}",
        about,
        f"Read the kernel log of the node for XID {code} to learn which GPU and when, before anything is repaired.",
        code=code,
        kind="xid",
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        count=max(count, 1),
        confidence="low",
        at=((file, event.line, f"{event.reason} {event.message}"),),
        details={"reported_by": {"kind": "event", "reason": event.reason}},
    )


def _scheduling(message: str) -> dict[str, Any]:
    """Who is missing what: parsed from the scheduler's sentence."""
    available = _AVAILABLE.search(message)
    unschedulable = _UNSCHEDULABLE.search(message)
    return {
        "nodes": int(available[2]) if available else None,
        "nodes_available": int(available[1]) if available else None,
        "insufficient": {name.rstrip("."): int(count) for count, name in _INSUFFICIENT.findall(message)},
        "tainted": {taint.strip(): int(count) for count, taint in _TAINTED.findall(message)},
        "cordoned": int(unschedulable[1]) if unschedulable else 0,
    }


def _finding(
    pod: Pod,
    reason: Reason,
    word: str,
    message: str,
    line: int,
    file: str,
    kind: str,
    count: int,
    more: dict[str, Any],
) -> Finding:
    about = {"kind": kind or "pod", "name": pod.name, "namespace": pod.namespace}
    if pod.node:
        about["node"] = pod.node
    if reason.of_node and kind == "node":
        about = {"kind": "node", "name": pod.name}
    result = Result.FAIL if reason.severity is Severity.FATAL else Result.WARN
    if reason.severity is Severity.INFO:
        result = Result.UNKNOWN
    if reason is _CRASH and _STACK.match(pod.name or ""):
        reason = _STACK_CRASH
    insufficient = more.get("insufficient") or {}
    code = "gpu-insufficient" if any("gpu" in name for name in insufficient) else reason.code
    return Finding(
        f"{kind or 'pod'} {pod.label}",
        result,
        code,
        f"{word}: {message}" if message else word,
        about,
        reason.next,
        code=code,
        kind="kubernetes",
        severity=reason.severity,
        scope=reason.scope,
        hint=reason.hint,
        count=max(count, 1),
        at=((file, line, f"{word} {message}"),),
        details={"reason": word, **more},
    )


def _stuck(pod: Pod, file: str) -> list[Finding]:
    if not pod.deleting:
        return []
    lasts = pod.deleting_for_s
    if lasts is not None and lasts < STUCK_AFTER_S:
        return []
    what = f"The pod is terminating for {lasts:g} s." if lasts is not None else "The pod is terminating."
    held = f" Finalizers hold it: {', '.join(pod.finalizers)}." if pod.finalizers else ""
    sure = lasts is not None or bool(pod.finalizers)
    return [
        Finding(
            f"pod {pod.label}",
            Result.WARN if sure else Result.UNKNOWN,
            "held-by-finalizers" if pod.finalizers else "stuck-terminating" if sure else "terminating",
            what + held,
            {"kind": "pod", "name": pod.name, "namespace": pod.namespace, **({"node": pod.node} if pod.node else {})},
            "Find the controller that owns the finalizer; remove it by hand only when that controller is gone."
            if pod.finalizers
            else "Look whether the node and its kubelet answer, and for a process in uninterruptible"
            " sleep (GPU, NFS).",
            code="pod-stuck-terminating" if sure else None,
            kind="kubernetes",
            scope=Scope.NODE,
            at=((file, pod.lines.get("Status", pod.line), what),),
            details={"finalizers": list(pod.finalizers), "terminating_s": lasts},
        )
    ]


def _containers(pod: Pod, file: str) -> list[Finding]:
    found = []
    for container in pod.containers:
        word, message = container.reason, container.message
        if word in ("CrashLoopBackOff", "", "Completed") and container.last_reason in ("OOMKilled", "StartError"):
            word = container.last_reason
        if container.exit_code == 0 or word not in _REASONS or (container.state == "Running" and word != "OOMKilled"):
            continue
        code = container.exit_code if container.exit_code is not None else container.last_exit_code
        text = f"container {container.name}" + (f", exit code {code}" if code is not None else "")
        found.append(
            _finding(
                pod,
                _REASONS[word],
                word,
                f"{text}. {message}".strip(),
                container.line,
                file,
                "pod",
                max(container.restarts, 1),
                {"container": container.name, "exit_code": code},
            )
        )
    return found


def _status(pod: Pod, file: str) -> list[Finding]:
    if pod.reason not in _REASONS or (pod.containers and pod.reason in ("Error", "CrashLoopBackOff")):
        return []
    line = pod.lines.get("Reason", pod.lines.get("Status", pod.line))
    return [_finding(pod, _REASONS[pod.reason], pod.reason, pod.message, line, file, "pod", 1, {})]


def values(pods: Sequence[Pod]) -> dict[str, Value]:
    """Readings of the pods, and who holds GPUs."""
    found: dict[str, Value] = {}
    if len(pods) == 1:
        (pod,) = pods
        found["pod"] = Value(pod.label)
        if pod.phase:
            found["phase"] = Value(pod.phase)
        if pod.node:
            found["node"] = Value(pod.node)
    elif pods:
        found["pods"] = Value(len(pods))
    holders = {
        pod.label: pod.gpus
        for pod in pods
        if pod.gpus and pod.phase in ("Running", "Pending", "Terminating", "") and pod.node
    }
    if holders:
        found["gpu_holders"] = Value(dict(sorted(holders.items())[:1000]))
    return found
