"""The machines of a play: what is true about them, their kubelets and agents, their work, and what mends them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from muster.agent.publish import Heartbeat, Publisher
from muster.certify.catalogue import floor_for
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners import Owner, Tell, Work
from muster.clock import Clock
from muster.errors import MusterError, UnreachableError
from muster.kube.api import (
    CERTIFICATIONS,
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
from tests.operate.cluster import stamp
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
            pods = await _all(api, PODS)
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


async def _all(api: KubeApi, res: Any) -> list[dict[str, Any]]:
    import json

    return [json.loads(raw) for raw in (await api.list_page(res)).items]


async def _ignore_missing(work: Awaitable[None]) -> None:
    try:
        await work
    except NotFoundError:
        return


async def _until_lost(work: Awaitable[None]) -> None:
    await work


class StandIn:
    """A certification controller that judges by what is true, without rounds and numbers.

    Its status is one of those that the real one writes, except for the details of runs.
    """

    def __init__(self, plant: Plant, api: KubeApi, clock: Clock) -> None:
        self._plant, self._api, self._clock = plant, api, clock

    async def run(self) -> None:
        while True:
            try:
                for found in await _all(self._api, CERTIFICATIONS):
                    await self._look(found)
            except (ApiError, UnreachableError):
                pass  # at the next look
            await self._clock.sleep(TICK_S)

    async def _look(self, found: dict[str, Any]) -> None:
        status, nodes = found.get("status") or {}, found["spec"].get("nodes") or ()
        there = [self._plant.machines[n] for n in nodes if n in self._plant.machines]
        match status.get("phase", "Pending"):
            case "Pending":
                begun = {"phase": "Running", "startedAt": stamp(self._plant.clock.now())}
                await self._write(found, begun)
            case "Running" if self._plant.drawn.random() < 0.1:
                # Whoever was away in between may not have been missed: between two runs nobody looks.
                disturbed = any(m.down or m.gone for m in there)
                verdicts = [
                    (m.name, "Undetermined" if disturbed else "Failed" if m.fails else "Passed") for m in there
                ]
                passed = all(verdict == "Passed" for _, verdict in verdicts)
                results = [{"name": n, "verdict": v, "metrics": {"pair.busbw": 480.0}} for n, v in verdicts]
                run = {"id": "r1", "round": 1, "test": "pair", "nodes": list(nodes), "outcome": "PASS"}
                phase = "Succeeded" if passed else "Failed"
                await self._write(found, {"phase": phase, "nodes": results, "runs": [run]})

    async def _write(self, found: dict[str, Any], status: dict[str, Any]) -> None:
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "status": status}
        name = found["metadata"]["name"]
        await self._api.patch(CERTIFICATIONS, name, patch, PatchType.MERGE, subresource="status")


@dataclass
class _Run:
    """A run of a certification: it goes on whatever becomes of the controller that began it."""

    certification: str
    nodes: tuple[str, ...]
    ends_at_s: float
    boots: Mapping[str, str]


class Bench:
    """Where tests run. What it says of a machine is what is true when the run ends."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.runs: dict[tuple[str, str], _Run] = {}

    def begin(self, owner: Owner, run: PlannedRun) -> _Run:
        key = (owner.uid, run.id)
        if key not in self.runs:
            takes_s = self._plant.drawn.uniform(20.0, 120.0)
            boots = {n: self._plant.machines[n].boot_id for n in run.nodes}
            self.runs[key] = _Run(owner.name, run.nodes, self._plant.clock.elapsed_s + takes_s, boots)
        return self.runs[key]

    def ends(self, run: _Run, planned: PlannedRun) -> tuple[RankEnd, ...]:
        machines = [self._plant.machines[n] for n in run.nodes]
        disturbed = [m.name for m in machines if m.down or m.gone or m.boot_id != run.boots[m.name]]
        if disturbed:
            return tuple(RankEnd(n, HowEnded.DISTURBED, message=f"{disturbed[0]} went away") for n in run.nodes)
        bad = tuple(m.name for m in machines if m.fails)
        floor = floor_for(
            planned.test, product=PRODUCT, platform="", nodes=len(run.nodes), gpus_per_node=GPUS, one_domain=False
        )
        value = 1.2 * floor if floor is not None else 100.0
        return tuple(_end(name, bad, planned.test, value) for name in run.nodes)


def _end(name: str, bad: tuple[str, ...], test: str, value: float) -> RankEnd:
    if bad:
        report = Report(name, False, reason="crash", suspects=bad, message="the driver does not answer")
        return RankEnd(name, HowEnded.REPORTED, report)
    if test in ("host", "dcgm-diag"):
        return RankEnd(name, HowEnded.REPORTED, Report(name, True, message="all checks passed"))
    return RankEnd(name, HowEnded.REPORTED, Report(name, True, value, "TFLOP/s" if test == "gpu-burn" else "GB/s"))


class BenchRunner:
    """What one life of the controller knows of the bench."""

    def __init__(self, bench: Bench, clock: Clock) -> None:
        self._bench = bench
        self._clock = clock

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def wait_synced(self) -> None:
        return

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        running = {run.id: self._bench.begin(work.owner, run) for run in work.runs}
        longest_s = max((r.ends_at_s for r in running.values()), default=0.0) - self._bench._plant.clock.elapsed_s
        await self._clock.sleep(max(0.0, longest_s))
        planned = {run.id: run for run in work.runs}
        return {name: self._bench.ends(run, planned[name]) for name, run in running.items()}

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        runs = self._bench.runs
        for key in [k for k, r in runs.items() if r.certification == owner.name]:
            if key[0] != owner.uid or key[1] not in keep:
                del runs[key]

    def certifications(self) -> tuple[str, ...]:
        return tuple(sorted({r.certification for r in self._bench.runs.values()}))

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        return tuple(
            sorted({n for r in self._bench.runs.values() if r.certification == certification for n in r.nodes})
        )

    def forget(self, certification: str) -> None:
        return
