"""The lifecycle of a node as one table: from (state, trigger) to state. What is not in the table cannot happen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from msgspec.structs import replace

from muster.errors import MusterError
from muster.resources.node_health import (
    HISTORY_LIMIT,
    Cause,
    Certificate,
    Episode,
    Lifecycle,
    Standing,
    State,
    Transition,
)


class Trigger(StrEnum):
    """Why a node changes its state."""

    CERTIFICATION_STARTED = "certification-started"
    CERTIFICATION_PASSED = "certification-passed"
    CERTIFICATION_FAILED = "certification-failed"
    CERTIFICATION_INCONCLUSIVE = "certification-inconclusive"
    CERTIFICATE_VOIDED = "certificate-voided"
    """Drift, age, grace over: the node must pass again. Before a certificate expires it is good meanwhile."""
    FAULT_HELD = "fault-held"
    FAULT_CLEARED = "fault-cleared"
    DRAIN_STARTED = "drain-started"
    DRAIN_FINISHED = "drain-finished"
    REPAIR_STARTED = "repair-started"
    REPAIR_PROVED = "repair-proved"
    REPAIR_FAILED = "repair-failed"
    REPAIR_CANCELLED = "repair-cancelled"
    """Called back before it began."""
    LADDER_SPENT = "ladder-spent"
    MAINTENANCE_HELD = "maintenance-held"
    """Planned maintenance is due: somebody other than Muster works on the node."""
    MAINTENANCE_ENDED = "maintenance-ended"
    """Handed back, cancelled, put off or over: through certification."""
    PERSON_HELD = "person-held"
    GAVE_WAY = "gave-way"
    """A node that waited to have a good certificate renewed goes back to work on it."""
    HOLD_LIFTED = "hold-lifted"
    """A person's hold ended while the certificate is still good: straight back to work."""
    RELEASED = "released"
    """A person lets the node try again: through certification."""
    RETIRED = "retired"
    NODE_REPLACED = "node-replaced"
    """Another node joined under the name."""


class IllegalTransitionError(MusterError):
    """The table has no such transition, or its condition is not met: a bug in the caller, nothing was changed."""


def _table() -> Mapping[tuple[State, Trigger], State]:
    s, t = State, Trigger
    table: dict[tuple[State, Trigger], State] = {
        (s.UNCERTIFIED, t.CERTIFICATION_STARTED): s.CERTIFYING,
        (s.CERTIFYING, t.CERTIFICATION_PASSED): s.IN_SERVICE,
        (s.CERTIFYING, t.CERTIFICATION_FAILED): s.QUARANTINED,
        (s.CERTIFYING, t.CERTIFICATION_INCONCLUSIVE): s.UNCERTIFIED,
        (s.IN_SERVICE, t.CERTIFICATE_VOIDED): s.UNCERTIFIED,
        (s.UNCERTIFIED, t.GAVE_WAY): s.IN_SERVICE,
        (s.UNCERTIFIED, t.FAULT_HELD): s.QUARANTINED,
        (s.CERTIFYING, t.FAULT_HELD): s.QUARANTINED,
        (s.IN_SERVICE, t.FAULT_HELD): s.QUARANTINED,
        (s.QUARANTINED, t.FAULT_CLEARED): s.UNCERTIFIED,
        (s.DRAINING, t.FAULT_CLEARED): s.UNCERTIFIED,
        (s.QUARANTINED, t.DRAIN_STARTED): s.DRAINING,
        (s.DRAINING, t.DRAIN_FINISHED): s.QUARANTINED,
        (s.QUARANTINED, t.REPAIR_STARTED): s.REPAIRING,
        (s.DRAINING, t.REPAIR_STARTED): s.REPAIRING,
        (s.REPAIRING, t.REPAIR_PROVED): s.UNCERTIFIED,
        (s.REPAIRING, t.REPAIR_FAILED): s.QUARANTINED,
        (s.REPAIRING, t.REPAIR_CANCELLED): s.QUARANTINED,
        (s.UNCERTIFIED, t.MAINTENANCE_HELD): s.QUARANTINED,
        (s.CERTIFYING, t.MAINTENANCE_HELD): s.QUARANTINED,
        (s.IN_SERVICE, t.MAINTENANCE_HELD): s.QUARANTINED,
        (s.QUARANTINED, t.MAINTENANCE_HELD): s.QUARANTINED,
        (s.DRAINING, t.MAINTENANCE_HELD): s.QUARANTINED,
        (s.QUARANTINED, t.MAINTENANCE_ENDED): s.UNCERTIFIED,
        (s.DRAINING, t.MAINTENANCE_ENDED): s.UNCERTIFIED,
        (s.QUARANTINED, t.LADDER_SPENT): s.OUT_OF_SERVICE,
        (s.DRAINING, t.LADDER_SPENT): s.OUT_OF_SERVICE,
        (s.UNCERTIFIED, t.PERSON_HELD): s.QUARANTINED,
        (s.CERTIFYING, t.PERSON_HELD): s.QUARANTINED,
        (s.IN_SERVICE, t.PERSON_HELD): s.QUARANTINED,
        (s.DRAINING, t.PERSON_HELD): s.QUARANTINED,
        (s.QUARANTINED, t.HOLD_LIFTED): s.IN_SERVICE,
        (s.QUARANTINED, t.RELEASED): s.UNCERTIFIED,
        (s.DRAINING, t.RELEASED): s.UNCERTIFIED,
        (s.OUT_OF_SERVICE, t.RELEASED): s.UNCERTIFIED,
        **{(state, t.RETIRED): s.OUT_OF_SERVICE for state in s if state is not s.OUT_OF_SERVICE},
        **{(state, t.NODE_REPLACED): s.UNCERTIFIED for state in s},
    }
    return MappingProxyType(table)


TABLE = _table()


def target(state: State, trigger: Trigger) -> State:
    """The state that `trigger` leads to. Raises IllegalTransitionError when the table has no such transition."""
    found = TABLE.get((state, trigger))
    if found is None:
        raise IllegalTransitionError(f"A node in state {state.value} cannot take the step {trigger.value}.")
    return found


def admits(certificate: Certificate | None) -> bool:
    """Whether a certificate lets its node take work: valid, or in its bounded grace."""
    return certificate is not None and certificate.standing in (Standing.VALID, Standing.GRACE)


HOLD_REASONS: Mapping[State, str] = MappingProxyType(
    {
        State.UNCERTIFIED: "uncertified",
        State.CERTIFYING: "certifying",
        State.QUARANTINED: "quarantined",
        State.DRAINING: "draining",
        State.REPAIRING: "repairing",
        State.OUT_OF_SERVICE: "out-of-service",
    }
)
"""Value of the hold taint for each state; a state without one takes work."""


def born(episode: Episode, profile: str, now: datetime) -> Lifecycle:
    """The first lifecycle of a node: held, uncertified, must pass `profile`."""
    state = State.UNCERTIFIED
    return Lifecycle(
        state=state,
        since=now,
        held=True,
        hold_reason=HOLD_REASONS[state],
        episode=episode,
        profile=profile,
        history=(Transition(state=state, at=now, episode=episode.id, cause=episode.cause),),
    )


def adopted(certificate: Certificate, cause: Cause, now: datetime) -> Lifecycle:
    """The first lifecycle of a node that has work already and goes on with it, under the grace of `certificate`."""
    state = State.IN_SERVICE
    history = (Transition(state=state, at=now, cause=cause),)
    return Lifecycle(state=state, since=now, certificate=certificate, history=history)


def move(life: Lifecycle, trigger: Trigger, cause: Cause, now: datetime) -> Lifecycle:
    """Take the step `trigger` and record it. The hold follows from the new state.

    Only a certificate that admits lets a node into service: put it into `life` first. Raises IllegalTransitionError.
    """
    state = target(life.state, trigger)
    if state is State.IN_SERVICE and not admits(life.certificate):
        raise IllegalTransitionError(f"The step {trigger.value} needs a certificate that admits the node.")
    reason = HOLD_REASONS.get(state, "")
    episode = life.episode.id if life.episode else ""
    moved = replace(life, state=state, since=now, held=bool(reason), hold_reason=reason)
    return remember(moved, Transition(state=state, at=now, episode=episode, cause=cause))


def remember(life: Lifecycle, entry: Transition) -> Lifecycle:
    """Append to the bounded history."""
    return replace(life, history=(*life.history, entry)[-HISTORY_LIMIT:])
