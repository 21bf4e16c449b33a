"""The system clock as a shell. The clock is the machine's, whatever container the agent runs in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from muster.agent.host import clock_state
from muster.agent.host.adjtimex import read_clock
from muster.agent.host.clock_state import ClockReading
from muster.agent.host.config import ClockConfig
from muster.agent.monitor import Look, NodeFacts


class ClockMonitor:
    """Synchronised, accurate, not set by hand."""

    name = clock_state.SOURCE

    def __init__(self, config: ClockConfig, read: Callable[[], ClockReading] = read_clock) -> None:
        self.interval_s, self.deadline_s = config.interval_s, config.deadline_s
        self._config = config
        self._read = read
        self._memory = clock_state.ClockMemory()

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        reading = self._read()
        self._memory, probes = clock_state.judge(
            self._memory, reading, self._config, facts.boot_id, facts.booted_at, now
        )
        return Look(probes=probes)

    def keep(self) -> str:
        return msgspec.json.encode(self._memory).decode()

    def restore(self, kept: str) -> None:
        try:
            self._memory = msgspec.json.decode(kept, type=clock_state.ClockMemory)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            self._memory = clock_state.ClockMemory()

    async def close(self) -> None:
        return None
