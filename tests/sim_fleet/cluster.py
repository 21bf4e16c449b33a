"""A simulated cluster on virtual time, and what tests do to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from muster.kube.api import CRDS, NODES, PODS, REPAIRS, Object
from muster.resources.base import (
    CERTIFICATION_LABEL,
    GPU_RESOURCE,
    RUN_LABEL,
    RUN_SPEC_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from muster.resources.crd import manifests
from muster.sim.api_faults import FaultHook
from muster.sim.fleet import Fleet, Rates
from muster.sim.inprocess import InProcessApi
from muster.sim.plant import Plant, build_world
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

FLEET_USER = "fleet"


class Cluster:
    """Store, API and running fleet."""

    def __init__(self, clock: VirtualClock, plant: Plant, register_held: bool) -> None:
        self.clock = clock
        self.store = Store(clock, plant.seed)
        self.api = InProcessApi(self.store)
        self.fleet = Fleet(
            InProcessApi(self.store, FLEET_USER),
            clock,
            build_world(plant, clock.now()),
            plant,
            rates=Rates(),
            register_held=register_held,
        )

    async def install(self) -> None:
        for manifest in manifests():
            await self.api.create(CRDS, manifest)

    async def objects(self, res: Any, namespace: str = "") -> list[Object]:
        page = await self.api.list_page(res, namespace)
        return [json.loads(raw) for raw in page.items]

    async def until(self, what: Callable[[], Awaitable[Any]], limit_s: float = 3600.0, step_s: float = 1.0) -> Any:
        """Ask again every `step_s` until the answer is true; fail after `limit_s`."""
        deadline = self.clock.elapsed_s + limit_s
        while True:
            answer = await what()
            if answer:
                return answer
            assert self.clock.elapsed_s < deadline, "it did not happen in time"
            await self.clock.sleep(step_s)

    async def pod_phase(self, name: str, namespace: str) -> str:
        for pod in await self.objects(PODS, namespace):
            if pod["metadata"]["name"] == name:
                return str(pod["status"]["phase"])
        return "gone"

    async def repair(self, name: str, node: str, rung: str, **spec: Any) -> Object:
        """Create a Repair for the simulated cloud and return it once it is over."""
        uid = (await self.api.get(NODES, node))["metadata"]["uid"]
        spec = {
            "nodeName": node,
            "nodeUid": uid,
            "episode": "e1",
            "rung": rung,
            "provider": "simulated-cloud",
            **spec,
        }
        obj = {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair", "metadata": {"name": name}, "spec": spec}
        await self.api.create(REPAIRS, obj)
        return await self.repaired(name)

    async def repaired(self, name: str) -> Object:
        async def over() -> Object | None:
            found = await self.api.get(REPAIRS, name)
            return found if found.get("status", {}).get("phase") in ("Done", "Failed") else None

        result: Object = await self.until(over, 4 * 3600.0, 5.0)
        return result

    async def test_pods(self, certification: str, run: str, test: str, *nodes: str, deadline_s: int = 600) -> None:
        """Create the pods of one run, as the certification controller does."""
        for rank, node in enumerate(nodes):
            spec = {"run": run, "test": test, "nodes": nodes, "rank": rank}
            container = {"name": "test", "image": "i", "resources": {"limits": {GPU_RESOURCE: "8"}}}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{certification}-{run}-{rank}",
                    "namespace": SYSTEM_NAMESPACE,
                    "labels": {CERTIFICATION_LABEL: certification, RUN_LABEL: run},
                    "annotations": {RUN_SPEC_ANNOTATION: json.dumps(spec)},
                },
                "spec": {
                    "nodeName": node,
                    "restartPolicy": "Never",
                    "activeDeadlineSeconds": deadline_s,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                },
            }
            await self.api.create(PODS, pod, SYSTEM_NAMESPACE)

    async def reports(self, certification: str, run: str, ranks: int, limit_s: float = 1800.0) -> list[Object | str]:
        """What the pods of a run ended with, in rank order: the report, or the pod's reason when there is none."""

        async def ended() -> list[Object | str] | None:
            found: dict[str, Object] = {p["metadata"]["name"]: p for p in await self.objects(PODS, SYSTEM_NAMESPACE)}
            pods = [found[f"{certification}-{run}-{rank}"] for rank in range(ranks)]
            if any(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in pods):
                return None
            return [_report(pod) for pod in pods]

        result: list[Object | str] = await self.until(ended, limit_s)
        return result


def _report(pod: Object) -> Object | str:
    statuses = pod["status"].get("containerStatuses") or [{}]
    message = statuses[0].get("state", {}).get("terminated", {}).get("message", "")
    return msgspec.json.decode(message) if message else str(pod["status"].get("reason", ""))


def play(
    plant: Plant,
    scenario: Callable[[Cluster], Coroutine[Any, Any, Any]],
    faults: FaultHook | None = None,
    *,
    register_held: bool = False,
) -> Any:
    """Run `scenario` beside the fleet of `plant`, from the moment when its nodes are registered."""

    async def main(clock: VirtualClock) -> Any:
        cluster = Cluster(clock, plant, register_held)
        await cluster.install()
        cluster.store.faults = faults
        fleet = asyncio.ensure_future(cluster.fleet.run())
        ready = asyncio.ensure_future(cluster.fleet.registered.wait())
        await asyncio.wait((fleet, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        task = asyncio.ensure_future(scenario(cluster))
        await asyncio.wait((fleet, task), return_when=asyncio.FIRST_COMPLETED)
        if fleet.done():
            fleet.result()
        result = await task
        fleet.cancel()
        await asyncio.gather(fleet, return_exceptions=True)
        return result

    return run_virtual(main)
