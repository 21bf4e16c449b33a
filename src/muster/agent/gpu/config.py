"""Configuration of the GPU monitor. The defaults fit an HGX or DGX node; each figure names where it comes from."""

from __future__ import annotations

from enum import StrEnum

from muster.resources.base import Model


class GpuSource(StrEnum):
    """Where the readings of the GPUs come from."""

    NVML = "nvml"
    """NVIDIA's library, asked in a process of its own."""
    DCGM_EXPORTER = "dcgm-exporter"
    """The metrics page of dcgm-exporter."""


class GpuConfig(Model, frozen=True, kw_only=True):
    """Section `gpu` of the agent's configuration."""

    enabled: bool = True
    source: GpuSource = GpuSource.NVML
    library: str | None = None
    """Path of libnvidia-ml.so.1; None: the system's own, or that of the node's file system."""
    url: str = "http://localhost:9400/metrics"
    """Page of dcgm-exporter."""
    interval_s: float = 30.0
    deadline_s: float = 20.0
    """A sample of eight GPUs takes well under a second; waking GPUs without persistence mode takes several."""
    expected_count: int | None = None
    """GPUs that the node must have; None: the most that it has shown so far."""
    expected_links: int | None = None
    """NVLinks of each GPU that must be up; None: those that were up in this boot."""
    looks: int = 3
    """A throttle, a downgrade or an unfinished fabric is told after so many looks in a row."""
    thermal_margin_c: float = 0.0
    """A GPU that is this close to its slowdown temperature, or closer, is too hot."""
    ecc_corrected_per_hour: float = 1000.0
    """Corrected memory errors beyond this are a storm. One bad row that is read in a loop gives many thousands."""
    pcie_replays_per_minute: float = 8.0
    """The limit of DCGM's own health watch."""
    nvlink_crc_per_minute: float = 6000.0
    """100 a second: the limit of DCGM's own health watch."""
    nvlink_replays_per_minute: float = 60.0
    nvlink_recoveries_per_minute: float = 1.0
    """Links recover while they are trained; one that does so all the time is on its way down."""
    nvlink_effective_ber: float = 1e-12
    """Effective bit error rate (after correction) of NVLink 5 beyond which a link is bad."""
    busy_percent: float = 10.0
    """The PCIe generation falls on an idle GPU; it is judged on one that is at least this busy."""

    def __post_init__(self) -> None:
        if not 1 <= self.interval_s <= 86400 or not 0 < self.deadline_s <= 3600 or self.looks < 1:
            raise ValueError("intervalS must be 1 to 86400, deadlineS up to 3600 and looks at least 1")
        limits = (self.ecc_corrected_per_hour, self.pcie_replays_per_minute, self.nvlink_crc_per_minute)
        more = (self.nvlink_replays_per_minute, self.nvlink_recoveries_per_minute, self.nvlink_effective_ber)
        if not all(limit >= 0 for limit in (*limits, *more, self.busy_percent)):
            raise ValueError("limits must not be negative")
        if any(count is not None and count < 0 for count in (self.expected_count, self.expected_links)):
            raise ValueError("expectedCount and expectedLinks must not be negative")
