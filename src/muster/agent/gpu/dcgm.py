"""The page of dcgm-exporter as a sample. Pure; the text is not trusted.

A GPU that is lost is no longer on the page at all, so it shows as missing. Metrics of MIG devices say nothing about
the GPU as a whole and are left out, but for the labels that name the GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.agent.gpu.sample import GpuSample, LinkSample, Sample
from muster.read.pci import normalise

MAX_LINES = 50_000
MAX_GPUS = 64
_LINE = re.compile(r"(DCGM_FI_[A-Z0-9_]+)\{([^}]*)\}\s+(\S+)", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"', re.ASCII)
# DCGM renames its fields; both names are read.
_NUMBERS = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_uncorrected",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_corrected",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "throttle",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "throttle",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "pcie_width",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "pcie_max_width",
    "DCGM_FI_DEV_PCIE_LINK_GEN": "pcie_generation",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": "pcie_max_generation",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "pcie_replays",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "pcie_replays",
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_XID_ERROR": "xid",
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": "recovery_action",
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": "recovery_action",
}
_FLAGS = {
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failed",
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "remap_failed",
    "DCGM_FI_DEV_RETIRED_PENDING": "pages_pending",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "pages_pending",
    "DCGM_FI_DEV_THRESHOLD_SRM": "sram_threshold",
    "DCGM_FI_DEV_SRAM_EXCEEDED": "sram_threshold",
}
_FIGURES = {
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "temperature_c",
    "DCGM_FI_DEV_SLOWDOWN_TEMP": "slowdown_c",
    "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": "slowdown_c",
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": "margin_c",
    "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": "margin_c",
    "DCGM_FI_DEV_GPU_UTIL": "busy_percent",
}
_LINK = re.compile(
    r"DCGM_FI_DEV_NVLINK_(?P<kind>CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_"
    r"(?:COUNT_)?(?:L(?P<link>\d{1,2})(?:_TOTAL)?|TOTAL)"
)
_LINK_COUNTERS = {"CRC_FLIT": "crc", "CRC_DATA": "crc", "REPLAY": "replay", "RECOVERY": "recovery"}
ALL_LINKS = -1
_BLANK = 0x7FFFFFF0
"""DCGM's way to write that there is no value; larger ones mean not found, not supported, no permission."""
_BLANK_64 = 9.2e18


@dataclass(frozen=True)
class _Metric:
    name: str
    labels: dict[str, str]
    value: float


def read_page(text: str) -> Sample:
    """All GPUs of the page. A page without a GPU is a failure: an exporter that sees none says nothing."""
    values: dict[str, dict[str, Any]] = {}
    links: dict[str, dict[int, dict[str, Any]]] = {}
    for metric in _metrics(text):
        uuid = metric.labels.get("UUID", "")
        if not uuid.startswith("GPU-") or (uuid not in values and len(values) >= MAX_GPUS):
            continue
        told = values.setdefault(uuid, _identity(metric.labels, len(values)))
        if metric.labels.get("GPU_I_ID") or not math.isfinite(metric.value) or _is_blank(metric.value):
            continue
        if metric.name in _NUMBERS:
            told[_NUMBERS[metric.name]] = max(0, int(metric.value))
        elif metric.name in _FLAGS:
            told[_FLAGS[metric.name]] = metric.value > 0
        elif metric.name in _FIGURES:
            told[_FIGURES[metric.name]] = metric.value
        elif (match := _LINK.fullmatch(metric.name)) is not None:
            number = int(match["link"]) if match["link"] else ALL_LINKS
            sums, counter = links.setdefault(uuid, {}).setdefault(number, {}), _LINK_COUNTERS[match["kind"]]
            sums[counter] = sums.get(counter, 0) + max(0, int(metric.value))
    if not values:
        return Sample(failure="the page of dcgm-exporter names no GPU")
    gpus = [
        GpuSample(
            uuid=uuid,
            links=tuple(LinkSample(link=n, **sums) for n, sums in sorted(links.get(uuid, {}).items())),
            **told,
        )
        for uuid, told in values.items()
    ]
    return Sample(gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))), complete=True)


def _identity(labels: dict[str, str], number: int) -> dict[str, Any]:
    index = labels.get("gpu", "")
    return {
        "index": int(index) if index.isdecimal() and len(index) < 4 else number,
        "pci": normalise(labels.get("pci_bus_id", "")) or "",
        "product": labels.get("modelName", "")[:96],
    }


def _is_blank(value: float) -> bool:
    return _BLANK <= value <= _BLANK + 15 or value >= _BLANK_64


def _metrics(text: str) -> Iterator[_Metric]:
    for number, line in enumerate(text.splitlines()):
        if number >= MAX_LINES:
            return
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        yield _Metric(match[1], dict(_LABEL.findall(match[2])), value)
