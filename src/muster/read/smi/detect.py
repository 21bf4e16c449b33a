"""How sure this package is of a sample, and which command wrote a text."""

from __future__ import annotations

import re

from muster.read.smi import csv_query, messages, tables
from muster.read.smi.document import Line, Shape, lines_of

KIND = "nvidia-smi"
_QUERY_HEAD = re.compile(
    r"^\s{0,60}(?:Attached GPUs\s{1,60}: |=+NVSMI LOG=+"
    r"|GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]\s{0,4}$)"
)
_QUERY_SECTION = re.compile(
    r"\s{0,60}(?:ECC Errors|ECC Mode|Remapped Rows|Retired Pages|Bank Remap Availability Histogram"
    r"|Clocks (?:Throttle|Event) Reasons|Fabric|GPU Reset Status|GPU Link Info|Volatile|Aggregate)"
    r"\s{0,60}(?:: .{0,60})?$"
)
_QUERY_ENTRY = re.compile(
    r"\s{0,60}(?:SRAM (?:Uncorrectable|Correctable|Threshold)|DRAM (?:Uncorrectable|Correctable)"
    r"|Remapping Failure Occurred|GPU Recovery Action|Pending Page Blacklist|CliqueId|Channel Repair Pending"
    r"|Unrepairable Memory|Product Name|Drain and Reset Recommended|GPU UUID"
    r"|HW (?:Thermal|Power Brake) Slowdown).{0,60}: "
)
_LIST_LINE = re.compile(r"\s{0,8}GPU \d{1,4}: .{1,100}\(UUID: GPU-")
_LINK_LINE = re.compile(r"\s{1,16}Link \d{1,3}: |NvLink|all links are inactive", re.IGNORECASE)
_MONITOR_HEAD = re.compile(
    r"\s{0,4}#\s{0,4}(?:Date\s{1,20}Time\s{1,20})?gpu\s{1,20}(?:pwr|sm|pid|gtemp|mclk|sbecc|pviol|rxpci|fb)\b"
)
_TOPOLOGY_HEAD = re.compile(r"^\s{1,20}(?:\x1b\[4m)?GPU0\s{1,20}(?:GPU1|NIC0|mlx5_0|CPU Affinity)")
_SAMPLE_LINES = 4000
_QUOTED = 0.6


def score(sample: bytes) -> float:
    """1 for an output of the tool, whole or an excerpt; less where another program's line only quotes its message."""
    lines = _head(sample.decode("utf-8", "replace"))
    shape = shape_of(lines)
    if shape is Shape.MESSAGE and not any(_said(line.text).startswith(messages.SIGNS) for line in lines):
        return _QUOTED
    return 0.0 if shape is None else 1.0


def shape_of(lines: list[Line]) -> Shape | None:
    """Which command wrote the text; None when it is none of `nvidia-smi`."""
    texts = [line.text for line in lines]
    if any("<nvidia_smi_log" in text or "nvsmi_device" in text for text in texts):
        return Shape.XML
    if any("NVIDIA-SMI" in text and tables.TITLE.search(text) for text in texts):
        return Shape.TABLE
    if any(_QUERY_HEAD.match(text) for text in texts):
        return Shape.QUERY
    if sum(1 for text in texts if _QUERY_SECTION.match(text) or _QUERY_ENTRY.match(text)) >= 2:
        return Shape.QUERY
    if any(csv_query.COMMAND.search(text) for text in texts[:40]):
        return Shape.CSV
    if any(csv_query.is_header(text) and ("," in text or "." in text) for text in texts[:40] if text.strip()):
        return Shape.CSV
    if any(_MONITOR_HEAD.match(text) for text in texts):
        return Shape.MONITOR
    if any(_TOPOLOGY_HEAD.match(text) for text in texts[:40]):
        return Shape.TOPOLOGY
    if any(_LIST_LINE.match(text) for text in texts) and not any(_LINK_LINE.search(text) for text in texts):
        return Shape.LIST
    if any(_said(text).startswith(messages.SIGNS) for text in texts):
        return Shape.MESSAGE
    # In a log such a line stands behind a time and a name; then the text is a log.
    if any(sign in text.casefold() for text in texts[:200] for sign in messages.SIGNS):
        return None if any("NVRM:" in text for text in texts) else Shape.MESSAGE
    return None


def _said(text: str) -> str:
    """The words of a line, in lower case."""
    return text.strip().casefold().removeprefix("warning: ")


def _head(text: str) -> list[Line]:
    return lines_of(text)[:_SAMPLE_LINES]


def sample_shape(text: str) -> Shape | None:
    """Shape of a whole text, from its first lines."""
    return shape_of(_head(text[:65536]))
