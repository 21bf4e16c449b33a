"""Who judges the machines of a play: a stand-in for the certification controller, and a bench for the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.certify.catalogue import floor_for
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners import Owner, Tell, Work
from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    CERTIFICATIONS,
    ApiError,
    KubeApi,
    PatchType,
)
from tests.chaos.machines import GPUS, PRODUCT, TICK_S, Plant, listed
from tests.operate.cluster import stamp


class StandIn:
    """A certification controller that judges by what is true, without rounds and numbers.

    Its status is one of those that the real one writes, except for the details of runs.
    """

    def __init__(self, plant: Plant, api: KubeApi, clock: Clock) -> None:
        self._plant, self._api, self._clock = plant, api, clock

    async def run(self) -> None:
        while True:
            try:
                for found in await listed(self._api, CERTIFICATIONS):
                    await self._look(found)
            except (ApiError, UnreachableError):
                pass  # at the next look
            await self._clock.sleep(TICK_S)

    async def _look(self, found: dict[str, Any]) -> None:
        status, nodes = found.get("status") or {}, found["spec"].get("nodes") or ()
        there = [self._plant.machines[n] for n in nodes if n in self._plant.machines]
        match status.get("phase", "Pending"):
            case "Pending":
                begun = {"phase": "Running", "startedAt": stamp(self._plant.clock.now())}
                await self._write(found, begun)
            case "Running" if self._plant.drawn.random() < 0.1:
                # Whoever was away in between may not have been missed: between two runs nobody looks.
                disturbed = any(m.down or m.gone for m in there)
                verdicts = [
                    (m.name, "Undetermined" if disturbed else "Failed" if m.fails else "Passed") for m in there
                ]
                passed = all(verdict == "Passed" for _, verdict in verdicts)
                results = [{"name": n, "verdict": v, "metrics": {"pair.busbw": 480.0}} for n, v in verdicts]
                run = {"id": "r1", "round": 1, "test": "pair", "nodes": list(nodes), "outcome": "PASS"}
                phase = "Succeeded" if passed else "Failed"
                await self._write(found, {"phase": phase, "nodes": results, "runs": [run]})

    async def _write(self, found: dict[str, Any], status: dict[str, Any]) -> None:
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "status": status}
        name = found["metadata"]["name"]
        await self._api.patch(CERTIFICATIONS, name, patch, PatchType.MERGE, subresource="status")


@dataclass
class _Run:
    """A run of a certification: it goes on whatever becomes of the controller that began it."""

    certification: str
    nodes: tuple[str, ...]
    ends_at_s: float
    boots: Mapping[str, str]


class Bench:
    """Where tests run. What it says of a machine is what is true when the run ends."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.runs: dict[tuple[str, str], _Run] = {}

    def begin(self, owner: Owner, run: PlannedRun) -> _Run:
        key = (owner.uid, run.id)
        if key not in self.runs:
            takes_s = self._plant.drawn.uniform(20.0, 120.0)
            boots = {n: self._plant.machines[n].boot_id for n in run.nodes}
            self.runs[key] = _Run(owner.name, run.nodes, self._plant.clock.elapsed_s + takes_s, boots)
        return self.runs[key]

    def ends(self, run: _Run, planned: PlannedRun) -> tuple[RankEnd, ...]:
        machines = [self._plant.machines[n] for n in run.nodes]
        disturbed = [m.name for m in machines if m.down or m.gone or m.boot_id != run.boots[m.name]]
        if disturbed:
            return tuple(RankEnd(n, HowEnded.DISTURBED, message=f"{disturbed[0]} went away") for n in run.nodes)
        bad = tuple(m.name for m in machines if m.fails)
        floor = floor_for(
            planned.test, product=PRODUCT, platform="", nodes=len(run.nodes), gpus_per_node=GPUS, one_domain=False
        )
        value = 1.2 * floor if floor is not None else 100.0
        return tuple(_end(name, bad, planned.test, value) for name in run.nodes)


def _end(name: str, bad: tuple[str, ...], test: str, value: float) -> RankEnd:
    if bad:
        report = Report(name, False, reason="crash", suspects=bad, message="the driver does not answer")
        return RankEnd(name, HowEnded.REPORTED, report)
    if test in ("host", "dcgm-diag"):
        return RankEnd(name, HowEnded.REPORTED, Report(name, True, message="all checks passed"))
    return RankEnd(name, HowEnded.REPORTED, Report(name, True, value, "TFLOP/s" if test == "gpu-burn" else "GB/s"))


class BenchRunner:
    """What one life of the controller knows of the bench."""

    def __init__(self, bench: Bench, clock: Clock) -> None:
        self._bench = bench
        self._clock = clock

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def wait_synced(self) -> None:
        return

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        running = {run.id: self._bench.begin(work.owner, run) for run in work.runs}
        longest_s = max((r.ends_at_s for r in running.values()), default=0.0) - self._bench._plant.clock.elapsed_s
        await self._clock.sleep(max(0.0, longest_s))
        planned = {run.id: run for run in work.runs}
        return {name: self._bench.ends(run, planned[name]) for name, run in running.items()}

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        runs = self._bench.runs
        for key in [k for k, r in runs.items() if r.certification == owner.name]:
            if key[0] != owner.uid or key[1] not in keep:
                del runs[key]

    def certifications(self) -> tuple[str, ...]:
        return tuple(sorted({r.certification for r in self._bench.runs.values()}))

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        return tuple(
            sorted({n for r in self._bench.runs.values() if r.certification == certification for n in r.nodes})
        )

    def forget(self, certification: str) -> None:
        return
