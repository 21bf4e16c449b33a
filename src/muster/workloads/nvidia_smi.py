"""The GPUs of a node as `nvidia-smi` tells of them. The parsers are pure."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

from muster.workloads.host_readings import Unreadable, number_in, output

FIELDS = (
    "index,name,driver_version,pci.bus_id,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,ecc.mode.current,ecc.errors.uncorrected.volatile.total,temperature.gpu"
)
REMAP_FIELDS = (
    "gpu_bus_id,remapped_rows.correctable,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
)
GPU_LIMIT = 64
_NVLINK_GPU = re.compile(r"GPU (\d{1,3}):")
_NVLINK = re.compile(r"\s+Link (\d{1,2}): (.{1,60})")


@dataclass(frozen=True)
class Gpu:
    """None: the driver does not say."""

    index: int
    name: str
    driver: str
    bus_id: str
    width: int | None
    most_width: int | None
    ecc: bool | None
    uncorrected: int | None
    temperature_c: float | None


@dataclass(frozen=True)
class Remap:
    """Row remapping of one GPU."""

    bus_id: str
    uncorrectable: int | None
    pending: bool | None
    failure: bool | None


@dataclass(frozen=True)
class Gpus:
    gpus: tuple[Gpu, ...] = ()
    remaps: tuple[Remap, ...] = ()
    inactive_links: tuple[tuple[int, int], ...] = ()
    """GPU and number of each NVLink that is not active, when others of the node are."""
    active_links: int = 0


def read_gpus(unreadable: Unreadable) -> Gpus | None:
    """None where there is no `nvidia-smi`."""
    if shutil.which("nvidia-smi") is None:
        return None
    listed = output(["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"])
    remapped = output(["nvidia-smi", f"--query-remapped-rows={REMAP_FIELDS}", "--format=csv,noheader,nounits"])
    linked = output(["nvidia-smi", "nvlink", "--status"])
    for name, text in (("GPUs", listed), ("row remapping", remapped), ("NVLink", linked)):
        if text is None:
            unreadable.names.append(name)
    active, inactive = parse_nvlink(linked or "")
    return Gpus(parse_gpus(listed or ""), parse_remaps(remapped or ""), inactive, active)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Lines that are no GPU (warnings, errors about a lost one) are passed over: they lower the count."""
    found = []
    for line in text.splitlines()[: GPU_LIMIT * 2]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 11 or not cells[0].isdecimal():
            continue
        found.append(
            Gpu(
                index=int(cells[0]),
                name=cells[1][:60],
                driver=cells[2][:40],
                bus_id=cells[3][:20],
                width=_whole(cells[6]),
                most_width=_whole(cells[7]),
                ecc={"enabled": True, "disabled": False}.get(cells[8].lower()),
                uncorrected=_whole(cells[9]),
                temperature_c=number_in(cells[10]),
            )
        )
    return tuple(found[:GPU_LIMIT])


def parse_remaps(text: str) -> tuple[Remap, ...]:
    found = []
    for line in text.splitlines()[:GPU_LIMIT]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and ":" in cells[0]:
            found.append(Remap(cells[0][:20], _whole(cells[2]), _yes(cells[3]), _yes(cells[4])))
    return tuple(found)


def parse_nvlink(text: str) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Number of active links, and those that are not, as (GPU, link). A node without NVLink has neither."""
    active, inactive, gpu = 0, [], -1
    for line in text.splitlines()[: GPU_LIMIT * 40]:
        if head := _NVLINK_GPU.match(line):
            gpu = int(head.group(1))
        elif gpu >= 0 and (link := _NVLINK.match(line)):
            if "inactive" in link.group(2).lower():
                inactive.append((gpu, int(link.group(1))))
            else:
                active += 1
    return active, tuple(inactive) if active else ()


def _whole(cell: str) -> int | None:
    number = number_in(cell)
    return None if number is None else int(number)


def _yes(cell: str) -> bool | None:
    """`Yes` and `No` of some drivers, 1 and 0 of others."""
    return {"yes": True, "1": True, "no": False, "0": False}.get(cell.lower())
