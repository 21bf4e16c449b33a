"""Lines of the NVIDIA driver that carry no XID: identities, versions, set-up failures, companions of other faults."""

from __future__ import annotations

import re

from muster.read import pci
from muster.read.kernel.finding import NODE, Detection, condition, note
from muster.read.source import printable
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

_UUID = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IDENTITY = re.compile(rf"NVRM: GPU at (?:PCI:)?(?P<pci>{pci.PATTERN}): (?P<uuid>{_UUID})", re.IGNORECASE)
_SERIAL = re.compile(rf"NVRM: GPU (?P<pci>{pci.PATTERN}): GPU serial number is (?P<serial>[\w-]+)")
_LOADING = re.compile(
    r"NVRM: loading NVIDIA UNIX (?P<open>Open )?(?:\S+ )?Kernel Module(?:\s+for\s+\S+)?"
    r"\s+(?P<version>\d+(?:\.\d+)+)(?=\s|$)"
)
_OFF_BUS = re.compile(rf"NVRM: (?:GPU )?(?:at )?(?:PCI:)?(?P<pci>{pci.PATTERN})[: ].*GPU has fallen off the bus")
_RATE_LIMIT = re.compile(
    rf"NVRM: Rate limiting GSP RPC error prints for GPU at (?:PCI:)?(?P<pci>{pci.PATTERN})"
    r"(?: \(printing 1 of every (?P<every>\d+)\))?"
)
_PROBE = re.compile(r"NVRM: The NVIDIA probe routine failed for (?P<count>\d{1,4}) device")
_MISMATCH = re.compile(
    r"NVRM: API mismatch: the client has (?:the )?version (?P<client>[\d.]+\d)(?:.*version (?P<module>[\d.]+\d))?"
)
_DISCOVERY = re.compile(r"NVRM: (?:GPU\d+ )?(?P<function>knvlink\w+): (?P<text>.*fail.*)", re.IGNORECASE)
_PEER = re.compile(r"\bpeer ?(?P<peer>\d{1,3})\b")
_PEERMEM = re.compile(r"nvidia[-_]peermem:? .*?\bERROR:? (?P<text>.+)")
_RESET_MARKER = re.compile(rf"GPU reset executed: (?P<uuid>{_UUID}), success: (?P<success>true|false)", re.IGNORECASE)


def gpu(address: str | None, uuid: str | None = None) -> Entity:
    return Entity(kind=EntityKind.GPU, pci=pci.normalise(address) if address else None, uuid=uuid)


def detect(message: str, cut: bool) -> Detection | None:
    """Read one line that begins with `NVRM:` and is no XID and no part of a longer record."""
    if match := _IDENTITY.match(message):
        uuid = match["uuid"][:3].upper() + match["uuid"][3:].lower()
        return note("gpu-identity", gpu(match["pci"], uuid), "GPU identity")
    if match := _SERIAL.match(message):
        return note("gpu-identity", gpu(match["pci"]), "GPU serial number", {"serial": match["serial"]})
    if (match := _LOADING.match(message)) and not (cut and match.end() == len(message)):
        flavour = "open" if match["open"] else "proprietary"
        details = {"driver_version": match["version"], "flavour": flavour}
        return note("driver-version", NODE, "NVIDIA driver loaded", details)
    if match := _OFF_BUS.match(message):
        return off_bus(match["pci"])
    if match := _RATE_LIMIT.match(message):
        every = int(match["every"]) if match["every"] else None
        return Detection(
            check="xid-companion",
            code=119,
            entity=gpu(match["pci"]),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            hint=Hint.RESET_GPU,
            name="GSP RPC errors, printed at a limited rate",
            details={"count_is": "lower-bound", "rate_limit": every},
            companion=True,
        )
    if match := _PROBE.match(message):
        return condition("gpu-probe-failed", NODE, {"failed_devices": int(match["count"])}, companion=True)
    if match := _MISMATCH.match(message):
        return condition("driver-mismatch", NODE, {"client": match["client"], "kernel_module": match["module"]})
    if match := _DISCOVERY.match(message):
        peer = _PEER.search(match["text"])
        receiver = "rxdet" in message.lower().replace(" ", "").replace("_", "")
        return condition(
            "nvlink-rx-detect" if receiver else "nvlink-setup",
            NODE,
            {"function": match["function"][:80], "text": printable(match["text"], 200)},
            {"peer": int(peer["peer"])} if peer else {},
        )
    return None


def off_bus(address: str | None, pci_id: str | None = None) -> Detection:
    """A GPU that left the bus, told without an XID: the meaning is that of XID 79."""
    return condition(
        "gpu-off-bus",
        gpu(address),
        {"equivalent_xid": 79},
        {"pci_id": pci_id} if pci_id else {},
        companion=False,
    )


def detect_peermem(message: str) -> Detection | None:
    """Read one line of the peer memory module."""
    match = _PEERMEM.match(message)
    if match is None:
        return None
    known = "invalid context" in match["text"]
    return condition(
        "peermem-invalid-context" if known else "peermem-error", NODE, {"text": printable(match["text"], 200)}
    )


def detect_reset_marker(message: str) -> Detection | None:
    """Read the line that a reset job writes after it has tried to reset a GPU."""
    match = _RESET_MARKER.search(message)
    if match is None:
        return None
    success = match["success"].lower() == "true"
    uuid = match["uuid"][:3].upper() + match["uuid"][3:].lower()
    if success:
        return note("gpu-reset-marker", gpu(None, uuid), "GPU was reset", {"success": True})
    failed = condition("gpu-reset-failed", gpu(None, uuid), {"success": False})
    return failed.changed(code=None)
