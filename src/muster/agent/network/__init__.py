"""The network monitor: ports of InfiniBand, RoCE and Ethernet adapters, read from sysfs."""

from __future__ import annotations

from pathlib import Path

from muster.agent.monitor import Monitor
from muster.agent.network.config import NetworkConfig
from muster.agent.network.monitor import NetworkMonitor
from muster.clock import Clock


def monitors(config: NetworkConfig, root: Path, clock: Clock) -> tuple[Monitor, ...]:
    """The network monitor of the node whose file system is mounted at `root`; none when the config turns it off."""
    return (NetworkMonitor(config, root, clock),) if config.enabled else ()
