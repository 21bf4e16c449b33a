"""What one look at the network ports of a node shows. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PortState(StrEnum):
    UP = "up"
    DOWN = "down"
    DISABLED = "disabled"
    """Switched off by an administrator of the node."""


@dataclass(frozen=True, kw_only=True)
class PortReading:
    """One port at one moment."""

    device: str
    """RDMA device (`mlx5_0`), or the network device of an adapter without one."""
    port: int | None
    """Number of the RDMA port; None for a plain network device."""
    state: PortState
    told: str
    """The state in the kernel's words."""
    rdma: bool
    management: bool = False
    """It holds the default route of the node."""
    link_layer: str = ""
    hardware: str = ""
    """Board or PCI identity: ports of equal hardware are peers."""
    pci: str = ""
    numa_node: int | None = None
    rate_gbps: float | None = None
    losses: int | None = None
    """How often the link was lost since the counter began."""
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.device if self.port is None else f"{self.device}/{self.port}"

    @property
    def kind(self) -> tuple[bool, str, str, int, str]:
        """What peers have in common. The second ports of all cards are their own kind: they are often not cabled."""
        function = self.pci.rpartition(".")[2]
        return (self.rdma, self.link_layer, self.hardware, self.port or 0, function)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All watched ports, by key. `unknown` says in words what could not be read."""

    ports: tuple[PortReading, ...]
    pci_addresses: frozenset[str] | None
    """Devices on the PCI bus; None: not readable. Only asked whether something is in it."""
    unknown: tuple[str, ...] = ()
