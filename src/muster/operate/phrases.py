"""How times and durations are written for people. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from muster.plain_text import counted

__all__ = ["counted", "duration", "moment"]


def moment(at: datetime) -> str:
    """A time in UTC to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(span: timedelta) -> str:
    """A span in its two largest units: `42 s`, `3 min 10 s`, `2 h 5 min`, `4 d 3 h`; negative ones read as `0 s`."""
    seconds = max(0, int(span.total_seconds()))
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for index, (name, size) in enumerate(units):
        if seconds >= size:
            text = f"{seconds // size} {name}"
            if index + 1 < len(units):
                small_name, small = units[index + 1]
                rest = seconds % size // small
                text += f" {rest} {small_name}" if rest else ""
            return text
    return "0 s"
