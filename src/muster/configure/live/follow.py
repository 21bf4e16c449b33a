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
PROBE_S = 15.0
"""Where nothing changes, so often it is asked whether the server still answers: a watch that broke tells nothing."""
_OUTAGES = (UnreachableError, ServerError, TooManyRequestsError)


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
    """Yield the state at once, after each change, and every `resync_s`; an outage once, and the state after it.

    Never ends by itself.

    `version` asks the server for its version, which also shows whether it answers. Raises UnreachableError when the
    very first look fails; later an outage is told and waited out.
    """
    changed = asyncio.Event()
    memory = Memory()
    seen, lost = False, False
    async with Caches(api, clock, changed.set) as caches:
        while True:
            changed.clear()
            try:
                told = await version()
                found: LiveState | Outage = await read(
                    api, recipe, plan, now=clock.now(), kubernetes_version=told, source=caches, memory=memory
                )
                seen = True
            except _OUTAGES as error:
                if not seen:
                    raise
                found = Outage(str(error))
            if not (lost and isinstance(found, Outage)):
                yield found
            lost = isinstance(found, Outage)
            if lost:
                await clock.sleep(min(PROBE_S, resync_s))
            else:
                await _worth_a_look(changed, version, clock, resync_s)
                await clock.sleep(settle_s)


async def _worth_a_look(
    changed: asyncio.Event, version: Callable[[], Awaitable[str]], clock: Clock, limit_s: float
) -> None:
    """Return when something changed, when the server answers no more, or after `limit_s`."""
    waited_s = 0.0
    while True:
        step_s = min(PROBE_S, limit_s - waited_s)
        await _change(changed, clock, step_s)
        waited_s += step_s
        if changed.is_set() or waited_s >= limit_s:
            return
        try:
            await version()
        except _OUTAGES:
            return


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
