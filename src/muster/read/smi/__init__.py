"""What `nvidia-smi` prints: `-q` as text and XML, the table, CSV queries, lists, monitors, and its error messages."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.format import Format
from muster.read.report import Report
from muster.read.smi import detect, figures, gpu_figures
from muster.read.source import Context, Input


def _parse(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.smi import reading  # only when such an output is read

    return reading.parse(inputs, context)


FORMATS: tuple[Format, ...] = (
    Format("nvidia-smi", (detect.KIND,), detect.score, _parse, takes=("log", "node figures", "GPU figures")),
    Format("GPU figures", (detect.KIND,), gpu_figures.score, _parse, takes=("log", "node figures")),
    Format("node figures", (detect.KIND,), figures.score, _parse, takes=("log",)),
)
