"""500 nodes report a fatal fault at the same moment: how long until all of them are decided and held.

    python benchmarks/burst.py            # 500 nodes
    python benchmarks/burst.py --quick    # 500 nodes on the in-process store, 100 on the real API server

Twice: on a real API server and etcd with the real controller as a process, at its default limit of requests; and in
one process on the simulated store, which is what the decisions alone cost. The agents are simulated: one client
writes the NodeHealths as 500 agents would. Correlations are off (by default many nodes with the same
finding are not held). The clock starts with the first of these writes. `decided`: the last
lifecycle says that its node is held. `held`: the last Node carries the taint. The budget lets all nodes go.

The reference, in the same run: one patch of each Node by a plain client at the controller's parallelism, no limit of
requests, until a watch has shown all of them. NVSentinel's published figure is 2.4 nodes/s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the control plane lives with the tests

from tests.controlplane.binaries import CONTROLLER_MANAGER as CONTROLLERS  # noqa: E402
from tests.controlplane.binaries import Binaries, BinariesMissingError, find  # noqa: E402
from tests.controlplane.cluster import ControlPlane  # noqa: E402

from fleets.objects import (  # noqa: E402
    fallen_off,
    health_named,
    in_service,
    lease_of,
    node_of,
    observed_of,
    open_policy,
    status_of,
    world_of,
)
from muster.clock import SystemClock  # noqa: E402
from muster.kube.api import (  # noqa: E402
    CRDS,
    FAULT_POLICIES,
    LEASES,
    NODE_HEALTHS,
    NODES,
    KubeApi,
    NotFoundError,
    PatchType,
    ResourceType,
    TooManyRequestsError,
)
from muster.kube.http import HttpApi  # noqa: E402
from muster.operate.node_controller import WORKERS, NodeController  # noqa: E402
from muster.resources import crd  # noqa: E402
from muster.resources.base import (  # noqa: E402
    AGENT_MANAGER,
    CONTROLLER_MANAGER,
    HOLD_TAINT,
    SYSTEM_NAMESPACE,
    to_object,
)
from muster.resources.node_health import Observed, State  # noqa: E402
from muster.sim.inprocess import InProcessApi  # noqa: E402
from muster.sim.nodes import ensure_namespace  # noqa: E402
from muster.sim.store import Store  # noqa: E402
from muster.sim.world import NodeTruth  # noqa: E402

GOAL_S = 10.0
PUBLISHED_PER_S = 2.4
WRITERS = 32
LIMIT_S = 120.0


class Seen:
    """Follows one resource and notes when each object first satisfied a condition."""

    def __init__(self, api: KubeApi, res: ResourceType, condition: Callable[[Any], bool]) -> None:
        self.at: dict[str, float] = {}
        self._api = api
        self._res = res
        self._condition = condition
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        page = await self._api.list_page(self._res)
        self._task = asyncio.create_task(self._follow(page.resource_version))

    async def _follow(self, version: str) -> None:
        async for event in self._api.watch(self._res, version, timeout_s=3600):
            found = json.loads(event.raw)
            name = found["metadata"].get("name", "")
            if name not in self.at and self._condition(found):
                self.at[name] = time.monotonic()
                self._news.set()

    async def all(self, names: Sequence[str]) -> float:
        """When the last of them was seen, by the monotonic clock."""
        async with asyncio.timeout(LIMIT_S):
            while any(name not in self.at for name in names):
                self._news.clear()
                await self._news.wait()
        return max(self.at[name] for name in names)

    def clear(self) -> None:
        self.at.clear()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def is_held(node: Any) -> bool:
    return any(taint["key"] == HOLD_TAINT for taint in node.get("spec", {}).get("taints", []))


def is_decided(health: Any) -> bool:
    return bool(health.get("status", {}).get("lifecycle", {}).get("held"))


async def each(items: Sequence[Any], parallel: int, work: Callable[[Any], Any]) -> None:
    """`work` for every item, `parallel` of them at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(parallel):
            tasks.create_task(worker())


@dataclass
class Fleet:
    """Nodes in service on some API server."""

    api: KubeApi
    machines: list[NodeTruth]
    observed: dict[str, Observed] = field(default_factory=dict)

    async def set_up(self) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        await ensure_namespace(self.api, SYSTEM_NAMESPACE)
        await until(self._served)
        await self.api.create(FAULT_POLICIES, to_object(open_policy()))
        await each(self.machines, 8, self._put_in_service)

    async def _served(self) -> bool:
        try:
            await self.api.list_page(FAULT_POLICIES)
            await self.api.list_page(NODE_HEALTHS)
        except (NotFoundError, TooManyRequestsError):
            return False  # a new resource is unknown at first, then its storage is being prepared
        return True

    async def _put_in_service(self, machine: NodeTruth) -> None:
        name = machine.name
        node = await self.api.create(NODES, node_of(machine))
        await self.api.create(NODE_HEALTHS, health_named(name), manager=AGENT_MANAGER)
        observed = self.observed[name] = observed_of(machine, node["metadata"]["uid"])
        life = status_of(name, "lifecycle", in_service(observed))
        await self._apply(status_of(name, "observed", observed), AGENT_MANAGER)
        await self._apply(life, CONTROLLER_MANAGER)
        await self.api.create(LEASES, lease_of(name), SYSTEM_NAMESPACE, manager=AGENT_MANAGER)

    async def _apply(self, patch: Any, manager: str) -> None:
        await self.api.apply(NODE_HEALTHS, patch, manager=manager, subresource="status")

    async def all_known(self) -> bool:
        """Every node carries the label that the controller writes."""
        page = await self.api.list_page(NODES, label_selector=f"muster.dev/state={State.IN_SERVICE.value}")
        return len(page.items) == len(self.machines)

    async def patch_each(self, machine: NodeTruth) -> None:
        body = {"metadata": {"annotations": {"touched": "yes"}}}
        await self.api.patch(NODES, machine.name, body, PatchType.MERGE)

    async def fail_all(self) -> float:
        """Every agent tells its fault. Returns when the first began to."""
        patches = [
            status_of(m.name, "observed", observed_of(m, self.observed[m.name].node_uid, [fallen_off(m)]))
            for m in self.machines
        ]
        started = time.monotonic()
        await each(patches, WRITERS, lambda patch: self._apply(patch, AGENT_MANAGER))
        return started


@dataclass(frozen=True)
class Result:
    nodes: int
    told_s: float
    decided_s: float
    held_s: float
    reference_s: float
    controller_cpu_s: float | None

    def line(self, where: str) -> str:
        cpu = f", controller {self.controller_cpu_s:.1f} CPU s" if self.controller_cpu_s is not None else ""
        met = f" (goal for 500: {GOAL_S:.0f} s, {'met' if self.held_s <= GOAL_S else 'missed'})"
        return (
            f"burst, {where}: {self.nodes} faults told within {self.told_s:.2f} s, all decided after "
            f"{self.decided_s:.2f} s, all held after {self.held_s:.2f} s{met}, "
            f"{self.nodes / self.held_s:.0f} nodes/s{cpu}; "
            f"reference, one patch of each Node: {self.reference_s:.2f} s, "
            f"ratio {self.held_s / self.reference_s:.1f}; "
            f"NVSentinel published: {PUBLISHED_PER_S} nodes/s"
        )


async def until(condition: Callable[[], Any]) -> None:
    """Ask the asynchronous `condition` until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not await condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"burst: not ready after {LIMIT_S:.0f} s")
        await asyncio.sleep(0.1)


async def measure(fleet: Fleet, start: Callable[[], Any], cpu_s: Callable[[], float] | None = None) -> Result:
    """`start` begins the controller once the fleet stands."""
    await fleet.set_up()
    names = [machine.name for machine in fleet.machines]
    touched = Seen(fleet.api, NODES, lambda node: "touched" in node["metadata"].get("annotations", {}))
    await touched.start()
    began = time.monotonic()
    await each(fleet.machines, WORKERS, fleet.patch_each)
    reference_s = await touched.all(names) - began
    await touched.stop()
    start()
    await until(fleet.all_known)
    held, decided = Seen(fleet.api, NODES, is_held), Seen(fleet.api, NODE_HEALTHS, is_decided)
    await held.start()
    await decided.start()
    used = cpu_s() if cpu_s is not None else 0.0
    started = await fleet.fail_all()
    told_s = time.monotonic() - started
    held_s = await held.all(names) - started
    decided_s = await decided.all(names) - started
    spent = cpu_s() - used if cpu_s is not None else None
    await held.stop()
    await decided.stop()
    return Result(len(names), told_s, decided_s, held_s, reference_s, spent)


async def in_process(nodes: int) -> Result:
    store = Store(SystemClock())
    api = InProcessApi(store)
    controller = NodeController(api, SystemClock())
    running: list[asyncio.Task[None]] = []
    try:
        fleet = Fleet(api, list(world_of(nodes).nodes.values()))
        return await measure(fleet, lambda: running.append(asyncio.create_task(controller.run())))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def real(plane: ControlPlane, nodes: int) -> Result:
    kubeconfig = plane.kubeconfig_file()
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "muster.cli.main", "controller", "run", "--identity", "benchmark"]
        with (plane.folder / "controller.log").open("wb") as log:
            processes.append(subprocess.Popen([*command, "--kubeconfig", str(kubeconfig)], stdout=log, stderr=log))

    async with HttpApi.from_kubeconfig(kubeconfig, rate_per_s=10_000, burst=10_000) as api:
        try:
            fleet = Fleet(api, list(world_of(nodes).nodes.values()))
            return await measure(fleet, start, lambda: cpu_of(processes[0].pid))
        finally:
            for process in processes:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="A burst of simultaneous node faults.")
    parser.add_argument("--quick", action="store_true", help="fewer nodes on the real API server")
    parser.add_argument("--nodes", type=int, help="nodes of the burst")
    parser.add_argument("--only", choices=["real", "in-process"], help="only one of the two")
    options = parser.parse_args()
    nodes = options.nodes or 500
    if options.only != "real":
        print(asyncio.run(in_process(nodes)).line("in-process store, one process for everything"), flush=True)
    if options.only == "in-process":
        return 0
    try:
        found = find()
    except BinariesMissingError as error:
        print(f"burst: NOT MEASURED on a real API server: {error}")
        return 0
    # Without the controller manager nobody minds that these nodes have no kubelet.
    bare = Binaries(found.source, {name: path for name, path in found.paths.items() if name != CONTROLLERS})
    with tempfile.TemporaryDirectory(prefix="muster-burst-") as folder:
        plane = ControlPlane(bare, Path(folder))
        try:
            plane.start()
            fewer = options.nodes or (100 if options.quick else 500)
            result = asyncio.run(real(plane, fewer))
            print(result.line("real API server, etcd and controller process on this machine"))
        finally:
            plane.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
