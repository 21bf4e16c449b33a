"""What DCGM's health watch means. Its words are evidence, not verdicts: the error behind them decides, and a health
value that is good covers only what the watch looks at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.errors import BadInputError
from muster.faults import catalogue
from muster.read.dcgm_health.health import Health, Trouble
from muster.read.diagnostics.error_codes import code_of
from muster.read.report import HINT_RANK, SEVERITY_RANK, Evidence, ReadFault, Result, Value, Verdict
from muster.read.smi.faults import NODE, fault
from muster.read.source import Context
from muster.resources.fault import Hint, Scope, Severity

_SYSTEMS: tuple[tuple[str, str], ...] = (
    ("nvlink", "nvlink-watch"),
    ("nvswitch", "nvswitch-watch"),
    ("pcie", "pcie-watch"),
    ("memory", "memory-watch"),
    ("inforom", "inforom-watch"),
    ("thermal", "thermal-watch"),
    ("power", "power-watch"),
    ("driver", "driver-watch"),
    ("sm", "sm-watch"),
)
_SAME_AS: Mapping[str, str] = {
    "DCGM_FR_PENDING_ROW_REMAP": "row-remap-pending",
    "DCGM_FR_ROW_REMAP_FAILURE": "row-remap-failed",
    "DCGM_FR_SRAM_THRESHOLD": "sram-uncorrectable",
    "DCGM_FR_PENDING_PAGE_RETIREMENTS": "page-retirement-pending",
    "DCGM_FR_DBE_PENDING_PAGE_RETIREMENTS": "page-retirement-pending",
    "DCGM_FR_GPU_RECOVERY_RESET": "gpu-recovery-action",
    "DCGM_FR_GPU_RECOVERY_REBOOT": "gpu-recovery-action",
    "DCGM_FR_GPU_RECOVERY_DRAIN_P2P": "gpu-recovery-action",
    "DCGM_FR_GPU_RECOVERY_DRAIN_RESET": "gpu-recovery-action",
    "DCGM_FR_FALLEN_OFF_BUS": "gpu-lost",
    "DCGM_FR_CORRUPT_INFOROM": "inforom-corrupted",
    "DCGM_FR_FABRIC_PROBE_STATE": "fabric-not-complete",
    "DCGM_FR_VOLATILE_DBE_DETECTED": "ecc-uncorrectable",
}
"""The same event as the driver's own readings tell it."""
_MORE_MESSAGES: tuple[tuple[str, str], ...] = (
    ("pcie replays", "DCGM_FR_PCI_REPLAY_RATE"),
    ("pcie replay", "DCGM_FR_PCI_REPLAY_RATE"),
    ("sram threshold", "DCGM_FR_SRAM_THRESHOLD"),
    ("sram error threshold", "DCGM_FR_SRAM_THRESHOLD"),
    ("imex", "DCGM_FR_IMEX_UNHEALTHY"),
    ("fallen off the bus", "DCGM_FR_FALLEN_OFF_BUS"),
    ("fabric probe", "DCGM_FR_FABRIC_PROBE_STATE"),
    ("uncontained", "DCGM_FR_UNCONTAINED_ERROR"),
)
_RECOVERY: tuple[tuple[tuple[str, ...], str], ...] = (
    (("drain", "p2p"), "DCGM_FR_GPU_RECOVERY_DRAIN_P2P"),
    (("drain", "reset"), "DCGM_FR_GPU_RECOVERY_DRAIN_RESET"),
    (("reboot",), "DCGM_FR_GPU_RECOVERY_REBOOT"),
    ((), "DCGM_FR_GPU_RECOVERY_RESET"),
)
"""Words of the recovery action that a message names."""
_XID = re.compile(r"\b(?:XID|Xid|xid)(?: error)?[ :#]{1,3}(?P<code>\d{1,3})\b")
_COUNT_OVER = re.compile(r"(?:since|lifetime|total)", re.IGNORECASE)
_LINK = re.compile(r"link (?P<link>\d{1,3})\b", re.IGNORECASE)
_GROUPS = {"GPU": "gpu", "NvSwitch": "nvswitch", "Switch": "nvswitch", "CPU": "cpu"}


def code(trouble: Trouble) -> str | None:
    """`DCGM_FR_...` behind a message; None when the message names none that is known."""
    lowered = trouble.message.casefold()
    for words, found in _MORE_MESSAGES:
        if words in lowered:
            return found
    if "recovery action" in lowered:
        return next(found for words, found in _RECOVERY if all(word in lowered for word in words))
    return code_of(None, trouble.message)


@dataclass(frozen=True)
class Expected:
    """What the machine should have; None: not told. Watches of what it has not are no faults."""

    nvlink: bool | None = None
    multi_node_nvlink: bool | None = None


def expected(context: Context) -> Expected:
    """`nvlink_expected` and `multi_node_nvlink` of the context. Raises BadInputError."""
    found = {}
    for key in ("nvlink_expected", "multi_node_nvlink"):
        told = context.get(key)
        if told not in (None, True, False, "unknown"):
            raise BadInputError(f"{key} in the context must be true, false or unknown, not {told!r:.40}.")
        found[key] = told if isinstance(told, bool) else None
    return Expected(found["nvlink_expected"], found["multi_node_nvlink"])


def faults(health: Health, file: str, want: Expected = Expected()) -> list[ReadFault]:
    """One fault for each system of each entity that is not healthy."""
    found = []
    for trouble in health.troubles:
        known_code = code(trouble)
        xid = _XID.search(trouble.message)
        if xid is not None and known_code in (None, "DCGM_FR_XID_ERROR"):
            found.append(_xid_fault(trouble, int(xid["code"]), file))
            continue
        found.append(_fault(trouble, known_code, file, want))
    return found


def of_condition(
    known_code: str, trouble: Trouble, identity: Mapping[str, str], file: str, want: Expected
) -> ReadFault:
    """A fault from a node condition that carries the error code itself."""
    found = _fault(trouble, known_code, file, want)
    return replace(found, entity={**found.entity, **identity})


def _entity(trouble: Trouble) -> dict[str, Any]:
    if trouble.entity is None:
        return dict(NODE)
    kind = _GROUPS.get(
        trouble.group, "gpu" if trouble.group.startswith("GPU") else trouble.group.casefold() or "node"
    )
    entity: dict[str, Any] = {"kind": kind, "pci": None, "index": trouble.entity}
    link = _LINK.search(trouble.message)
    if kind == "gpu" and link is not None and "nvlink" in (trouble.system + trouble.message).casefold():
        entity |= {"kind": "nvlink", "link": int(link["link"])}
    return entity


def _fault(trouble: Trouble, known_code: str | None, file: str, want: Expected) -> ReadFault:
    watch = next((name for word, name in _SYSTEMS if word in trouble.system.casefold()), "health-watch")
    entity = _entity(trouble)
    known = catalogue.dcgm(known_code) if known_code else None
    usual_scope = Scope.GPU if entity["kind"] == "gpu" else Scope.NODE
    severity: Severity = known.severity if known else Severity.WARNING
    scope, hint = (known.scope, known.hint) if known else (usual_scope, Hint.INSPECT)
    system = trouble.system.casefold()
    if known is None and trouble.word == "Failure" and "fatal" in system and "non" not in system:
        severity = Severity.FATAL  # the watch on fatal errors of a switch says so by its name
    if trouble.word == "Warning" and severity is Severity.FATAL:
        # The watch itself does not call it a failure; more than a warning would be bolder than its evidence.
        severity = Severity.WARNING
    same = _SAME_AS.get(known_code or "")
    details: dict[str, Any] = {
        "reason": same or watch,
        "system": trouble.system,
        "health": trouble.word,
        "message": trouble.message[:500],
        "error": known_code,
    }
    if same:
        details["same_as"] = same
    if same == "row-remap-pending":
        details["urgency"] = "when-idle"
    advice = ""
    if known_code == "DCGM_FR_IMEX_UNHEALTHY":
        severity, scope, hint = _imex(want), Scope.SOFTWARE, Hint.INSPECT
        advice = (
            "Nothing has to be done on a machine without a multi-node NVLink domain; else look at the IMEX daemon."
        )
        details |= {"not_applicable_without": "multi-node-nvlink", "reason": "imex-not-ready"}
    if want.nvlink is False and "nvlink" in trouble.system.casefold():
        severity, scope, hint = Severity.INFO, Scope.CONFIG, Hint.NONE
        advice = "Nothing has to be done: this machine has no NVLink, and the watch does not know it."
        details["reason"] = "nvlink-not-expected"
    return fault(
        known_code or watch,
        "dcgm-health",
        entity,
        severity,
        scope,
        hint,
        f"{trouble.system}: {trouble.word}" + (f" ({trouble.message[:160]})" if trouble.message else ""),
        details=details,
        evidence=_evidence(trouble, file),
        next=advice or _advice(entity, hint),
    )


def _imex(want: Expected) -> Severity:
    """A single machine runs no IMEX daemon, and the watch complains all the same."""
    if want.multi_node_nvlink is None:
        return Severity.UNKNOWN
    return Severity.WARNING if want.multi_node_nvlink else Severity.INFO


def _advice(entity: Mapping[str, Any], hint: Hint) -> str:
    who = f"GPU {entity['index']}" if entity.get("kind") in ("gpu", "nvlink") else "the node"
    match hint:
        case Hint.RESET_GPU:
            return f"Reset {who} when its work is off it; reboot the node if the reset fails."
        case Hint.REBOOT:
            return "Take the node out of service and reboot it."
        case Hint.REPLACE:
            return f"Take the node out of service and have {who} replaced."
        case _:
            return f"Look at {who}: read its recovery action (`nvidia-smi -q`) and its lines in the kernel log."


def _xid_fault(trouble: Trouble, xid: int, file: str) -> ReadFault:
    return xid_fault(xid, _entity(trouble), _evidence(trouble, file), {"message": trouble.message[:500]})


def xid_fault(
    xid: int, entity: Mapping[str, Any], evidence: tuple[Evidence, ...], details: Mapping[str, Any]
) -> ReadFault:
    """An Xid that DCGM remembers. It names the last one and no time, so it may be old: confidence is low."""
    known = catalogue.xid(xid)
    return fault(
        xid,
        "xid",
        entity,
        known.severity,
        known.scope,
        known.hint,
        known.name,
        details={"reason": f"xid-{xid}", "source": "dcgm", **details},
        evidence=evidence,
        next=f"Read the line of Xid {xid} in the kernel log: when it was, and what followed. "
        + _advice(entity, known.hint),
        confidence="low",
    )


def _evidence(trouble: Trouble, file: str) -> tuple[Evidence, ...]:
    lines = trouble.lines[:6]
    if not lines:
        return ()
    return (
        Evidence(
            file,
            tuple(line.number for line in lines),
            tuple(line.shown.strip() for line in lines),
            len(trouble.lines),
        ),
    )


def verdicts(health: Health, found: Sequence[ReadFault]) -> list[Verdict]:
    """The health value as a verdict on the watch itself."""
    of = "dcgm-health"
    if not health.complete:
        return [Verdict(of, Result.UNKNOWN, "truncated-output", "The report breaks off; take it anew.")]
    match health.overall:
        case "Healthy":
            return [
                Verdict(of, Result.PASS, "healthy", "The watch covers no firmware faults and no recovery action.")
            ]
        case "Warning" | "Failure" if found and all(item.severity is Severity.INFO for item in found):
            return [Verdict(of, Result.PASS, _reason(found), "The watch looks for what this machine does not have.")]
        case "Warning":
            return [Verdict(of, Result.WARN, _reason(found))]
        case "Failure":
            return [Verdict(of, Result.FAIL, _reason(found))]
        case _:
            return [Verdict(of, Result.UNKNOWN, "no-result")]


def _reason(found: Sequence[ReadFault]) -> str:
    """The word of the heaviest fault; of equal ones the first."""
    worst = max(found, key=lambda f: (SEVERITY_RANK[f.severity], HINT_RANK[f.hint]), default=None)
    return str(worst.details.get("reason", worst.code)) if worst is not None else "not-told"


def values(health: Health) -> dict[str, Value]:
    """The overall word and the words of the entities."""
    found = {"dcgm_overall_health": Value(health.overall)}
    for group in dict.fromkeys(name for name, _ in health.entities):
        words = {number: word for (name, number), word in sorted(health.entities.items()) if name == group}
        found[f"dcgm_health_{_GROUPS.get(group, group.casefold())}"] = Value(words)
    return found
