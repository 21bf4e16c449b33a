"""A small cluster for tests of the certification shells: the simulated API server and kubelets that do as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from muster.certify.controller import CertificationController
from muster.kube.api import (
    CERTIFICATIONS,
    CRDS,
    NAMESPACES,
    NODE_HEALTHS,
    NODES,
    PODS,
    ConflictError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
)
from muster.kube.cache import WatchCache
from muster.resources import crd
from muster.resources.base import (
    API_VERSION,
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_RESOURCE,
    RUN_SPEC_ANNOTATION,
    SYSTEM_NAMESPACE,
    from_object,
    to_object,
)
from muster.resources.certification import Certification, Phase
from muster.resources.fingerprint import Fingerprint, Reading, ReadingClass, fingerprint
from muster.resources.node_health import Observed
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock

START_S = 2.0
STOP_S = 1.0
RUN_S = 20.0
ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)
VALUES = {
    "gpu-burn": 650.0,
    "nvlink-loopback": 470.0,
    "pair": 480.0,
    "pair-net": 480.0,
    "all-to-all": 79.0,
    "all-reduce": 480.0,
}
UNITS = {"gpu-burn": "TFLOP/s", "host": ""}


@dataclass
class End:
    """How the container of a rank ends: `phase` None means never."""

    after_s: float = RUN_S
    phase: str | None = "Succeeded"
    message: str = ""
    reason: str = ""
    exit_code: int = 0


Behaviour = Callable[[dict[str, Any], str], End]
"""(run spec, node) -> how the rank ends."""


def report(node: str, ok: bool, **fields: Any) -> End:
    text = json.dumps({"node": node, "ok": ok, **fields})
    return End(phase="Succeeded" if ok else "Failed", message=text, exit_code=0 if ok else 1)


@dataclass
class Faults:
    """What is wrong with the fleet, for the usual behaviour of ranks."""

    bad: tuple[str, ...] = ()
    slow: dict[str, float] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()

    def __call__(self, spec: dict[str, Any], node: str) -> End:
        nodes, test = spec["nodes"], spec["test"]
        broken = [n for n in nodes if n in self.bad]
        if broken and test != "host":
            return report(node, False, reason="crash", message="lost a peer")
        rate = min((self.slow.get(n, 1.0) for n in nodes), default=1.0)
        for a, b in self.links:
            if a in nodes and b in nodes and (test == "all-to-all" or len(nodes) == 2):
                rate = min(rate, 0.4)
        value = VALUES.get(test)
        if value is None:
            return report(node, True)
        # Numbers differ a little from run to run, without a random source.
        wobble = (sum(map(ord, spec["run"] + node)) % 11 - 5) / 1000.0
        return report(node, True, value=value * rate * (1.0 + wobble), unit=UNITS.get(test, "GB/s"))


class Bed:
    """The cluster. `behaviour` may be exchanged at any time; `unready` nodes have silent kubelets."""

    def __init__(self, clock: VirtualClock, names: Sequence[str], behaviour: Behaviour) -> None:
        self.clock = clock
        self.store = Store(clock, seed=1)
        self.api: KubeApi = InProcessApi(self.store, user="test")
        self.names = tuple(names)
        self.behaviour = behaviour
        self.silent: set[str] = set()
        self.created: list[str] = []
        """Every pod that a kubelet saw, in order."""
        self.together: list[tuple[str, ...]] = []
        self._pods: WatchCache[Object] = WatchCache(
            self.api, PODS, json.loads, clock=clock, namespace=SYSTEM_NAMESPACE, on_change=self._pod
        )
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self.problems: list[str] = []

    async def install(self) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        await self.api.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        )
        for index, name in enumerate(self.names):
            await self.add_node(name, f"d{index // 4}")

    async def add_node(self, name: str, domain: str = "d0", gpus: int = 8, product: str = "NVIDIA-H100-80GB") -> None:
        labels = {
            GPU_PRODUCT_LABEL: product,
            GPU_COUNT_LABEL: str(gpus),
            "topology.muster.dev/domain": domain,
        }
        await self.api.create(
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"aws:///zone/{name}"},
            },
        )
        resources = {GPU_RESOURCE: str(gpus)}
        await self.set_node(name, True, boot="boot-1", resources=resources)

    async def set_node(
        self, name: str, ready: bool, *, boot: str = "", resources: dict[str, str] | None = None
    ) -> None:
        status: Object = {
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown", "reason": "Test"}]
        }
        if boot:
            status["nodeInfo"] = {"bootID": boot}
        if resources is not None:
            status |= {"capacity": resources, "allocatable": resources}
        await self.api.patch(NODES, name, {"status": status}, PatchType.STRATEGIC, subresource="status")

    async def publish(self, name: str, driver: str = "580.65", uid: str = "") -> None:
        """What the agent of the node reports."""
        node = await self.api.get(NODES, name)
        observed = Observed(
            observed_at=self.clock.now(),
            node_uid=uid or node["metadata"]["uid"],
            boot_id=node["status"]["nodeInfo"]["bootID"],
            fingerprint=fingerprint_of(name, driver),
        )
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        await self.api.apply(NODE_HEALTHS, body, manager="agent")
        await self.api.apply(
            NODE_HEALTHS, {**body, "status": {"observed": to_object(observed)}}, manager="agent", subresource="status"
        )

    async def certify(self, name: str, nodes: Sequence[str], profile: str = "repair", **spec: Any) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "Certification",
            "metadata": {"name": name},
            "spec": {"nodes": list(nodes), "profile": profile, **spec},
        }
        await self.api.create(CERTIFICATIONS, body)

    async def certification(self, name: str) -> Certification:
        return from_object(Certification, await self.api.get(CERTIFICATIONS, name))

    async def ended(self, name: str, limit_s: float = 6 * 3600.0) -> Certification:
        async def over() -> Certification | None:
            found = await self.certification(name)
            return found if found.status.phase in ENDED else None

        result: Certification = await self.until(over, limit_s)
        return result

    async def until(self, what: Callable[[], Awaitable[Any]], limit_s: float = 3600.0, step_s: float = 1.0) -> Any:
        deadline = self.clock.elapsed_s + limit_s
        while True:
            answer = await what()
            if answer:
                return answer
            assert self.clock.elapsed_s < deadline, "it did not happen in time"
            await self.clock.sleep(step_s)

    async def pods(self) -> list[Object]:
        page = await self.api.list_page(PODS, SYSTEM_NAMESPACE)
        return [json.loads(raw) for raw in page.items]

    # Kubelets

    async def kubelets(self) -> None:
        try:
            await self._pods.run()
        finally:
            for task in (*self._lives.values(), *self._stopping.values()):
                task.cancel()

    def _pod(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        if uid not in self._lives:
            self.created.append(pod["metadata"]["name"])
            self._check_alone(pod)
            self._lives[uid] = asyncio.ensure_future(self._live(pod))
        if pod["metadata"].get("deletionTimestamp") and uid not in self._stopping:
            self._stopping[uid] = asyncio.ensure_future(self._stop(pod))

    def _check_alone(self, new: Object) -> None:
        """Two test pods on one node at a time is what a certification must never do."""
        node = new["spec"]["nodeName"]
        others = [
            p["metadata"]["name"]
            for p in self._pods.items().values()
            if p["spec"].get("nodeName") == node and p["metadata"]["uid"] != new["metadata"]["uid"]
        ]
        if others:
            self.problems.append(f"{new['metadata']['name']} met {', '.join(sorted(others))} on {node}")

    async def _live(self, pod: Object) -> None:
        node = pod["spec"]["nodeName"]
        spec = json.loads(pod["metadata"]["annotations"][RUN_SPEC_ANNOTATION])
        await self.clock.sleep(START_S)
        end = self.behaviour(spec, node)
        if end.reason == "stuck" or node in self.silent:
            return
        if end.reason.startswith("OutOf"):
            await self._write(pod, {"phase": "Failed", "reason": end.reason, "message": end.message})
            return
        await self._write(pod, {"phase": "Running", "containerStatuses": [_container({"running": {}})]})
        if end.phase is None:
            return
        await self.clock.sleep(end.after_s)
        if node in self.silent:
            return
        terminated = {"exitCode": end.exit_code, "message": end.message}
        status: Object = {"phase": end.phase, "containerStatuses": [_container({"terminated": terminated})]}
        if end.reason:
            status["reason"] = end.reason
        await self._write(pod, status)

    async def _stop(self, pod: Object) -> None:
        if pod["spec"]["nodeName"] in self.silent:
            return
        await self.clock.sleep(STOP_S)
        self._lives[pod["metadata"]["uid"]].cancel()
        try:
            await self.api.delete(
                PODS, pod["metadata"]["name"], SYSTEM_NAMESPACE, grace_period_s=0, uid=pod["metadata"]["uid"]
            )
        except (NotFoundError, ConflictError):
            return

    async def _write(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self.api.patch(
                PODS, pod["metadata"]["name"], patch, PatchType.STRATEGIC, SYSTEM_NAMESPACE, subresource="status"
            )
        except (NotFoundError, ConflictError):
            return


def _container(state: Object) -> Object:
    return {"name": "test", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def fingerprint_of(name: str, driver: str) -> Fingerprint:
    return fingerprint(
        [
            Reading(name="gpu.0.uuid", value=f"GPU-{name}", reading_class=ReadingClass.IDENTITY),
            Reading(name="driver.version", value=driver, reading_class=ReadingClass.STACK),
        ]
    )


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Run `works` beside the body; the first that fails fails the test."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def bed(clock: VirtualClock, names: Sequence[str], behaviour: Behaviour) -> AsyncIterator[Bed]:
    """A cluster with kubelets and one controller. Fails when test pods ever met on a node."""
    b = Bed(clock, names, behaviour)
    await b.install()
    for name in names:
        await b.publish(name)
    async with running(b.kubelets(), CertificationController(InProcessApi(b.store, user="muster"), clock).run()):
        yield b
    assert b.problems == []


def names(count: int) -> list[str]:
    return [f"n{i:02}" for i in range(count)]
