"""Values of one network port as a tool printed them, and how readings of several tools become one port."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from muster.read.moment import Moment
from muster.read.report import Value

MAX_PORTS = 20_000


@dataclass(frozen=True)
class PortId:
    """What the text says about which port this is; None where it does not."""

    device: str | None = None
    port: int | None = None
    guid: str | None = None
    interface: str | None = None
    host: str | None = None
    lid: int | None = None
    pci: str | None = None

    @property
    def label(self) -> str:
        """`mlx5_5/1`, `0x0011.../P2`, `enp178s0f0`; with the host in front where several hosts are told."""
        if self.device is not None:
            name = self.device + (f"/{self.port}" if self.port is not None else "")
        elif self.guid is not None:
            name = self.guid + (f"/P{self.port}" if self.port is not None else "")
        elif self.interface is not None:
            name = self.interface
        elif self.pci is not None:
            name = self.pci + (f"/{self.port}" if self.port is not None else "")
        elif self.lid is not None:
            name = f"lid {self.lid}" + (f" port {self.port}" if self.port is not None else "")
        else:
            name = "port" if self.port is None else f"port {self.port}"
        return f"{self.host} {name}" if self.host else name

    def entity(self) -> dict[str, Any]:
        """The entity of a fault: what is known, and the label as its name."""
        plain: dict[str, Any] = {"kind": "nic-port", "pci": self.pci, "name": self.label, "host": self.host}
        for name in ("device", "port", "guid", "interface", "lid"):
            value = getattr(self, name)
            if value is not None:
                plain[name] = value
        return plain


@dataclass(frozen=True)
class Counter:
    """`bits`: width of the counter where the tool's counter stops at its maximum; None where that is not known."""

    value: int
    line: int
    bits: int | None = None
    printed: str = ""

    @property
    def saturated(self) -> bool:
        return self.bits is not None and self.value >= (1 << self.bits) - 1


@dataclass
class PortReading:
    """One look at one port. `facts` are shown as they are; `counters` have the names of sysfs or `ethtool -S`."""

    id: PortId
    tool: str
    file: str
    line: int
    facts: dict[str, Value] = field(default_factory=dict)
    counters: dict[str, Counter] = field(default_factory=dict)
    text: dict[int, str] = field(default_factory=dict)
    """Lines that evidence may quote."""
    at: Moment | None = None

    def fact(self, name: str) -> Any:
        found = self.facts.get(name)
        return found.value if found is not None else None

    def put(self, name: str, value: Any, unit: str | None = None, **more: Any) -> None:
        if value is not None:
            self.facts[name] = Value(value, unit, more)

    def count(self, name: str, value: int, line: int, text: str, bits: int | None = None, printed: str = "") -> None:
        self.counters[name] = Counter(value, line, bits, printed or name)
        self.text[line] = text.strip()[:300]


@dataclass
class Port:
    """All that the inputs say about one port. `before`: an earlier look at its counters, None when there is one."""

    id: PortId
    readings: list[PortReading] = field(default_factory=list)
    interval_s: float | None = None

    def fact(self, name: str) -> Any:
        return next((reading.fact(name) for reading in reversed(self.readings) if name in reading.facts), None)

    @property
    def facts(self) -> dict[str, Value]:
        joined: dict[str, Value] = {}
        for reading in self.readings:
            joined |= reading.facts
        return joined

    @property
    def last(self) -> dict[str, Counter]:
        joined: dict[str, Counter] = {}
        for reading in self.readings:
            joined |= reading.counters
        return joined

    @property
    def first(self) -> dict[str, Counter]:
        """Each counter as it was read first."""
        joined: dict[str, Counter] = {}
        for reading in self.readings:
            joined = {**reading.counters, **joined}
        return joined

    def times_read(self, counter: str) -> int:
        return sum(1 for reading in self.readings if counter in reading.counters)

    @property
    def repeated(self) -> bool:
        """Some counter was read twice."""
        seen: set[str] = set()
        for reading in self.readings:
            if not seen.isdisjoint(reading.counters):
                return True
            seen.update(reading.counters)
        return False

    def increase(self, counter: str) -> int | None:
        """New counts between the first and the last look; None with one look or after a reset."""
        values = [reading.counters[counter].value for reading in self.readings if counter in reading.counters]
        if len(values) < 2 or any(later < earlier for earlier, later in pairwise(values)):
            return None
        return values[-1] - values[0]

    def was_reset(self, counter: str) -> bool:
        values = [reading.counters[counter].value for reading in self.readings if counter in reading.counters]
        return any(later < earlier for earlier, later in pairwise(values))

    def where(self, counter: str) -> tuple[str, int, str]:
        """File, line number and text of the last reading of a counter."""
        for reading in reversed(self.readings):
            if counter in reading.counters:
                line = reading.counters[counter].line
                return reading.file, line, reading.text.get(line, "")
        return self.readings[-1].file, self.readings[-1].line, ""


def join(readings: Iterable[PortReading]) -> list[Port]:
    """Readings of the same port together, in the order in which the ports were named first."""
    ports: dict[tuple[Any, ...], Port] = {}
    for reading in readings:
        ident = reading.id
        guid = ident.guid if ident.device is None else None
        same = (ident.host, ident.device, ident.port, guid, ident.interface, ident.pci)
        key = same if any(part is not None for part in same[1:]) else (*same, ident.lid)
        if key not in ports and len(ports) >= MAX_PORTS:
            continue
        ports.setdefault(key, Port(ident)).readings.append(reading)
    for port in ports.values():
        port.interval_s = _interval(port)
    return list(ports.values())


def _interval(port: Port) -> float | None:
    timed = [reading.at for reading in port.readings if reading.at is not None and reading.counters]
    if len(timed) < 2:
        return None
    seconds = timed[-1].since(timed[0])
    return seconds if seconds is not None and seconds > 0 else None
