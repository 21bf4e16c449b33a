"""Memory and I/O pressure as a shell: four small files of /proc."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from muster.agent.host import pressure
from muster.agent.host.blocking import Blocking
from muster.agent.host.config import PressureConfig
from muster.agent.monitor import Look, NodeFacts
from muster.clock import Clock
from muster.errors import UnreachableError
from muster.inventory.machine import Machine


class PressureMonitor:
    """Memory pressure, killed processes, tasks that hang in I/O."""

    name = pressure.SOURCE

    def __init__(self, config: PressureConfig, root: Path, clock: Clock) -> None:
        self.interval_s, self.deadline_s = config.interval_s, config.deadline_s
        self._config = config
        self._machine = Machine(root)
        self._blocking = Blocking("the look at memory and tasks", clock)
        self._memory = pressure.PressureMemory()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:  # noqa: ARG002 - the protocol of monitors
        reading = await self._blocking.run(self._read)
        self._memory, probes = pressure.judge(self._memory, reading, self._config, facts.boot_id)
        return Look(probes=probes)

    def _read(self) -> pressure.PressureReading:
        texts = [self._text(f"proc/{name}") for name in ("pressure/memory", "meminfo", "stat", "vmstat")]
        # Kernels may lack pressure figures; a node without /proc is another matter.
        if not texts[1] or not texts[2]:
            raise UnreachableError(f"/proc of the node cannot be read below {self._machine.root}.")
        return pressure.parse(*texts)

    def _text(self, path: str) -> str:
        try:
            return self._machine.read(path)
        except OSError:
            return ""

    def keep(self) -> str:
        return msgspec.json.encode(self._memory).decode()

    def restore(self, kept: str) -> None:
        try:
            self._memory = msgspec.json.decode(kept, type=pressure.PressureMemory)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._memory = pressure.PressureMemory()

    async def close(self) -> None:
        return None
