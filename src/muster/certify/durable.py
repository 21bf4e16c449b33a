"""Requests that must succeed: repeated while the API server is away, busy or restarting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import ForbiddenError, ServerError, TooManyRequestsError
from muster.kube.backoff import Backoff

T = TypeVar("T")
log = logging.getLogger(__name__)

PARALLEL = 16
"""Requests of one certification that are under way at the same time."""

FORBIDDEN_S = 20.0
"""An API server that has just started forbids what the roles allow until it has read them (a second or so), and a
new namespace takes no pods until its default service account is made. What is still forbidden then stays so."""


class SupersededError(Exception):
    """Somebody else writes to this certification, or it is gone: whoever carries it out must begin anew."""


async def persist(clock: Clock, what: str, act: Callable[[], Awaitable[T]]) -> T:
    """The result of `act`, tried again for as long as the server cannot be reached or asks to come back later.

    A request may have taken effect although it seemed to fail: `act` must stand being carried out twice. `what` names
    it in the log. Raises every other ApiError; a ForbiddenError only after FORBIDDEN_S.
    """
    backoff = Backoff(what)
    forbidden_until = clock.now() + timedelta(seconds=FORBIDDEN_S)
    while True:
        try:
            return await act()
        except TooManyRequestsError as error:
            wait_s = max(error.retry_after_s or 0.0, backoff.next_s())
            log.info("%s: %s; again in %.1f s", what, error, wait_s)
        except ForbiddenError as error:
            if clock.now() >= forbidden_until:
                raise
            wait_s = backoff.next_s()
            log.info("%s: %s; again in %.1f s", what, error, wait_s)
        except (ServerError, UnreachableError) as error:
            wait_s = backoff.next_s()
            log.warning("%s: %s; again in %.1f s", what, error, wait_s)
        await clock.sleep(wait_s)


async def in_parallel(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Carry out `works`, PARALLEL at a time, started in their order. Raises the first error, the others cancelled."""
    free = asyncio.Semaphore(PARALLEL)

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        async with free:
            await work()

    tasks = [asyncio.ensure_future(one(work)) for work in works]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_news(clock: Clock, news: asyncio.Event, seconds: float) -> None:
    """Return when `news` is set, or after `seconds` of the clock's time."""
    if news.is_set() or seconds <= 0:
        await asyncio.sleep(0)
        return
    works = (asyncio.ensure_future(news.wait()), asyncio.ensure_future(clock.sleep(seconds)))
    try:
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
