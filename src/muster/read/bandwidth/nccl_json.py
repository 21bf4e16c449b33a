"""The JSON report that nccl-tests writes with `-J` (file versions 1 and 2): the same values as its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.errors import BadInputError
from muster.read import pci
from muster.read.bandwidth.nccl_tests import MAX_ROWS, version_text
from muster.read.bandwidth.table import Failure, Figure, Half, Rank, Row, Table

_PARAMETERS = {
    "nthreads": "threads",
    "ngpus": "gpus_per_thread",
    "minimum_bytes": "min_bytes",
    "maximum_bytes": "max_bytes",
    "step_factor": "step_factor",
    "step_bytes": "step_bytes",
    "warmup_iters": "warmup",
    "iterations": "iterations",
    "aggregated_iterations": "aggregate",
    "validation": "validation",
    "graph": "graph",
}
_PRINTED = 5e-7
"""Half a unit of the last digit: bandwidths are written with six decimals."""


def parse_tables(text: str) -> tuple[Table, ...]:
    """One run. A report that breaks off gives a table without rows and without a summary."""
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return (Table((), cut=True),)
    if not isinstance(report, dict):
        return (Table((), cut=True),)
    return (_table(report),)


def _table(report: Mapping[str, Any]) -> Table:
    results = report.get("results")
    results = results if isinstance(results, list) else []
    if len(results) > MAX_ROWS:
        raise BadInputError(f"The report has more than {MAX_ROWS} rows of bandwidth; split the file.")
    rows = [_row(position, item) for position, item in enumerate(results, start=1)]
    config = _mapping(report.get("config"))
    bounds, average = _mapping(report.get("out_of_bounds")), _mapping(report.get("average_bus_bandwidth"))
    args = report.get("args")
    program = str(args[0]).rpartition("/")[2][:100] if isinstance(args, list) and args else None
    code = report.get("nccl_version")
    count = _whole(bounds.get("count"))
    return Table(
        rows=tuple(row for row in rows if row is not None),
        last_column="wrong" if rows else None,
        program=program,
        nccl_version={"library": version_text(code)} if isinstance(code, int) and 0 < code < 10**7 else {},
        parameters={
            name: found for key, name in _PARAMETERS.items() if (found := _whole(config.get(key))) is not None
        },
        ranks=tuple(rank for item in _list(config.get("devices")) if (rank := _rank(item)) is not None),
        out_of_bounds=count,
        out_of_bounds_failed=bool(count) or str(bounds.get("okay")).lower() == "false",
        avg=_number(average.get("bandwidth")),
        avg_failed=str(average.get("okay")).lower() == "false",
        failures=tuple(Failure(0, "", "nccl", "", str(e)[:300]) for e in _list(report.get("errors"))[:20] if e),
        malformed=tuple(position for position, row in enumerate(rows, start=1) if row is None),
        cut="end_time" not in report,
    )


def _row(position: int, item: Any) -> Row | None:
    if not isinstance(item, dict):
        return None
    size, count = _whole(item.get("size")), _whole(item.get("count"))
    first, second = _half(item.get("out_of_place")), _half(item.get("in_place"))
    if size is None or (first is None and second is None):
        return None
    root = str(item.get("root", "")).strip()
    return Row(
        line=position,
        size=size,
        count=count or 0,
        type=str(item.get("type", ""))[:20],
        redop=str(item["redop"])[:20] if item.get("redop") is not None else None,
        root=int(root) if root.lstrip("-").isdecimal() and len(root) < 10 else None,
        out_of_place=first,
        in_place=second,
    )


def _half(item: Any) -> Half | None:
    if not isinstance(item, dict):
        return None
    time, algbw, busbw = (_number(item.get(key)) for key in ("time", "alg_bw", "bus_bw"))
    time = time if time is not None else _number(item.get("cpu_time"))
    if time is None or algbw is None or busbw is None:
        return None
    wrong = _number(item.get("nwrong"))
    checked = int(wrong) if wrong is not None and 0 <= wrong < 1e18 else None
    return Half(time, Figure(algbw, _PRINTED), Figure(busbw, _PRINTED), checked)


def _rank(item: Any) -> Rank | None:
    if not isinstance(item, dict) or _whole(item.get("rank")) is None:
        return None
    address = str(item.get("device_hex", "")).strip("[] ")
    return Rank(
        rank=_whole(item.get("rank")) or 0,
        group=_whole(item.get("group")),
        pid=_whole(item.get("pid")) or 0,
        host=str(item.get("hostname", ""))[:253],
        device=_whole(item.get("device")) or 0,
        pci=pci.normalise(address),
        bus=None,
        gpu=str(item.get("device_info", ""))[:200].strip(),
    )


def _number(value: Any) -> float | None:
    """A number, or `nan` and `inf` as the program writes them."""
    if isinstance(value, str):
        return float(value) if value.strip().lower().lstrip("+-") in ("nan", "inf") else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
