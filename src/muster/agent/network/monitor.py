"""The network monitor as a shell: reads sysfs beside the event loop, judges, remembers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from muster.agent.host.blocking import Blocking
from muster.agent.monitor import Look, NodeFacts
from muster.agent.network.config import NetworkConfig
from muster.agent.network.judge import SOURCE, judge
from muster.agent.network.memory import NetworkMemory, decode, encode
from muster.agent.network.ports import Snapshot
from muster.agent.network.reading import read_ports
from muster.clock import Clock
from muster.inventory.machine import Machine


class NetworkMonitor:
    """Ports of InfiniBand, RoCE and Ethernet adapters."""

    name = SOURCE

    def __init__(
        self, config: NetworkConfig, root: Path, clock: Clock, read: Callable[[], Snapshot] | None = None
    ) -> None:
        """`read` replaces the look at sysfs below `root`."""
        self.interval_s, self.deadline_s = config.interval_s, config.deadline_s
        self._config = config
        self._read = read or (lambda: read_ports(Machine(root), config))
        # An adapter whose firmware hangs can hold a read of its files for minutes.
        self._blocking = Blocking("the look at the network ports", clock)
        self._memory = NetworkMemory()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        snapshot = await self._blocking.run(self._read)
        self._memory, probes = judge(
            self._memory, snapshot, self._config, facts.boot_id, facts.booted_at, len(facts.gpus), now
        )
        return Look(probes=probes, unknown=snapshot.unknown)

    def keep(self) -> str:
        return encode(self._memory)

    def restore(self, kept: str) -> None:
        self._memory = decode(kept)

    async def close(self) -> None:
        return None
