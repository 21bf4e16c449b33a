"""Which notices stand: what an owner announces, follows, ends or silently drops. Pure.

Most owners do not say that an event is over: it disappears from their list. One whose time had come is completed, any
other is cancelled. A cancelled one releases the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from muster.moments import END_OF_TIME
from muster.resources.base import Model
from muster.resources.node_health import Notice, NoticeStatus

KEEP_ENDED_S = 24 * 3600
"""How long an ended notice is told: longer than any sensible `returnAfterS`, and than an outage of the controller."""
MAX_TRACKED = 256
MAX_TOLD = 64
"""Notices that one source may have in the NodeHealth; beyond them the later ones wait."""
ENDED = (NoticeStatus.COMPLETED, NoticeStatus.CANCELLED)


class Standing(Model, frozen=True, kw_only=True):
    """One notice as this agent follows it."""

    notice: Notice
    first_seen: datetime
    ended_at: datetime | None = None
    """When it was found to be over."""


@dataclass(frozen=True)
class Told:
    """What is published, sorted by id, and how many notices found no room."""

    notices: tuple[Notice, ...]
    left_out: int


def follow(before: Sequence[Standing], heard: Iterable[Notice], now: datetime) -> tuple[Standing, ...]:
    """What stands after an answer that named `heard` and nothing else. `now` is the owner's time, if it told one."""
    known = {standing.notice.id: standing for standing in before}
    present: dict[str, Notice] = {}
    for notice in heard:
        other = present.get(notice.id)
        if other is None or _order(notice) < _order(other):
            present[notice.id] = notice
    after = [_heard(notice, known.get(notice.id), now) for notice in present.values()]
    gone = (_vanished(known[key], now) for key in known if key not in present)
    after += [standing for standing in gone if standing is not None]
    after.sort(key=lambda s: (s.ended_at is not None, _order(s.notice)))
    return tuple(after[:MAX_TRACKED])


def told(standing: Sequence[Standing], now: datetime) -> Told:
    """What to publish: those that stand, the soonest first, then those that ended lately."""
    wanted = [s.notice for s in standing if s.ended_at is None or _age_s(s.ended_at, now) < KEEP_ENDED_S]
    return Told(tuple(sorted(wanted[:MAX_TOLD], key=lambda n: n.id)), max(0, len(wanted) - MAX_TOLD))


def keep(standing: Sequence[Standing]) -> str:
    """As text that `restore` reads."""
    return msgspec.json.encode(tuple(standing)).decode()


def restore(kept: str) -> tuple[Standing, ...]:
    """What `keep` wrote; nothing for any other text."""
    try:
        return msgspec.json.decode(kept.encode(), type=tuple[Standing, ...])[:MAX_TRACKED] if kept else ()
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return ()


def _heard(notice: Notice, before: Standing | None, now: datetime) -> Standing:
    first = before.first_seen if before is not None else now
    if notice.status not in ENDED:
        if notice.status is NoticeStatus.STARTED and notice.not_before is None:
            notice = _begun(notice, before.notice if before is not None else None, now)
        return Standing(notice=notice, first_seen=first)
    ended = before.ended_at if before is not None and before.ended_at is not None else now
    return Standing(notice=_ended(notice, notice.status, ended), first_seen=first, ended_at=ended)


def _begun(notice: Notice, before: Notice | None, now: datetime) -> Notice:
    """Without any time nobody could tell when it is too old: it began when announced, at the latest when seen."""
    if before is None or before.not_before is None:
        return replace(notice, not_before=now)
    return replace(notice, not_before=before.not_before, ends_at=notice.ends_at or before.ends_at)


def _vanished(standing: Standing, now: datetime) -> Standing | None:
    if standing.ended_at is not None:
        return standing if _age_s(standing.ended_at, now) < KEEP_ENDED_S else None
    notice = standing.notice
    came = notice.status is NoticeStatus.STARTED or (notice.not_before is not None and notice.not_before <= now)
    status = NoticeStatus.COMPLETED if came else NoticeStatus.CANCELLED
    return replace(standing, notice=_ended(notice, status, now), ended_at=now)


def _ended(notice: Notice, status: NoticeStatus, at: datetime) -> Notice:
    """A completed notice ends when it ended, which may be before it was announced to."""
    if status is NoticeStatus.CANCELLED:
        return replace(notice, status=status)
    return replace(notice, status=status, ends_at=min(notice.ends_at or at, at))


def _order(notice: Notice) -> tuple[datetime, str]:
    return (notice.not_before or notice.ends_at or END_OF_TIME, notice.id)


def _age_s(since: datetime, now: datetime) -> float:
    """Never negative: a clock that was set back makes nothing older or younger than it is."""
    if since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    return max(timedelta(), now - since).total_seconds()
