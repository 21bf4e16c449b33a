"""The kubelet's checkpoint files: which devices it gave to which pods. Pure.

`kubelet_internal_checkpoint` is of the device manager (device plugins), `dra_manager_state` of Dynamic Resource
Allocation. Their form is the kubelet's own affair: what is not understood is refused, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster.errors import BadInputError

MAX_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 20_000


@dataclass(frozen=True)
class PluginDevices:
    """Devices of one resource that a container of the pod got from a device plugin."""

    pod_uid: str
    resource: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class ClaimDevice:
    """A device of a claim, and a pod that uses the claim."""

    pod_uid: str
    driver: str
    device: str


class _Entry(msgspec.Struct):
    PodUID: str
    ResourceName: str
    DeviceIDs: dict[str, list[str] | None] | list[str] | None = None


class _Data(msgspec.Struct):
    PodDeviceEntries: list[_Entry] | None


class _DeviceCheckpoint(msgspec.Struct):
    Data: _Data


class _Device(msgspec.Struct):
    DeviceName: str


class _DriverState(msgspec.Struct):
    Devices: list[_Device] | None = None


class _Claim(msgspec.Struct):
    PodUIDs: dict[str, msgspec.Raw] | None = None
    DriverState: dict[str, _DriverState] | None = None
    DriverName: str = ""
    """Only of kubelets before 1.32, which do not tell the devices."""


class _ClaimData(msgspec.Struct):
    Entries: list[_Claim] | None


class _ClaimCheckpoint(msgspec.Struct):
    Data: str


def plugin_devices(document: bytes) -> tuple[PluginDevices, ...]:
    """What `kubelet_internal_checkpoint` says, in its order. Raises BadInputError."""
    _refuse_large(document, "kubelet_internal_checkpoint")
    try:
        entries = msgspec.json.decode(document, type=_DeviceCheckpoint).Data.PodDeviceEntries or []
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInputError(f"kubelet_internal_checkpoint has a form that is not known: {error}.") from error
    _refuse_many(len(entries), "kubelet_internal_checkpoint")
    return tuple(PluginDevices(entry.PodUID, entry.ResourceName, _flat(entry.DeviceIDs)) for entry in entries)


def _flat(devices: dict[str, list[str] | None] | list[str] | None) -> tuple[str, ...]:
    """Devices come by NUMA node, and from kubelets before 1.20 in one list."""
    if devices is None:
        return ()
    if isinstance(devices, dict):
        return tuple(device for node in sorted(devices) for device in devices[node] or ())
    return tuple(devices)


def claim_devices(document: bytes, drivers: tuple[str, ...]) -> tuple[ClaimDevice, ...]:
    """Devices of `drivers` that `dra_manager_state` lists, in its order. Raises BadInputError.

    The first form of the file, of Kubernetes 1.31 and before, lists no devices: with a claim of `drivers` it is
    refused.
    """
    _refuse_large(document, "dra_manager_state")
    found: list[ClaimDevice] = []
    claims = _claims(document)
    _refuse_many(len(claims), "dra_manager_state")
    for claim in claims:
        pods = sorted(claim.PodUIDs or {})
        if claim.DriverState is None and claim.DriverName in drivers and pods:
            raise BadInputError(f"dra_manager_state does not tell which devices of {claim.DriverName} a claim has.")
        states = claim.DriverState or {}
        devices = [(name, d.DeviceName) for name in drivers if name in states for d in states[name].Devices or ()]
        found += [ClaimDevice(pod, driver, device) for pod in pods for driver, device in devices]
    return tuple(found)


def _claims(document: bytes) -> list[_Claim]:
    try:
        members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
        by_name = {name.lower(): value for name, value in members.items()}
        if "entries" in by_name:
            return msgspec.json.decode(by_name["entries"], type=list[_Claim] | None) or []
        if "data" not in by_name:
            raise BadInputError("dra_manager_state has neither data nor entries; its form is not known.")
        text = msgspec.json.decode(by_name["data"], type=str)
        inner = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        entries = {name.lower(): value for name, value in inner.items()}
        listed = entries.get("entries", entries.get("claiminfostatelist"))
        if listed is None:
            raise BadInputError("dra_manager_state lists no claims; its form is not known.")
        return msgspec.json.decode(listed, type=list[_Claim] | None) or []
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInputError(f"dra_manager_state has a form that is not known: {error}.") from error


def _refuse_large(document: bytes, name: str) -> None:
    if len(document) > MAX_BYTES:
        raise BadInputError(f"{name} is larger than {MAX_BYTES // 1024 // 1024} MiB.")


def _refuse_many(count: int, name: str) -> None:
    if count > MAX_ENTRIES:
        raise BadInputError(f"{name} lists {count} entries, more than {MAX_ENTRIES}.")
