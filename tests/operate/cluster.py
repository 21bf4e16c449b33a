"""A small cluster for tests of the node controller: the simulated API server, and stand-ins for everybody else.

Agents publish what `Machine` says, a provider carries out repairs, a certifier judges by `Machine.verdicts`. All of
it lives on the virtual loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from muster.clock import Clock
from muster.kube.api import (
    CERTIFICATIONS,
    CRDS,
    FAULT_POLICIES,
    LEASES,
    NAMESPACES,
    NODE_HEALTHS,
    NODES,
    PODS,
    REPAIRS,
    AlreadyExistsError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
)
from muster.operate.node_controller import NodeController
from muster.operate.policy import FULL_AUTOMATION, with_provider
from muster.operate.views import node_health_of
from muster.resources import crd
from muster.resources.base import API_VERSION, SYSTEM_NAMESPACE, to_object
from muster.resources.fault import Fault
from muster.resources.fault_policy import FaultPolicy
from muster.resources.fingerprint import Fingerprint
from muster.resources.node_health import Lifecycle, Observed, State
from muster.resources.repair import Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock
from tests.operate.worlds import readings

PROVIDER = "test-provider"
AUTOMATED = with_provider(FULL_AUTOMATION, PROVIDER)
TICK_S = 10.0


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Machine:
    """The truth about one node of the test."""

    name: str
    domain: str = "d0"
    uid: str = ""
    boot: int = 1
    fingerprint: Fingerprint = field(default_factory=readings)
    faults: tuple[Fault, ...] = ()
    cured_by: Rung | None = Rung.REBOOT
    """The rung that clears the faults and makes certifications pass; None: nothing does."""
    fails: bool = False
    """Whether it fails certifications until it is cured."""
    silent: bool = False
    clock_ahead_s: float = 0.0
    """How far the machine's own clock, and with it its agent's, is ahead of everybody else's; negative: behind."""
    published: Observed | None = None
    repairs: list[str] = field(default_factory=list)

    def undergo(self, rung: Rung) -> None:
        self.repairs.append(rung.value)
        if rung in (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE):
            self.boot += 1
        if self.cured_by is rung:
            self.faults = ()
            self.fails = False


class TestCluster:
    """The API server and the stand-ins. `lines` are what the controller told."""

    __test__ = False

    def __init__(
        self,
        clock: Clock,
        machines: Sequence[Machine],
        policy: FaultPolicy = AUTOMATED,
        store: Store | None = None,
    ) -> None:
        self.clock = clock
        self.store = store or Store(clock, seed=1)
        self.api: KubeApi = InProcessApi(self.store, user="test")
        self.machines = {m.name: m for m in machines}
        self.policy = policy
        self.lines: list[str] = []
        self.provider_away = False
        """True: nobody takes up repairs."""
        self.reboots_honoured = True
        """False: the provider says Done without having booted anything."""

    async def install(self) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        for namespace in (SYSTEM_NAMESPACE, "work"):
            try:
                await self.api.create(
                    NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
            except AlreadyExistsError:
                continue
        await self.api.create(FAULT_POLICIES, to_object(self.policy))
        for machine in self.machines.values():
            await self.add_node(machine)

    async def add_node(self, machine: Machine) -> None:
        node = await self.api.create(
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": machine.name,
                    "labels": {"nvidia.com/gpu.present": "true", "topology.muster.dev/domain": machine.domain},
                },
            },
        )
        machine.uid = node["metadata"]["uid"]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        await self.api.patch(
            NODES, machine.name, {"status": {"conditions": [ready]}}, PatchType.STRATEGIC, subresource="status"
        )

    async def add_pod(self, name: str, node: str, annotations: dict[str, str] | None = None, **labels: str) -> Object:
        await self.api.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "work",
                    "labels": labels,
                    "annotations": annotations or {},
                },
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                },
            },
            "work",
        )
        # A pod that does not run yet is protected by no PodDisruptionBudget.
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return await self.api.patch(
            PODS, name, {"status": running}, PatchType.STRATEGIC, "work", subresource="status"
        )

    # The stand-ins

    async def agents(self) -> None:
        while True:
            for machine in self.machines.values():
                if not machine.silent:
                    await self.publish(machine)
            await self.clock.sleep(TICK_S)

    async def publish(self, machine: Machine) -> None:
        now = self.clock.now() + timedelta(seconds=machine.clock_ahead_s)
        seen = Observed(
            observed_at=now,
            node_uid=machine.uid,
            boot_id=f"boot-{machine.boot}",
            fingerprint=machine.fingerprint,
            faults=machine.faults,
        )
        old = machine.published
        if old is None or to_object(old) | {"observedAt": ""} != to_object(seen) | {"observedAt": ""}:
            machine.published = seen
            base = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": machine.name}}
            try:
                await self.api.create(NODE_HEALTHS, {**base, "spec": {}})
            except AlreadyExistsError:
                pass
            body = {**base, "status": {"observed": to_object(seen)}}
            await self.api.apply(NODE_HEALTHS, body, manager="muster-agent", subresource="status")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"agent-{machine.name}", "namespace": SYSTEM_NAMESPACE},
            "spec": {"holderIdentity": machine.name, "renewTime": stamp(now)},
        }
        await self.api.apply(LEASES, lease, manager="muster-agent")

    async def provider(self) -> None:
        while True:
            for repair in await self.all(REPAIRS):
                if repair.get("status", {}).get("phase") in ("Done", "Failed", "Cancelled") or self.provider_away:
                    continue
                name = repair["metadata"]["name"]
                if repair["spec"].get("cancel"):
                    status = {"phase": "Cancelled", "finishedAt": stamp(self.clock.now())}
                    await self.api.patch(REPAIRS, name, {"status": status}, PatchType.MERGE, subresource="status")
                    continue
                machine = self.machines[repair["spec"]["nodeName"]]
                rung = Rung(repair["spec"]["rung"])
                if self.reboots_honoured:
                    machine.undergo(rung)
                else:
                    machine.repairs.append(rung.value)
                status = {"phase": "Done", "finishedAt": stamp(self.clock.now()), "externalId": f"INC-{name}"}
                await self.api.patch(REPAIRS, name, {"status": status}, PatchType.MERGE, subresource="status")
            await self.clock.sleep(TICK_S)

    async def certifier(self) -> None:
        while True:
            for found in await self.all(CERTIFICATIONS):
                phase = found.get("status", {}).get("phase", "Pending")
                name = found["metadata"]["name"]
                if phase == "Pending":
                    await self._certification_status(name, {"phase": "Running"})
                elif phase == "Running":
                    await self._judge(name, found["spec"]["nodes"])
            await self.clock.sleep(3 * TICK_S)

    async def _judge(self, name: str, nodes: list[str]) -> None:
        results = [
            {"name": n, "verdict": "Failed" if self.machines[n].fails else "Passed", "metrics": {"pair.busbw": 480.0}}
            for n in nodes
        ]
        run = {"id": "r1", "round": 1, "test": "pair", "nodes": nodes, "outcome": "PASS"}
        bad = any(r["verdict"] == "Failed" for r in results)
        await self._certification_status(
            name, {"phase": "Failed" if bad else "Succeeded", "nodes": results, "runs": [run]}
        )

    async def _certification_status(self, name: str, status: dict[str, Any]) -> None:
        await self.api.patch(CERTIFICATIONS, name, {"status": status}, PatchType.MERGE, subresource="status")

    # Reading

    async def all(self, res: Any) -> list[Object]:
        page = await self.api.list_page(res)
        return [msgspec.json.decode(raw) for raw in page.items]

    async def life(self, name: str) -> Lifecycle | None:
        try:
            return node_health_of(await self.api.get(NODE_HEALTHS, name)).status.lifecycle
        except NotFoundError:
            return None

    async def states(self) -> dict[str, str]:
        found = {name: await self.life(name) for name in self.machines}
        return {name: life.state.value if life else "" for name, life in found.items()}

    async def node(self, name: str) -> Object:
        return await self.api.get(NODES, name)

    async def until(self, condition: Callable[[], Awaitable[bool]], limit_s: float = 24 * 3600) -> None:
        """Wait on virtual time; fails with what the controller told when the condition does not come true."""
        waited = 0.0
        while not await condition():
            if waited > limit_s:
                raise AssertionError(
                    f"not reached; states {await self.states()}; told:\n" + "\n".join(self.lines[-40:])
                )
            await self.clock.sleep(TICK_S)
            waited += TICK_S

    async def until_state(self, name: str, state: State, limit_s: float = 24 * 3600) -> Lifecycle:
        async def there() -> bool:
            life = await self.life(name)
            return life is not None and life.state is state

        await self.until(there, limit_s)
        life = await self.life(name)
        assert life is not None
        return life

    async def until_settled(self, limit_s: float = 48 * 3600) -> None:
        """Every node works or is out for good."""

        async def there() -> bool:
            return set((await self.states()).values()) <= {"InService", "OutOfService"}

        await self.until(there, limit_s)

    def controller(self, api: KubeApi | None = None, **options: Any) -> NodeController:
        return NodeController(
            api or InProcessApi(self.store, user="muster"), self.clock, tell=self.lines.append, **options
        )


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run `works` beside the test and cancel them at its end; an error of one of them fails the test."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield tasks
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def cluster(
    clock: VirtualClock, machines: Sequence[Machine], policy: FaultPolicy = AUTOMATED, *, controller: bool = True
) -> AsyncIterator[TestCluster]:
    """The cluster with all stand-ins and, unless told otherwise, the controller running."""
    made = TestCluster(clock, machines, policy)
    await made.install()
    works = [made.agents(), made.provider(), made.certifier()]
    if controller:
        works.append(made.controller().run())
    async with running(*works):
        yield made
