"""Which nodes count against the disruption budget.

Counted are nodes that served and are held now, whoever or whatever took them out. Not counted: nodes that have never
served in this incarnation (holding or repairing them disrupts nobody) and nodes out of service for good (a person
decided; else a few dead nodes would stop every roll-out for ever).
"""

from __future__ import annotations

from datetime import datetime

from muster.operate.budget import Disruption, Member
from muster.operate.episode import never_served
from muster.resources.node_health import CauseKind, Lifecycle, State


def disruptions_of(member: Member, life: Lifecycle) -> tuple[Disruption, ...]:
    """The node's disruptions that its history remembers, ended ones too, oldest first."""
    started: dict[str, datetime] = {}
    ended: dict[str, datetime] = {}
    unserved: set[str] = set()
    for entry in life.history:
        if not entry.episode:
            continue
        if entry.episode not in started:
            started[entry.episode] = entry.at
            if entry.cause.kind is CauseKind.NEW_NODE:
                unserved.add(entry.episode)
        if entry.state in (State.IN_SERVICE, State.OUT_OF_SERVICE):
            ended[entry.episode] = entry.at
        else:
            ended.pop(entry.episode, None)
    episode = life.episode
    if episode is not None:
        # The history is bounded; the open episode itself knows when and why it began.
        started[episode.id] = episode.opened_at
        if never_served(life):
            unserved.add(episode.id)
        if life.state is not State.OUT_OF_SERVICE:
            ended.pop(episode.id, None)
    open_id = episode.id if episode is not None and life.held else ""
    return tuple(
        Disruption(member, at, ended.get(name))
        for name, at in started.items()
        if name not in unserved and (name in ended or name == open_id)
    )


def is_out(life: Lifecycle) -> bool:
    """Whether the node counts as disrupted now."""
    return life.held and life.state is not State.OUT_OF_SERVICE and not never_served(life)


def comes_back(before: Lifecycle | None, after: Lifecycle) -> bool:
    """Whether the step from `before` to `after` ends a disruption."""
    return before is not None and is_out(before) and not is_out(after)
