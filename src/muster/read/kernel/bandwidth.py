"""PCIe bandwidth of the GPUs of a node: how the machine is built, or one link below its peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.faults import catalogue
from muster.read import pci
from muster.read.advice import advice
from muster.read.kernel.finding import Finding
from muster.read.report import Evidence, ReadFault, Result, Value, Verdict
from muster.read.source import Context


class Limits:
    """What the bandwidth lines of one log say. The last line about a device counts."""

    def __init__(self, notes: Sequence[tuple[str, Finding]], context: Context) -> None:
        self.expected = _expected(context)
        self.read: dict[str, tuple[str, Finding]] = {}
        for file, finding in notes:
            address = finding.detection.entity.pci
            if finding.detection.check == "pcie-bandwidth" and address is not None:
                self.read[address] = (file, finding)
        wanted = self.read if self.expected is None else {a: n for a, n in self.read.items() if a in self.expected}
        self.limited = {a: n for a, n in wanted.items() if n[1].detection.details["limiting_device"] is not None}

    def values(self) -> dict[str, Value]:
        """Readings of the limited devices: one value where all agree, else one per device."""
        values: dict[str, Value] = {}
        for name, detail, unit in (
            ("available_bandwidth", "available_gbps", "Gb/s"),
            ("capable_bandwidth", "capable_gbps", "Gb/s"),
            ("link_at_limit", "link_at_limit", None),
            ("link_capable", "link_capable", None),
        ):
            per_device = {a: n[1].detection.details[detail] for a, n in self.limited.items()}
            found = list(per_device.values())
            if not found:
                continue
            same = all(item == found[0] for item in found)
            more: dict[str, Any] = {"of": "each-device"} if unit else {}
            values[name] = Value(found[0], unit, more) if same else Value(per_device, unit, more)
        limiting = [n[1].detection.details["limiting_device"] for n in self.limited.values()]
        if limiting:
            values["limiting_device"] = Value(list(dict.fromkeys(limiting)))
        expected = len(self.expected) if self.expected is not None else None
        values["limited_gpus" if expected is not None else "limited_devices"] = Value(
            len(self.limited), more={"of_expected": expected}
        )
        return values

    def judge(self) -> tuple[tuple[ReadFault, ...], Verdict]:
        """All devices alike: a property of the platform. Some below their peers: their own link, or a shared one."""
        if not self.limited:
            return (), Verdict("node", Result.PASS, "full-bandwidth")
        peers = len(self.expected) if self.expected is not None else None
        alike = len({str(n[1].detection.details["available_gbps"]) for n in self.limited.values()}) == 1
        if peers is None and len(self.limited) < 2:
            message = "Name the GPUs of the node in the context (key gpus) to compare them."
            return (), Verdict("node", Result.UNKNOWN, "peers-unknown", message)
        if alike and len(self.limited) == (peers or len(self.limited)) and len(self.limited) > 1:
            who = "Every GPU" if peers is not None else "Every device that the log names"
            message = f"{who} is limited alike: that is how the machine is built. NVLink is not affected."
            return (), Verdict("node", Result.WARN, "platform-property", message)
        slowest = min(float(n[1].detection.details["available_gbps"]) for n in self.limited.values())
        below = self.limited
        if peers is not None and len(self.limited) == peers:
            below = {
                a: n for a, n in self.limited.items() if float(n[1].detection.details["available_gbps"]) == slowest
            }
        faults = self._faults(below)
        return faults, Verdict("node", Result.WARN, str(faults[0].code))

    def _faults(self, below: dict[str, tuple[str, Finding]]) -> tuple[ReadFault, ...]:
        faults = []
        shared: dict[str, list[str]] = {}
        for address, (file, finding) in below.items():
            at = str(finding.detection.details["limiting_device"])
            if at == address:
                kind = "gpu" if self.expected is not None else "pci-device"
                faults.append(_fault("pcie-link-below-peers", kind, address, [(file, finding)], {}))
            else:
                shared.setdefault(at, []).append(address)
        for at, addresses in shared.items():
            notes = [below[address] for address in addresses]
            faults.append(_fault("pcie-path-below-peers", "pci-device", at, notes, {"devices": addresses}))
        return tuple(faults)


def _fault(
    code: str, kind: str, address: str, notes: Sequence[tuple[str, Finding]], details: dict[str, Any]
) -> ReadFault:
    known = catalogue.condition(code)
    entity = {"kind": kind, "pci": address}
    first = notes[0][1]
    evidence: dict[str, list[tuple[int, str]]] = {}
    for file, finding in notes:
        evidence.setdefault(file, []).extend(finding.lines)
    return ReadFault(
        code=code,
        kind=known.check,
        entity=entity,
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        name=known.name,
        count=len(notes),
        count_is="exact",
        first=first.first,
        last=notes[-1][1].last,
        details={**details, **first.detection.details},
        evidence=tuple(
            Evidence(file, tuple(n for n, _ in lines[:20]), tuple(t for _, t in lines[:4]), len(lines))
            for file, lines in evidence.items()
        ),
        next=advice(known.hint, known.severity, entity, details),
        confidence="low",
    )


def _expected(context: Context) -> tuple[str, ...] | None:
    gpus = context.get("gpus")
    if not isinstance(gpus, list):
        return None
    found = [pci.normalise(item) if isinstance(item, str) else None for item in gpus]
    return tuple(address for address in found if address is not None) or None
