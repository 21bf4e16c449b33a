"""What the certification controller sees of the cluster: nodes, and what is known about their health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from muster.certify.measure import NodeKind, Surroundings
from muster.certify.nodes import HealthFacts, NodeFacts, health_facts, node_facts
from muster.clock import Clock
from muster.kube.api import NODE_HEALTHS, NODES, KubeApi
from muster.kube.cache import WatchCache
from muster.resources.certification import RunRecord


class Picture:
    """Watch caches of Nodes and NodeHealths, as slim projections. `on_change` is called when a Node changed."""

    def __init__(self, api: KubeApi, clock: Clock, on_change: Callable[[str], None]) -> None:
        self._nodes = WatchCache(api, NODES, node_facts, clock=clock, on_change=on_change, seed=1)
        self._healths = WatchCache(api, NODE_HEALTHS, health_facts, clock=clock, seed=1)

    def runs(self) -> tuple[Awaitable[None], ...]:
        """The watches, to be run for ever."""
        return (self._nodes.run(), self._healths.run())

    async def wait_synced(self) -> None:
        """Return when the picture is complete."""
        await self._nodes.wait_synced()
        await self._healths.wait_synced()

    @property
    def nodes(self) -> Mapping[str, NodeFacts]:
        return self._nodes.items()

    @property
    def healths(self) -> Mapping[str, HealthFacts]:
        return self._healths.items()

    def alive(self, name: str) -> bool:
        """Whether the node exists and is Ready."""
        node = self._nodes.get(name)
        return node is not None and node.ready

    def surroundings(
        self, members: Iterable[str], under_test: frozenset[str], passed: tuple[RunRecord, ...]
    ) -> Surroundings:
        """What the numbers of runs among `members` are compared with. Nodes `under_test` prove nothing yet."""
        nodes, healths = self.nodes, self.healths
        kinds = {
            name: NodeKind(nodes[name].clique, healths[name].stack if name in healths else "")
            for name in sorted(members)
            if name in nodes
        }
        certified: dict[tuple[str, str, str], list[float]] = {}
        for name in sorted(healths):
            health, node = healths[name], nodes.get(name)
            if name in under_test or node is None or not health.metrics or not health.stack:
                continue
            for key, value in health.metrics.items():
                certified.setdefault((node.product, health.stack, key), []).append(value)
        return Surroundings(kinds, passed, certified)
