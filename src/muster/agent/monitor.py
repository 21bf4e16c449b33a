"""What a monitor of the agent is: something that looks at one part of the node now and then and says what it sees.

Debounce, start-up grace, dedupe and the compression of storms happen behind it, once for all monitors
(`muster.faults.assembly`); a monitor tells at each look what it sees at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from muster.agent.sources import Probe
from muster.faults.assembly import Sighting
from muster.resources.node_health import Gpu, GpuAssignment, Notice

MAX_KEPT_CHARACTERS = 256 * 1024
"""A monitor that wants more kept keeps nothing."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What a monitor may know of its node."""

    boot_id: str
    booted_at: datetime | None
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look found."""

    sightings: tuple[Sighting, ...] = ()
    """Events: something happened."""
    probes: tuple[Probe, ...] = ()
    """States, one for each (check, entity, code) that the monitor can tell, healthy ones too: a healthy probe is
    what closes the fault."""
    unknown: tuple[str, ...] = ()
    """What could not be read this time, in words for people; the monitor shows as degraded."""
    notices: tuple[Notice, ...] | None = None
    """All announced maintenance that stands now; None: the monitor says nothing of it."""
    assignments: tuple[GpuAssignment, ...] | None = None
    """Which pods hold which GPUs; None: the monitor says nothing of it."""


class Monitor(Protocol):
    """One monitor. Its `name` is the `source` of its probes and sightings."""

    name: str
    """`gpu`, `network`, `host`, `maintenance-aws`, `plugin-<name>`, ..."""
    interval_s: float
    deadline_s: float
    """A look that takes longer is given up: that is an observation (degraded) and never a stuck agent."""

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        """Look once. Raises OSError or MusterError when nothing can be seen: degraded, the others go on."""
        ...

    def keep(self) -> str:
        """What must survive a restart (baselines of counters) as bounded JSON text; empty for nothing."""
        ...

    def restore(self, kept: str) -> None:
        """Take what an earlier agent kept. Never raises; text of another version is as good as none."""
        ...

    async def close(self) -> None:
        """End children and connections."""
        ...
