"""Running endless works side by side: when one ends, all end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def run_together(*works: Awaitable[None]) -> None:
    """Run `works` until the first of them ends or this is cancelled; then cancel the others and wait for them.

    Raises what the first one raised, not a group: the caller must be able to tell why it stopped.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
