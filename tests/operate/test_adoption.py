"""Adoption: Muster comes into a cluster at work; what works goes on, and is certified when it is idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import NODE_HEALTHS, PODS
from muster.operate.explain import explain
from muster.operate.fleet_roles import PlannedNode, candidate_of, partner_of
from muster.operate.lifecycle import admits
from muster.operate.model import WavePlan
from muster.resources.base import ObjectMeta
from muster.resources.fault_policy import CertificationPolicy, DriftPolicy
from muster.resources.node_health import CauseKind, NodeHealth, NodeHealthStatus, Standing, State
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import Machine, cluster
from tests.operate.test_voids import policy
from tests.operate.worlds import AUTOMATED, World, fault, pod, readings

ADOPTING = CertificationPolicy(adopt=True)
DAY_S = 86400


def adopted(**drift: int) -> World:
    world = World(policy=replace(AUTOMATED, certification=ADOPTING, drift=DriftPolicy(**drift)))  # type: ignore[arg-type]
    world.node = replace(world.node, pods=(pod(),))
    world.settle()
    return world


def test_a_node_at_work_is_not_held_and_says_that_nothing_proves_it() -> None:
    world = adopted()
    life = world.life
    assert (life.state, life.held) == (State.IN_SERVICE, False)
    assert life.certificate.adopted
    assert life.certificate.standing is Standing.GRACE
    assert life.certificate.tests == ()
    assert admits(life.certificate)
    assert "has never been certified" in life.next
    assert [n.reason for d in world.decisions for n in d.notes] == ["Adopted"]
    health = NodeHealth(metadata=ObjectMeta(name="n1"), status=NodeHealthStatus(lifecycle=life))
    assert any("never been certified" in sentence for sentence in explain(health, now=world.now).why)


def test_an_idle_new_node_is_held_all_the_same_and_so_is_a_busy_one_without_the_word() -> None:
    idle = World(policy=replace(AUTOMATED, certification=ADOPTING))
    idle.settle()
    busy = World()
    busy.node = replace(busy.node, pods=(pod(),))
    busy.settle()
    assert idle.life.held
    assert busy.life.held


@pytest.mark.parametrize("left", [{"hold_taint": True}, {"unschedulable": True, "cordoned_by": "an-episode"}])
def test_a_node_that_muster_had_taken_out_is_not_adopted_when_its_record_is_lost(left: dict[str, Any]) -> None:
    world = World(policy=replace(AUTOMATED, certification=ADOPTING))
    world.node = replace(world.node, pods=(pod(),), **left)
    world.settle()
    assert world.life.held


@given(fatal=st.booleans(), budget=st.booleans(), adopting=st.booleans(), busy=st.booleans())
def test_with_room_in_the_budget_no_node_with_a_fatal_fault_goes_on(
    fatal: bool, budget: bool, adopting: bool, busy: bool
) -> None:
    world = World(policy=replace(AUTOMATED, certification=CertificationPolicy(adopt=adopting)))
    world.node = replace(world.node, pods=(pod(),) if busy else ())
    world.others_out = () if budget else ("x0", "x1")
    if fatal:
        world.observe(fault(seen=world.now))
    world.settle()
    works = world.life.state is State.IN_SERVICE
    assert works is (adopting and busy and not (fatal and budget))
    if works and fatal:
        assert "fault" in world.waits, "it is said that it works on with the fault"
        world.pass_time(world.policy.drift.max_grace_s)
        world.observe(fault(seen=world.now))
        world.settle()
        assert world.life.held, "at the end of one grace at the latest"


def test_agents_that_come_one_by_one_change_nothing_for_an_adopted_node() -> None:
    world = World(policy=replace(AUTOMATED, certification=ADOPTING))
    seen = world.node.observed
    world.node = replace(world.node, pods=(pod(),), observed=None, agent_seen=None)
    world.settle()
    assert world.life.certificate.adopted
    assert "agent" in world.waits
    world.node = replace(world.node, observed=seen, agent_seen=world.now)
    world.settle()
    assert (world.life.state, world.waits.keys()) == (State.IN_SERVICE, {"wave"})


def test_it_is_certified_in_full_when_it_is_idle_and_its_turn_comes() -> None:
    world = adopted()
    found = candidate_of(PlannedNode(world.node, world.policy), world.life, world.now)
    assert found.idle_only
    world.node = replace(world.node, pods=())
    world.wave = WavePlan(turn=("n1",))
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "bringup")
    assert world.life.episode.cause.kind is CauseKind.DRIFT
    world.certify()
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID
    assert not world.life.certificate.adopted


def test_a_change_of_what_was_never_proven_changes_nothing() -> None:
    world = adopted()
    world.observe(fp=readings(gpu="GPU-2"))
    world.settle()
    assert world.life.state is State.IN_SERVICE


def test_after_the_grace_it_takes_its_turn_at_work_and_never_beyond_the_budget() -> None:
    world = adopted(max_grace_s=DAY_S)
    world.others_out = ("x0", "x1")
    world.wave = WavePlan(turn=("n1",))
    world.pass_time(2 * DAY_S)
    world.observe()
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert not candidate_of(PlannedNode(world.node, world.policy), world.life, world.now).idle_only
    world.others_out = ()
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_fault_takes_an_adopted_node_out_and_it_comes_back_through_the_whole_bring_up() -> None:
    world = adopted()
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.held
    world.observe()
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "bringup")


def test_it_is_no_partner_for_others() -> None:
    world = adopted()
    world.node = replace(world.node, pods=())
    assert partner_of(PlannedNode(world.node, world.policy)) is None


def test_a_fault_that_comes_long_after_the_adoption_asks_the_budget_and_begins_a_grace_of_its_own() -> None:
    world = adopted(max_grace_s=DAY_S)
    world.others_out = ("x0", "x1")
    world.pass_time(30 * DAY_S)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    world.pass_time(DAY_S)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.held


def test_a_fault_that_comes_and_goes_gives_an_adopted_node_one_grace_and_no_more() -> None:
    world = adopted(max_grace_s=DAY_S)
    world.others_out = ("x0", "x1")
    for hour in range(24):
        faults = (fault(seen=world.now),) if hour % 2 == 0 else ()
        world.observe(*faults)
        world.settle()
        assert world.life.state is State.IN_SERVICE
        world.pass_time(3600)
    world.observe()
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "bringup")


def test_a_deleted_record_of_a_held_node_with_work_on_it_does_not_let_it_off() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00")], policy(certification=ADOPTING)) as c:
            await c.until_state("n00", State.UNCERTIFIED)
            await clock.sleep(60)
            await c.add_pod("train", "n00")
            await c.api.delete(NODE_HEALTHS, "n00")
            await clock.sleep(60)
            assert (await c.life("n00")).held

    run_virtual(story)


def test_a_cluster_at_work_is_adopted_and_certified_as_its_nodes_become_idle() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(6)]
        async with cluster(clock, fleet, policy(certification=ADOPTING), controller=False) as c:
            for name in ("n00", "n01", "n02", "n03"):
                await c.add_pod(f"train-{name}", name)
            from tests.operate.cluster import running

            async with running(c.controller().run()):
                await c.until_settled()
                await clock.sleep(1800)
                lives = {name: await c.life(name) for name in c.machines}
                assert [n for n, x in lives.items() if x.certificate.adopted] == ["n00", "n01", "n02", "n03"]
                for name in ("n00", "n01", "n02", "n03"):
                    assert not (await c.node(name))["spec"].get("taints"), "its work is not disturbed"
                    await c.api.delete(PODS, f"train-{name}", "work", grace_period_s=0)

                async def certified() -> bool:
                    found = [await c.life(name) for name in c.machines]
                    assert sum(life.held for life in found) <= 2
                    return all(x.certificate.standing is Standing.VALID for x in found)

                await c.until(certified, limit_s=36000)
                assert [n for n in c.machines if (await c.life(n)).certificate.adopted] == []

    run_virtual(story)
