"""From the names that kubelets, plugins and drivers give to devices to UUIDs of GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GPU = re.compile(rf"GPU-{_UUID}")
_OLD_MIG = re.compile(rf"MIG-(GPU-{_UUID})/[0-9]+/[0-9]+")
_MIG = re.compile(rf"MIG-{_UUID}")
_NODE = re.compile(r"nvidia([0-9]{1,4})(?:/(?:gi[0-9]+|vgpu[0-9]+).*)?")
"""Device plugin of GKE: the name of the device file; a partition or a share behind it."""
_CLAIMED = re.compile(r"gpu-([0-9]{1,4})(?:-mig-.+)?")
"""NVIDIA's DRA driver: `gpu-<minor>`, `gpu-<minor>-mig-<profile>-<start>-<size>`."""
_SHARE = re.compile(r"::[0-9]{1,6}$")
"""Time slicing and MPS: replica n of a device."""
_INFORMATION = re.compile(r"^(GPU UUID|Device Minor):[ \t]*(\S+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class KnownGpus:
    """How GPUs of this node may be called. `minors`: number of the device file -> UUID; `migs`: MIG device -> GPU."""

    minors: Mapping[int, str] = field(default_factory=dict)
    migs: Mapping[str, str] = field(default_factory=dict)


def minor_of(information: str) -> tuple[int, str] | None:
    """Number of the device file and UUID, from `/proc/driver/nvidia/gpus/*/information`; None where it lacks them."""
    values = {match[1]: match[2] for match in _INFORMATION.finditer(information)}
    minor, uuid = values.get("Device Minor", ""), values.get("GPU UUID", "")
    if not minor.isascii() or not minor.isdigit() or not _GPU.fullmatch(uuid):
        return None
    return int(minor[:6]), uuid


def gpu_of(device: str, known: KnownGpus) -> str | None:
    """The UUID of the GPU behind a device of a plugin; None when that cannot be told."""
    name = _SHARE.sub("", device)
    if _GPU.fullmatch(name):
        return name
    if old := _OLD_MIG.fullmatch(name):
        return old[1]
    if _MIG.fullmatch(name):
        return known.migs.get(name)
    if node := _NODE.fullmatch(name):
        return known.minors.get(int(node[1]))
    return None


def gpu_of_claim(device: str, known: KnownGpus) -> str | None:
    """The UUID of the GPU behind a device of a DRA driver; None when that cannot be told."""
    match = _CLAIMED.fullmatch(device)
    return known.minors.get(int(match[1])) if match else gpu_of(device, known)


def is_mig(device: str) -> bool:
    """Whether only NVML can tell to which GPU the device belongs."""
    return _MIG.fullmatch(_SHARE.sub("", device)) is not None


def is_gpu(resource: str, device: str, resources: tuple[str, ...]) -> bool:
    """Whether a device of a plugin is a GPU: by the name of its resource, or by its own."""
    for pattern in resources:
        if resource == pattern or (pattern.endswith("*") and resource.startswith(pattern[:-1])):
            return True
    return device.startswith(("GPU-", "MIG-"))
