"""What node conditions mean: those of Kubernetes, of node-problem-detector, of providers' agents and device plugins.

A condition's name tells its polarity: `Ready` and its kin are good when True, problems when True are bad. XID codes
stand in the reason or the message, in a form of each writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster.read.kubernetes.objects import Condition
from muster.resources.fault import Hint, Scope, Severity


@dataclass(frozen=True)
class Meaning:
    """`code`: the fault's. `next`: what to do."""

    code: str
    severity: Severity
    scope: Scope
    hint: Hint
    next: str


_KNOWN: Mapping[str, Meaning] = {
    "Ready": Meaning(
        "node-not-ready",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Look at the kubelet and the container runtime of the node; its GPUs may be fine.",
    ),
    "MemoryPressure": Meaning(
        "memory-pressure",
        Severity.WARNING,
        Scope.NODE,
        Hint.INSPECT,
        "Find what takes the memory of the node; pods are evicted until it ends.",
    ),
    "DiskPressure": Meaning(
        "disk-pressure",
        Severity.WARNING,
        Scope.NODE,
        Hint.INSPECT,
        "Free space on the node (images, logs, emptyDir); pods are evicted until it ends.",
    ),
    "PIDPressure": Meaning(
        "pid-pressure",
        Severity.WARNING,
        Scope.NODE,
        Hint.INSPECT,
        "Find what starts so many processes on the node.",
    ),
    "NetworkUnavailable": Meaning(
        "network-unavailable",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Look at the network plugin of the node; no route was made for it.",
    ),
    "KernelDeadlock": Meaning(
        "kernel-deadlock",
        Severity.FATAL,
        Scope.NODE,
        Hint.REBOOT,
        "Drain the node and reboot it.",
    ),
    "ReadonlyFilesystem": Meaning(
        "fs-readonly",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Take the node out of service and check its disk.",
    ),
    "XfsShutdown": Meaning(
        "fs-shutdown",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Take the node out of service and check its disk.",
    ),
    "CperHardwareErrorFatal": Meaning(
        "hardware-error",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Take the node out of service and read the firmware's error record.",
    ),
    "FrequentKubeletRestart": Meaning(
        "kubelet-restarts",
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "Look why the kubelet restarts.",
    ),
    "FrequentContainerdRestart": Meaning(
        "runtime-restarts",
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "Look why the container runtime restarts.",
    ),
    "FabricManagerDown": Meaning(
        "fabric-manager-down",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Restart the fabric manager; NVLink between the GPUs does not work without it.",
    ),
    "FabricManagerFlapping": Meaning(
        "fabric-manager-flapping",
        Severity.WARNING,
        Scope.NODE,
        Hint.INSPECT,
        "Look why the fabric manager restarts.",
    ),
    "FabricManagerNotInstalled": Meaning(
        "fabric-manager-missing",
        Severity.FATAL,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "Install the fabric manager.",
    ),
    "NvidiaPersistencedDown": Meaning(
        "persistenced-down",
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "Start the persistence daemon.",
    ),
    "AcceleratedHardwareReady": Meaning(
        "accelerator-not-ready",
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "Take the node out of service and look at the GPU that the reason names.",
    ),
}
STANDARD = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_GOOD_WHEN_TRUE = ("Ready", "Healthy", "Available", "OK", "Ok", "Reachable")
_XID = re.compile(r"(?i)\bxid[^0-9a-z]{0,6}(\d{1,3})\b|xid(\d{1,3})(?:error|warning|\b)")
_DRIVER_LINE = re.compile(r"(?i)xid \(PCI:[0-9a-f:.]{4,20}\): ?(\d{1,3})\b")
_ERROR_CODE = re.compile(r"ErrorCodes?:(\d{1,3})\b")
BOOT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
GPU_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def healthy(condition: Condition) -> bool | None:
    """Whether the condition is as it should be; None for status Unknown."""
    if condition.status == "Unknown":
        return None
    good = "True" if condition.type.endswith(_GOOD_WHEN_TRUE) else "False"
    return condition.status == good


def meaning(condition: Condition) -> Meaning:
    """What an unhealthy condition means. One that is not known is reported and never acted on."""
    if condition.type == "Ready" and condition.status == "Unknown":
        return Meaning(
            "node-unreachable",
            Severity.FATAL,
            Scope.NODE,
            Hint.INSPECT,
            "Look whether the node is up and reaches the API server; nothing is known of its GPUs meanwhile.",
        )
    known = _KNOWN.get(condition.type)
    if known is not None:
        return known
    return Meaning(
        "unknown-condition",
        Severity.UNKNOWN,
        Scope.NODE,
        Hint.INSPECT,
        f"Look up who sets {condition.type} on the node; nothing is done by itself.",
    )


def xids(condition: Condition) -> tuple[int, ...]:
    """XID codes that the condition names, in order, each once."""
    codes: list[int] = []
    if "xid" in condition.type.lower() or "xid" in condition.reason.lower():
        codes += _keys(condition.reason) or _keys(condition.message)
        codes += [int(code) for code in _ERROR_CODE.findall(condition.message)]
    return tuple(dict.fromkeys([*codes, *xids_in(condition.reason), *xids_in(condition.message)]))


def xids_in(text: str) -> tuple[int, ...]:
    """XID codes that a sentence or a name spells out: `XID 79`, `NvidiaXID79Error`, the driver's own line."""
    found = [int(code) for code in _DRIVER_LINE.findall(text)]
    found += [int(one or other) for one, other in _XID.findall(text)]
    return tuple(dict.fromkeys(found))


def _keys(text: str) -> list[int]:
    """`{"31":true,"79":false}`: the codes that are set."""
    if not text.startswith("{"):
        return []
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(loaded, dict):
        return []
    return [int(key) for key, value in loaded.items() if key.isdigit() and len(key) < 5 and value]
