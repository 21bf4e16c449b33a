"""Arithmetic of times that other people write: it never overflows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""The latest time that can be written down."""


def after(moment: datetime, seconds: float) -> datetime:
    """`seconds` (0 or more) after `moment`; END_OF_TIME where that is later than any time that can be written down.

    Moments of agents and seconds of policies come from others and may be as absurd as their schema lets them be.
    """
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return END_OF_TIME


def is_recent(moment: datetime, now: datetime, span: timedelta) -> bool:
    """Whether `moment` lies less than `span` before `now`. One after `now` does not: the clock was set back."""
    return timedelta(0) <= now - moment < span
