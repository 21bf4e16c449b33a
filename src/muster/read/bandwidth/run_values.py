"""Readings and derived numbers of nccl-tests runs, under the names of the vocabulary. Bandwidths in GB/s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.read.bandwidth.judge import Run
from muster.read.bandwidth.table import BANDWIDTH_UNIT, Half, Row, Table, finite
from muster.read.report import Value

AVERAGE_TOLERANCE = 0.02
"""Printed and recomputed average differ by more: rows are missing or were changed."""


def run_values(run: Run) -> dict[str, Value]:
    """Everything that one table says."""
    table = run.table
    values = _header_values(table)
    values |= {
        "rows": Value(len(table.rows)),
        "sizes": Value([row.size for row in table.rows], "B"),
        **_ranks(run),
        "busbw_out_of_place": Value(_column(table.rows, "out_of_place"), BANDWIDTH_UNIT),
        "busbw_in_place": Value(_column(table.rows, "in_place"), BANDWIDTH_UNIT),
        **_average(table),
        "wrong_total": Value(table.wrong),
        "out_of_bounds": Value(table.out_of_bounds),
    }
    if table.last_column is not None:
        values["last_column"] = _last_column(table.last_column)
    largest = table.largest
    if largest is not None:
        finished = [half.busbw.value for row in table.rows for half in row.halves if half.busbw.finite]
        values["busbw_max"] = Value(max(finished, default=None), BANDWIDTH_UNIT)
        values["busbw_at_largest_size"] = Value({"size": largest.size, **_both(largest)}, BANDWIDTH_UNIT)
        values["row"] = Value(largest.plain())
    values |= _wire(run)
    if table.failures:
        values["failures"] = Value([failure.plain() for failure in table.failures[:20]])
    return values


def scaling_values(runs: Sequence[Run]) -> dict[str, Value]:
    """One list entry per number of nodes, at the largest size of each."""
    rows = [run.table.largest for run in runs]
    wires = {run.derived.nodes: run.derived.wire_gb_s for run in runs}
    shares = {
        run.derived.nodes: _share(run)
        for run in runs
        if run.derived.wire_gb_s is not None and _share(run) is not None
    }
    wrong = [run.table.wrong for run in runs if run.table.wrong is not None]
    known = [wire for wire in wires.values() if wire is not None]
    columns = sorted({run.table.last_column for run in runs if run.table.last_column})
    more = {"derived_from": "busbw/algbw"}
    values = {
        "nodes": Value([run.derived.nodes for run in runs]),
        "rows": Value(sum(len(run.table.rows) for run in runs)),
        "sizes": Value([row.size if row else None for row in rows], "B"),
        "n_ranks": Value([run.derived.ranks for run in runs], more=more),
        "busbw_out_of_place": Value([_busbw(row.out_of_place) if row else None for row in rows], BANDWIDTH_UNIT),
        "busbw_in_place": Value([_busbw(row.in_place) if row else None for row in rows], BANDWIDTH_UNIT),
        "wrong_total": Value(sum(wrong) if wrong else None),
    }
    if len(columns) == 1:
        values["last_column"] = _last_column(columns[0])
    if known:
        same = all(wire == known[0] for wire in known)
        values["wire_limit"] = Value(known[0] if same else wires, BANDWIDTH_UNIT)
        values["share_of_wire"] = Value(shares)
    return values


def _header_values(table: Table) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if table.version:
        values["nccl_tests_version"] = Value(table.version)
    if table.nccl_version:
        values["nccl_version"] = Value(dict(table.nccl_version))
    if table.program:
        values["program"] = Value(table.program)
    if table.parameters:
        values["parameters"] = Value(dict(table.parameters))
    if table.ranks:
        values["ranks"] = Value([rank.plain() for rank in table.ranks])
    if table.prefix:
        values["prefix"] = Value(dict(table.prefix))
    return values


def _ranks(run: Run) -> dict[str, Value]:
    zeros = any(half.busbw.value == 0 for row in run.table.rows for half in row.halves)
    more: dict[str, Any] = {"derived_from": "busbw/algbw"} | ({"ignore_rows": "zero-bandwidth"} if zeros else {})
    values = {"n_ranks": Value(run.derived.ranks, more=more)}
    if run.derived.factor is not None:
        values["busbw_factor"] = Value(round(run.derived.factor, 6))
    if run.derived.collective:
        values["collective"] = Value(run.derived.collective)
    if run.derived.nodes:
        values["nodes"] = Value(run.derived.nodes)
    return values


def _average(table: Table) -> dict[str, Value]:
    halves = [half.busbw.value for row in table.rows for half in row.halves]
    recomputed = finite(sum(halves) / len(halves)) if halves else None
    printed = finite(table.avg)
    values = {"avg_busbw_printed": Value(printed, BANDWIDTH_UNIT)}
    if recomputed is not None:
        values["avg_busbw_recomputed"] = Value(round(recomputed, 4), BANDWIDTH_UNIT)
        if printed is not None:
            agree = abs(printed - recomputed) <= AVERAGE_TOLERANCE * max(printed, recomputed) + 0.01
            values["avg_busbw_agrees"] = Value(agree)
    return values


def _wire(run: Run) -> dict[str, Value]:
    wire = run.derived.wire_gb_s
    if wire is None:
        return {}
    values = {"wire_limit": Value(round(wire, 4), BANDWIDTH_UNIT)}
    share = _share(run)
    if share is not None:
        values["share_of_wire_at_largest_size"] = Value(share)
        values["busbw_exceeds_wire"] = Value(run.exceeds_wire)
    return values


def _share(run: Run) -> float | None:
    """Of the out-of-place half, where there is one."""
    largest, wire = run.table.largest, run.derived.wire_gb_s
    half = largest.primary if largest is not None else None
    if half is None or not half.busbw.finite or not wire:
        return None
    return round(half.busbw.value / wire, 4)


def _column(rows: Sequence[Row], name: str) -> list[float | None]:
    return [_busbw(getattr(row, name)) for row in rows]


def _busbw(half: Half | None) -> float | None:
    return finite(half.busbw.value) if half is not None else None


def _both(row: Row) -> dict[str, float | None]:
    return {"out_of_place": _busbw(row.out_of_place), "in_place": _busbw(row.in_place)}


def _last_column(name: str) -> Value:
    return Value(name, more={"type": "float" if name == "error" else "integer"})
