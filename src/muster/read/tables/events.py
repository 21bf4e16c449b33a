"""A list of XID events of one or more nodes, with the counters that did or did not move at the same time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from muster.errors import BadInputError
from muster.read import pci
from muster.read.kernel import escalate, incidents, joins, xid
from muster.read.kernel.aggregate import Collector
from muster.read.kernel.finding import Finding
from muster.read.kernel.logs import alerts, next_step, read_fault
from muster.read.kernel.verdicts import gpu_verdicts
from muster.read.moment import Basis, Moment, boot, daytime, unix
from muster.read.report import Report, Result, Value, Verdict
from muster.read.source import Context, Input, printable, text_lines
from muster.read.tables.source import csv_rows, mapping, number, rows, tidy

KIND = "kernel-log"
COUNTERS_PREFIX = "counter_change"
_TIME = ("t", "time", "timestamp", "at")
_NODE = ("node", "host", "hostname")
_ADDRESS = ("pci", "bdf", "pci_address", "address", "gpu")
_CODE = ("xid", "code")
_DAYTIME = re.compile(r"([0-2][0-9]:[0-5][0-9]:[0-6][0-9])(?:[.,]([0-9]{1,9}))?")
_TEXT = ("text", "message", "detail")


def score(sample: bytes) -> float:
    """1 for a YAML mapping with a key `events`, or CSV with a column of codes and one of PCI addresses."""
    lines = text_lines(sample)
    if any(line.startswith(("events:", '"events"', '{"events"')) for line in lines):
        return 1.0
    return 1.0 if _is_csv(lines) else 0.0


def _is_csv(lines: Sequence[str]) -> bool:
    """The first line names a column of codes and one of PCI addresses."""
    header = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    cells = [cell.strip().strip('"').lower() for cell in re.split(r"[,;\t]", header)]
    return any(cell in _CODE for cell in cells) and any(cell in _ADDRESS for cell in cells)


def _table(item: Input) -> dict[str, Any]:
    if not _is_csv(text_lines(item.sample)):
        return mapping(item)
    _, table = csv_rows(item)
    events: list[dict[str, Any]] = []
    for row in table:
        cells: dict[str, Any] = {name.lower(): cell for name, cell in row.items() if cell}
        for name in _CODE:
            if str(cells.get(name, "")).isdecimal():
                cells[name] = int(cells[name])
        events.append(cells)
    return {"events": events}


def parse(inputs: Sequence[Input], context: Context) -> Report:  # noqa: ARG001 - the signature of a format
    """Read event lists. Raises BadInputError naming the event that cannot be read."""
    collector = Collector()
    counters: list[dict[str, Any]] = []
    drivers: list[str] = []
    for item in inputs:
        table = _table(item)
        for number_, event in enumerate(rows(item, table.get("events"), "events"), start=1):
            collector.add(_finding(item, number_, event), item.name)
        for key in table:
            if key.startswith(COUNTERS_PREFIX):
                counters += rows(item, table[key], key)
        if isinstance(table.get("driver"), str):
            drivers.append(table["driver"])
    joins.join(collector, {})
    escalate.escalate(collector)
    found = incidents.find(collector)
    tracked = list(collector.listed())
    values = {"xid_events": Value(collector.xid_lines), "alerts": Value(alerts(tracked, found))}
    if drivers:
        values["driver_version"] = Value(drivers[-1])
    verdicts = list(gpu_verdicts(tracked, found))
    change = _change(counters)
    if change is not None:
        values["ecc_change"] = Value(tidy(change))
        verdicts.append(
            Verdict("gpu-memory", Result.PASS, "no-ecc-or-remap-change")
            if change == 0
            else Verdict("gpu-memory", Result.WARN, "ecc-or-remap-change", "Memory error counters moved.")
        )
    faults = tuple(read_fault(item) for item in tracked)
    return Report(
        kind=KIND,
        files=tuple(item.name for item in inputs),
        truncated=False,
        faults=faults,
        incidents=found,
        verdicts=tuple(verdicts),
        values=values,
        next=next_step(faults, found),
    )


def _first(event: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((event[name] for name in names if event.get(name) is not None), None)


def _finding(item: Input, position: int, event: Mapping[str, Any]) -> Finding:
    code, address = _first(event, _CODE), _first(event, _ADDRESS)
    where = f"Event {position} of {item.name}"
    if not isinstance(code, int) or isinstance(code, bool) or not 0 < code < 100000:
        raise BadInputError(f"{where} needs a whole number under xid.")
    normal = pci.normalise(address) if isinstance(address, str) else None
    if normal is None:
        raise BadInputError(f"{where} needs a PCI address such as 0000:9b:00.0 under pci.")
    text = _first(event, _TEXT)
    line = f"NVRM: Xid (PCI:{normal}): {code}" + (f", {text}" if isinstance(text, str) and text else "")
    detection = xid.detect(line, False, None)
    assert detection is not None  # noqa: S101 - the line was built here
    moment = _moment(_first(event, _TIME))
    node = _first(event, _NODE)
    return Finding(
        detection=detection,
        first=moment,
        last=moment,
        lines=((position, printable(line, 400)),),
        host=str(node)[:255] if node is not None else None,
    )


def _moment(value: Any) -> Moment | None:
    """A time of day, an ISO date or a number (seconds since boot, or a Unix time when it is large)."""
    seconds = number(value)
    if seconds is not None:
        return unix(seconds) if seconds > 1e9 else boot(seconds)
    if not isinstance(value, str):
        return None
    if clock := _DAYTIME.fullmatch(value):
        return daytime(clock[1], clock[2])
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        return Moment(Basis.LOCAL, (at - datetime(1970, 1, 1)).total_seconds(), value)  # noqa: DTZ001 - no zone is told
    return Moment(Basis.UTC, at.timestamp(), value)


def _change(counters: Sequence[Mapping[str, Any]]) -> float | None:
    """Sum of all counter changes; None when there is no counter."""
    numbers = [n for row in counters for name, cell in row.items() if name not in _NODE for n in [number(cell)]]
    known = [abs(n) for n in numbers if n is not None]
    return sum(known) if known and len(known) == len(numbers) else None
