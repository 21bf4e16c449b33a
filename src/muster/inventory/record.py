"""The snapshot of one machine as a value: readings, what could not be read, digests. Pure."""

from __future__ import annotations

from datetime import datetime

from muster.inventory.machine import Findings
from muster.resources.base import API_VERSION, Model
from muster.resources.fingerprint import Reading, ReadingClass, class_digest, fingerprint

KIND = "Snapshot"


class UnknownReading(Model, frozen=True, kw_only=True):
    """A reading that could not be had, and why."""

    name: str
    reason: str


class NodeSnapshot(Model, frozen=True, kw_only=True):
    """Readings sorted by name, what could not be read, and the digests that a certificate is bound to."""

    api_version: str = API_VERSION
    kind: str = KIND
    node: str
    taken_at: datetime
    fingerprint: str
    """Digest over all readings that are not volatile."""
    digests: dict[str, str]
    """Digest per class: identity, stack, config."""
    readings: tuple[Reading, ...]
    unknown: tuple[UnknownReading, ...] = ()

    def gpu_count(self) -> int | None:
        """How many NVIDIA GPUs were found; None when that could not be read."""
        value = next((r.value for r in self.readings if r.name == "gpu.count"), None)
        return int(value) if value is not None and value.isdigit() else None


def snapshot_of(found: Findings, node: str, now: datetime) -> NodeSnapshot:
    """The snapshot of what was found. Of two readings with one name the first counts."""
    readings = {reading.name: reading for reading in reversed(found.readings)}
    ordered = tuple(readings[name] for name in sorted(readings))
    kept = tuple(c for c in ReadingClass if c is not ReadingClass.VOLATILE)
    return NodeSnapshot(
        node=node,
        taken_at=now,
        fingerprint=fingerprint(ordered).digest,
        digests={c.value: class_digest(ordered, (c,)) for c in kept},
        readings=ordered,
        unknown=tuple(
            UnknownReading(name=name, reason=reason)
            for name, reason in sorted({(unknown.name, unknown.reason) for unknown in found.unknown})
        ),
    )
