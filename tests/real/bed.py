"""The bed of the end-to-end tests: a story played on a real API server by real agent and controller processes.

The simulated fleet is the world: its machines, kubelets, scheduler, cloud and jobs are a client of the API server
over HTTPS. Everybody shares one clock that runs faster than the machine's. Agents and controllers log in as the
service accounts of the chart, with the rights that it gives them.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from muster.clock import Clock, ScaledClock, SystemClock
from muster.demo.cluster import POLICY, Cluster, install
from muster.demo.outcome import Outcome
from muster.demo.story import Story
from muster.demo.view import PlainView
from muster.kube.api import NODE_HEALTHS, NotFoundError
from muster.kube.config import load_target
from muster.kube.http import HttpApi
from muster.operate.policy import effective_policy
from muster.resources.base import HOLD_TAINT
from muster.sim.agent_processes import AgentProcesses
from muster.sim.fleet import Fleet, FleetEvent, Rates
from muster.sim.machine_files import MachineFiles
from muster.sim.plant import Plant, build_world
from muster.sim.retry import persist
from muster.sim.store import Store
from tests.controlplane.audit import Request
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.link import Link
from tests.invariants.checker import Snapshot, Violation, broken_between, schedulable, take, violations
from tests.real.controllers import Controllers
from tests.real.rights import Rights, credential_of

SPEED = 60.0
"""Simulated seconds in a real one. Time limits of minutes still leave real processes seconds to react."""
KUBELET_S = 10.0
"""A kubelet renews its Lease this often, in real seconds: the node lifecycle controller lives in real time."""
AGENT_S = 60.0
"""Interval and heartbeat of the agents, simulated."""
FLEET_REQUESTS_PER_S = 2000.0
SERVED_LIMIT_S = 30.0
CHECK_S = 1.0
"""Real seconds between two looks at the invariants."""
RULES = effective_policy([POLICY], {})


@dataclass
class Bed:
    """A cluster in which a story is going on."""

    plane: ControlPlane
    rights: Rights
    clock: ScaledClock
    api: HttpApi
    fleet: Fleet
    agents: AgentProcesses
    controllers: Controllers
    links: tuple[Link, ...]
    """Stand between each of the controllers and the API server."""
    credentials: tuple[str, ...]
    """Credential IDs of the controllers in the audit log."""
    out: io.StringIO
    broken: list[str] = field(default_factory=list)
    """Violations of invariants, as they were seen."""
    last: Snapshot = field(default_factory=lambda: Snapshot(datetime.now(UTC), RULES))
    """The cluster as it was at the end."""
    looks: int = 0
    """How often the invariants were looked at."""
    taints: dict[str, None] = field(default_factory=dict)
    """Keys of taints that were seen on a node beside Muster's hold."""
    starts: list[tuple[str, str]] = field(default_factory=list)
    """When the API server was being started again, in the form of the audit log's times."""
    beside_done: bool = True

    def refused(self) -> list[Request]:
        """Requests of agents and controllers that were not allowed by an API server that was ready.

        One that is just starting refuses what its roles allow, until it has read them.
        """
        return [r for r in self.rights.refused() if not self._was_starting(r.at)]

    def _was_starting(self, at: str) -> bool:
        return any(begin <= at <= end for begin, end in self.starts)

    async def snapshot(self) -> Snapshot:
        """What the API server holds now; an outage is waited for."""
        return await persist(SystemClock(), lambda: take(self.api, self.clock.now(), RULES))

    async def watch_invariants(self) -> None:
        """Look at the rules for ever."""
        before: Snapshot | None = None
        while True:
            snapshot = await self.snapshot()
            found = violations(snapshot)
            if before is not None:
                found += broken_between(before, snapshot) + released(before, snapshot)
            self.broken += [f"{snapshot.now:%H:%M:%S} {v.invariant}: {v.message}" for v in found]
            self.looks += 1
            for node in snapshot.nodes.values():
                keys = [taint["key"] for taint in node["spec"].get("taints") or ()]
                if HOLD_TAINT in keys:
                    self.taints.update(dict.fromkeys(keys))
            before = snapshot
            await asyncio.sleep(CHECK_S)


def released(before: Snapshot, after: Snapshot) -> list[Violation]:
    """Nodes that became open for work while their lifecycle held them all along."""
    olds = dict(before.lives())
    return [
        Violation(1, f"{name} was released although {life.state.value} holds it since {life.since:%H:%M:%S}")
        for name, life in after.lives()
        if life.held
        and (old := olds.get(name)) is not None
        and (old.held, old.since) == (True, life.since)
        and not schedulable(before.nodes[name])
        and schedulable(after.nodes[name])
    ]


Beside = Callable[[Bed], Coroutine[Any, Any, None]]
"""What a test does in the cluster while the story goes on."""


async def play(
    plane: ControlPlane, folder: Path, plant: Plant, beside: Beside | None = None, *, speed: float = SPEED
) -> tuple[Outcome, Bed]:
    """Play `plant` to its end, with two controllers and an agent for every node."""
    rights = Rights(plane)
    rights.install()
    async with AsyncExitStack() as stack:
        api = HttpApi(load_target(plane.kubeconfig_file()), rate_per_s=FLEET_REQUESTS_PER_S, burst=2000)
        await stack.enter_async_context(api)
        await _served(lambda: install(api))
        links = tuple(stack.enter_context(Link(int(plane.url.rpartition(":")[2]))) for _ in range(2))
        tokens = [rights.controller() for _ in links]
        kubeconfigs = [folder / f"kubeconfig-controller-{number}" for number in range(len(links))]
        for path, link, token in zip(kubeconfigs, links, tokens, strict=True):
            path.touch(mode=0o600)
            path.write_text(link.through(plane.kubeconfig("muster-controller", token)))
        clock = ScaledClock(datetime.now(UTC).replace(microsecond=0), time.time(), speed)
        world = build_world(plant, clock.now())
        files = MachineFiles(world, folder / "machines")
        stack.callback(files.close)
        agents = AgentProcesses(files, rights.agent, clock, interval_s=AGENT_S, heartbeat_s=AGENT_S)
        listeners: list[Callable[[FleetEvent], None]] = []

        def tell(event: FleetEvent) -> None:
            for listener in listeners:
                listener(event)

        first, *_, last = world.nodes

        async def life(node: str) -> None:
            if node == last:
                await _exists(api, last)
            await agents.live(node)

        rates = Rates(node_heartbeat_s=KUBELET_S * speed)
        fleet = Fleet(api, clock, world, plant, rates=rates, agent_life=life, on_event=tell)
        out = io.StringIO()
        story = Story(
            plant,
            clock,
            Cluster(Store(clock), api, world, fleet, listeners),
            PlainView(out, clock.origin, 0.0).line,
        )
        logs = folder / "controllers"
        logs.mkdir()
        controllers = Controllers(kubeconfigs, logs, clock)
        credentials = tuple(credential_of(token) for token in tokens)
        bed = Bed(plane, rights, clock, api, fleet, agents, controllers, links, credentials, out)

        async def around(_cluster: Cluster, _clock: Clock) -> None:
            # Whoever sees a node first makes its NodeHealth: the agent of the first one, a controller for the last.
            await _exists(api, first)
            async with asyncio.TaskGroup() as group:
                group.create_task(controllers.run())
                group.create_task(bed.watch_invariants())
                if beside is not None:
                    group.create_task(_noted(bed, beside))

        outcome = await story.play(around)
        assert bed.beside_done, f"the story ended before the test had done what it wanted:\n{out.getvalue()}"
        bed.last = await bed.snapshot()
        found = violations(bed.last, settled=True)
        bed.broken += [f"at the end {v.invariant}: {v.message}" for v in found]
        return outcome, bed


async def _noted(bed: Bed, beside: Beside) -> None:
    bed.beside_done = False
    await beside(bed)
    bed.beside_done = True


async def _exists(api: HttpApi, node: str) -> None:
    """Wait for the NodeHealth of `node`."""
    while True:
        try:
            await persist(SystemClock(), lambda: api.get(NODE_HEALTHS, node))
            return
        except NotFoundError:
            await asyncio.sleep(0.2)


async def _served(install: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Install again until it succeeds: a real API server serves a resource only some time after its definition."""
    deadline = time.monotonic() + SERVED_LIMIT_S
    while True:
        try:
            await persist(SystemClock(), install)
            return
        except NotFoundError:
            assert time.monotonic() < deadline, "the resource definitions are not served"
            await asyncio.sleep(0.2)
