"""Bandwidth per version of a library or driver, on the same hosts: does it break at a version?

A break at a version that stays is a property of the software; no node is blamed for it. A baseline holds for its own
version only, so no version is judged by another's figure, only the place of the break is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, stdev

from muster.errors import BadInputError
from muster.read.bandwidth.detect import TABLE_KIND, version_columns
from muster.read.report import Incident, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import csv_rows, number
from muster.resources.fault import Hint, Scope, Severity

BREAK = 1.15
"""The levels on both sides of a break differ by this factor at least; releases differ by a few percent anyway."""
_PACKAGE = re.compile(r"(v?\d+(?:\.\d+)*)(?:[-+].*)?")


@dataclass(frozen=True)
class Point:
    """Median bandwidth of one version, in GB/s."""

    version: str
    gb_s: float


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Find the break in one table. Raises BadInputError when it has no usable rows."""
    if len(inputs) != 1:
        raise BadInputError("Give one table of versions at a time.")
    item = inputs[0]
    header, rows = csv_rows(item)
    columns = version_columns([name.lower() for name in header])
    if columns is None:
        raise BadInputError(f"{item.name} needs a column of versions (nccl_version) and one of GB/s (busbw_gb_s).")
    version_at, rate_at, what = columns
    points, missing = _points(item, rows, header[version_at], header[rate_at])
    same_hosts = context.get("same_hosts")
    if same_hosts is not None and not isinstance(same_hosts, bool):
        raise BadInputError("same_hosts in the context must be true or false.")
    low = slow_versions(points)
    incident = None if same_hosts is False else _incident(what, points, low)
    verdicts = [*_verdicts(what, points, low, same_hosts is not False)]
    verdicts += [Verdict(f"{what} {version}", Result.UNKNOWN, "no-reading") for version in missing]
    return Report(
        kind=TABLE_KIND,
        files=(item.name,),
        truncated=False,
        incidents=(incident,) if incident is not None else (),
        verdicts=tuple(verdicts),
        values=_values(points, low),
        next=_next(what, points, low, verdicts),
    )


def order(version: str) -> tuple[tuple[int, str], ...]:
    """Sorts versions by number: 2.9 comes before 2.10."""
    return tuple(
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d{1,18}|[A-Za-z]+", version)
    )


def slow_versions(points: Sequence[Point]) -> tuple[int, int] | None:
    """First and last position of the slow versions, when these are one stretch below the others by BREAK."""
    ranked = sorted(points, key=lambda point: point.gb_s)
    gaps = [(above.gb_s / below.gb_s, above.gb_s) for below, above in pairwise(ranked) if below.gb_s > 0]
    if not gaps:
        return None
    factor, least_good = max(gaps)
    if factor < BREAK:
        return None
    low = [position for position, point in enumerate(points) if point.gb_s < least_good]
    return (low[0], low[-1]) if low[-1] - low[0] + 1 == len(low) else None


def _points(item: Input, rows: Sequence[dict[str, str]], version: str, rate: str) -> tuple[list[Point], list[str]]:
    """(points in order of version, versions without a reading)."""
    readings: dict[str, list[float]] = {}
    for position, row in enumerate(rows, start=1):
        text = row.get(version, "").strip()
        if not any(character.isdecimal() for character in text) or len(text) > 100:
            raise BadInputError(f"Row {position} of {item.name} names no version; write it as 2.21.5.")
        match = _PACKAGE.fullmatch(text)
        found = readings.setdefault(match[1] if match else text, [])
        value = number(row.get(rate))
        if value is not None and value > 0:
            found.append(value)
    if not readings:
        raise BadInputError(f"{item.name} has no row; give one line for each version.")
    ordered = sorted(readings, key=order)
    points = [Point(name, median(readings[name])) for name in ordered if readings[name]]
    return points, [name for name in ordered if not readings[name]]


def _values(points: Sequence[Point], low: tuple[int, int] | None) -> dict[str, Value]:
    values = {
        "versions_in_order": Value([point.version for point in points]),
        "busbw": Value([point.gb_s for point in points], "GB/s"),
        "bad_nodes": Value(0),
    }
    if low is None:
        if len(points) > 1:
            values["spread"] = Value(_spread([point.gb_s for point in points]), "ratio")
        return values
    first, last = low
    slow = [point.gb_s for point in points[first : last + 1]]
    if first > 0:
        before, after = points[first - 1], points[first]
        values["change_point"] = Value({"from": before.version, "to": after.version})
        values["before"] = Value(before.gb_s, "GB/s")
        values["after"] = Value(after.gb_s, "GB/s")
        values["drop_factor"] = Value(round(before.gb_s / after.gb_s, 2))
    if last + 1 < len(points):
        values["recovery_point"] = Value({"from": points[last].version, "to": points[last + 1].version})
    if len(slow) > 1:
        values["spread_after"] = Value(_spread(slow), "ratio")
    return values


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of the sample over its mean."""
    return round(stdev(values) / (sum(values) / len(values)), 4)


def _incident(what: str, points: Sequence[Point], low: tuple[int, int] | None) -> Incident | None:
    if low is None or low[0] == 0:
        return None
    return Incident(
        root="library-version-change" if what in ("nccl", "library", "rccl") else f"{what}-version-change",
        members=(),
        severity=Severity.WARNING,
        scope=Scope.SOFTWARE,
        hint=Hint.INSPECT,
        fields={
            "changed": {"what": what, "from": points[low[0] - 1].version, "to": points[low[0]].version},
            "suspect": "transport-selection",
            "confidence": "low",
        },
    )


def _verdicts(what: str, points: Sequence[Point], low: tuple[int, int] | None, same_hosts: bool) -> list[Verdict]:
    if not points:
        return []
    if low is None:
        ranked = sorted(point.gb_s for point in points)
        if len(points) > 1 and ranked[-1] < BREAK * ranked[0]:
            return [Verdict(what, Result.PASS, "no-change", "The versions differ by less than they do anyway.")]
        return [Verdict(what, Result.UNKNOWN, "no-clear-break", "The figures do not follow the order of versions.")]
    first, last = low
    of = f"{what} {points[first].version}"
    if last + 1 == len(points) and first > 0:
        of += " and later"
    elif first == 0 and last > 0:
        of = f"{what} {points[last].version} and earlier"
    elif last > first:
        of += f" to {points[last].version}"
    if not same_hosts:
        return [Verdict(of, Result.UNKNOWN, "not-comparable", "The versions ran on different hosts.")]
    return [Verdict(of, Result.FAIL, "bandwidth", "Slow on every reading of these versions, on the same hosts.")]


def _next(what: str, points: Sequence[Point], low: tuple[int, int] | None, verdicts: Sequence[Verdict]) -> str:
    if low is None or not verdicts or verdicts[0].result is not Result.FAIL:
        return verdicts[0].message if verdicts and verdicts[0].message else "No version can be told from another."
    if low[0] == 0:
        return f"Use {what} {points[low[1] + 1].version} or later; no node is at fault."
    good, bad = points[low[0] - 1].version, points[low[0]].version
    return f"Compare the transports that {what} {good} and {bad} choose (NCCL_DEBUG=INFO); no node is at fault."
