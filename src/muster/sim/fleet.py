"""The simulated fleet: machines, kubelets, scheduler, cloud, jobs and agents, all as clients of a Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from muster import __version__
from muster.agent.agent import Agent
from muster.agent.state import MemoryStateStore
from muster.clock import Clock
from muster.kube.api import NODES, PODS, REPAIRS, KubeApi, NotFoundError
from muster.kube.cache import WatchCache
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.repair import Repair
from muster.sim.agent_sources import SimulatedInventory, SimulatedLogSource
from muster.sim.certification_runs import CertificationRuns
from muster.sim.cloud import SimulatedCloud, project_repair
from muster.sim.defects import Appears, Defect
from muster.sim.jobs import TrainingJobs
from muster.sim.kubelet import Kubelets
from muster.sim.nodes import NodeWriter, ensure_namespace
from muster.sim.plant import DriverUpdate, Plant
from muster.sim.pods import Pod, project_pod
from muster.sim.retry import persist
from muster.sim.scheduler import NodeView, Scheduler, project_node
from muster.sim.tasks import TaskSet, run_until
from muster.sim.world import Truth, World, appearing

AGENT_START_SPREAD_S = 10.0
REJOIN_S = 300.0
"""From the deletion of a Node to the restart of its kubelet, which registers it again."""


@dataclass(frozen=True)
class FleetEvent:
    """Something that happened in the simulated world. `kind`: defect, update, repair, cure, job, node."""

    at: datetime
    kind: str
    node: str
    message: str


@dataclass(frozen=True)
class Rates:
    """How often things that merely show life happen; long intervals keep a virtual day cheap.

    A real kubelet renews its Lease every 10 s. An API server with a node lifecycle controller marks nodes unready
    when the Lease is older than 40 s, so give a shorter `node_heartbeat_s` there.
    """

    node_heartbeat_s: float = 600.0
    agent_interval_s: float = 180.0
    agent_heartbeat_s: float = 240.0


AgentLife = Callable[[str], Coroutine[Any, Any, None]]
"""The agent of the node with this name: from the start of the machine until it is cancelled, which ends it."""


class Fleet:
    """Plays `plant` on `world` through `api`. `run` never returns; cancel it to stop everything.

    `register_held`: nodes register with the hold taint, so that no job lands on a node that nobody has certified yet.
    Without a controller that takes the taint away, nothing is scheduled then.

    `agent_life` runs the agents in another way than inside this process (see `sim/agent_processes.py`).

    `events` grows as things happen; `on_event` is told of each. Nothing here is known to the controller.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        world: World,
        plant: Plant,
        *,
        rates: Rates = Rates(),
        register_held: bool = False,
        agent_life: AgentLife | None = None,
        on_event: Callable[[FleetEvent], None] | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._rates = rates
        self._on_event = on_event
        self._agent_life = agent_life
        self._tasks = TaskSet()
        self._rejoining: set[str] = set()
        self._up: dict[str, asyncio.Event] = {name: asyncio.Event() for name in world.nodes}
        self._down: dict[str, asyncio.Event] = {name: asyncio.Event() for name in world.nodes}
        self.world = world
        self.plant = plant
        self.events: list[FleetEvent] = []
        self.registered = asyncio.Event()
        """Set when all Nodes are there."""
        self._pods: WatchCache[Pod] = WatchCache(api, PODS, project_pod, clock=clock, on_change=self._pod_changed)
        self._nodes: WatchCache[NodeView] = WatchCache(
            api, NODES, project_node, clock=clock, on_change=self._node_changed
        )
        self._repairs: WatchCache[Repair] = WatchCache(
            api, REPAIRS, project_repair, clock=clock, on_change=self._repair_changed
        )
        self._writer = NodeWriter(api, clock, world, held=register_held)
        self._kubelets = Kubelets(api, clock, world, self._pods.get, self._tasks)
        self._scheduler = Scheduler(api, clock, self._pods.items, self._nodes.items)
        self._cloud = SimulatedCloud(
            api,
            clock,
            world,
            self._kubelets,
            self._writer.uids,
            plant.refusals,
            self._repairs.get,
            self._say,
            self._tasks,
        )
        self.jobs = TrainingJobs(
            api,
            clock,
            world,
            self._kubelets,
            plant.jobs,
            lambda key: self._pods.get(key) is not None,
            self._say,
            self._tasks,
        )
        runs = CertificationRuns(clock, world, self._kubelets, self._tasks)
        self._kubelets.workloads = (runs, self.jobs)
        world.on_power.append(self._power_changed)
        for name in world.nodes:
            self._power_events(name)

    @property
    def truth(self) -> Truth:
        """What has really been wrong so far."""
        return self.world.truth(self.plant.refused())

    async def run(self) -> None:
        """Start everything and play the story for ever. Raises the first unexpected error of any part."""
        for defect in appearing(self.plant.defects, Appears.START):
            self._appear(defect)
        self._tasks.start(self._begin())
        await self._tasks.run()

    async def _begin(self) -> None:
        await persist(self._clock, lambda: ensure_namespace(self._api, SYSTEM_NAMESPACE))
        await self._writer.register()
        self.registered.set()
        for cache in (self._pods, self._nodes, self._repairs):
            self._tasks.start(cache.run())
        await self._pods.wait_synced()
        await self._nodes.wait_synced()
        self._tasks.start(self._scheduler.run())
        self._tasks.start(self.jobs.run())
        self._tasks.start(self._story())
        self._tasks.start(self._heartbeats())
        step_s = AGENT_START_SPREAD_S / len(self.world.nodes)
        for number, name in enumerate(self.world.nodes):
            self._tasks.start(self._agent(name, number * step_s))

    # The story

    async def _story(self) -> None:
        for defect in appearing(self.plant.defects, Appears.TIME):
            self._tasks.start(self._appear_later(defect))
        if self.plant.update is not None:
            await self._update_driver(self.plant.update)

    async def _until(self, after_s: float) -> None:
        """Sleep until `after_s` seconds after the start of the world."""
        due = self.world.started + timedelta(seconds=after_s)
        await self._clock.sleep((due - self._clock.now()).total_seconds())

    async def _appear_later(self, defect: Defect) -> None:
        await self._until(defect.after_s)
        self._appear(defect)

    def _appear(self, defect: Defect) -> None:
        self._say("defect", defect.node, f"{defect.sentence()}.")
        self.world.appear(defect, self._clock.now())

    async def _update_driver(self, update: DriverUpdate) -> None:
        await self._until(update.at_s)
        nodes = list(self.world.nodes)
        self._say("update", "", f"driver {update.driver} is being installed on {len(nodes)} nodes.")
        for number, name in enumerate(nodes):
            await self._until(update.at_s + update.spread_s * number / len(nodes))
            self.world.install_driver(name, update.driver, self._clock.now())
            for defect in appearing(self.plant.defects, Appears.DRIVER_UPDATE):
                if defect.node == name:
                    self._appear(defect)
            self._tasks.start(self._report_driver(name))
        self._say("update", "", f"driver {update.driver} is on all {len(nodes)} nodes.")

    async def _report_driver(self, name: str) -> None:
        try:
            await persist(self._clock, lambda: self._writer.report_driver(name))
        except NotFoundError:
            return  # somebody deleted the Node; its machine goes on

    def _say(self, kind: str, node: str, message: str) -> None:
        event = FleetEvent(self._clock.now(), kind, node, message)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    # Machines

    def _power_changed(self, name: str) -> None:
        self._power_events(name)
        self._tasks.start(self._report(name))

    def _power_events(self, name: str) -> None:
        up, down = (self._up[name], self._down[name])
        if self.world.nodes[name].up:
            down.clear()
            up.set()
        else:
            up.clear()
            down.set()

    async def _report(self, name: str) -> None:
        try:
            await persist(self._clock, lambda: self._writer.report(name))
        except NotFoundError:
            return  # somebody deleted the Node; its machine goes on

    async def _rejoin(self, name: str) -> None:
        """A person deleted the Node: its pods go, and once its kubelet was started anew it registers again."""
        self._say("node", name, f"the Node {name} was deleted; its kubelet registers again in {REJOIN_S / 60:g} min.")
        await self._kubelets.collect(name)
        await self._clock.sleep(REJOIN_S)
        await self._up[name].wait()
        self._rejoining.discard(name)
        if self._nodes.get(name) is None:
            await self._writer.register_node(name)

    async def _heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._rates.node_heartbeat_s)
            for name, node in self.world.nodes.items():
                if node.up and name not in self._rejoining:
                    await persist(self._clock, partial(self._writer.renew, name))

    async def _agent(self, name: str, delay_s: float) -> None:
        """The agent of one node: dies with the machine, comes back after the boot with what it kept on disk."""
        life = self._agent_life or self._agent_inside(name)
        await self._clock.sleep(delay_s)
        while True:
            await self._up[name].wait()
            await run_until(life(name), self._down[name])

    def _agent_inside(self, name: str) -> AgentLife:
        """Lives of an agent in this process, on the truth itself."""
        state = MemoryStateStore()
        inventory = SimulatedInventory(self.world, name, self._writer.uids)

        async def life(name: str) -> None:
            source = SimulatedLogSource(self.world, name)
            agent = Agent(
                self._api,
                name,
                source,
                inventory,
                self._clock,
                state=state,
                interval_s=self._rates.agent_interval_s,
                heartbeat_s=self._rates.agent_heartbeat_s,
                version=__version__,
            )
            try:
                await agent.run()
            finally:
                source.close()

        return life

    # Caches

    def _pod_changed(self, key: str) -> None:
        self._kubelets.changed(key)
        self.jobs.pod_changed(key)
        self._scheduler.poke(key)

    def _node_changed(self, key: str) -> None:
        node = self._nodes.get(key)
        if key in self.world.nodes:
            if node is not None and node.uid:
                self._writer.uids[key] = node.uid
            elif node is None and key not in self._rejoining:
                self._rejoining.add(key)
                self._tasks.start(self._rejoin(key))
        self._scheduler.poke(key)

    def _repair_changed(self, key: str) -> None:
        self._cloud.changed(key)
