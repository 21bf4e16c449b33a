"""Lines of the mlx5 driver and of the kernel's transmit watchdog."""

from __future__ import annotations

import re
from typing import Any

from muster.read import pci
from muster.read.kernel.finding import Detection, condition
from muster.resources.fault import Entity, EntityKind

_MLX5 = re.compile(
    rf"mlx5_core(?: (?P<pci>{pci.PATTERN}))?(?: (?P<device>[A-Za-z][\w-]{{0,31}})(?: \([^)]*\))?)?: (?P<text>.*)"
)
_POWER = re.compile(r"insufficient power on the PCIe slot(?: \((?P<power>\d+)W\))?", re.IGNORECASE)
_MODULE = re.compile(r"Port module event(?:\[\w+\])?: module (?P<module>\d+), (?P<what>.+)")
_COMMAND_TIMEOUT = re.compile(
    r"(?P<command>[A-Z][A-Z0-9_]+)\(0x[0-9a-f]+\) timeout\. Will cause a leak", re.IGNORECASE
)
_COMMAND_FAILED = re.compile(r"(?P<command>[A-Z][A-Z0-9_]+)\(0x[0-9a-f]+\) op_mod\(0x[0-9a-f]+\) failed")
_SYNDROME = re.compile(r"syndrome \((?P<syndrome>0x[0-9a-f]+)\)")
_HEALTH = re.compile(r"health compromised|Fatal error \d+ detected|handling bad device", re.IGNORECASE)
_SYND = re.compile(r"\bsynd (?P<syndrome>0x[0-9a-f]+): (?P<text>.+)")
_PORT = re.compile(r"Port: (?P<port>\d+) Link (?P<state>ACTIVE|DOWN|INIT)")
_CARRIER = re.compile(r"Link (?P<state>up|down)\b")
_WATCHDOG = re.compile(
    r"(?:NETDEV WATCHDOG: (?P<dev>[^\s:]+) \((?P<driver>[\w-]+)\)"
    r"|(?:.{0,80}? )?(?P<dev2>[^\s:]+)(?: \((?P<driver2>[\w-]+)\))?: NETDEV WATCHDOG)"
    r": (?:CPU: \d+: )?transmit queue (?P<queue>\d+) timed out"
)
_LINK_FAULTS = (("nic", "mlx5-link-down"), ("nic", "mlx5-cable-unplugged"))


def detect_mlx5(message: str, cut: bool) -> Detection | None:  # noqa: ARG001 - the signature of a detector
    """Read one line of the mlx5 driver."""
    match = _MLX5.match(message)
    if match is None:
        return None
    nic = Entity(
        kind=EntityKind.NIC,
        pci=pci.normalise(match["pci"]) if match["pci"] else None,
        device=match["device"] if match["device"] != "INFO" else None,
    )
    text = match["text"]
    return _hardware(nic, text) or _port(nic, text)


def _hardware(nic: Entity, text: str) -> Detection | None:
    if found := _POWER.search(text):
        return condition("mlx5-slot-power", nic, {"power_w": int(found["power"]) if found["power"] else None})
    if found := _COMMAND_TIMEOUT.search(text):
        return condition("mlx5-command-timeout", nic, {"command": found["command"][:64]})
    if found := _COMMAND_FAILED.search(text):
        syndrome = _SYNDROME.search(text)
        query = found["command"] == "ACCESS_REG"
        details: dict[str, Any] = {
            "command": found["command"][:64],
            "syndrome": syndrome["syndrome"] if syndrome else None,
        }
        return condition("mlx5-access-reg" if query else "mlx5-command-failed", nic, details)
    if found := _SYND.search(text):
        if int(found["syndrome"], 16) == 0:
            return None
        hardware = "unrecoverable" in found["text"].lower()
        code = "mlx5-hardware-error" if hardware else "mlx5-firmware-error"
        return condition(code, nic, {"syndrome": found["syndrome"], "text": found["text"][:120]})
    if _HEALTH.search(text):
        return condition("mlx5-health", nic)
    return None


def _port(nic: Entity, text: str) -> Detection | None:
    if found := _MODULE.search(text):
        return _module(nic, int(found["module"]), found["what"].strip().rstrip("."))
    if found := _PORT.search(text):
        port = Entity(kind=nic.kind, pci=nic.pci, device=nic.device, port=int(found["port"]))
        if found["state"] == "ACTIVE":
            return condition("mlx5-link-active", port, clears=_LINK_FAULTS)
        return condition("mlx5-link-down", port) if found["state"] == "DOWN" else None
    if found := _CARRIER.search(text):
        about = {"interface": nic.device}
        plain = Entity(kind=nic.kind, pci=nic.pci)
        if found["state"] == "up":
            return condition("mlx5-link-active", plain, {}, about, clears=_LINK_FAULTS)
        return condition("mlx5-link-down", plain, {}, about)
    return None


def _module(nic: Entity, module: int, what: str) -> Detection:
    about = {"module": module}
    lower = what.lower()
    if "unplugged" in lower:
        return condition("mlx5-cable-unplugged", nic, {}, about)
    if "plugged" in lower:
        return condition("mlx5-cable-plugged", nic, {}, about, clears=(("nic", "mlx5-cable-unplugged"),))
    if "high temp" in lower:
        return condition("mlx5-module-temperature", nic, {"event": what[:120]}, about)
    return condition("mlx5-module-error", nic, {"event": what[:120]}, about)


def detect_watchdog(message: str) -> Detection | None:
    """Read the kernel's note that a transmit queue hangs (any driver)."""
    match = _WATCHDOG.match(message)
    if match is None:
        return None
    interface = match["dev"] or match["dev2"]
    nic = Entity(kind=EntityKind.NIC)
    details = {"queue": int(match["queue"]), "driver": match["driver"] or match["driver2"]}
    return condition("netdev-tx-timeout", nic, details, {"interface": interface[:32]})
