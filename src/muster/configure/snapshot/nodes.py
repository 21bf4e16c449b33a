"""Node objects as entries of a snapshot, and what labels, taints and provider IDs mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.configure.snapshot.model import NodeEntry, Taint
from muster.resources.base import GPU_COUNT_LABEL, GPU_RESOURCE
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.gpu_labels import say_gpus

IDENTITY, STACK, CONFIG, VOLATILE = ReadingClass

SERVICES = {
    "aws": "eks",
    "gce": "gke",
    "azure": "aks",
    "ocid1": "oke",
    "oci": "oke",
    "linode": "lke",
    "kind": "kind",
    "openstack": "openstack",
    "vsphere": "vsphere",
    "nebius": "nebius",
    "coreweave": "coreweave",
}
"""What stands before `://` (or the first dot) of a provider ID, and the managed service that uses it."""

_LABEL_CLASSES: tuple[tuple[str, ReadingClass], ...] = (
    # Written anew by feature discovery, operators and Muster while the node stays what it is.
    ("nvidia.com/gfd.timestamp", VOLATILE),
    ("nvidia.com/gpu.deploy.", VOLATILE),
    ("nvidia.com/gpu-driver-upgrade-state", VOLATILE),
    ("nvidia.com/mig.config.state", VOLATILE),
    ("nvidia.com/vgpu.", VOLATILE),
    ("muster.dev/", VOLATILE),
    ("skyhook.nvidia.com/", VOLATILE),
    ("nodewright.nvidia.com/", VOLATILE),
    ("dgxc.nvidia.com/nvsentinel-state", VOLATILE),
    ("kubernetes.io/hostname", IDENTITY),
    ("topology.kubernetes.io/", IDENTITY),
    ("topology.muster.dev/", IDENTITY),
    ("network.topology.nvidia.com/", IDENTITY),
    ("node.kubernetes.io/instance-type", IDENTITY),
    ("nvidia.com/gpu.product", IDENTITY),
    ("nvidia.com/gpu.count", IDENTITY),
    ("nvidia.com/gpu.memory", IDENTITY),
    ("nvidia.com/cuda.", STACK),
    ("feature.node.kubernetes.io/kernel-version", STACK),
    ("feature.node.kubernetes.io/system-os_release", STACK),
)
"""By beginning of the key; other labels are config."""
_VOLATILE_TAINTS = (
    "muster.dev/",
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/",
    "node.cilium.io/",
    "skyhook.nvidia.com",
    "nodewright.nvidia.com",
)
"""Taints that controllers set and remove by themselves."""
_INFO = (
    ("kernelVersion", "kernel.version", STACK),
    ("osImage", "os.name", STACK),
    ("kubeletVersion", "kubelet.version", STACK),
    ("containerRuntimeVersion", "container-runtime.version", STACK),
    ("operatingSystem", "node.operating_system", STACK),
    ("architecture", "node.architecture", IDENTITY),
    ("machineID", "node.machine_id", IDENTITY),
    ("systemUUID", "node.system_uuid", IDENTITY),
    ("bootID", "boot.id", VOLATILE),
)
_MAX = 1024


def label_class(key: str) -> ReadingClass:
    """What a change of the label means."""
    return next((kind for start, kind in _LABEL_CLASSES if key.startswith(start)), CONFIG)


def taint_class(key: str) -> ReadingClass:
    """What a change of the taint means."""
    return VOLATILE if key.startswith(_VOLATILE_TAINTS) else CONFIG


def service_of(provider_id: str) -> str:
    """The service of a provider ID (`aws:///us-west-2a/i-0` -> `eks`); else the prefix itself."""
    prefix = provider_id.partition("://")[0] if "://" in provider_id else provider_id.partition(".")[0]
    return SERVICES.get(prefix.lower(), prefix.lower()[:63])


def entry_of(node: Mapping[str, Any]) -> NodeEntry:
    """The entry of a Node object, without what an agent says."""
    metadata, spec, status = (_map(node.get(key)) for key in ("metadata", "spec", "status"))
    reported: list[Reading] = []

    def add(name: str, value: object, kind: ReadingClass) -> None:
        if value not in (None, ""):
            reported.append(Reading(name=name, value=str(value)[:_MAX], reading_class=kind))

    info = _map(status.get("nodeInfo"))
    for key, name, kind in _INFO:
        add(name, info.get(key), kind)
    add("provider_id", spec.get("providerID"), IDENTITY)
    add("unschedulable", "yes" if spec.get("unschedulable") else "no", VOLATILE)
    for name, amount in _map(status.get("capacity")).items():
        add(f"capacity.{name}", amount, CONFIG)
    for name, amount in _map(status.get("allocatable")).items():
        # Falls and rises with the health of devices.
        add(f"allocatable.{name}", amount, VOLATILE)
    for condition in _maps(status.get("conditions")):
        if condition.get("type"):
            add(f"condition.{condition['type']}", condition.get("status"), VOLATILE)
    taints = {
        (str(t["key"]), str(t.get("effect", ""))): str(t.get("value") or "")
        for t in _maps(spec.get("taints"))
        if t.get("key")
    }
    return NodeEntry(
        node=str(metadata.get("name", "")),
        labels={str(k): str(v) for k, v in sorted(_map(metadata.get("labels")).items())},
        taints=tuple(Taint(key=key, value=value, effect=effect) for (key, effect), value in sorted(taints.items())),
        reported=tuple(sorted({r.name: r for r in reported}.values(), key=lambda r: r.name)),
    )


def reported(entry: NodeEntry, name: str) -> str:
    """A reading of the Node object; empty when it has none."""
    return next((r.value for r in entry.reported if r.name == name), "")


def expected_gpus(entry: NodeEntry) -> int:
    """How many GPUs the Node object says that the node has: by its capacity, else by its labels (1: it has some)."""
    for text in (reported(entry, f"capacity.{GPU_RESOURCE}"), entry.labels.get(GPU_COUNT_LABEL, "")):
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
    return 1 if say_gpus(entry.labels) else 0


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
