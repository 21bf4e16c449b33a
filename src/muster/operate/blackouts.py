"""Blackouts: recurring times in which no new disruption starts. Pure; local time, also when the clocks change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from muster.errors import BadInputError
from muster.moments import after
from muster.resources.fault_policy import Blackout

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def blackout_until(blackouts: Sequence[Blackout], now: datetime) -> tuple[str, datetime] | None:
    """Name of the blackout that is on at `now` and when it ends; of several the one that ends last, then by name.

    Overlapping ones are not joined: whoever waits asks again at the end. Raises BadInputError for one that cannot be
    read.
    """
    found = [(end, b.name) for b in blackouts if (end := _ends(b, now)) is not None]
    if not found:
        return None
    end, name = max(found, key=lambda pair: (pair[0], pair[1]))
    return name, end


def _ends(blackout: Blackout, now: datetime) -> datetime | None:
    """When the occurrence that covers `now` ends: the last of them where they overlap."""
    start, zone, days = _start(blackout), _zone(blackout), _days(blackout)
    try:
        today = now.astimezone(zone).date()
        back = -(-max(0, blackout.duration_s) // 86400) + 1
        for ago in range(-1, back + 1):
            day = today - timedelta(days=ago)
            if DAYS[day.weekday()] not in days:
                continue
            # A start that the clocks skip is taken by the offset before the change; of two it is the first.
            begins = datetime.combine(day, start, zone).astimezone(UTC)
            ends = after(begins, blackout.duration_s)
            if begins <= now < ends:
                return ends
    except OverflowError:
        return None  # at the very ends of the calendar there is no local time
    return None


def _start(blackout: Blackout) -> time:
    hours, separator, minutes = blackout.start.partition(":")
    digits = (hours + minutes).isascii() and hours.isdigit() and minutes.isdigit()
    if separator and digits and len(hours) <= 2 and len(minutes) == 2 and int(hours) < 24 and int(minutes) < 60:
        return time(int(hours), int(minutes))
    raise BadInputError(f'Blackout {blackout.name} starts at "{blackout.start[:20]}"; write it as HH:MM ("22:30").')


def _zone(blackout: Blackout) -> ZoneInfo:
    try:
        return ZoneInfo(blackout.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInputError(
            f'Blackout {blackout.name} has the unknown time zone "{blackout.timezone[:60]}"; '
            'give a name of the IANA database ("Europe/Berlin").'
        ) from error


def _days(blackout: Blackout) -> tuple[str, ...]:
    wrong = [d for d in blackout.days if d not in DAYS]
    if wrong:
        raise BadInputError(f'Blackout {blackout.name} names the day "{wrong[0][:20]}"; days are {", ".join(DAYS)}.')
    return blackout.days or DAYS
