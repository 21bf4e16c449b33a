"""The embedded cluster of the demo: API server, CRDs, policy and fleet, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from muster.clock import Clock
from muster.kube.api import CRDS, FAULT_POLICIES, AlreadyExistsError, KubeApi
from muster.operate.policy import FULL_AUTOMATION, with_provider
from muster.resources import crd
from muster.resources.base import CONTROLLER_MANAGER, to_object
from muster.resources.fault_policy import FaultPolicy
from muster.sim.cloud import PROVIDER
from muster.sim.fleet import Fleet, FleetEvent
from muster.sim.inprocess import InProcessApi
from muster.sim.plant import Plant, build_world
from muster.sim.store import Store
from muster.sim.world import World

POLICY: FaultPolicy = with_provider(FULL_AUTOMATION, PROVIDER)
"""The policy of the demo: full automation, repaired by the simulated cloud."""


@dataclass(frozen=True)
class Cluster:
    """An API server in memory and the fleet that will live in it."""

    store: Store
    api: KubeApi
    world: World
    fleet: Fleet
    listeners: list[Callable[[FleetEvent], None]] = field(default_factory=list)
    """Told of each event of the fleet."""

    def client(self, user: str = CONTROLLER_MANAGER) -> KubeApi:
        """A client of its own, as another process would have."""
        return InProcessApi(self.store, user=user)


async def install(api: KubeApi) -> None:
    """Create Muster's CRDs and the policy unless they are there."""
    for manifest in crd.manifests():
        try:
            await api.create(CRDS, dict(manifest))
        except AlreadyExistsError:
            continue
    try:
        await api.create(FAULT_POLICIES, to_object(POLICY))
    except AlreadyExistsError:
        return


async def build(plant: Plant, clock: Clock) -> Cluster:
    """A cluster for `plant`, with Muster installed and nothing running yet."""
    store = Store(clock, seed=plant.seed)
    api = InProcessApi(store)
    await install(api)
    world = build_world(plant, clock.now())
    listeners: list[Callable[[FleetEvent], None]] = []

    def tell(event: FleetEvent) -> None:
        for listener in listeners:
            listener(event)

    return Cluster(store, api, world, Fleet(api, clock, world, plant, on_event=tell), listeners)
