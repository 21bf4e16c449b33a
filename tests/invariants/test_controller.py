"""The real controller under the invariants: hostile hands, lying providers, and death between any two writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import NODE_HEALTHS, NODES, PODS, NotFoundError, PatchType
from muster.operate.policy import effective_policy
from muster.resources.fault import Severity
from muster.resources.node_health import State
from muster.sim.virtual import VirtualClock, run_virtual
from tests.invariants.checker import broken_between, take, violations
from tests.invariants.mortal import Supervisor
from tests.operate.cluster import AUTOMATED, Machine, TestCluster, cluster, running
from tests.operate.worlds import fault, readings

SHARES = 6
"""The deaths between all pairs of writes are tried in so many tests, so that each stays short."""

POLICY = effective_policy([AUTOMATED], {})


def machines(count: int) -> list[Machine]:
    return [Machine(f"n{i:02}", domain=f"d{i % 3}") for i in range(count)]


async def watch_over(c: TestCluster, every_s: float = 7.0) -> None:
    """Check the rules that hold at every instant, for ever."""
    before = None
    while True:
        now = await take(c.api, c.clock.now(), POLICY)
        found = violations(now) + (broken_between(before, now) if before else [])
        assert found == []
        before = now
        await c.clock.sleep(every_s)


async def check_settled(c: TestCluster) -> None:
    """Once the controller had time to write what follows from the states: every rule holds."""
    await c.clock.sleep(30)
    assert violations(await take(c.api, c.clock.now(), POLICY), settled=True) == []


def spec_of(node: dict[str, Any]) -> dict[str, Any]:
    """The spec without what depends on who was faster: the order of taints and when they were added."""
    taints = [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in node["spec"].get("taints") or ()]
    return {**node["spec"], "taints": sorted(taints, key=lambda taint: str(taint["key"]))}


def test_2_deleted_projections_come_back_from_the_status() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4)) as c:
            await c.until_settled()
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            c.machines["n01"].cured_by = None
            await c.until_state("n01", State.OUT_OF_SERVICE)
            await clock.sleep(30)
            before = {name: spec_of(await c.node(name)) for name in c.machines}
            for name in c.machines:
                await c.api.patch(
                    NODES,
                    name,
                    {"spec": {"taints": None}, "metadata": {"labels": {"muster.dev/state": None}}},
                    PatchType.MERGE,
                )
                wrong = {"type": "MusterHealthy", "status": "Unknown", "reason": "Edited", "message": "by hand"}
                await c.api.patch(
                    NODES, name, {"status": {"conditions": [wrong]}}, PatchType.STRATEGIC, subresource="status"
                )
            await clock.sleep(30)
            assert {name: spec_of(await c.node(name)) for name in c.machines} == before
            await check_settled(c)

    run_virtual(story)


def test_5_a_provider_that_claims_without_rebooting_is_not_believed() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4)) as c:
            await c.until_settled()
            c.reboots_honoured = False
            c.machines["n01"].faults = (fault(seen=clock.now()),)
            async with running(watch_over(c)):
                life = await c.until_state("n01", State.OUT_OF_SERVICE)
            assert [a.outcome for a in life.episode.attempts][:3] == ["failed", "failed", "failed"]
            assert c.machines["n01"].boot == 1

    run_virtual(story)


def test_6_an_unknown_fault_holds_nobody() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4)) as c:
            await c.until_settled()
            for machine in c.machines.values():
                machine.faults = (fault("999", seen=clock.now(), severity=Severity.UNKNOWN),)
            async with running(watch_over(c)):
                await clock.sleep(1800)
            assert set((await c.states()).values()) == {"InService"}

    run_virtual(story)


@pytest.mark.parametrize("compared", [True, False])
def test_3_a_wrong_monitor_on_every_node_takes_out_no_more_than_the_budget(compared: bool) -> None:
    """And no more than the first, where findings are compared over the fleet."""
    correlations = tuple(with_fields(c, enabled=compared) for c in AUTOMATED.spec.correlations)
    policy = with_fields(AUTOMATED, spec=with_fields(AUTOMATED.spec, correlations=correlations))

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(20), policy) as c:
            await c.until_settled()
            for machine in c.machines.values():
                machine.faults = (fault(seen=clock.now()),)
                machine.cured_by = None
            async with running(watch_over(c)):
                await clock.sleep(1200)
                states = list((await c.states()).values())
                assert states.count("InService") == (19 if compared else 18)

    run_virtual(story)


def test_4_and_1_verdicts_move_only_the_nodes_that_they_name() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = machines(6)
        fleet[4].fails = True
        async with cluster(clock, fleet) as c, running(watch_over(c)):
            await c.until_settled()
            assert fleet[4].repairs == ["reset-gpu", "reboot"]
            assert [m.repairs for m in fleet if m is not fleet[4]] == [[]] * 5
            await check_settled(c)

    run_virtual(story)


async def _crash_story(clock: VirtualClock, lives: Sequence[int], lost: bool) -> tuple[int, int, dict[str, object]]:
    """Bring-up, a fault with a drain and a reboot, a driver update; returns what must not depend on deaths."""
    c = TestCluster(clock, machines(4))
    await c.install()
    supervisor = Supervisor(
        c.store,
        clock,
        lambda api: c.controller(api).run(),  # type: ignore[arg-type]
        lives,
        lost=lost,
    )
    works = [c.agents(), c.provider(), c.certifier(), supervisor.run(), watch_over(c), finish_evictions(c)]
    async with running(*works):
        await c.until_settled()
        await c.add_pod("train-0", "n01")
        c.machines["n01"].faults = (fault(seen=clock.now()),)
        await c.until_state("n01", State.REPAIRING)
        await c.until_settled()
        for machine in c.machines.values():
            machine.fingerprint = readings(driver="580.95")

        async def rolled() -> bool:
            lives = [await c.life(name) for name in c.machines]
            return all(
                x.state is State.IN_SERVICE and x.certificate.fingerprint == readings(driver="580.95") for x in lives
            )

        await c.until(rolled)
        await clock.sleep(60)
        await check_settled(c)
        end: dict[str, object] = {
            "states": await c.states(),
            "repairs": {n: m.repairs for n, m in c.machines.items()},
            "boots": {n: m.boot for n, m in c.machines.items()},
            "nodes": {n: (await c.node(n))["spec"] for n in c.machines},
        }
    return supervisor.writes, supervisor.deaths, end


async def finish_evictions(c: TestCluster) -> None:
    """The kubelet: pods that were asked to go are gone after a while."""
    while True:
        for pod in await c.all(PODS):
            if pod["metadata"].get("deletionTimestamp"):
                try:
                    await c.api.delete(PODS, pod["metadata"]["name"], "work", grace_period_s=0)
                except NotFoundError:
                    continue
        await c.clock.sleep(20.0)


def crash_story(lives: Sequence[int], lost: bool) -> tuple[int, int, dict[str, object]]:
    return run_virtual(lambda clock: _crash_story(clock, lives, lost))


@pytest.mark.parametrize("lost", [False, True])
def test_8_a_controller_that_dies_now_and_then_ends_the_same(lost: bool) -> None:
    writes, deaths, expected = crash_story([], lost)
    assert deaths == 0
    assert writes > 60
    drawn = random.Random(7)
    for _ in range(3):
        lives = [drawn.randint(1, 25) for _ in range(8)]
        _, deaths, end = crash_story(lives, lost)
        assert deaths >= 3, lives
        assert end == expected, lives


@pytest.mark.full
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.requirement("v2.4/OFM05")
def test_8_death_between_any_two_writes_changes_nothing(share: int, lost: bool) -> None:
    writes, _, expected = crash_story([], lost)
    for k in range(1 + share, writes + 1, SHARES):
        _, deaths, end = crash_story([k], lost)
        assert deaths == 1, k
        assert end == expected, k


def test_7_hold_edit_and_cordon_at_any_time_are_respected() -> None:
    async def story(clock: VirtualClock) -> None:
        drawn = random.Random(3)
        async with cluster(clock, machines(6)) as c:
            await c.until_settled()
            await c.api.patch(NODES, "n05", {"spec": {"unschedulable": True}}, PatchType.MERGE)
            async with running(watch_over(c)):
                for _ in range(12):
                    name = f"n{drawn.randrange(6):02}"
                    match drawn.randrange(4):
                        case 0:
                            c.machines[name].faults = (fault(seen=clock.now()),)
                        case 1:
                            hold = {"by": "ada", "reason": "look"} if drawn.random() < 0.5 else None
                            await c.api.patch(NODE_HEALTHS, name, {"spec": {"hold": hold}}, PatchType.MERGE)
                        case 2:
                            paused = drawn.random() < 0.5
                            await c.api.patch(NODE_HEALTHS, name, {"spec": {"paused": paused}}, PatchType.MERGE)
                        case _:
                            await c.api.patch(NODES, name, {"spec": {"taints": None}}, PatchType.MERGE)
                    await clock.sleep(drawn.uniform(5, 900))
                for name in c.machines:
                    spec = {"hold": None, "paused": False}
                    await c.api.patch(NODE_HEALTHS, name, {"spec": spec}, PatchType.MERGE)
                await clock.sleep(3600)
                assert (await c.node("n05"))["spec"]["unschedulable"] is True
            await c.api.patch(NODES, "n05", {"spec": {"unschedulable": None}}, PatchType.MERGE)
            await c.until_settled()
            await clock.sleep(60)
            await check_settled(c)

    run_virtual(story)
