"""How the agent learns which pods hold which GPUs."""

from __future__ import annotations

from enum import StrEnum

from muster.resources.base import Model


class Source(StrEnum):
    AUTO = "auto"
    """The checkpoint files of the kubelet; the PodResources API where they cannot be read."""
    CHECKPOINT = "checkpoint"
    POD_RESOURCES = "pod-resources"


class AssignmentsConfig(Model, frozen=True, kw_only=True):
    enabled: bool = True
    interval_s: float = 15.0
    deadline_s: float = 10.0
    source: Source = Source.AUTO
    kubelet_dir: str = "/var/lib/kubelet"
    resources: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "nvidia.com/pgpu")
    """Resources that are GPUs, `*` for any ending. A device `GPU-...` or `MIG-...` is one under any name."""
    dra_drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    """Drivers of Dynamic Resource Allocation whose devices are GPUs."""

    def __post_init__(self) -> None:
        if not self.kubelet_dir.startswith("/"):
            raise ValueError("kubeletDir must be an absolute path")
        if not 1 <= self.interval_s <= 86400 or not 0 < self.deadline_s <= 3600:
            raise ValueError("intervalS must be 1 to 86400 and deadlineS up to 3600")
