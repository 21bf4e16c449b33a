"""Which ports are alike, and what is usual among them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.agent.network.ports import PortReading, PortState

Kind = tuple[bool, str, str, int, str]


def peers_of(reading: PortReading, ports: Sequence[PortReading]) -> tuple[PortReading, ...]:
    """The other ports of the same kind."""
    return tuple(port for port in ports if port.kind == reading.kind and port.key != reading.key)


def rate_of_peers(peers: Sequence[PortReading]) -> float | None:
    """The rate of more than half of the peers that are up; None with fewer than two or without such a rate."""
    rates = [peer.rate_gbps for peer in peers if peer.state is PortState.UP and peer.rate_gbps]
    if len(rates) < 2:
        return None
    rate, count = max(Counter(rates).items(), key=lambda item: (item[1], item[0]))
    return rate if 2 * count > len(rates) else None


def fabric_kinds(ports: Sequence[PortReading], gpus: int) -> frozenset[Kind]:
    """Kinds of ports that make up the compute fabric: RDMA, and one for every other GPU at least.

    Storage and management adapters are fewer. With no GPU known (a driver that is not there yet) two are enough.
    """
    counts = Counter(port.kind for port in ports if port.rdma and not port.management)
    least = max(1.0, gpus / 2) if gpus else 2.0
    return frozenset(kind for kind, count in counts.items() if count >= least)
