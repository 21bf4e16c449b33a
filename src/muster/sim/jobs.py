"""Training jobs of the simulated fleet: they need all their pods at once, save now and then, start over elsewhere.

A job is a batch/v1 Job, left alone by a real job controller (`spec.managedBy`), with one pod for each of its nodes.
When a pod goes away, the attempt is over: what was done since the last checkpoint is lost, and the next attempt goes
on from there as soon as the scheduler finds nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from muster.clock import Clock
from muster.kube.api import PODS, AlreadyExistsError, KubeApi, NotFoundError, Object, PatchType, ResourceType
from muster.resources.base import GPU_RESOURCE
from muster.sim.defects import Defect, DefectKind
from muster.sim.draws import rng
from muster.sim.kubelet import End, Ended, Kubelets
from muster.sim.nodes import ensure_namespace, rfc3339
from muster.sim.plant import JobMix
from muster.sim.pods import Pod
from muster.sim.retry import NEW_NAMESPACE_S, persist
from muster.sim.scheduler import MIN_MEMBERS, POD_GROUP_LABEL
from muster.sim.tasks import TaskSet
from muster.sim.world import GPUS_PER_NODE, World

JOBS = ResourceType("batch", "v1", "jobs", "Job", True)
NAMESPACE = "training"
MANAGED_BY = "muster.dev/simulated-fleet"
JOB_LABEL = "batch.kubernetes.io/job-name"
LOST_ANNOTATION = "sim.muster.dev/lost-work-s"
DONE_ANNOTATION = "sim.muster.dev/checkpointed-s"
RESTARTS_ANNOTATION = "sim.muster.dev/restarts"
MAX_FINISHED = 100
"""Finished Jobs that are kept; older ones are deleted."""
RESTART_S = 15.0
"""From the end of an attempt to the pods of the next."""
REACHED = "CompletionsReached"
CRASHED = 134
"""128 + SIGABRT, which is how a framework leaves after a CUDA error."""


@dataclass(frozen=True)
class Interruption:
    """One attempt that ended early. `lost_s` is work, at the usual rate, that has to be done again."""

    at: datetime
    job: str
    node: str
    why: Ended
    lost_s: float


@dataclass
class _Job:
    name: str
    work_s: float
    nodes: int
    uid: str = ""
    started: str = ""
    done_s: float = 0.0
    lost_s: float = 0.0
    attempt: int = 0
    running: dict[str, Pod] = field(default_factory=dict)
    """Pods of the present attempt whose containers run, by name."""
    gone: tuple[str, Ended] | None = None
    """Node of the first pod of the present attempt that went away, and why it did."""
    hung_at: datetime | None = None
    """Since when the present attempt makes no progress, its pods running all the same."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def pod_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{self.attempt}-{rank}" for rank in range(self.nodes))


GRACE_PERIOD_S = 120
"""Training pods get the time to save a checkpoint."""


class TrainingJobs:
    """Keeps `mix.count` jobs going. `say` receives one sentence for each end of a job or an attempt."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        world: World,
        kubelets: Kubelets,
        mix: JobMix,
        pod_exists: Callable[[str], bool],
        say: Callable[[str, str, str], None],
        tasks: TaskSet,
    ) -> None:
        self._api = api
        self._clock = clock
        self._world = world
        self._kubelets = kubelets
        self._mix = mix
        self._pod_exists = pod_exists
        self._say = say
        self._tasks = tasks
        self._jobs: dict[str, _Job] = {}
        self._numbers = 0
        self._finished: list[str] = []
        self._pod_gone = asyncio.Event()
        self.completed = 0
        self.interruptions: list[Interruption] = []
        world.on_gpu_fault.append(self._gpu_fault)
        world.on_gpu_hang.append(self._gpu_hang)

    # Workload

    def owns(self, pod: Pod) -> bool:
        return pod.namespace == NAMESPACE and JOB_LABEL in pod.labels

    def started(self, pod: Pod) -> None:
        job = self._job_of(pod)
        if job is None:
            self._kubelets.exit(pod, 1, "the job of this pod is not running")
            return
        job.running[pod.name] = pod
        job.wake.set()

    def stopped(self, pod: Pod, end: End) -> None:
        job = self._job_of(pod)
        if job is None:
            return
        job.running.pop(pod.name, None)
        if job.gone is None:
            job.gone = (pod.node, end.why)
        job.wake.set()

    def ignores_sigterm(self, pod: Pod) -> bool:
        """A rank that waits for a silent GPU does not even save a checkpoint."""
        return any(defect.hangs() for defect in self._world.defects_of(pod.node))

    def pod_changed(self, key: str) -> None:
        """Callback of the pod cache: a pod may have disappeared, also one that never ran."""
        if self._pod_exists(key):
            return
        self._pod_gone.set()
        namespace, _, name = key.partition("/")
        job = self._jobs.get(name.rsplit("-", 2)[0]) if namespace == NAMESPACE else None
        if job is not None and name in job.pod_names() and job.gone is None:
            job.gone = ("", Ended.DELETED)
            job.wake.set()

    def _job_of(self, pod: Pod) -> _Job | None:
        job = self._jobs.get(pod.labels[JOB_LABEL])
        return job if job is not None and pod.name in job.pod_names() else None

    def _gpu_fault(self, node: str) -> None:
        for job in list(self._jobs.values()):
            for pod in list(job.running.values()):
                if pod.node == node:
                    self._kubelets.exit(pod, CRASHED, "CUDA error: unspecified launch failure")

    def _gpu_hang(self, node: str) -> None:
        for job in list(self._jobs.values()):
            if any(pod.node == node for pod in job.running.values()):
                self._hang(job, node)

    def _hang(self, job: _Job, node: str) -> None:
        if job.hung_at is None:
            job.hung_at = self._clock.now()
            self._say("job", node, f"{job.name} makes no progress: its rank on {node} is silent.")

    # Jobs

    async def run(self) -> None:
        """Start `mix.count` lanes of jobs, each for ever."""
        if self._mix.count == 0:
            return
        await persist(self._clock, lambda: ensure_namespace(self._api, NAMESPACE))
        await self._clock.sleep(self._mix.start_s)
        for lane in range(self._mix.count):
            self._tasks.start(self._lane(lane))

    async def _lane(self, lane: int) -> None:
        draws = rng(self._world.seed, "jobs", lane)
        while True:
            self._numbers += 1
            job = _Job(
                f"train-{self._numbers:04d}", self._mix.duration_s * draws.uniform(0.75, 1.25), self._mix.nodes
            )
            self._jobs[job.name] = job
            job.started = rfc3339(self._clock.now())
            await self._create(job)
            while not await self._attempt(job):
                await self._clock.sleep(RESTART_S)
            await self._finish(job)

    async def _attempt(self, job: _Job) -> bool:
        """One attempt; returns whether the work is done."""
        job.attempt += 1
        job.running.clear()
        job.gone = None
        job.hung_at = None
        for name in job.pod_names():
            await self._create_pod(job, name)
        while len(job.running) < job.nodes and job.gone is None:
            await self._woken(job)
        finished = False
        if job.gone is None:
            finished = await self._work(job)
        for pod in list(job.running.values()):
            self._kubelets.exit(pod, 0 if finished else 1, "" if finished else "a peer of the job went away")
        if not finished:
            await self._annotate(job)
        await self._clear(job)
        return finished

    async def _work(self, job: _Job) -> bool:
        """Train until done or interrupted, and account for it. The rate is that of the moment of the start."""
        rate = self._rate([pod.node for pod in job.running.values()])
        started = self._clock.now()
        timer = self._tasks.start(self._wake_after(job, self._mix.startup_s + (job.work_s - job.done_s) / rate))
        crash = self._tasks.start(self._meet_defects_after_startup(job))
        while job.gone is None and (job.hung_at is not None or not timer.done()):
            await self._woken(job)
        timer.cancel()
        crash.cancel()
        if job.gone is None:
            job.done_s = job.work_s
            return True
        elapsed_s = ((job.hung_at or self._clock.now()) - started).total_seconds() - self._mix.startup_s
        progress_s = job.done_s + max(0.0, elapsed_s) * rate
        kept_s = max(job.done_s, progress_s // self._mix.checkpoint_s * self._mix.checkpoint_s)
        lost_s = progress_s - kept_s
        job.done_s = kept_s
        job.lost_s += lost_s
        node, why = job.gone
        self.interruptions.append(Interruption(self._clock.now(), job.name, node, why, lost_s))
        how = "crashed" if why is Ended.EXITED else "was stopped"
        self._say("job", node, f"{job.name} {how} on {node} and lost {lost_s / 60:.0f} min of work; it restarts.")
        return False

    async def _meet_defects_after_startup(self, job: _Job) -> None:
        """The first collective meets a GPU that does not work: it crashes, or waits for ever."""
        await self._clock.sleep(self._mix.startup_s)
        for pod in list(job.running.values()):
            defects = self._world.defects_of(pod.node)
            if any(self._crashes(job, defect) for defect in defects):
                self._kubelets.exit(pod, CRASHED, "CUDA error: unspecified launch failure")
                return
            if any(defect.hangs() for defect in defects):
                self._hang(job, pod.node)
                return

    def _crashes(self, job: _Job, defect: Defect) -> bool:
        if defect.kind is DefectKind.FLAKY_NODE:
            return rng(self._world.seed, "flaky-job", job.name, job.attempt).random() < defect.probability
        broken = (DefectKind.BAD_NODE, DefectKind.XID, DefectKind.NEEDS_REPLACEMENT)
        return defect.kind in broken and not defect.hangs()

    async def _wake_after(self, job: _Job, seconds: float) -> None:
        await self._clock.sleep(seconds)
        job.wake.set()

    @staticmethod
    async def _woken(job: _Job) -> None:
        await job.wake.wait()
        job.wake.clear()

    def _rate(self, nodes: list[str]) -> float:
        """Synchronous training is as fast as its slowest node or link."""
        kinds = (DefectKind.SLOW_NODE, DefectKind.DEGRADED_NVLINK)
        factors = [d.factor for name in nodes for d in self._world.defects_of(name) if d.kind in kinds]
        for index, a in enumerate(nodes):
            links = (self._world.link_defect(a, b) for b in nodes[index + 1 :])
            factors.extend(link.factor for link in links if link is not None)
        return min(factors, default=1.0)

    async def _clear(self, job: _Job) -> None:
        """Delete the pods of the attempt and see them gone."""
        keys = [f"{NAMESPACE}/{name}" for name in job.pod_names()]
        for name in job.pod_names():
            await self._delete(PODS, name)
        while any(self._pod_exists(key) for key in keys):
            self._pod_gone.clear()
            await self._pod_gone.wait()

    async def _finish(self, job: _Job) -> None:
        self.completed += 1
        at = rfc3339(self._clock.now())
        # A Job completes only after its success was decided, and never without the time of its start.
        conditions = [
            {"type": kind, "status": "True", "reason": REACHED, "lastProbeTime": at, "lastTransitionTime": at}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {
            "startTime": job.started,
            "completionTime": at,
            "succeeded": job.nodes,
            "active": 0,
            "conditions": conditions,
        }
        await self._patch(job.name, {"status": status}, "status")
        await self._annotate(job)
        del self._jobs[job.name]
        self._finished.append(job.name)
        while len(self._finished) > MAX_FINISHED:
            await self._delete(JOBS, self._finished.pop(0))

    # Objects

    async def _create(self, job: _Job) -> None:
        obj: Object = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job.name, "namespace": NAMESPACE},
            "spec": {
                "completions": job.nodes,
                "parallelism": job.nodes,
                "completionMode": "Indexed",
                "managedBy": MANAGED_BY,
                "template": {"metadata": {"labels": {JOB_LABEL: job.name}}, "spec": _pod_spec()},
            },
        }
        try:
            created = await persist(self._clock, lambda: self._api.create(JOBS, obj, NAMESPACE, manager=MANAGED_BY))
        except AlreadyExistsError:
            created = await persist(self._clock, lambda: self._api.get(JOBS, job.name, NAMESPACE))
        job.uid = created["metadata"]["uid"]

    async def _create_pod(self, job: _Job, name: str) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid, "controller": True}
        pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {JOB_LABEL: job.name, POD_GROUP_LABEL: f"{job.name}-{job.attempt}"},
                "annotations": {MIN_MEMBERS: str(job.nodes)},
                "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
            },
            "spec": _pod_spec(),
        }
        try:
            await persist(
                self._clock,
                lambda: self._api.create(PODS, pod, NAMESPACE, manager=MANAGED_BY),
                forbidden_s=NEW_NAMESPACE_S,
            )
        except AlreadyExistsError:
            return

    async def _annotate(self, job: _Job) -> None:
        annotations = {
            DONE_ANNOTATION: f"{job.done_s:.0f}",
            LOST_ANNOTATION: f"{job.lost_s:.0f}",
            RESTARTS_ANNOTATION: str(job.attempt - 1 if job.done_s >= job.work_s else job.attempt),
        }
        await self._patch(job.name, {"metadata": {"annotations": annotations}})

    async def _patch(self, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        try:
            await persist(
                self._clock,
                lambda: self._api.patch(
                    JOBS, name, patch, PatchType.MERGE, NAMESPACE, subresource=subresource, manager=MANAGED_BY
                ),
            )
        except NotFoundError:
            return  # a person deleted the Job; its work goes on until its pods are gone

    async def _delete(self, res: ResourceType, name: str) -> None:
        try:
            await persist(self._clock, lambda: self._api.delete(res, name, NAMESPACE))
        except NotFoundError:
            return


def _pod_spec() -> Object:
    resources = {"limits": {GPU_RESOURCE: str(GPUS_PER_NODE)}}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_PERIOD_S,
        "containers": [{"name": "trainer", "image": "registry.example/trainer:1.0", "resources": resources}],
    }
