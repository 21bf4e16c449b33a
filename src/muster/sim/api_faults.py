"""Faults on demand: what a test may make the API server do wrong, decided by one pure hook.

The hook sees every request before it is served and answers with a `Fault` or None. The front ends (in process and
HTTP) carry it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.sim.api_status import StatusError


@dataclass(frozen=True)
class Request:
    """One request as the hook sees it. `verb`: get, list, watch, create, update, patch, apply, delete or evict."""

    verb: str
    group: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: str = ""
    manager: str = ""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    `delay_s`: wait first. `error`: answer with this Status. `lost`: break the connection without an answer.
    `after_write`: let the request take effect, then fail with `error` or `lost`. `drop_after_s`: end a watch with a
    broken connection after this many seconds.
    """

    delay_s: float = 0.0
    error: StatusError | None = None
    lost: bool = False
    after_write: bool = False
    drop_after_s: float | None = None


FaultHook = Callable[[Request], Fault | None]


class ConnectionDroppedError(Exception):
    """The fault hook asked for a broken connection."""


def too_many_requests(retry_after_s: int = 1) -> StatusError:
    message = "Too many requests, please try again later."
    return StatusError(429, "TooManyRequests", message, retry_after_s=retry_after_s)


def internal_error() -> StatusError:
    return StatusError(500, "InternalError", "Internal error occurred: injected fault")


def unavailable() -> StatusError:
    return StatusError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def timed_out() -> StatusError:
    return StatusError(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
