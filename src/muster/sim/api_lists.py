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
from muster.sim.api_status import StatusError, bad_request, expired
from muster.sim.history import Key, Version
from muster.sim.selectors import Matcher, both, field_matcher, label_matcher

if TYPE_CHECKING:
    from muster.sim.store import Store


@dataclass(frozen=True)
class ListOptions:
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


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
    labels = label_matcher(label_selector)
    custom = kind.custom.selectable_fields if kind.custom is not None else ()
    fields = field_matcher(field_selector, (*kind.field_labels, *custom))
    return both(labels, fields)


def parse_version(text: str) -> int:
    """The number of a resourceVersion; 0 for "" and "0". Raises StatusError 400."""
    if text == "":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise bad_request(f'Invalid value: "{text[:40]}": resourceVersion must be a number')
    return int(text)


def list_objects(store: Store, kind: Kind, namespace: str, options: ListOptions) -> ListResult:
    """Carry out a list. Raises StatusError: 400 bad options, 410 version or token too old, 504 future version."""
    matches = matcher_of(kind, options.label_selector, options.field_selector)
    wanted = _wanted_version(store, options)
    after: Key | None = None
    if options.continue_token:
        wanted, after = _decode_token(options.continue_token)
    keys, objects, version = _view(store, kind, namespace, wanted, pinned=bool(options.continue_token))
    start = bisect_right(keys, after) if after is not None else 0
    items: list[Version] = []
    last_at = len(keys)
    for at in range(start, len(keys)):
        found = objects[keys[at]]
        if matches is None or matches(found.obj):
            if options.limit and len(items) == options.limit:
                last_at = at
                break
            items.append(found)
    if last_at == len(keys):
        return ListResult(kind, tuple(items), version)
    token = _encode_token(version, keys[last_at - 1])
    remaining = len(keys) - last_at if matches is None else None
    return ListResult(kind, tuple(items), version, token, remaining)


def _wanted_version(store: Store, options: ListOptions) -> int | None:
    """The exact version to show, or None for the newest."""
    number = parse_version(options.resource_version)
    match = options.resource_version_match
    if match not in ("", "Exact", "NotOlderThan"):
        raise bad_request(f"resourceVersionMatch {match!r} is not supported; use Exact or NotOlderThan")
    if match and not options.resource_version:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if options.continue_token and (options.resource_version not in ("", "0") or match):
        raise bad_request("specifying resource version is not allowed when using continue")
    if number > store.version:
        raise StatusError(504, "Timeout", f"Too large resource version: {number}, current: {store.version}")
    if match == "Exact":
        if number == 0:
            raise bad_request('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        return number
    return None


def _view(
    store: Store, kind: Kind, namespace: str, wanted: int | None, *, pinned: bool
) -> tuple[list[Key], dict[Key, Version], int]:
    storage = store.storage(kind)
    if wanted is None or wanted == store.version:
        return storage.keys(namespace), storage.objects, store.version
    try:
        objects = storage.snapshot(wanted)
    except StatusError:
        if pinned:
            text = "The provided continue parameter is too old to display a consistent list result. "
            raise expired(text + "You can start a new list without the continue parameter.") from None
        raise
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
            raise ValueError(token)
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        raise bad_request("continue key is not valid") from None
    return body["rv"], (namespace, name)
