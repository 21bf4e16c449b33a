"""Certificates: bring-up, verdicts, drift, grace, age, recreated nodes, silent agents."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields

from muster.operate.certificates import drift_cause
from muster.operate.decide import decide
from muster.operate.model import FleetView, NodeView, WavePlan
from muster.operate.validation import LONELY_FACTOR
from muster.resources.certification import NodeVerdict, Phase, Reason
from muster.resources.fault_policy import DriftAction, DriftPolicy
from muster.resources.fingerprint import Change, ReadingClass
from muster.resources.node_health import CauseKind, Standing, State, Verb
from tests.operate.worlds import AUTOMATED, START, World, fault, pod, readings, serving, states

TURN = WavePlan(turn=("n1",))


@pytest.mark.requirement("v2.4/OPO01")
def test_a_new_node_is_held_for_the_bring_up_profile() -> None:
    world = World()
    decision = world.decide()
    assert world.life.state is State.UNCERTIFIED
    assert (world.life.held, world.life.profile) == (True, "bringup")
    assert world.life.episode.cause.kind is CauseKind.NEW_NODE
    assert [t.state for t in decision.transitions] == [State.UNCERTIFIED]


@pytest.mark.requirement("v2.4/K8S06")
def test_work_that_slipped_onto_a_new_node_is_reported_and_waited_for() -> None:
    world = World()
    world.node = replace(world.node, pods=(pod(),))
    decision = world.settle()
    assert [n.reason for n in decision.notes] == ["WorkBeforeHold"]
    assert [b.kind for b in world.life.blockers] == ["pod"]
    assert "Work came to the node before it could be held: work/train-0" in world.life.next
    assert "work/train-0" in world.life.history[0].cause.message
    assert world.evictions == []


def test_work_that_slips_in_between_the_first_look_and_the_hold_is_reported_once() -> None:
    world = World()
    world.settle()
    world.node = replace(world.node, pods=(pod(),))
    world.settle()
    world.pass_time(60)
    world.settle()
    assert [n.reason for d in world.decisions for n in d.notes] == ["WorkBeforeHold"]
    assert "before it could be held" in world.life.next


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"ready": False}, "node"),
        ({"observed": None}, "agent"),
        ({"agent_seen": START - timedelta(hours=1)}, "agent"),
        ({"pods": (pod(),)}, "pod"),
    ],
)
def test_no_certification_is_asked_for_while_something_is_missing(change: dict[str, object], kind: str) -> None:
    world = World()
    world.node = replace(world.node, **change)  # type: ignore[arg-type]
    world.settle()
    assert [b.kind for b in world.life.blockers] == [kind]
    assert world.life.state is State.UNCERTIFIED


def test_an_observation_of_another_incarnation_counts_as_none() -> None:
    world = World()
    world.node = replace(world.node, observed=with_fields(world.node.observed, node_uid="older"))
    world.settle()
    assert [b.kind for b in world.life.blockers] == ["agent"]


def test_a_pass_issues_a_certificate_for_the_fingerprint_that_was_tested() -> None:
    world = serving()
    certificate = world.life.certificate
    assert certificate.standing is Standing.VALID
    assert certificate.fingerprint == readings()
    assert (certificate.node_uid, certificate.profile) == ("uid-1", "bringup")
    assert not world.life.held


@pytest.mark.parametrize("change", [{"fp": readings(driver="other")}, {"boot": "boot-9"}])
def test_a_node_that_changes_while_it_is_tested_gets_no_certificate(change: dict[str, object]) -> None:
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification()
    world.settle()
    world.pass_time(60)
    world.observe(**change)  # type: ignore[arg-type]
    world.certification(Phase.SUCCEEDED)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.certificate is None


def test_a_pass_waits_for_the_agent_to_confirm_the_fingerprint() -> None:
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification()
    world.settle()
    world.now += timedelta(hours=1)
    world.certification(Phase.SUCCEEDED)
    world.settle()
    assert world.life.state is State.CERTIFYING
    assert [b.kind for b in world.life.blockers] == ["agent"]
    world.pass_time(1)
    world.settle()
    assert world.life.state is State.IN_SERVICE


@pytest.mark.parametrize("verdict", [NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED])
def test_no_verdict_is_neither_pass_nor_fail_and_after_three_a_person_is_asked(verdict: NodeVerdict) -> None:
    world = World()
    for count in range(1, 4):
        world.certify(verdict)
        assert world.life.state is State.UNCERTIFIED
        assert any(b.kind == "person" for b in world.life.blockers) is (count == 3)
    world.say(Verb.RETRY)
    world.settle()
    assert [b.kind for b in world.life.blockers] == ["batch"]


def test_an_old_result_is_not_read_twice() -> None:
    world = World()
    world.certify(NodeVerdict.UNDETERMINED)
    world.pass_time(600)
    world.settle()
    assert states(world.life) == ["Uncertified", "Certifying", "Uncertified"]


def test_a_certification_that_the_controller_did_not_ask_for_moves_nobody() -> None:
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification(Phase.SUCCEEDED)
    world.node = replace(world.node, certifications=(replace(world.node.certifications[0], request=None),))
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_deleted_certification_sends_the_node_back() -> None:
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification()
    world.settle()
    world.node = replace(world.node, certifications=())
    world.pass_time(60)
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_stack_drift_keeps_the_node_at_work_under_a_visible_bounded_grace() -> None:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    certificate = world.life.certificate
    assert world.life.state is State.IN_SERVICE
    assert certificate.standing is Standing.GRACE
    assert "driver.version changed from 580.65 to 580.95" in world.life.next
    assert certificate.voided_at == world.now
    world.pass_time(AUTOMATED.drift.max_grace_s - 1)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    world.pass_time(1)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.certificate.standing is Standing.VOID


def test_the_end_of_grace_does_not_ask_the_budget_and_is_woken_for() -> None:
    world = serving()
    world.others_out = ("x0", "x1")
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    world.node = replace(world.node, agent_seen=None)
    ends = world.life.certificate.voided_at + timedelta(seconds=AUTOMATED.drift.max_grace_s)
    assert world.decide().recheck_at == ends
    world.pass_time(AUTOMATED.drift.max_grace_s)
    world.settle()
    assert world.life.held


def test_when_its_turn_comes_the_node_is_held_and_running_work_may_finish() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    world.wave = TURN
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert (world.life.profile, world.life.held) == ("stack", True)
    assert world.life.episode.cause.name == "driver.version=580.95"
    assert [b.kind for b in world.life.blockers] == ["pod"]
    assert world.evictions == []


def test_a_turn_without_room_in_the_budget_is_not_taken() -> None:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.wave = TURN
    world.others_out = ("x0", "x1")
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert [b.kind for b in world.life.blockers] == ["budget"]


def test_a_change_that_is_undone_restores_the_certificate() -> None:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    world.observe(fp=readings())
    world.settle()
    assert world.life.certificate.standing is Standing.VALID
    assert world.life.certificate.voided_at is None
    assert world.life.profile == ""


def test_a_change_is_named_alike_on_nodes_with_different_numbers_of_gpus() -> None:
    def change(gpus: int) -> str:
        changed = [
            Change(name=f"gpu.{i}.firmware", reading_class=ReadingClass.STACK, before="1", after="2")
            for i in range(gpus)
        ]
        return drift_cause(tuple(changed)).name

    assert change(8) == change(4) == "gpu.*.firmware=2"


def test_identity_drift_is_held_at_once_for_the_bring_up_profile() -> None:
    world = serving()
    world.observe(fp=readings(gpu="GPU-2"))
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.profile == "bringup"


def test_config_drift_is_reported_and_changes_nothing() -> None:
    world = serving()
    world.observe(fp=readings(sysctl="60"))
    world.settle()
    assert world.life.certificate.standing is Standing.VALID
    assert "sysctl.vm.swappiness changed from 1 to 60" in world.life.next


def test_config_drift_rolls_when_the_policy_says_so() -> None:
    world = serving(replace(AUTOMATED, drift=DriftPolicy(config=DriftAction.ROLL)))
    world.observe(fp=readings(sysctl="60"))
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE


def test_an_expired_certificate_asks_for_the_idle_profile() -> None:
    world = serving()
    expires = world.now + timedelta(days=1)
    aged = with_fields(world.life.certificate, expires_at=expires)
    world.node = replace(world.node, lifecycle=with_fields(world.life, certificate=aged))
    world.settle()
    assert world.life.certificate.standing is Standing.VALID
    world.pass_time(86400)
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE
    assert world.life.profile == "idle"


def test_a_node_recreated_under_its_name_starts_anew_from_every_state() -> None:
    worlds = [serving(), World(), serving()]
    worlds[1].settle()
    worlds[2].observe(fault(seen=worlds[2].now))
    worlds[2].settle()
    for world in worlds:
        before = world.life.episode
        world.node = replace(world.node, uid="uid-2", repairs=(), certifications=())
        world.observe()
        world.settle()
        assert world.life.state is State.UNCERTIFIED
        assert world.life.profile == "bringup"
        assert world.life.certificate is None or world.life.certificate.standing is Standing.VOID
        assert world.life.episode != before
        assert world.life.episode.cause.kind is CauseKind.NEW_NODE


@pytest.mark.parametrize("change", [{"ready": False}, {"agent_seen": None}, {"observed": None}])
def test_what_is_unknown_about_a_working_node_disturbs_nothing(change: dict[str, object]) -> None:
    world = serving()
    world.node = replace(world.node, **change)  # type: ignore[arg-type]
    decision = world.settle()
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID
    assert not decision.intents
    assert world.life.blockers


def test_deciding_again_without_news_gives_the_same() -> None:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    again = decide(world.node, world.fleet, world.policy, world.now + timedelta(seconds=1))
    assert again.lifecycle == world.life
    assert again.transitions == ()


def test_a_node_without_anything_known_is_decided_too() -> None:
    bare = NodeView(name="bare", uid="u")
    decision = decide(bare, FleetView(usage=World().fleet.usage), AUTOMATED, START)
    assert decision.lifecycle.held
    assert decision.lifecycle.next


def _undetermined(world: World, reason: Reason) -> None:
    world.settle()
    world.pass_time(60)
    world.certification()
    world.settle()
    assert world.life.state is State.CERTIFYING, world.life.next
    world.pass_time(600)
    world.certification(Phase.FAILED, NodeVerdict.UNDETERMINED)
    last = replace(world.node.certifications[-1], reason=reason)
    world.node = replace(world.node, certifications=(*world.node.certifications[:-1], last))
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_want_of_a_partner_is_not_held_against_the_node() -> None:
    most = AUTOMATED.certification.max_attempts
    lonely, unclear = World(), World()
    for _ in range(most):
        _undetermined(lonely, Reason.NO_PARTNER)
        _undetermined(unclear, Reason.BANDWIDTH)
    assert [b.kind for b in unclear.life.blockers] == ["person"]
    assert [b.kind for b in lonely.life.blockers] == ["batch"]
    lonely.certify()
    assert lonely.life.state is State.IN_SERVICE


def test_a_node_that_never_finds_a_partner_is_shown_to_a_person_in_the_end() -> None:
    most = AUTOMATED.certification.max_attempts * LONELY_FACTOR
    world = World()
    for _ in range(most):
        _undetermined(world, Reason.NO_PARTNER)
    assert [b.kind for b in world.life.blockers] == ["person"]
    assert f"{most} certifications ended without a verdict" in world.life.next
    world.say(Verb.RETRY)
    world.settle()
    assert [b.kind for b in world.life.blockers] == ["batch"]
