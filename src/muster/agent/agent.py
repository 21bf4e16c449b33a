"""The node agent: one asyncio process that watches its node and publishes what it sees.

Log and inventory feed one picture of the node. When the picture changes, it is first kept on disk, then offered to
the publisher. A monitor that fails shows as degraded; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from muster.agent import memory
from muster.agent.diagnosis import Diagnosis
from muster.agent.memory import Memory
from muster.agent.monitors import Monitors
from muster.agent.picture import Picture
from muster.agent.publish import Heartbeat, Publisher
from muster.agent.sources import Inventory, LogBatch, LogSource, NodeReadings
from muster.agent.state import StateStore
from muster.clock import Clock
from muster.errors import MusterError
from muster.kube.api import KubeApi
from muster.kube.backoff import Backoff
from muster.resources.node_health import Observed

log = logging.getLogger(__name__)

KERNEL_LOG = "kernel-log"
INVENTORY = "inventory"
QUIET_S = 5.0
"""A log that was silent this long has been read to its end."""
COUNT_REFRESH = timedelta(minutes=5)
"""How long published counts and times of known faults may lag behind."""
LOSS_SHOWN = timedelta(hours=1)
"""How long a loss of log records keeps the monitor degraded."""


class Agent:
    """Watches one node. `run` never returns; everything that must survive it is in `state`."""

    def __init__(
        self,
        api: KubeApi,
        node_name: str,
        log_source: LogSource,
        inventory: Inventory,
        clock: Clock,
        *,
        state: StateStore,
        interval_s: float = 30.0,
        heartbeat_s: float = 60.0,
        version: str,
    ) -> None:
        self._node = node_name
        self._source = log_source
        self._inventory = inventory
        self._clock = clock
        self._state = state
        self._interval_s = interval_s
        self._version = version
        self._publisher = Publisher(api, node_name, clock)
        self._heartbeat = Heartbeat(api, node_name, clock, heartbeat_s=heartbeat_s)
        self._monitors = Monitors(INVENTORY, KERNEL_LOG)
        self._picture: Picture | None = None
        self._cursor: str | None = None
        self._caught_up = False
        self._lost = 0
        self._lost_until: datetime | None = None
        self._unsaved = False
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Watch and publish for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeat.run())
                tasks.create_task(self._publisher.run())
                tasks.create_task(self._watch_inventory())
                tasks.create_task(self._watch_log())
        finally:
            self._save()

    async def run_once(self) -> Observed:
        """Read everything once, publish it, and return it. Raises MusterError or OSError."""
        await self._look()
        while not self._caught_up:
            await self._follow()
        if not self._monitors.is_ok(KERNEL_LOG):
            log.warning("%s: %s", self._node, self._monitors.statuses())
        observed = self._compose()
        await self._heartbeat.send()
        await self._publisher.send(observed)
        return observed
