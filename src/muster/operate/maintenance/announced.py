"""Maintenance that the owner of the machine announced to the node, seen from that node. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from muster.moments import END_OF_TIME, after
from muster.operate.maintenance.declared import MAX_LEAD_S
from muster.operate.maintenance.window import NodeMaintenance, next_of, said, utc, words
from muster.resources.fault_policy import Disposition, MaintenancePolicy
from muster.resources.node_health import Notice, NoticeStatus

OVERSTAY_S = 24 * 3600
"""A notice that nobody ends is believed this long beyond its announced end (its start, where no end was told).

The owner may be late (Oracle gives itself 24 hours), and an agent on a machine that is away cannot tell. After that
the notice is shown, and holds nobody.
"""


_ENDED = (NoticeStatus.COMPLETED, NoticeStatus.CANCELLED)

MAX_WINDOW_S = 14 * 24 * 3600
"""No announced window counts as longer than this, whatever the owner writes."""


def notice_name(notice: Notice) -> str:
    return f"notice/{words(notice.source)}/{words(notice.id)}"


def announced_on(
    notice: Notice,
    policy: MaintenancePolicy,
    deferred_until: datetime | None,
    now: datetime,
    *,
    out_since: datetime | None = None,
) -> NodeMaintenance | None:
    """What the notice means for its node. None where the policy ignores notices.

    The node is taken out `policy.lead_s` before the announced start, or at once when the work has begun unannounced.
    A person may put that off until the announced start, no longer: the owner does not wait. Without any time told
    the notice is shown only, because nothing would ever end the hold. Completed work keeps a node that is out for it
    (`out_since`) until `policy.return_after_s` after its end.
    """
    if policy.disposition in (Disposition.IGNORE, Disposition.OBSERVE):
        return None
    starts, ends = _times(notice)
    begun = notice.status is NoticeStatus.STARTED
    first = starts or ends
    if first is None:
        return _shown(notice, over=notice.status in _ENDED)
    end = min(ends or first, after(first, MAX_WINDOW_S))
    lead_s = min(max(policy.lead_s, 0), MAX_LEAD_S)
    opens = _before(first, lead_s)
    kept = None
    if deferred_until is not None and not notice.emergency and not begun:
        until = min(utc(deferred_until), first)
        kept = until if until > opens else None
    begins = kept or opens
    quiet = after(end, max(policy.return_after_s, 0))
    given_up = after(quiet, OVERSTAY_S)
    over = _is_over(notice.status, quiet, given_up, now)
    completed = notice.status is NoticeStatus.COMPLETED
    due = not over and (out_since is not None if completed else begun or begins <= now)
    takes_out = policy.disposition in (Disposition.HOLD, Disposition.DRAIN, Disposition.REPAIR)
    drains = policy.disposition in (Disposition.DRAIN, Disposition.REPAIR) and not completed
    return NodeMaintenance(
        name=notice_name(notice),
        names=(notice_name(notice),),
        reason=words(notice.message or notice.kind.value),
        requested_by=words(notice.source),
        opens_at=min(opens, now) if begun else opens,
        closes_at=quiet if ends is not None else None,
        emergency=notice.emergency,
        may_evict_from=min(begins, now) if begun else begins,
        over=over,
        deferred_until=kept if kept is not None and now < kept and not over else None,
        hold=due and takes_out,
        drain=due and drains,
        at_work=not over and (begun or first <= now < quiet),
        message=_message(notice, starts, ends, given_up_now=over and notice.status not in _ENDED),
        recheck_at=None if over else next_of((begins, first, quiet, given_up), now),
    )


def _is_over(status: NoticeStatus, quiet: datetime, given_up: datetime, now: datetime) -> bool:
    match status:
        case NoticeStatus.CANCELLED:
            return True
        case NoticeStatus.COMPLETED:
            return now >= quiet
        case NoticeStatus.SCHEDULED | NoticeStatus.STARTED:
            return now >= given_up
        case _:
            assert_never(status)


def _times(notice: Notice) -> tuple[datetime | None, datetime | None]:
    """Start and end; an end before the start is none (it is the owner's slip, and the start counts)."""
    starts = utc(notice.not_before) if notice.not_before is not None else None
    ends = utc(notice.ends_at) if notice.ends_at is not None else None
    if starts is not None and ends is not None and ends < starts and notice.status not in _ENDED:
        ends = None
    return starts, ends


def _before(moment: datetime, seconds: float) -> datetime:
    try:
        return moment - timedelta(seconds=seconds)
    except OverflowError:
        return moment


def _shown(notice: Notice, *, over: bool) -> NodeMaintenance:
    return NodeMaintenance(
        name=notice_name(notice),
        names=(notice_name(notice),),
        reason=words(notice.message or notice.kind.value),
        requested_by=words(notice.source),
        opens_at=END_OF_TIME,
        may_evict_from=END_OF_TIME,
        emergency=notice.emergency,
        over=over,
        at_work=not over and notice.status is NoticeStatus.STARTED,
        message=_message(notice, None, None, given_up_now=False),
    )


def _message(notice: Notice, starts: datetime | None, ends: datetime | None, *, given_up_now: bool) -> str:
    text = f": {words(notice.message)}" if notice.message else ""
    what = f"{words(notice.source)} announced {notice.kind.value} ({words(notice.id)})"
    match notice.status:
        case NoticeStatus.CANCELLED:
            return f"{what} and cancelled it{text}."
        case NoticeStatus.COMPLETED:
            return f"{what}; it is completed{text}."
        case NoticeStatus.STARTED | NoticeStatus.SCHEDULED:
            until = f" to {said(ends)}" if ends is not None else ""
            begun = "begun" if notice.status is NoticeStatus.STARTED else "planned"
            late = " It should have ended long ago and is waited for no longer." if given_up_now else ""
            return f"{what}: {begun}, from {said(starts)}{until}{text}.{late}"
        case _:
            assert_never(notice.status)
