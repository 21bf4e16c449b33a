"""What is known of one node's past: open and closed faults, steps of the lifecycle, repairs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from muster.resources.fault import Burst, Fault
from muster.resources.node_health import (
    HISTORY_LIMIT,
    CauseKind,
    Lifecycle,
    Observed,
    PastFault,
    RungAttempt,
    State,
    Transition,
    Verb,
)

DERIVED = "pattern"
"""Source and check of faults that a pattern concludes. Patterns never count these: none can feed itself."""


@dataclass(frozen=True)
class History:
    """The past of one node, as its agent and the controller keep it. Empty by default."""

    open: tuple[Fault, ...] = ()
    past: tuple[PastFault, ...] = ()
    transitions: tuple[Transition, ...] = ()
    attempts: tuple[RungAttempt, ...] = ()
    """Repair attempts of the open episode."""
    boundary: datetime | None = None
    """The last proved repair or release by a person, or how far a history that is full reaches back; bursts that
    ended before it do not count."""
    released: datetime | None = None
    """The last release by a person; repairs before it do not count."""
    repaired: datetime | None = None
    """The last proved repair."""

    def faults(self) -> Iterator[Fault]:
        """Open faults, then closed ones, without those that patterns concluded."""
        yield from (f for f in self.open if not is_derived(f))
        yield from (p.fault for p in self.past if not is_derived(p.fault))

    def repairs(self) -> tuple[datetime, ...]:
        """When repairs began, oldest first."""
        # A person's word during a repair is an entry of that state too.
        began = (t for t in self.transitions if t.state is State.REPAIRING and t.cause.kind is CauseKind.REPAIR)
        return tuple(sorted(t.at for t in began))


def is_derived(fault: Fault) -> bool:
    return DERIVED in (fault.source, fault.check)


def bursts_of(fault: Fault) -> tuple[Burst, ...]:
    """The bursts of a fault; one that keeps none was seen in a single burst from first to last sighting."""
    return fault.bursts or (Burst(at=fault.first_seen, until=fault.last_seen, count=fault.count),)


def history_of(observed: Observed | None, life: Lifecycle | None) -> History:
    """Join what the agent and the controller keep about one incarnation of a node."""
    transitions = life.history if life is not None else ()
    repaired = [t.at for t in transitions if t.state is State.UNCERTIFIED and t.cause.kind is CauseKind.REPAIR]
    released = [t.at for t in transitions if t.cause.kind is CauseKind.PERSON and t.cause.name == Verb.RELEASE.value]
    # What a full history forgot may have been a repair: what it does not reach back to does not count again.
    forgot = [min(t.at for t in transitions)] if len(transitions) >= HISTORY_LIMIT else []
    return History(
        open=observed.faults if observed is not None else (),
        past=observed.recent if observed is not None else (),
        transitions=transitions,
        attempts=life.episode.attempts if life is not None and life.episode is not None else (),
        boundary=max((*repaired, *released, *forgot), default=None),
        released=max(released, default=None),
        repaired=max(repaired, default=None),
    )
