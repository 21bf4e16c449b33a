"""When a line was written, as far as it says: a date, a date without a year, or seconds since boot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_LEAP_YEAR = 2000
_YEAR_S = 366 * 86400


class Basis(StrEnum):
    """What the seconds of a moment count from. Moments of different bases cannot be compared."""

    BOOT = "boot"
    UTC = "utc"
    LOCAL = "local"
    """A date in a zone that the text does not name."""
    YEARLESS = "yearless"
    DAYTIME = "daytime"
    """A time of day without a date."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time. `text` is how it is shown (ISO 8601; `--MM-DDThh:mm:ss` without a year); empty for BOOT."""

    basis: Basis
    seconds: float
    text: str = ""
    era: int = 0
    """Which boot the seconds of BOOT count from, numbered as read; seconds of different boots cannot be compared."""

    def since(self, earlier: Moment | None) -> float | None:
        """Seconds from `earlier` to this, or None when the two cannot be compared. A year-less clock may wrap."""
        if earlier is None or earlier.basis is not self.basis or earlier.era != self.era:
            return None
        delta = self.seconds - earlier.seconds
        if self.basis is Basis.YEARLESS and delta < -_YEAR_S / 2:
            delta += _YEAR_S
        return round(delta, 6)

    def as_utc(self, booted_at: datetime | None) -> datetime | None:
        """The moment as an aware time, or None when the text does not tell enough."""
        if self.basis is Basis.UTC:
            return datetime.fromtimestamp(self.seconds, UTC)
        if self.basis is Basis.BOOT and booted_at is not None:
            try:
                return booted_at + timedelta(seconds=self.seconds)
            except OverflowError:
                return None
        return None


def boot(seconds: float) -> Moment:
    return Moment(Basis.BOOT, seconds)


def unix(seconds: float) -> Moment:
    """A Unix time, shown in UTC."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return Moment(Basis.UTC, 0.0, "")
    return Moment(Basis.UTC, seconds, at.isoformat().replace("+00:00", "Z"))


def calendar(
    year: int | None, month: int, day: int, clock: str, fraction: str | None = None, zone: str | None = None
) -> Moment | None:
    """A date and a time of day (`hh:mm:ss`), or None when there is no such date.

    `fraction` are the digits after the point; `zone` is `Z`, `UTC`, `+hh:mm` or `+hhmm`, None when not told.
    """
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    try:
        at = datetime(year or _LEAP_YEAR, month, day, hours, minutes, min(seconds, 59), tzinfo=UTC)
    except ValueError:
        return None
    part = float(f"0.{fraction}") if fraction else 0.0
    digits = f".{fraction.rstrip('0')}" if fraction and fraction.strip("0") else ""
    day_text = f"{month:02d}-{day:02d}T{clock}{digits}"
    stamp = at.timestamp() + part
    if year is None:
        return Moment(Basis.YEARLESS, stamp, f"--{day_text}")
    if zone is None:
        return Moment(Basis.LOCAL, stamp, f"{year:04d}-{day_text}")
    offset = _offset_s(zone)
    shown = "Z" if offset == 0 else f"{zone[:3]}:{zone[-2:]}"
    return Moment(Basis.UTC, stamp - offset, f"{year:04d}-{day_text}{shown}")


def daytime(clock: str, fraction: str | None = None) -> Moment:
    """A time of day alone (`hh:mm:ss`)."""
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    part = float(f"0.{fraction}") if fraction else 0.0
    return Moment(
        Basis.DAYTIME, hours * 3600 + minutes * 60 + seconds + part, clock + (f".{fraction}" if part else "")
    )


def _offset_s(zone: str) -> int:
    if zone in ("Z", "UTC", "GMT"):
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def half_up(seconds: float) -> float:
    """A span rounded up to half a second: logs of several sources agree no better than that."""
    return math.ceil(seconds * 2 - 1e-6) / 2
