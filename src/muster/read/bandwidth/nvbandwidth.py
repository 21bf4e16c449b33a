"""Text and JSON of nvbandwidth (0.2 to 0.10): one matrix per test case, in GB/s, or in ns for latency.

The tool has no pass or fail of its own. A device is compared with a floor that is told, else with its neighbours in
the same matrix: all cells of one test case measure alike paths, so one far below the others stands out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from muster.errors import BadInputError
from muster.read.bandwidth.detect import COPIES_KIND
from muster.read.bandwidth.expectation import expectation
from muster.read.bandwidth.launcher import strip
from muster.read.bandwidth.rows import figure
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import content
from muster.resources.fault import Hint, Scope, Severity

BELOW_PEERS = 0.8
"""A device whose best cell is below this share of the median of the matrix stands out."""
MIN_PEERS = 3
_MAX_DEVICES = 1024
_MAX_CASES = 500
_RUNNING = re.compile(r"Running (\S{1,100}?)\.?$")
_HEADER = re.compile(r"\s*\d{1,4}(?:\s+\d{1,4})*\s*$")
_SUM = re.compile(r"SUM (\S{1,100}) ([0-9.eE+-]{1,30}|-?nan|-?inf)$")
_VERSIONS = (
    ("nvbandwidth_version", re.compile(r"nvbandwidth Version: v?(\S{1,40})")),
    ("cuda_runtime_version", re.compile(r"CUDA Runtime Version: (\d{1,9}(?:\.\d{1,3})?)")),
    ("driver_version", re.compile(r"^Driver Version: (\S{1,40})")),
)


@dataclass
class Case:
    """One test case. `matrix` rows by row device; None is a cell that does not apply."""

    name: str
    status: str = "cut"
    """`done`, `waived`, `error`, or `cut` while nothing says how it ended."""
    unit: str = "GB/s"
    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    matrix: list[list[float | None]] = field(default_factory=list)
    total: float | None = None
    message: str = ""

    @property
    def cells(self) -> list[float]:
        return [cell for row in self.matrix for cell in row if cell is not None]

    def of_device(self, device: int) -> list[float]:
        """All cells of a device's row and column, without those of the host."""
        if len(self.rows) == 1 and self.rows == [0] and len(self.columns) > 1:
            return [
                c
                for c, column in zip(self.matrix[0], self.columns, strict=False)
                if column == device and c is not None
            ]
        return [
            cell
            for row, cells in zip(self.rows, self.matrix, strict=False)
            for column, cell in zip(self.columns, cells, strict=False)
            if cell is not None and device in (row, column)
        ]


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read one or more outputs. Raises BadInputError for a context that cannot be used."""
    verdicts: list[Verdict] = []
    faults: list[ReadFault] = []
    values: dict[str, Value] = {}
    truncated = False
    for item in inputs:
        versions, cases, broken = parse_text(content(item))
        truncated = truncated or broken or any(case.status == "cut" for case in cases)
        suffix = f" of {item.name}" if len(inputs) > 1 else ""
        floors = _floors(context, item.name)
        values |= {f"{name}{suffix}": Value(value) for name, value in versions.items()}
        values |= _values(cases, suffix)
        judged = [_judge(case, floors.get(case.name, floors.get(""))) for case in cases]
        verdicts += [Verdict(v.of + suffix, v.result, v.reason, v.message) for v, _ in judged]
        faults += [fault for _, found in judged for fault in found]
        if broken or not cases:
            verdicts.append(Verdict(f"run{suffix}", Result.INVALID, "truncated-output" if broken else "no-rows"))
    return Report(
        kind=COPIES_KIND,
        files=tuple(item.name for item in inputs),
        truncated=truncated,
        faults=tuple(faults),
        verdicts=tuple(verdicts),
        values=values,
        next=_next(faults, verdicts),
    )


def parse_text(text: str) -> tuple[dict[str, str], tuple[Case, ...], bool]:
    """(versions, test cases, the text breaks off inside JSON)."""
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    versions: dict[str, str] = {}
    cases: list[Case] = []
    described = False
    for raw in text.split("\n"):
        line = strip(raw).text.rstrip()
        for name, pattern in _VERSIONS:
            if name not in versions and (match := pattern.search(line)):
                versions[name] = match[1]
        if match := _RUNNING.match(line):
            if len(cases) >= _MAX_CASES:
                raise BadInputError(f"The output has more than {_MAX_CASES} test cases; split the file.")
            cases.append(Case(match[1]))
            described = False
        elif cases and line:
            described = _case_line(cases[-1], line, described)
    return versions, tuple(cases), False


def _case_line(case: Case, line: str, described: bool) -> bool:
    """One line below `Running`; the answer is whether the matrix may follow."""
    if match := _SUM.match(line):
        total = figure(match[2])
        if match[1] == case.name and total is not None:
            case.total, case.status = total.value, "done"
        return False
    lowered = line.lower()
    if lowered.startswith(("waived", "waiving")):
        case.status, case.message = "waived", line[:200]
    elif lowered.startswith(("error", "[cuda_")) or "cuda_error" in lowered:
        case.status, case.message = "error", line[:200]
    elif "(gb/s)" in lowered or "(ns)" in lowered:
        case.unit = "ns" if "(ns)" in lowered else "GB/s"
        return True
    elif described and not case.columns and _HEADER.match(line):
        case.columns = [int(cell) for cell in line.split()[:_MAX_DEVICES]]
    elif described and case.columns:
        _matrix_row(case, line)
    return described


def _matrix_row(case: Case, line: str) -> None:
    words = line.split(None, _MAX_DEVICES + 1)
    if (
        not (words[0].isascii() and words[0].isdigit())
        or len(words) != len(case.columns) + 1
        or len(case.rows) >= _MAX_DEVICES
    ):
        return
    cells = [figure(word) for word in words[1:]]
    if any(cell is None and word != "N/A" for cell, word in zip(cells, words[1:], strict=True)):
        return
    case.rows.append(int(words[0]))
    case.matrix.append([cell.value if cell is not None else None for cell in cells])


def _parse_json(text: str) -> tuple[dict[str, str], tuple[Case, ...], bool]:
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return {}, (), True
    root = loaded.get("nvbandwidth", loaded) if isinstance(loaded, dict) else {}
    root = root if isinstance(root, dict) else {}
    names = {"version": "nvbandwidth_version", "CUDA Runtime Version": "cuda_runtime_version"}
    names["Driver Version"] = "driver_version"
    versions = {name: str(root[key])[:40].removeprefix("v") for key, name in names.items() if key in root}
    listed = root.get("testcases")
    cases = [
        _json_case(item)
        for item in (listed if isinstance(listed, list) else [])[:_MAX_CASES]
        if isinstance(item, dict)
    ]
    if root.get("error"):
        cases.append(Case("run", "error", message=str(root["error"])[:200]))
    return versions, tuple(cases), False


def _json_case(item: Mapping[str, Any]) -> Case:
    status = str(item.get("status", "")).lower()
    known = {"passed": "done", "waived": "waived", "error": "error", "not found": "error"}
    case = Case(str(item.get("name", ""))[:100], known.get(status, "cut"), message=str(item.get("error", ""))[:200])
    if "latency" in case.name or "(ns)" in str(item.get("bandwidth_description", "")):
        case.unit = "ns"
    listed = item.get("bandwidth_matrix")
    for cells in (listed if isinstance(listed, list) else [])[:_MAX_DEVICES]:
        row = cells[:_MAX_DEVICES] if isinstance(cells, list) else []
        found = [figure(str(cell)) for cell in row]
        case.matrix.append([cell.value if cell is not None else None for cell in found])
    case.rows = list(range(len(case.matrix)))
    case.columns = list(range(max(map(len, case.matrix), default=0)))
    total = item.get("sum")
    case.total = float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None
    if case.status == "done" and not case.matrix:
        case.status = "cut"
    return case


def _floors(context: Context, file: str) -> dict[str, float]:
    """Floors in GB/s per test case; "" holds for all others."""
    told = context.get("floors")
    floors: dict[str, float] = {}
    if told is not None and not isinstance(told, dict):
        raise BadInputError("floors in the context must map test cases to GB/s.")
    for name, value in (told or {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise BadInputError(f"The floor of {name!s:.60} in the context must be a number above zero.")
        floors[str(name)] = float(value)
    general = expectation(context, file).floor_gb_s
    return floors | ({"": general} if general is not None else {})


def _judge(case: Case, floor: float | None) -> tuple[Verdict, list[ReadFault]]:
    cells = case.cells
    if case.status == "waived":
        return Verdict(case.name, Result.UNKNOWN, "waived", case.message), []
    if case.status == "error":
        return Verdict(case.name, Result.INVALID, "harness", case.message), []
    if case.status == "cut":
        return Verdict(case.name, Result.UNKNOWN, "truncated-output", "The test case has no end."), []
    if not cells or not all(map(math.isfinite, cells)) or min(cells) <= 0:
        return Verdict(case.name, Result.INVALID, "not-a-number" if cells else "no-rows"), []
    if case.unit == "ns":
        return Verdict(case.name, Result.UNKNOWN, "no-floor", "A latency; nothing says what it may be."), []
    slow = _slow_devices(case, floor)
    if floor is not None and min(cells) < floor:
        message = f"{min(cells):g} GB/s, floor {floor:g} GB/s."
        return Verdict(case.name, Result.FAIL, "bandwidth", message), [_fault(case, d, floor) for d in slow]
    if slow:
        return Verdict(case.name, Result.WARN, "below-peers"), [_fault(case, device, None) for device in slow]
    if floor is None:
        return Verdict(case.name, Result.UNKNOWN, "no-floor", "All devices are alike; give floors to judge them."), []
    return Verdict(case.name, Result.PASS, "bandwidth"), []


def _slow_devices(case: Case, floor: float | None) -> list[int]:
    """Devices whose every cell is slow, while those of most others are not."""
    devices = sorted({*case.columns, *(case.rows if len(case.rows) > 1 else ())})
    best = {device: max(found) for device in devices if (found := case.of_device(device))}
    if len(best) < MIN_PEERS:
        return [device for device, value in best.items() if floor is not None and value < floor]
    least = floor if floor is not None else BELOW_PEERS * median(best.values())
    slow = [device for device, value in best.items() if value < least]
    return slow if floor is not None or 2 * len(slow) < len(best) else []


def _fault(case: Case, device: int, floor: float | None) -> ReadFault:
    value = max(case.of_device(device))
    others = [cell for cell in case.cells if cell > value]
    return ReadFault(
        code="gpu-bandwidth-low",
        kind="nvbandwidth",
        entity={"kind": "gpu", "index": device, "pci": None},
        severity=Severity.WARNING,
        scope=Scope.GPU,
        hint=Hint.INSPECT,
        name="copies slower than its peers" if floor is None else "copies slower than the floor",
        count=1,
        count_is="exact",
        first=None,
        last=None,
        details={
            "test": case.name,
            "measured": {"value": value, "unit": "GB/s"},
            "reference": {"value": floor if floor is not None else median(others or [value]), "unit": "GB/s"},
        },
        evidence=(),
        next=f"Look at the PCIe link and the NVLinks of GPU {device}; run the test again on an idle machine first.",
        confidence="low" if floor is None else None,
    )


def _values(cases: Sequence[Case], suffix: str) -> dict[str, Value]:
    values = {f"test_cases{suffix}": Value([case.name for case in cases])}
    for case in cases:
        cells = [cell for cell in case.cells if math.isfinite(cell)]
        if cells:
            more = {"min": min(cells), "max": max(cells), "sum": case.total if case.total == case.total else None}
            values[f"{case.name}{suffix}"] = Value(
                round(sum(cells) / len(cells), 4), case.unit, {**more, "of": "mean"}
            )
    return values


def _next(faults: Sequence[ReadFault], verdicts: Sequence[Verdict]) -> str:
    if faults:
        return faults[0].next
    for result in (Result.FAIL, Result.INVALID, Result.UNKNOWN):
        found = next((v for v in verdicts if v.result is result and v.reason != "waived"), None)
        if found is not None:
            return f"{found.of}: {found.message or found.reason}"
    return "Nothing has to be done."
