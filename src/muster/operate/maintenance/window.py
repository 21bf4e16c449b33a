"""What one maintenance means for one node at one moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.moments import END_OF_TIME
from muster.plain_text import plain

MAX_WORDS = 120
"""Characters of foreign text (reasons, names of people) in a message."""


@dataclass(frozen=True, kw_only=True)
class NodeMaintenance:
    """What is due on one node now. The same facts and the same `now` always give the same value.

    `hold` and `drain` say what is due, not what was done: both are carried out inside the budget.
    """

    name: str
    """Name of the Maintenance, or `notice/<source>/<id>`; of several that are due, the one that opened first."""
    names: tuple[str, ...]
    """All that were joined, sorted."""
    reason: str
    requested_by: str = ""
    opens_at: datetime
    """From then on the node may be taken out; END_OF_TIME where nobody told a time."""
    closes_at: datetime | None = None
    """When it has to be back in service; None: not told."""
    emergency: bool = False
    """The budget is asked as one that `requested_by` approved."""
    may_evict_from: datetime
    """Nothing is evicted by force before. Drain modes that wait longer may do so until `closes_at`."""
    handed_back: bool = False
    """Whoever does the work says that it is done on this node."""
    over: bool = False
    """Ended, cancelled or given up: a node that is out for it comes back through its tests."""
    deferred_until: datetime | None = None
    """A person put it off until then; None where nothing is put off now."""
    hold: bool = False
    """The node is to be out of service now."""
    drain: bool = False
    """Work is to leave the node now. Never true before `may_evict_from`."""
    at_work: bool = False
    """Whoever does the work may be at it: a node that reboots, is NotReady or gone is expected; no repair begins."""
    overrun: bool = False
    """The window closed and the node, which was handed over, was not handed back."""
    message: str = ""
    """One sentence for people; it does not change with time alone."""
    recheck_at: datetime | None = None
    """When time alone changes this."""


def utc(moment: datetime) -> datetime:
    """Times of a declaration may come without a zone (the API server accepts that); they are read as UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def next_of(moments: Iterable[datetime], now: datetime) -> datetime | None:
    """The first of `moments` that is still to come."""
    return min((m for m in moments if now < m < END_OF_TIME), default=None)


def said(moment: datetime | None) -> str:
    if moment is None or moment >= END_OF_TIME:
        return "a time that was not told"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def words(text: str) -> str:
    return plain(text, MAX_WORDS)
