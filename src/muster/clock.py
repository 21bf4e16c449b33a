"""Time as a parameter: every shell reads time and sleeps only through a `Clock`.

Cores never see a clock; they are handed `now` as a value. All times are aware and in UTC.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What a shell may know about time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time (not of the machine's)."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def speed_of(clock: Clock) -> float:
    """Seconds of `clock` in one second of the machine, for what is bound to the machine whatever the clock says."""
    return clock.speed if isinstance(clock, ScaledClock) else 1.0


@dataclass(frozen=True)
class ScaledClock:
    """Time that runs `speed` times as fast as the machine's, from one agreed moment on.

    Several processes that hold the same three numbers see the same time, so a controller in a process of its own
    can live in the accelerated time of a simulated fleet. `origin` is the clock's time at the machine's Unix time
    `origin_unix_s`.
    """

    origin: datetime
    origin_unix_s: float
    speed: float

    def now(self) -> datetime:
        return self.origin + timedelta(seconds=(time.time() - self.origin_unix_s) * self.speed)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    def encode(self) -> str:
        """One token for a flag or an environment variable; `decode` reads it back."""
        return f"{self.origin.isoformat()},{self.origin_unix_s!r},{self.speed!r}"

    @classmethod
    def decode(cls, text: str) -> ScaledClock:
        """Read what `encode` wrote. Raises ValueError when the text is something else or speed is not positive."""
        origin, unix_s, speed = text.split(",")
        clock = cls(datetime.fromisoformat(origin), float(unix_s), float(speed))
        if clock.origin.tzinfo is None or clock.speed <= 0:
            raise ValueError("origin needs a time zone and speed must be positive")
        return clock
