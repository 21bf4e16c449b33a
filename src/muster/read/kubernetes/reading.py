"""Texts about a cluster's nodes and pods, read together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.faults import catalogue
from muster.read.fabric_ports.finding import Finding, heaviest_first
from muster.read.fabric_ports.lines import lines_of
from muster.read.kernel import logs
from muster.read.kubernetes import (
    KIND,
    describe,
    detect,
    drain,
    get_tables,
    judge_node,
    judge_pod,
    log_lines,
    manifests,
)
from muster.read.kubernetes.conditions import healthy
from muster.read.kubernetes.drain import Blocker, Drain
from muster.read.kubernetes.log_lines import Entry, Said
from muster.read.kubernetes.objects import Node, Objects
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.read.terminal import without_end
from muster.resources.fault import Hint, Scope, Severity

ESCALATION = ("wait", "notify", "delete-with-grace", "give-up-and-alert")
"""What a drain should try, one after the other, when it is blocked."""
MANY_CONFLICTS = 5
"""Conflicts on one object after which the writer fails for good. Ours."""


@dataclass
class _Found:
    findings: list[Finding] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    cut: bool = False

    def add(self, found: tuple[list[Finding], list[Verdict]]) -> None:
        self.findings += found[0]
        self.verdicts += found[1]


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all texts. Raises BadInputError for a context that cannot be used."""
    want = judge_node.told(context)
    found = _Found()
    own = [item for item in inputs if not _is_log(item)] or list(inputs)
    read = [(item.name, *_objects(content(item), item.name, found)) for item in own]
    nodes = sum(len(objects.nodes) for _, objects, _, _ in read)
    for name, objects, drained, entries in read:
        for node in objects.nodes:
            of = judge_node.subject(node, nodes > 1)
            found.add(judge_node.judge(node, of, want, name))
            found.findings += _node_events(node, name)
            if nodes == 1:
                found.values |= judge_node.values(node, want)
        for pod in objects.pods:
            found.findings += judge_pod.judge(pod, name)
        found.findings += judge_pod.judge_events(objects.events, name)
        for device in objects.devices:
            found.findings += judge_node.judge_device(device, name)
        found.values |= judge_pod.values(objects.pods)
        if drained.seen:
            _drained(drained, found)
        _logged(entries, name, found)
    if nodes > 1:
        found.values["nodes"] = Value(nodes)
    devices = [device for _, objects, _, _ in read for device in objects.devices]
    if devices:
        found.values["devices"] = Value(len(devices))
        found.values["devices_tainted"] = Value(sum(1 for device in devices if device.taints))
    beside = [item for item in inputs if item not in own]
    return _report(inputs, found, logs.parse(beside, context) if beside else None)


def _is_log(item: Input) -> bool:
    """A kernel or service log beside the texts of the cluster."""
    return logs.score(item.sample) > detect.score(item.sample)


def _node_events(node: Node, file: str) -> list[Finding]:
    named = [replace(event, object=f"node/{node.name or ''}") for event in node.events]
    ready = next((entry for entry in node.conditions if entry.type == "Ready"), None)
    return judge_pod.judge_events(named, file, healthy(ready) if ready is not None else None)


def _objects(text: str, name: str, found: _Found) -> tuple[Objects, Drain, list[Entry]]:
    if detect.is_manifest(text) and (text.lstrip().startswith(("{", "[")) or _is_yaml(text)):
        objects = manifests.parse(text, name)
        found.cut = found.cut or objects.cut
        return objects, Drain(), []
    text = without_end(text)
    lines = lines_of(text)
    if "\n" in text and not text.endswith("\n"):
        found.cut = True
        lines = lines[:-1] if len(lines) > 2 else lines
    described, tables = describe.parse(lines), get_tables.parse(lines)
    joined = Objects(
        described.nodes + tables.nodes, described.pods + tables.pods, described.events + tables.events, [], False
    )
    drained = drain.parse(lines)
    entries = [] if joined.nodes or joined.pods or joined.events else log_lines.parse(lines)
    return joined, drained, entries


def _is_yaml(text: str) -> bool:
    head = [line for line in text.split("\n", 60)[:60] if line.strip() and not line.startswith("#")]
    words = ("apiVersion:", "kind:", "conditions:", "allocatable:", "capacity:", "status:", "- lastHeartbeatTime:")
    return any(line.lstrip().startswith((*words, "- lastTransitionTime:")) for line in head)


def _drained(found: Drain, out: _Found) -> None:
    """A drain that is blocked needs a deadline; nothing is wrong with the node."""
    out.values["evicted"] = Value(len(found.gone))
    if found.node:
        out.values["node"] = Value(found.node)
    blocked = sorted(found.blocked.values(), key=lambda entry: -entry.attempts)
    if blocked:
        first = blocked[0]
        out.values["blocked_pod"] = Value(first.pod)
        out.values["blocked_by"] = Value(first.blocker.value)
        out.values["attempts"] = Value(first.attempts)
        if first.retry_after_s is not None:
            out.values["retry_after"] = Value(first.retry_after_s, "s")
        if first.budget:
            out.values["budget"] = Value(first.budget)
        if len(blocked) > 1:
            out.values["blocked_pods"] = Value({entry.pod: entry.blocker.value for entry in blocked[:100]})
        out.values["needs_deadline"] = Value(True)
        out.values["escalation"] = Value(list(ESCALATION))
    out.verdicts.append(_drain_verdict(found, blocked))


def _drain_verdict(found: Drain, blocked: list[drain.Blocked]) -> Verdict:
    if found.done:
        return Verdict("drain", Result.PASS, "drained")
    if found.refused:
        what, flag, pods, _ = found.refused[0]
        tail = f" Use {flag} if they may go." if flag else ""
        message = f"kubectl does not delete {what}: {pods[:120]}.{tail}"
        return Verdict("drain", Result.FAIL, "drain-refused", message, {"state": "DRAIN_REFUSED"})
    if blocked:
        first = blocked[0]
        why = first.why or f"{first.pod} does not go: {first.blocker.value}."
        more = {"state": "DRAIN_BLOCKED", "blocked_by": first.blocker.value}
        if found.timed_out_after or found.unable:
            more["state"] = "DRAIN_TIMED_OUT"
            message = f"The drain gave up{' after ' + found.timed_out_after if found.timed_out_after else ''}: {why}"
            return Verdict("drain", Result.FAIL, "drain-timed-out", message, more)
        return Verdict("drain", Result.WARN, "drain-blocked", f"{first.pod}: {why}", more)
    if found.unable or found.timed_out_after:
        return Verdict("drain", Result.FAIL, "drain-failed", "The drain was given up.", {"state": "DRAIN_FAILED"})
    return Verdict("drain", Result.UNKNOWN, "in-progress", "The text ends before the drain does.")


_BLOCKED_NEXT = {
    Blocker.BUDGET: "Give the drain a deadline: ask the owner of the pod to scale up or to let it go, then delete it"
    " with grace; nothing is wrong with the node.",
    Blocker.SLOW_END: "Look why the pod does not end (finalizer, process that hangs, kubelet) before it is forced.",
}


def _logged(entries: Sequence[Entry], file: str, out: _Found) -> None:
    groups: dict[tuple[Said, str, int | None], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.said, entry.name, entry.code), []).append(entry)
    with_xid = {entry.name for entry in entries if entry.said is Said.XID}
    for (said, name, code), rows in groups.items():
        if said is Said.CONFLICT:
            _conflict(name, rows, out)
        elif said is Said.SKIPPED_XID:
            out.values.setdefault("xids_ignored", Value([]))
            out.values["xids_ignored"].value.append(code)
        elif said is Said.XID and code is not None:
            out.findings.append(_plugin_xid(name, code, rows, file))
        elif said is Said.UNHEALTHY and name in with_xid:
            continue  # told with the XID already
        elif said is Said.HEALTHY:
            out.verdicts.append(Verdict(f"gpu {name}", Result.UNKNOWN, "marked-healthy-again"))
        else:
            out.findings.append(_of_log(said, name, rows, file))


def _conflict(name: str, rows: Sequence[Entry], out: _Found) -> None:
    """The API server refuses a write that is based on an old version. Reading again and repeating is all it takes."""
    resource = rows[0].detail
    out.values["node" if resource == "nodes" else "object"] = Value(name)
    out.values["api_reason"] = Value(
        "Conflict", None, {"http_status": 409, "derived_from": "Operation cannot be fulfilled"}
    )
    out.values["next_action"] = Value("refetch-and-retry")
    out.values["log_level_first_time"] = Value("info")
    out.values["conflicts"] = Value(len(rows))
    if len(rows) >= MANY_CONFLICTS:
        message = f"{len(rows)} writes of {resource} {name} met a conflict; two writers may fight over it."
        out.verdicts.append(Verdict("write", Result.WARN, "conflict-persists", message))
    else:
        message = "Read the object again and repeat the write; it says nothing about the node."
        out.verdicts.append(Verdict("write", Result.UNKNOWN, "conflict", message))


def _at(rows: Sequence[Entry], file: str) -> tuple[tuple[str, int, str], ...]:
    return tuple((file, row.line, row.text) for row in rows)


def _plugin_xid(name: str, code: int, rows: Sequence[Entry], file: str) -> Finding:
    known = catalogue.xid(code)
    entity = {"kind": "gpu", "uuid": name, "name": name} if name else {"kind": "node"}
    fatal = known.severity is Severity.FATAL
    return Finding(
        f"gpu {name}" if name else "node",
        Result.FAIL if fatal else Result.WARN,
        f"xid-{code}",
        f"The device plugin saw XID {code} ({known.name}) and keeps the GPU out.",
        entity,
        "Read the kernel log for the XID; the device plugin does not take the GPU back until it restarts.",
        code=code,
        kind="xid",
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        count=len(rows),
        at=_at(rows, file),
        details={"reported_by": {"kind": "device-plugin"}, "not_allocatable": True},
    )


_LOG_RULES: dict[Said, tuple[Severity, Scope, str, str]] = {
    Said.UNHEALTHY: (
        Severity.FATAL,
        Scope.GPU,
        "The device plugin marked the GPU unhealthy",
        "Look for the reason in the kernel log and nvidia-smi -q; the plugin keeps the GPU out until it restarts.",
    ),
    Said.NO_DEVICES: (
        Severity.FATAL,
        Scope.NODE,
        "The device plugin finds no GPU",
        "Look at the driver and the container runtime of the node (nvidia-smi on the host, then in a pod).",
    ),
    Said.NVML_FAILED: (
        Severity.FATAL,
        Scope.NODE,
        "The management library of the driver cannot be used",
        "Look at the driver on the node: versions of module and library, and whether containers still"
        " see the devices.",
    ),
    Said.ALLOCATION: (
        Severity.FATAL,
        Scope.NODE,
        "The kubelet has no healthy device for a pod",
        "Compare capacity and allocatable of the node, then look at the log of the device plugin.",
    ),
    Said.NOT_READY: (
        Severity.FATAL,
        Scope.NODE,
        "The node became not ready",
        "Look at the kubelet and the container runtime.",
    ),
    Said.RUNTIME: (
        Severity.FATAL,
        Scope.NODE,
        "The container runtime does not answer the kubelet",
        "Look at the container runtime, the load of the node and processes that hang on the GPU or a file system.",
    ),
    Said.EVICTION: (
        Severity.WARNING,
        Scope.NODE,
        "The kubelet evicts pods to get a resource back",
        "Free the resource that the line names.",
    ),
    Said.PROBLEM: (
        Severity.WARNING,
        Scope.NODE,
        "A problem condition was set on the node",
        "Look up the condition and the kernel line behind it.",
    ),
    Said.STOPPED: (
        Severity.WARNING,
        Scope.SOFTWARE,
        "The device plugin stopped",
        "Look at the device plugin's pod on the node.",
    ),
}


def _of_log(said: Said, name: str, rows: Sequence[Entry], file: str) -> Finding:
    severity, scope, words, advice = _LOG_RULES[said]
    gpu = name.startswith(("GPU-", "MIG-"))
    entity = {"kind": "gpu", "uuid": name, "name": name} if gpu else {"kind": "node"}
    detail = rows[0].detail or ("" if gpu else name)
    return Finding(
        f"gpu {name}" if gpu else "node",
        Result.FAIL if severity is Severity.FATAL else Result.WARN,
        said.value,
        f"{words}" + (f": {detail}" if detail else "") + ".",
        entity,
        advice,
        code=said.value,
        kind="kubernetes",
        severity=severity,
        scope=scope,
        hint=Hint.INSPECT,
        count=len(rows),
        at=_at(rows, file),
        details={"detail": detail or None},
    )


def _report(inputs: Sequence[Input], found: _Found, kernel: Report | None) -> Report:
    seen = {fault.code for fault in kernel.faults} if kernel is not None else set()
    # The kernel's own line names the GPU and the time; a condition or an event only repeats it.
    findings = heaviest_first([f for f in found.findings if f.kind != "xid" or f.code not in seen])
    faults = tuple(fault for finding in findings if (fault := finding.fault()) is not None)
    verdicts = [finding.verdict() for finding in findings] + found.verdicts
    if found.cut:
        verdicts = [_unsure(verdict) for verdict in verdicts]
        if not verdicts:
            verdicts = [Verdict("node", Result.UNKNOWN, "truncated-output", "The text ends before it says anything.")]
    if kernel is not None:
        told = {verdict.of for verdict in kernel.verdicts if verdict.result is not Result.PASS}
        verdicts = [v for v in verdicts if v.of not in told or v.result is not Result.UNKNOWN]
        verdicts += [v for v in kernel.verdicts if v.result is not Result.PASS or v.of != "node"]
        faults = (*kernel.faults, *faults)
    if not (faults or verdicts or found.values):
        message = "The text says nothing of a node or a pod; give the whole output."
        verdicts = [Verdict("node", Result.UNKNOWN, "nothing-read", message)]
    return Report(
        kind=KIND,
        files=tuple(item.name for item in inputs),
        truncated=found.cut or (kernel is not None and kernel.truncated),
        faults=faults,
        incidents=kernel.incidents if kernel is not None else (),
        verdicts=tuple(row for n, row in enumerate(verdicts) if row not in verdicts[:n]),
        values={**(kernel.values if kernel is not None else {}), **found.values},
        next=_next(faults, findings, verdicts, found.values),
    )


def _unsure(verdict: Verdict) -> Verdict:
    if verdict.result is not Result.PASS or verdict.of == "drain":
        return verdict
    return Verdict(verdict.of, Result.UNKNOWN, "truncated-output", "The text ends early.")


def _next(
    faults: Sequence[ReadFault], findings: Sequence[Finding], verdicts: Sequence[Verdict], values: dict[str, Value]
) -> str:
    serious = sorted(faults, key=lambda fault: fault.severity is not Severity.FATAL)
    if serious:
        return serious[0].next
    if findings:
        return findings[0].next
    for verdict in verdicts:
        if verdict.of == "drain" and verdict.reason in ("drain-blocked", "drain-timed-out"):
            blocker = Blocker(str(values["blocked_by"].value))
            return _BLOCKED_NEXT.get(blocker, f"See why the pod cannot go: {verdict.message}")
    for result in (Result.FAIL, Result.WARN, Result.UNKNOWN):
        told = next((verdict for verdict in verdicts if verdict.result is result and verdict.message), None)
        if told is not None:
            return told.message
    return "Nothing has to be done."
