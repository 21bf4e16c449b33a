"""Every collector in a fixed order, none of which can take the others down."""

from __future__ import annotations

from collections.abc import Callable

from muster.inventory import gpu, network, system
from muster.inventory.machine import Findings, Machine

Collector = tuple[str, Callable[[Machine], Findings]]

AGENT_COLLECTORS: tuple[Collector, ...] = (
    ("os", system.os_release),
    ("kernel", system.kernel),
    ("sysctl", system.sysctls),
    ("modules", system.modules),
    ("firmware", system.firmware),
    ("gpu", gpu.gpus),
    ("driver", gpu.driver),
    ("rdma", network.rdma),
)
"""What the agent reads again and again: files alone. Ethernet is left out: it sees the devices of its own network
namespace, and the ones of a node come and go with pods."""
COLLECTORS: tuple[Collector, ...] = (
    *AGENT_COLLECTORS,
    ("net", network.ethernet),
    ("systemd", system.units),
)
"""What a snapshot of a machine reads, apart from NVML."""


def collect(machine: Machine, collectors: tuple[Collector, ...]) -> Findings:
    """Run `collectors` over `machine`. One that fails becomes an unknown reading under its name."""
    found = Findings()
    for name, collector in collectors:
        try:
            found.extend(collector(machine))
        except Exception as error:  # a bug in one collector must not hide what the others saw
            found.miss(name, f"the collector failed: {type(error).__name__}")
    return found
