"""Settings for RDMA over Ethernet: `mlnx_qos`, `cma_roce_tos`, `cma_roce_mode`, `show_gids`, `ibv_devinfo -v`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.read.fabric_ports.lines import Line

_TRUST = re.compile(r"(?:Priority trust state|trust state): ?(pcp|dscp|both)", re.IGNORECASE)
_DSCP = re.compile(r"\s{0,16}prio:(\d) dscp:([0-9, ]{1,300})")
_ENABLED = re.compile(r"\s{1,16}enabled((?:\s{1,8}[01]){8})")
_TOS = re.compile(r"\s{0,8}(?:(?:cma_roce_tos|tos|default_roce_tos|tclass)[: =]{1,4})?(\d{1,3})\s{0,8}$")
_MODE = re.compile(r"\s{0,8}(?:mode: ?)?(?:IB/)?RoCE ?[vV]([12])\s{0,8}$")
_GID = re.compile(
    r"\s{0,40}([A-Za-z0-9_.-]{1,32})\s{1,16}(\d{1,3})\s{1,16}(\d{1,4})\s{1,16}([0-9a-f]{4}(?::[0-9a-f]{4}){7})"
    r"(?:\s{1,40}(\d{1,3}(?:\.\d{1,3}){3}))?\s{1,60}v?([12])\.?0?\s{0,40}(\S{1,40})?\s{0,8}$"
)
_DEVINFO_HCA = re.compile(r"hca_id:\s{0,16}(\S{1,64})")
_DEVINFO_GID = re.compile(r"\s{1,24}GID\[\s{0,6}(\d{1,4})\]:\s{1,16}([0-9a-fA-F:.]{3,60})(?:, (?:RoCE v([12])|IB))?")


@dataclass(frozen=True)
class Gid:
    """One entry of a GID table. `version`: 1 or 2 of RoCE, None for InfiniBand."""

    device: str
    port: int
    index: int
    address: str
    version: int | None
    interface: str | None

    @property
    def link_local(self) -> bool:
        return self.address.startswith("fe80:")

    @property
    def routable(self) -> bool:
        return self.version == 2 and not self.link_local


@dataclass
class RoceSettings:
    """What the texts say about traffic classes; None or empty where they do not."""

    trust: str | None = None
    dscp_to_priority: dict[int, int] = field(default_factory=dict)
    pfc_priorities: tuple[int, ...] | None = None
    tos: int | None = None
    mode: int | None = None
    gids: list[Gid] = field(default_factory=list)
    line: int = 0
    file: str = ""

    @property
    def told(self) -> bool:
        return bool(self.trust or self.gids) or self.pfc_priorities is not None or self.tos is not None

    def priority_of_tos(self) -> int | None:
        """The priority that traffic with the type of service gets, when the port trusts DSCP."""
        if self.tos is None or self.trust not in ("dscp", "both"):
            return None
        code = self.tos >> 2
        return self.dscp_to_priority.get(code, code >> 3 if not self.dscp_to_priority else 0)


def parse(lines: Sequence[Line], file: str, found: RoceSettings) -> None:
    """Add what one text says to `found`."""
    command = device = ""
    for line in lines:
        if line.command:
            command = line.command
        elif match := _TRUST.search(line.text):
            found.trust, found.line, found.file = match[1].lower(), line.number, file
        elif match := _DSCP.match(line.text):
            codes = [code.strip() for code in match[2].split(",")]
            found.dscp_to_priority |= {
                int(code): int(match[1]) for code in codes if code.isdigit() and int(code) < 64
            }
        elif match := _ENABLED.match(line.text):
            found.pfc_priorities = tuple(n for n, word in enumerate(match[1].split()) if word == "1")
            found.line, found.file = line.number, file
        elif match := _GID.match(line.text):
            found.gids.append(Gid(match[1], int(match[2]), int(match[3]), match[4].lower(), int(match[6]), match[7]))
        elif match := _DEVINFO_HCA.match(line.text.strip()):
            device = match[1]
        elif device and (match := _DEVINFO_GID.match(line.text)):
            address = _spelled_out(match[2])
            if address is not None:
                found.gids.append(Gid(device, 1, int(match[1]), address, int(match[3]) if match[3] else None, None))
        elif match := _MODE.match(line.text):
            found.mode = int(match[1])
        elif (match := _TOS.match(line.text)) and ("tos" in command or "tos" in line.text or "tclass" in line.text):
            found.tos = int(match[1]) if int(match[1]) < 256 else None


def _spelled_out(text: str) -> str | None:
    try:
        return ipaddress.IPv6Address(text).exploded
    except ValueError:
        return None
