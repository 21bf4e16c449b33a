"""Ethernet ports: `ethtool DEV`, `ethtool -S DEV`, `ip -s link`, `devlink health`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read import pci
from muster.read.fabric_ports.lines import Line, integer, moment_of
from muster.read.fabric_ports.port import PortId, PortReading
from muster.read.moment import Moment

_SETTINGS = re.compile(r"Settings for ([A-Za-z0-9_.@-]{1,32}):")
_STATISTICS = re.compile(r"NIC statistics:?\s{0,4}$")
_COMMAND = re.compile(r"(?:sudo )?(?:/\S{1,40}/)?ethtool(?: --?[A-Za-z-]{1,20}){0,3} ([A-Za-z0-9_.@-]{1,32})")
_STATISTIC = re.compile(r"\s{0,16}(?:\[\d{1,4}\]: )?([a-z][A-Za-z0-9_. \[\]-]{1,60}?): {1,4}(\d{1,20})\s{0,4}$")
_BARE = re.compile(r"(?:rx|tx)_[a-z0-9_]{2,60}$|[a-z0-9_]{2,60}_phy$")
"""Names that are counters of an adapter even where the head of the list is missing."""
_FIELD = re.compile(r"\s{1,16}([A-Z][A-Za-z0-9 -]{1,60}?):\s{1,8}(.{0,300})$")
_IP_LINK = re.compile(
    r"(?:\d{1,5}: )?([A-Za-z0-9_.-]{1,32})(?:@[A-Za-z0-9_.-]{1,32})?: <([A-Z0-9_,-]{0,200})> (.{0,300})$"
)
_IP_HEAD = re.compile(r"\s{0,8}(RX|TX)(?: errors)?:\s{1,8}([a-z_ ]{3,100})$")
_NUMBERS = re.compile(r"\s{0,24}\d{1,20}(?:\s{1,24}\d{1,20}){0,10}\s{0,8}$")
_SPEED = re.compile(r"(\d{1,8})Mb/s")
_MODE = re.compile(r"(\d{2,7})base[A-Za-z0-9-]{1,12}/Full")
_DEVLINK = re.compile(
    rf"(?:pci/(?P<pci>{pci.PATTERN})(?:/(?P<port>\d{{1,5}}))?|auxiliary/[0-9A-Za-z:._/-]{{1,60}}):\s{{0,4}}$"
)
_REPORTER = re.compile(r"\s{0,8}reporter (\w{1,40})")
_REPORTER_STATE = re.compile(r"\s{0,16}state (\w{1,20})(?: error (\d{1,12}))?(?: recover (\d{1,12}))?")


def parse(lines: Sequence[Line], file: str) -> list[PortReading]:
    """All ports of these tools in one text."""
    reader = _Reader(file)
    for line in lines:
        reader.line(line)
    return [reading for reading in reader.found if reading.facts or reading.counters]


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[PortReading] = []
        self._file = file
        self._interface: str | None = None
        self._tool = ""
        self._port: PortReading | None = None
        self._heads: tuple[str, tuple[str, ...]] | None = None
        self._list = ""
        self._reporter = ""
        self._at: Moment | None = None

    def line(self, line: Line) -> None:
        text = line.text
        if line.command:
            match = _COMMAND.match(line.command)
            self._interface, self._tool, self._port = (match[1] if match else None), "", None
        elif match := _SETTINGS.match(text.strip()):
            self._begin(line, "ethtool", match[1])
        elif _STATISTICS.match(text.strip()):
            self._begin(line, "ethtool -S", self._interface)
        elif match := _IP_LINK.match(text.strip()):
            self._ip(line, match)
        elif match := _DEVLINK.match(text.strip()):
            self._begin(line, "devlink", None, match["pci"], match["port"])
        elif self._tool == "devlink" or _REPORTER.match(text):
            self._devlink(line)
        elif self._tool == "ip" and self._ip_counters(line):
            pass
        elif self._tool == "ethtool":
            self._setting(line)
        elif match := _STATISTIC.match(text):
            self._statistic(line, match)
        elif text.strip() and (at := moment_of(text)) is not None:
            self._at, self._port = at, None

    def _begin(
        self, line: Line, tool: str, interface: str | None, address: str | None = None, port: str | None = None
    ) -> None:
        name = interface or self._interface
        self._tool, self._list, self._heads = tool, "", None
        ident = PortId(
            interface=name,
            host=line.host,
            pci=pci.normalise(address) if address else None,
            port=int(port) if port else None,
        )
        self._port = PortReading(ident, tool, self._file, line.number, at=self._at)
        self._port.put("interface", name)
        self.found.append(self._port)

    def _statistic(self, line: Line, match: re.Match[str]) -> None:
        name = match[1].strip()
        if self._port is None or self._tool != "ethtool -S" or name in self._port.counters:
            if self._tool != "ethtool -S" and not _BARE.match(name):
                return
            self._begin(line, "ethtool -S", self._interface)
        if self._port is not None:
            self._port.count(name, int(match[2]), line.number, line.text)

    def _setting(self, line: Line) -> None:
        match = _FIELD.match(line.text)
        if self._port is None:
            return
        if match is None:
            if self._list and (modes := _MODE.findall(line.text)):
                self._modes(self._list, modes)
            return
        name, value = match[1].strip(), match[2].strip()
        self._list = ""
        self._port.text[line.number] = line.text.strip()[:300]
        match name:
            case "Speed":
                speed = _SPEED.match(value)
                mbps = int(speed[1]) if speed else None
                self._port.put("speed_text", value or None)
                if mbps:
                    self._port.put("rate", mbps // 1000 if mbps % 1000 == 0 else mbps / 1000, "Gb/s")
            case "Lanes":
                self._port.put("lanes", integer(value))
            case "Duplex":
                self._port.put("duplex", value or None)
            case "Auto-negotiation":
                self._port.put("auto_negotiation", value or None)
            case "Link detected":
                self._port.put("link_detected", value.startswith("yes"))
                reason = re.search(r"\((.{1,120})\)", value)
                self._port.put("link_reason", reason[1] if reason else None)
            case "Advertised link modes" | "Link partner advertised link modes":
                self._list = name
                self._modes(name, _MODE.findall(value))
            case "Active FEC encoding" | "Active FEC encodings":
                self._port.put("fec", value or None)
            case _:
                pass

    def _modes(self, name: str, modes: list[str]) -> None:
        if self._port is None or not modes:
            return
        field = "partner_rate" if name.startswith("Link partner") else "advertised_rate"
        best = max(int(mode) for mode in modes) // 1000
        self._port.put(field, max(best, int(self._port.fact(field) or 0)), "Gb/s")

    def _ip(self, line: Line, match: re.Match[str]) -> None:
        self._begin(line, "ip", match[1])
        flags = match[2].split(",")
        if self._port is None:
            return
        self._port.text[line.number] = line.text.strip()[:300]
        words = match[3].split()
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        self._port.put("mtu", integer(pairs.get("mtu", "")))
        self._port.put("admin_up", "UP" in flags)
        state = pairs.get("state")
        self._port.put("operstate", state)
        if "NO-CARRIER" in flags or state in ("DOWN", "LOWERLAYERDOWN"):
            self._port.put("link_detected", False)
        elif state == "UP" or "LOWER_UP" in flags:
            self._port.put("link_detected", True)

    def _ip_counters(self, line: Line) -> bool:
        if match := _IP_HEAD.match(line.text):
            self._heads = (match[1].lower(), tuple(match[2].split()))
            return True
        if self._heads is None or not _NUMBERS.match(line.text) or self._port is None:
            return False
        side, names = self._heads
        for name, value in zip(names, line.text.split(), strict=False):
            counter = "carrier_changes" if name == "transns" else f"{side}_{name}"
            self._port.count(counter, int(value), line.number, line.text)
        self._heads = None
        return True

    def _devlink(self, line: Line) -> None:
        if match := _REPORTER.match(line.text):
            self._reporter = match[1]
        if self._port is None:
            self._begin(line, "devlink", None)
        if (match := _REPORTER_STATE.search(line.text)) and self._reporter and self._port is not None:
            self._port.text[line.number] = f"{self._reporter}: {line.text.strip()[:200]}"
            reporters = dict(self._port.fact("reporters") or {})
            reporters[self._reporter] = {
                "state": match[1],
                "errors": int(match[2] or 0),
                "recovered": int(match[3] or 0),
                "line": line.number,
            }
            self._port.put("reporters", reporters)
