"""Client-side request rate: a token bucket.

It counts the event loop's own time, not a `Clock`: the rate protects a real server, whatever time is simulated.
"""

from __future__ import annotations

import asyncio


class RateLimiter:
    """`burst` requests at once, `rate_per_s` in the long run; who has to wait is served in order of arrival."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError("a request rate must be positive and its burst at least 1")
        self._interval_s = 1.0 / rate_per_s
        self._window_s = (burst - 1) * self._interval_s
        self._next_at = float("-inf")

    async def acquire(self) -> None:
        """Return when one more request may be sent."""
        now = asyncio.get_running_loop().time()
        # The slot of this request; the bucket is full when slots lie a whole window in the past.
        slot = max(self._next_at, now - self._window_s)
        self._next_at = slot + self._interval_s
        if slot > now:
            await asyncio.sleep(slot - now)
