"""Tasks of the simulated fleet: a set that fails as one, and a wait with a limit on the injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from muster.clock import Clock

T = TypeVar("T")


class TaskSet:
    """Tasks that may be started at any time while `run` is active; the first error of any of them ends `run`."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failed: asyncio.Future[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    async def run(self) -> None:
        """Wait for ever. Raises what a task raised; on the way out every task is cancelled and waited for."""
        self._failed = asyncio.get_running_loop().create_future()
        for task in list(self._tasks):
            if task.done():
                self._done(task)
        try:
            await self._failed
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._tasks.pop(task, None)
        elif self._failed is not None and not self._failed.done():
            self._tasks.pop(task, None)
            self._failed.set_exception(error)


async def first_of(clock: Clock, future: asyncio.Future[T], seconds: float) -> T | None:
    """The result of `future`, or None when it is not there after `seconds` of the clock. Never cancels the future."""
    if future.done():
        return future.result()
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((future, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return future.result() if future.done() else None


async def run_until(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Run `work` until it ends or `stop` is set, and see it ended. Raises what `work` raises."""
    task = asyncio.ensure_future(work)
    stopper = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopper), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        stopper.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
