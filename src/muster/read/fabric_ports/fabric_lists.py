"""Lists over many ports: `iblinkinfo`, CSV tables, lists of unhealthy ports, summaries of `ibdiagnet`."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.read.fabric_ports.counters import bits_of, canonical
from muster.read.fabric_ports.ib_counters import NOT_SUPPORTED
from muster.read.fabric_ports.ib_state import physical_of, state_of
from muster.read.fabric_ports.lines import Line, decimal, integer, key, moment_of
from muster.read.fabric_ports.port import PortId, PortReading
from muster.read.moment import Moment, unix

_HEADER = re.compile(r"(Switch|CA|RT)[: ] {0,4}(?:(0x[0-9a-fA-F]{4,16}) )?(.{1,100}?):?\s{0,8}$")
_LINK = re.compile(
    r"(?:(?P<guid>0x[0-9a-fA-F]{4,16}) {1,8}(?:\"(?P<desc>[^\"]{0,100})\" {1,8})?)?(?P<lid>\d{1,6})"
    r" {1,8}(?P<port>\d{1,3})\[ {0,4}\d{0,3}\]"
    r" ==\((?P<what>[^)]{1,80})\)==> {0,12}(?P<peer>.{0,300})$"
)
_WIDTH = re.compile(r"(\d{1,2})X {1,12}([\d.]{1,9}) Gbps")
_COULD = re.compile(r"Could be ([^)(]{1,40})\)")
_PEER = re.compile(r"(?:0x[0-9a-fA-F]{4,16} {1,8})?(\d{1,6}) {1,8}(\d{1,3})\[ {0,4}\d{0,3}\] \"([^\"]{0,100})\"")
_UNHEALTHY = re.compile(
    r"(0x[0-9a-fA-F]{4,16}), {0,4}(\d{1,3}), {0,4}\"([^\"]{0,100})\", {0,4}(0x[0-9a-fA-F]{4,16}),"
    r" {0,4}(\d{1,3}), {0,4}"
    r"\"([^\"]{0,100})\", {0,4}\{([A-Za-z_, ]{1,200})\}(?:, {0,4}(.{1,60}))?$"
)
_STAGE = re.compile(
    r"-[IWE]- ([A-Za-z][A-Za-z0-9 /&()_-]{1,50}?) {2,40}(\d{1,8}) {1,20}(\d{1,8})(?: {1,8}.{0,100})?$"
)
_STAGE_HEAD = re.compile(r"-I- Stage {1,40}Warnings {1,12}Errors")
_TOOL_ERROR = re.compile(r"-([EW])- (.{1,400})$")
_GUID_COLUMNS = ("nodeguid", "node_guid", "portguid", "port_guid")
_PORT_COLUMNS = ("portnumber", "port_number", "portnum", "port_num", "port")
_TIME_COLUMNS = ("timestamp", "time", "date", "sample_time")


@dataclass
class FabricLists:
    """What the lists of one text say."""

    ports: list[PortReading] = field(default_factory=list)
    unhealthy: list[UnhealthyPort] = field(default_factory=list)
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Warnings and errors of each stage of `ibdiagnet`."""
    messages: list[tuple[int, str, str]] = field(default_factory=list)
    """(line, `E` or `W`, text) of `ibdiagnet`."""


@dataclass(frozen=True)
class UnhealthyPort:
    """A port that the subnet manager itself calls unhealthy."""

    id: PortId
    node: str
    peer: PortId
    peer_node: str
    conditions: tuple[str, ...]
    at: Moment | None
    line: int
    text: str


def parse(lines: Sequence[Line], file: str) -> FabricLists:
    """All lists of these tools in one text."""
    found = FabricLists()
    owner: tuple[str, str | None, str] | None = None
    table: _Table | None = None
    for line in lines:
        text = line.text.strip()
        if "==(" in text and (match := _LINK.match(text)):
            found.ports.append(_linked(line, match, owner, file))
        elif (match := _UNHEALTHY.match(text)) is not None:
            found.unhealthy.append(_unhealthy(line, match))
        elif text.startswith("-") and (match := _STAGE.match(text)) is not None and not _STAGE_HEAD.match(text):
            found.stages.setdefault(match[1].strip(), (int(match[2]), int(match[3])))
        elif text.startswith(("-E-", "-W-")) and (match := _TOOL_ERROR.match(text)):
            if len(found.messages) < 1000:
                found.messages.append((line.number, match[1], match[2]))
        elif (head := _Table.of(text)) is not None:
            table = head
        elif table is not None and (reading := table.row(line, file)) is not None:
            found.ports.append(reading)
        elif match := _HEADER.match(text):
            owner = (match[1], match[2], match[3].strip())
        elif text.startswith(("END_", "START_")):
            table = None
    return found


def _linked(line: Line, match: re.Match[str], owner: tuple[str, str | None, str] | None, file: str) -> PortReading:
    kind, guid, name = owner or ("", None, "")
    guid = match["guid"] or guid
    description = match["desc"] or name
    device = description.split()[-1] if kind == "CA" and " " in description else None
    host = description.split()[0] if device is not None else line.host
    ident = PortId(device, int(match["port"]), None if device else guid, None, host, int(match["lid"]))
    reading = PortReading(ident, "iblinkinfo", file, line.number)
    reading.text[line.number] = line.text.strip()[:300]
    for label, value in (("port", int(match["port"])), ("lid", int(match["lid"])), ("node", description or None)):
        reading.put(label, value)
    what = match["what"].strip()
    state, _, physical = (_WIDTH.sub("", what).strip() or what).partition("/")
    reading.put("state", state_of(state))
    reading.put("physical_state", physical_of(physical) if physical.strip() else None)
    if width := _WIDTH.search(what):
        rate = round(int(width[1]) * float(width[2]), 2)
        reading.put("width", int(width[1]))
        reading.put("rate", _nominal(rate), "Gb/s")
    if peer := _PEER.match(match["peer"].strip()):
        reading.put("peer", peer[3], port=int(peer[2]), lid=int(peer[1]))
    elif kind != "CA":
        reading.put("spare", True)  # nothing is known to be plugged in
    if could := _COULD.search(match["peer"]):
        reading.put("could_be", could[1].strip())
    return reading


_NOMINAL = (2.5, 5, 10, 14, 20, 25, 40, 50, 56, 100, 200, 400, 800, 1600)


def _nominal(rate: float) -> float:
    """212.5 (the signalling rate) is a 200 Gb/s link; a sum that is no known rate stays as it is."""
    near = [known for known in _NOMINAL if 0.99 * known <= rate <= 1.07 * known]
    return near[-1] if near else rate


def _unhealthy(line: Line, match: re.Match[str]) -> UnhealthyPort:
    return UnhealthyPort(
        PortId(guid=match[1].lower(), port=int(match[2])),
        match[3],
        PortId(guid=match[4].lower(), port=int(match[5])),
        match[6],
        tuple(sorted(word.strip().upper() for word in match[7].split(",") if word.strip())),
        moment_of(match[8]) if match[8] else None,
        line.number,
        line.text.strip()[:300],
    )


@dataclass(frozen=True)
class _Table:
    """A table with a header that names a GUID and a port."""

    columns: tuple[str, ...]
    separator: str

    @classmethod
    def of(cls, text: str) -> _Table | None:
        separator = max(",;\t", key=text.count)
        if text.count(separator) < 3:
            return None
        names = tuple(cell.strip().strip('"').lstrip("#").strip() for cell in text.split(separator))
        folded = [name.lower() for name in names]
        named = any(name in _GUID_COLUMNS for name in folded) and any(name in _PORT_COLUMNS for name in folded)
        return cls(names, separator) if named and len(set(folded)) == len(folded) else None

    def row(self, line: Line, file: str) -> PortReading | None:
        try:
            cells = next(csv.reader([line.text.strip()], delimiter=self.separator, skipinitialspace=True), [])
        except csv.Error:
            return None
        if len(cells) < 3 or len(cells) > len(self.columns):
            return None
        row = {name: cell.strip() for name, cell in zip(self.columns, cells, strict=False)}
        folded = {name.lower(): cell for name, cell in row.items()}
        guid = next((folded[name] for name in _GUID_COLUMNS if folded.get(name)), None)
        port = integer(next((folded[name] for name in _PORT_COLUMNS if folded.get(name)), ""))
        if guid is None or port is None:
            return None
        guid = guid.lower() if guid.lower().startswith("0x") else f"0x{guid.lower()}"
        reading = PortReading(PortId(guid=guid, port=port), "port table", file, line.number, at=_time(folded))
        reading.text[line.number] = line.text.strip()[:300]
        reading.put("guid", guid)
        reading.put("port", port)
        self._fill(reading, row, line)
        return reading

    def _fill(self, reading: PortReading, row: Mapping[str, str], line: Line) -> None:
        for name, cell in row.items():
            counter = canonical(name)
            value = integer(cell)
            folded = name.lower()
            if counter is not None and value is not None and value < NOT_SUPPORTED:
                extended = "ext" in folded or value >= 1 << 32
                reading.count(counter, value, line.number, line.text, bits_of(counter, extended), counter)
            elif folded.endswith("_ber") and (number := decimal(cell)) is not None:
                reading.put(key(name), number)
            elif folded in ("node_description", "nodedesc", "node_desc"):
                reading.put("node", cell.strip('"') or None)
            elif folded in ("logical_state", "portstate") and cell and not cell.isdigit():
                reading.put("state", state_of(cell))
            elif folded in ("phy_state", "portphystate") and cell and not cell.isdigit():
                reading.put("physical_state", physical_of(cell))


def _time(row: Mapping[str, str]) -> Moment | None:
    for name in _TIME_COLUMNS:
        cell = row.get(name, "")
        number = decimal(cell) if cell.replace(".", "").isdigit() else None
        if number is not None and number > 1e9:
            while number > 1e11:  # milli-, micro- or nanoseconds
                number /= 1000
            return unix(number)
        if (at := moment_of(cell)) is not None:
            return at
    return None
