"""The live cluster read again whenever something in it changed: watches, and a full look from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from muster.clock import Clock
from muster.configure.live.read import Memory, read
from muster.configure.live.source import Caches
from muster.configure.live.state import LiveState
from muster.configure.plan import Plan
from muster.configure.recipe import Recipe
from muster.errors import UnreachableError
from muster.kube.api import KubeApi, ServerError, TooManyRequestsError

SETTLE_S = 1.0
"""Changes come in groups (an upgrade touches many objects); this long after the first of them is looked again."""
RESYNC_S = 300.0


@dataclass(frozen=True)
class Outage:
    """The server does not answer at the moment; what was seen last may no longer hold."""

    reason: str


async def follow(
    api: KubeApi,
    recipe: Recipe,
    plan: Plan,
    clock: Clock,
    *,
    version: Callable[[], Awaitable[str]],
    resync_s: float = RESYNC_S,
    settle_s: float = SETTLE_S,
) -> AsyncGenerator[LiveState | Outage, None]:
    """Yield the state at once, after each change, and every `resync_s`. Never ends by itself.

    `version` asks the server for its version, which also shows whether it answers. Raises UnreachableError when the
    very first look fails; later an outage is told and waited out.
    """
    changed = asyncio.Event()
    memory = Memory()
    seen = False
    async with Caches(api, clock, changed.set) as caches:
        while True:
            changed.clear()
            try:
                told = await version()
                found: LiveState | Outage = await read(
                    api, recipe, plan, now=clock.now(), kubernetes_version=told, source=caches, memory=memory
                )
                seen = True
            except (UnreachableError, ServerError, TooManyRequestsError) as error:
                if not seen:
                    raise
                found = Outage(str(error))
            yield found
            await _change(changed, clock, resync_s)
            await clock.sleep(settle_s)


async def _change(changed: asyncio.Event, clock: Clock, limit_s: float) -> None:
    """Return when something changed, or after `limit_s`: some things become wrong by time alone."""
    waiting = asyncio.ensure_future(changed.wait())
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        timer.cancel()
        await asyncio.gather(waiting, timer, return_exceptions=True)
