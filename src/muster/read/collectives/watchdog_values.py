"""Readings of watchdog lines under the names of the vocabulary; several ranks as {rank: value}."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.read.collectives.watchdog_lines import Progress, Timeout
from muster.read.report import Value


def timeout_values(timeouts: Sequence[Timeout], last_step: int | None) -> dict[str, Value]:
    """Readings of collectives that did not end in time. `last_step`: last step of the job, where told."""
    values: dict[str, Value] = {"op": Value(one(t.op for t in timeouts))}
    values["timeout"] = Value(one(t.timeout_ms for t in timeouts), "ms")
    values["ran_for"] = Value(by_rank(timeouts, "ran_ms"), "ms")
    seqs = by_rank(timeouts, "seq")
    values["seqnum"] = Value(seqs)
    for name in ("numel_in", "numel_out"):
        if any(getattr(t, name) is not None for t in timeouts):
            values[name] = Value(one(getattr(t, name) for t in timeouts))
    if last_step:
        values["seqnum_per_step"] = Value({r: round(s / last_step, 6) for r, s in seqs.items() if s is not None})
    ran = [t.ran_ms for t in timeouts if t.ran_ms is not None]
    if ran:
        values["lost_time"] = Value(round(max(ran) / 3_600_000, 4), "h")
    return values


def progress_values(progress: Sequence[Progress]) -> dict[str, Value]:
    """Last enqueued and last completed work by rank."""
    values: dict[str, Value] = {}
    enqueued = {p.source.rank: p.enqueued for p in progress if p.enqueued is not None}
    completed = {p.source.rank: p.completed for p in progress if p.completed is not None}
    if enqueued:
        values["last_enqueued"] = Value(dict(_sorted(enqueued)))
    if completed:
        values["last_completed"] = Value(dict(_sorted(completed)))
    return values


def one(values: Iterable[Any]) -> Any:
    """The value all share, a sorted list where they differ, None where none tells."""
    known = list(dict.fromkeys(value for value in values if value is not None))
    return None if not known else known[0] if len(known) == 1 else sorted(known)


def by_rank(items: Iterable[Any], name: str) -> dict[Any, Any]:
    """Attribute `name` of each item under the rank that wrote it; the first of a rank counts."""
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(item.source.rank, getattr(item, name))
    return dict(_sorted(found))


def _sorted(found: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(found.items(), key=lambda pair: (pair[0] is None, pair[0] or 0))
