"""Faults: hold, drain, repair by the ladder, proof, recertification, ticket."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.model import CreateRepair, DeletePod, Refusal
from muster.operate.policy import EffectivePolicy
from muster.resources.certification import NodeVerdict
from muster.resources.fault import Hint, Severity
from muster.resources.fault_policy import Budget, Disposition, Drain, DrainMode, LadderStep, Rule
from muster.resources.node_health import CauseKind, Standing, State
from muster.resources.repair import RepairPhase, Rung
from tests.operate.worlds import AUTOMATED, SAFE, World, fault, pod, serving, states


def rule(disposition: Disposition, grace_s: int = 0, *ladder: LadderStep) -> EffectivePolicy:
    made = Rule(name="test", when="true", disposition=disposition, grace_s=grace_s, ladder=ladder)
    return replace(AUTOMATED, rules=(made,))


def faulty(policy: EffectivePolicy = AUTOMATED, **fields: object) -> World:
    world = serving(policy)
    world.pass_time(600)
    world.observe(fault(seen=world.now, **fields))  # type: ignore[arg-type]
    world.settle()
    return world


def test_a_disqualifying_fault_voids_the_certificate_and_goes_to_repair_without_work() -> None:
    world = faulty()
    assert states(world.life)[-3:] == ["InService", "Quarantined", "Repairing"]
    assert world.life.certificate.standing is Standing.VOID
    assert world.life.episode.cause.kind is CauseKind.FAULT
    repair = world.node.repairs[0]
    assert repair.metadata.name == f"n1-{world.life.episode.id}-reboot-1"
    assert (repair.spec.boot_id_before, repair.spec.provider) == ("boot-1", "test-provider")


@pytest.mark.requirement("v2.4/OIE05")
def test_the_safe_default_holds_and_repairs_nothing() -> None:
    world = faulty(SAFE)
    assert world.life.state is State.QUARANTINED
    assert world.life.held
    assert not world.node.repairs
    assert "only holds" in world.life.next


@pytest.mark.parametrize("disposition", [Disposition.IGNORE, Disposition.OBSERVE, Disposition.CONDITION])
def test_milder_dispositions_leave_the_node_at_work(disposition: Disposition) -> None:
    world = faulty(rule(disposition))
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID


def test_an_unknown_severity_never_acts_whatever_the_rule_says() -> None:
    world = faulty(rule(Disposition.REPAIR), severity=Severity.UNKNOWN)
    assert world.life.state is State.IN_SERVICE
    assert not world.life.held


def test_the_grace_of_a_rule_is_waited_for_and_asked_again_in_time() -> None:
    world = serving(rule(Disposition.HOLD, 300))
    seen = world.now
    world.observe(fault(seen=seen))
    decision = world.settle()
    assert world.life.state is State.IN_SERVICE
    assert decision.recheck_at == seen + timedelta(seconds=300)
    world.pass_time(300)
    world.settle()
    assert world.life.state is State.QUARANTINED


def test_a_spent_budget_leaves_the_node_in_grace_with_both_blockers_named() -> None:
    world = serving()
    world.others_out = ("x0", "x1")
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.GRACE
    assert [b.kind for b in world.life.blockers] == ["budget", "fault"]
    world.others_out = ()
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_fault_that_went_away_before_the_hold_still_asks_for_recertification() -> None:
    world = serving()
    world.others_out = ("x0", "x1")
    world.observe(fault(seen=world.now))
    world.settle()
    world.observe()
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE
    world.wave = replace(world.wave, turn=("n1",))
    world.others_out = ()
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.profile == "repair"


def test_approval_mode_waits_for_a_person_and_uses_the_word_once() -> None:
    policy = replace(AUTOMATED, budget=Budget(require_approval=True))
    world = faulty(policy)
    assert world.life.state is State.IN_SERVICE
    assert "approve" in world.life.next
    from muster.resources.node_health import Verb

    world.say(Verb.APPROVE)
    world.settle()
    assert world.life.state is State.REPAIRING
    assert world.life.decision_seen == "d1"


def test_work_is_evicted_before_a_repair_and_daemonsets_and_finished_pods_are_not() -> None:
    world = serving()
    world.node = replace(
        world.node,
        pods=(
            pod("train"),
            pod("ds", owner_kind="DaemonSet"),
            pod("done", phase="Succeeded"),
            pod("test", certification="c"),
            pod("leaving", deleting=True),
        ),
    )
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.DRAINING
    assert set(world.evictions) == {"work/train"}
    assert world.life.cordon
    world.node = replace(world.node, pods=(pod("ds", owner_kind="DaemonSet"), pod("done", phase="Failed")))
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_drain_ends_when_the_fault_goes_away() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    world.observe()
    decision = world.settle()
    assert states(world.life)[-2:] == ["Draining", "Uncertified"]
    assert not decision.intents
    assert not world.life.cordon


@pytest.mark.parametrize("force", [False, True])
def test_a_protected_pod_is_waited_for_then_escalated_as_the_policy_says(force: bool) -> None:
    policy = replace(AUTOMATED, drain=Drain(deadline_s=600, force_after_deadline=force))
    world = serving(policy)
    world.node = replace(world.node, pods=(pod(),), refusals=(Refusal("uid-train-0", "budget"),))
    world.observe(fault(seen=world.now))
    world.settle()
    assert "PodDisruptionBudget" in world.life.blockers[0].message
    assert not any(isinstance(i, DeletePod) for d in world.decisions for i in d.intents)
    world.pass_time(601)
    decision = world.decide()
    assert any(isinstance(i, DeletePod) for i in decision.intents) is force
    assert any(n.reason == "DrainOverdue" for n in decision.notes) is not force


def test_pods_that_a_dead_kubelet_cannot_confirm_do_not_hold_up_the_repair() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),), ready=False)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.DRAINING
    assert set(world.evictions) == {"work/train-0"}
    world.node = replace(world.node, pods=(pod(deleting=True),))
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_pod_that_does_not_leave_a_ready_node_is_named_after_the_deadline() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(deleting=True),))
    world.observe(fault(seen=world.now))
    world.settle()
    world.pass_time(AUTOMATED.drain.deadline_s + 1)
    decision = world.decide()
    assert world.life.state is State.DRAINING
    assert "work/train-0 have not left" in world.life.next
    assert any(n.reason == "DrainOverdue" for n in decision.notes)


def test_wait_for_completion_evicts_nothing() -> None:
    world = serving(replace(AUTOMATED, drain=Drain(mode=DrainMode.WAIT_FOR_COMPLETION)))
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    world.pass_time(7 * 86400)
    world.settle()
    assert world.life.state is State.DRAINING
    assert world.evictions == []


def test_done_without_a_changed_boot_id_is_no_success() -> None:
    world = faulty()
    opened = fault(seen=world.now)
    world.repair(RepairPhase.DONE)
    world.observe(opened)
    world.settle()
    assert world.life.state is State.REPAIRING
    assert "boot ID has not changed" in world.life.next
    world.pass_time(901)
    world.settle()
    assert world.life.episode.attempts[0].outcome == "failed"
    assert world.life.episode.attempts[1].rung == "power-cycle"


def test_a_changed_boot_id_with_the_fault_still_open_is_no_success() -> None:
    world = faulty()
    world.repair(RepairPhase.DONE)
    world.observe(fault(seen=world.now - timedelta(seconds=400)), boot="boot-2")
    world.settle()
    assert world.life.state is State.REPAIRING
    assert "still open" in world.life.next


def test_a_fault_seen_after_the_repair_ends_the_attempt_at_once() -> None:
    world = faulty()
    world.repair(RepairPhase.DONE)
    world.pass_time(30)
    world.observe(fault(seen=world.now), boot="boot-2")
    world.settle()
    assert world.life.episode.attempts[0].outcome == "failed"
    assert world.life.episode.attempts[1].rung == "power-cycle"


def test_proof_leads_to_recertification_and_then_to_service() -> None:
    world = faulty()
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert (world.life.profile, world.life.held) == ("repair", True)
    assert world.life.episode.attempts[0].outcome == "proved"
    world.certify()
    assert world.life.state is State.IN_SERVICE
    assert world.life.episode is None


def test_failed_recertification_takes_the_next_rung_in_the_same_episode() -> None:
    world = faulty(hint=Hint.RESET_GPU)
    episode = world.life.episode.id
    assert world.life.episode.attempts[0].rung == "reset-gpu"
    world.repair(RepairPhase.DONE)
    world.pass_time(60)
    world.observe()
    world.settle()
    world.certify(NodeVerdict.FAILED)
    assert world.life.state is State.REPAIRING
    assert world.life.episode.id == episode
    assert [a.outcome for a in world.life.episode.attempts] == ["recertification-failed", ""]
    assert world.life.episode.attempts[1].rung == "reboot"


def test_a_repair_that_times_out_takes_the_next_rung() -> None:
    world = faulty()
    world.repair(RepairPhase.RUNNING)
    world.pass_time(1800 + 120)
    world.settle()
    assert [a.outcome for a in world.life.episode.attempts] == ["timeout", ""]


def test_a_recurring_fault_goes_on_up_the_ladder() -> None:
    world = faulty()
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    world.pass_time(60)
    world.observe(fault(seen=world.now), boot="boot-2")
    world.settle()
    assert [a.outcome for a in world.life.episode.attempts] == ["recurred", ""]
    assert world.life.episode.attempts[1].rung == "power-cycle"


def test_a_spent_ladder_opens_a_ticket_and_leaves_the_rest_to_a_person() -> None:
    world = faulty(rule(Disposition.REPAIR, 0, LadderStep(rung=Rung.REBOOT), LadderStep(rung=Rung.TICKET)))
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE
    assert world.life.held
    assert world.life.episode.ticket == world.node.repairs[-1].metadata.name
    assert any(n.reason == "TicketOpened" for d in world.decisions for n in d.notes)
    world.observe()
    world.pass_time(30 * 86400)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE


def test_a_lost_repair_object_is_not_asked_for_twice_once_the_node_has_booted() -> None:
    world = faulty()
    world.node = replace(world.node, repairs=())
    world.pass_time(300)
    world.observe(boot="boot-2")
    world.node = replace(world.node, observed=with_fields(world.node.observed, booted_at=world.now))
    decision = world.decide()
    assert not any(isinstance(i, CreateRepair) for i in decision.intents)
    assert world.life.state is State.UNCERTIFIED


def test_a_boot_in_the_future_by_the_clock_of_the_node_is_not_the_repair_that_is_just_begun() -> None:
    world = serving(AUTOMATED)
    world.observe(fault(seen=world.now))
    ahead = world.now + timedelta(minutes=10)
    world.node = replace(world.node, observed=with_fields(world.node.observed, booted_at=ahead))
    world.decide()
    assert world.life.state is State.REPAIRING
    assert [r.spec.rung for r in world.node.repairs] == [Rung.REBOOT]
    # The watch may show the Repair somewhat later.
    shown, world.node = world.node.repairs, replace(world.node, repairs=())
    world.pass_time(5)
    world.decide()
    assert "is asked for" in world.life.blockers[0].message
    world.node = replace(world.node, repairs=shown)
    world.repair(RepairPhase.RUNNING)
    world.settle()
    assert world.life.state is State.REPAIRING


def test_attempts_are_counted_by_rung() -> None:
    world = faulty(
        rule(Disposition.REPAIR, 0, LadderStep(rung=Rung.REBOOT, attempts=2), LadderStep(rung=Rung.TICKET))
    )
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert [(a.rung, a.attempt) for a in world.life.episode.attempts] == [("reboot", 1), ("reboot", 2)]
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE


EVENTS = (
    "fault",
    "clear",
    "boot",
    "done",
    "failed",
    "pods",
    "nopods",
    "hold",
    "unhold",
    "pause",
    "go",
    "drift",
    "time",
)


@given(st.lists(st.sampled_from(EVENTS), max_size=25))
def test_whatever_happens_decisions_settle_and_say_what_is_next(events: list[str]) -> None:
    world = serving()
    boots = 1
    faults: tuple[object, ...] = ()
    for event in events:
        world.pass_time(120)
        match event:
            case "fault":
                faults = (fault(seen=world.now),)
            case "clear":
                faults = ()
            case "boot":
                boots += 1
            case "done" | "failed" if world.node.repairs:
                world.repair(RepairPhase.DONE if event == "done" else RepairPhase.FAILED)
            case "pods" | "nopods":
                world.node = replace(world.node, pods=(pod(),) if event == "pods" else ())
            case "hold" | "unhold":
                world.hold(event == "hold")
            case "pause" | "go":
                world.pause(event == "pause")
            case _:
                world.pass_time(1000)
        world.observe(*faults, boot=f"boot-{boots}")  # type: ignore[arg-type]
        world.settle()
        life = world.life
        assert life.next.endswith(".")
        assert life.held == (life.state is not State.IN_SERVICE)
        assert (life.episode is None) == (life.state is State.IN_SERVICE)
        assert life.held or life.certificate.standing is not Standing.VOID
