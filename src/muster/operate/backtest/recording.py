"""What a backtest replays: the nodes of a cluster with their histories, and the policies in force. Pure.

It is what the cluster itself keeps (NodeHealth objects), so it reaches as far back as agents and controller remember:
closed faults of about a week, the last steps of each lifecycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.errors import BadInputError
from muster.plain_text import plain
from muster.resources.base import Model
from muster.resources.fault_policy import FaultPolicy
from muster.resources.node_health import NodeHealth

VERSION = 1
FIRST_YEAR, LAST_YEAR = 2000, 3000
"""Recordings are of a year in between."""


class RecordedNode(Model, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    health: NodeHealth

    @property
    def name(self) -> str:
        return self.health.metadata.name


class Recording(Model, frozen=True, kw_only=True):
    version: int = VERSION
    exported_at: datetime
    nodes: tuple[RecordedNode, ...]
    """Sorted by name."""
    policies: tuple[FaultPolicy, ...] = ()


def record(
    healths: Iterable[NodeHealth],
    labels: Mapping[str, Mapping[str, str]],
    policies: Iterable[FaultPolicy],
    now: datetime,
) -> Recording:
    """Put together what was read from a cluster."""
    return Recording(
        exported_at=now,
        nodes=tuple(
            RecordedNode(labels=dict(labels.get(h.metadata.name, {})), health=h)
            for h in sorted(healths, key=lambda h: h.metadata.name)
        ),
        policies=tuple(sorted(policies, key=lambda p: p.metadata.name)),
    )


def encode(recording: Recording) -> bytes:
    return msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"


def decode(raw: bytes, source: str) -> Recording:
    """Read what `encode` wrote. Raises BadInputError."""
    try:
        found = msgspec.json.decode(raw, type=Recording, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInputError(
            f"{source} is no recorded history ({plain(str(error), 200)}); make one with 'muster policy export'."
        ) from error
    if found.version != VERSION:
        raise BadInputError(f"{source} is of version {found.version}; this Muster reads version {VERSION}.")
    if found.exported_at.tzinfo is None:
        raise BadInputError(f"{source} has no time zone in exportedAt; make it with 'muster policy export'.")
    if not FIRST_YEAR <= found.exported_at.year < LAST_YEAR:
        raise BadInputError(f"{source} has no real time in exportedAt; make it with 'muster policy export'.")
    for node in found.nodes:
        if _some_naive(node):
            raise BadInputError(f"{source}: node {plain(node.name, 80)} has a time without time zone; add Z to it.")
    names = [node.name for node in found.nodes]
    if len(set(names)) != len(names):
        raise BadInputError(f"{source} names a node twice; make it with 'muster policy export'.")
    return msgspec.structs.replace(found, exported_at=found.exported_at.astimezone(UTC))


def _some_naive(value: Any) -> bool:
    """Whether some time in `value` has no time zone: it could not be compared with the others."""
    if isinstance(value, datetime):
        return value.tzinfo is None
    if isinstance(value, msgspec.Struct):
        return any(_some_naive(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return any(_some_naive(item) for item in value)
    return isinstance(value, dict) and any(_some_naive(item) for item in value.values())
