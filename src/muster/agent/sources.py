"""What an agent reads from: a kernel log and an inventory. The same agent runs on real and on simulated sources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from muster.resources.fault import Entity, Hint, Scope, Severity
from muster.resources.fingerprint import Reading
from muster.resources.node_health import Gpu


@dataclass(frozen=True)
class LogBatch:
    """Records in the order in which they were written, and the cursor after the last one.

    `lost` counts records that were overwritten or cut away before they could be read.
    """

    records: tuple[bytes, ...]
    cursor: str
    lost: int = 0


class LogSource(Protocol):
    """A log that is read once, in order. Cursors are opaque; only the source that made one can read it."""

    async def read(self, cursor: str | None) -> LogBatch:
        """The next records after `cursor` (None: from the oldest). Waits for one; only a new cursor comes without.

        Raises OSError or MusterError when the log cannot be read now.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of one check of one entity: `healthy` is None when the probe itself failed (unknown, not faulty).

    The other fields describe the fault that is open while `healthy` is False.
    """

    source: str
    check: str
    code: str
    entity: Entity
    healthy: bool | None
    severity: Severity = Severity.UNKNOWN
    scope: Scope = Scope.NODE
    hint: Hint = Hint.NONE
    message: str = ""


def probe_failures(probes: tuple[Probe, ...]) -> dict[str, str]:
    """Per source of probes, why a probe could not tell; empty when all of the source's probes could."""
    failures = {probe.source: "" for probe in probes}
    for probe in probes:
        if probe.healthy is None:
            failures[probe.source] = probe.message or f"{probe.check} of {probe.entity.key()} could not be probed"
    return failures


@dataclass(frozen=True, kw_only=True)
class NodeReadings:
    """What a node is at one moment.

    `node_uid` may be empty: the agent then asks the API server. `unread` names readings that exist but could not be
    read this time; the agent keeps their last values of the same boot and says so.
    """

    node_uid: str
    boot_id: str
    booted_at: datetime | None
    readings: tuple[Reading, ...]
    gpus: tuple[Gpu, ...]
    probes: tuple[Probe, ...] = ()
    unread: tuple[str, ...] = ()


class Inventory(Protocol):
    """Reads what the node is."""

    async def read(self) -> NodeReadings:
        """The readings of this moment. Raises OSError or MusterError when they cannot be had."""
        ...
