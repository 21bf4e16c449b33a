"""What Kubernetes says of a node: descriptions, objects, events, drains, lines of kubelet and device plugins."""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input

KIND = "kubernetes"


def _score(sample: bytes) -> float:
    from muster.read.kubernetes import detect

    return detect.score(sample)


def _parse(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.kubernetes import reading  # only when such a text is read

    return reading.parse(inputs, context)


FORMATS: tuple[Format, ...] = (Format("kubernetes", (KIND,), _score, _parse, takes=("log",)),)
