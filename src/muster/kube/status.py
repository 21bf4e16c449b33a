"""From a `Status` of failure to the typed errors of the interface."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster.kube.api import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)

MAX_MESSAGE = 2000
"""Characters kept of a server's message; validation errors of a large object can be endless."""


BUDGET_CAUSE = "DisruptionBudget"
"""Reason of the cause that names the budget which forbids an eviction; the message itself names none."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: tuple[_Cause, ...] = ()
    retry_after_s: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decoder = msgspec.json.Decoder(_Status)


def error_from_status(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """The error for an answer with HTTP `code` and `body`; a body that is no Status becomes the message.

    `code` 0 takes the code of the Status (ERROR events of a watch). `retry_after` is the header, in seconds.
    """
    try:
        status = _decoder.decode(body)
    except msgspec.MsgspecError:
        status = _Status(message=" ".join(body[:MAX_MESSAGE].decode(errors="replace").split()))
    code = code or status.code or 500
    causes = status.details.causes if status.details is not None else ()
    message = with_budgets(
        status.message or f"the API server answered {code}", ((c.reason, c.message) for c in causes)
    )[:MAX_MESSAGE]
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    if retry_after_s is None and status.details is not None and status.details.retry_after_s:
        retry_after_s = status.details.retry_after_s
    return error_class(code, status.reason)(code, status.reason, message, retry_after_s)


def with_budgets(message: str, causes: Iterable[tuple[str, str]]) -> str:
    """`message` with what the `causes` (reason, message) say about disruption budgets."""
    told = [text for reason, text in causes if reason == BUDGET_CAUSE and text]
    return ": ".join((message.rstrip("."), *told)) if told else message


def error_class(code: int, reason: str) -> type[ApiError]:
    """The typed error for an HTTP code and the reason of its Status."""
    if code == 409:
        return AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    if code >= 500:
        return ServerError
    return {
        400: InvalidError,
        401: ForbiddenError,
        403: ForbiddenError,
        404: NotFoundError,
        410: GoneError,
        422: InvalidError,
        429: TooManyRequestsError,
    }.get(code, ApiError)
