"""What Muster's agents published about their nodes, and whether it can be relied on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.configure.snapshot.model import NodeEntry
from muster.configure.snapshot.nodes import expected_gpus
from muster.inventory.record import UnknownReading
from muster.resources.fingerprint import Reading
from muster.resources.node_health import Observed

READINGS = "readings"
"""Name of the unknown entry of a node whose agent says nothing."""
GPU = "gpu"
"""Name of the unknown entry of a node whose Node object promises GPUs that the agent does not find."""
DEFAULT_LEASE_S = 180.0


class _Name(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    observed: Observed | None = None


class _Published(msgspec.Struct):
    """The agent's part of a NodeHealth; the controller's part, which is larger, is skipped while decoding."""

    metadata: _Name
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Published, strict=False)


def published(raw: bytes, shared: dict[Reading, Reading]) -> tuple[str, Observed | None]:
    """Name of the node and what its agent says, from a NodeHealth (JSON).

    Nodes of a fleet have most readings in common: `shared` keeps one of each.
    """
    try:
        found = _decoder.decode(raw)
    except msgspec.MsgspecError:
        return "", None  # a node whose object nobody can read is a node whose agent says nothing
    observed = found.status.observed
    if observed is not None:
        readings = tuple(shared.setdefault(reading, reading) for reading in observed.fingerprint.readings)
        fingerprint = replace(observed.fingerprint, readings=readings)
        observed = replace(observed, fingerprint=fingerprint)
    return found.metadata.name, observed


def with_agent(
    entry: NodeEntry, node_uid: str, observed: Observed | None, lease: Mapping[str, Any] | None, now: datetime
) -> NodeEntry:
    """`entry` with the readings of its agent, or with the reason why there are none.

    `observed` is what the agent published last (None: nothing), `lease` its heartbeat (None: there is none). Silent
    agents are not quoted: what they said last may be of another machine by now.
    """
    reason = _why_not(observed, node_uid, lease, now)
    if observed is None or reason:
        return _unknown(entry, READINGS, reason)
    entry = replace(entry, readings=observed.fingerprint.readings)
    for monitor in observed.monitors:
        if monitor.name == "inventory" and monitor.message:
            entry = _unknown(entry, "inventory", f"its agent says: {monitor.message[:400]}")
    promised = expected_gpus(entry)
    count = next((r.value for r in observed.fingerprint.readings if r.name == "gpu.count"), "")
    if promised and not observed.gpus and count in ("", "0"):
        return _unknown(entry, GPU, f"the Node object promises {promised} GPU(s), its agent finds none")
    return entry


def _why_not(observed: Observed | None, node_uid: str, lease: Mapping[str, Any] | None, now: datetime) -> str:
    if observed is None:
        return "no agent has published anything about it; install Muster's agent on it"
    if node_uid and observed.node_uid != node_uid:
        return "its agent published about an earlier node of this name"
    renewed, lasts_s = _heartbeat(lease)
    if renewed is None:
        return "its agent has no heartbeat"
    if now > renewed + timedelta(seconds=lasts_s):
        return f"its agent has been silent since {renewed:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _heartbeat(lease: Mapping[str, Any] | None) -> tuple[datetime | None, float]:
    spec = (lease or {}).get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime")))
    except ValueError:
        return None, 0.0
    duration = spec.get("leaseDurationSeconds")
    lasts_s = float(duration) if isinstance(duration, int) and duration > 0 else DEFAULT_LEASE_S
    return (renewed if renewed.tzinfo is not None else None), lasts_s


def _unknown(entry: NodeEntry, name: str, reason: str) -> NodeEntry:
    return replace(entry, unknown=(*entry.unknown, UnknownReading(name=name, reason=reason)))
