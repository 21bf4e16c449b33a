"""What DCGM says about the health of GPUs: the health watch, `dmon`, `discovery`, dcgm-exporter, and nodes of a pool
before and after a change of their monitor."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.dcgm_health import detect, monitor_change
from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input


def _parse(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.dcgm_health import reading  # only when such an output is read

    return reading.parse(inputs, context)


FORMATS: tuple[Format, ...] = (
    Format("monitor change", (detect.KIND,), monitor_change.score, monitor_change.parse),
    Format(
        "DCGM health",
        (detect.KIND,),
        detect.score,
        _parse,
        takes=("nvidia-smi", "log", "node figures", "GPU figures"),
    ),
)
