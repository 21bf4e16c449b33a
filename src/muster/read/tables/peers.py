"""A count per node, compared with the other nodes that ran the same job: robust z-scores.

z = 0.6745 * (x - median) / MAD; |z| > 3.5 stands out (Iglewicz and Hoaglin, 1993). A node without a reading is
unknown, neither zero nor healthy. Codes that are faults by themselves are faults at any count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from muster.errors import BadInputError
from muster.faults import catalogue
from muster.read.advice import advice
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input, text_lines
from muster.read.tables.source import csv_rows, number, tidy
from muster.resources.fault import EntityKind, Severity

KIND = "kernel-log"
NODE_COLUMNS = ("node", "node_name", "nodename", "host", "hostname", "name", "instance")
STANDS_OUT = 3.5
MIN_NODES = 4


def score(sample: bytes) -> float:
    """1 for a CSV header with a column of nodes and at least one more."""
    lines = [line for line in text_lines(sample, 20) if line.strip() and not line.startswith("#")]
    header = [cell.strip().strip('"').lower() for cell in re.split(r"[,;\t]", lines[0])] if lines else []
    return 1.0 if len(header) >= 2 and any(cell in NODE_COLUMNS for cell in header) and len(lines) >= 2 else 0.0


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


@dataclass(frozen=True)
class Sample:
    """Readings per node and what stands out of them."""

    readings: dict[str, float]

    def center(self) -> float:
        return _median(self.readings.values())

    def mad(self) -> float:
        center = self.center()
        return _median(abs(x - center) for x in self.readings.values())

    def z(self, node: str) -> float:
        """Robust z of a node. Where more than half of the nodes are equal the mean distance is the scale."""
        center, mad = self.center(), self.mad()
        distance = self.readings[node] - center
        if distance == 0:
            return 0.0
        if mad > 0:
            return 0.6745 * distance / mad
        return distance / (1.253314 * _mean(abs(x - center) for x in self.readings.values()))

    def stands_out(self, node: str) -> bool:
        """Far from its peers; where these are alike, by more than counts scatter (three times the square root)."""
        chance = 3 * math.sqrt(max(self.center(), 0.0) + 1) if self.mad() == 0 else 0.0
        return abs(self.z(node)) > STANDS_OUT and abs(self.readings[node] - self.center()) > chance


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Compare the nodes of one CSV table. Raises BadInputError when the column of counts is not clear."""
    if len(inputs) != 1:
        raise BadInputError("Give one table of counts at a time.")
    item = inputs[0]
    header, rows = csv_rows(item)
    node_column = next((c for c in header if c.lower() in NODE_COLUMNS), header[0] if header else "")
    code = context.get("code") if isinstance(context.get("code"), int) else None
    column = _count_column(item, header, rows, node_column, code)
    code = code if code is not None else _code_in(column)
    readings = _readings(item, rows, node_column, column)
    sample = Sample(readings)
    faults = _faults(readings, code)
    broken = [str(fault.entity["name"]) for fault in faults]
    verdicts = [Verdict(node, Result.FAIL, f"xid-{code}") for node in broken]
    verdicts += [verdict for verdict in _verdicts(sample, context) if verdict.of not in broken]
    return Report(
        kind=KIND,
        files=(item.name,),
        truncated=False,
        faults=faults,
        verdicts=tuple(verdicts),
        values=_values(sample, context),
        next=faults[0].next if faults else _next(verdicts),
    )


def _count_column(
    item: Input, header: list[str], rows: list[dict[str, str]], node_column: str, code: int | None
) -> str:
    numeric = [c for c in header if c != node_column and any(number(row.get(c)) is not None for row in rows)]
    if len(numeric) > 1 and code is not None:
        numeric = [c for c in numeric if _code_in(c) == code] or numeric
    if len(numeric) != 1:
        found = ", ".join(numeric) or "none"
        raise BadInputError(
            f"{item.name} needs one column of counts (found: {found}); name the code in the context (key code)."
        )
    return numeric[0]


def _code_in(column: str) -> int | None:
    match = re.search(r"(?<!\d)(\d{1,4})(?!\d)", column)
    return int(match[1]) if match else None


def _readings(item: Input, rows: list[dict[str, str]], node_column: str, column: str) -> dict[str, float]:
    readings: dict[str, float] = {}
    for row in rows:
        node, value = row.get(node_column, ""), number(row.get(column))
        if not node:
            continue
        if node in readings:
            raise BadInputError(f"{item.name} lists {node} twice; give one row a node.")
        if value is not None and value < 0:
            raise BadInputError(f"{item.name} counts {row.get(column)} for {node}; a count is zero or more.")
        if value is not None:
            readings[node] = value
    if not readings:
        raise BadInputError(f"{item.name} holds no reading in column {column}.")
    return readings


def _values(sample: Sample, context: Context) -> dict[str, Value]:
    readings = sample.readings
    scores = {node: sample.z(node) for node in readings}
    values = {
        "nodes_with_reading": Value(len(readings)),
        "median": Value(tidy(sample.center())),
        "mad": Value(tidy(sample.mad())),
        "max_robust_z": Value(round(max(scores.values()), 4)),
        "low_outliers": Value(_outliers(sample, low=True)),
        "high_outliers": Value(_outliers(sample, low=False)),
    }
    suspect = context.get("suspect")
    if isinstance(suspect, str) and suspect in readings:
        values["suspect_rank_from_top"] = Value(1 + sum(1 for x in readings.values() if x > readings[suspect]))
        values["suspect_robust_z"] = Value(round(scores[suspect], 4))
    return values


def _outliers(sample: Sample, low: bool) -> list[str]:
    if len(sample.readings) < MIN_NODES:
        return []
    center = sample.center()
    found = []
    for node, reading in sample.readings.items():
        if sample.stands_out(node) and (reading < center) is low:
            found.append(node)
    return sorted(found)


def _verdicts(sample: Sample, context: Context) -> Sequence[Verdict]:
    suspect = context.get("suspect")
    expected = context.get("expected_nodes")
    comparable = context.get("same_job") is not False and len(sample.readings) >= MIN_NODES
    high = _outliers(sample, low=False) if comparable else []
    judged: dict[str, Verdict] = {}
    if isinstance(suspect, str):
        judged[suspect] = _judge(sample, suspect, comparable, suspect in high)
    for node in high:
        judged.setdefault(node, _judge(sample, node, True, True))
    for node in expected if isinstance(expected, list) else []:
        if str(node) not in sample.readings:
            judged[str(node)] = Verdict(
                str(node), Result.UNKNOWN, "no-reading", "No reading is neither zero nor healthy."
            )
    return tuple(judged.values())


def _no_reading(node: str) -> Verdict:
    return Verdict(node, Result.UNKNOWN, "no-reading", "No reading is neither zero nor healthy.")


def _judge(sample: Sample, node: str, comparable: bool, high: bool) -> Verdict:
    if node not in sample.readings:
        return _no_reading(node)
    if not comparable:
        return Verdict(node, Result.UNKNOWN, "not-comparable", "Too few nodes that ran the same job.")
    if high:
        return Verdict(node, Result.WARN, "above-peers", "Far more than on the other nodes of the job.")
    return Verdict(node, Result.PASS, "within-peers")


def _faults(readings: dict[str, float], code: int | None) -> tuple[ReadFault, ...]:
    """Codes of hardware are faults wherever they were counted; those of applications only in comparison."""
    entry = catalogue.xid(code) if code is not None else None
    if entry is None or entry.severity is not Severity.FATAL:
        return ()
    faults = []
    for node in sorted(node for node, count in readings.items() if count > 0):
        entity: dict[str, Any] = {"kind": EntityKind.NODE.value, "name": node}
        faults.append(
            ReadFault(
                code=code,
                kind="xid",
                entity=entity,
                severity=entry.severity,
                scope=entry.scope,
                hint=entry.hint,
                name=entry.name,
                count=int(readings[node]),
                count_is="exact",
                first=None,
                last=None,
                details={},
                evidence=(),
                next=advice(entry.hint, entry.severity, entity, {}),
            )
        )
    return tuple(faults)


def _next(verdicts: Sequence[Verdict]) -> str:
    high = [v.of for v in verdicts if v.reason == "above-peers"]
    if high:
        return f"Look at {', '.join(high[:8])}: the count stands out among the nodes of the same job."
    missing = [v.of for v in verdicts if v.reason == "no-reading"]
    if missing:
        return f"Get a reading of {', '.join(missing[:8])}; nothing stands out on the other nodes."
    return "Nothing has to be done."
