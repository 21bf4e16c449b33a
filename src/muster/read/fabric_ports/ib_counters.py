"""Counters of InfiniBand ports: `perfquery`, `ibqueryerrors`, blocks of fabric tools, `rdma statistic`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.fabric_ports.counters import bits_of, canonical
from muster.read.fabric_ports.lines import Line, integer, key, moment_of
from muster.read.fabric_ports.port import PortId, PortReading
from muster.read.moment import Moment

_PERFQUERY = re.compile(
    r"# Port (extended )?counters: (?:Lid (\d{1,6})|DR path \S{0,80}) ?port (\d{1,3}|255)", re.IGNORECASE
)
_DOTTED = re.compile(r"([A-Za-z][A-Za-z0-9]{2,60}):\.{1,60}(0x[0-9a-fA-F]{1,20}|\d{1,20})\s{0,8}$")
_ERRORS_FOR = re.compile(r"Errors for (?:(0x[0-9a-fA-F]{4,16}) )?\"([^\"]{1,100})\"")
_ERRORS_LINE = re.compile(r"GUID (0x[0-9a-fA-F]{4,16}) port (\d{1,3}|ALL): ?(\[.{0,1500})")
_PAIR = re.compile(r"\[(\w{2,60}) == (\d{1,20})")
_BLOCK = re.compile(
    r"Port=(\d{1,3}) Lid=(0x[0-9a-fA-F]{1,6}|\d{1,6}) GUID=(0x[0-9a-fA-F]{1,16})(?: Device="
    r"(\d{1,6}))?(?: Port Name=(\S{1,120}))?"
)
_BLOCK_LINE = re.compile(r"([a-z][a-z0-9_]{2,80})=(0x[0-9a-fA-F]{1,20}|\d{1,20}|N/?A)\s{0,8}$")
_STATISTIC = re.compile(r"link ([A-Za-z0-9_.-]{1,64})/(\d{1,3}) ((?:[a-z][a-z0-9_]{2,60} \d{1,20} ?){1,80})")
_NODE_DEVICE = re.compile(r"(\S{1,64}) ((?:mlx|bnxt_re|irdma|hfi1_|qib|mthca)[A-Za-z0-9_]{0,24}|HCA-\d{1,2})$")
NOT_SUPPORTED = (1 << 64) - 2
"""From here on a 64-bit field says that the device has no such counter."""


def parse(lines: Sequence[Line], file: str) -> list[PortReading]:
    """All counters of these tools in one text."""
    reader = _Reader(file)
    for line in lines:
        reader.line(line)
    return reader.found


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[PortReading] = []
        self._file = file
        self._port: PortReading | None = None
        self._extended = False
        self._node: tuple[str | None, str] | None = None
        self._at: Moment | None = None

    def line(self, line: Line) -> None:
        text = line.text.strip()
        if match := _PERFQUERY.match(text):
            self._extended = match[1] is not None
            self._perfquery(line, match)
        elif match := _BLOCK.match(text):
            self._block(line, match)
        elif match := _ERRORS_FOR.match(text):
            self._node, self._port = (match[1], match[2]), None
        elif match := _ERRORS_LINE.match(text):
            self._errors(line, match)
        elif match := _STATISTIC.match(text):
            self._statistic(line, match)
        elif (self._port is not None and (match := _DOTTED.match(text))) or (
            self._port is not None and self._port.tool == "port counters" and (match := _BLOCK_LINE.match(text))
        ):
            self._count(line, match[1], match[2])
        elif text and not text.startswith("--") and (at := moment_of(text)) is not None:
            self._at, self._port = at, None

    def _open(self, line: Line, ident: PortId, tool: str) -> PortReading:
        reading = PortReading(ident, tool, self._file, line.number, at=self._at)
        reading.text[line.number] = line.text.strip()[:300]
        self.found.append(reading)
        return reading

    def _perfquery(self, line: Line, match: re.Match[str]) -> None:
        lid = int(match[2]) if match[2] else None
        before = self._port
        ident = PortId(port=int(match[3]), lid=lid, host=line.host)
        if before is not None and before.tool == "perfquery" and before.id == ident and self._extended:
            return
        self._port = self._open(line, ident, "perfquery")
        self._port.put("lid", lid)
        self._port.put("port", int(match[3]))

    def _block(self, line: Line, match: re.Match[str]) -> None:
        lid, guid = integer(match[2]), match[3].lower()
        self._extended = True
        self._port = self._open(line, PortId(port=int(match[1]), guid=guid, host=line.host, lid=lid), "port counters")
        self._port.put("port", int(match[1]))
        self._port.put("lid", lid)
        self._port.put("guid", guid)
        self._port.put("device_id", int(match[4]) if match[4] else None)
        self._port.put("port_name", match[5])

    def _errors(self, line: Line, match: re.Match[str]) -> None:
        if match[2] == "ALL":  # the sum of the lines that follow
            return
        guid, description = match[1].lower(), self._node[1] if self._node else ""
        parts = _NODE_DEVICE.match(description)
        ident = PortId(
            device=parts[2] if parts else None,
            port=int(match[2]),
            guid=guid,
            host=parts[1] if parts else line.host,
        )
        self._port = self._open(line, ident, "ibqueryerrors")
        self._extended = False
        self._port.put("guid", guid)
        self._port.put("port", int(match[2]))
        self._port.put("node", description or None)
        for name, value in _PAIR.findall(match[3]):
            self._count(line, name, value)

    def _statistic(self, line: Line, match: re.Match[str]) -> None:
        reading = self._open(line, PortId(device=match[1], port=int(match[2]), host=line.host), "rdma statistic")
        reading.put("device", match[1], port=int(match[2]))
        words = match[3].split()
        for name, value in zip(words[::2], words[1::2], strict=False):
            reading.count(name, int(value), line.number, f"{name} {value}")
        self._port = None

    def _count(self, line: Line, printed: str, text: str) -> None:
        value = integer(text)
        name = canonical(printed)
        if self._port is None or value is None or (value >= NOT_SUPPORTED and self._extended):
            return
        if name is None and "=" not in line.text:
            return  # a selector or a field that is no counter
        name = name or key(printed)
        wide = self._extended or printed.endswith("_extended") or value >= 1 << 32
        shown = printed if printed == key(printed) else name
        self._port.count(name, value, line.number, line.text, bits_of(name, wide), shown)
