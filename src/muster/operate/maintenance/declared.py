"""A Maintenance that people declared, seen from one node. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from muster.operate.maintenance.scope import Place, concerns, handed_back, latest_deferral, opens_at, problems
from muster.operate.maintenance.window import NodeMaintenance, next_of, said, utc, words
from muster.resources.fault_policy import MaintenancePolicy
from muster.resources.maintenance import Maintenance

MAX_LEAD_S = 30 * 24 * 3600
"""Nothing is held earlier than this before its window, whatever a policy says."""


def declared_on(
    node: Place,
    maintenance: Maintenance,
    policy: MaintenancePolicy,
    deferred_until: datetime | None,
    now: datetime,
    *,
    idle: bool = False,
    out_since: datetime | None = None,
) -> NodeMaintenance | None:
    """What the declaration means for `node`; None when it is invalid or names other nodes.

    Before the window opens, only an idle node is held, and that at most `policy.lead_s` early. A deferral moves the
    opening for this node; it calls back nothing that was handed over (`out_since`), and no emergency hears it.
    Once the window has closed, nothing begins any more: a node that still drains comes back, one that was handed
    over stays with whoever works on it until it is handed back.
    """
    spec = maintenance.spec
    if problems(spec) or not concerns(spec, node):
        return None
    opens, closes = opens_at(maintenance, now), utc(spec.closes_at)
    done = handed_back(maintenance, node.name)
    over = spec.cancelled or done
    kept = None if spec.emergency or over else _put_off(deferred_until, opens, latest_deferral(spec))
    started = out_since is not None and out_since < closes and opens <= now
    if started:
        kept = None
    begins = kept or opens
    lead_s = min(max(policy.lead_s, 0), MAX_LEAD_S)
    early = begins - timedelta(seconds=lead_s)
    is_open = begins <= now < closes
    hold = not over and (is_open or started or (idle and early <= now < begins))
    overrun = not over and started and now >= closes
    return NodeMaintenance(
        name=maintenance.metadata.name,
        names=(maintenance.metadata.name,),
        reason=words(spec.reason),
        requested_by=words(spec.requested_by),
        opens_at=opens,
        closes_at=closes,
        emergency=spec.emergency,
        may_evict_from=begins,
        handed_back=done,
        over=over or (now >= closes and not started),
        deferred_until=kept if kept is not None and now < kept else None,
        hold=hold,
        drain=not over and is_open,
        at_work=not over and started,
        overrun=overrun,
        message=_message(maintenance, kept, opens, closes, done=done, closed=now >= closes, started=started),
        recheck_at=None if over else next_of((early, begins, opens, closes), now),
    )


def _put_off(deferred_until: datetime | None, opens: datetime, limit: datetime) -> datetime | None:
    """The moment to which a deferral moves the opening; None when it moves nothing."""
    if deferred_until is None:
        return None
    until = min(utc(deferred_until), limit)
    return until if until > opens else None


def _message(
    maintenance: Maintenance,
    kept: datetime | None,
    opens: datetime,
    closes: datetime,
    *,
    done: bool,
    closed: bool,
    started: bool,
) -> str:
    spec, name = maintenance.spec, words(maintenance.metadata.name)
    what = f"{'Emergency maintenance' if spec.emergency else 'Maintenance'} {name} ({words(spec.reason)})"
    if spec.cancelled:
        return f"{what} was cancelled."
    if done:
        return f"{what}: the work on this node is done, it was handed back."
    if closed and started:
        return f"{what} had to end by {said(closes)}, and the node was not handed back."
    if closed:
        return (
            f"{what}: the window closed at {said(closes)} before this node was handed over; nothing begins any more."
        )
    by = f", requested by {words(spec.requested_by)}" if spec.requested_by else ""
    put_off = f"; put off for this node until {said(kept)}" if kept is not None else ""
    return f"{what}{by}: window from {said(opens)} to {said(closes)}{put_off}."
