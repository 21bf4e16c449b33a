"""Work queue: keyed, coalescing, with delays and backoff per key."""

from __future__ import annotations

import asyncio
import heapq
import random
from datetime import datetime

from muster.clock import Clock
from muster.kube.backoff import exponential_s
from muster.moments import after


class WorkQueue:
    """Hands out a key once however often it was added; a key added while in work is handed out once more.

    `get` and `done` bracket the work on a key, so no two workers ever hold the same key. Keys come out in the order
    in which they became due.
    """

    def __init__(self, clock: Clock, *, retry_base_s: float = 0.25, retry_cap_s: float = 60.0, seed: int = 0) -> None:
        self._clock = clock
        self._retry_base_s = retry_base_s
        self._retry_cap_s = retry_cap_s
        self._random = random.Random(seed)  # noqa: S311 - jitter, not a secret
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: set[str] = set()
        self._working: set[str] = set()
        self._failures: dict[str, int] = {}
        self._due: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, int, str]] = []
        self._order = 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_at: datetime | None = None

    def __len__(self) -> int:
        """Keys that are ready to be handed out now."""
        return self._ready.qsize()

    def add(self, key: str) -> None:
        """Hand out `key` as soon as possible."""
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Hand out `key` after `seconds` of the clock's time; of several delays of one key the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = after(self._clock.now(), seconds)
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, key))
        self._arm()

    def retry(self, key: str) -> None:
        """Hand out `key` again after a backoff that doubles with each retry until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        full_s = exponential_s(failures, self._retry_base_s, self._retry_cap_s)
        self.add_after(key, full_s * self._random.uniform(0.5, 1.0))

    def forget(self, key: str) -> None:
        """The work on `key` succeeded: its next retry starts from the shortest backoff."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Wait for a key. The caller must call `done` with it, whatever happens."""
        self._arm()
        key = await self._ready.get()
        self._wanted.discard(key)
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """The work on `key` ended; if it was added meanwhile, it is ready again."""
        self._working.discard(key)
        if key in self._wanted:
            self._ready.put_nowait(key)

    def close(self) -> None:
        """Stop the timer. Delayed keys are forgotten."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._due.clear()

    def _arm(self) -> None:
        """Have one task asleep until the earliest due key."""
        if not self._heap:
            return
        earliest = self._heap[0][0]
        running = self._timer is not None and not self._timer.done()
        if running and self._timer_at is not None and self._timer_at <= earliest:
            return
        if running and self._timer is not None:
            self._timer.cancel()
        self._timer_at = earliest
        self._timer = asyncio.get_running_loop().create_task(self._release_due())

    async def _release_due(self) -> None:
        while self._heap:
            self._timer_at = self._heap[0][0]
            wait_s = (self._timer_at - self._clock.now()).total_seconds()
            if wait_s > 0:
                # A step of at least a millisecond: times have microseconds, sleeping may end one too early.
                await self._clock.sleep(max(wait_s, 0.001))
                continue
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
