"""People win: holds, decisions, pauses, uncordons are obeyed once, recorded and shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.resources.certification import NodeVerdict
from muster.resources.node_health import CauseKind, Standing, State, Verb
from muster.resources.repair import RepairPhase
from tests.operate.worlds import SAFE, World, fault, pod, readings, serving, states


def quarantined() -> World:
    world = serving(SAFE)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED
    return world


def test_a_hold_needs_no_budget_and_its_removal_no_test() -> None:
    world = serving()
    world.others_out = tuple(m.name for m in world.others)
    certificate = world.life.certificate
    world.hold()
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert world.life.episode.cause.kind is CauseKind.PERSON
    assert "ada" in world.life.next
    world.hold(False)
    world.settle()
    assert states(world.life)[-2:] == ["Quarantined", "InService"]
    assert world.life.certificate == certificate


def test_after_a_hold_under_which_the_node_changed_it_must_pass() -> None:
    world = serving()
    world.hold()
    world.settle()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    world.hold(False)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.profile == "stack"


def test_a_hold_keeps_automation_from_starting_anything() -> None:
    world = serving()
    world.hold()
    world.settle()
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert not world.node.repairs
    world.hold(False)
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_hold_ends_a_drain() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    world.decisions.clear()
    world.hold()
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert world.evictions == []


@pytest.mark.parametrize("state", ["fault", "drift", "uncertified"])
def test_a_paused_node_starts_nothing(state: str) -> None:
    world = serving() if state != "uncertified" else World()
    world.pause()
    match state:
        case "fault":
            world.observe(fault(seen=world.now))
        case "drift":
            world.observe(fp=readings(gpu="GPU-2"))
        case _:
            pass
    world.settle()
    assert not world.node.repairs
    assert any("paused" in b.message for b in world.life.blockers)
    assert world.life.state is (State.UNCERTIFIED if state == "uncertified" else State.IN_SERVICE)
    if state != "uncertified":
        assert world.life.certificate.standing is Standing.GRACE


def test_release_waives_the_fault_until_it_is_seen_again_and_still_certifies() -> None:
    world = quarantined()
    world.pass_time(60)
    world.say(Verb.RELEASE)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.decision_seen == "d1"
    assert states(world.life)[-1] == "Uncertified"
    world.certify()
    assert world.life.state is State.IN_SERVICE
    world.pass_time(60)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED


def test_a_decision_is_obeyed_once() -> None:
    world = quarantined()
    world.pass_time(60)
    world.say(Verb.RETIRE)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE
    history = world.life.history
    world.pass_time(600)
    world.settle()
    assert world.life.history == history
    world.say(Verb.RETRY, "d2")
    world.settle()
    assert world.life.state is State.QUARANTINED


def test_retry_from_out_of_service_opens_a_new_episode_with_a_new_ladder() -> None:
    world = serving()
    world.say(Verb.RETIRE)
    world.settle()
    episode = world.life.episode.id
    world.pass_time(60)
    world.say(Verb.RETRY, "d2")
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.episode.id != episode
    world.certify(NodeVerdict.FAILED)
    assert [a.rung for a in world.life.episode.attempts] == ["reset-gpu"]


def test_a_release_waits_for_the_repair_that_runs() -> None:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    world.pass_time(60)
    world.say(Verb.RELEASE)
    world.settle()
    assert world.life.state is State.REPAIRING
    assert world.life.decision_seen == ""
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.decision_seen == "d1"


def test_an_approval_with_nothing_to_approve_is_acknowledged_and_said() -> None:
    world = serving()
    world.say(Verb.APPROVE)
    decision = world.settle()
    assert world.life.decision_seen == "d1"
    assert "NothingToApprove" in [n.reason for n in decision.notes]


def test_an_approval_lets_one_node_past_a_halted_roll_out() -> None:
    world = serving()
    world.observe(fp=readings(driver="bad"))
    change = "driver.version=bad"
    world.wave = replace(world.wave, halted={change: "halted"}, waits={"n1": "halted"})
    world.settle()
    assert world.life.state is State.IN_SERVICE
    world.say(Verb.APPROVE)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.decision_seen == "d1"


def test_our_cordon_lifted_by_a_person_is_obeyed_and_recorded() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.cordon
    world.node = replace(world.node, cordoned_by=world.life.episode.id, unschedulable=False)
    decision = world.settle()
    assert "UncordonedByPerson" in [n.reason for n in decision.notes]
    assert not world.life.cordon
    world.node = replace(world.node, cordoned_by="", pods=())
    world.settle()
    assert world.life.state is State.DRAINING
    assert not world.node.repairs
    world.say(Verb.RETRY)
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_cordon_not_yet_seen_on_the_node_is_not_mistaken_for_a_persons_uncordon() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    world.node = replace(world.node, cordoned_by="", unschedulable=False)
    world.settle()
    assert world.life.cordon


def test_a_persons_cordon_is_said_and_not_called_taking_work() -> None:
    world = serving()
    world.settle()
    assert world.life.next == "Takes work."
    world.node = replace(world.node, unschedulable=True)
    world.settle()
    assert world.life.next.startswith("In service. A person cordoned the node")
    assert not world.life.cordon
    world.node = replace(world.node, unschedulable=False)
    world.settle()
    assert world.life.next == "Takes work."


def test_a_pause_is_said_while_the_node_works() -> None:
    world = serving()
    world.pause()
    world.settle()
    assert "A person paused the node" in world.life.next


def test_a_node_that_is_not_ready_is_not_said_to_take_work() -> None:
    world = serving()
    world.node = replace(world.node, ready=False)
    world.settle()
    assert world.life.next == "In service. The node is not Ready; its health is unknown."
