"""A made-up node for the agent's tests: a log to write to, an inventory to change, and a simulated API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from muster.agent.agent import Agent
from muster.agent.monitor import Monitor
from muster.agent.sources import LogBatch, NodeReadings
from muster.agent.state import MemoryStateStore
from muster.faults.sighting import Limits
from muster.kube.api import (
    CRDS,
    NAMESPACES,
    NODE_HEALTHS,
    NODES,
    ConnectionLostError,
    NotFoundError,
    Object,
    ResourceType,
)
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, from_object
from muster.resources.fault import Fault
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.node_health import Gpu, NodeHealth, Observed
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import DEFAULT_START, VirtualClock

PCI = ("0000:1a:00.0", "0000:3b:00.0")
UUID = ("GPU-aaaaaaaa-0000-4000-8000-000000000001", "GPU-aaaaaaaa-0000-4000-8000-000000000002")
NODE = "n1"


class Log:
    """A kernel log in memory: `boot:number` is the cursor."""

    def __init__(self, boot: str = "boot-1") -> None:
        self.boot = boot
        self.lines: list[bytes] = []
        self.error: Exception | None = None
        self.lost = 0
        self.largest = 4096
        self._written = asyncio.Event()

    def write(self, *texts: str | bytes) -> None:
        for text in texts:
            number = len(self.lines)
            encoded = text.encode() if isinstance(text, str) else text
            self.lines.append(b"3,%d,%d,-;" % (number, 1_000_000 * number) + encoded)
        self._written.set()

    def restart(self, boot: str) -> None:
        self.boot = boot
        self.lines = []

    async def read(self, cursor: str | None) -> LogBatch:
        boot, _, number = (cursor or "").partition(":")
        start = int(number) if boot == self.boot else 0
        while True:
            if self.error is not None:
                raise self.error
            records = tuple(self.lines[start : start + self.largest])
            if records:
                lost, self.lost = self.lost, 0
                return LogBatch(records, f"{self.boot}:{start + len(records)}", lost)
            self._written.clear()
            await self._written.wait()


class Machine:
    """An inventory whose readings the test changes."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.readings = NodeReadings(
            node_uid="uid-1",
            boot_id="boot-1",
            booted_at=DEFAULT_START - timedelta(hours=1),
            readings=(
                *(
                    Reading(name=f"gpu.{index}.uuid", value=uuid, reading_class=ReadingClass.IDENTITY)
                    for index, uuid in enumerate(UUID)
                ),
                Reading(name="driver.version", value="580.65.06", reading_class=ReadingClass.STACK),
            ),
            gpus=tuple(Gpu(index=index, uuid=UUID[index], pci=PCI[index]) for index in range(2)),
        )

    def change(self, **fields: Any) -> None:
        self.readings = replace(self.readings, **fields)

    async def read(self) -> NodeReadings:
        if self.error is not None:
            raise self.error
        return self.readings


class Server(InProcessApi):
    """The simulated API server with the CRDs, an outage switch, and the list of what was written."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Store(clock))
        self.down = False
        self.applied: list[tuple[str, str, Object]] = []

    @classmethod
    async def start(cls, clock: VirtualClock) -> Server:
        server = cls(clock)
        for manifest in crd.manifests():
            await server.create(CRDS, manifest)
        await server.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        await server.create(NODES, {"metadata": {"name": NODE}})
        return server

    async def apply(self, res: ResourceType, obj: Object, **options: Any) -> Object:
        if self.down:
            raise ConnectionLostError("the API server is away")
        self.applied.append((res.kind, obj["metadata"]["name"], obj))
        return await super().apply(res, obj, **options)

    async def patch(self, res: ResourceType, name: str, patch: Any, *args: Any, **options: Any) -> Object:
        if self.down:
            raise ConnectionLostError("the API server is away")
        self.applied.append((res.kind, name, patch))
        return await super().patch(res, name, patch, *args, **options)

    def statuses(self) -> int:
        return sum(kind == "NodeHealth" for kind, _, _ in self.applied)

    async def observed(self) -> Observed | None:
        try:
            found = from_object(NodeHealth, await self.get(NODE_HEALTHS, NODE))
        except NotFoundError:
            return None
        return found.status.observed

    async def faults(self) -> tuple[Fault, ...]:
        observed = await self.observed()
        assert observed is not None
        return observed.faults


class Bench:
    """One node, its agent and its API server."""

    def __init__(self, clock: VirtualClock, server: Server) -> None:
        self.clock = clock
        self.server = server
        self.log = Log()
        self.machine = Machine()
        self.state = MemoryStateStore()
        self.monitors: tuple[Monitor, ...] = ()
        self.limits: Limits | None = None
        self.version = "1.0"
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def make(cls, clock: VirtualClock) -> Bench:
        return cls(clock, await Server.start(clock))

    def agent(self) -> Agent:
        return Agent(
            self.server,
            NODE,
            self.log,
            self.machine,
            self.clock,
            state=self.state,
            version=self.version,
            interval_s=30.0,
            monitors=self.monitors,
            limits=self.limits,
        )

    async def start(self, settle_s: float = 1.0) -> None:
        self._running = asyncio.ensure_future(self.agent().run())
        await self.clock.sleep(settle_s)
        assert not self._running.done(), self._running.exception()

    async def stop(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})

    async def reboot(self, boot: str = "boot-2") -> None:
        await self.stop()
        self.log.restart(boot)
        self.machine.change(boot_id=boot, booted_at=self.clock.now())
        await self.start()


def xid(code: int, pci: str = PCI[0], text: str = "pid=1234, name=python, text") -> str:
    return f"NVRM: Xid (PCI:{pci[:-2]}): {code}, {text}"
