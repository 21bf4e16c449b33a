"""A small cluster for tests of workers: Jobs become pods, pods get nodes, and a link plays the workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from muster.certify import catalogue
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.measure import HowEnded, RankEnd
from muster.certify.runners import Owner, Work
from muster.certify.runners.worker_link import (
    HowRunEnded,
    RunAnswer,
    RunPhase,
    WorkerAddress,
    WorkerRefusedError,
    WorkerState,
    WorkerUnreachableError,
)
from muster.certify.runners.worker_pods import Images
from muster.certify.runners.workers import WorkerRunner
from muster.kube.api import (
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    Object,
    PatchType,
    ResourceType,
)
from muster.kube.cache import WatchCache
from muster.resources.base import SYSTEM_NAMESPACE, WORKERS_LABEL
from muster.resources.certification import Pods
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock
from muster.workloads.report import NodeReport
from muster.workloads.run_spec import RunSpec
from tests.certify.bed import Bed

CORE_EVENTS = ResourceType("", "v1", "events", "Event", True)
START_S = 5.0
STOP_S = 1.0
RUN_S = 8.0
IMAGES = Images("torch:1", "muster:1")
TESTS = catalogue.tests()

POD_GROUP_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


def planned(number: int, test: str, *nodes: str) -> PlannedRun:
    return PlannedRun(f"r01-{number:03d}", 1, test, nodes, Role.SCREEN, 0)


@dataclass
class FakeLink:
    """Workers without processes: every run ends well after RUN_S, but for what `answers` says."""

    clock: VirtualClock
    answers: dict[str, RunAnswer] = field(default_factory=dict)
    """By node: how its runs end."""
    unreachable: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    running: dict[tuple[str, str], float] = field(default_factory=dict)
    """(host, run) -> when it began."""
    specs: list[RunSpec] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)

    def _reach(self, worker: WorkerAddress) -> None:
        self.tokens.add(worker.token)
        if worker.node in self.unreachable:
            raise WorkerUnreachableError("no route")

    async def state(self, worker: WorkerAddress) -> WorkerState:
        self._reach(worker)
        return WorkerState(worker.node, "one")

    async def start(self, worker: WorkerAddress, spec: RunSpec) -> bool:
        self._reach(worker)
        if spec.node != worker.node:
            raise WorkerRefusedError("this run is for another node")
        if (worker.host, spec.run) not in self.running:
            self.running[worker.host, spec.run] = self.clock.elapsed_s
            self.specs.append(spec)
            return True
        return False

    async def result(self, worker: WorkerAddress, run: str, wait_s: float) -> RunAnswer:
        self._reach(worker)
        began = self.running.get((worker.host, run))
        if began is None:
            return RunAnswer(RunPhase.UNKNOWN)
        left_s = began + RUN_S - self.clock.elapsed_s
        if left_s > 0:
            await self.clock.sleep(min(wait_s, left_s))
            self._reach(worker)
            if left_s > wait_s:
                return RunAnswer(RunPhase.RUNNING)
        test = TESTS[next(s.test for s in self.specs if s.run == run)]
        usual = NodeReport(worker.node, ok=True, value=100.0 if test.metric else None, unit=test.unit)
        return self.answers.get(
            worker.node, RunAnswer(RunPhase.ENDED, HowRunEnded.REPORTED, usual.to_json().encode())
        )

    async def stop(self, worker: WorkerAddress, run: str) -> None:
        self._reach(worker)
        self.stopped.append((worker.node, run))
        self.running.pop((worker.host, run), None)


class Machinery:
    """The controllers of Jobs, the scheduler and the kubelets of a simulated cluster, as far as workers need them."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.api = InProcessApi(bed.store, user="machinery")
        self.busy: dict[str, str] = {}
        """Node -> why the scheduler puts nothing on it."""
        self.no_image: set[str] = set()
        self.quota = ""
        self.peak: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._made = 0
        self._assigned: dict[str, str] = {}
        caches = {"clock": bed.clock, "namespace": SYSTEM_NAMESPACE, "on_change": lambda _: self._wake.set()}
        self.jobs: WatchCache[Object] = WatchCache(self.api, JOBS, json.loads, **caches)  # type: ignore[arg-type]
        self.pods: WatchCache[Object] = WatchCache(
            self.api,
            PODS,
            json.loads,
            label_selector=WORKERS_LABEL,
            **caches,  # type: ignore[arg-type]
        )

    async def run(self) -> None:
        works = [asyncio.ensure_future(w) for w in (self.jobs.run(), self.pods.run(), self._steer())]
        try:
            await asyncio.gather(*works)
        finally:
            for task in (*works, *self._lives.values()):
                task.cancel()
            await asyncio.gather(*works, *self._lives.values(), return_exceptions=True)

    async def _steer(self) -> None:
        await self.jobs.wait_synced()
        await self.pods.wait_synced()
        while True:
            self._wake.clear()
            for job in list(self.jobs.items().values()):
                await self._job(job)
            for pod in list(self.pods.items().values()):
                await self._pod(pod)
            await self._wake.wait()
            await self.bed.clock.sleep(0.1)

    async def _job(self, job: Object) -> None:
        meta, spec = job["metadata"], job["spec"]
        if meta.get("deletionTimestamp") or spec.get("suspend"):
            return
        mine = [p for p in self.pods.items().values() if p["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]]
        alive = {
            p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
            for p in mine
            if p.get("status", {}).get("phase") not in ("Failed", "Succeeded")
        }
        missing = [str(i) for i in range(spec["completions"]) if str(i) not in alive]
        if missing and self.quota:
            await self._say_quota(job)
            return
        for index in missing:
            await self._make(job, index)

    async def _say_quota(self, job: Object) -> None:
        name = job["metadata"]["name"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.1", "namespace": SYSTEM_NAMESPACE},
            "involvedObject": {"kind": "Job", "name": name, "namespace": SYSTEM_NAMESPACE},
            "reason": "FailedCreate",
            "message": self.quota,
            "type": "Warning",
        }
        try:
            await self.api.create(CORE_EVENTS, event, SYSTEM_NAMESPACE)
        except AlreadyExistsError:
            return

    async def _make(self, job: Object, index: str) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        self._made += 1
        key = {"batch.kubernetes.io/job-completion-index": index}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{index}-{self._made:05d}",
                "namespace": SYSTEM_NAMESPACE,
                "labels": {**template["metadata"]["labels"], **key},
                "annotations": {**template["metadata"].get("annotations", {}), **key},
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": meta["name"],
                        "uid": meta["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": template["spec"],
        }
        await self.api.create(PODS, body, SYSTEM_NAMESPACE)
        await self.pods_have(body["metadata"]["name"])

    async def pods_have(self, name: str) -> None:
        while self.pods.get(f"{SYSTEM_NAMESPACE}/{name}") is None:
            await self.bed.clock.sleep(0.05)

    async def _pod(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            if meta.get("deletionTimestamp"):
                await self._gone(pod)
            elif uid not in self._assigned:
                await self._schedule(pod)
            return
        if uid not in self._lives and pod.get("status", {}).get("phase") == "Pending":
            self._lives[uid] = asyncio.ensure_future(self._live(pod))
        if meta.get("deletionTimestamp") and f"stop {uid}" not in self._lives:
            self._lives[f"stop {uid}"] = asyncio.ensure_future(self._stop(pod))

    async def _schedule(self, pod: Object) -> None:
        affinity = pod["spec"]["affinity"]
        terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        wanted = [t["matchFields"][0]["values"][0] for t in terms]
        taken = {
            p["spec"].get("nodeName") or self._assigned.get(p["metadata"]["uid"])
            for p in self.pods.items().values()
            if p.get("status", {}).get("phase") not in ("Failed", "Succeeded")
        }
        free = [n for n in wanted if n not in taken and n not in self.busy and n in self.bed.names]
        if not free:
            if pod.get("status", {}).get("conditions"):
                return
            words = "; ".join(sorted(set(self.busy.values()))) or "no node fits"
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
            await self.status(pod, {"conditions": [condition]})
            return
        self._assigned[pod["metadata"]["uid"]] = free[0]  # the cache learns of it a moment later
        await self.api.bind(pod["metadata"]["name"], SYSTEM_NAMESPACE, free[0])

    async def retry(self) -> None:
        """The scheduler looks again at pods that fit nowhere."""
        for pod in list(self.pods.items().values()):
            if not pod["spec"].get("nodeName"):
                await self._schedule(pod)

    async def _live(self, pod: Object) -> None:
        node = pod["spec"]["nodeName"]
        await self.bed.clock.sleep(START_S)
        if node in self.bed.silent:
            return
        if node in self.no_image:
            waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "torch:1": not found'}
            await self.status(pod, {"containerStatuses": [_container({"waiting": waiting}, ready=False)]})
            return
        ip = f"10.0.{self._made}.{self.bed.names.index(node)}"
        running = _container({"running": {}}, ready=True)
        await self.status(pod, {"phase": "Running", "podIP": ip, "containerStatuses": [running]})

    async def end(self, node: str, *, exit_code: int = 137, disturbed: bool = False) -> None:
        """The worker on the node ends."""
        for pod in self.pods.items().values():
            if pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") == "Running":
                ended = _container({"terminated": {"exitCode": exit_code, "reason": "OOMKilled"}}, ready=False)
                status: Object = {"phase": "Failed", "containerStatuses": [ended]}
                if disturbed:
                    status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]
                await self.status(pod, status)

    async def _stop(self, pod: Object) -> None:
        if pod["spec"]["nodeName"] in self.bed.silent:
            return
        await self.bed.clock.sleep(STOP_S)
        await self._gone(pod)

    async def _gone(self, pod: Object) -> None:
        try:
            await self.api.delete(
                PODS, pod["metadata"]["name"], SYSTEM_NAMESPACE, grace_period_s=0, uid=pod["metadata"]["uid"]
            )
        except (NotFoundError, ConflictError):
            return

    async def status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self.api.patch(
                PODS, pod["metadata"]["name"], patch, PatchType.STRATEGIC, SYSTEM_NAMESPACE, subresource="status"
            )
        except (NotFoundError, ConflictError):
            return


def _container(state: Object, *, ready: bool) -> Object:
    return {"name": "worker", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state}


class Scene:
    """A runner of workers on a test bed, and what it said about being blocked."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.machinery = Machinery(bed)
        self.link = FakeLink(bed.clock)
        self.said: list[str] = []
        self.dead: set[str] = set()
        self.owner = Owner("c", "")
        self.pods = Pods()
        self.tokens = 0
        self.runner = self.new_runner()

    def new_runner(self, **options: Any) -> WorkerRunner:
        def random_bytes(count: int) -> bytes:
            self.tokens += 1
            return bytes([self.tokens]) * count

        return WorkerRunner(
            InProcessApi(self.bed.store, user="muster"),
            self.bed.clock,
            self.link,
            IMAGES,
            alive=lambda name: name not in self.dead,
            random_bytes=random_bytes,
            **options,
        )

    async def blocked(self, why: str) -> None:
        self.said.append(why)

    def work(self, *runs: PlannedRun, minutes: float = 240.0) -> Work:
        until = self.bed.clock.now() + timedelta(minutes=minutes)
        return Work(self.owner, runs, TESTS, dict.fromkeys(self.bed.names, 8), until, self.pods)

    async def carry_out(self, *runs: PlannedRun, minutes: float = 240.0) -> Mapping[str, tuple[RankEnd, ...]]:
        return await self.runner.carry_out(self.work(*runs, minutes=minutes), self.blocked)

    async def left(self) -> list[str]:
        """Everything that a certification has in the cluster."""
        found = []
        for res in (JOBS, PODS, SERVICES, SECRETS):
            page = await self.bed.api.list_page(res, SYSTEM_NAMESPACE)
            objects = [json.loads(raw) for raw in page.items]
            found += [
                f"{res.kind} {o['metadata']['name']}"
                for o in objects
                if WORKERS_LABEL in o["metadata"].get("labels", {})
            ]
        return sorted(found)


def hows(ends: Mapping[str, tuple[RankEnd, ...]], run: str) -> list[HowEnded]:
    return [e.how for e in ends[run]]
