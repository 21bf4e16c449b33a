"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing else can run.

Days pass in seconds, and the order of events depends on nothing but the program: one thread, first in first out
callbacks, timers in the order of their deadlines.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

DEFAULT_START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


class StalledError(RuntimeError):
    """Nothing can run any more and no timer is pending, yet the main coroutine has not finished."""


class VirtualClock:
    """The `Clock` of a virtual loop; also usable before the loop runs."""

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self.start = start
        self.elapsed_s = 0.0

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.elapsed_s)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class _JumpingSelector(selectors.BaseSelector):
    """Instead of waiting for `timeout`, moves the clock by it."""

    def __init__(self, clock: VirtualClock, pace: Callable[[float], float] | None) -> None:
        self._real = selectors.DefaultSelector()
        self._clock = clock
        self._pace = pace

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StalledError("every task waits for something that no timer will bring about")
        if self._pace is not None:
            time.sleep(self._pace(timeout))
        self._clock.elapsed_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual time. `pace` maps a jump (virtual seconds) to real seconds to wait, for viewers."""

    def __init__(self, clock: VirtualClock, pace: Callable[[float], float] | None = None) -> None:
        self._clock = clock
        super().__init__(_JumpingSelector(clock, pace))

    def time(self) -> float:
        return self._clock.elapsed_s


def run_virtual(
    main: Callable[[VirtualClock], Coroutine[Any, Any, T]],
    *,
    start: datetime = DEFAULT_START,
    pace: Callable[[float], float] | None = None,
) -> T:
    """Run `main(clock)` to its end on a fresh virtual loop and return its result.

    Raises StalledError on a deadlock. Tasks that are still running at the end are cancelled.
    """
    clock = VirtualClock(start)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock, pace)) as runner:
        return runner.run(main(clock))
