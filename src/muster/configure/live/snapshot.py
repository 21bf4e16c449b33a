"""Nodes as a snapshot recorded them, against what their agents see now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.configure.live.agents import silent
from muster.configure.live.state import LiveState
from muster.configure.snapshot.file import read_snapshot
from muster.errors import BadInputError
from muster.inventory.readings import NVML, SYSTEMD, known
from muster.inventory.record import NodeSnapshot
from muster.resources.baseline import Drift, DriftClass
from muster.resources.fingerprint import Reading, ReadingClass, changes, fingerprint

_CLASSES = {
    ReadingClass.IDENTITY: DriftClass.NODE_IDENTITY,
    ReadingClass.STACK: DriftClass.NODE_STACK,
    ReadingClass.CONFIG: DriftClass.NODE_CONFIG,
}


@dataclass(frozen=True)
class Recorded:
    """One node as a snapshot recorded it; `unknown` are the names of readings that could not be had then."""

    node: str
    readings: tuple[Reading, ...]
    unknown: tuple[str, ...] = ()


def read_recorded(path: Path) -> tuple[Recorded, ...]:
    """The nodes in a snapshot file. Raises BadInputError in one sentence."""
    snapshot = read_snapshot(path)
    entries = [snapshot] if isinstance(snapshot, NodeSnapshot) else [n for n in snapshot.nodes if n.readings]
    if not entries:
        raise BadInputError(
            f"{path} holds no readings of nodes; record them with 'muster snapshot --all-nodes'; "
            "each node needs Muster's agent for that."
        )
    return tuple(Recorded(e.node, tuple(e.readings), tuple(u.name for u in e.unknown)) for e in entries)


def against(recorded: Sequence[Recorded], live: LiveState) -> Iterator[Drift]:
    """What changed since, by node and reading. Volatile readings never count, nor what an agent does not read.

    A recorded node that is gone, or has no agent any more, is a drift of its own.
    """
    healths = {h.metadata.name: h for h in live.node_healths}
    present = {node.name for node in live.nodes}
    for each in sorted(recorded, key=lambda r: r.node):
        health = healths.get(each.node)
        observed = health.status.observed if health is not None and not silent(health) else None
        if observed is None:
            if live.why_unread("nodehealths.muster.dev") or live.why_unread("nodes"):
                continue
            what = "no agent reports it" if each.node in present else "no such node"
            yield Drift(
                drift_class=DriftClass.NODE_IDENTITY,
                node=each.node,
                path="node",
                expected="as in the snapshot",
                found=what,
                remedy=f"if node {each.node} was meant to go, take a new snapshot; if not, look at its agent",
            )
            continue
        now = {reading.name for reading in observed.fingerprint.readings}
        before = fingerprint(r for r in each.readings if r.name in now or _asked_by_agents(r.name))
        old = {r.name for r in before.readings}
        for change in changes(before, observed.fingerprint):
            # What could not be read then is no change now; what only one side ever reads is none either.
            if change.name not in old and (change.name in each.unknown or not _asked_by_agents(change.name)):
                continue
            yield Drift(
                drift_class=_CLASSES.get(change.reading_class, DriftClass.NODE_CONFIG),
                node=each.node,
                path=change.name,
                expected=change.before or "(absent)",
                found=change.after or "(absent)",
                remedy=f"if the change of node {each.node} was meant, take a new snapshot; if not, undo it",
            )


def _asked_by_agents(name: str) -> bool:
    entry = known(name)
    return entry is not None and entry.source not in (NVML, SYSTEMD)
