"""The GPU monitor: NVML, or the page of dcgm-exporter, judged by rates and states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from muster.agent.gpu.config import GpuConfig
    from muster.agent.monitor import Monitor
    from muster.clock import Clock


def monitors(config: GpuConfig, root: Path, clock: Clock) -> tuple[Monitor, ...]:
    """The GPU monitor of the node whose file system is at `root`, unless the configuration turns it off."""
    from muster.agent.gpu.config import GpuSource
    from muster.agent.gpu.monitor import GpuMonitor
    from muster.agent.gpu.sampler import NvmlSampler
    from muster.agent.gpu.scrape import DcgmExporter

    if not config.enabled:
        return ()
    match config.source:
        case GpuSource.NVML:
            return (GpuMonitor(config, NvmlSampler(clock, root=root, library=config.library)),)
        case GpuSource.DCGM_EXPORTER:
            return (GpuMonitor(config, DcgmExporter(config.url)),)
        case other:
            assert_never(other)
