"""How sure a format of this package is of a sample. Kept apart from the parsers, which most inputs do not need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.source import text_lines

TABLE_KIND, PAIRS_KIND, COPIES_KIND = "nccl-tests", "link", "nvbandwidth"

_SIGNS = ("# nccl-tests version", "# Collective test", "# nThread", "Avg bus bandwidth", "Out of bounds values")
_WEAK_SIGNS = (": Test NCCL failure", ": Test CUDA failure", ": Test failure common.cu")
_JSON_SIGNS = ('"bus_bw"', '"average_bus_bandwidth"')
_JSON_HEAD = ('"nccl_version"', '"start_time"', '"args"')
"""What stands before the results; a report that breaks off early has only these."""
_VERSION = re.compile(
    r"(?P<named>[a-z0-9_]{1,40}?)_?version|(?P<plain>nccl|rccl|driver|cuda|firmware|kernel|libfabric|aws_ofi_nccl)"
)
_RATE = re.compile(r"(?:alg|bus)bw.{0,20}|bandwidth.{0,20}|.{0,40}_?gb_s|gbps")
_A = ("node_a", "a", "node1", "src", "source", "from", "host_a", "first")
_B = ("node_b", "b", "node2", "dst", "destination", "to", "host_b", "second")
_MAX_COLUMNS = 20


def table_score(sample: bytes) -> float:
    """1 for nccl-tests output with its header or its JSON; less for other lines of it."""
    lines = text_lines(sample, 2000)
    if is_json_report(lines):
        return 1.0
    text = "\n".join(lines)
    if ("algbw" in text and "busbw" in text and "(GB/s)" in text) or any(sign in text for sign in _SIGNS):
        return 1.0
    if any(sign in text for sign in _WEAK_SIGNS):
        return 0.6
    if not any(" sum " in line or " none " in line for line in lines[:500]):
        return 0.0
    from muster.read.bandwidth.nccl_tests import parse_tables  # a few rows without a header: only reading them tells

    return 0.8 if any(table.rows for table in parse_tables("\n".join(lines[:500]))) else 0.0


def versions_score(sample: bytes) -> float:
    """1 for a CSV header with a column of versions and one of bandwidths."""
    return 1.0 if version_columns(_header(sample)) is not None else 0.0


def pairs_score(sample: bytes) -> float:
    """1 for a CSV header with two columns of nodes and one of bandwidths."""
    return 1.0 if pair_columns(_header(sample)) is not None else 0.0


def copies_score(sample: bytes) -> float:
    """1 for the first lines of nvbandwidth, or its JSON."""
    head = "\n".join(text_lines(sample, 2000))
    if head.lstrip().startswith("{"):
        return 1.0 if '"nvbandwidth"' in head or '"bandwidth_matrix"' in head else 0.0
    if "nvbandwidth Version" in head:
        return 1.0
    return 0.9 if "bandwidth (GB/s)" in head and ("(row)" in head or "SUM " in head) else 0.0


def is_json_report(lines: Sequence[str]) -> bool:
    """The first lines of a sample are a JSON report of nccl-tests."""
    text = "\n".join(lines).lstrip()
    if not text.startswith("{"):
        return False
    return any(sign in text for sign in _JSON_SIGNS) or all(sign in text for sign in _JSON_HEAD)


def version_columns(header: Sequence[str]) -> tuple[int, int, str] | None:
    """(column of versions, column of GB/s, what has the versions) of a header in lower case."""
    if len(header) > _MAX_COLUMNS:
        return None
    versions = [(i, match) for i, name in enumerate(header) if (match := _VERSION.fullmatch(name))]
    rate = _first(header, _RATE)
    if not versions or rate is None:
        return None
    at, match = versions[0]
    return at, rate, match["named"] or match["plain"] or "library"


def pair_columns(header: Sequence[str]) -> tuple[int, int, int] | None:
    """(first node, second node, GB/s) of a header in lower case."""
    a = next((i for i, name in enumerate(header) if name in _A), None)
    b = next((i for i, name in enumerate(header) if name in _B), None)
    rate = _first(header, _RATE)
    return (a, b, rate) if a is not None and b is not None and rate is not None else None


def _header(sample: bytes) -> list[str]:
    lines = [line for line in text_lines(sample, 20) if line.strip() and not line.startswith("#")]
    return [cell.strip().strip('"').lower() for cell in re.split(r"[,;\t]", lines[0])] if lines else []


def _first(header: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    return next((i for i, name in enumerate(header) if pattern.fullmatch(name)), None)
