"""What changes while something is under way: rules, correlations, providers, people's words, clocks that lie."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields

from muster.operate.correlation.model import Correlations
from muster.operate.policy import FULL_AUTOMATION, EffectivePolicy, effective_policy
from muster.resources.certification import NodeVerdict
from muster.resources.fault_policy import Disposition, Rule
from muster.resources.node_health import Standing, State, Verb
from muster.resources.repair import RepairPhase, Rung
from tests.operate.test_decide_history import EVICTING, ruled, shared
from tests.operate.test_decide_maintenance import busy, go_to, hand_back, planned
from tests.operate.test_decide_repairs import broken, laddered, set_status
from tests.operate.worlds import START, World, fault, serving


def only(disposition: Disposition) -> EffectivePolicy:
    """Every fault leads to `disposition`, and no further."""
    return ruled(Rule(name="all", when="true", disposition=disposition), patterns=(), correlations=())


# The rule or a correlation changes its mind


@pytest.mark.parametrize("by", ["rule", "correlation"])
def test_a_drain_stops_when_no_more_than_a_hold_is_allowed(by: str) -> None:
    world = serving()
    busy(world)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.DRAINING
    world.decisions.clear()
    world.pass_time(60)
    if by == "rule":
        world.policy = only(Disposition.HOLD)
    else:
        world.correlations = shared(world, Disposition.HOLD)
    world.settle()
    world.pass_time(7200)
    world.settle()
    assert world.evictions == []
    assert world.life.state is State.QUARANTINED
    assert world.life.held
    if by == "rule":
        assert "only holds" in world.waits["fault"]
    else:
        assert "580.65 -> 580.95" in world.waits["correlation"]
    world.correlations, world.policy = Correlations(), serving().policy
    world.settle()
    assert set(world.evictions) == {"work/train"}


def test_what_a_correlation_only_lets_hold_evicts_nobody_by_a_taint() -> None:
    evicting = with_fields(EVICTING, disposition=Disposition.REPAIR)
    world = serving(ruled(evicting, patterns=(), correlations=()))
    busy(world)
    world.correlations = shared(world, Disposition.HOLD)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert not world.life.no_execute
    world.correlations = Correlations()
    world.settle()
    assert world.life.no_execute


@pytest.mark.parametrize("change", ["rule", "correlation", "closed"])
def test_a_repair_that_has_not_begun_and_is_no_longer_called_for_is_called_back(change: str) -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    name = world.node.repairs[-1].metadata.name
    world.pass_time(60)
    match change:
        case "rule":
            world.policy = only(Disposition.HOLD)
        case "correlation":
            world.correlations = shared(world)
        case _:
            world.observe()
    world.decide()
    assert world.cancelled == [name]
    assert world.life.state is State.REPAIRING
    assert world.life.next
    set_status(world, phase=RepairPhase.CANCELLED)
    world.settle()
    assert world.life.state is (State.UNCERTIFIED if change == "closed" else State.QUARANTINED)
    assert world.rungs == ["reboot"]


@pytest.mark.parametrize("change", ["rule", "correlation", "closed"])
def test_a_repair_that_has_begun_goes_on(change: str) -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now)
    world.pass_time(60)
    match change:
        case "rule":
            world.policy = only(Disposition.HOLD)
        case "correlation":
            world.correlations = shared(world)
        case _:
            world.observe()
    world.settle()
    assert world.cancelled == []
    assert world.life.state is State.REPAIRING


@pytest.mark.parametrize("told", ["", "job-1"])
def test_a_repair_that_was_taken_up_and_not_confirmed_is_called_back_from_a_retired_node(told: str) -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now, external_id=told)
    world.pass_time(60)
    world.say(Verb.RETIRE)
    world.decide()
    assert world.life.state is State.OUT_OF_SERVICE
    assert world.cancelled == ([] if told else [world.node.repairs[-1].metadata.name])


def test_a_node_of_which_nothing_is_known_keeps_the_repair_that_was_asked_for() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    world.node = replace(world.node, observed=None)
    world.pass_time(60)
    world.decide()
    assert world.cancelled == []


def test_a_repair_for_a_failed_certification_needs_no_fault() -> None:
    world = laddered(Rung.REBOOT, Rung.TICKET)
    world.hold()
    world.settle()
    world.observe(fault(seen=world.now))
    world.settle()
    world.observe()
    world.hold(False)
    world.settle()
    world.certify(NodeVerdict.FAILED)
    assert world.life.state in (State.REPAIRING, State.OUT_OF_SERVICE, State.QUARANTINED)
    world.pass_time(60)
    world.decide()
    assert world.cancelled == []


def test_a_repair_whose_provider_is_gone_before_it_was_asked_for_is_given_up() -> None:
    world = laddered(Rung.REBOOT, Rung.TICKET)
    world.observe(fault(seen=world.now))
    world.decide()
    assert world.life.state is State.REPAIRING
    world.node = replace(world.node, repairs=())
    world.pause()
    world.settle()
    world.policy = without_providers()
    world.pass_time(600)
    world.pause(False)
    world.settle()
    assert all(r.spec.provider for r in world.node.repairs)
    assert world.life.state is State.OUT_OF_SERVICE


def without_providers() -> EffectivePolicy:
    rule = Rule(name="all", when="true", disposition=Disposition.REPAIR)
    spec = with_fields(FULL_AUTOMATION.spec, rules=(rule,), patterns=(), correlations=(), priority=10)
    return effective_policy([with_fields(FULL_AUTOMATION, spec=spec)], {})


# Clocks and providers that lie


def test_an_end_in_the_future_does_not_keep_a_node_for_ever() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    set_status(world, phase=RepairPhase.DONE, finished_at=world.now + timedelta(days=3650))
    for _ in range(30):
        world.pass_time(600)
        world.observe(fault(seen=START))
        world.settle()
    assert world.life.state is State.OUT_OF_SERVICE


def test_an_end_before_the_beginning_proves_nothing_by_an_old_reading() -> None:
    world = broken(Rung.RESTART_DRIVER, Rung.TICKET)
    asked = world.now
    world.observe()
    world.node = replace(world.node, agent_seen=asked)
    set_status(world, phase=RepairPhase.DONE, finished_at=asked - timedelta(hours=2))
    world.now += timedelta(seconds=60)
    old = with_fields(world.node.observed, observed_at=asked - timedelta(minutes=5))
    world.node = replace(world.node, observed=old, agent_seen=asked - timedelta(minutes=5))
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_repair_that_could_begin_late_is_given_its_time() -> None:
    world = broken(Rung.REBOOT, Rung.POWER_CYCLE, Rung.TICKET)
    limit = world.node.repairs[-1].spec.timeout_s
    world.pass_time(limit - 60)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now)
    world.pass_time(600)
    world.observe(fault(seen=START))
    world.settle()
    assert world.rungs == ["reboot"]
    world.pass_time(limit)
    world.observe(fault(seen=START))
    world.settle()
    assert world.rungs == ["reboot", "power-cycle"]


def test_a_beginning_in_the_future_gives_no_time_without_end() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now + timedelta(days=3650))
    for _ in range(3):
        world.pass_time(world.node.repairs[-1].spec.timeout_s)
        world.observe(fault(seen=START))
        world.settle()
    assert world.life.state is State.OUT_OF_SERVICE


def test_a_release_by_a_clock_that_is_ahead_waives_nothing_that_is_seen_later() -> None:
    world = serving(only(Disposition.HOLD))
    world.observe(fault(seen=world.now))
    world.settle()
    world.pass_time(60)
    world.say(Verb.RELEASE)
    said = with_fields(world.node.spec.decision, at=world.now + timedelta(days=3650))
    world.node = replace(world.node, spec=with_fields(world.node.spec, decision=said))
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    world.certify()
    assert world.life.state is State.IN_SERVICE
    world.pass_time(3600)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED


# People, and maintenance


def test_a_fault_under_a_hold_costs_the_certificate_like_any_other() -> None:
    world = serving()
    world.hold()
    world.settle()
    world.pass_time(60)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.certificate.standing is Standing.VOID
    world.pass_time(60)
    world.observe()
    world.hold(False)
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def handed_over() -> World:
    world = serving()
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    assert "maintenance" in world.waits
    return world


def test_a_persons_hold_does_not_end_what_was_handed_over() -> None:
    world = handed_over()
    closes = world.node.maintenances[0].spec.closes_at
    world.hold()
    world.settle()
    assert {"person", "maintenance"} <= set(world.waits)
    go_to(world, closes + timedelta(hours=1))
    world.settle()
    world.hold(False)
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert "maintenance" in world.waits
    hand_back(world)
    world.settle()
    assert world.life.state is State.UNCERTIFIED


@pytest.mark.parametrize("late", [False, True])
def test_a_retry_does_not_take_a_node_out_of_the_hands_it_was_given_to(late: bool) -> None:
    world = handed_over()
    since = world.life.since
    if late:
        go_to(world, world.node.maintenances[0].spec.closes_at + timedelta(hours=1))
        world.settle()
    world.pass_time(60)
    world.say(Verb.RETRY)
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert world.life.since == since
    assert world.life.decision_seen == "d1"


@pytest.mark.parametrize("word", ["uncordon", "pause"])
def test_maintenance_of_a_node_that_is_out_asks_what_people_said(word: str) -> None:
    world = serving(ruled(with_fields(EVICTING, no_execute=False), patterns=(), correlations=()))
    busy(world)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.cordon
    assert world.life.episode is not None
    if word == "uncordon":
        world.node = replace(world.node, cordoned_by=world.life.episode.id, unschedulable=False)
        world.settle()
        world.node = replace(world.node, cordoned_by="")
    else:
        world.pause()
    world.decisions.clear()
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    assert world.evictions == []
    assert world.life.state is State.QUARANTINED
    assert world.life.cordon is (word == "pause")
    assert "person" in world.waits
