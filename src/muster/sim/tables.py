"""Tables (`meta.k8s.io/v1 Table`): what `kubectl get` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.json_path import JsonPathError, compile_path
from muster.sim.table_cells import AGE, NAME, UNKNOWN, Column, age
from muster.sim.table_columns import COLUMNS


def table_of(
    kind: Kind, objects: Iterable[Object], metadata: dict[str, Any], now: datetime, include: str = "Metadata"
) -> Object:
    """A Table of `objects`. `include`: what each row carries besides its cells: Metadata, Object or None."""
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


def _row(columns: tuple[Column, ...], obj: Object, now: datetime, include: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    row["object"] = {"Object": obj, "None": None}.get(include, partial_metadata(obj))
    return row


def partial_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind: its own, the printer columns of a custom resource, or name and age."""
    if kind.custom is not None:
        extra = tuple(_printer_column(column) for column in kind.custom.columns)
        return (NAME, *(extra or (AGE,)))
    return COLUMNS.get(kind.name, (NAME, AGE))


def _printer_column(column: Any) -> Column:
    """A column of a custom resource: the first value at its path; null where that is not of the column's type."""
    find: Callable[[Object], list[Any]]
    try:
        find = compile_path(column.json_path)
    except JsonPathError:
        find = _unsupported

    def cell(obj: Object, now: datetime) -> Any:
        values = find(obj)
        return _typed(column.type, values[0], now) if values else None

    return Column(column.name, cell, column.type, column.priority, column.format, column.description)


def _unsupported(_: Object) -> list[Any]:
    """For a path beyond what the simulator reads: the cell says so, where it can."""
    return ["<unsupported path>"]


def _typed(type_: str, value: Any, now: datetime) -> Any:
    truth, number = isinstance(value, bool), isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case "string":
            return _text(value)
        case "integer":
            return int(value) if number else None
        case "number":
            return float(value) if number else None
        case "boolean":
            return value if truth else None
        case "date" if isinstance(value, str):
            shown = age(value, now)
            return "<invalid>" if shown == UNKNOWN else shown
        case _:
            return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
