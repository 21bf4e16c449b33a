"""Findings as the faults of a report, each with its entity, evidence and one sentence what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.read.advice import advice, subject
from muster.read.report import Evidence, ReadFault
from muster.read.smi.cells import Cell
from muster.read.smi.document import Message, Trouble
from muster.read.smi.fabric import FabricFault, FabricState
from muster.read.smi.figures import NodeFigures
from muster.read.smi.finding import GpuFinding
from muster.read.smi.lost import Inventory, Lost
from muster.read.smi.picture import Gpu, evidence_of
from muster.resources.fault import Hint, Scope, Severity

NODE: Mapping[str, Any] = {"kind": "node", "pci": None}


def fault(
    code: str | int,
    kind: str,
    entity: Mapping[str, Any],
    severity: Severity,
    scope: Scope,
    hint: Hint,
    name: str,
    *,
    details: Mapping[str, Any] | None = None,
    evidence: tuple[Evidence, ...] = (),
    next: str = "",  # noqa: A002 - the word of the report
    confidence: str | None = None,
    count: int = 1,
) -> ReadFault:
    """A fault at the time of the output. `next`: empty for the usual advice on the hint."""
    more = dict(details or {})
    usual = advice(hint, severity, entity, more)
    return ReadFault(
        code=code,
        kind=kind,
        entity=entity,
        severity=severity,
        scope=scope,
        hint=hint,
        name=name,
        count=count,
        count_is="exact",
        first=None,
        last=None,
        details=more,
        evidence=evidence,
        next=next.replace("{gpu}", who(entity)) if next else usual,
        confidence=confidence,
    )


def replaced(
    known: ReadFault, *, details: Mapping[str, Any] | None = None, evidence: tuple[Evidence, ...] | None = None
) -> ReadFault:
    """The same fault with other details or more evidence."""
    return replace(
        known,
        details=known.details if details is None else details,
        evidence=known.evidence if evidence is None else evidence,
    )


def who(entity: Mapping[str, Any]) -> str:
    """`GPU 0000:9b:00.0`, `GPU 3`, `the GPU`."""
    if entity.get("pci") is None and entity.get("uuid") is None and entity.get("kind") == "gpu":
        return f"GPU {entity['index']}" if entity.get("index") is not None else "the GPU"
    return subject(entity)


def of_finding(finding: GpuFinding, gpu: Gpu, entity: Mapping[str, Any]) -> ReadFault:
    """A finding on one GPU."""
    used = [c for name, c in gpu.cells.items() if _used(name, finding.fields)]
    text = finding.next
    if not text and entity.get("pci") is None and entity.get("uuid") is None:
        text = advice(finding.hint, finding.severity, entity, dict(finding.details)).replace(
            "GPU of unknown address", "{gpu}"
        )
    return fault(
        finding.code,
        finding.check,
        entity,
        finding.severity,
        finding.scope,
        finding.hint,
        finding.name,
        details={"reason": finding.reason, **finding.details},
        evidence=evidence_of(used),
        next=text,
        confidence=finding.confidence,
    )


def _used(name: str, fields: Sequence[str]) -> bool:
    return any(name == wanted or name.startswith(f"{wanted}.") for wanted in fields)


_FABRIC = {
    FabricFault.NOT_COMPLETE: (Severity.FATAL, "The NVLink fabric is not complete, so no CUDA program starts"),
    FabricFault.FAILED: (Severity.FATAL, "The NVLink fabric reports an error"),
    FabricFault.UNHEALTHY: (Severity.FATAL, "The NVLink fabric is unhealthy"),
    FabricFault.DEGRADED: (Severity.WARNING, "The NVLink fabric is degraded"),
}


def of_fabric(state: FabricState, gpus: Sequence[Gpu], figures: NodeFigures | None) -> list[ReadFault]:
    """One fault for the node when all GPUs with a fabric are concerned, else one for each GPU."""
    found = []
    for kind, positions in state.wrong.items():
        severity, name = _FABRIC[kind]
        cells = [c for p in positions for c in _fabric_cells(gpus[p], kind)]
        details: dict[str, Any] = {"reason": kind.value, "affected_gpus": len(positions)}
        whole = len(positions) == state.supported
        if whole:
            root, scope = _root(figures)
            text = _FABRIC_ADVICE.get(root or "", "")
            details |= {"root": root}
            found.append(
                fault(
                    kind.value,
                    "fabric",
                    NODE,
                    severity,
                    scope,
                    Hint.INSPECT,
                    name,
                    details=details,
                    evidence=evidence_of(cells),
                    next=text or "Look at the fabric manager and its log; all GPUs at once is rarely the GPUs.",
                    confidence=None if kind is not FabricFault.NOT_COMPLETE or _sure(figures) else "low",
                )
            )
            continue
        for position in positions:
            gpu = gpus[position]
            entity = gpu.entity(gpu.reading())
            found.append(
                fault(
                    kind.value,
                    "fabric",
                    entity,
                    severity,
                    Scope.GPU,
                    Hint.INSPECT,
                    name,
                    details={**details, "affected_gpus": 1},
                    evidence=evidence_of(_fabric_cells(gpu, kind)),
                    next="Look at the fabric manager's log for {gpu} and at its NVLinks; the other GPUs are joined.",
                )
            )
    return found


def _fabric_cells(gpu: Gpu, kind: FabricFault) -> list[Cell]:
    about_health = kind in (FabricFault.UNHEALTHY, FabricFault.DEGRADED)
    stem = "fabric_health." if about_health else "fabric_st"
    return [cell for name, cell in gpu.cells.items() if name.startswith(stem)]


_FABRIC_ADVICE = {
    "missing-kernel-modules": "Repair the node image (kernel modules are missing), then start the fabric manager.",
    "fabric-manager-not-running": "Start the fabric manager, read its log, and look at the fabric state again.",
}


def _root(figures: NodeFigures | None) -> tuple[str | None, Scope]:
    if figures is not None and figures.missing_modules:
        return "missing-kernel-modules", Scope.CONFIG
    if figures is not None and figures.fabric_manager_stopped:
        return "fabric-manager-not-running", Scope.SOFTWARE
    return None, Scope.NODE


def _sure(figures: NodeFigures | None) -> bool:
    """Something beside the state itself says that this is no start-up."""
    return figures is not None and bool(
        figures.cuda_error or figures.long_up or figures.fabric_manager_stopped or figures.missing_modules
    )


def of_figures(figures: NodeFigures, fabric_told: bool) -> list[ReadFault]:
    """What the node's own figures say where the GPUs do not tell it already."""
    if fabric_told:
        return []
    root, scope = _root(figures)
    if figures.cuda_error:
        named = f" ({figures.cuda_name})" if figures.cuda_name else ""
        return [
            fault(
                "cuda-init-failed",
                "cuda",
                NODE,
                Severity.FATAL,
                scope if root else Scope.SOFTWARE,
                Hint.INSPECT,
                f"CUDA does not initialise: error {figures.cuda_error}{named}",
                details={"cuda_error": figures.cuda_error, "root": root, "reason": "cuda-init-failed"},
                next=_FABRIC_ADVICE.get(
                    root or "", "Look at the fabric state of the GPUs and at the fabric manager."
                ),
            )
        ]
    found = []
    if figures.missing_modules:
        found.append(
            fault(
                "kernel-modules-missing",
                "kernel-modules",
                NODE,
                Severity.FATAL if "nvidia" in figures.missing_modules else Severity.WARNING,
                Scope.CONFIG,
                Hint.INSPECT,
                f"Kernel modules are missing: {', '.join(figures.missing_modules)}",
                details={"modules": list(figures.missing_modules), "reason": "kernel-modules-missing"},
                next="Repair the node image: load the missing kernel modules.",
            )
        )
    if figures.fabric_manager_stopped and figures.cuda_error is None:
        found.append(
            fault(
                "fabric-manager-not-running",
                "fabric",
                NODE,
                Severity.WARNING,
                Scope.SOFTWARE,
                Hint.INSPECT,
                "The fabric manager does not run",
                details={"reason": "fabric-manager-not-running"},
                next=_FABRIC_ADVICE["fabric-manager-not-running"],
            )
        )
    return found


def of_lost(lost: Lost, stock: Inventory) -> ReadFault:
    """A GPU that cannot be opened or is not there."""
    message = lost.message
    missing = lost.address is not None and lost.address in stock.missing
    details = {
        "reason": "gpu-lost",
        "address_in_message": message.address if message else None,
        "detected_by": "inventory-difference" if missing else "message",
    }
    entity: dict[str, Any] = {"kind": "gpu", "pci": lost.address}
    if message is not None and message.index is not None:
        entity["index"] = message.index
    sure = lost.matched_by == "address"
    name = "The driver has lost the GPU" if message else "An expected GPU is not there"
    return fault(
        "gpu-lost",
        "gpu-lost",
        entity,
        Severity.FATAL,
        Scope.GPU,
        Hint.REBOOT,
        name,
        details=details,
        evidence=evidence_of([message.cell]) if message else (),
        next="Take the node out of service and reboot it; if {gpu} stays away, have a person check the hardware.",
        confidence=None if sure else "low",
    )


_MESSAGES: Mapping[Trouble, tuple[Severity, Scope, Hint, str, str]] = {
    Trouble.MISMATCH: (
        Severity.FATAL,
        Scope.SOFTWARE,
        Hint.REBOOT,
        "Driver library and kernel module have different versions",
        "Drain the node and reboot it (or reload the driver's kernel modules): the library was upgraded under them.",
    ),
    Trouble.NO_DRIVER: (
        Severity.FATAL,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "The driver's kernel module is not loaded or does not answer",
        "Look at `lsmod` and the kernel log: the driver is not installed for this kernel, or failed to load.",
    ),
    Trouble.NO_DEVICES: (
        Severity.FATAL,
        Scope.NODE,
        Hint.INSPECT,
        "The driver finds no GPU",
        "Compare with `lspci -d 10de:` and read the driver's lines in the kernel log.",
    ),
    Trouble.NVML_UNKNOWN: (
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "The driver's management library does not start",
        "Run it on the host: if it works there, the container has lost its devices and has to be started anew.",
    ),
    Trouble.NVML_BLOCKED: (
        Severity.WARNING,
        Scope.CONFIG,
        Hint.INSPECT,
        "The management library may not reach the GPUs",
        "Look at the permissions of /dev/nvidia* and at the device rules of the container.",
    ),
    Trouble.NO_LIBRARY: (
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "The driver's management library is not installed here",
        "Install the driver's libraries, or run the tool where they are (the driver container or the host).",
    ),
    Trouble.INFOROM: (
        Severity.WARNING,
        Scope.GPU,
        Hint.INSPECT,
        "The GPU's information ROM is corrupted",
        "Reset {gpu} when it is idle; have it replaced if the message comes back.",
    ),
    Trouble.NEEDS_RESET: (
        Severity.FATAL,
        Scope.GPU,
        Hint.RESET_GPU,
        "The GPU answers nothing until it is reset",
        "Drain the work off {gpu} and reset it; reboot the node if the reset fails.",
    ),
    Trouble.NO_TOOL: (
        Severity.WARNING,
        Scope.SOFTWARE,
        Hint.INSPECT,
        "nvidia-smi is not installed here",
        "Run it where the driver is (the host or the driver container); nothing is known of the GPUs meanwhile.",
    ),
    Trouble.POWER_CABLE: (
        Severity.FATAL,
        Scope.GPU,
        Hint.INSPECT,
        "The GPU gets too little power",
        "Take the node out of service and check the power cables of {gpu}.",
    ),
}


def of_message(message: Message, address: str | None) -> ReadFault | None:
    """A message of the tool; None for one that names a lost GPU, which is judged with the inventory."""
    known = _MESSAGES.get(message.trouble)
    if known is None:
        return None
    severity, scope, hint, name, text = known
    about_gpu = message.trouble in (Trouble.INFOROM, Trouble.POWER_CABLE, Trouble.NEEDS_RESET)
    entity: dict[str, Any] = {"kind": "gpu", "pci": address} if about_gpu else dict(NODE)
    if about_gpu and message.index is not None:
        entity["index"] = message.index
    return fault(
        message.trouble.value,
        "driver" if not about_gpu else message.trouble.value,
        entity,
        severity,
        scope,
        hint,
        name,
        details={"reason": message.trouble.value},
        evidence=evidence_of([message.cell]),
        next=text,
    )


def of_topology(gpu: Gpu, peers: int, most: int) -> ReadFault:
    """A GPU that the matrix of `topo -m` shows with fewer NVLink neighbours than the others."""
    return fault(
        "nvlink-missing",
        "nvlink",
        gpu.entity(gpu.reading()),
        Severity.WARNING,
        Scope.LINK,
        Hint.INSPECT,
        f"The GPU reaches {peers} others over NVLink, the rest up to {most}",
        details={"reason": "nvlink-missing", "nvlink_peers": peers, "most": most},
        evidence=evidence_of(cells_of(gpu, "nvlink_peers")),
        next="Read `nvidia-smi nvlink --status` of {gpu} and the NVLink lines of the kernel log.",
    )


def cells_of(gpu: Gpu, *names: str) -> list[Cell]:
    """The cells of these readings, for evidence."""
    return [gpu.cells[name] for name in names if name in gpu.cells]
