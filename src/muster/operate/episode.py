"""Episodes: one way out of service and back, with its attempts on the repair ladder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from muster.moments import after
from muster.resources.fault_policy import LadderStep
from muster.resources.node_health import (
    EARLIER_LIMIT,
    Cause,
    CauseKind,
    Episode,
    Lifecycle,
    RungAttempt,
    State,
    Transition,
)
from muster.resources.repair import Rung

UNCORDON = "kubectl-uncordon"
"""Name in a cause of kind `person`: somebody lifted a cordon that Muster had placed."""

NO_PARTNER = "no-partner"
"""Name in a cause of kind `certification`: nothing was found out, for want of a free node to test with."""

LEFT = "left"
"""Name in a cause of kind `new-node`: the Node object is gone from the cluster."""

MILDEST_FIRST = tuple(Rung)


class AttemptOutcome(StrEnum):
    """How an attempt ended, as written in `RungAttempt.outcome`."""

    PROVED = "proved"
    FAILED = "failed"
    TIMEOUT = "timeout"
    RECERTIFICATION_FAILED = "recertification-failed"
    RECURRED = "recurred"
    CANCELLED = "cancelled"
    """Called back before it began; it counts as no attempt."""


@dataclass(frozen=True)
class NextAttempt:
    """The step of the ladder to take next."""

    rung: Rung
    attempt: int
    timeout_s: int


def episode_id(node: str, node_uid: str, opened_at: datetime) -> str:
    """Identifies one episode of one incarnation of a node; the same inputs give the same ID after a restart."""
    text = f"{node}\n{node_uid}\n{opened_at.isoformat()}"
    return "e" + hashlib.sha256(text.encode()).hexdigest()[:10]


def open_episode(node: str, node_uid: str, cause: Cause, now: datetime) -> Episode:
    return Episode(id=episode_id(node, node_uid, now), cause=cause, opened_at=now)


def belongs_to(episode: Episode, node: str, node_uid: str) -> bool:
    """Whether the episode is about this incarnation of the node, not about an earlier one of the same name."""
    return episode.id == episode_id(node, node_uid, episode.opened_at)


def never_served(life: Lifecycle) -> bool:
    """Whether the node has not taken work in this incarnation: nothing that is done to it disrupts anybody."""
    return life.episode is not None and life.episode.cause.kind is CauseKind.NEW_NODE


def of_episode(life: Lifecycle) -> tuple[Transition, ...]:
    """The entries of the history that belong to the open episode, oldest first."""
    if life.episode is None:
        return ()
    return tuple(entry for entry in life.history if entry.episode == life.episode.id)


def uncordoned_by_person(life: Lifecycle) -> Transition | None:
    """The person's uncordon that still stands: nobody decided anything about the node since."""
    by_person = [e for e in of_episode(life) if e.cause.kind is CauseKind.PERSON]
    last = by_person[-1] if by_person else None
    return last if last is not None and last.cause.name == UNCORDON else None


@dataclass(frozen=True)
class Inconclusive:
    """Certifications without a verdict in a row: since the last repair or the last word of a person."""

    about_node: int = 0
    """Those that may say something about the node."""
    no_partner: int = 0
    """Those that only say that the nodes to test with had work."""


def inconclusive(life: Lifecycle) -> Inconclusive:
    """Count the certifications of the open episode that ended without a verdict."""
    about_node = no_partner = 0
    for entry in of_episode(life):
        if entry.state is State.REPAIRING or entry.cause.kind is CauseKind.PERSON:
            about_node = no_partner = 0
        elif entry.state is State.UNCERTIFIED and entry.cause.kind is CauseKind.CERTIFICATION:
            lonely = entry.cause.name == NO_PARTNER
            no_partner += lonely
            about_node += not lonely
    return Inconclusive(about_node, no_partner)


def open_attempt(episode: Episode | None) -> RungAttempt | None:
    """The attempt that is still under way."""
    if episode is None or not episode.attempts or episode.attempts[-1].outcome:
        return None
    return episode.attempts[-1]


def repair_name(node: str, episode: str, rung: Rung, attempt: int) -> str:
    """Deterministic name of the `Repair` of one attempt: creating it twice is refused by the API server."""
    return f"{node}-{episode}-{rung.value}-{attempt}"


def start_attempt(
    episode: Episode, node: str, step: NextAttempt, now: datetime, *, cause: str = "", boot_id: str = ""
) -> Episode:
    """Open an attempt. `cause` is the key of the fault that it is for, `boot_id` the boot in which it begins."""
    attempt = RungAttempt(
        rung=step.rung.value,
        attempt=step.attempt,
        repair=repair_name(node, episode.id, step.rung, step.attempt),
        at=now,
        cause=cause,
        boot_id_before=boot_id,
    )
    return replace(episode, attempts=(*episode.attempts, attempt))


def end_attempt(episode: Episode, outcome: AttemptOutcome) -> Episode:
    """Write the outcome of the last attempt; an attempt that had been proved may turn out not to have helped."""
    if not episode.attempts:
        return episode
    return replace(episode, attempts=(*episode.attempts[:-1], replace(episode.attempts[-1], outcome=outcome.value)))


def mark_seen(episode: Episode, now: datetime) -> Episode:
    """Remember that the `Repair` of the last attempt was seen."""
    return replace(episode, attempts=(*episode.attempts[:-1], replace(episode.attempts[-1], seen_at=now)))


def next_attempt(
    ladder: Sequence[LadderStep], attempts: Sequence[RungAttempt], earlier: Sequence[RungAttempt] = ()
) -> NextAttempt | None:
    """The next step on the ladder after the `attempts` made so far, or None when it is spent.

    Never a milder rung than the last one tried, also when another fault with another ladder came in between.
    `earlier` are attempts of ended episodes for what has now come back: they count like those of this one.
    """
    counted = [Rung(a.rung) for a in (*earlier, *attempts) if a.outcome != AttemptOutcome.CANCELLED]
    floor = MILDEST_FIRST.index(counted[-1]) if counted else 0
    for step in ladder:
        if MILDEST_FIRST.index(step.rung) >= floor and counted.count(step.rung) < step.attempts:
            # Of all attempts, cancelled ones too: each has a `Repair` of its own name.
            number = 1 + sum(1 for a in attempts if a.rung == step.rung.value)
            return NextAttempt(step.rung, number, step.timeout_s)
    return None


def kept_attempts(life: Lifecycle) -> tuple[RungAttempt, ...]:
    """What is to be remembered of the repairs when the open episode ends well."""
    made = life.episode.attempts if life.episode is not None else ()
    worth = [a for a in made if a.outcome and a.outcome != AttemptOutcome.CANCELLED and a.rung != Rung.TICKET.value]
    return (*life.earlier, *worth)[-EARLIER_LIMIT:]


def recurring(life: Lifecycle, cause: str, within_s: float, now: datetime) -> tuple[RungAttempt, ...]:
    """Attempts of ended episodes for the same finding, not older than `within_s`, oldest first."""
    return tuple(a for a in life.earlier if a.cause == cause and after(a.at, within_s) > now)
