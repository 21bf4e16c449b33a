"""Values of one link and its module, as a tool printed them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum


class CableType(StrEnum):
    PASSIVE_COPPER = "passive-copper"
    ACTIVE_COPPER = "active-copper"
    OPTICAL = "optical"


@dataclass(frozen=True)
class Measured:
    """A reading for each lane (one for the module), with the limits that the tool prints. None: not told."""

    values: tuple[float | None, ...]
    unit: str
    line: int
    low: float | None = None
    high: float | None = None
    alarm: str = ""
    """`ALARM` or `WARNING`, where the tool judges by itself."""

    @property
    def empty(self) -> bool:
        """No circuit behind it: nothing but zeros (or nothing), within no range."""
        nothing = all(not value for value in self.values)
        return nothing and not self.low and not self.high


@dataclass
class Link:
    """One link with its module. Text fields are None where the tool does not print them or prints `N/A`."""

    tool: str
    file: str
    line: int
    device: str | None = None
    host: str | None = None
    text: dict[str, str] = field(default_factory=dict)
    """Fields by their key (`physical_state`)."""
    lines: dict[str, int] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    flags: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    """`rx_los`, ...: 1 or 0 for each lane."""
    numbers: dict[str, float] = field(default_factory=dict)
    raw_errors: tuple[int, ...] = ()
    raw_ber_lanes: tuple[float, ...] = ()
    quotes: dict[int, str] = field(default_factory=dict)

    @property
    def cable_type(self) -> CableType | None:
        words = " ".join(
            self.text.get(name, "")
            for name in (
                "cable_type",
                "cable_technology",
                "transmitter_technology",
                "cable_assembly",
                "type",
                "transceiver_type",
            )
        )
        found = cable_type(words)
        if found is None and any(name.startswith(("passive_cu", "attenuation_at")) for name in self.text):
            return CableType.PASSIVE_COPPER  # fields that a module of copper alone has
        return found

    @property
    def optical_rules_apply(self) -> bool:
        """Limits and flags of a module mean something. Copper has no circuit that could measure."""
        if self.cable_type is not None:
            return self.cable_type is CableType.OPTICAL
        monitored = [
            entry for name, entry in self.measured.items() if name in ("bias_current", "rx_power", "tx_power")
        ]
        return not monitored or not all(entry.empty for entry in monitored)

    @property
    def label(self) -> str:
        name = self.device or ""
        return f"{self.host} {name}".strip() if self.host else name

    def entity(self) -> dict[str, str | None]:
        """The port of the link as the entity of a fault."""
        return {"kind": "nic-port", "name": self.label or "link", "device": self.device, "host": self.host}


def at(link: Link, name: str) -> tuple[tuple[str, int, str], ...]:
    """File, line and text of a reading, as evidence."""
    line = link.lines.get(name, 0)
    return ((link.file, line, link.quotes.get(line, "")),) if line else ()


_COPPER = re.compile(r"copper|\bdac\b|\bacc\b|unequali[sz]ed|base-?cr\d?\b", re.IGNORECASE)
_ACTIVE = re.compile(r"active|retimer|redriver|\bacc\b|\baec\b|linear", re.IGNORECASE)
_PASSIVE = re.compile(r"passive|\bdac\b|unequali[sz]ed|base-?cr\d?\b", re.IGNORECASE)
_OPTICAL = re.compile(
    r"optic|vcsel|laser|\bdfb\b|\beml\b|fib(?:er|re)|\bnm\b|\baoc\b|silicon photonics", re.IGNORECASE
)


def cable_type(words: str) -> CableType | None:
    """The kind of cable behind the words of a tool; None when they do not tell."""
    if _OPTICAL.search(words):
        return CableType.OPTICAL
    if _PASSIVE.search(words):
        return CableType.PASSIVE_COPPER
    if _COPPER.search(words):
        return CableType.ACTIVE_COPPER if _ACTIVE.search(words) else CableType.PASSIVE_COPPER
    return None


_LANE_GBPS = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}


def rate_gbps(speed: str | None, width: int | None) -> float | None:
    """`IB-NDR` with 4 lanes, `400G`, `100G_4X`, `200GbE`: the rate in Gb/s; None when it cannot be told."""
    if speed is None:
        return None
    word = speed.strip().upper().removeprefix("IB-")
    if match := re.match(r"(\d{1,5})G", word):
        return float(match[1])
    lane = _LANE_GBPS.get(word)
    return lane * width if lane is not None and width else None
