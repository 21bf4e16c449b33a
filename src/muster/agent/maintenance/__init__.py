"""Monitors of announced maintenance: the cloud's metadata service, a file of the site, a URL of the site."""

from __future__ import annotations

from pathlib import Path

from muster.agent.maintenance.config import MaintenanceConfig
from muster.agent.monitor import Monitor
from muster.clock import Clock


def monitors(
    config: MaintenanceConfig,
    root: Path,
    clock: Clock,  # noqa: ARG001 - the interface of rooms; each look is told the time
    node: str = "",
) -> tuple[Monitor, ...]:
    """The monitors that `config` asks for, of the node named `node` whose file system is at `root`."""
    if not config.enabled:
        return ()
    from muster.agent.maintenance.sources import sources

    return sources(config, root, node)
