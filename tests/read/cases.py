"""Reads the fixtures and compares a report with one expectation of a fixture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster import yamlio
from muster.read import formats
from muster.read.source import SAMPLE_BYTES, Context, Input

DATA = Path(__file__).parent / "data"


def as_input(name: str, data: bytes) -> Input:
    return Input(name, data[:SAMPLE_BYTES], lambda: iter([data]))


def read_text(text: str | bytes, kind: str | None = "kernel-log", context: Context | None = None) -> dict[str, Any]:
    """The report of one log as plain values."""
    data = text.encode() if isinstance(text, str) else text
    return formats.read([as_input("log", data)], context or {}, kind).plain()


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the case, one expectation)."""
    for folder in sorted((DATA / "cases").iterdir()):
        for position, entry in enumerate(yamlio.load(folder / "expect.yaml")["expect"]):
            yield f"{folder.name}-{position}", {"case": folder.name, **entry}


def report(case: str, only: str | None) -> dict[str, Any]:
    folder = DATA / "cases" / case
    context = yamlio.load(folder / "context.yaml") if (folder / "context.yaml").exists() else {}
    files = [folder / only] if only else sorted(folder.glob("input.*"))
    return formats.read([as_input(f.name, f.read_bytes()) for f in files], context).plain()


def holds(wanted: Any, got: Any, tolerance: float = 1e-6) -> bool:
    """`got` has at least what `wanted` has. Lists must be equal."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(holds(value, got.get(key), tolerance) for key, value in wanted.items())
    if isinstance(wanted, bool) or isinstance(got, bool) or wanted is None:
        return wanted is got
    if isinstance(wanted, int | float) and isinstance(got, int | float):
        return math.isclose(wanted, got, abs_tol=tolerance)
    return bool(wanted == got)


def check(entry: dict[str, Any], got: dict[str, Any]) -> str:
    """What is wrong with the report, empty when the expectation holds."""
    (name,) = set(entry) - {"case", "input"}
    wanted = entry[name]
    match name:
        case "fault" | "incident" | "verdict":
            found = any(holds(wanted, item) for item in got[f"{name}s"])
            return "" if found else f"no {name} {wanted}; there are {got[f'{name}s']}"
        case "no_fault" | "no_verdict":
            rows = got[f"{name[3:]}s"]
            return f"unwanted: {wanted}" if any(holds(wanted, item) for item in rows) else ""
        case "no_evidence":
            texts = [t for fault in got["faults"] for item in fault["evidence"] for t in item["text"]]
            return "".join(f"evidence holds {word!r}" for word in wanted for t in texts if word in t)
        case "count":
            rows = got["values"]["alerts"]["value"] if wanted["of"] == "alerts" else len(got[wanted["of"]])
            return "" if rows == wanted["equals"] else f"{rows} {wanted['of']}, not {wanted['equals']}"
        case "value":
            value = got["values"].get(wanted["name"])
            more = {key: item for key, item in wanted.items() if key not in ("name", "tolerance")}
            fine = value is not None and holds(more, value, wanted.get("tolerance", 1e-6))
            return "" if fine else f"{wanted['name']} is {value}, not {more}"
        case "kind" | "truncated":
            return "" if got[name] == wanted else f"{name} is {got[name]}"
        case _:
            return f"unknown expectation {name}"
