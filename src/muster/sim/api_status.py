"""What the API server answers when it refuses: Status bodies, worded as a Kubernetes API server words them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from muster.kube.api import ApiError
from muster.kube.status import error_class, with_budgets


@dataclass(frozen=True)
class Cause:
    """One entry of `details.causes`. `field` is a path such as `spec.nodes[0]`."""

    reason: str
    message: str
    field: str = ""

    def to_json(self) -> dict[str, str]:
        encoded = {"reason": self.reason} if self.reason else {}
        encoded["message"] = self.message
        if self.field:
            encoded["field"] = self.field
        return encoded


@dataclass
class StatusError(Exception):
    """A request was refused. Becomes a Status body over HTTP and an `ApiError` in process.

    `continue_token`: for an expired list, where to go on. `detailed`: the Status has `details` even when they are
    empty. `plain`: the HTTP body is the message as text; a real server says so about paths that it serves not at all.
    """

    code: int
    reason: str
    message: str
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = field(default=())
    retry_after_s: int | None = None
    continue_token: str = ""
    detailed: bool = False
    plain: bool = False

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, Any]:
        """The Status object."""
        subject = {"name": self.name, "group": self.group, "kind": self.kind}
        details: dict[str, Any] = {key: value for key, value in subject.items() if value}
        if self.causes:
            details["causes"] = [cause.to_json() for cause in self.causes]
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "code": self.code,
        }
        if details or self.detailed:
            body["details"] = details
        return body

    def to_api_error(self) -> ApiError:
        """The typed error that clients in process raise."""
        retry = None if self.retry_after_s is None else float(self.retry_after_s)
        message = with_budgets(self.message, ((cause.reason, cause.message) for cause in self.causes))
        return error_class(self.code, self.reason)(self.code, self.reason, message, retry)


def qualified(plural: str, group: str) -> str:
    """`nodes`, `nodehealths.muster.dev`."""
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', name, group, plural)


def unknown_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", detailed=True)


def page_not_found() -> StatusError:
    """404 for a path outside everything that is served, an unknown API group too."""
    return StatusError(404, "NotFound", "404 page not found", plain=True)


def already_exists(plural: str, group: str, name: str) -> StatusError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, name, group, plural)


def conflict(plural: str, group: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, name, group, plural)


def stale(plural: str, group: str, name: str) -> StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(plural, group, name, why)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str) -> StatusError:
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", name, group, plural)


def method_not_allowed(what: str = "the server does not allow this method on the requested resource") -> StatusError:
    return StatusError(405, "MethodNotAllowed", what, detailed=True)


def unsupported_media_type(message: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message)


def unknown_format(accepted: tuple[str, ...]) -> StatusError:
    """415 for a body in a form that is none of `accepted`."""
    listed = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return unsupported_media_type(text)


def internal(message: str) -> StatusError:
    """500: a real server words some mistakes of its clients as errors of its own, without a reason."""
    return StatusError(500, "", message)


def too_large(message: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def not_implemented(what: str) -> StatusError:
    """501: the real server can do it, the simulated one cannot and says so."""
    return StatusError(501, "NotImplemented", f"The simulated API server does not support {what}.")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_old(wanted: int, oldest: int) -> StatusError:
    return StatusError(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> StatusError:
    """422 with one cause per wrong field. Causes with the same text are told once in the message."""
    told = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    texts = list(dict.fromkeys(told))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, name, group, kind, tuple(causes))


MAX_SHOWN = 4000
"""Longest quotation of a value in a message (characters)."""


def shown(value: Any) -> str:
    """A value as messages of invalid fields quote it, bounded."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def required(path: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value{': ' + detail if detail else ''}", path)


def invalid_value(path: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}{': ' + detail if detail else ''}", path)


def forbidden_field(path: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", path)


def must_have_version(plural: str, group: str, name: str) -> StatusError:
    """422 for an update without the version that it updates."""
    text = "Invalid value: 0: must be specified for an update"
    return invalid(plural, group, name, [Cause("FieldValueInvalid", text, "metadata.resourceVersion")])


def unsupported_value(path: str, value: Any, allowed: list[Any]) -> Cause:
    listed = ", ".join(shown(item) for item in allowed)
    return Cause("FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}", path)
