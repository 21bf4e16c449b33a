"""What diagnostic tools of a node print: `dcgmi diag`, `dcgmi nvlink`, `nvidia-smi nvlink`."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.diagnostics import detect
from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input


def _parse(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.diagnostics import reading  # only when a diagnostic is read

    return reading.parse(inputs, context)


FORMATS: tuple[Format, ...] = (Format("node diagnostic", (detect.KIND,), detect.score, _parse),)
