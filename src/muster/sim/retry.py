"""Writing through an API that may be busy or away: the fleet never gives up, and never hides a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import ForbiddenError, ServerError, TooManyRequestsError

T = TypeVar("T")

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
NEW_NAMESPACE_S = 300.0
"""In a new namespace pods are forbidden until a controller has made its default service account."""


async def persist(clock: Clock, write: Callable[[], Awaitable[T]], *, forbidden_s: float = 0.0) -> T:
    """Call `write` until it answers. Outages, overload and server errors are tried again; refusals are raised.

    What is forbidden counts as a refusal only after `forbidden_s`: some things are forbidden for a moment only.
    """
    wait_s = FIRST_WAIT_S
    forbidden_until = clock.now() + timedelta(seconds=forbidden_s)
    while True:
        try:
            return await write()
        except TooManyRequestsError as error:
            await clock.sleep(max(error.retry_after_s or 0.0, wait_s))
        except ForbiddenError:
            if clock.now() >= forbidden_until:
                raise
            await clock.sleep(wait_s)
        except (ServerError, UnreachableError):
            await clock.sleep(wait_s)
        wait_s = min(wait_s * 2.0, LONGEST_WAIT_S)
