"""All maintenances of one node, declared and announced, joined into what is due. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from muster.operate.maintenance.announced import announced_on
from muster.operate.maintenance.declared import declared_on
from muster.operate.maintenance.scope import Place
from muster.operate.maintenance.window import NodeMaintenance
from muster.resources.fault_policy import MaintenancePolicy
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import Notice

__all__ = ["NodeMaintenance", "all_of", "maintenance_of"]


def maintenance_of(
    node: Place,
    maintenances: Sequence[Maintenance],
    notices: Sequence[Notice],
    policy: MaintenancePolicy | None,
    deferred_until: datetime | None,
    now: datetime,
    *,
    idle: bool = False,
    out_since: datetime | None = None,
) -> NodeMaintenance | None:
    """The maintenance that matters most on `node` at `now`, or None.

    `deferred_until` is `Lifecycle.deferredUntil`. `idle`: no production work is on the node. `out_since`: when it was
    handed over, that is, held for maintenance and free of work. Those that are due now are joined (earliest opening,
    latest close, any emergency); when none is due, the next to open speaks, and when all are over, the last.
    """
    found = all_of(node, maintenances, notices, policy, deferred_until, now, idle=idle, out_since=out_since)
    if not found:
        return None
    recheck = min((m.recheck_at for m in found if m.recheck_at is not None), default=None)
    standing = [m for m in found if not m.over]
    due = [m for m in standing if m.hold or m.drain]
    if due:
        return replace(_join(due), recheck_at=recheck)
    if standing:
        at_work = [m for m in standing if m.at_work]
        return replace((at_work or standing)[0], recheck_at=recheck)
    return replace(max(found, key=lambda m: (m.closes_at or m.opens_at, m.name)), recheck_at=recheck)


def all_of(
    node: Place,
    maintenances: Sequence[Maintenance],
    notices: Sequence[Notice],
    policy: MaintenancePolicy | None,
    deferred_until: datetime | None,
    now: datetime,
    *,
    idle: bool = False,
    out_since: datetime | None = None,
) -> list[NodeMaintenance]:
    """Each by itself, the earliest opening first; for people who want to see them all."""
    rules = policy or MaintenancePolicy()
    found = [declared_on(node, m, rules, deferred_until, now, idle=idle, out_since=out_since) for m in maintenances]
    found += [announced_on(notice, rules, deferred_until, now, out_since=out_since) for notice in notices]
    return sorted((m for m in found if m is not None), key=lambda m: (m.opens_at, m.name))


def _join(due: list[NodeMaintenance]) -> NodeMaintenance:
    """`due` is sorted and not empty. Whoever may evict first decides from when, so that no one's patience is lost.

    An emergency is heard before the others: its reason and its requester stand for the whole.
    """
    first = next((m for m in due if m.emergency), due[0])
    if len(due) == 1:
        return first
    closes = [m.closes_at for m in due if m.closes_at is not None]
    draining = [m for m in due if m.drain]
    others = len(due) - 1
    return replace(
        first,
        names=tuple(sorted({name for m in due for name in m.names})),
        opens_at=due[0].opens_at,
        closes_at=max(closes) if closes else None,
        emergency=any(m.emergency for m in due),
        may_evict_from=min(m.may_evict_from for m in (draining or due)),
        deferred_until=None,
        hold=any(m.hold for m in due),
        drain=bool(draining),
        at_work=any(m.at_work for m in due),
        overrun=any(m.overrun for m in due),
        message=f"{first.message} Together with {others} more: {', '.join(m.name for m in due if m is not first)}."[
            :500
        ],
    )
