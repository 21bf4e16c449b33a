"""What a node's object says. Ready says that the kubelet answers, nothing about GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster.errors import BadInputError
from muster.faults import catalogue
from muster.read.dcgm_health import conditions as dcgm_conditions
from muster.read.dcgm_health import judge as dcgm_judge
from muster.read.dcgm_health.health import Trouble
from muster.read.dcgm_health.judge import Expected
from muster.read.diagnostics.error_codes import code_of
from muster.read.fabric_ports.finding import Finding
from muster.read.kubernetes import conditions
from muster.read.kubernetes.objects import Condition, Device, Node, is_gpu, whole
from muster.read.report import Result, Value, Verdict
from muster.read.smi.document import Line
from muster.read.source import Context
from muster.resources.fault import Hint, Scope, Severity

_HEALTH_CODE = re.compile(r"DCGMHealthCode(\d{1,4})\b")


@dataclass(frozen=True)
class Told:
    """What the context says beside the text; None: nothing."""

    boot_id: str | None = None
    gpus: int | None = None
    dcgm: Expected = field(default_factory=Expected)


def told(context: Context) -> Told:
    """Raises BadInputError for a value that cannot be used."""
    boot_id, gpus = context.get("boot_id"), context.get("expected_gpus")
    if boot_id is not None and not isinstance(boot_id, str):
        raise BadInputError(f"boot_id in the context must be a text in quotes, not {boot_id!r:.40}.")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0):
        raise BadInputError(f"expected_gpus in the context must be a whole number, not {gpus!r:.40}.")
    return Told(boot_id, gpus, dcgm_judge.expected(context))


def subject(node: Node, several: bool) -> str:
    return f"node {node.name}" if several and node.name else "node"


def _entity(node: Node) -> dict[str, Any]:
    return {"kind": "node", "name": node.name} if node.name else {"kind": "node"}


def judge(node: Node, of: str, want: Told, file: str) -> tuple[list[Finding], list[Verdict]]:
    """Findings on one node, and the verdicts that are left."""
    boot_id = want.boot_id or node.boot_id
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    unknown = [entry for entry in node.conditions if entry.status == "Unknown"]
    for entry in node.conditions:
        codes = conditions.xids(entry) if conditions.healthy(entry) is False else ()
        errors = _dcgm(node, of, entry, want, file) if conditions.healthy(entry) is False and not codes else []
        if errors:
            findings += errors
        elif codes:
            told_findings, stale = _xids(node, of, entry, codes, boot_id, file)
            findings += told_findings
            verdicts += stale
        elif conditions.healthy(entry) is False or (entry.status == "Unknown" and entry.type == "Ready"):
            findings.append(_condition(node, of, entry, file))
    if unknown and not any(entry.type == "Ready" for entry in unknown):
        names = ", ".join(entry.type for entry in unknown)
        verdicts.append(Verdict(f"{of} conditions", Result.UNKNOWN, "status-unknown", f"Nobody reports {names}."))
    findings += [*_status_word(node, of, file), *_resources(node, of, want, file)]
    verdicts += _rest(node, of, findings)
    return findings, verdicts


def _at(file: str, line: int, text: str) -> tuple[tuple[str, int, str], ...]:
    return ((file, line, text),) if line else ()


def _shown(entry: Condition) -> str:
    return f"{entry.type} {entry.status} {entry.reason} {entry.message}".strip()


def _xids(
    node: Node, of: str, entry: Condition, codes: Sequence[int], boot_id: str | None, file: str
) -> tuple[list[Finding], list[Verdict]]:
    """XIDs that a condition names. It stays until somebody takes it back, so it may be an old story."""
    latched = conditions.BOOT_ID.match(entry.message.strip()) is not None
    if latched and boot_id is not None and entry.message.strip() != boot_id:
        message = f"{entry.type} was set during another boot and nobody has taken it back."
        return [], [Verdict(f"{of} {entry.type}", Result.UNKNOWN, "condition-of-earlier-boot", message)]
    uuid = conditions.GPU_UUID.search(entry.message)
    found = []
    for code in codes:
        known = catalogue.xid(code)
        entity: dict[str, Any] = {"kind": "gpu", "uuid": uuid[0], "name": uuid[0]} if uuid else _entity(node)
        details: dict[str, Any] = {
            "reported_by": {"kind": "condition", "type": entry.type},
            "transition": entry.transition,
            "heartbeat": entry.heartbeat,
        }
        if latched:
            details["latched_until"] = "boot-id-change"
        fatal = known.severity is Severity.FATAL
        found.append(
            Finding(
                of,
                Result.FAIL if fatal else Result.WARN,
                f"xid-{code}",
                f"{entry.type} names XID {code}: {known.name}",
                entity,
                _xid_advice(known.hint, code),
                code=code,
                kind="xid",
                severity=known.severity,
                scope=known.scope,
                hint=known.hint,
                confidence="low",
                at=_at(file, entry.line, _shown(entry)),
                details=details,
                more={"basis": entry.type},
            )
        )
    return found, []


def _dcgm(node: Node, of: str, entry: Condition, want: Told, file: str) -> list[Finding]:
    """Errors of DCGM that a condition names, by name or by number. The error decides, not who reports it."""
    line = Line(entry.line, entry.message, _shown(entry))
    named = [
        (code, dcgm_judge.of_condition(code, trouble, identity, file, want.dcgm))
        for code, trouble, identity in dcgm_conditions.find([line])
    ]
    number = _HEALTH_CODE.search(entry.reason)
    code = code_of(int(number[1]), "") if number is not None else None
    if number is not None and not named:
        if code is None:  # numbers above the table moved between releases
            return [_unknown_dcgm(node, of, entry, f"dcgm-health-code-{number[1]}", file)]
        trouble = Trouble("GPU", None, "DCGM", "Failure", entry.message)
        named = [(code, dcgm_judge.of_condition(code, trouble, {}, file, want.dcgm))]
    found = []
    for name, fault in named[:64]:
        result = {Severity.FATAL: Result.FAIL, Severity.WARNING: Result.WARN}.get(fault.severity, Result.UNKNOWN)
        entity = {**fault.entity, "node": node.name} if fault.entity.get("kind") != "node" else _entity(node)
        found.append(
            Finding(
                of,
                result,
                str(fault.details.get("reason", name)),
                f"{entry.type} names {name}.",
                {key: value for key, value in entity.items() if value is not None},
                fault.next,
                code=name,
                kind="dcgm-health",
                severity=fault.severity,
                scope=fault.scope,
                hint=fault.hint,
                confidence="low",
                at=_at(file, entry.line, _shown(entry)),
                details={"reported_by": {"kind": "condition", "type": entry.type}, "transition": entry.transition},
                more={"basis": entry.type},
            )
        )
    return found


def _unknown_dcgm(node: Node, of: str, entry: Condition, code: str, file: str) -> Finding:
    known = _condition(node, of, entry, file)
    return replace(
        known,
        result=Result.UNKNOWN,
        reason=code,
        code=code,
        severity=Severity.UNKNOWN,
        next="Look up this error number in the dcgm_errors.h of the installed DCGM release; some (IMEX on a machine"
        " without a multi-node NVLink domain) are no fault.",
    )


def _xid_advice(hint: Hint, code: int) -> str:
    seek = f"Read the kernel log for XID {code} to learn which GPU and when"
    match hint:
        case Hint.RESTART_APP | Hint.NONE:
            return f"{seek}; the application is the first suspect, the node needs no repair for this."
        case Hint.RESET_GPU:
            return f"{seek}; then drain the work off that GPU and reset it."
        case Hint.REBOOT:
            return f"{seek}; then drain the node and reboot it."
        case _:
            return f"{seek}, before anything is repaired."


def _condition(node: Node, of: str, entry: Condition, file: str) -> Finding:
    what = conditions.meaning(entry)
    result = {Severity.FATAL: Result.FAIL, Severity.WARNING: Result.WARN}.get(what.severity, Result.UNKNOWN)
    why = ": ".join(part for part in (entry.reason, entry.message) if part)
    return Finding(
        of,
        result,
        what.code,
        f"{entry.type} is {entry.status}" + (f" ({why})" if why else "") + ".",
        _entity(node),
        what.next,
        code=what.code,
        kind="condition",
        severity=what.severity,
        scope=what.scope,
        hint=what.hint,
        at=_at(file, entry.line, _shown(entry)),
        details={
            "reported_by": {"kind": "condition", "type": entry.type},
            "reason": entry.reason,
            "transition": entry.transition,
        },
    )


def _status_word(node: Node, of: str, file: str) -> list[Finding]:
    if node.conditions or "NotReady" not in node.status_word:
        return []
    return [_condition(node, of, Condition("Ready", "False", line=node.line), file)]


def _resources(node: Node, of: str, want: Told, file: str) -> list[Finding]:
    """Counts of devices: what the node has, what it offers, what it should have."""
    found: list[Finding] = []
    for name in node.capacity:
        have, offered = whole(node.capacity[name]), whole(node.allocatable.get(name, ""))
        if have is None or offered is None or "/" not in name or offered >= have:
            continue
        gpu = is_gpu(name)
        found.append(
            Finding(
                of,
                Result.FAIL if gpu else Result.WARN,
                "gpu-not-allocatable" if gpu else "device-not-allocatable",
                f"{have - offered} of {have} {name} are not allocatable: their plugin calls them unhealthy.",
                _entity(node),
                "Find the unhealthy device in the log of its device plugin and in the kernel log; the plugin keeps it"
                " out until it restarts.",
                code="gpu-not-allocatable" if gpu else "device-not-allocatable",
                kind="kubernetes",
                severity=Severity.FATAL if gpu else Severity.WARNING,
                scope=Scope.GPU if gpu else Scope.NODE,
                count=have - offered,
                at=_at(file, node.lines.get("Allocatable", 0), f"{name}: {offered} of {have}"),
                details={"resource": name, "capacity": have, "allocatable": offered},
                more={"missing": have - offered},
            )
        )
    return found + _missing(node, of, want, file)


def gpu_count(resources: Mapping[str, str]) -> int | None:
    """Whole GPUs of a resource list; None when it names none."""
    counts = [whole(count) for name, count in resources.items() if is_gpu(name) and "mig-" not in name]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _missing(node: Node, of: str, want: Told, file: str) -> list[Finding]:
    if not node.capacity or not node.allocatable:  # a text that ends here may have more
        return []
    label = whole(node.labels.get("nvidia.com/gpu.count", ""))
    expected = want.gpus if want.gpus is not None else label
    has = gpu_count(node.capacity)
    if has is None and node.labels.get("nvidia.com/gpu.present") != "true" and not expected:
        return []
    if any("mig-" in name for name in node.capacity) or (expected is None and has):
        return []
    if has is not None and expected is not None and has >= expected:
        return []
    short = (expected or 0) - (has or 0)
    none = not has
    return [
        Finding(
            of,
            Result.FAIL,
            "no-gpus-offered" if none else "gpus-missing",
            "No GPU is offered to the cluster." if none else f"{has} GPUs are offered, {expected} are expected.",
            _entity(node),
            "Look at the device plugin's pod and at the driver on the node."
            if none
            else "Look for a GPU that fell off the bus: kernel log, nvidia-smi -L, lspci.",
            code="device-plugin-missing" if none else "gpus-missing",
            kind="kubernetes",
            severity=Severity.FATAL,
            scope=Scope.NODE,
            count=max(short, 1),
            at=_at(file, node.lines.get("Capacity", 0), f"GPUs: {has or 0}"),
            details={"capacity": has, "expected": expected},
            more={"missing": max(short, 1)},
        )
    ]


def _rest(node: Node, of: str, findings: Sequence[Finding]) -> list[Verdict]:
    """What is left to say where nothing is wrong: the scheduler's view, never the health of GPUs."""
    verdicts: list[Verdict] = []
    if node.unschedulable:
        verdicts.append(Verdict(f"{of} scheduling", Result.WARN, "cordoned", "New pods are kept off the node."))
    bad = [finding for finding in findings if finding.of == of]
    ready = next((entry for entry in node.conditions if entry.type == "Ready"), None)
    if bad or (ready is None and not node.status_word and not node.capacity):
        return verdicts
    offered = gpu_count(node.allocatable)
    if not node.unschedulable:
        reason = "ready-and-gpus-allocatable" if offered else "ready"
        verdicts.append(Verdict(f"{of} scheduling", Result.PASS, reason))
    message = (
        "Kubernetes sees nothing wrong; it does not look at GPUs. Read the kernel log or nvidia-smi -q for them."
    )
    verdicts.append(Verdict(of, Result.UNKNOWN, "ready-says-nothing-of-gpus", message))
    return verdicts


def values(node: Node, want: Told) -> dict[str, Value]:
    """Readings of one node."""
    found: dict[str, Value] = {}
    if node.name:
        found["node"] = Value(node.name)
    if node.conditions:
        found["conditions"] = Value(len(node.conditions))
        found["condition_status"] = Value({entry.type: entry.status for entry in node.conditions})
        ready = next((entry for entry in node.conditions if entry.type == "Ready"), None)
        if ready is not None:
            found["ready"] = Value(conditions.healthy(ready))
        found |= _xid_values(node, want)
    if node.taints:
        found["taints"] = Value([taint.text for taint in node.taints])
    if node.unschedulable is not None:
        found["unschedulable"] = Value(node.unschedulable)
    for name, resources in (("capacity", node.capacity), ("allocatable", node.allocatable)):
        devices = {key: count for key, text in resources.items() if "/" in key and (count := whole(text)) is not None}
        if devices:
            found[f"device_{name}"] = Value(devices)
        if (count := gpu_count(resources)) is not None:
            found[f"gpus_{name}"] = Value(count)
    if (count := gpu_count(node.allocated)) is not None:
        found["gpus_allocated"] = Value(count)
    return found


def _xid_values(node: Node, want: Told) -> dict[str, Value]:
    named = [entry for entry in node.conditions if conditions.healthy(entry) is False and conditions.xids(entry)]
    if not named:
        return {}
    codes = list(dict.fromkeys(code for entry in named for code in conditions.xids(entry)))
    found = {
        "xid_condition_codes": Value(codes),
        "xid_condition_message": Value(named[0].message),
        "xid_condition_transition": Value(named[0].transition),
    }
    boot_id = want.boot_id or node.boot_id
    if boot_id is not None and conditions.BOOT_ID.match(named[0].message.strip()):
        same = named[0].message.strip() == boot_id
        found["same_boot"] = Value(same)
        found["actions_for_same_boot_id"] = Value(1 if same else 0)
    return found


def judge_device(device: Device, file: str) -> list[Finding]:
    """Taints of a device that is offered through dynamic resource allocation."""
    found: list[Finding] = []
    for taint in device.taints:
        code = whole(taint.value) if "xid" in taint.key.lower() else None
        known = catalogue.xid(code) if code is not None else None
        name = device.uuid or device.name
        acts = taint.effect in ("NoSchedule", "NoExecute")
        severity = known.severity if known is not None else Severity.WARNING if acts else Severity.INFO
        fails = acts and severity is Severity.FATAL
        found.append(
            Finding(
                f"device {device.name}",
                Result.FAIL if fails else Result.WARN if acts else Result.UNKNOWN,
                f"xid-{code}" if code is not None else "device-tainted",
                f"{device.name} has the taint {taint.text}.",
                {"kind": "gpu", "uuid": device.uuid, "name": name, **({"node": device.node} if device.node else {})},
                _xid_advice(known.hint, code)
                if known is not None and code is not None
                else f"Look why {device.driver or 'the driver'} tainted the device.",
                code=code if code is not None else "device-tainted",
                kind="xid" if code is not None else "kubernetes",
                severity=severity,
                scope=known.scope if known is not None else Scope.GPU,
                hint=known.hint if known is not None else Hint.INSPECT,
                confidence="low",
                at=_at(file, device.line, taint.text),
                more={"taint": taint.text},
                details={"reported_by": {"kind": "device-taint", "key": taint.key}, "effect": taint.effect},
            )
        )
    return found
