"""Growth of counters over a window of time, and hysteresis. Pure.

A counter that became smaller was reset or wrapped: its new value is the new baseline. Lifetime values say nothing.
"""

from __future__ import annotations

import msgspec

PIECES = 12
"""A window is kept in about so many points, however often the counter is read."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    at_s: float
    """Unix time."""
    value: int


Track = tuple[Point, ...]
"""Values of one counter, oldest first, back to the beginning of the window."""


def grow(track: Track, at_s: float, value: int, window_s: float) -> Track:
    """The track with one more value. A time before the last one (the clock was set back) begins anew as well."""
    new = Point(at_s, value)
    if not track or value < track[-1].value or at_s <= track[-1].at_s:
        return (new,)
    points = [*track, new]
    if len(points) >= 3 and points[-2].at_s - points[-3].at_s < window_s / PIECES:
        del points[-2]
    while len(points) >= 3 and points[1].at_s <= at_s - window_s:
        del points[0]
    return tuple(points)


def increase(track: Track, window_s: float) -> float | None:
    """New counts within the last `window_s` seconds; None without two values.

    Over a span longer than the window the growth counts in proportion; a shorter one is not extrapolated.
    """
    if len(track) < 2:
        return None
    first, last = track[0], track[-1]
    grown = last.value - first.value
    return grown * min(1.0, window_s / (last.at_s - first.at_s))


def ends(track: Track) -> Track:
    """The track in two points, for keeping."""
    return track if len(track) <= 2 else (track[0], track[-1])


def calm_looks(before: int | None, value: float, limit: float, clear_looks: int) -> int | None:
    """Hysteresis of one alarm: None while it is off, else the looks in a row at half the limit or below.

    It goes on above `limit` and off after `clear_looks` calm looks.
    """
    if value > limit:
        return 0
    if before is None:
        return None
    calm = before + 1 if value <= limit / 2 else 0
    return None if calm >= clear_looks else calm
