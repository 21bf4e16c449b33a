"""The GPU monitor: asks its source for a sample, and lets the core judge it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from muster.agent.gpu import state as states
from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.judge import hang, judge
from muster.agent.gpu.ledger import SOURCE
from muster.agent.gpu.sample import Sample
from muster.agent.gpu.state import GpuState
from muster.agent.monitor import Look, NodeFacts
from muster.moments import is_recent

DEEP = timedelta(hours=1)
"""How often the InfoROM is read: that takes the flash a while."""
_MARGIN_S = 5.0


class GpuSampler(Protocol):
    """Where samples come from."""

    async def sample(self, deadline_s: float, *, deep: bool) -> Sample:
        """One sample. Raises OSError or MusterError when there is none."""
        ...

    async def close(self) -> None: ...


class GpuMonitor:
    """Looks at all GPUs of the node."""

    name = SOURCE

    def __init__(self, config: GpuConfig, source: GpuSampler) -> None:
        self.interval_s = config.interval_s
        self.deadline_s = config.deadline_s + _MARGIN_S
        self._config = config
        self._source = source
        self._state = GpuState()
        self._misses = 0
        self._deep_at: datetime | None = None

    async def look(self, facts: NodeFacts, now: datetime) -> Look:
        """One look. Raises OSError or MusterError when the source cannot be read."""
        deep = self._deep_at is None or not is_recent(self._deep_at, now, DEEP)
        sample = await self._source.sample(self._config.deadline_s, deep=deep)
        if sample.hung:
            self._misses += 1
            return hang(self._config, self._state, sample, self._misses, facts.boot_id, now)
        self._misses = 0
        if deep and sample.complete:
            self._deep_at = now
        self._state, look = judge(self._config, self._state, sample, facts.boot_id, len(facts.gpus), now)
        return look

    def keep(self) -> str:
        return states.encode(self._state)

    def restore(self, kept: str) -> None:
        self._state = states.decode(kept) or self._state

    async def close(self) -> None:
        await self._source.close()
