"""The kubelets of the whole fleet in one object: they start, stop and end the containers of pods on their nodes.

What a container does is none of the kubelet's business: a `Workload` is told when a pod's containers run and ends
them through `Kubelets.exit`. A pod that no workload knows runs until it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from muster.clock import Clock
from muster.kube.api import PODS, ConflictError, KubeApi, NotFoundError, Object, PatchType
from muster.sim.draws import rng
from muster.sim.nodes import MANAGER, address_of, rfc3339
from muster.sim.pods import Pod
from muster.sim.retry import persist
from muster.sim.tasks import TaskSet, first_of
from muster.sim.world import World

START_S = (2.0, 6.0)
"""Time from binding to running containers: image present, sandbox and device allocation."""
STOP_S = 5.0
"""How long containers take to leave after SIGTERM; a shorter grace period cuts it."""
KILLED = 137
"""128 + SIGKILL."""
MESSAGE_LIMIT_BYTES = 4096
"""A kubelet keeps the end of a longer termination message (source: its limit in the Kubernetes documentation)."""


class Ended(Enum):
    """Why the containers of a pod stopped."""

    EXITED = "exited"
    DELETED = "deleted"
    DEADLINE = "deadline"
    NODE_DOWN = "node-down"


@dataclass(frozen=True)
class End:
    """`message` is the termination message of the container; `reason` the pod's reason when the kubelet ended it."""

    why: Ended
    exit_code: int = 0
    message: str = ""
    reason: str = ""


class Workload(Protocol):
    """What runs inside pods."""

    def owns(self, pod: Pod) -> bool:
        """Whether this workload is what runs in the pod."""
        ...

    def started(self, pod: Pod) -> None:
        """The containers run."""
        ...

    def stopped(self, pod: Pod, end: End) -> None:
        """The containers have stopped or will never start."""
        ...

    def ignores_sigterm(self, pod: Pod) -> bool:
        """Whether the containers stay until the grace period is over."""
        ...


@dataclass
class _Running:
    """One pod in the kubelet's hands. `end` is decided once, by whoever is first."""

    pod: Pod
    end: asyncio.Future[End]
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    holds_gpus: bool = False


class Kubelets:
    """Kubelets of all nodes of `world`. `get_pod` reads the fleet's pod cache; `changed` is its callback."""

    def __init__(
        self, api: KubeApi, clock: Clock, world: World, get_pod: Callable[[str], Pod | None], tasks: TaskSet
    ) -> None:
        self._api = api
        self._clock = clock
        self._world = world
        self._get_pod = get_pod
        self._tasks = tasks
        self._pods: dict[str, _Running] = {}
        self._uid_of: dict[str, str] = {}
        self._power: dict[str, asyncio.Event] = {name: asyncio.Event() for name in world.nodes}
        self.workloads: Sequence[Workload] = ()
        for event in self._power.values():
            event.set()
        world.on_power.append(self._on_power)

    def changed(self, key: str) -> None:
        """The pod `key` appeared, changed or went away."""
        pod = self._get_pod(key)
        known = self._uid_of.get(key)
        if known is not None and (pod is None or pod.uid != known):
            self._delete(self._pods[known])
        if pod is None or pod.node not in self._world.nodes:
            return
        running = self._pods.get(pod.uid)
        if running is None:
            running = _Running(pod, asyncio.get_running_loop().create_future())
            self._pods[pod.uid] = running
            self._uid_of[key] = pod.uid
            self._tasks.start(self._live(running))
        running.pod = pod
        if pod.deleting:
            self._delete(running)

    def exit(self, pod: Pod, exit_code: int, message: str = "") -> None:
        """The program in the pod ends by itself."""
        running = self._pods.get(pod.uid)
        if running is not None:
            self._decide(running, End(Ended.EXITED, exit_code, message))

    def gpu_pods(self, node: str) -> tuple[Pod, ...]:
        """Pods on the node whose containers hold GPUs now, sorted by name."""
        found = [r.pod for r in self._pods.values() if r.holds_gpus and r.pod.node == node]
        return tuple(sorted(found, key=lambda pod: pod.key))

    async def collect(self, node: str) -> None:
        """What the pod garbage collector does once a Node is gone: its pods go too."""
        pods = [r.pod for r in self._pods.values() if r.pod.node == node]
        for pod in sorted(pods, key=lambda pod: pod.key):
            await self._write(partial(self._remove, pod))

    def _delete(self, running: _Running) -> None:
        running.deleted.set()
        self._decide(running, End(Ended.DELETED, KILLED))

    @staticmethod
    def _decide(running: _Running, end: End) -> None:
        if not running.end.done():
            running.end.set_result(end)

    def _on_power(self, name: str) -> None:
        if self._world.nodes[name].up:
            self._power[name].set()
            return
        self._power[name].clear()
        for running in list(self._pods.values()):
            if running.pod.node == name:
                self._decide(running, End(Ended.NODE_DOWN, KILLED, reason="NodeShutdown"))

    # One pod, from binding to disappearance

    async def _live(self, running: _Running) -> None:
        pod = running.pod
        try:
            if not pod.ended:
                await self._run_containers(running)
            await running.deleted.wait()
            await self._power[pod.node].wait()
            await self._write(lambda: self._remove(pod))
        finally:
            self._pods.pop(pod.uid, None)
            if self._uid_of.get(pod.key) == pod.uid:
                del self._uid_of[pod.key]

    async def _run_containers(self, running: _Running) -> None:
        pod = running.pod
        await self._power[pod.node].wait()
        refusal = self._admit(running)
        if refusal:
            await self._write(lambda: self._patch(pod, _rejected(refusal)))
            self._tell(pod, End(Ended.EXITED, KILLED, reason="UnexpectedAdmissionError"))
            return
        end = await self._until_end(running)
        if end.why is Ended.DELETED:
            grace_s = float(running.pod.grace_s)
            stuck = any(w.ignores_sigterm(pod) for w in self.workloads if w.owns(pod))
            await self._clock.sleep(grace_s if stuck else min(STOP_S, grace_s))
        running.holds_gpus = False
        self._tell(pod, end)
        await self._power[pod.node].wait()
        if end.why is not Ended.DELETED:
            await self._write(lambda: self._patch(pod, self._finished(pod, end)))

    async def _until_end(self, running: _Running) -> End:
        """Start the containers and let them run until something ends the pod."""
        pod = running.pod
        delay = rng(self._world.seed, "start", pod.key, pod.node).uniform(*START_S)
        early = await first_of(self._clock, running.end, 0.0 if pod.phase == "Running" else delay)
        if early is not None:
            return early
        if pod.phase != "Running":
            await self._write(lambda: self._patch(pod, self._started(pod)))
        if running.end.done():
            return running.end.result()
        for workload in self.workloads:
            if workload.owns(pod):
                workload.started(pod)
        if pod.deadline_s is None:
            return await running.end
        return await first_of(self._clock, running.end, float(pod.deadline_s)) or End(
            Ended.DEADLINE, KILLED, reason="DeadlineExceeded"
        )

    def _admit(self, running: _Running) -> str:
        """Why the kubelet refuses the pod (its GPUs are taken), or nothing."""
        pod = running.pod
        taken = sum(r.pod.gpus for r in self._pods.values() if r.holds_gpus and r.pod.node == pod.node)
        free = len(self._world.nodes[pod.node].gpus) - taken
        if pod.gpus > free:
            return (
                "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
                f"Requested: {pod.gpus}, Available: {free}, which is unexpected"
            )
        running.holds_gpus = pod.gpus > 0
        return ""

    def _tell(self, pod: Pod, end: End) -> None:
        for workload in self.workloads:
            if workload.owns(pod):
                workload.stopped(pod, end)

    # Writing

    async def _write(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write until it is done; a pod that is gone, or was replaced under its name, needs no writing."""
        try:
            await persist(self._clock, write)
        except (NotFoundError, ConflictError):
            return

    async def _patch(self, pod: Pod, status: Object) -> None:
        await self._api.patch(
            PODS,
            pod.name,
            {"metadata": {"uid": pod.uid}, "status": status},
            PatchType.STRATEGIC,
            pod.namespace,
            subresource="status",
            manager=MANAGER,
        )

    async def _remove(self, pod: Pod) -> None:
        await self._api.delete(PODS, pod.name, pod.namespace, grace_period_s=0, uid=pod.uid)

    def _started(self, pod: Pod) -> Object:
        at = rfc3339(self._clock.now())
        ready = [
            {"type": kind, "status": "True", "lastTransitionTime": at}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        states = [
            {
                "name": name,
                "image": image,
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
            for name, image in pod.containers
        ]
        host = address_of(self._world.nodes[pod.node])
        return {"phase": "Running", "startTime": at, "hostIP": host, "conditions": ready, "containerStatuses": states}

    def _finished(self, pod: Pod, end: End) -> Object:
        at = rfc3339(self._clock.now())
        reason = "Completed" if end.exit_code == 0 else "Error"
        ended = {"exitCode": end.exit_code, "reason": reason, "finishedAt": at, "message": shortened(end.message)}
        states = [
            {
                "name": name,
                "image": image,
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": ended},
            }
            for name, image in pod.containers
        ]
        conditions = [
            {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": at}
            for kind in ("ContainersReady", "Ready")
        ]
        status: Object = {
            "phase": "Succeeded" if end.exit_code == 0 else "Failed",
            "conditions": conditions,
            "containerStatuses": states,
        }
        if end.reason:
            status["reason"] = end.reason
            status["message"] = _POD_MESSAGES[end.why]
        return status


def shortened(message: str) -> str:
    """A termination message as the kubelet reports it."""
    return message.encode()[-MESSAGE_LIMIT_BYTES:].decode(errors="ignore")


_POD_MESSAGES = {
    Ended.DEADLINE: "Pod was active on the node longer than the specified deadline",
    Ended.NODE_DOWN: "The node went down while the pod was running.",
}


def _rejected(message: str) -> Object:
    return {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": f"Pod was rejected: {message}"}
