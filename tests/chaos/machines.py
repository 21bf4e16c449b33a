"""The machines of a play: what is true about them, their kubelets and agents, their work, and what mends them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from muster.agent.publish import Heartbeat, Publisher
from muster.clock import Clock
from muster.errors import MusterError
from muster.kube.api import (
    NODES,
    PODS,
    AlreadyExistsError,
    ApiError,
    KubeApi,
    NotFoundError,
    PatchType,
)
from muster.resources.fault import Fault, Severity
from muster.resources.fingerprint import Fingerprint
from muster.resources.node_health import Observed
from muster.resources.repair import Rung
from muster.sim.virtual import VirtualClock
from tests.chaos.apiserver import ChaosApi, Process
from tests.operate.worlds import fault, readings

PRODUCT = "NVIDIA-H100-80GB-HBM3"
GPUS = 8
LOOK_S = 60.0
"""How often an agent looks at its machine."""
BEAT_S = 300.0
UID_REFRESH_S = 600.0
TICK_S = 60.0
"""How often kubelets and the scheduler look round."""


@lru_cache(maxsize=256)
def _readings(driver: str, gpu: str) -> Fingerprint:
    return readings(driver=driver, gpu=gpu)


@dataclass(frozen=True)
class Defect:
    """What is wrong with a machine. `code` is what its agent sees, empty when only tests find it."""

    code: str
    cured_by: Rung | None
    """The mildest rung that helps; None: nothing does."""
    fails_tests: bool = True
    severity: Severity = Severity.FATAL


@dataclass
class Machine:
    """The truth about one machine."""

    name: str
    domain: str
    serial: int = 1
    boot: int = 1
    driver: str = "580.65"
    gpu: int = 1
    agent_version: str = "1.0"
    defect: Defect | None = None
    seen_again_in_s: float = 0.0
    faults: tuple[Fault, ...] = ()
    down: bool = False
    agent_up: bool = True
    agent_ahead_s: float = 0.0
    ordered: list[str] = field(default_factory=list)
    """Repairs carried out, by name, oldest first."""
    gone: bool = False
    """Its Node was deleted."""

    @property
    def boot_id(self) -> str:
        return f"boot-{self.serial}-{self.boot}"

    @property
    def fingerprint(self) -> Fingerprint:
        return _readings(self.driver, f"GPU-{self.name}-{self.serial}-{self.gpu}")

    @property
    def fails(self) -> bool:
        return self.defect is not None and self.defect.fails_tests


class Plant:
    """All machines, and everybody who touches them beside the controller and people."""

    def __init__(self, clock: VirtualClock, drawn: random.Random, api: Callable[[str], KubeApi]) -> None:
        self.clock = clock
        self.drawn = drawn
        self.api = api
        self.machines: dict[str, Machine] = {}
        self.works = False
        """Whether anybody submits jobs."""
        self.blocked_jobs = False
        self._jobs = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_until_lost(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Nodes

    async def join(self, machine: Machine) -> None:
        labels = {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": PRODUCT,
            "topology.muster.dev/domain": machine.domain,
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name, "labels": labels}}
        try:
            await self.api("kubelet").create(NODES, node)
        except AlreadyExistsError:
            return
        machine.gone = False
        self.machines[machine.name] = machine
        await self.report(machine)

    async def report(self, machine: Machine) -> None:
        """What the kubelet says of the machine."""
        ready = {"type": "Ready", "status": "False" if machine.down else "True", "reason": "Kubelet", "message": ""}
        gpus = {"nvidia.com/gpu": str(GPUS)}
        info = {"bootID": machine.boot_id}
        status = {"conditions": [ready], "capacity": gpus, "allocatable": gpus, "nodeInfo": info}
        try:
            await self.api("kubelet").patch(
                NODES, machine.name, {"status": status}, PatchType.STRATEGIC, subresource="status"
            )
        except NotFoundError:
            return

    async def reboot(self, machine: Machine, rung: Rung, down_s: float) -> None:
        """The machine goes down and comes up again; what the rung cures is cured."""
        machine.down = True
        await self.report(machine)
        await self.clock.sleep(down_s)
        machine.boot += 1
        if rung is Rung.REPLACE:
            machine.gpu += 1
        self.cure(machine, rung)
        machine.down = False
        await self.report(machine)

    def cure(self, machine: Machine, rung: Rung) -> None:
        """Faults are gone after a repair; those of a defect that it did not cure come back."""
        machine.faults = ()
        defect = machine.defect
        if defect is None:
            return
        order = list(Rung)
        if defect.cured_by is not None and order.index(rung) >= order.index(defect.cured_by):
            machine.defect = None
        elif defect.code:
            self.spawn(self._seen_again(machine, defect, self.drawn.uniform(60.0, 400.0)))

    def strike(self, machine: Machine, defect: Defect) -> None:
        machine.defect = defect
        if defect.code:
            self._show(machine, defect)

    def _show(self, machine: Machine, defect: Defect) -> None:
        at = self.clock.now() + timedelta(seconds=machine.agent_ahead_s)
        machine.faults = (fault(defect.code, severity=defect.severity, seen=at, boot=machine.boot_id),)

    async def _seen_again(self, machine: Machine, defect: Defect, after_s: float) -> None:
        await self.clock.sleep(after_s)
        if machine.defect is defect and not machine.down:
            self._show(machine, defect)

    # Agents: the real publisher and heartbeat, over what is true about the machine

    async def agent(self, name: str, process: Process, api: ChaosApi) -> None:
        publisher, beat = Publisher(api, name, process.clock), Heartbeat(api, name, process.clock, heartbeat_s=BEAT_S)
        uid, uid_at_s, beat_at_s, sent_at_s = "", -1e9, -1e9, -1e9
        sent: Observed | None = None
        await self.clock.sleep(self.drawn.uniform(0.0, LOOK_S))
        while True:
            machine = self.machines[name]
            process.clock.ahead_s = machine.agent_ahead_s
            now_s = self.clock.elapsed_s
            if not machine.down and machine.agent_up and not machine.gone:
                try:
                    if now_s - uid_at_s >= UID_REFRESH_S:
                        uid, uid_at_s = await publisher.node_uid(), now_s
                    seen = _observed(machine, uid, process.clock)
                    if sent is None or sent != _at(seen, sent) or now_s - sent_at_s >= 1800.0:
                        kept = seen if sent is None or sent != _at(seen, sent) else sent
                        await publisher.send(kept)
                        sent, sent_at_s = kept, now_s
                    if now_s - beat_at_s >= BEAT_S:
                        await beat.send()
                        beat_at_s = now_s
                except (ApiError, MusterError):
                    pass  # it is tried again at the next look
            await self.clock.sleep(LOOK_S)

    # Kubelets and the scheduler

    async def kubelets(self, open_nodes: Callable[[], list[str]]) -> None:
        """Pods that were asked to go are gone after a while, jobs end, new ones come to nodes that take work."""
        api, ends = self.api("kubelet"), dict[str, float]()
        while True:
            await self.clock.sleep(TICK_S)
            pods = await listed(api, PODS)
            used = set()
            for pod in pods:
                meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
                machine = self.machines.get(node)
                used.add(node)
                over = self.clock.elapsed_s >= ends.setdefault(meta["uid"], self.clock.elapsed_s + 3600.0)
                there = machine is not None and not machine.gone
                if not there or (not machine.down and (over or meta.get("deletionTimestamp"))):
                    await _ignore_missing(api.delete(PODS, meta["name"], "work", grace_period_s=0))
            free = [n for n in open_nodes() if n not in used and not self.machines[n].down]
            if self.works and free and self.drawn.random() < 0.3:
                self._jobs += 1
                pod = await _run_job(api, f"job-{self._jobs}", self.drawn.choice(free), guarded=self.blocked_jobs)
                ends[pod["metadata"]["uid"]] = self.clock.elapsed_s + self.drawn.uniform(300.0, 9000.0)


def _observed(machine: Machine, uid: str, clock: Clock) -> Observed:
    return Observed(
        observed_at=clock.now(),
        node_uid=uid,
        boot_id=machine.boot_id,
        agent_version=machine.agent_version,
        fingerprint=machine.fingerprint,
        faults=machine.faults,
    )


def _at(seen: Observed, other: Observed) -> Observed:
    from msgspec.structs import replace

    return replace(seen, observed_at=other.observed_at)


async def _run_job(api: KubeApi, name: str, node: str, *, guarded: bool) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(GPUS)}}
    pod = await api.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "work", "labels": {"guarded": str(guarded).lower()}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x", "resources": limits}]},
        },
        "work",
    )
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(PODS, name, {"status": running}, PatchType.STRATEGIC, "work", subresource="status")
    return pod


async def listed(api: KubeApi, res: Any) -> list[dict[str, Any]]:
    import json

    return [json.loads(raw) for raw in (await api.list_page(res)).items]


async def _ignore_missing(work: Awaitable[None]) -> None:
    try:
        await work
    except NotFoundError:
        return


async def _until_lost(work: Awaitable[None]) -> None:
    await work
