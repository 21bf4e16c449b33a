"""Blocking reads beside the event loop: a read that hangs is one stuck thread, never a stuck agent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from muster.clock import Clock
from muster.errors import DeadlineError, UnreachableError

T = TypeVar("T")


class Blocking:
    """Runs one function at a time in a thread of its own that does not keep the process from ending.

    Whoever waits may give up; the thread cannot be stopped. Until it is done, further calls fail at once.
    """

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._busy_since: datetime | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result or exception.

        Raises DeadlineError while an earlier call has not come back, UnreachableError when no thread is to be had.
        """
        if self._busy_since is not None:
            waited = (self._clock.now() - self._busy_since).total_seconds()
            raise DeadlineError(f"{self._what} of {waited:.0f} s ago has not come back; the kernel holds it.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._busy_since = self._clock.now()

        def work() -> None:
            try:
                result = function()
            except BaseException as error:  # handed to whoever waits
                failure = error
                self._tell(loop, lambda: None if answer.done() else answer.set_exception(failure))
            else:
                self._tell(loop, lambda: None if answer.done() else answer.set_result(result))

        try:
            threading.Thread(target=work, name=self._what[:15], daemon=True).start()
        except RuntimeError as error:
            self._busy_since = None
            raise UnreachableError(f"{self._what} cannot begin: {error}.") from error
        return await answer

    def _tell(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._busy_since = None
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop ended while the read hung: nobody waits any more.
            return
