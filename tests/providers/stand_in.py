"""A provider of a service that lives in memory, with an idempotency key: the simplest that meets the contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from muster.clock import Clock
from muster.operate.providers.provider import (
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    TransientProviderError,
)
from muster.resources.repair import Repair, RepairPhase, Rung
from tests.providers.contract import Bench

WORK_S = 60.0


@dataclass
class Service:
    clock: Clock
    begun: dict[str, datetime] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    ok: bool | None = True

    def request(self) -> str:
        how = self.breaks.pop(0) if self.breaks else ""
        if how == "transient":
            raise TransientProviderError("the service answered 503")
        if how == "permanent":
            raise PermanentProviderError("The service refuses this kind of machine.")
        return how

    def begin(self, key: str) -> None:
        how = self.request()
        if key not in self.begun:
            self.begun[key] = self.clock.now()
            self.order.append(key)
        if how == "lost":
            raise TransientProviderError("connection reset")


class StandIn:
    rungs = frozenset(Rung)

    def __init__(self, service: Service, name: str = "p") -> None:
        self.name = name
        self._service = service

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        self._service.begin(repair.metadata.name)
        return Progress(phase=RepairPhase.RUNNING, external_id=f"op/{repair.metadata.name}")

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        service = self._service
        service.request()
        if repair.metadata.name in service.cancelled:
            return Progress(phase=RepairPhase.CANCELLED, message="Stopped.")
        age = (service.clock.now() - service.begun[repair.metadata.name]).total_seconds()
        if service.ok is None or age < WORK_S:
            return Progress(phase=RepairPhase.RUNNING, message="Working.")
        phase = RepairPhase.DONE if service.ok else RepairPhase.FAILED
        return Progress(phase=phase, message="Rebooted." if service.ok else "It broke halfway.")

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        self._service.cancelled.append(repair.metadata.name)
        return Progress(phase=RepairPhase.CANCELLED, message="Stopped.")

    async def close(self) -> None:
        return


class StandInBench(Bench):
    stops = True

    async def start(self) -> None:
        self.service = Service(self.bed.clock)
        self.service.order = self.works
        self._ok: bool | None = True

    def provider(self) -> StandIn:
        self.service.ok = self.ok
        return _Live(self, self.service)

    def break_next(self, times: int, how: str) -> None:
        self.service.breaks = [how] * min(times, 100_000)


class _Live(StandIn):
    def __init__(self, bench: StandInBench, service: Service) -> None:
        super().__init__(service)
        self._bench = bench

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        self._service.ok = self._bench.ok
        return await super().look(repair, node)
