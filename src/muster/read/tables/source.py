"""Small structured inputs (YAML, JSON, CSV) as plain values, with errors that name the file."""

from __future__ import annotations

import csv
import io
from typing import Any

from muster.errors import BadInputError
from muster.read.source import MAX_TABLE_BYTES, Input

MAX_ROWS = 100_000


def content(item: Input) -> str:
    """The whole text of an input. Raises BadInputError when it is too large for a table."""
    data = bytearray()
    for chunk in item.chunks():
        data += chunk
        if len(data) > MAX_TABLE_BYTES:
            raise BadInputError(f"{item.name} is larger than {MAX_TABLE_BYTES // 2**20} MiB; give a smaller table.")
    return bytes(data).decode("utf-8", "replace").removeprefix("\ufeff")


def mapping(item: Input) -> dict[str, Any]:
    """An input that holds one YAML (or JSON) mapping. Raises BadInputError."""
    from muster import yamlio  # a log needs no YAML, and importing it costs more than reading a short log

    loaded = yamlio.loads(content(item), item.name)
    if not isinstance(loaded, dict):
        raise BadInputError(f"{item.name} must hold a mapping of names to values.")
    return {str(key): value for key, value in loaded.items()}


def rows(item: Input, value: Any, key: str) -> list[dict[str, Any]]:
    """A list of mappings under `key`. Raises BadInputError when it is something else."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadInputError(f"{key} in {item.name} must be a list of mappings.")
    if len(value) > MAX_ROWS:
        raise BadInputError(f"{key} in {item.name} has more than {MAX_ROWS} rows; split the file.")
    return [{str(name): cell for name, cell in row.items()} for row in value]


def csv_rows(item: Input) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a CSV input (comma, semicolon or tab; `#` lines are comments). Raises BadInputError."""
    text = "\n".join(line for line in content(item).splitlines() if line.strip() and not line.startswith("#"))
    separator = max(",;\t", key=text.partition("\n")[0].count)
    try:
        table = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=separator)]
    except csv.Error as error:
        raise BadInputError(f"{item.name} is not a CSV table: {error}.") from error
    if len(table) > MAX_ROWS:
        raise BadInputError(f"{item.name} has more than {MAX_ROWS} rows; split the file.")
    header = table[0] if table else []
    if len(set(header)) != len(header):
        raise BadInputError(f"{item.name} names a column twice; rename one.")
    return header, [dict(zip(header, row, strict=False)) for row in table[1:]]


def number(value: Any) -> float | None:
    """A finite number, or None: not told (`N/A`, empty, text)."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def tidy(value: float) -> int | float:
    """Whole numbers as int, for people and for JSON."""
    return int(value) if value == int(value) and abs(value) < 2**53 else value
