"""The same node time cut by something else: class, pool, node, cause, fault or rung. Pure; the rows always close."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from muster.operate.goodput import CAUSE_LABELS
from muster.operate.ledger import Ledger, Span, TimeClass
from muster.resources.node_health import CauseKind

IN_SERVICE = "in service"
UNKNOWN = "not known"


class By(StrEnum):
    """What node time is cut by."""

    CAUSE = "cause"
    CLASS = "class"
    FAULT = "fault"
    NODE = "node"
    POOL = "pool"
    RUNG = "rung"


@dataclass(frozen=True)
class Row:
    """`classes` are microseconds per class and add up to `time_us`."""

    key: str
    time_us: int
    lost_us: int
    """What was neither in service nor unknown."""
    classes: dict[TimeClass, int]


def breakdown(ledger: Ledger, by: By) -> tuple[Row, ...]:
    """One row for each key, the greatest loss first; together they are all node time of the ledger."""
    found: dict[str, dict[TimeClass, int]] = {}
    for span in ledger.spans:
        classes = found.setdefault(key_of(span, by), {})
        classes[span.time_class] = classes.get(span.time_class, 0) + span.length_us
    rows = [Row(key, sum(classes.values()), _lost(classes), classes) for key, classes in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.lost_us, -row.time_us, row.key)))


def key_of(span: Span, by: By) -> str:
    """What a span counts under."""
    match by:
        case By.CLASS:
            return span.time_class.value
        case By.POOL:
            return span.pool
        case By.NODE:
            return span.node
        case By.CAUSE:
            return _otherwise(span) or CAUSE_LABELS[span.cause]
        case By.FAULT:
            named = span.cause_name if span.cause is CauseKind.FAULT else ""
            return _otherwise(span) or named or CAUSE_LABELS[span.cause]
        case By.RUNG:
            return _otherwise(span) or span.rung or "no repair"
        case _:
            assert_never(by)


def _otherwise(span: Span) -> str:
    """Time that no cause took."""
    if span.time_class in (TimeClass.BUSY, TimeClass.IDLE):
        return IN_SERVICE
    return UNKNOWN if span.time_class is TimeClass.UNKNOWN else ""


def _lost(classes: dict[TimeClass, int]) -> int:
    kept = (TimeClass.BUSY, TimeClass.IDLE, TimeClass.UNKNOWN)
    return sum(length for time_class, length in classes.items() if time_class not in kept)
