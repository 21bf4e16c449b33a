"""Answers of the API server over HTTP: objects, lists, tables and watch events as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListResult
from muster.sim.api_paths import Form
from muster.sim.api_status import StatusError, bad_request
from muster.sim.api_watch import INITIAL_EVENTS_END, WatchItem, bookmark
from muster.sim.history import Version
from muster.sim.store import Store
from muster.sim.tables import partial_metadata, table_of

encode = msgspec.json.Encoder().encode


def object_bytes(store: Store, kind: Kind, version: Version, form: Form, include: str = "") -> bytes:
    """One object in the wanted form. Raises StatusError 406 for a form of lists."""
    match form.as_:
        case "Table":
            metadata = {"resourceVersion": version.obj["metadata"]["resourceVersion"]}
            return encode(_table(store, kind, [version], metadata, include))
        case "PartialObjectMetadata":
            return encode(partial_metadata(version.obj))
        case "PartialObjectMetadataList":
            text = f"you requested PartialObjectMetadataList, but the requested object is not a list ({kind.name})"
            raise StatusError(406, "NotAcceptable", text)
        case _:
            return store.raw(kind, version)


def _table(store: Store, kind: Kind, versions: Iterable[Version], metadata: dict[str, Any], include: str) -> Object:
    if include not in ("", "Metadata", "Object", "None"):
        rule = "must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include[:100]}": {rule}'
        )
    convert = store.converter(kind)
    objects = [version.obj if convert is None else convert(version.obj) for version in versions]
    return table_of(kind, objects, metadata, store.now(), include or "Metadata")


def list_bytes(store: Store, found: ListResult, form: Form, include: str = "") -> bytes:
    """A list in the wanted form. Raises StatusError 406 for a form of single objects.

    The items are the bytes that were encoded once per version.
    """
    kind = found.kind
    metadata: dict[str, Any] = {"resourceVersion": str(found.version)}
    if found.continue_token:
        metadata["continue"] = found.continue_token
        if found.remaining is not None:
            metadata["remainingItemCount"] = found.remaining
    match form.as_:
        case "Table":
            return encode(_table(store, kind, found.items, metadata, include))
        case "PartialObjectMetadataList":
            items = [partial_metadata(version.obj) for version in found.items]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return encode({**head, "items": items})
        case "PartialObjectMetadata":
            text = f"you requested PartialObjectMetadata, but the requested object is a list ({kind.name}List)"
            raise StatusError(406, "NotAcceptable", text)
        case _:
            head_bytes = encode({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata})
            items_bytes = b",".join(store.raw_item(kind, version) for version in found.items)
            return head_bytes[:-1] + b',"items":[' + items_bytes + b"]}"


def event_bytes(store: Store, kind: Kind, item: WatchItem, form: Form, include: str = "") -> bytes:
    """One line of a watch. Of the tables of one watch only the first describes its columns."""
    if form.as_ == "Table":
        version = item.version or _bookmarked(item)
        table = _table(store, kind, [version], {"resourceVersion": str(item.number)}, include)
        body = encode(table if item.first else {**table, "columnDefinitions": None})
    elif form.as_ == "PartialObjectMetadata" and item.version is None:
        body = encode(partial_metadata(_bookmarked(item).obj))
    elif item.version is None:
        body = bookmark(kind, item)
    else:
        body = object_bytes(store, kind, item.version, form, include)
    return b'{"type":"' + item.type.value.encode() + b'","object":' + body + b"}\n"


def _bookmarked(item: WatchItem) -> Version:
    """A bookmark as an object: nothing but its version."""
    metadata: dict[str, Any] = {"name": "", "resourceVersion": str(item.number)}
    if item.initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return Version({"metadata": metadata}, item.number)


def error_event(error: StatusError) -> bytes:
    return b'{"type":"ERROR","object":' + encode(error.to_json()) + b"}\n"


def success(kind: Kind, version: Version) -> bytes:
    """What a deletion answers once the object is gone."""
    metadata = version.obj["metadata"]
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
    if not kind.group:
        del details["group"]
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return encode(body)
