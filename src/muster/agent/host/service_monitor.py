"""Services of the node as a shell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from muster.agent.host import services
from muster.agent.host.blocking import Blocking
from muster.agent.host.config import ServicesConfig
from muster.agent.host.service_reading import read_services
from muster.agent.host.services import MachineReading
from muster.agent.monitor import Look, NodeFacts
from muster.clock import Clock
from muster.inventory.machine import Machine


class ServiceMonitor:
    """The kubelet, its container runtime, and what serves the driver."""

    name = services.SOURCE

    def __init__(
        self, config: ServicesConfig, root: Path, clock: Clock, read: Callable[[], MachineReading] | None = None
    ) -> None:
        """`read` replaces the look at the machine below `root`."""
        self.interval_s, self.deadline_s = config.interval_s, config.deadline_s
        self._config = config
        self._read = read or (lambda: read_services(Machine(root), config))
        self._blocking = Blocking("the look at the services", clock)
        self._memory = services.ServicesMemory()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        reading = await self._blocking.run(self._read)
        self._memory, probes = services.judge(
            self._memory, reading, self._config, facts.boot_id, facts.booted_at, now
        )
        return Look(probes=probes)

    def keep(self) -> str:
        return msgspec.json.encode(self._memory).decode()

    def restore(self, kept: str) -> None:
        try:
            self._memory = msgspec.json.decode(kept, type=services.ServicesMemory)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._memory = services.ServicesMemory()

    async def close(self) -> None:
        return None
