"""The few kinds that current clients insist on sending as Kubernetes protobuf: evictions, reviews, plain objects.

The envelope and the field numbers are those of the published `generated.proto` files. Every other kind is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.kube.api import Object
from muster.sim.api_status import StatusError, bad_request, unsupported_media_type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


@dataclass(frozen=True)
class Field:
    """One field of a message. `type`: text, bytes (base64 in JSON), int, bool, int-or-string, message, or map (whose
    values are `fields[2]`).

    `fields` are those of a message or of a map's entry.
    """

    name: str
    type: str = "text"
    repeated: bool = False
    fields: Mapping[int, Field] | None = None


def _message(name: str, fields: Mapping[int, Field]) -> Field:
    return Field(name, "message", fields=fields)


def _map(name: str, values: str = "text") -> Field:
    return Field(name, "map", fields={1: Field("key"), 2: Field("value", values)})


_META = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    8: _message("creationTimestamp", {}),
    11: _map("labels"),
    12: _map("annotations"),
    14: Field("finalizers", repeated=True),
}
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", "int"),
    2: _message("preconditions", {1: Field("uid"), 2: Field("resourceVersion")}),
    3: Field("orphanDependents", "bool"),
    4: Field("propagationPolicy"),
    5: Field("dryRun", repeated=True),
    6: Field("ignoreStoreReadErrorWithClusterBreakingPotential", "bool"),
}
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_RESOURCE_ATTRIBUTES = {number: Field(name) for number, name in enumerate(_ATTRIBUTES, start=1)}
_NON_RESOURCE_ATTRIBUTES = {1: Field("path"), 2: Field("verb")}
_KINDS: dict[str, Mapping[int, Field]] = {
    "Eviction": {1: _message("metadata", _META), 2: _message("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": {
        1: _message("metadata", _META),
        2: _message(
            "spec",
            {
                1: _message("resourceAttributes", _RESOURCE_ATTRIBUTES),
                2: _message("nonResourceAttributes", _NON_RESOURCE_ATTRIBUTES),
            },
        ),
        3: _message("status", {1: Field("allowed", "bool")}),
    },
    "SelfSubjectRulesReview": {
        1: _message("metadata", _META),
        2: _message("spec", {1: Field("namespace")}),
        3: _message("status", {3: Field("incomplete", "bool")}),
    },
    "Namespace": {
        1: _message("metadata", _META),
        2: _message("spec", {1: Field("finalizers", repeated=True)}),
        3: _message("status", {1: Field("phase")}),
    },
    "ConfigMap": {
        1: _message("metadata", _META),
        2: _map("data"),
        3: _map("binaryData", "bytes"),
        4: Field("immutable", "bool"),
    },
    "Secret": {
        1: _message("metadata", _META),
        2: _map("data", "bytes"),
        3: Field("type"),
        4: _map("stringData"),
        5: Field("immutable", "bool"),
    },
    "SelfSubjectReview": {1: _message("metadata", _META), 2: _message("status", {1: _message("userInfo", {})})},
}
_INT_OR_STRING = {1: Field("type", "int"), 2: Field("intVal", "int"), 3: Field("strVal")}
_ENVELOPE = {
    1: _message("typeMeta", {1: Field("apiVersion"), 2: Field("kind")}),
    2: Field("raw", "raw"),
    3: Field("contentEncoding"),
    4: Field("contentType"),
}


def decode(body: bytes) -> Object:
    """The JSON form of a protobuf body. Raises StatusError: 400 broken, 415 another kind."""
    from muster.sim.api_protobuf_kinds import ACCESS_KINDS

    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not Kubernetes protobuf")
    try:
        envelope = _decode(body[len(_MAGIC) :], _ENVELOPE)
        head = envelope.get("typeMeta", {})
        fields = _KINDS.get(head.get("kind", "")) or ACCESS_KINDS.get(head.get("kind", ""))
        if fields is None:
            raise _refused(head.get("kind", ""))
        message = _decode(envelope.get("raw", b""), fields)
        return {"apiVersion": head.get("apiVersion", ""), "kind": head["kind"], **message}
    except (IndexError, UnicodeDecodeError, ValueError):
        raise bad_request("the protobuf body of the request is broken") from None


def _refused(kind: str) -> StatusError:
    return unsupported_media_type(
        f"the simulated API server does not read {kind[:80]!r} as protobuf - accepted media types include: "
        "application/json, application/yaml"
    )


def _decode(data: bytes, fields: Mapping[int, Field]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        decoded = _value(field, value)
        if field.type == "map":
            found.setdefault(field.name, {})[decoded.get("key", "")] = decoded.get("value", "")
        elif field.repeated:
            found.setdefault(field.name, []).append(decoded)
        elif decoded != "" or field.type != "text":
            found[field.name] = decoded
    return found


def _value(field: Field, value: int | bytes) -> Any:
    if isinstance(value, int):
        if field.type == "bool":
            return bool(value)
        if field.type != "int":
            raise ValueError(field.name)
        return value - (1 << 64) if value >> 63 else value
    match field.type:
        case "map":
            return _decode(value, field.fields or {})
        case "message":
            return _decode(value, field.fields or {}) or ({} if field.name != "creationTimestamp" else None)
        case "text":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "int-or-string":
            parts = _decode(value, _INT_OR_STRING)
            return parts.get("strVal", "") if parts.get("type") else parts.get("intVal", 0)
        case "raw":
            return value
        case _:
            raise ValueError(field.name)


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; fixed-width fields are skipped."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire_type == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field is longer than the message")
            yield number, data[at : at + length]
            at += length
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError("unknown wire type")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is too long")
