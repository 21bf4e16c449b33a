"""An owner's wish to put planned maintenance of a node off: granted, shortened or refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.operate.maintenance.announced import announced_on
from muster.operate.maintenance.declared import declared_on
from muster.operate.maintenance.scope import Place, latest_deferral
from muster.operate.maintenance.window import said, utc, words
from muster.resources.fault_policy import MaintenancePolicy
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import Decision, Notice


@dataclass(frozen=True, kw_only=True)
class Deferral:
    """The answer. `until` is what goes into `Lifecycle.deferredUntil`; None: refused, `message` says why."""

    until: datetime | None
    message: str


def deferral_of(
    node: Place,
    maintenances: Sequence[Maintenance],
    notices: Sequence[Notice],
    policy: MaintenancePolicy | None,
    decision: Decision,
    now: datetime,
    *,
    out_since: datetime | None = None,
) -> Deferral:
    """What becomes of a person's `defer` on `node`. The latest limit of all that can be put off bounds it."""
    by = words(decision.by) or "somebody"
    if decision.until is None:
        return _refused(by, "it names no time; say until when with --until")
    until = utc(decision.until)
    if until <= now:
        return _refused(by, f"{said(until)} has passed; name a later time")
    rules = policy or MaintenancePolicy()
    limits, emergencies = _limits(node, maintenances, notices, rules, now, out_since=out_since)
    if out_since is not None and not limits:
        return _refused(by, "the node was handed over already; ask whoever works on it")
    if not limits:
        why = "an emergency is not put off" if emergencies else "no maintenance of this node is planned"
        return _refused(by, why)
    limit = max(limits)
    granted = min(until, limit)
    if granted <= now:
        return _refused(by, f"it could be put off until {said(limit)} at most, and that has passed")
    cut = f" ({said(until)} was asked; later than {said(limit)} is not possible)" if granted < until else ""
    also = " The emergency on this node goes on all the same." if emergencies else ""
    return Deferral(until=granted, message=f"Put off by {by} until {said(granted)}{cut}.{also}")


def _limits(
    node: Place,
    maintenances: Sequence[Maintenance],
    notices: Sequence[Notice],
    rules: MaintenancePolicy,
    now: datetime,
    *,
    out_since: datetime | None,
) -> tuple[list[datetime], bool]:
    """Until when each can be put off, and whether there is an emergency."""
    limits: list[datetime] = []
    emergencies = False
    for maintenance in maintenances:
        seen = declared_on(node, maintenance, rules, None, now, out_since=out_since)
        if seen is None or seen.over or seen.at_work:
            continue
        if seen.emergency:
            emergencies = True
        else:
            limits.append(latest_deferral(maintenance.spec))
    for notice in notices:
        seen = announced_on(notice, rules, None, now)
        if seen is None or seen.over or seen.at_work or notice.not_before is None:
            continue
        if seen.emergency:
            emergencies = True
        else:
            limits.append(utc(notice.not_before))
    return limits, emergencies


def _refused(by: str, why: str) -> Deferral:
    return Deferral(until=None, message=f"The deferral by {by} is refused: {why}.")
