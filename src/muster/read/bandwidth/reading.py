"""nccl-tests output as a report: values, verdicts, corrupted values as faults, scaling over the number of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from muster.read.bandwidth import nccl_json
from muster.read.bandwidth.derive import derive
from muster.read.bandwidth.detect import TABLE_KIND, is_json_report
from muster.read.bandwidth.expectation import expectation, nodes_of_tables
from muster.read.bandwidth.judge import Run, bandwidth, correctness, judge
from muster.read.bandwidth.nccl_tests import parse_tables
from muster.read.bandwidth.run_values import run_values, scaling_values
from muster.read.bandwidth.table import Table
from muster.read.report import Evidence, ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input, printable
from muster.read.tables.source import content
from muster.resources.fault import Hint, Scope, Severity

_ABOVE_WIRE_IN_SCALING = "above-wire-without-pinned-algorithm"


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all tables of all inputs. Raises BadInputError for a context or a size that cannot be used."""
    runs: list[Run] = []
    texts: dict[str, list[str]] = {}
    for item in inputs:
        text = content(item)
        texts[item.name] = text.split("\n")
        is_json = is_json_report(texts[item.name][:5])
        runs += _runs(item.name, nccl_json.parse_tables(text) if is_json else parse_tables(text), context)
    if len(runs) == 0:
        runs = [_run(inputs[0].name, Table(()), context)]
    scaling = _scaling(runs)
    runs = scaling or _named(runs, several_files=len(inputs) > 1)
    verdicts = [*_cause(runs)] if scaling else []
    verdicts += _verdicts(runs, one=len(runs) == 1)
    values = scaling_values(runs) if scaling else _combine(runs)
    faults = tuple(fault for run in runs if (fault := _corruption(run, texts)) is not None)
    return Report(
        kind=TABLE_KIND,
        files=tuple(item.name for item in inputs),
        truncated=any(run.needs_summary and not run.table.complete for run in runs),
        faults=faults,
        verdicts=tuple(verdicts),
        values=values,
        next=faults[0].next if faults else _next(verdicts),
    )


def _run(file: str, table: Table, context: Context, nodes: int | None = None) -> Run:
    told = expectation(context, file)
    if nodes is not None:
        told = replace(told, nodes=nodes)
    return Run("run", file, table, told, derive(table, told, nodes))


def _runs(file: str, tables: Sequence[Table], context: Context) -> list[Run]:
    counts = nodes_of_tables(context, len(tables))
    found: list[Run] = []
    for position, table in enumerate(tables):
        per_node = sorted({row.nodes for row in table.rows if row.nodes is not None})
        for nodes in per_node:
            part = replace(table, rows=tuple(row for row in table.rows if row.nodes == nodes))
            found.append(replace(_run(file, part, context, nodes), needs_summary=False))
        if not per_node:
            found.append(_run(file, table, context, counts[position] if counts else None))
    return found


def _scaling(runs: Sequence[Run]) -> list[Run] | None:
    """The runs labelled by their number of nodes, when they are one collective on different numbers of nodes."""
    counts = [run.derived.nodes for run in runs]
    collectives = {run.derived.collective for run in runs}
    by_column = any(not run.needs_summary for run in runs)
    if None in counts or len(set(counts)) != len(counts) or len(collectives) != 1 or not (by_column or len(runs) > 1):
        return None
    ordered = sorted(runs, key=lambda run: run.derived.nodes or 0)
    word = _ABOVE_WIRE_IN_SCALING
    return [
        replace(run, label=f"{run.derived.nodes} node{'s' if run.derived.nodes != 1 else ''}", pinned_word=word)
        for run in ordered
    ]


def _named(runs: Sequence[Run], *, several_files: bool) -> list[Run]:
    """One run is `run`; several carry their file, their program or their number."""
    if len(runs) == 1:
        return list(runs)
    names: list[Callable[[int, Run], str | None]] = [
        lambda _, run: run.table.program,
        lambda n, run: f"{run.table.program or 'table'} {n}",
    ]
    if several_files:
        names.insert(0, lambda _, run: run.file)
    for name in names:
        labels = [name(number, run) for number, run in enumerate(runs, start=1)]
        if None not in labels and len(set(labels)) == len(labels):
            break
    return [replace(run, label=f"run {label}") for run, label in zip(runs, labels, strict=True)]


def _verdicts(runs: Sequence[Run], *, one: bool) -> list[Verdict]:
    found = [judge(run) for run in runs]
    if one or all(run.label.startswith("run") for run in runs):
        return found + [verdict for run in runs for verdict in (correctness(run), bandwidth(run))]
    wrong = [run for run in runs if correctness(run).result is Result.FAIL]
    if wrong:
        found.append(Verdict("correctness", Result.FAIL, "numeric-corruption", f"In the run on {wrong[0].label}."))
    return found


def _cause(runs: Sequence[Run]) -> list[Verdict]:
    """Why runs on more nodes are slow: no run without a given node exists, so no node may be named."""
    failed = [run for run in runs if judge(run).reason == "bandwidth" and judge(run).result is Result.FAIL]
    if not failed:
        return []
    speeds = [run.busbw or 0.0 for run in runs if (run.derived.nodes or 0) > 1]
    smooth = len(speeds) > 1 and all(later <= 1.05 * earlier for earlier, later in pairwise(speeds))
    reason = "software-or-transport-suspected" if smooth and len(failed) > 1 else "not-separated"
    message = "No run leaves a given node out, so no node can be named. Compare transport and library first."
    return [Verdict("cause", Result.UNKNOWN, reason, message, {"confidence": "low"})]


def _combine(runs: Sequence[Run]) -> dict[str, Value]:
    """Values of one run as they are; of several one value where all agree, else one per run."""
    each = [run_values(run) for run in runs]
    if len(each) == 1:
        return each[0]
    combined: dict[str, Value] = {}
    for name in dict.fromkeys(name for values in each for name in values):
        found = {run.label: values[name] for run, values in zip(runs, each, strict=True) if name in values}
        first = next(iter(found.values()))
        same = len(found) == len(runs) and all(value.value == first.value for value in found.values())
        combined[name] = first if same else Value({k: v.value for k, v in found.items()}, first.unit, first.more)
    return combined


def _corruption(run: Run, texts: Mapping[str, Sequence[str]]) -> ReadFault | None:
    """Wrong values as a fault of the job; of the node where one host alone took part."""
    table = run.table
    if not table.wrong and not table.out_of_bounds_failed:
        return None
    rows = [row for row in table.rows if any(half.wrong for half in row.halves)]
    lines = tuple(row.line for row in rows)[:20] or (table.lines[1],)
    text = texts.get(run.file, [])
    hosts = table.hosts
    entity: dict[str, Any] = {"kind": "node", "name": hosts[0]} if len(hosts) == 1 else {"kind": "job"}
    count = table.wrong or table.out_of_bounds or 1
    return ReadFault(
        code="numeric-corruption",
        kind="nccl-tests",
        entity={**entity, "pci": None},
        severity=Severity.FATAL,
        scope=Scope.NODE if len(hosts) == 1 else Scope.JOB,
        hint=Hint.INSPECT,
        name="values arrived wrong",
        count=count,
        count_is="exact" if math.isfinite(count) and table.complete else "lower-bound",
        first=None,
        last=None,
        details={"sizes": [row.size for row in rows], "wrong": table.wrong, "out_of_bounds": table.out_of_bounds},
        evidence=(
            Evidence(
                run.file,
                lines,
                tuple(printable(text[n - 1], 200) for n in lines[:4] if 0 < n <= len(text)),
                max(len(rows), 1),
            ),
        ),
        next="Take the nodes of this run out of production and halve the group until one node or link remains.",
    )


_NEXT = {
    "no-summary-line": "Run the test again to its end; what is here ends too early to judge.",
    "algorithm-not-pinned": "Run the pair again with NCCL_ALGO=Ring; this number says little about the network.",
    _ABOVE_WIRE_IN_SCALING: "Run again with NCCL_ALGO=Ring before two nodes are compared with more.",
    "no-floor": "Tell what the machine must reach (floor_gb_s, or nodes, nics_per_node and nic_gbps).",
    "crash": "Look at the NCCL log of the rank that gave up first.",
    "one-rank": "Run the test with two ranks or more; one alone moves nothing over a link.",
    "harness": "Correct how the test is started; this says nothing about the machine.",
}


def _next(verdicts: Sequence[Verdict]) -> str:
    cause = next((verdict for verdict in verdicts if verdict.of == "cause"), None)
    if cause is not None:
        return f"Bandwidth is too low. {cause.message}"
    for result in (Result.FAIL, Result.INVALID, Result.WARN, Result.UNKNOWN):
        found = next((verdict for verdict in verdicts if verdict.result is result), None)
        if found is not None:
            known = _NEXT.get(found.reason)
            if known is None and result is Result.INVALID:
                return f"{found.message or found.reason} Run the test again; this says nothing about the machine."
            return known or f"{found.message or found.reason} Test smaller groups of these nodes to find the cause."
    return "Nothing has to be done."
