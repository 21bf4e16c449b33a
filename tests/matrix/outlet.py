"""The provider of repairs of the matrix: it works on the hardware, and does wrong what the case says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from muster.clock import Clock
from muster.operate.providers.provider import NodeFactsForRepair, Progress, TransientProviderError
from muster.resources.repair import Repair, RepairPhase, Rung
from tests.matrix.machine import Hardware

WORK_S = 60.0
EFFECTIVE = ("works", "failedafter", "deleted", "geterror", "transient")
"""Ways of a first repair in which the machine boots and is well afterwards."""


class Outlet:
    """Boots the machine once for each name of a Repair. `way`: what becomes of the first one (see the axes)."""

    name = "outlet"
    rungs = frozenset(Rung)

    def __init__(
        self,
        clock: Clock,
        hardware: Hardware,
        way: str,
        begins: Callable[[Repair], None],
        booted: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._hardware = hardware
        self._way = way
        self._begins = begins
        self._booted = booted
        self._refusals = 3 if way == "transient" else 0
        self._tasks: list[asyncio.Task[None]] = []
        self.begun: dict[str, datetime] = {}
        self.cancelled: set[str] = set()
        self.order: list[str] = []
        self.attempts: Counter[tuple[str, str, int]] = Counter()
        """How often the machine was worked on for (episode, rung, attempt)."""

    def way_of(self, name: str) -> str:
        return self._way if self.order and self.order[0] == name else "works"

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        name = repair.metadata.name
        if repair.spec.rung is Rung.TICKET:
            return Progress(phase=RepairPhase.DONE, external_id=f"INC-{name}")
        if self._refusals:
            self._refusals -= 1
            raise TransientProviderError("the service answered 503")
        if name not in self.begun:
            self._begins(repair)
            self.begun[name] = self._clock.now()
            self.order.append(name)
            self._tasks.append(asyncio.get_running_loop().create_task(self._work(repair)))
        return Progress(phase=RepairPhase.RUNNING, external_id=f"op/{name}")

    async def _work(self, repair: Repair) -> None:
        await self._clock.sleep(WORK_S)
        way = self.way_of(repair.metadata.name)
        if way not in EFFECTIVE or repair.metadata.name in self.cancelled:
            return
        self.attempts[(repair.spec.episode, repair.spec.rung.value, repair.spec.attempt)] += 1
        self._hardware.reboot(self._clock.now(), cures=True)
        self._booted()

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        name = repair.metadata.name
        if name in self.cancelled:
            return Progress(phase=RepairPhase.CANCELLED)
        if (self._clock.now() - self.begun[name]).total_seconds() <= WORK_S:
            return Progress(phase=RepairPhase.RUNNING, message="Working.")
        match self.way_of(name):
            case "failed" | "failedafter":
                return Progress(phase=RepairPhase.FAILED, message="It broke halfway.")
            case "timeout":
                return Progress(phase=RepairPhase.RUNNING, message="Working.")
            case _:
                return Progress(phase=RepairPhase.DONE, message="Rebooted.")

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        self.cancelled.add(repair.metadata.name)
        return Progress(phase=RepairPhase.CANCELLED)

    async def close(self) -> None:
        return

    def stop(self) -> None:
        """The test is over."""
        for task in self._tasks:
            task.cancel()
