"""`dcgmi dmon` and `dcgmi discovery -l`: fields by their short names or numbers, the last sample of each GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from muster.read.smi.cells import Cell
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell
from muster.read.smi.judge import ACTION_NUMBERS

_ENTITY = re.compile(r"\s{0,8}(?P<group>GPU|Switch|NvSwitch|CPU|GPU-I)\s{1,4}(?P<id>\d{1,4})\s{1,40}(?P<rest>\S.*)$")
_EVENTS = re.compile(r"\s-e\s{0,4}(?P<ids>\d{1,5}(?:,\d{1,5}){0,100})")

_FIELDS: Mapping[str, str] = {
    "XIDER": "last_xid",
    "XID": "last_xid",
    "TMPTR": "temperature",
    "GPUTL": "utilization",
    "SBTVT": "correctable_total.volatile",
    "SBVTL": "correctable_total.volatile",
    "DBVTL": "uncorrectable_total.volatile",
    "DBTVT": "uncorrectable_total.volatile",
    "RMUNC": "remapped_uncorrectable",
    "RMCOR": "remapped_correctable",
    "RMFAL": "remap_failure",
    "RMPND": "remap_pending",
    "URMPS": "remapped_uncorrectable",
    "CRMPS": "remapped_correctable",
    "RRF": "remap_failure",
    "RRP": "remap_pending",
}
BY_NUMBER: Mapping[int, str] = {
    112: "slowdown_mask",
    150: "temperature",
    203: "utilization",
    230: "last_xid",
    310: "correctable_total.volatile",
    311: "uncorrectable_total.volatile",
    392: "retired_pending",
    393: "remapped_uncorrectable",
    394: "remapped_correctable",
    395: "remap_failure",
    396: "remap_pending",
}
"""Field numbers of DCGM (dcgm_fields.h)."""
_WHAT = r"\|\s{1,4}(?P<what>Name|PCI Bus ID|Device UUID):\s{1,4}(?P<value>\S.{0,100}?)\s{0,60}\|"
_DISCOVERED = re.compile(r"\|\s{1,6}(?P<id>\d{1,4})\s{1,6}" + _WHAT)
_DISCOVERED_MORE = re.compile(r"\|\s{1,14}" + _WHAT)
_FOUND = re.compile(r"\s{0,8}(?P<count>\d{1,4}) GPUs? found\.", re.IGNORECASE)
_DISCOVERY_FIELDS = {"Name": "name", "PCI Bus ID": "pci", "Device UUID": "uuid"}


def parse_monitor(lines: Sequence[Line], file: str) -> Document:
    """Samples of fields. A field whose name is not known is left out; numbers of the command line help."""
    document = Document(Shape.MONITOR)
    columns: list[str | None] = []
    wanted: list[str | None] = []
    samples: dict[str, dict[str, Cell]] = {}
    for line in lines:
        if (events := _EVENTS.search(line.text)) is not None and "dmon" in line.text:
            wanted = [BY_NUMBER.get(int(number)) for number in events["ids"].split(",")]
            continue
        if "Entity" in line.text and line.text.lstrip().startswith("#"):
            titles = line.text.lstrip(" #").split()[1:]
            columns = [_FIELDS.get(title.upper()) for title in titles]
            if len(wanted) == len(columns):
                columns = [named or asked for named, asked in zip(columns, wanted, strict=True)]
            continue
        match = _ENTITY.match(line.text)
        if match is None or match["group"] != "GPU":
            continue
        parts = match["rest"].split()
        document.complete = len(parts) >= len(columns) > 0
        if len(samples) >= MAX_GPUS and match["id"] not in samples:
            continue
        found = samples.setdefault(match["id"], {"index": cell(match["id"], line, file)})
        for name, value in zip(columns, parts, strict=False):
            if name is not None:
                found[name] = cell(value, line, file)
    document.gpus = list(samples.values())
    document.complete = document.complete and bool(samples)
    return document


def parse_discovery(lines: Sequence[Line], file: str) -> Document:
    """The list of GPUs. It is complete when it has as many as it counts."""
    document = Document(Shape.LIST)
    count: int | None = None
    current: dict[str, Cell] | None = None
    for line in lines:
        if (found := _FOUND.match(line.text)) is not None:
            count = int(found["count"])
            document.node["attached_gpus"] = cell(found["count"], line, file)
        elif (match := _DISCOVERED.search(line.text)) is not None and len(document.gpus) < MAX_GPUS:
            if count is not None and len(document.gpus) >= count:
                continue
            current = {"index": cell(match["id"], line, file)}
            current[_DISCOVERY_FIELDS[match["what"]]] = cell(match["value"], line, file)
            document.gpus.append(current)
        elif current is not None and (match := _DISCOVERED_MORE.search(line.text)) is not None:
            current[_DISCOVERY_FIELDS[match["what"]]] = cell(match["value"], line, file)
    document.complete = count is not None and len(document.gpus) == count
    return document


def action_word(number: float) -> str:
    """The recovery action behind a metric's value; an unknown number stays a number."""
    return ACTION_NUMBERS.get(int(number), f"action {int(number)}")
