"""Files of sysfs printed with their paths: `grep . /sys/class/infiniband/*/ports/*/counters/*` and the like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.fabric_ports.counters import bits_of, canonical
from muster.read.fabric_ports.ib_state import put_field
from muster.read.fabric_ports.lines import Line, integer, moment_of
from muster.read.fabric_ports.port import PortId, PortReading
from muster.read.moment import Moment

_RDMA_FILE = re.compile(
    r"/sys/(?:class|devices)/(?:\S{0,200}/)?infiniband/([A-Za-z0-9_.-]{1,64})/(?:ports/"
    r"(\d{1,3})/)?((?:[a-z0-9_]{1,40}/){0,3}[A-Za-z0-9_]{1,60})[:= \t]{1,8}(.{0,200})$"
)
_NET_FILE = re.compile(
    r"/sys/(?:class|devices)/(?:\S{0,200}/)?net/([A-Za-z0-9_.@-]{1,32})/"
    r"((?:[a-z0-9_]{1,40}/){0,2}[a-z0-9_]{1,60})[:= \t]{1,8}(.{0,200})$"
)
_BANNER = re.compile(r"==> (/sys/\S{1,300}) <==$")
_STATE_FILES = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")
_NO_COUNTERS = ("lifespan",)
"""`lifespan` is for how long the kernel keeps a reading (milliseconds), no counter."""


def parse(lines: Sequence[Line], file: str) -> list[PortReading]:
    """All ports whose files are shown. A counter that comes again starts a second look."""
    reader = _Reader(file)
    for line in lines:
        reader.line(line)
    return reader.found


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[PortReading] = []
        self._file = file
        self._open: dict[PortId, PortReading] = {}
        self._at: Moment | None = None
        self._banner = ""

    def line(self, line: Line) -> None:
        text = line.text.strip()
        if match := _BANNER.match(text):
            self._banner = match[1]
            return
        if self._banner:
            text, self._banner = f"{self._banner}:{text}", ""
        if match := _RDMA_FILE.match(text):
            self._rdma(line, match)
        elif match := _NET_FILE.match(text):
            self._net(line, match)
        elif "/sys/" not in text and (at := moment_of(text)) is not None:
            self._at = at
            self._open.clear()

    def _reading(self, line: Line, ident: PortId, counter: str) -> PortReading:
        reading = self._open.get(ident)
        if reading is None or counter in reading.counters:
            reading = PortReading(ident, "sysfs", self._file, line.number, at=self._at)
            self._open[ident] = reading
            self.found.append(reading)
        return reading

    def _rdma(self, line: Line, match: re.Match[str]) -> None:
        device, path, value = match[1], match[3], match[4].strip()
        port = int(match[2]) if match[2] else 1
        folder, _, name = path.rpartition("/")
        ident = PortId(device=device, port=port, host=line.host)
        if folder in ("counters", "hw_counters", "counters_ext"):
            number = integer(value)
            if number is None:
                return
            counter = canonical(name) or name
            reading = self._reading(line, ident, counter)
            reading.put("device", device, port=port)
            if name in _NO_COUNTERS:
                reading.put(name, number, "ms", **{"is": "refresh-period"})
                return
            bits = bits_of(counter, False) if folder == "counters" and number < 1 << 32 else None
            reading.count(counter, number, line.number, line.text, bits, name)
        elif folder == "" and name in _STATE_FILES:
            reading = self._reading(line, ident, "")
            reading.put("ca", device)
            reading.put("port", port)
            reading.text[line.number] = line.text.strip()[:300]
            put_field(reading, {"phys_state": "physical_state", "lid": "base_lid"}.get(name, name), value)
        elif name == "traffic_class" or path.endswith("traffic_class"):
            reading = self._reading(line, ident, "")
            found = re.search(r"tclass=(\d{1,3})", value)
            reading.put("traffic_class", int(found[1]) if found else None)

    def _net(self, line: Line, match: re.Match[str]) -> None:
        interface, path, value = match[1], match[2], match[3].strip()
        folder, _, name = path.rpartition("/")
        number = integer(value)
        ident = PortId(interface=interface, host=line.host)
        if folder == "statistics" or name in ("carrier_changes", "carrier_up_count", "carrier_down_count"):
            if number is not None:
                reading = self._reading(line, ident, name)
                reading.put("interface", interface)
                reading.count(name, number, line.number, line.text)
        elif name in ("operstate", "speed", "mtu", "carrier"):
            reading = self._reading(line, ident, "")
            reading.put("interface", interface)
            reading.text[line.number] = line.text.strip()[:300]
            if name == "operstate":
                reading.put("link_detected", {"up": True, "down": False, "lowerlayerdown": False}.get(value))
            elif name == "speed" and number is not None and number > 0:
                reading.put("rate", number // 1000 if number % 1000 == 0 else number / 1000, "Gb/s")
            elif name == "mtu":
                reading.put("mtu", number)
