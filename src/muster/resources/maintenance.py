"""`Maintenance`: planned work on nodes that somebody other than Muster does. Cluster-scoped.

It is declared with a time from which the nodes may be handed over and a time at which they must be back. Muster holds
and drains them in that window, inside the budget; until the window opens nothing is evicted by force. Whoever does
the work says so in `status.handedBack`; a node comes back only by passing its tests. A window that closes while a
node is not back in service is an overrun: an event, a metric, a notice.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta


class MaintenancePhase(StrEnum):
    """Where the maintenance as a whole stands."""

    ANNOUNCED = "Announced"
    """Declared; its window is not open yet."""
    WAITING = "Waiting"
    """The window is open and nodes wait for the budget, for their work to end, or for a person who deferred it."""
    HANDED_OVER = "HandedOver"
    """At least one node is free of work and in the hands of whoever does the work."""
    RETURNING = "Returning"
    """All nodes are handed back; some still have to pass their tests."""
    COMPLETED = "Completed"
    OVERRUN = "Overrun"
    """The window closed and a node is not back in service."""
    CANCELLED = "Cancelled"
    INVALID = "Invalid"
    """It cannot be carried out as declared; the condition `Valid` says why."""


class MaintenanceSpec(Model, frozen=True, kw_only=True):
    """What is to be done, where and when, on the nodes named, selected and of the domains, taken together."""

    reason: str
    requested_by: str = ""
    nodes: tuple[str, ...] = ()
    node_selector: dict[str, str] = {}
    domains: tuple[str, ...] = ()
    opens_at: datetime
    """From then on nodes may be taken out; earlier only those that are idle are held."""
    closes_at: datetime
    """Hand-back deadline: all nodes are back in service by then."""
    defer_limit: datetime | None = None
    """Owners of work may put their node off until then at most (`muster node NAME defer`); None: until `closesAt`."""
    emergency: bool = False
    """Begin at once in the named scope: deferrals and drain patience end, the budget is asked as one approved by
    `requestedBy`. Needs a reason and names nothing beyond `nodes` or `domains`."""
    cancelled: bool = False
    """Given up: nodes that are out for it come back through their tests."""


class NodeProgress(StrEnum):
    PLANNED = "planned"
    DEFERRED = "deferred"
    DRAINING = "draining"
    READY = "ready"
    """Free of work: the maintenance may begin on it."""
    HANDED_BACK = "handed-back"
    RETURNED = "returned"
    OVERRUN = "overrun"


class MaintainedNode(Model, frozen=True, kw_only=True):
    name: str
    progress: NodeProgress
    since: datetime
    message: str = ""


class MaintenanceStatus(Model, frozen=True, kw_only=True):
    """`handedBack` is written by whoever does the work, everything else by the controller."""

    handed_back: tuple[str, ...] = ()
    """Names of the nodes on which the work is done; `*` stands for all."""
    phase: MaintenancePhase = MaintenancePhase.ANNOUNCED
    nodes: tuple[MaintainedNode, ...] = ()
    opened_at: datetime | None = None
    closed_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Maintenance(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Maintenance"
    metadata: ObjectMeta
    spec: MaintenanceSpec
    status: MaintenanceStatus = MaintenanceStatus()
