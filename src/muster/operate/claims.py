"""Which GPUs dynamic resource allocation gave to which pod, from ResourceClaims and ResourceSlices. Pure projections.

A claim names devices of a driver; the driver's slices tell the UUID of each device. Shapes of `resource.k8s.io/v1`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from muster.kube.api import ResourceType

GPU_DRIVER = "gpu.nvidia.com"
RESOURCE_CLAIMS = ResourceType("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True)
RESOURCE_SLICES = ResourceType("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """The pod watches the device and does not hold it."""


class _Devices(msgspec.Struct, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(msgspec.Struct, frozen=True):
    resource: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] = ()


class _Claim(msgspec.Struct, frozen=True):
    status: _ClaimStatus = _ClaimStatus()


class _Attribute(msgspec.Struct, frozen=True):
    string: str = ""


class _Device(msgspec.Struct, frozen=True):
    name: str = ""
    attributes: dict[str, _Attribute] = {}

    def uuid(self) -> str:
        """The attribute `uuid`, whose name may bear the driver's domain."""
        found = self.attributes.get("uuid") or self.attributes.get(f"{GPU_DRIVER}/uuid")
        return found.string if found is not None else ""


class _Pool(msgspec.Struct, frozen=True):
    name: str = ""
    generation: int = 0


class _SliceSpec(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: _Pool = _Pool()
    devices: tuple[_Device, ...] = ()


class _Slice(msgspec.Struct, frozen=True):
    spec: _SliceSpec = _SliceSpec()


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim that gave GPUs to pods, whose UIDs `pods` are. `devices` are pairs of pool and device."""

    pods: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SliceView:
    """The devices of one slice of the GPU driver: name -> UUID as pairs."""

    pool: str
    generation: int
    uuids: tuple[tuple[str, str], ...]


_claims = msgspec.json.Decoder(_Claim, strict=False)
_slices = msgspec.json.Decoder(_Slice, strict=False)


def claim_view(raw: bytes) -> ClaimView | None:
    """The claim, or None when it gave no GPU to a pod. Raises msgspec.MsgspecError."""
    status = _claims.decode(raw).status
    results = status.allocation.devices.results if status.allocation is not None else ()
    devices = tuple((r.pool, r.device) for r in results if r.driver == GPU_DRIVER and not r.admin_access)
    pods = tuple(sorted(c.uid for c in status.reserved_for if c.resource == "pods" and c.uid))
    return ClaimView(pods, devices) if devices and pods else None


def slice_view(raw: bytes) -> SliceView | None:
    """The slice, or None when it is not the GPU driver's. Raises msgspec.MsgspecError."""
    spec = _slices.decode(raw).spec
    if spec.driver != GPU_DRIVER:
        return None
    uuids = tuple((d.name, d.uuid()) for d in spec.devices if d.uuid().startswith("GPU-"))
    return SliceView(spec.pool.name, spec.pool.generation, uuids)


def gpus_of_claims(claims: Iterable[ClaimView], slices: Iterable[SliceView]) -> tuple[str, ...]:
    """UUIDs of all devices of `claims`, sorted. Empty when one of them is not told: half an answer is none."""
    newest: dict[str, int] = {}
    kept = list(slices)
    for view in kept:
        newest[view.pool] = max(newest.get(view.pool, 0), view.generation)
    uuid_of = {
        (view.pool, name): uuid for view in kept if view.generation == newest[view.pool] for name, uuid in view.uuids
    }
    found: list[str] = []
    for claim in claims:
        for device in claim.devices:
            if device not in uuid_of:
                return ()
            found.append(uuid_of[device])
    return tuple(sorted(set(found)))
