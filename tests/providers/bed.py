"""The test bed: an API server with one node, the repair controller on it, and what it told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from muster.clock import Clock
from muster.kube.api import CRDS, EVENTS, NAMESPACES, NODES, REPAIRS, KubeApi, NotFoundError, Object, PatchType
from muster.operate.outputs.action import Action
from muster.operate.providers.provider import FINAL, Provider
from muster.operate.repair_controller import RepairController
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, from_object, to_object
from muster.resources.repair import Repair, RepairSpec, Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store

NODE = "gpu-001"
GPUS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-11111111-2222-3333-4444-666666666666")


class StalledApi:
    """A client whose writes of a status stop for ever at the n-th: the process that uses it is as good as dead."""

    def __init__(self, api: KubeApi, writes: int) -> None:
        self._api = api
        self._left = writes
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def patch(self, res: Any, *args: Any, **kwargs: Any) -> Object:
        if res is REPAIRS:
            if self._left == 0:
                self.dead.set()
                await asyncio.get_running_loop().create_future()
            self._left -= 1
        return await self._api.patch(res, *args, **kwargs)


@dataclass
class Bed:
    clock: Clock
    store: Store
    uid: str = ""
    lines: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    @property
    def api(self) -> InProcessApi:
        return InProcessApi(self.store, user="test")

    async def install(self, node: Mapping[str, Any] | None = None) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        for name in (SYSTEM_NAMESPACE, "gpu-operator"):
            await self.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self.add_node(node or {})

    async def add_node(self, more: Mapping[str, Any]) -> None:
        labels = {"nvidia.com/gpu.present": "true", **more.get("labels", {})}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "labels": labels, "annotations": more.get("annotations", {})},
            "spec": {"providerID": more["providerID"]} if "providerID" in more else {},
        }
        made = await self.api.create(NODES, body)
        self.uid = made["metadata"]["uid"]
        await self.boot("boot-1")

    async def boot(self, boot_id: str) -> None:
        status = {
            "nodeInfo": {"bootID": boot_id},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        }
        await self.api.patch(NODES, NODE, {"status": status}, PatchType.STRATEGIC, subresource="status")

    async def ask(self, name: str, provider: str, rung: Rung, **spec: Any) -> Repair:
        wanted = RepairSpec(
            **{
                "node_name": NODE,
                "node_uid": self.uid,
                "episode": "e1",
                "rung": rung,
                "provider": provider,
                "boot_id_before": "boot-1",
                **spec,
            }
        )
        body = {"apiVersion": REPAIRS.api_version, "kind": REPAIRS.kind, "metadata": {"name": name}}
        made = await self.api.create(REPAIRS, {**body, "spec": to_object(wanted)})
        return from_object(Repair, made)

    async def repair(self, name: str) -> Repair:
        return from_object(Repair, await self.api.get(REPAIRS, name))

    async def cancel(self, name: str) -> None:
        await self.api.patch(REPAIRS, name, {"spec": {"cancel": True}}, PatchType.MERGE)

    async def ended(self, name: str, limit_s: float = 4 * 3600.0) -> Repair:
        async def over() -> bool:
            return (await self.repair(name)).status.phase in FINAL

        await self.until(over, limit_s, name)
        return await self.repair(name)

    async def until(
        self, there: Callable[[], Awaitable[bool]], limit_s: float = 3600.0, what: str = "it", step_s: float = 1.0
    ) -> None:
        waited = 0.0
        while not await there():
            if waited > limit_s:
                raise AssertionError(f"{what} not reached; told:\n" + "\n".join(self.lines[-20:]))
            await self.clock.sleep(step_s)
            waited += step_s

    async def node(self) -> Object:
        return await self.api.get(NODES, NODE)

    async def events(self) -> list[Object]:
        page = await self.api.list_page(EVENTS, "default")
        return [json.loads(raw) for raw in page.items]

    async def gone(self, res: Any, name: str, namespace: str = "") -> bool:
        try:
            await self.api.get(res, name, namespace)
        except NotFoundError:
            return True
        return False

    def controller(self, providers: Sequence[Provider], api: Any = None, **options: Any) -> RepairController:
        return RepairController(
            api or self.api,
            self.clock,
            providers,
            tell=self.lines.append,
            on_action=self.actions.append,
            **options,
        )


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Run `works` beside the test; an error of one of them fails it."""
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


async def bed(clock: Clock, node: Mapping[str, Any] | None = None) -> Bed:
    made = Bed(clock, Store(clock, seed=1))
    await made.install(node)
    return made
