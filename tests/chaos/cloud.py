"""The provider of repairs of a play: slow, sometimes failing, sometimes lying; it remembers what it was asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from muster.operate.providers.provider import (
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    TransientProviderError,
)
from muster.resources.repair import Repair, RepairPhase, Rung
from tests.chaos.apiserver import Process, Weather
from tests.chaos.machines import Plant
from tests.chaos.mix import Kind

NAME = "chaos-cloud"


@dataclass
class Order:
    """A repair that the cloud took on."""

    name: str
    rung: Rung
    node: str
    begun: bool = False
    done: bool = False
    cancelled: bool = False
    failed: str = ""


class Cloud:
    """Outlives the controllers. `began` is told of each new order before anything is done."""

    def __init__(self, plant: Plant, weather: Weather, began: Callable[[Repair, NodeFactsForRepair], None]) -> None:
        self.plant = plant
        self.weather = weather
        self.orders: dict[str, Order] = {}
        self._began = began

    def order(self, repair: Repair, node: NodeFactsForRepair) -> Order:
        name, spec = repair.metadata.name, repair.spec
        known = self.orders.get(name)
        if known is not None:
            return known
        self._began(repair, node)
        made = self.orders[name] = Order(name, spec.rung, spec.node_name)
        drawn = self.weather.drawn
        lies = self.weather.odds(Kind.LYING_PROVIDER, 0.35)
        if self.weather.odds(Kind.FAILING_PROVIDER, 0.25):
            made.failed = "no spare machine"
        self.plant.spawn(self._work(made, drawn, lies))
        return made

    async def _work(self, order: Order, drawn: random.Random, lies: bool) -> None:
        await self.plant.clock.sleep(drawn.uniform(5.0, 120.0))
        if order.cancelled:
            return
        order.begun = True
        machine = self.plant.machines[order.node]
        machine.ordered.append(order.name)
        if order.rung is Rung.TICKET or lies or order.failed:
            order.done = True
            return
        if order.rung in (Rung.RESET_GPU, Rung.RESTART_DRIVER):
            await self.plant.clock.sleep(30.0)
            self.plant.cure(machine, order.rung)
        else:
            await self.plant.reboot(machine, order.rung, drawn.uniform(60.0, 500.0))
            if self.weather.odds(Kind.LYING_PROVIDER, 0.2):
                await self.plant.reboot(machine, Rung.REBOOT, 60.0)
        order.done = True


class CloudProvider:
    """The cloud as one life of the controller reaches it."""

    def __init__(self, cloud: Cloud, process: Process) -> None:
        self._cloud = cloud
        self._process = process

    @property
    def name(self) -> str:
        return NAME

    @property
    def rungs(self) -> frozenset[Rung]:
        return frozenset(Rung)

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        await self._line()
        order = self._cloud.order(repair, node)
        await self._line()
        return _progress(order)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        await self._line()
        order = self._cloud.orders.get(repair.metadata.name)
        return _progress(order) if order is not None else Progress(phase=RepairPhase.PENDING)

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        await self._line()
        order = self._cloud.orders.get(repair.metadata.name)
        if order is None or order.cancelled:
            return Progress(phase=RepairPhase.CANCELLED)
        if order.begun:
            return _progress(order)
        order.cancelled = True
        return Progress(phase=RepairPhase.CANCELLED)

    async def close(self) -> None:
        return

    async def _line(self) -> None:
        """The way to the cloud: slow, cut, or silent."""
        await asyncio.sleep(0)
        await self._process.passage()
        weather = self._cloud.weather
        if weather.hit(Kind.FAILING_PROVIDER):
            raise TransientProviderError("the cloud throttles", weather.drawn.choice([None, 5.0]))
        if weather.hit(Kind.FAILING_PROVIDER, 0.3):
            await self._cloud.plant.clock.sleep(100_000.0)


def _progress(order: Order) -> Progress:
    if order.cancelled:
        return Progress(phase=RepairPhase.CANCELLED)
    if order.done and order.failed:
        raise PermanentProviderError(order.failed)
    phase = RepairPhase.DONE if order.done else RepairPhase.RUNNING
    return Progress(phase=phase, external_id=f"op-{order.name}"[:60], message="under way")
