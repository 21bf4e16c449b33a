"""The answer of the kubelet's PodResources API, version 1: a protobuf message, in the fields that matter. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.errors import BadInputError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
MAX_PODS = 5000


@dataclass(frozen=True)
class PodResources:
    """One pod. The API names pods and tells no UID."""

    name: str
    """`namespace/name`."""
    devices: tuple[tuple[str, str], ...]
    """Resource and device, of device plugins."""
    claimed: tuple[tuple[str, str], ...]
    """Driver and device, of Dynamic Resource Allocation; from Kubernetes 1.34 on."""


def decode(message: bytes) -> tuple[PodResources, ...]:
    """Read a ListPodResourcesResponse. Fields that are not known are passed over. Raises BadInputError."""
    try:
        pods = [_pod(part) for number, part in _fields(message) if number == 1 and isinstance(part, bytes)]
    except (IndexError, UnicodeDecodeError) as error:
        raise BadInputError("The kubelet's PodResources answer is cut off or no protobuf message.") from error
    if len(pods) > MAX_PODS:
        raise BadInputError(f"The kubelet's PodResources answer lists {len(pods)} pods, more than {MAX_PODS}.")
    return tuple(pods)


def _pod(message: bytes) -> PodResources:
    name = namespace = ""
    devices: list[tuple[str, str]] = []
    claimed: list[tuple[str, str]] = []
    for number, value in _fields(message):
        match number, value:
            case 1, bytes():
                name = value.decode()
            case 2, bytes():
                namespace = value.decode()
            case 3, bytes():
                for inner, part in _fields(value):
                    if inner == 2 and isinstance(part, bytes):
                        devices += _devices(part)
                    elif inner == 5 and isinstance(part, bytes):
                        claimed += _claimed(part)
            case _:
                continue
    return PodResources(f"{namespace}/{name}", tuple(devices), tuple(claimed))


def _devices(message: bytes) -> list[tuple[str, str]]:
    """ContainerDevices: resource_name 1, device_ids 2."""
    texts = [
        (number, value.decode())
        for number, value in _fields(message)
        if number in (1, 2) and isinstance(value, bytes)
    ]
    resource = next((text for number, text in texts if number == 1), "")
    return [(resource, text) for number, text in texts if number == 2]


def _claimed(message: bytes) -> list[tuple[str, str]]:
    """DynamicResource: claim_resources 4, each with driver_name 2 and device_name 4."""
    found: list[tuple[str, str]] = []
    for number, part in _fields(message):
        if number == 4 and isinstance(part, bytes):
            texts = {
                inner: value.decode()
                for inner, value in _fields(part)
                if inner in (2, 4) and isinstance(value, bytes)
            }
            found.append((texts.get(2, ""), texts.get(4, "")))
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field. Raises IndexError when the message ends early, BadInputError on nonsense."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise BadInputError("The kubelet's PodResources answer is no protobuf message.")
        if at + size > len(message):
            raise IndexError(at + size)
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise BadInputError("The kubelet's PodResources answer is no protobuf message.")
