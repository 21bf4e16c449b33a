"""How far a Maintenance is: its status from the nodes that it concerns, and what is worth telling. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.operate.maintenance.conditions import conditions_of
from muster.operate.maintenance.scope import ALL, Scope, latest_deferral, opens_at, problems
from muster.operate.maintenance.window import next_of, said, utc, words
from muster.plain_text import counted, plain
from muster.resources.maintenance import (
    MaintainedNode,
    Maintenance,
    MaintenancePhase,
    MaintenanceStatus,
    NodeProgress,
)
from muster.resources.node_health import State

MAX_LISTED = 2000
"""Nodes in the status: an object may not outgrow what etcd takes (1.5 MiB). Those that wait for people come first."""
MAX_NAMED = 5
_OUT = (NodeProgress.DRAINING, NodeProgress.READY, NodeProgress.HANDED_BACK, NodeProgress.OVERRUN)
_KEPT = (*_OUT, NodeProgress.RETURNED)
"""Nodes that stay in the list when they leave the cluster."""
_RANK = (
    NodeProgress.OVERRUN,
    NodeProgress.READY,
    NodeProgress.DRAINING,
    NodeProgress.HANDED_BACK,
    NodeProgress.DEFERRED,
    NodeProgress.PLANNED,
    NodeProgress.RETURNED,
)


@dataclass(frozen=True, kw_only=True)
class SeenNode:
    """What is known about one node. `state` is None where the controller has not decided about it yet."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    state: State | None = None
    draining: bool = False
    """Work is leaving it for maintenance."""
    handed_over: bool = False
    """It is held for maintenance and free of work."""
    deferred_until: datetime | None = None
    waits_for: str = ""
    """What it waits for, one sentence."""


class NewsKind(StrEnum):
    """The words of the audit log, without `maintenance-`."""

    INVALID = "invalid"
    ANNOUNCED = "announced"
    OPENED = "opened"
    NODE_READY = "node-ready"
    OVERRUN = "overrun"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class News:
    kind: NewsKind
    message: str
    warning: bool = False
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The status to be written (equal to the present one when nothing changed), and what it tells people anew."""

    status: MaintenanceStatus
    news: tuple[News, ...] = ()
    recheck_at: datetime | None = None


def progress_of(maintenance: Maintenance, nodes: Sequence[SeenNode], now: datetime) -> Progress:
    """The progress of `maintenance`; `nodes` are all nodes of the cluster, in any order."""
    spec, before = maintenance.spec, maintenance.status
    wrong = problems(spec)
    listed = () if wrong else _listed(maintenance, nodes, now)
    phase = MaintenancePhase.INVALID if wrong else _phase(maintenance, listed, now)
    opens = opens_at(maintenance, now)
    opened = _opened_at(maintenance, opens, phase, listed, now)
    ended = phase in (MaintenancePhase.COMPLETED, MaintenancePhase.CANCELLED)
    status = MaintenanceStatus(
        handed_back=before.handed_back,
        phase=phase,
        nodes=_cut(listed),
        opened_at=opened,
        closed_at=(before.closed_at or now) if ended else None,
        conditions=conditions_of(maintenance, wrong, phase, listed, now),
    )
    puts_off = {utc(n.deferred_until): None for n in nodes if n.deferred_until is not None}
    recheck = next_of((opens, utc(spec.closes_at), *puts_off), now)
    return Progress(status=status, news=_news(maintenance, status, wrong), recheck_at=recheck)


def _listed(maintenance: Maintenance, nodes: Sequence[SeenNode], now: datetime) -> tuple[MaintainedNode, ...]:
    """Every node concerned, by name: those that exist, those that are named, and those that went away."""
    spec = maintenance.spec
    known = {n.name: n for n in maintenance.status.nodes}
    present = {n.name: n for n in nodes}
    names: dict[str, None] = dict.fromkeys(spec.nodes)
    scope = Scope(spec)
    names |= {n.name: None for n in nodes if scope.concerns(n)}
    names |= {name: None for name, n in known.items() if name not in present and n.progress in _KEPT}
    back = frozenset(maintenance.status.handed_back)
    every = ALL in back
    found = []
    for name in sorted(names):
        seen, was = present.get(name), known.get(name)
        over = spec.cancelled or every or name in back
        progress, message = _progress_of(maintenance, seen, was, now, over=over)
        since = was.since if was is not None and was.progress is progress else now
        found.append(MaintainedNode(name=name, progress=progress, since=since, message=plain(message, 200)))
    return tuple(found)


def _progress_of(
    maintenance: Maintenance, seen: SeenNode | None, was: MaintainedNode | None, now: datetime, *, over: bool
) -> tuple[NodeProgress, str]:
    spec = maintenance.spec
    was_out = was is not None and was.progress in _OUT
    closed = now >= utc(spec.closes_at)
    if was is not None and was.progress is NodeProgress.RETURNED and (over or closed):
        return was.progress, was.message
    if over:
        return _after_hand_back(maintenance, seen, was_out=was_out, closed=closed)
    if closed:
        return _after_close(seen, was_out=was_out)
    if seen is None:
        if was is not None and was_out:
            return was.progress, "The node is gone; that is expected while the work goes on."
        return NodeProgress.PLANNED, "There is no node of this name."
    return _in_time(maintenance, seen, now)


def _after_hand_back(
    maintenance: Maintenance, seen: SeenNode | None, *, was_out: bool, closed: bool
) -> tuple[NodeProgress, str]:
    if seen is None:
        return NodeProgress.RETURNED, "The node is gone."
    if seen.state is State.IN_SERVICE:
        return NodeProgress.RETURNED, ""
    if not (was_out or seen.draining or seen.handed_over):
        return NodeProgress.RETURNED, "It is out of service, but not for this maintenance."
    if closed and not maintenance.spec.cancelled:
        return NodeProgress.OVERRUN, f"The window closed before its tests were passed. {seen.waits_for}"
    return NodeProgress.HANDED_BACK, f"It comes back through its tests. {seen.waits_for}"


def _after_close(seen: SeenNode | None, *, was_out: bool) -> tuple[NodeProgress, str]:
    if not was_out:
        return NodeProgress.PLANNED, "The window closed before its turn came."
    if seen is not None and seen.state is State.IN_SERVICE:
        return NodeProgress.RETURNED, "It came back without having been handed back."
    if seen is not None and seen.handed_over:
        return NodeProgress.OVERRUN, "The window closed, and it was not handed back."
    return NodeProgress.OVERRUN, "The window closed, and it is not back in service."


def _in_time(maintenance: Maintenance, seen: SeenNode, now: datetime) -> tuple[NodeProgress, str]:
    spec = maintenance.spec
    opens = opens_at(maintenance, now)
    if seen.handed_over and now >= opens:
        return NodeProgress.READY, "It is free of work; the maintenance may begin."
    if not spec.emergency and seen.deferred_until is not None:
        until = min(utc(seen.deferred_until), latest_deferral(spec))
        if max(now, opens) < until:
            return NodeProgress.DEFERRED, f"A person put it off until {said(until)}."
    if now < opens:
        return NodeProgress.PLANNED, "It is idle and held already." if seen.handed_over else ""
    if seen.draining:
        return NodeProgress.DRAINING, seen.waits_for
    return NodeProgress.PLANNED, seen.waits_for or "It waits for its turn."


def _phase(maintenance: Maintenance, listed: Sequence[MaintainedNode], now: datetime) -> MaintenancePhase:
    spec = maintenance.spec
    if spec.cancelled:
        return MaintenancePhase.CANCELLED
    found = [n.progress for n in listed]
    if NodeProgress.OVERRUN in found:
        return MaintenancePhase.OVERRUN
    if now >= utc(spec.closes_at) or (found and all(p is NodeProgress.RETURNED for p in found)):
        return MaintenancePhase.COMPLETED
    if NodeProgress.READY in found:
        return MaintenancePhase.HANDED_OVER
    if found and all(p in (NodeProgress.HANDED_BACK, NodeProgress.RETURNED) for p in found):
        return MaintenancePhase.RETURNING
    if now >= opens_at(maintenance, now) or any(p in _OUT for p in found):
        return MaintenancePhase.WAITING
    return MaintenancePhase.ANNOUNCED


def _opened_at(
    maintenance: Maintenance,
    opens: datetime,
    phase: MaintenancePhase,
    listed: Sequence[MaintainedNode],
    now: datetime,
) -> datetime | None:
    """When the window opened in fact; moved later by an edit, it opens again unless a node is out already."""
    known = maintenance.status.opened_at
    if known is not None and (now >= opens or any(n.progress in _OUT for n in listed)):
        return known
    if now < opens or phase in (MaintenancePhase.INVALID, MaintenancePhase.CANCELLED):
        return None
    declared = maintenance.metadata.creation_timestamp
    return max(opens, utc(declared)) if declared is not None else opens


def _cut(listed: Sequence[MaintainedNode]) -> tuple[MaintainedNode, ...]:
    if len(listed) <= MAX_LISTED:
        return tuple(listed)
    first = sorted(listed, key=lambda n: (_RANK.index(n.progress), n.name))[:MAX_LISTED]
    return tuple(sorted(first, key=lambda n: n.name))


def _news(maintenance: Maintenance, after: MaintenanceStatus, wrong: Sequence[str]) -> tuple[News, ...]:
    """What changed between the status as it stands and the new one, so that each thing is told once."""
    spec, before = maintenance.spec, maintenance.status
    what = f"{'Emergency maintenance' if spec.emergency else 'Maintenance'} ({words(spec.reason)})"
    if after.phase is MaintenancePhase.INVALID:
        known = before.phase is MaintenancePhase.INVALID
        return () if known else (News(kind=NewsKind.INVALID, message=" ".join(wrong), warning=True),)
    found = []
    window = f"from {said(utc(spec.opens_at))} to {said(utc(spec.closes_at))}"
    if not any(c.type == "Announced" for c in before.conditions) and after.phase is not MaintenancePhase.CANCELLED:
        many = counted(len(after.nodes), "node")
        found.append(News(kind=NewsKind.ANNOUNCED, message=f"{what} of {many} is planned {window}."))
    if before.opened_at is None and after.opened_at is not None:
        found.append(News(kind=NewsKind.OPENED, message=f"{what}: the window is open, {window}."))
    ready = _newly(before, after, NodeProgress.READY)
    if ready:
        message = f"{what} may begin on {_names(ready)}."
        found.append(News(kind=NewsKind.NODE_READY, message=message, nodes=ready))
    late = _newly(before, after, NodeProgress.OVERRUN)
    if late:
        message = f"{what} had to end by {said(utc(spec.closes_at))}; not back in service: {_names(late)}."
        found.append(News(kind=NewsKind.OVERRUN, message=message, warning=True, nodes=late))
    if after.phase is MaintenancePhase.COMPLETED is not before.phase:
        missed = tuple(n.name for n in after.nodes if n.progress is NodeProgress.PLANNED)
        rest = f" Its window closed before the turn of {_names(missed)} came." if missed else ""
        found.append(
            News(kind=NewsKind.COMPLETED, message=f"{what} is over.{rest}", warning=bool(missed), nodes=missed)
        )
    if after.phase is MaintenancePhase.CANCELLED is not before.phase:
        found.append(News(kind=NewsKind.CANCELLED, message=f"{what} was cancelled."))
    return tuple(found)


def _newly(before: MaintenanceStatus, after: MaintenanceStatus, progress: NodeProgress) -> tuple[str, ...]:
    known = {n.name for n in before.nodes if n.progress is progress}
    return tuple(n.name for n in after.nodes if n.progress is progress and n.name not in known)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"
