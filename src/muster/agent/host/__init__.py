"""Monitors of the host: file systems, clock, memory and services. Each degrades alone."""

from __future__ import annotations

from pathlib import Path

from muster.agent.host.clock_monitor import ClockMonitor
from muster.agent.host.config import HostConfig
from muster.agent.host.filesystem_monitor import FilesystemMonitor
from muster.agent.host.pressure_monitor import PressureMonitor
from muster.agent.host.service_monitor import ServiceMonitor
from muster.agent.monitor import Monitor
from muster.clock import Clock


def monitors(config: HostConfig, root: Path, clock: Clock) -> tuple[Monitor, ...]:
    """Monitors of the node whose file system is mounted at `root`; those that the config turns off are left out."""
    if not config.enabled:
        return ()
    made: list[Monitor] = []
    if config.filesystems.enabled:
        made.append(FilesystemMonitor(config.filesystems, root, clock))
    if config.clock.enabled:
        made.append(ClockMonitor(config.clock))
    if config.pressure.enabled:
        made.append(PressureMonitor(config.pressure, root, clock))
    if config.services.enabled:
        made.append(ServiceMonitor(config.services, root, clock))
    return tuple(made)
