"""What happened to nodes, as events for the world outside: read off the histories of NodeHealths. Pure.

The history of a node is durable, so nothing is lost when the controller dies or a receiver is away: whoever delivers
reads the histories again from where it was. Each event has an ID that is the same at every reading, so that receivers
can drop what they have seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.plain_text import plain
from muster.resources.node_health import CauseKind, Lifecycle, State, Transition

MAX_TEXT = 400


class Weight(StrEnum):
    """How much an event asks of people, lightest first."""

    INFO = "info"
    WARNING = "warning"
    """Capacity was lost, or comes back late; Muster goes on by itself."""
    ATTENTION = "attention"
    """A person has to decide."""


WEIGHTS = tuple(Weight)


class EventType(StrEnum):
    """What kind of step it was; the last part of the CloudEvents type `dev.muster.node.<type>`."""

    JOINED = "joined"
    LEFT_SERVICE = "left-service"
    RETURNED = "returned"
    STEP = "step"
    """A step between two states out of service."""
    OUT_OF_SERVICE = "out-of-service"
    PERSON = "person"
    """A person's word that changed no state."""


@dataclass(frozen=True, kw_only=True)
class FleetEvent:
    """One step of one node. `before` is empty where the history does not reach further back."""

    id: str
    at: datetime
    node: str
    type: EventType
    weight: Weight
    before: str
    state: str
    cause: CauseKind
    cause_name: str
    message: str
    episode: str
    domain: str = ""
    pool: str = ""
    next: str = field(default="", compare=False)
    """What the controller says happens next; of the present, not of the event."""

    def sentence(self) -> str:
        """One line for people."""
        step = f"{self.before} -> {self.state}" if self.before else self.state
        why = self.message or self.cause_name or self.cause.value
        return plain(f"{self.node}: {step} ({self.cause.value}: {why})", 2 * MAX_TEXT)


def events_of(
    node: str,
    life: Lifecycle,
    *,
    since: datetime | None = None,
    domain: str = "",
    pool: str = "",
) -> tuple[FleetEvent, ...]:
    """The events in the history of `life` at or after `since` (None: all of them), oldest first."""
    return tuple(
        _event(node, life, index, domain, pool)
        for index, entry in enumerate(life.history)
        if since is None or entry.at >= since
    )


def events_for(
    node: str, life: Lifecycle, transitions: Sequence[Transition], *, domain: str = "", pool: str = ""
) -> tuple[FleetEvent, ...]:
    """The events of the last `transitions` of the history, which were just written."""
    first = max(0, len(life.history) - len(transitions))
    return tuple(_event(node, life, index, domain, pool) for index in range(first, len(life.history)))


def in_order(events: Iterable[FleetEvent]) -> list[FleetEvent]:
    """Each event once, by time, then by node and ID."""
    found = {event.id: event for event in events}
    return sorted(found.values(), key=rank)


def rank(event: FleetEvent) -> tuple[datetime, str, str]:
    """What events are ordered by."""
    return event.at, event.node, event.id


def _event(node: str, life: Lifecycle, index: int, domain: str, pool: str) -> FleetEvent:
    entry = life.history[index]
    before = life.history[index - 1] if index else None
    kind = _type(before, entry, first=index == 0)
    return FleetEvent(
        id=_id(node, entry),
        at=entry.at,
        node=node,
        type=kind,
        weight=_weight(kind, entry),
        before=before.state.value if before is not None else "",
        state=entry.state.value,
        cause=entry.cause.kind,
        cause_name=plain(entry.cause.name, MAX_TEXT),
        message=plain(entry.cause.message, MAX_TEXT),
        episode=entry.episode,
        domain=domain,
        pool=pool,
        next=plain(life.next, MAX_TEXT),
    )


def _type(before: Transition | None, entry: Transition, *, first: bool) -> EventType:
    if entry.state is State.OUT_OF_SERVICE and (before is None or before.state is not entry.state):
        return EventType.OUT_OF_SERVICE
    if before is not None and before.state is entry.state and entry.cause.kind is CauseKind.PERSON:
        return EventType.PERSON
    if first and entry.cause.kind is CauseKind.NEW_NODE:
        return EventType.JOINED
    if entry.state is State.IN_SERVICE:
        return EventType.RETURNED
    if before is not None and before.state is State.IN_SERVICE:
        return EventType.LEFT_SERVICE
    return EventType.STEP


def _weight(kind: EventType, entry: Transition) -> Weight:
    match kind:
        case EventType.OUT_OF_SERVICE:
            # Who retired the node knows of it already.
            return Weight.INFO if entry.cause.kind is CauseKind.PERSON else Weight.ATTENTION
        case EventType.LEFT_SERVICE:
            planned = (CauseKind.PERSON, CauseKind.MAINTENANCE, CauseKind.AGE, CauseKind.DRIFT)
            return Weight.INFO if entry.cause.kind in planned else Weight.WARNING
        case EventType.JOINED | EventType.RETURNED | EventType.STEP | EventType.PERSON:
            return Weight.INFO


def _id(node: str, entry: Transition) -> str:
    parts = (node, entry.episode, entry.at.isoformat(), entry.state.value, entry.cause.kind.value, entry.cause.name)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
