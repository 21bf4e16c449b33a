"""State of InfiniBand ports: `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibportstate`, `ibdev2netdev`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.fabric_ports.lines import Line, decimal, integer, key
from muster.read.fabric_ports.port import PortId, PortReading

_CA = re.compile(r"CA:? '([^']{1,64})'")
_NETDEV = re.compile(
    r"([A-Za-z0-9_.-]{1,64}) {1,16}port {1,8}(\d{1,3}) {1,16}==> {1,16}(\S{1,64})"
    r" {1,16}\((Up|Down)\)"
)
_PORT = re.compile(r"\s{0,16}Port (\d{1,3}):\s{0,8}$")
_IBSTATUS = re.compile(r"[Ii]nfiniband device '([^']{1,64})' port (\d{1,3}) status:")
_HCA = re.compile(r"hca_id:\s{0,16}(\S{1,64})")
_DEVINFO_PORT = re.compile(r"\s{1,16}port:\s{1,16}(\d{1,3})\s{0,8}$")
_FIELD = re.compile(r"\s{0,24}([A-Za-z][A-Za-z0-9 _/.-]{0,60}?):\s{1,24}(\S.{0,300})$")
_RDMA = re.compile(r"\s{0,8}(?:\d{1,4}/\d{1,4}: |link )([A-Za-z0-9_.-]{1,64})/(\d{1,3}):? (.{0,400})$")
_PORT_INFO = re.compile(r"# Port info: (?:Lid (\d{1,6})|DR path \S{0,80}?).{0,40}? port (\d{1,3})")
_DOTTED = re.compile(r"([A-Za-z0-9]{2,60}):\.{2,60}(.{1,200})$")
_RATE = re.compile(r"([\d.]{1,8}) ?Gb(?:/sec|ps|/s)?(?: \((\d{1,2})X ?([A-Z0-9]{0,8})\))?")

_NAMES = {
    "ca_type": "ca_type",
    "number_of_ports": "number_of_ports",
    "firmware_version": "firmware",
    "fw_ver": "firmware",
    "hardware_version": "hardware_version",
    "node_guid": "node_guid",
    "port_guid": "port_guid",
    "state": "state",
    "physical_state": "physical_state",
    "phys_state": "physical_state",
    "rate": "rate",
    "base_lid": "base_lid",
    "port_lid": "base_lid",
    "sm_lid": "sm_lid",
    "link_layer": "link_layer",
    "active_mtu": "active_mtu",
    "max_mtu": "max_mtu",
    "active_width": "width",
    "active_speed": "lane_speed",
    "board_id": "board_id",
}
_STATES = {
    "active": "Active",
    "down": "Down",
    "init": "Initializing",
    "initializing": "Initializing",
    "initialize": "Initializing",
    "armed": "Armed",
    "nop": "Down",
    "active_defer": "Active",
    "activedefer": "Active",
}
_PHYSICAL = {
    "linkup": "LinkUp",
    "polling": "Polling",
    "disabled": "Disabled",
    "sleep": "Sleep",
    "portconfigurationtraining": "Training",
    "configurationtraining": "Training",
    "training": "Training",
    "linkerrorrecovery": "LinkErrorRecovery",
    "phytest": "PhyTest",
    "phy test": "PhyTest",
}


def state_of(text: str) -> str:
    """`4: ACTIVE`, `PORT_ACTIVE (4)`, `Active`, `INIT` in the words of `ibstat`; another word as it is."""
    word = re.sub(r"^\d{1,2}: ?|\(\d{1,2}\)|^PORT_", "", text.strip()).strip()
    return _STATES.get(word.lower(), word[:40])


def physical_of(text: str) -> str:
    """`5: LinkUp`, `LINK_UP (5)`, `LinkUp`, `POLLING` in the words of `ibstat`; another word as it is."""
    word = re.sub(r"^\d{1,2}: ?|\(\d{1,2}\)", "", text.strip()).strip()
    return _PHYSICAL.get(re.sub(r"[^a-z]", "", word.lower()), word[:40])


def parse(lines: Sequence[Line], file: str) -> list[PortReading]:
    """All ports of these tools in one text."""
    reader = _Reader(file)
    for line in lines:
        reader.line(line)
    return reader.found


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[PortReading] = []
        self._file = file
        self._device: dict[str, str] = {}
        self._tool = ""
        self._port: PortReading | None = None

    def line(self, line: Line) -> None:
        text = line.text
        if match := _CA.match(text.strip()):
            self._begin("ibstat", match[1])
        elif match := _IBSTATUS.match(text.strip()):
            self._begin("ibstatus", match[1])
            self._open(line, int(match[2]))
        elif match := _HCA.match(text.strip()):
            self._begin("ibv_devinfo", match[1])
        elif match := _PORT_INFO.match(text.strip()):
            self._begin("ibportstate", None)
            self._open(line, int(match[2]), lid=int(match[1]) if match[1] else None)
        elif ((match := _PORT.match(text)) and self._tool == "ibstat") or (
            (match := _DEVINFO_PORT.match(text)) and self._tool == "ibv_devinfo"
        ):
            self._open(line, int(match[1]))
        elif match := _RDMA.match(text):
            self._rdma(line, match)
        elif match := _NETDEV.match(text.strip()):
            self._netdev(line, match)
        elif line.command:
            self._port, self._tool = None, ""
        elif self._tool == "ibportstate" and (match := _DOTTED.match(text.strip())):
            self._portstate(match[1], match[2].strip())
        elif self._tool and (match := _FIELD.match(text)):
            self._field(line, key(match[1]), match[2].strip())

    def _begin(self, tool: str, device: str | None) -> None:
        self._tool, self._port = tool, None
        self._device = {"device": device} if device else {}

    def _open(self, line: Line, port: int, lid: int | None = None) -> None:
        ident = PortId(device=self._device.get("device"), port=port, host=line.host, lid=lid)
        self._port = PortReading(ident, self._tool, self._file, line.number)
        for name, value in self._device.items():
            self._port.put("ca" if name == "device" else name, value)
        self._port.put("port", port)
        self._port.put("lid", lid)
        self._port.text[line.number] = line.text.strip()[:300]
        self.found.append(self._port)

    def _field(self, line: Line, name: str, value: str) -> None:
        wanted = _NAMES.get(name)
        if wanted is None:
            return
        if self._port is None:
            if wanted not in ("state", "physical_state", "rate", "width", "lane_speed"):
                self._device[wanted] = value[:80]
            return
        self._port.text[line.number] = line.text.strip()[:300]
        put_field(self._port, wanted, value)

    def _portstate(self, name: str, value: str) -> None:
        if self._port is None:
            return
        match name:
            case "LinkState":
                put_field(self._port, "state", value)
            case "PhysLinkState":
                put_field(self._port, "physical_state", value)
            case "LinkWidthActive":
                put_field(self._port, "width", value)
            case "LinkSpeedActive" | "LinkSpeedExtActive":
                if decimal(value):
                    self._port.put("lane_speed", decimal(value), "Gb/s")
            case _:
                pass

    def _netdev(self, line: Line, match: re.Match[str]) -> None:
        """`ibdev2netdev`: which interface belongs to a port. Up and Down are those of the interface."""
        reading = PortReading(
            PortId(device=match[1], port=int(match[2]), host=line.host), "ibdev2netdev", self._file, line.number
        )
        reading.put("interface", match[3])
        reading.put("netdev_state", match[4])
        reading.text[line.number] = line.text.strip()[:300]
        self._port, self._tool = None, ""
        self.found.append(reading)

    def _rdma(self, line: Line, match: re.Match[str]) -> None:
        if " state " not in f" {match[3]} ":
            return
        words = match[3].split()
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        ident = PortId(device=match[1], port=int(match[2]), host=line.host)
        reading = PortReading(ident, "rdma link", self._file, line.number)
        reading.put("ca", match[1])
        reading.put("port", int(match[2]))
        for name, value in (("state", "state"), ("physical_state", "physical_state")):
            if name in pairs:
                put_field(reading, value, pairs[name])
        for name in ("lid", "sm_lid"):
            if name in pairs and (number := integer(pairs[name])) is not None:
                reading.put("base_lid" if name == "lid" else name, number)
        reading.put("interface", pairs.get("netdev"))
        reading.put("link_layer", "InfiniBand" if "sm_lid" in pairs else None)
        reading.text[line.number] = line.text.strip()[:300]
        self._port, self._tool = None, ""
        self.found.append(reading)


def put_field(port: PortReading, name: str, value: str) -> None:
    """One field of a port in the words and units of the report."""
    match name:
        case "state":
            port.put("state", state_of(value))
        case "physical_state":
            port.put("physical_state", physical_of(value))
        case "base_lid" | "sm_lid" | "number_of_ports":
            port.put(name, integer(value))
        case "rate":
            put_rate(port, value)
        case "width":
            width = re.search(r"(\d{1,2})X", value)
            port.put("width", int(width[1]) if width else None)
        case "lane_speed":
            number = decimal(value)
            port.put("lane_speed", number, "Gb/s")
        case _:
            port.put(name, value[:120])


def put_rate(port: PortReading, value: str) -> None:
    """`400`, `400 Gb/sec (4X NDR)`."""
    number = decimal(value)
    if number is None:
        return
    port.put("rate", int(number) if number == int(number) else number, "Gb/s")
    if match := _RATE.match(value.strip()):
        if match[2]:
            port.put("width", int(match[2]))
        if match[3]:
            port.put("speed", match[3])
