"""Runs one monitor: looks at its interval, gives a look up at its deadline, and goes on whatever the monitor does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from muster.agent.monitor import MAX_KEPT_CHARACTERS, Look, Monitor, NodeFacts
from muster.clock import Clock
from muster.kube.backoff import Backoff
from muster.plain_text import plain

log = logging.getLogger(__name__)

STAGGER_S = 1.5
"""Monitors begin one after the other, so that their looks do not fall together."""


class MonitorTask:
    """One monitor of the agent. `take` gets each look, `fail` the words for one that failed."""

    def __init__(
        self,
        monitor: Monitor,
        clock: Clock,
        facts: Callable[[], NodeFacts],
        take: Callable[[Monitor, Look], None],
        fail: Callable[[Monitor, str], None],
    ) -> None:
        self.monitor = monitor
        self._clock = clock
        self._facts = facts
        self._take = take
        self._fail = fail
        self._looking: asyncio.Task[Look] | None = None

    async def run(self, number: int) -> None:
        """Look for ever; the monitor is the `number`-th of the agent."""
        await self._clock.sleep(min(number * STAGGER_S, self.monitor.interval_s / 2))
        backoff = Backoff(f"monitor/{self.monitor.name}", base_s=1.0, cap_s=max(1.0, self.monitor.interval_s))
        while True:
            began = self._clock.now()
            if await self.once():
                backoff.reset()
                passed_s = (self._clock.now() - began).total_seconds()
                await self._clock.sleep(max(self.monitor.interval_s / 10, self.monitor.interval_s - passed_s))
            else:
                await self._clock.sleep(max(backoff.next_s(), self.monitor.interval_s / 10))

    async def once(self) -> bool:
        """One look. Returns whether it came to an end by itself and without an error."""
        if self._looking is not None and not self._looking.done():
            self._fail(self.monitor, "the look before has not ended yet")
            return False
        looking = self._looking = asyncio.create_task(self.monitor.look(self._facts(), self._clock.now()))
        try:
            if not await self._ends_in_time(looking):
                looking.cancel()
                self._fail(self.monitor, f"no answer within {self.monitor.deadline_s:g} s")
                return False
            self._take(self.monitor, looking.result())
        except asyncio.CancelledError:
            looking.cancel()
            raise
        except Exception as error:  # a failing monitor degrades alone, whatever its bug is
            words = plain(str(error), 200) or type(error).__name__
            log.warning("monitor %s: %s", self.monitor.name, words)
            self._fail(self.monitor, words)
            return False
        return True

    async def _ends_in_time(self, looking: asyncio.Task[Look]) -> bool:
        late = asyncio.create_task(self._clock.sleep(self.monitor.deadline_s))
        try:
            await asyncio.wait((looking, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            late.cancel()
        return looking.done()

    def kept(self) -> str:
        """What the monitor wants kept; nothing from one that fails at that or asks too much."""
        try:
            kept = self.monitor.keep()
            fits = len(kept.encode()) <= MAX_KEPT_CHARACTERS
        except Exception as error:  # as above
            log.warning("monitor %s: cannot tell what to keep: %s", self.monitor.name, error)
            return ""
        return kept if fits else ""

    async def close(self) -> None:
        """End the monitor."""
        try:
            await self.monitor.close()
        except Exception as error:  # as above
            log.warning("monitor %s: %s", self.monitor.name, error)
