"""What goes over the wire to an API server and back: paths, lists, watch events, delete options."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from muster.kube.api import ConnectionLostError, EventType, ListPage, Object, PatchType, ResourceType, WatchEvent
from muster.kube.status import error_from_status

if TYPE_CHECKING:
    import httpx2

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""Longest event accepted; etcd's own limit for an object is 1.5 MiB by default."""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_list_decoder = msgspec.json.Decoder(_List)
_event_decoder = msgspec.json.Decoder(_Event)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


def path_of(res: ResourceType, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a collection, an object or a subresource, without the leading slash."""
    parts = ["apis", res.group, res.version] if res.group else ["api", res.version]
    if res.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(res.plural)
    if name:
        parts.append(name)
    if subresource:
        parts.append(subresource)
    return "/".join(quote(part, safe="") for part in parts)


def repeatable(method: str, content_type: str, body: Any) -> bool:
    """Whether a request may be sent twice: it has the same effect, and the second answer is as good as the first.

    Not so: what creates or deletes (the second answer would be 409 or 404), what depends on a version, JSON patches.
    """
    if method != "PATCH" or content_type == PatchType.JSON:
        return method == "GET"
    return not (isinstance(body, dict) and (body.get("metadata") or {}).get("resourceVersion"))


def namespace_of(obj: Object) -> str:
    """The namespace in an object's metadata; empty for none."""
    return str(obj.get("metadata", {}).get("namespace") or "")


def delete_options(grace_period_s: int | None, uid: str, resource_version: str) -> Object:
    """The fields of DeleteOptions that are set."""
    options: Object = {}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if preconditions:
        options["preconditions"] = preconditions
    return options


def read_list(body: bytes, plural: str) -> ListPage:
    """A page of a list. Raises ConnectionLostError when it is none."""
    try:
        answer = _list_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ConnectionLostError(f"The API server's list of {plural} is not readable: {error}.") from error
    items = tuple(bytes(item) for item in answer.items or ())
    return ListPage(items, answer.metadata.resource_version, answer.metadata.continue_token)


def read_object(body: bytes) -> Object:
    """Any JSON object. Raises ConnectionLostError when it is none."""
    try:
        return _object_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ConnectionLostError(f"The API server's answer is not readable: {error}.") from error


def read_event(line: bytes) -> WatchEvent:
    """One line of a watch. Raises the typed error of an ERROR event, ConnectionLostError for anything unreadable."""
    try:
        event = _event_decoder.decode(line)
        if event.type == "ERROR":
            raise error_from_status(0, bytes(event.object))
        return WatchEvent(EventType(event.type), bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConnectionLostError(f"The API server sent a watch event that is not readable: {error}.") from error


async def lines_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The lines of a streamed body. A last line that is cut off is dropped: its event comes again on resume."""
    rest: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        *complete, tail = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join(rest) + complete[0]
            rest, size = [], 0
            for line in complete:
                if line.strip():
                    yield line
        if tail:
            rest.append(tail)
            size += len(tail)
            if size > MAX_LINE_BYTES:
                raise ConnectionLostError(f"The API server sent a watch event of more than {MAX_LINE_BYTES} bytes.")


def error_of(response: httpx2.Response, body: bytes) -> Exception:
    """The typed error of an answer that is a failure."""
    return error_from_status(response.status_code, body, response.headers.get("Retry-After", ""))
