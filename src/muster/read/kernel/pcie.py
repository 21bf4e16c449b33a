"""The kernel's line about a device that could run faster than the slowest PCIe link above it."""

from __future__ import annotations

import re

from muster.read import pci
from muster.read.kernel.finding import Detection, note
from muster.resources.fault import Entity, EntityKind

_LINK = r"(?P<{0}speed>[\d.]+) GT/s(?: PCIe)? x(?P<{0}width>\d+) link"
_LINE = re.compile(
    rf"(?:pci|[\w-]+) (?P<pci>{pci.PATTERN}): (?P<gbps>[\d.]+) Gb/s available PCIe bandwidth"
    rf"(?:, limited by {_LINK.format('at_')} at (?P<limit>{pci.PATTERN})"
    rf"(?: \(capable of (?P<capable>[\d.]+) Gb/s(?: with {_LINK.format('can_')})?\))?| \({_LINK.format('own_')}\))"
)


def detect(message: str, cut: bool) -> Detection | None:  # noqa: ARG001 - the signature of a detector
    """Read the line. A device that is not limited (`limiting_device` None) is the healthy reading."""
    match = _LINE.match(message)
    if match is None:
        return None
    limited = match["limit"] is not None
    capable = match["capable"] if limited else match["gbps"]
    speed, width = (match["at_speed"], match["at_width"]) if limited else (match["own_speed"], match["own_width"])
    can_speed, can_width = (match["can_speed"], match["can_width"]) if limited else (speed, width)
    details = {
        "available_gbps": _number(match["gbps"]),
        "capable_gbps": _number(capable),
        "limiting_device": pci.normalise(match["limit"]) if limited else None,
        "link_at_limit": {"speed_gts": _number(speed), "width": int(width)},
        "link_capable": {"speed_gts": _number(can_speed), "width": int(can_width)} if can_speed else None,
    }
    device = Entity(kind=EntityKind.PCI_DEVICE, pci=pci.normalise(match["pci"]))
    return note("pcie-bandwidth", device, "PCIe bandwidth of a device", details)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
