"""Planned maintenance: held in time, drained from its opening on, handed over, back through the tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.model import DeletePod, EvictPod
from muster.resources.base import ObjectMeta
from muster.resources.fault_policy import Blackout, Budget
from muster.resources.maintenance import Maintenance, MaintenanceSpec, MaintenanceStatus
from muster.resources.node_health import CauseKind, Decision, State, Verb
from muster.resources.repair import RepairPhase
from tests.operate.worlds import AUTOMATED, World, fault, pod, serving

HOUR = 3600.0


def planned(world: World, opens_s: float = HOUR, closes_s: float = 5 * HOUR, **spec: object) -> Maintenance:
    made = Maintenance(
        metadata=ObjectMeta(name="pdu-7", creation_timestamp=world.now),
        spec=MaintenanceSpec(
            reason="power work",
            requested_by="ada",
            nodes=("n1",),
            opens_at=world.now + timedelta(seconds=opens_s),
            closes_at=world.now + timedelta(seconds=closes_s),
        ),
    )
    made = with_fields(made, spec=with_fields(made.spec, **spec))
    world.node = replace(world.node, maintenances=(made,))
    return made


def hand_back(world: World) -> None:
    made = world.node.maintenances[0]
    status = MaintenanceStatus(handed_back=("n1",))
    world.node = replace(world.node, maintenances=(with_fields(made, status=status),))


def busy(world: World) -> None:
    world.node = replace(world.node, pods=(pod("train"),))


def go_to(world: World, moment: datetime) -> None:
    world.pass_time((moment - world.now).total_seconds())


@pytest.mark.requirement("v2.4/OFM01")
def test_a_node_with_work_serves_until_the_window_opens_and_is_then_drained_and_handed_over() -> None:
    world = serving()
    busy(world)
    made = planned(world)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert world.evictions == []
    go_to(world, made.spec.opens_at)
    world.settle()
    assert world.life.state is State.DRAINING
    assert world.life.episode is not None
    assert (world.life.episode.cause.kind, world.life.episode.cause.name) == (CauseKind.MAINTENANCE, "pdu-7")
    world.node = replace(world.node, pods=())
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert "maintenance" in world.waits
    assert "Handed over" in world.life.next
    assert world.life.held
    hand_back(world)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.profile == "repair"
    world.certify()
    assert world.life.state is State.IN_SERVICE
    assert world.rungs == []


def test_no_repair_begins_on_a_node_in_other_hands_and_its_fault_is_seen_to_afterwards() -> None:
    world = serving()
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    assert "maintenance" in world.waits
    world.observe(fault(seen=world.now))
    world.pass_time(600)
    world.settle()
    assert world.rungs == []
    assert world.life.state is State.QUARANTINED
    hand_back(world)
    world.settle()
    assert world.rungs == ["reboot"]


def test_a_repair_under_way_ends_first_and_the_node_is_handed_over_then() -> None:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.REPAIRING
    started = with_fields(world.node.repairs[-1].status, phase=RepairPhase.RUNNING, started_at=world.now)
    world.node = replace(world.node, repairs=(with_fields(world.node.repairs[-1], status=started),))
    made = planned(world, opens_s=60)
    go_to(world, made.spec.opens_at)
    world.settle()
    assert world.life.state is State.REPAIRING
    assert world.cancelled == []
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert "maintenance" in world.waits


@pytest.mark.requirement("v2.4/OFM02")
def test_the_owner_of_the_work_puts_it_off_and_the_limit_binds() -> None:
    world = serving()
    busy(world)
    made = planned(world)
    limit = made.spec.opens_at + timedelta(hours=1)
    world.node = replace(
        world.node, maintenances=(with_fields(made, spec=with_fields(made.spec, defer_limit=limit)),)
    )
    until = made.spec.opens_at + timedelta(hours=3)
    word = Decision(id="d1", verb=Verb.DEFER, by="grace", at=world.now, until=until)
    world.node = replace(world.node, spec=with_fields(world.node.spec, decision=word))
    world.settle()
    assert world.life.deferred_until == limit
    assert world.life.decision_seen == "d1"
    go_to(world, made.spec.opens_at + timedelta(minutes=5))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    go_to(world, limit)
    world.settle()
    assert world.life.state is State.DRAINING
    assert world.life.deferred_until is None


def test_a_deferral_that_names_no_time_is_refused_and_acknowledged() -> None:
    world = serving()
    planned(world)
    world.say(Verb.DEFER)
    world.settle()
    assert world.life.decision_seen == "d1"
    assert any(n.reason == "DeferNotPossible" for d in world.decisions for n in d.notes)
    assert world.life.deferred_until is None


def test_it_asks_the_budget_and_an_emergency_passes_a_blackout_as_approved() -> None:
    closed = Blackout(name="always", start="00:00", duration_s=6 * 86400)
    policy = replace(AUTOMATED, budget=Budget(blackouts=(closed,)))
    world = serving(policy)
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert "Blackout always" in world.waits["budget"]
    urgent = serving(policy)
    busy(urgent)
    planned(urgent, emergency=True)
    urgent.settle()
    assert urgent.life.state is State.DRAINING
    assert urgent.life.episode is not None
    assert "approved by ada" in urgent.life.episode.cause.message
    assert set(urgent.evictions) == {"work/train"}
    full = serving(replace(AUTOMATED, budget=Budget(max_disrupted="1")))
    full.others_out = ("x1",)
    planned(full, emergency=True)
    full.settle()
    assert full.life.state is State.IN_SERVICE
    said = [note for decision in full.decisions for note in decision.notes if note.reason == "HoldWaits"]
    assert len(said) == 1
    assert "hold --reason" in said[0].message


def test_a_cancelled_maintenance_gives_the_node_back_and_a_release_does_not() -> None:
    world = serving()
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    world.say(Verb.RELEASE)
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert any(n.reason == "HoldStands" for d in world.decisions for n in d.notes)
    gone = with_fields(world.node.maintenances[0], spec=with_fields(made.spec, cancelled=True))
    world.node = replace(world.node, maintenances=(gone,))
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_window_that_closes_over_a_node_that_is_out_stays_visible_until_it_is_handed_back() -> None:
    world = serving()
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    go_to(world, made.spec.closes_at + timedelta(hours=2))
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert "maintenance" in world.waits
    hand_back(world)
    world.settle()
    assert world.life.state is State.UNCERTIFIED


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 6 * 3600),
    st.integers(0, 4 * 3600),
    st.lists(
        st.sampled_from(["work", "idle", "pause", "go", "cancel", "back", "fault", "well", "time"]), max_size=10
    ),
)
@pytest.mark.requirement("v2.4/OFM02")
def test_nothing_is_evicted_before_the_window_opens(opens_s: int, length_s: int, events: list[str]) -> None:
    world = serving()
    busy(world)
    made = planned(world, opens_s=opens_s, closes_s=opens_s + length_s + 60)
    faulty = False
    for event in events:
        match event:
            case "work":
                busy(world)
            case "idle":
                world.node = replace(world.node, pods=())
            case "pause" | "go":
                world.pause(event == "pause")
            case "cancel":
                spec = with_fields(world.node.maintenances[0].spec, cancelled=True)
                world.node = replace(world.node, maintenances=(with_fields(world.node.maintenances[0], spec=spec),))
            case "back":
                hand_back(world)
            case "fault":
                faulty = True
                world.observe(fault(seen=world.now))
            case "well":
                world.observe()
            case _:
                world.pass_time(1800)
        before = world.now
        world.decisions.clear()
        world.settle()
        forced = [i for d in world.decisions for i in d.intents if isinstance(i, EvictPod | DeletePod)]
        if forced and not faulty:
            assert before >= made.spec.opens_at
        if world.life.state is State.QUARANTINED and "maintenance" in world.waits:
            assert not world.node.work
