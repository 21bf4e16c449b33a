"""Records of maintenance, repairs and retirement notices for export: ten fields for each node concerned. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from muster.operate.maintenance.window import utc
from muster.plain_text import plain
from muster.resources.base import Model
from muster.resources.maintenance import MaintainedNode, Maintenance, MaintenancePhase, NodeProgress
from muster.resources.node_health import CauseKind, NodeHealth, Notice, NoticeKind, NoticeStatus, State
from muster.resources.repair import Repair, RepairPhase

MAX_TEXT = 400


class Category(StrEnum):
    PLANNED = "planned-maintenance"
    EMERGENCY = "emergency-maintenance"
    ANNOUNCED = "announced-maintenance"
    """The owner of the machine announced it to the node."""
    RETIREMENT = "retirement"
    """The owner announced that the machine goes away."""
    REPAIR = "repair"


class ServiceRecord(Model, frozen=True, kw_only=True):
    """One ticket on one node. `opened <= updated <= closed`, where they are known."""

    opened: datetime | None = None
    """None for notices: their owner does not tell when it wrote them."""
    updated: datetime | None = None
    closed: datetime | None = None
    """None while it is open."""
    hardware_id: str
    category: Category
    fault_text: str
    action_class: str
    """The rung of a repair, the kind of a notice, or `maintenance`."""
    account: str
    ticket_id: str
    handover: datetime | None = None
    """When the node was free of work and in the hands of whoever does the work."""


def records(
    maintenances: Iterable[Maintenance],
    repairs: Iterable[Repair],
    healths: Iterable[NodeHealth],
    *,
    account: str,
    hardware: Mapping[str, str] | None = None,
) -> tuple[ServiceRecord, ...]:
    """Everything that the objects of the cluster tell, present, past and to come, in a fixed order.

    `hardware` maps names of nodes to identifiers of their machines (serial numbers); without one, a repair is filed
    under the UID of the node that it was for, everything else under the node's name. Repairs and maintenances outlive
    their nodes: a node that was made anew under its name loses no history.
    """
    known = {h.metadata.name: h for h in healths}
    ids = hardware or {}
    found = [_of_repair(repair, ids, account) for repair in repairs]
    for maintenance in maintenances:
        nodes = maintenance.status.nodes
        found += [_of_maintenance(maintenance, node, known.get(node.name), ids, account) for node in nodes]
    for name in sorted(known):
        observed = known[name].status.observed
        notices = observed.notices if observed is not None else ()
        found += [_of_notice(notice, ids.get(name, name), account) for notice in notices]
    return tuple(sorted(found, key=lambda r: (r.ticket_id, r.hardware_id, r.category.value)))


def _of_repair(repair: Repair, ids: Mapping[str, str], account: str) -> ServiceRecord:
    spec, status = repair.spec, repair.status
    opened = _known(repair.metadata.creation_timestamp)
    started, finished = _known(status.started_at), _known(status.finished_at)
    ended = status.phase in (RepairPhase.DONE, RepairPhase.FAILED, RepairPhase.CANCELLED)
    updated, closed = _ordered(opened, (started, finished), finished if ended else None)
    return ServiceRecord(
        opened=opened,
        updated=updated,
        closed=closed,
        hardware_id=ids.get(spec.node_name) or spec.node_uid,
        category=Category.REPAIR,
        fault_text=plain(spec.reason, MAX_TEXT),
        action_class=spec.rung.value,
        account=account,
        ticket_id=plain(status.external_id or repair.metadata.name, MAX_TEXT),
        handover=started,
    )


def _of_maintenance(
    maintenance: Maintenance,
    node: MaintainedNode,
    health: NodeHealth | None,
    ids: Mapping[str, str],
    account: str,
) -> ServiceRecord:
    spec, status = maintenance.spec, maintenance.status
    opened = _known(maintenance.metadata.creation_timestamp)
    returned = node.progress is NodeProgress.RETURNED
    ended = returned or status.phase is MaintenancePhase.CANCELLED or status.phase is MaintenancePhase.COMPLETED
    end = utc(node.since) if returned else _known(status.closed_at)
    updated, closed = _ordered(opened, (utc(node.since),), end if ended else None)
    return ServiceRecord(
        opened=opened,
        updated=updated,
        closed=closed,
        hardware_id=ids.get(node.name, node.name),
        category=Category.EMERGENCY if spec.emergency else Category.PLANNED,
        fault_text=plain(spec.reason, MAX_TEXT),
        action_class="maintenance",
        account=account,
        ticket_id=maintenance.metadata.name,
        handover=_handover(maintenance, node, health),
    )


def _of_notice(notice: Notice, hardware_id: str, account: str) -> ServiceRecord:
    ended = notice.status in (NoticeStatus.COMPLETED, NoticeStatus.CANCELLED)
    return ServiceRecord(
        closed=_known(notice.ends_at) if ended else None,
        hardware_id=hardware_id,
        category=Category.RETIREMENT if notice.kind is NoticeKind.TERMINATE else Category.ANNOUNCED,
        fault_text=plain(notice.message, MAX_TEXT),
        action_class=notice.kind.value,
        account=account,
        ticket_id=f"{notice.source}/{notice.id}",
        handover=_known(notice.not_before),
    )


def _handover(maintenance: Maintenance, node: MaintainedNode, health: NodeHealth | None) -> datetime | None:
    """From the node's own history, inside the window; while it is ready, the status itself says since when."""
    if node.progress is NodeProgress.READY:
        return utc(node.since)
    life = health.status.lifecycle if health is not None else None
    opened = _known(maintenance.status.opened_at)
    if life is None or opened is None:
        return None
    until = _known(maintenance.status.closed_at) or utc(maintenance.spec.closes_at)
    mine = [
        utc(step.at)
        for step in life.history
        if step.state is State.QUARANTINED and step.cause.kind is CauseKind.MAINTENANCE
    ]
    return next((at for at in mine if opened <= at <= until), None)


def _ordered(
    opened: datetime | None, steps: tuple[datetime | None, ...], closed: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """`updated` and `closed`, neither before what came earlier: clocks of providers and servers differ."""
    updated = max((step for step in (opened, *steps) if step is not None), default=None)
    if closed is not None and updated is not None:
        closed = max(closed, updated)
    return updated, closed


def _known(moment: datetime | None) -> datetime | None:
    return utc(moment) if moment is not None else None
