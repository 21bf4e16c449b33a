"""State of the NVLinks: `dcgmi nvlink -s` and `nvidia-smi nvlink --status`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from muster.read.bandwidth.launcher import strip
from muster.read.diagnostics.detect import ALL_INACTIVE, NO_NVLINK

_MAX_DEVICES = 1024
_DCGM_GPU = re.compile(r"\s{0,16}gpuId\s{1,8}(\d{1,4}):\s{0,16}(.{0,400})")
_DCGM_SWITCH = re.compile(r"\s{0,16}physicalId\s{1,8}(\d{1,6}):\s{0,16}(.{0,2000})")
_STATES = re.compile(r"\s{0,16}[UDX_](?:\s{1,4}[UDX_]){0,255}\s*$")
_SMI_GPU = re.compile(r"\s{0,8}GPU (\d{1,4}): ?(.{0,200}?)(?:\(UUID: (GPU-[0-9A-Za-z-]{1,80})\))?(.{0,200})$")
_SMI_LINK = re.compile(r"\s{0,16}Link\s{1,4}(\d{1,3}):\s{1,4}(.{1,100})")
_SPEED = re.compile(r"\d{1,6}(?:\.\d{1,6})? (?:GB/s|GB/sec)")


class LinkState(StrEnum):
    UP = "up"
    DOWN = "down"
    DISABLED = "disabled"
    NOT_SUPPORTED = "not_supported"
    UNKNOWN = "unknown"


_LETTERS = {
    "U": LinkState.UP,
    "D": LinkState.DOWN,
    "X": LinkState.DISABLED,
    "_": LinkState.NOT_SUPPORTED,
}


@dataclass
class GpuLinks:
    """Links of one GPU by number. `all_down`: the tool says so and lists none."""

    links: dict[int, LinkState] = field(default_factory=dict)
    uuid: str | None = None
    all_down: bool = False
    unsupported: bool = False

    def count(self, state: LinkState) -> int:
        return sum(1 for found in self.links.values() if found is state)


@dataclass(frozen=True)
class NvlinkStatus:
    """`switches`: None where the tool does not look at them. `complete`: the end of the list is there."""

    gpus: Mapping[int, GpuLinks]
    switches: Mapping[int, tuple[LinkState, ...]] | None
    complete: bool

    def total(self, state: LinkState) -> int:
        return sum(gpu.count(state) for gpu in self.gpus.values())


def parse_status(text: str) -> NvlinkStatus:
    """Read either list."""
    lines = [strip(line).text for line in text.split("\n", 200_000)]
    if any(_SMI_LINK.match(line) or _SMI_GPU.match(line) for line in lines):
        return _from_smi(lines)
    return _from_dcgm(lines)


def _from_dcgm(lines: list[str]) -> NvlinkStatus:
    gpus: dict[int, GpuLinks] = {}
    switches: dict[int, tuple[LinkState, ...]] = {}
    waiting: tuple[str, int] | None = None
    in_switches = complete = False
    for line in lines:
        complete = complete or line.strip().startswith("Key:")
        in_switches = in_switches or "witches:" in line
        for kind, pattern in (("gpu", _DCGM_GPU), ("switch", _DCGM_SWITCH)):
            if (match := pattern.match(line)) and len(gpus) < _MAX_DEVICES and len(switches) < _MAX_DEVICES:
                waiting, line = (kind, int(match[1])), match[2]
                if kind == "gpu":
                    gpus.setdefault(int(match[1]), GpuLinks())
        if waiting is not None and _STATES.match(line):
            states = tuple(_LETTERS[letter] for letter in line.split())
            if waiting[0] == "gpu":
                gpus[waiting[1]].links = dict(enumerate(states))
            else:
                switches[waiting[1]] = states
            waiting = None
    return NvlinkStatus(gpus, switches if in_switches else None, complete and waiting is None)


def _from_smi(lines: list[str]) -> NvlinkStatus:
    gpus: dict[int, GpuLinks] = {}
    current: GpuLinks | None = None
    for line in lines:
        lowered = line.lower()
        if (match := _SMI_GPU.match(line)) and len(gpus) < _MAX_DEVICES:
            current = gpus.setdefault(int(match[1]), GpuLinks())
            current.uuid = match[3] or current.uuid
        elif current is not None and (match := _SMI_LINK.match(line)) and "," not in line:
            current.links[int(match[1])] = _smi_state(match[2].strip())
        if current is not None and ALL_INACTIVE in lowered:
            current.all_down = True
        if current is not None and NO_NVLINK in lowered:
            current.unsupported = True
    silent = any(not (gpu.links or gpu.all_down or gpu.unsupported) for gpu in gpus.values())
    return NvlinkStatus(gpus, None, bool(gpus) and not silent)


def _smi_state(text: str) -> LinkState:
    """A link with a speed is up. A word that nobody has seen yet is no sign of a working link."""
    lowered = text.lower()
    if _SPEED.match(text):
        return LinkState.UP if float(text.split()[0]) > 0 else LinkState.DOWN
    if "inactive" in lowered or lowered in ("down", "off"):
        return LinkState.DOWN
    if "disabled" in lowered:
        return LinkState.DISABLED
    if "not supported" in lowered or "n/a" in lowered:
        return LinkState.NOT_SUPPORTED
    return LinkState.UNKNOWN
