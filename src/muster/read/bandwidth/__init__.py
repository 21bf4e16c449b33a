"""Tables of bandwidth benchmarks: nccl-tests, nvbandwidth, pairs of nodes, library versions.

The parsers are imported when they are needed: most inputs of `muster read` are other things.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.read.bandwidth import detect
from muster.read.format import Format
from muster.read.report import Report
from muster.read.source import Context, Input


def _versions(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.bandwidth import versions

    return versions.parse(inputs, context)


def _tables(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.bandwidth import reading

    return reading.parse(inputs, context)


def _pairs(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.bandwidth import pairs

    return pairs.parse(inputs, context)


def _copies(inputs: Sequence[Input], context: Context) -> Report:
    from muster.read.bandwidth import nvbandwidth

    return nvbandwidth.parse(inputs, context)


FORMATS: tuple[Format, ...] = (
    Format("bandwidth per version", (detect.TABLE_KIND,), detect.versions_score, _versions),
    Format("nccl-tests table", (detect.TABLE_KIND,), detect.table_score, _tables),
    Format("pairs of nodes", (detect.PAIRS_KIND,), detect.pairs_score, _pairs),
    Format("nvbandwidth", (detect.COPIES_KIND,), detect.copies_score, _copies),
)
