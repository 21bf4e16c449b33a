"""Workers that exist only as a model, on virtual time: what a coordinator meets, and what is left running."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from muster.certify.catalogue import CatalogueTest, Scope
from muster.certify.isolation.plan import PlannedRun, Role
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
from muster.sim.virtual import VirtualClock
from muster.workloads.report import NodeReport
from muster.workloads.run_spec import RunSpec

LOOK_S = 0.5


@dataclass
class FakeRun:
    """A run in a fake worker: ends at `ends_at` (seconds of the clock) with `answer`."""

    spec: RunSpec
    ends_at: float
    answer: RunAnswer


@dataclass
class FakeWorker:
    """`run_s`: how long runs take. `outcome`: how they end. Times are those of the virtual clock."""

    node: str
    run_s: float = 5.0
    outcome: RunAnswer | None = None
    runs: dict[str, FakeRun] = field(default_factory=dict)
    unreachable_from: float = float("inf")
    unreachable_until: float = float("inf")
    dies_at: float = float("inf")
    """Its process dies and is started again: it forgets its runs."""
    lose_answers: int = 0
    """So many answers to `start` are lost although it takes effect."""
    refuses: str = ""
    starts: int = 0
    """Runs that really began here."""


class FakeLink:
    """`WorkerLink` to fake workers. `delay_s`: what every request takes."""

    def __init__(self, clock: VirtualClock, workers: Mapping[str, FakeWorker], delay_s: float = 0.05) -> None:
        self.clock = clock
        self.workers = workers
        self.delay_s = delay_s
        self.requests = 0
        self.at_request: Callable[[int], None] = lambda _: None
        """Told the number of each request before it goes out."""

    async def _reach(self, worker: WorkerAddress) -> FakeWorker:
        self.requests += 1
        self.at_request(self.requests)
        await self.clock.sleep(self.delay_s)
        found = self.workers[worker.node]
        now = self.clock.elapsed_s
        if found.unreachable_from <= now < found.unreachable_until:
            raise WorkerUnreachableError("no route")
        if now >= found.dies_at:
            found.runs.clear()
            found.dies_at = float("inf")
        return found

    async def state(self, worker: WorkerAddress) -> WorkerState:
        found = await self._reach(worker)
        now = self.clock.elapsed_s
        phases = {name: "ended" if now >= run.ends_at else "running" for name, run in found.runs.items()}
        return WorkerState(found.node, "incarnation", runs=phases)

    async def start(self, worker: WorkerAddress, spec: RunSpec) -> bool:
        found = await self._reach(worker)
        if found.refuses:
            raise WorkerRefusedError(found.refuses)
        known = found.runs.get(spec.run)
        if known is not None:
            if known.spec != spec:
                raise WorkerRefusedError("known with another description")
            return False
        now = self.clock.elapsed_s
        busy = next((name for name, run in found.runs.items() if now < run.ends_at), "")
        if busy:
            raise WorkerRefusedError("busy", busy=busy)
        found.runs[spec.run] = FakeRun(spec, now + found.run_s, found.outcome or reported(found.node))
        found.starts += 1
        if found.lose_answers:
            found.lose_answers -= 1
            raise WorkerUnreachableError("the answer was lost")
        return True

    async def result(self, worker: WorkerAddress, run: str, wait_s: float) -> RunAnswer:
        until = self.clock.elapsed_s + wait_s
        while True:
            found = await self._reach(worker)
            known = found.runs.get(run)
            if known is None:
                return RunAnswer(RunPhase.UNKNOWN)
            if self.clock.elapsed_s >= known.ends_at:
                return known.answer
            if self.clock.elapsed_s >= until:
                return RunAnswer(RunPhase.RUNNING)
            await self.clock.sleep(min(LOOK_S, max(0.01, until - self.clock.elapsed_s)))

    async def stop(self, worker: WorkerAddress, run: str) -> None:
        found = await self._reach(worker)
        known = found.runs.get(run)
        if known is not None and self.clock.elapsed_s < known.ends_at:
            known.ends_at = self.clock.elapsed_s
            known.answer = RunAnswer(RunPhase.ENDED, HowRunEnded.STOPPED)

    def running(self) -> list[tuple[str, str]]:
        """(node, run) of everything that goes on."""
        now = self.clock.elapsed_s
        return [
            (w.node, n) for w in self.workers.values() for n, r in w.runs.items() if now < r.ends_at < float("inf")
        ]


def reported(node: str, *, ok: bool = True, value: float | None = 100.0, **more: object) -> RunAnswer:
    """The end of a run that left a report."""
    fields = {"node": node, "ok": ok, "value": value if ok else None, "unit": "GB/s" if ok else "", **more}
    text = NodeReport(**fields).to_json()  # type: ignore[arg-type]  # fields by name
    json.loads(text)
    return RunAnswer(RunPhase.ENDED, HowRunEnded.REPORTED, text.encode())


def ended(how: HowRunEnded, message: str = "") -> RunAnswer:
    return RunAnswer(RunPhase.ENDED, how, message=message)


PAIR = CatalogueTest(
    name="pair",
    version=1,
    scope=Scope.PAIR,
    duration_s=10,
    deadline_s=60,
    metric="busbw",
    unit="GB/s",
    program="collective",
)


def addresses(nodes: tuple[str, ...]) -> dict[str, WorkerAddress]:
    return {n: WorkerAddress(n, "127.0.0.1", 7470, "t" * 32) for n in nodes}


def work(clock: VirtualClock, *runs: PlannedRun, minutes: float = 60.0) -> Work:
    until = clock.now() + timedelta(minutes=minutes)
    return Work(Owner("c", "uid"), runs, {"pair": PAIR}, {}, until)


def planned(number: int, *nodes: str) -> PlannedRun:
    return PlannedRun(f"r01-{number:03d}", 1, "pair", nodes, Role.SCREEN, 0)
