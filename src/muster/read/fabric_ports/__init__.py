"""Network ports: InfiniBand, Ethernet with RoCE, and the modules and cables in them (`read/optics`)."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.fabric_ports import detect
from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input


def _parse(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.fabric_ports import reading  # only when a port is read

    return reading.parse(inputs, context)


FORMATS: tuple[Format, ...] = (
    Format("network port", (detect.IB, detect.ETHERNET, detect.OPTICS), detect.score, _parse),
)
