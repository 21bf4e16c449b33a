"""Decisions are written side by side: faster where the API server is slow, and never beyond the budget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.errors import UnreachableError
from muster.kube.api import NODE_HEALTHS, Object, ResourceType, ServerError
from muster.resources.base import CONTROLLER_MANAGER
from muster.resources.fault_policy import FaultPolicy
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import AUTOMATED, Machine, cluster, running
from tests.operate.worlds import fault

WRITE_S = 1.0
NODES = 12


class Slow(InProcessApi):
    """Each write of a lifecycle takes a second. `refused`: nodes whose next write fails after that.

    `kept`: nodes whose next return into service fails. `unheard`: the next write takes effect, its answer gets lost.
    """

    def __init__(self, clock: VirtualClock, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._clock = clock
        self.held: set[str] = set()
        self.most_held = 0
        self.writing = 0
        self.most_writing = 0
        self.refused: set[str] = set()
        self.kept: set[str] = set()
        self.unheard: set[str] = set()
        self.returning = asyncio.Event()

    async def apply(
        self, res: ResourceType, obj: Object, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        if res != NODE_HEALTHS or manager != CONTROLLER_MANAGER:
            return await super().apply(res, obj, manager=manager, force=force, subresource=subresource)
        name = obj["metadata"]["name"]
        self.writing += 1
        self.most_writing = max(self.most_writing, self.writing)
        back = name in self.kept and not obj["status"]["lifecycle"].get("held")
        if back:
            self.returning.set()
        try:
            await self._clock.sleep(WRITE_S)
            if name in self.refused:
                self.refused.discard(name)
                raise ServerError(500, "InternalError", "etcd is away")
            if back:
                self.kept.discard(name)
                raise ServerError(500, "InternalError", "etcd is away")
            written = await super().apply(res, obj, manager=manager, force=force, subresource=subresource)
        finally:
            self.writing -= 1
        (self.held.add if obj["status"]["lifecycle"].get("held") else self.held.discard)(name)
        self.most_held = max(self.most_held, len(self.held))
        if name in self.unheard:
            self.unheard.discard(name)
            raise UnreachableError("the connection broke")
        return written


def policy(max_disrupted: str, *, compared: bool = False) -> FaultPolicy:
    spec = AUTOMATED.spec
    budget = with_fields(
        spec.budget, max_disrupted=max_disrupted, max_disrupted_per_domain="100%", max_new_per_window=1000
    )
    off = tuple(with_fields(c, enabled=compared) for c in spec.correlations)
    return with_fields(AUTOMATED, spec=with_fields(spec, budget=budget, correlations=off))


@pytest.mark.parametrize("refused", [(), ("n00", "n01", "n02")])
def test_many_faults_at_once_are_written_side_by_side_and_stay_within_the_budget(refused: tuple[str, ...]) -> None:
    async def story(clock: VirtualClock) -> None:
        machines = [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(NODES)]
        async with cluster(clock, machines, policy("3"), controller=False) as c:
            c.provider_away = True
            api = Slow(clock, c.store, "muster")
            async with running(c.controller(api).run()):
                await c.until_settled()
                api.held.clear()
                api.most_held = api.most_writing = 0
                api.refused.update(refused)
                for machine in machines:
                    machine.faults = (fault(seen=clock.now()),)
                await clock.sleep(600)
                assert api.most_held == 3, c.lines[-20:]
                assert len(api.held) == 3
                assert api.most_writing > 1
                assert not api.refused

    run_virtual(story)


def test_a_decision_whose_answer_got_lost_keeps_its_place_in_the_budget() -> None:
    async def story(clock: VirtualClock) -> None:
        machines = [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(NODES)]
        async with cluster(clock, machines, policy("3"), controller=False) as c:
            c.provider_away = True
            api = Slow(clock, c.store, "muster")
            async with running(c.controller(api).run()):
                await c.until_settled()
                api.held.clear()
                api.most_held = 0
                api.unheard = {machine.name for machine in machines}
                for machine in machines:
                    machine.faults = (fault(seen=clock.now()),)
                await clock.sleep(600)
                assert len(api.unheard) < NODES
                assert api.most_held == len(api.held) == 3, c.lines[-20:]

    run_virtual(story)


def test_a_return_that_was_not_written_gives_no_place_to_another_node() -> None:
    async def story(clock: VirtualClock) -> None:
        first, second = machines = [Machine("n00", domain="d0"), Machine("n01", domain="d1")]
        machines += [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(2, 6)]
        async with cluster(clock, machines, policy("1"), controller=False) as c:
            c.provider_away = True
            api = Slow(clock, c.store, "muster")
            async with running(c.controller(api).run()):
                await c.until_settled()
                api.held.clear()
                api.most_held = 0
                first.faults = (fault(seen=clock.now()),)
                await clock.sleep(300)
                assert api.held == {"n00"}
                api.kept.add("n00")
                first.faults = ()
                await api.returning.wait()
                second.faults = (fault(seen=clock.now()),)
                await c.publish(second)
                await clock.sleep(2 * 3600)
                assert not api.kept, c.lines[-20:]
                assert "n01" in api.held, c.lines[-20:]
                assert api.most_held == 1, c.lines[-20:]

    run_virtual(story)


@pytest.mark.parametrize("compared", [False, True])
def test_a_finding_that_others_have_waits_for_the_comparison_only_where_there_is_one(compared: bool) -> None:
    async def story(clock: VirtualClock) -> None:
        machines = [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(NODES)]
        async with cluster(clock, machines, policy("100%", compared=compared), controller=False) as c:
            c.provider_away = True
            api = Slow(clock, c.store, "muster")
            async with running(c.controller(api).run()):
                await c.until_settled()
                await clock.sleep(3600)  # agents that are new are compared anyway
                api.held.clear()
                for machine in machines[:2]:
                    machine.faults = (fault(seen=clock.now()),)
                    await c.publish(machine)
                    await clock.sleep(1.5 * WRITE_S if machine is machines[1] else 600)
                assert ("n01" in api.held) is not compared
                await clock.sleep(60)
                assert "n01" in api.held

    run_virtual(story)
