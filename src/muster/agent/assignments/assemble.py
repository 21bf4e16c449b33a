"""From devices of pods to assignments of GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muster.agent.assignments.checkpoints import ClaimDevice, PluginDevices
from muster.agent.assignments.config import AssignmentsConfig
from muster.agent.assignments.devices import KnownGpus, gpu_of, gpu_of_claim, is_gpu, is_mig
from muster.agent.assignments.pod_resources import PodResources
from muster.agent.assignments.pods import PodNames, uid_of
from muster.plain_text import plain
from muster.resources.node_health import GpuAssignment


@dataclass(frozen=True)
class Held:
    """One GPU device of one pod."""

    pod_uid: str
    device: str
    claimed: bool
    """It came through Dynamic Resource Allocation."""


class Unassignable(Exception):  # noqa: N818 - an answer, not an error of the program
    """What a pod holds cannot be told; then nothing is told of the node."""


def from_checkpoints(
    plugin: Iterable[PluginDevices],
    claims: Iterable[ClaimDevice],
    present: frozenset[str] | None,
    config: AssignmentsConfig,
) -> tuple[Held, ...]:
    """GPU devices of pods that the kubelet still keeps. Its files also list pods that ended a while ago."""
    held = [
        Held(entry.pod_uid, device, False)
        for entry in plugin
        for device in entry.devices
        if is_gpu(entry.resource, device, config.resources)
    ]
    held += [Held(claim.pod_uid, claim.device, True) for claim in claims]
    return tuple(item for item in held if present is None or item.pod_uid in present)


def from_pod_resources(
    pods: Iterable[PodResources], names: PodNames, present: frozenset[str] | None, config: AssignmentsConfig
) -> tuple[Held, ...]:
    """GPU devices of the pods that the API lists. Raises Unassignable when a pod's UID cannot be told."""
    held: list[Held] = []
    for pod in pods:
        devices = [(device, False) for name, device in pod.devices if is_gpu(name, device, config.resources)]
        devices += [(device, True) for driver, device in pod.claimed if driver in config.dra_drivers]
        if not devices:
            continue
        uid = uid_of(pod.name, names, present)
        if uid is None:
            raise Unassignable(f"the UID of pod {plain(pod.name, 100)} is not known")
        held += [Held(uid, device, claimed) for device, claimed in devices]
    return tuple(held)


def unknown_migs(held: Sequence[Held], known: KnownGpus) -> bool:
    """Whether NVML has to be asked for MIG devices."""
    return any(is_mig(item.device) and gpu_of(item.device, known) is None for item in held)


def assignments(held: Sequence[Held], known: KnownGpus, names: PodNames) -> tuple[GpuAssignment, ...]:
    """One assignment for each pod, sorted by UID. Raises Unassignable when the GPU of a device cannot be told."""
    gpus: dict[str, list[str]] = {}
    for item in held:
        gpu = gpu_of_claim(item.device, known) if item.claimed else gpu_of(item.device, known)
        if gpu is None:
            raise Unassignable(f"the GPU of device {plain(item.device, 100)} is not known")
        gpus.setdefault(item.pod_uid, []).append(gpu)
    return tuple(
        GpuAssignment(pod_uid=uid, pod=names.names.get(uid, ""), gpus=tuple(sorted({*gpus[uid]})))
        for uid in sorted(gpus)
    )
