"""Lists: selectors, paging pinned to a version, and what resourceVersion means in a list."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.sim.api_kinds import Kind
from muster.sim.api_paths import Query
from muster.sim.api_status import (
    Cause,
    StatusError,
    bad_request,
    expired,
    forbidden_field,
    invalid,
    unsupported_value,
)
from muster.sim.history import Key, Version
from muster.sim.selectors import Matcher, both, field_matcher, label_matcher

if TYPE_CHECKING:
    from muster.sim.store import Store


@dataclass(frozen=True)
class ListOptions:
    """`limit` 0 or less is none. `send_initial_events` is for watches; a list refuses it."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    send_initial_events: bool | None = None


def list_options(query: Query) -> ListOptions:
    """What the query of a list asks for. Raises StatusError 400."""
    return ListOptions(
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        limit=query.number("limit") or 0,
        continue_token=query.text("continue"),
        resource_version=query.text("resourceVersion"),
        resource_version_match=query.text("resourceVersionMatch"),
        send_initial_events=query.flag_or_none("sendInitialEvents"),
    )


@dataclass(frozen=True)
class ListResult:
    """`version` is where a watch continues; `remaining` is None when it is unknown (selectors) or nothing remains."""

    kind: Kind
    items: tuple[Version, ...]
    version: int
    continue_token: str = ""
    remaining: int | None = None


def matcher_of(kind: Kind, label_selector: str, field_selector: str) -> Matcher | None:
    """One matcher for both selectors; None when everything matches. Raises StatusError 400."""
    return both(label_matcher(label_selector), field_matcher(field_selector, kind))


def parse_version(text: str) -> int:
    """The number of a resourceVersion; 0 for "" and "0". Raises ValueError in the words of the API server."""
    if text == "":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        shown = text[:40]
        raise ValueError(
            f'resourceVersion: Invalid value: "{shown}": strconv.ParseUint: parsing "{shown}": invalid syntax'
        )
    return int(text)


def list_objects(store: Store, kind: Kind, namespace: str, options: ListOptions) -> ListResult:
    """Carry out a list.

    Raises StatusError: 400 bad options, 422 options that exclude each other, 410 version or token too old, 504 future
    version.
    """
    _check(options)
    matches = matcher_of(kind, options.label_selector, options.field_selector)
    # Version 0 means whatever a cache holds, and caches do not page.
    limit = 0 if options.resource_version == "0" and not options.continue_token else max(0, options.limit)
    wanted = _wanted_version(store, options)
    after: Key | None = None
    if options.continue_token:
        wanted, after = _decode_token(options.continue_token)
    keys, objects, version = _view(store, kind, namespace, wanted, after)
    start = bisect_right(keys, after) if after is not None else 0
    items: list[Version] = []
    last_at = len(keys)
    for at in range(start, len(keys)):
        found = objects[keys[at]]
        if matches is None or matches(found.obj):
            if limit and len(items) == limit:
                last_at = at
                break
            items.append(found)
    if last_at == len(keys):
        return ListResult(kind, tuple(items), version)
    token = _encode_token(version, keys[last_at - 1])
    remaining = len(keys) - last_at if matches is None else None
    return ListResult(kind, tuple(items), version, token, remaining)


def _check(options: ListOptions) -> None:
    """Raises StatusError 422 for options that exclude each other."""
    match, causes = options.resource_version_match, []
    if match:
        if not options.resource_version:
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.append(forbidden_field("resourceVersionMatch", text))
        if options.continue_token:
            text = "resourceVersionMatch is forbidden when continue is provided"
            causes.append(forbidden_field("resourceVersionMatch", text))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(unsupported_value("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
        if match == "Exact" and options.resource_version == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            causes.append(forbidden_field("resourceVersionMatch", text))
    if options.send_initial_events is not None:
        causes.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)


def _wanted_version(store: Store, options: ListOptions) -> int | None:
    """The exact version to show, or None for the newest."""
    if options.continue_token and options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        number = parse_version(options.resource_version)
    except ValueError as error:
        raise bad_request(f"invalid resource version: {error}") from None
    if number > store.version:
        raise too_large(number, store.version)
    # A page of a list at a version is a page of exactly that version, unless the client says otherwise.
    pages = options.limit > 0 and number > 0 and not options.resource_version_match
    return number if options.resource_version_match == "Exact" or pages else None


def too_large(number: int, current: int) -> StatusError:
    """504: a version that does not exist yet."""
    message = f"Timeout: Too large resource version: {number}, current: {current}"
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    return StatusError(504, "Timeout", message, causes=(cause,), retry_after_s=1)


_INCONSISTENT = -1
"""In a continue token: go on with whatever version is the newest."""
_SNAPSHOT_GONE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


def _view(
    store: Store, kind: Kind, namespace: str, wanted: int | None, after: Key | None
) -> tuple[list[Key], dict[Key, Version], int]:
    storage = store.storage(kind)
    if wanted is None or wanted in (store.version, _INCONSISTENT):
        return storage.keys(namespace), storage.objects, store.version
    try:
        objects = storage.snapshot(wanted)
    except StatusError:
        if after is None:
            raise expired("The resourceVersion for the provided list is too old.") from None
        error = expired(_SNAPSHOT_GONE)
        error.continue_token = _encode_token(_INCONSISTENT, after)
        raise error from None
    return sorted(_in_namespace(objects, namespace)), objects, wanted


def _in_namespace(keys: Iterable[Key], namespace: str) -> Iterable[Key]:
    return (key for key in keys if not namespace or key[0] == namespace)


def _encode_token(version: int, last: Key) -> str:
    body = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": list(last)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, Key]:
    try:
        padded = token + "=" * (-len(token) % 4)
        body = json.loads(base64.urlsafe_b64decode(padded.encode()))
        namespace, name = body["start"]
        if not (isinstance(body["rv"], int) and isinstance(namespace, str) and isinstance(name, str)):
            raise ValueError("a token of another form")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        why = f"{type(error).__name__}"
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    return body["rv"], (namespace, name)
