"""Runs of one job with different numbers of ranks per node: an uneven layout that never starts is no evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import BadInputError
from muster.read.report import Report, Result, Value, Verdict
from muster.read.source import Context, Input, printable, text_lines
from muster.read.tables.source import mapping, rows

KIND = "nccl-log"
START_PHASES = ("init", "ncclcomminit", "rendezvous", "bootstrap", "start")
_WORDS = {
    "completed": "completed",
    "complete": "completed",
    "ok": "completed",
    "pass": "completed",
    "passed": "completed",
    "success": "completed",
    "timeout": "timeout",
    "timed-out": "timeout",
    "hang": "hang",
    "hung": "hang",
    "crash": "crash",
    "failed": "failed",
    "fail": "failed",
    "error": "failed",
}
MAX_RUNS = 10_000


@dataclass(frozen=True)
class Run:
    id: Any
    layout: tuple[int, ...]
    nodes: tuple[str, ...]
    phase: str
    result: str

    @property
    def even(self) -> bool:
        return len(set(self.layout)) <= 1


def score(sample: bytes) -> float:
    """1 for a YAML or JSON mapping that lists runs and how many ranks each node had."""
    lines = text_lines(sample)
    listed = any(line.startswith(("runs:", '"runs"', '{"runs"')) for line in lines)
    return 1.0 if listed and any("ranks_per_node" in line for line in lines) else 0.0


def parse(inputs: Sequence[Input], context: Context) -> Report:  # noqa: ARG001 - the signature of a format
    """Judge runs by their layout. Raises BadInputError naming the run that cannot be read."""
    runs: list[Run] = []
    values: dict[str, Value] = {}
    for item in inputs:
        table = mapping(item)
        nodes = _names(table.get("nodes"))
        if isinstance(table.get("nccl"), str):
            values["nccl_version"] = Value(printable(table["nccl"].split("+")[0], 40))
        listed = rows(item, table.get("runs"), "runs")
        if len(listed) > MAX_RUNS:
            raise BadInputError(f"runs in {item.name} has more than {MAX_RUNS} rows; split the file.")
        runs += [_run(item, position, row, nodes) for position, row in enumerate(listed, start=1)]
    by_result: dict[str, list[Any]] = {}
    for run in runs:
        by_result.setdefault(run.result, []).append(run.id)
    values["runs"] = Value(by_result)
    values["layout_even"] = Value({run.id: run.even for run in runs})
    verdicts = [_of_run(run) for run in runs] + _of_nodes(runs)
    uneven = any(v.reason.startswith("uneven") for v in verdicts)
    return Report(
        kind=KIND,
        files=tuple(item.name for item in inputs),
        truncated=False,
        verdicts=tuple(verdicts),
        values=values,
        next="Give every node the same number of ranks and run again." if uneven else "Nothing has to be done.",
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(name)[:255] for name in value) if isinstance(value, list) else ()


def _run(item: Input, position: int, row: Mapping[str, Any], nodes: tuple[str, ...]) -> Run:
    where = f"Run {position} of {item.name}"
    layout = row.get("ranks_per_node")
    if isinstance(layout, int) and not isinstance(layout, bool):
        layout = [layout] * max(1, len(nodes))
    if not isinstance(layout, list) or not layout or not all(type(n) is int and n >= 0 for n in layout):
        raise BadInputError(f"{where} needs a list of whole numbers under ranks_per_node.")
    result = _WORDS.get(str(row.get("result", "")).strip().lower().replace("_", "-"))
    if result is None:
        raise BadInputError(f"{where} needs a result: completed, timeout, hang, crash or failed.")
    own = _names(row.get("nodes")) or nodes
    identity = row.get("id", position)
    if not isinstance(identity, int | str):
        raise BadInputError(f"{where} needs a number or a name under id.")
    return Run(identity, tuple(layout), own, str(row.get("phase_reached") or ""), result)


def _of_run(run: Run) -> Verdict:
    of = f"run {run.id}"
    if run.result == "completed":
        return Verdict(of, Result.PASS, "completed")
    starting = run.phase.lower().startswith(START_PHASES) or not run.phase
    if not run.even:
        reason = f"uneven-layout-init-{run.result}" if starting else f"uneven-layout-{run.result}"
        message = "The nodes had different numbers of ranks, so this run says nothing about any node."
        return Verdict(of, Result.INVALID, reason, message)
    return Verdict(of, Result.FAIL, f"init-{run.result}" if starting else run.result)


def _of_nodes(runs: Sequence[Run]) -> list[Verdict]:
    names = dict.fromkeys(name for run in runs for name in run.nodes)
    verdicts: list[Verdict] = []
    for name in names:
        own = [run for run in runs if name in run.nodes]
        good = [run for run in own if run.result == "completed"]
        bad = [run for run in own if run.result != "completed" and run.even]
        if good and not bad:
            verdicts.append(Verdict(name, Result.PASS, "completed-runs", more={"basis": _basis(good)}))
        elif bad:
            message = "Even runs failed; which node or path it was needs runs with other partners."
            verdicts.append(Verdict(name, Result.UNKNOWN, "not-isolated", message, {"basis": _basis(bad)}))
        else:
            verdicts.append(Verdict(name, Result.UNKNOWN, "no-valid-run"))
    return verdicts


def _basis(runs: Sequence[Run]) -> str:
    ids = [str(run.id) for run in runs]
    if len(ids) == 1:
        return f"run {ids[0]}"
    return f"runs {', '.join(ids[:-1])} and {ids[-1]}"
