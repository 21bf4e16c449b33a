"""Which nodes a Maintenance concerns, and whether it can be carried out as it was declared. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from typing import Protocol

from muster.operate.maintenance.window import utc
from muster.resources.maintenance import Maintenance, MaintenanceSpec
from muster.resources.topology import domain_of

ALL = "*"
"""In `status.handedBack`: every node of the maintenance."""


class Place(Protocol):
    """What is asked of a node: a NodeView or a NodeRecord will do."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


def concerns(spec: MaintenanceSpec, node: Place) -> bool:
    """Whether the node is named, selected, or in a domain that is named. Empty names and selectors match nothing."""
    return _concerns(spec.nodes, spec, node)


class Scope:
    """`concerns` for many nodes: the names, of which there may be thousands, are looked up instead of searched."""

    def __init__(self, spec: MaintenanceSpec) -> None:
        self._spec = spec
        self._names = frozenset(spec.nodes)

    def concerns(self, node: Place) -> bool:
        return _concerns(self._names, self._spec, node)


def _concerns(names: Container[str], spec: MaintenanceSpec, node: Place) -> bool:
    if node.name in names:
        return True
    domain = domain_of(node.labels)
    if domain and domain in spec.domains:
        return True
    wanted = spec.node_selector
    return bool(wanted) and all(node.labels.get(key) == value for key, value in wanted.items())


def problems(spec: MaintenanceSpec) -> tuple[str, ...]:
    """Why it cannot be carried out as declared, one sentence each with the remedy; empty when it can."""
    found = []
    opens, closes = utc(spec.opens_at), utc(spec.closes_at)
    if not spec.reason.strip():
        found.append("It names no reason; set spec.reason.")
    if closes <= opens:
        found.append("It closes before it opens; set spec.closesAt later than spec.opensAt.")
    if not (spec.nodes or spec.domains or spec.node_selector):
        found.append("It names no nodes; set spec.nodes, spec.domains or spec.nodeSelector.")
    if spec.defer_limit is not None and not opens <= utc(spec.defer_limit) <= closes:
        found.append("Its deferLimit lies outside the window; set it between spec.opensAt and spec.closesAt.")
    if spec.emergency and spec.node_selector:
        found.append("An emergency names its nodes or domains one by one; remove spec.nodeSelector.")
    if spec.emergency and not spec.requested_by.strip():
        found.append("An emergency is begun on somebody's word; set spec.requestedBy.")
    return tuple(found)


def handed_back(maintenance: Maintenance, node: str) -> bool:
    """Whether whoever does the work says that it is done on `node`."""
    names = maintenance.status.handed_back
    return node in names or ALL in names


def opens_at(maintenance: Maintenance, now: datetime) -> datetime:
    """When the window opens: an emergency begins when it is declared, or `now` where nobody says when that was."""
    stated = utc(maintenance.spec.opens_at)
    if not maintenance.spec.emergency:
        return stated
    declared = maintenance.metadata.creation_timestamp
    return min(stated, utc(declared) if declared is not None else now)


def latest_deferral(spec: MaintenanceSpec) -> datetime:
    """Until when owners of work may put their node off at most."""
    return utc(spec.defer_limit) if spec.defer_limit is not None else utc(spec.closes_at)
