"""What the cells of tables are made of: columns, values at paths, and ages in kubectl's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.kube.api import Object

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Column:
    """`cell` makes the cell from an object and the time now. Columns of priority 1 show with `-o wide` only."""

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def age(created: Any, now: datetime) -> str:
    """How long ago, in kubectl's words: `5m10s`, `3h`, `2d4h`."""
    try:
        moment = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return UNKNOWN
    return duration((now - moment).total_seconds())


def duration(seconds: float) -> str:
    """A duration in kubectl's words, coarser the longer it is."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // 86400 // 365
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    if years < 8:
        return _pair(years, "y", days % 365, "d")
    return f"{years}y"


def _pair(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def get(obj: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default` where it is missing or empty."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return default if obj in (None, "", [], {}) else obj


def at(name: str, path: str, default: Any = NONE, *, type: str = "string", priority: int = 0) -> Column:  # noqa: A002
    return Column(name, lambda obj, _now: get(obj, path, default), type, priority)


NAME = Column("Name", lambda obj, _now: obj["metadata"]["name"], format="name")
AGE = Column("Age", lambda obj, now: age(get(obj, "metadata.creationTimestamp"), now))
CREATED = at("Created At", "metadata.creationTimestamp", UNKNOWN, type="date")
