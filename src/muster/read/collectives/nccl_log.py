"""The format `nccl-log`: lines of NCCL and of its plugins, crash reports of its processes, and runs by layout."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from muster.errors import BadInputError
from muster.read.collectives import layout, watchdog
from muster.read.collectives.lines import joined, nccl_line
from muster.read.collectives.reading import REPEATED, Reading
from muster.read.collectives.transports import transport_used
from muster.read.report import Report
from muster.read.source import Context, Input, text_lines

__all__ = ["KIND", "parse", "score", "transport_used"]

KIND = "nccl-log"
_TABLE = re.compile(
    r"^(?:[^#]{0,60})#\s*(?:nThread|Using devices|nccl-tests version|size\s+count|out-of-place)", re.M
)
_KERNEL = re.compile(r"NVRM: |\bXid \(PCI:|SXid")


def score(sample: bytes) -> float:
    """1 for warnings of NCCL or a crash report, less for informative lines or where another format is in charge."""
    if layout.score(sample) == 1.0:
        return 1.0
    lines = text_lines(sample)
    levels = Counter(line.level for text in lines if (line := nccl_line(text)) is not None)
    crashed = any("Caught signal" in text or "] Signal: " in text for text in lines)
    library = any("libnccl" in text for text in lines)
    text = "\n".join(lines)
    if levels["WARN"] or levels["ERROR"] or (crashed and library):
        best = 1.0
    elif levels:
        best = 0.8 if sum(levels.values()) * 2 > sum(1 for entry in lines if entry.strip()) else 0.5
    else:
        best = 0.7 if any(mark in text for mark in REPEATED) else 0.4 if crashed else 0.0
    return min(best, 0.45) if _TABLE.search(text) or _KERNEL.search(text) else best


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read the inputs together, in bounded memory. Raises BadInputError for a context that cannot be used."""
    by_layout = [item.name for item in inputs if layout.score(item.sample) == 1.0]
    if len(by_layout) == len(inputs):
        return layout.parse(inputs, context)
    if by_layout:
        raise BadInputError(f"{by_layout[0]} lists runs and the other files are logs; read them one after the other.")
    return _parse(inputs, context, KIND)


def parse_watchdog(inputs: Sequence[Input], context: Context) -> Report:
    """The same for `torch-watchdog`: lines of NCCL and of the watchdog stand in one log, and explain each other."""
    return _parse(inputs, context, watchdog.KIND)


def _parse(inputs: Sequence[Input], context: Context, kind: str) -> Report:
    reading = Reading(context)
    for name, line in joined(inputs):
        reading.take(name, line)
    return reading.report(tuple(item.name for item in inputs), kind)
