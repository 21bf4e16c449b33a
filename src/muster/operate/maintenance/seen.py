"""What the maintenance controller keeps of Nodes and NodeHealths: as little as its status needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from muster.operate.maintenance.progress import SeenNode
from muster.plain_text import plain
from muster.resources.node_health import CauseKind, State

BLOCKER = "maintenance"
"""Kind of the blocker of a node that was handed over."""


class _Metadata(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Blocker(msgspec.Struct, frozen=True):
    kind: str
    message: str = ""


class _Cause(msgspec.Struct, frozen=True):
    kind: str


class _Episode(msgspec.Struct, frozen=True):
    cause: _Cause


class _Lifecycle(msgspec.Struct, frozen=True, rename="camel"):
    state: State
    episode: _Episode | None = None
    blockers: tuple[_Blocker, ...] = ()
    deferred_until: datetime | None = None


class _Status(msgspec.Struct, frozen=True):
    lifecycle: _Lifecycle | None = None


class _Health(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class SeenHealth(msgspec.Struct, frozen=True):
    """What a node's lifecycle says about maintenance."""

    state: State
    draining: bool
    handed_over: bool
    deferred_until: datetime | None
    waits_for: str


_nodes = msgspec.json.Decoder(_Node, strict=False)
_healths = msgspec.json.Decoder(_Health, strict=False)


def node_labels(raw: bytes) -> Mapping[str, str]:
    """The labels of a Node. Raises msgspec.MsgspecError."""
    return _nodes.decode(raw).metadata.labels


def seen_health(raw: bytes) -> SeenHealth | None:
    """None where nothing was decided about the node yet. Raises msgspec.MsgspecError."""
    life = _healths.decode(raw).status.lifecycle
    if life is None:
        return None
    mine = life.episode is not None and life.episode.cause.kind == CauseKind.MAINTENANCE
    blocked = any(b.kind == BLOCKER for b in life.blockers)
    handed_over = life.state is State.QUARANTINED and blocked
    # In service the blocker says what the node waits for, the budget for example; handed over it says that it is.
    waits = next((b.message for b in life.blockers if b.kind != BLOCKER or not handed_over), "")
    return SeenHealth(
        state=life.state,
        draining=life.state is State.DRAINING and (mine or blocked),
        handed_over=handed_over,
        deferred_until=life.deferred_until,
        waits_for=plain(waits, 160),
    )


def seen_node(name: str, labels: Mapping[str, str], health: SeenHealth | None) -> SeenNode:
    if health is None:
        return SeenNode(name=name, labels=labels)
    return SeenNode(
        name=name,
        labels=labels,
        state=health.state,
        draining=health.draining,
        handed_over=health.handed_over,
        deferred_until=health.deferred_until,
        waits_for=health.waits_for,
    )
