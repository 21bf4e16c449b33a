"""`nvidia-smi --query-gpu=... --format=csv[,noheader][,nounits]` and `--query-remapped-rows=...`.

Without a header the names of the columns come from the command line where the text shows it, else from `query` in the
context. Columns that nobody names are not guessed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from muster.read.smi import names
from muster.read.smi.document import MAX_GPUS, Document, Line, Shape, cell

COMMAND = re.compile(r"--query-(?:gpu|remapped-rows|retired-pages)[= ](?P<fields>[A-Za-z0-9_.,-]{3,2000})")
_QUERY_NAMES = ("index", "timestamp", "name", "uuid", "pci.bus_id", "count", "driver_version", "pstate", "gpu_name")
_UNIT = re.compile(r"\s{1,4}\[[^\]]{1,20}\]\s{0,4}$")
_DOTTED = re.compile(r"[a-z0-9_]{2,40}(?:\.[a-z0-9_]{1,40}){1,5}$")


def is_header(text: str) -> bool:
    """The line names columns of a query."""
    if ":" in text:
        return False
    titles = [_title(part) for part in text.split(",")]
    known = sum(1 for title in titles if names.of_column(title) is not None)
    named = sum(1 for title in titles if title in _QUERY_NAMES or _DOTTED.match(title))
    return bool(known) and known + named >= len(titles)


def _title(text: str) -> str:
    return _UNIT.sub("", text).strip().casefold()


def parse(lines: Sequence[Line], file: str, query: Sequence[str] = ()) -> Document:
    """Read the rows. `query`: names of the columns for an output without header."""
    document = Document(Shape.CSV)
    columns: list[str] = list(query)
    shown = bool(query)
    for line in lines:
        text = line.text.strip()
        if (match := COMMAND.search(text)) is not None:
            columns, shown = match["fields"].strip(",").split(","), True
            continue
        if not text or text.startswith(("#", "$")):
            continue
        if is_header(text):
            columns, shown = [part.strip() for part in text.split(",")], True
            continue
        row = next(csv.reader([text], skipinitialspace=True), [])
        if (len(row) < 2 and len(columns) > 1) or not row:
            continue
        if not shown:
            document.unnamed_columns = True
            continue
        if len(document.gpus) >= MAX_GPUS:
            break
        if len(row) < len(columns):
            document.complete = False
        _add(document, columns, row, line, file)
    return document


def _add(document: Document, columns: Sequence[str], row: Sequence[str], line: Line, file: str) -> None:
    found = {}
    for title, value in zip(columns, row, strict=False):
        field = names.of_column(title)
        if field in ("driver_version", "attached_gpus", "timestamp"):
            document.node.setdefault(field, cell(value, line, file))
        elif field is not None:
            found[field] = cell(value, line, file)
    if found:
        document.gpus.append(found)
