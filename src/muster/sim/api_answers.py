"""Answers of the API server over HTTP: objects, lists, tables and watch events as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from muster.kube.api import Object
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListResult
from muster.sim.api_paths import Form
from muster.sim.api_status import StatusError
from muster.sim.api_watch import WatchItem
from muster.sim.history import Version
from muster.sim.inprocess import bookmark
from muster.sim.store import Store
from muster.sim.tables import partial_metadata, table_of

encode = msgspec.json.Encoder().encode


def object_bytes(store: Store, kind: Kind, version: Version, form: Form, include: str = "") -> bytes:
    """One object in the wanted form."""
    if form.as_ == "Table":
        metadata = {"resourceVersion": version.obj["metadata"]["resourceVersion"]}
        return encode(_table(store, kind, [version], metadata, include))
    if form.as_ == "PartialObjectMetadata":
        return encode(partial_metadata(version.obj))
    return store.raw(kind, version)


def _table(store: Store, kind: Kind, versions: Iterable[Version], metadata: dict[str, Any], include: str) -> Object:
    convert = store.converter(kind)
    objects = [version.obj if convert is None else convert(version.obj) for version in versions]
    return table_of(kind, objects, metadata, store.now(), include or "Metadata")


def list_bytes(store: Store, found: ListResult, form: Form, include: str = "") -> bytes:
    """A list in the wanted form. The items are the bytes that were encoded once per version."""
    kind = found.kind
    metadata: dict[str, Any] = {"resourceVersion": str(found.version)}
    if found.continue_token:
        metadata["continue"] = found.continue_token
        if found.remaining is not None:
            metadata["remainingItemCount"] = found.remaining
    if form.as_ == "Table":
        return encode(_table(store, kind, found.items, metadata, include))
    if form.as_ == "PartialObjectMetadataList":
        items = [partial_metadata(version.obj) for version in found.items]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return encode({**head, "items": items})
    head_bytes = encode({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata})
    return head_bytes[:-1] + b',"items":[' + b",".join(store.raw(kind, version) for version in found.items) + b"]}"


def event_bytes(store: Store, kind: Kind, item: WatchItem, form: Form, include: str = "") -> bytes:
    """One line of a watch."""
    if item.version is not None:
        body = object_bytes(store, kind, item.version, form, include)
    elif form.as_ == "Table":
        body = encode(_table(store, kind, [], {"resourceVersion": str(item.number)}, include))
    else:
        body = bookmark(kind, item)
    return b'{"type":"' + item.type.value.encode() + b'","object":' + body + b"}\n"


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
