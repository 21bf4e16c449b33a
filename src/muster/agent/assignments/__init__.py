"""Which pods hold which GPUs, as the kubelet of the node knows it."""

from __future__ import annotations

from pathlib import Path

from muster.agent.assignments.config import AssignmentsConfig
from muster.agent.assignments.monitor import AssignmentsMonitor
from muster.agent.monitor import Monitor
from muster.clock import Clock


def monitors(config: AssignmentsConfig, root: Path, clock: Clock) -> tuple[Monitor, ...]:
    """The monitor of the node whose file system is mounted at `root`; none when the config turns it off."""
    return (AssignmentsMonitor(config, root, clock),) if config.enabled else ()
