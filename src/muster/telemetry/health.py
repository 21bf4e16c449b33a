"""Whether the process is alive, and whether it is ready: two questions with two answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

TICK_S = 1.0
LAG_LIMIT_S = 5.0
"""A loop that comes so late to its timer is as good as stuck: heartbeats and renewals of the lease suffer first."""


class Health:
    """Measures the event loop and asks `ready`, which returns why the process is not ready, or an empty text.

    It lives in the event loop's own time, not in a `Clock`: probes come from a real kubelet, whatever is simulated.
    """

    def __init__(self, ready: Callable[[], str], on_lag: Callable[[float], None] = lambda _: None) -> None:
        self._ready = ready
        self._on_lag = on_lag
        self.lag_s = 0.0
        """How late the last tick was."""

    async def run(self) -> NoReturn:
        """Measure for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            self.lag_s = max(0.0, loop.time() - due)
            self._on_lag(self.lag_s)

    def not_alive(self) -> str:
        """Why the process should be restarted; empty while it should not."""
        if self.lag_s > LAG_LIMIT_S:
            return f"the event loop was {self.lag_s:.1f} s late, which is more than {LAG_LIMIT_S:g} s"
        return ""

    def not_ready(self) -> str:
        """Why the process is not ready; empty when it is."""
        return self._ready()
