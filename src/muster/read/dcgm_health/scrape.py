"""A text scrape of dcgm-exporter: metrics of GPUs with their labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.read.dcgm_health.monitor import action_word
from muster.read.smi.cells import Cell
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell

_SAMPLE = re.compile(
    r"\s{0,4}(?P<name>DCGM_(?:FI|EXP)_[A-Z0-9_]{2,80})\{(?P<labels>[^{}]{0,2000})\}\s{1,4}(?P<value>\S{1,40})"
)
_LABEL = re.compile(r'(?P<name>[A-Za-z_]\w{0,60})="(?P<value>(?:[^"\\]|\\.){0,200})"')
_BLANK = 9.0e18
"""DCGM writes numbers above this for `no value`; as do some exporters."""
_BLANK_32 = 2147483632
_FIELDS: Mapping[str, str] = {
    "DCGM_FI_DEV_XID_ERRORS": "last_xid",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_GPU_UTIL": "utilization",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "uncorrectable_total.volatile",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "uncorrectable_total.aggregate",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remapped_uncorrectable",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "remapped_correctable",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_RETIRED_SBE": "retired_single_bit",
    "DCGM_FI_DEV_RETIRED_DBE": "retired_double_bit",
    "DCGM_FI_DEV_RETIRED_PENDING": "retired_pending",
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": "recovery_action",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "slowdown_mask",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "slowdown_mask",
    "DCGM_FI_DEV_THRESHOLD_SRM": "sram_threshold_exceeded",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "pcie_width",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "pcie_width_max",
}
_NVLINK_ERRORS = re.compile(
    r"DCGM_FI_DEV_NVLINK_(?:CRC|REPLAY|RECOVERY|ECC|COUNT)_?[A-Z0-9_]*(?:ERROR|ERRORS)[A-Z0-9_]*"
)
_HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
_HEALTH_WORDS = {0: "Healthy", 10: "Warning", 20: "Failure"}
"""`dcgmHealthWatchResults_t`."""


@dataclass
class Scrape:
    """`nvlink_errors`: lifetime totals by GPU, never judged from one sample. `health`: (GPU, watch) -> word."""

    document: Document
    nvlink_errors: dict[int, float] = field(default_factory=dict)
    health: dict[tuple[int, str], tuple[str, Line]] = field(default_factory=dict)
    host: str | None = None
    driver: str | None = None


def parse(lines: Sequence[Line], file: str) -> Scrape:
    """Read the samples. A line that breaks off makes the scrape incomplete."""
    scrape = Scrape(Document(Shape.MONITOR))
    gpus: dict[str, dict[str, Cell]] = {}
    for line in lines:
        if not line.text.strip() or line.text.lstrip().startswith("#"):
            continue
        match = _SAMPLE.match(line.text)
        if match is None:
            scrape.document.complete = False
            continue
        labels = {found["name"]: found["value"] for found in _LABEL.finditer(match["labels"])}
        number = _number(match["value"])
        gpu = labels.get("gpu", "")
        if not gpu.isdecimal() or len(gpu) > 4 or (gpu not in gpus and len(gpus) >= MAX_GPUS):
            continue
        cells = gpus.setdefault(gpu, _identity(gpu, labels, line, file))
        scrape.host = labels.get("Hostname") or labels.get("hostname") or scrape.host
        scrape.driver = labels.get("DCGM_FI_DRIVER_VERSION") or scrape.driver
        if number is not None and not labels.get("GPU_I_ID"):
            _take(scrape, cells, int(gpu), match["name"], number, labels, line, file)
    scrape.document.gpus = list(gpus.values())
    if scrape.driver:
        scrape.document.node["driver_version"] = Cell(scrape.driver)
    scrape.document.complete = scrape.document.complete and bool(gpus)
    return scrape


def _identity(gpu: str, labels: Mapping[str, str], line: Line, file: str) -> dict[str, Cell]:
    found = {"index": cell(gpu, line, file)}
    for name, label in (("uuid", "UUID"), ("pci", "pci_bus_id"), ("name", "modelName")):
        if labels.get(label):
            found[name] = cell(labels[label], line, file)
    return found


def _take(
    scrape: Scrape,
    cells: dict[str, Cell],
    gpu: int,
    metric: str,
    number: float,
    labels: Mapping[str, str],
    line: Line,
    file: str,
) -> None:
    if metric == _HEALTH:
        watch = labels.get("health_watch", "ALL")
        scrape.health[gpu, watch] = (_HEALTH_WORDS.get(int(number), f"status {int(number)}"), line)
    elif _NVLINK_ERRORS.fullmatch(metric):
        scrape.nvlink_errors[gpu] = scrape.nvlink_errors.get(gpu, 0.0) + number
    elif (name := _FIELDS.get(metric)) is not None:
        text = (
            action_word(number)
            if name == "recovery_action"
            else f"{int(number) if number == int(number) else number}"
        )
        cells[name] = cell(text, line, file)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    blank = number != number or abs(number) >= _BLANK or _BLANK_32 <= number <= _BLANK_32 + 15
    return None if blank else number
