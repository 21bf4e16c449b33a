"""Bandwidth tables of the RDMA tests (`ib_write_bw` and its kin), and firmware lists (`mlxfwmanager`, `flint`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from muster.read.fabric_ports.lines import Line

_TITLE = re.compile(r"\s{1,60}(?:RDMA_)?(Write|Read|Send|Atomic)[A-Za-z_]{0,20} ((?:Bidirectional )?)BW Test")
_HEADER = re.compile(r"\s{0,8}#bytes\s{1,20}#iterations\s{1,20}BW peak\[([A-Za-z/]{3,10})\]\s{1,20}BW average\[")
_ROW = re.compile(r"\s{0,8}(\d{1,14})\s{1,30}(\d{1,14})\s{1,30}([\d.]{1,14})\s{1,30}([\d.]{1,14})\s{1,30}[\d.]{1,14}")
_GBPS = {
    "Gb/sec": 1.0,
    "Gbit/s": 1.0,
    "Gb/s": 1.0,
    "MiB/sec": 8 * 2**20 / 1e9,
    "MB/sec": 8 * 2**20 / 1e9,
    "GB/sec": 8.0,
}
"""In Gb/s. `MB/sec` of these tools counts in 2**20 bytes, as `MiB/sec` of newer ones does."""
_FW = re.compile(r"\s{0,24}FW {1,40}(\d[\d.]{3,20})(?: {1,40}(\S{1,24}))?\s{0,8}$")
_FW_RUNNING = re.compile(r"\s{0,24}FW ?\(Running\)\s{1,40}(\d[\d.]{3,20})")
_FLINT = re.compile(r"\s{0,24}FW Version(\(Running\))?: {1,40}(\d[\d.]{3,20})")


@dataclass(frozen=True)
class LinkTest:
    """One row of a test. `test`: write, read, send; None where the title is not there."""

    test: str | None
    message_bytes: int
    average: float
    unit: str
    line: int
    bidirectional: bool = False

    @property
    def gbps(self) -> float | None:
        factor = _GBPS.get(self.unit)
        return round(self.average * factor, 2) if factor is not None else None


@dataclass(frozen=True)
class Firmware:
    """What is stored in the adapter and what runs. `running` None: the tool names one version only."""

    flashed: str
    running: str | None
    available: str | None
    line: int


def parse_tests(lines: Sequence[Line]) -> list[LinkTest]:
    """All rows. Notes of the tool may stand between the header and its rows."""
    found: list[LinkTest] = []
    test: str | None = None
    both = False
    unit = ""
    for line in lines:
        if match := _TITLE.match(line.text):
            test, both = match[1].lower(), bool(match[2])
        elif match := _HEADER.match(line.text):
            unit = match[1]
        elif unit and (match := _ROW.match(line.text)):
            try:
                found.append(LinkTest(test, int(match[1]), float(match[4]), unit, line.number, both))
            except ValueError:
                continue
    return found[:10_000]


def parse_firmware(lines: Sequence[Line]) -> list[Firmware]:
    """All adapters of the list."""
    found: list[Firmware] = []
    for line in lines:
        if match := _FW.match(line.text):
            found.append(Firmware(match[1], None, match[2], line.number))
        elif (match := _FW_RUNNING.match(line.text)) and found:
            found[-1] = Firmware(found[-1].flashed, match[1], found[-1].available, found[-1].line)
        elif match := _FLINT.match(line.text):
            if match[1] and found:
                found[-1] = Firmware(found[-1].flashed, match[2], found[-1].available, found[-1].line)
            elif not match[1]:
                found.append(Firmware(match[2], None, None, line.number))
    return found[:4096]
