"""Repairs that nobody wants any more, that were lost, that come back; proof for each rung; whose provider."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.episode import next_attempt
from muster.operate.policy import FULL_AUTOMATION, effective_policy, with_provider
from muster.resources.fault import Hint
from muster.resources.fault_policy import Disposition, LadderStep, Pattern, PatternOver, Rule
from muster.resources.node_health import RungAttempt, State, Verb
from muster.resources.repair import Repair, RepairPhase, RepairStatus, Rung
from tests.operate.worlds import AUTOMATED, START, World, fault, pod, readings, serving


def laddered(*rungs: Rung, attempts: int = 1, **fields: object) -> World:
    """A serving node whose faults are repaired by `rungs`."""
    ladder = tuple(LadderStep(rung=r, attempts=attempts) for r in rungs)
    rule = Rule(name="all", when="true", disposition=Disposition.REPAIR, ladder=ladder)
    base = with_provider(FULL_AUTOMATION, "p")
    spec = with_fields(base.spec, rules=(rule,), patterns=(), correlations=(), priority=10, **fields)
    policy = effective_policy([with_fields(base, spec=spec)], {})
    return serving(replace(policy, patterns=(), correlations=()))


def broken(*rungs: Rung, attempts: int = 1, **fields: object) -> World:
    """The node with an open fault and the first repair asked for."""
    world = laddered(*rungs, attempts=attempts, **fields)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.REPAIRING
    return world


def set_status(world: World, **status: object) -> None:
    last = world.node.repairs[-1]
    moved = with_fields(last, status=with_fields(last.status, **status))
    world.node = replace(world.node, repairs=(*world.node.repairs[:-1], moved))


# Nobody wants it any more


@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.RETIRE])
def test_a_repair_that_has_not_begun_is_called_back_when_a_person_decides(verb: Verb) -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    name = world.node.repairs[-1].metadata.name
    world.say(verb)
    world.decide()
    assert world.cancelled == [name]
    set_status(world, phase=RepairPhase.CANCELLED)
    world.settle()
    assert world.life.state is (State.UNCERTIFIED if verb is Verb.RELEASE else State.OUT_OF_SERVICE)
    assert world.rungs == ["reboot"]


def test_a_released_node_is_not_repaired_again_by_the_same_decision_that_ends_the_repair() -> None:
    world = broken(Rung.REBOOT, Rung.POWER_CYCLE, Rung.TICKET)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now)
    world.say(Verb.RELEASE)
    world.decide()
    assert world.cancelled == []
    assert world.life.state is State.REPAIRING
    set_status(world, phase=RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.rungs == ["reboot"]


def test_a_hold_calls_back_what_has_not_begun_and_the_same_rung_is_tried_under_another_name_later() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    world.hold()
    world.decide()
    assert len(world.cancelled) == 1
    set_status(world, phase=RepairPhase.CANCELLED)
    world.settle()
    assert world.life.state is State.QUARANTINED
    world.hold(False)
    world.settle()
    assert world.life.state is State.REPAIRING
    assert world.rungs == ["reboot", "reboot"]
    assert len({r.metadata.name for r in world.node.repairs}) == 2
    assert world.life.episode is not None
    assert [a.outcome for a in world.life.episode.attempts] == ["cancelled", ""]


def test_a_provider_that_cancels_again_and_again_is_not_asked_for_ever() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    for _ in range(6):
        if world.life.state is State.REPAIRING:
            set_status(world, phase=RepairPhase.CANCELLED)
        world.pass_time(60)
        world.settle()
    assert world.rungs == ["reboot"] * 3
    assert "muster node n1 retry" in world.waits["person"]
    world.say(Verb.RETRY)
    world.settle()
    assert world.rungs == ["reboot"] * 4


@pytest.mark.parametrize("phase", [RepairPhase.PENDING, RepairPhase.RUNNING])
def test_a_repair_of_an_earlier_episode_is_called_back_or_waited_for(phase: RepairPhase) -> None:
    old = broken(Rung.REBOOT, Rung.TICKET).node.repairs[-1]
    started = START if phase is RepairPhase.RUNNING else None
    stray = with_fields(
        old,
        metadata=with_fields(old.metadata, name="old", uid="u"),
        status=RepairStatus(phase=phase, started_at=started, external_id="job-1" if started else ""),
    )
    world = World()
    world.node = replace(world.node, stray_repairs=(stray,))
    world.settle()
    world.decide()
    assert world.life.state is State.UNCERTIFIED
    if phase is RepairPhase.PENDING:
        assert world.cancelled == ["old"]
        assert "repair" not in world.waits
    else:
        assert world.cancelled == []
        assert "old" in world.waits["repair"]
    cancelled = with_fields(stray, spec=with_fields(stray.spec, cancel=True))
    world.node = replace(world.node, stray_repairs=(cancelled,))
    world.decide()
    assert world.cancelled == []


def test_what_was_asked_for_a_moment_ago_and_is_not_shown_yet_is_not_forgotten() -> None:
    world = laddered(Rung.REBOOT, Rung.TICKET)
    world.observe(fault(seen=world.now))
    world.decide()
    shown, world.node = world.node.repairs, replace(world.node, repairs=())
    world.say(Verb.RELEASE)
    world.decide()
    assert world.life.state is State.REPAIRING
    world.node = replace(world.node, repairs=shown)
    world.decide()
    assert world.cancelled == [shown[0].metadata.name]
    unseen = laddered(Rung.REBOOT, Rung.TICKET)
    unseen.observe(fault(seen=unseen.now))
    unseen.decide()
    unseen.node = replace(unseen.node, repairs=())
    unseen.say(Verb.RELEASE)
    unseen.pass_time(120)
    unseen.settle()
    assert unseen.life.state is State.UNCERTIFIED
    assert unseen.rungs == []


# Lost


def test_a_repair_that_was_seen_and_deleted_is_never_asked_for_again() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    world.node = replace(world.node, repairs=())
    for _ in range(5):
        world.pass_time(120)
        world.settle()
        assert world.rungs == []
        assert world.life.state is State.REPAIRING
    assert "is not asked for again" in world.waits["repair"]
    world.pass_time(1800)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE
    assert Rung.REBOOT.value not in world.rungs


def test_a_deleted_repair_whose_boot_is_seen_counts_by_its_effect() -> None:
    world = broken(Rung.REBOOT, Rung.TICKET)
    world.node = replace(world.node, repairs=())
    world.pass_time(300)
    world.observe(boot="boot-2", booted_at=world.now - timedelta(seconds=60))
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.episode is not None
    assert world.life.episode.attempts[-1].outcome == "proved"
    assert world.rungs == []


def test_the_boot_before_is_that_of_the_moment_when_the_attempt_began() -> None:
    world = laddered(Rung.REBOOT, Rung.TICKET)
    world.observe(fault(seen=world.now))
    world.decide()
    world.node = replace(world.node, repairs=())
    # The object is created late, by another controller, and the node has booted in between.
    world.observe(fault(seen=world.now), boot="boot-2")
    world.settle()
    assert world.node.repairs[-1].spec.boot_id_before == "boot-1"


# What comes back


def recovered(world: World, boot: str) -> None:
    """The repair under way works, and the node is certified."""
    world.repair(RepairPhase.DONE)
    world.pass_time(30)
    world.observe(boot=boot)
    world.certify()
    assert world.life.state is State.IN_SERVICE


def test_what_recurs_after_a_proved_repair_goes_on_with_the_next_rung() -> None:
    world = broken(Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.TICKET)
    recovered(world, "boot-1")
    assert world.life.earlier[-1].rung == "reset-gpu"
    world.pass_time(3600)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.rungs == ["reset-gpu", "reboot"]
    recovered(world, "boot-2")
    world.pass_time(3600)
    world.observe(fault(seen=world.now), boot="boot-2")
    world.settle()
    assert world.rungs == ["reset-gpu", "reboot", "power-cycle"]


def test_another_finding_or_an_old_one_starts_at_the_first_rung() -> None:
    for later_s, code in ((3600.0, "48"), (30 * 3600.0, "79")):
        world = broken(Rung.RESET_GPU, Rung.REBOOT, Rung.TICKET)
        recovered(world, "boot-1")
        world.pass_time(later_s)
        world.observe(fault(code, seen=world.now))
        world.settle()
        assert world.rungs == ["reset-gpu", "reset-gpu"], code


def test_a_pattern_over_repairs_says_how_long_what_comes_back_counts_as_recurring() -> None:
    world = broken(Rung.RESET_GPU, Rung.REBOOT, Rung.TICKET)
    recovered(world, "boot-1")
    month = Pattern(name="again", over=PatternOver.REPAIRS, within_s=30 * 86400, at_least=9)
    world.policy = replace(world.policy, patterns=(month,))
    world.pass_time(20 * 86400)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.rungs == ["reset-gpu", "reboot"]


def test_a_persons_retry_forgets_what_was_tried() -> None:
    world = broken(Rung.RESET_GPU, Rung.TICKET)
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.OUT_OF_SERVICE
    world.say(Verb.RETRY)
    world.settle()
    assert world.life.earlier == ()
    assert world.rungs.count("reset-gpu") == 2


@given(
    st.lists(st.tuples(st.sampled_from(list(Rung)), st.sampled_from(["failed", "cancelled", "timeout"])), max_size=6),
    st.lists(st.sampled_from(list(Rung)), max_size=3),
)
def test_the_ladder_never_goes_down_and_names_no_attempt_twice(
    made: list[tuple[Rung, str]], before: list[Rung]
) -> None:
    ladder = tuple(LadderStep(rung=r, attempts=2) for r in Rung)
    attempts: list[RungAttempt] = []
    for rung, outcome in made:
        number = 1 + sum(1 for a in attempts if a.rung == rung.value)
        attempts.append(RungAttempt(rung=rung.value, attempt=number, repair="x", outcome=outcome, at=START))
    earlier = tuple(RungAttempt(rung=r.value, attempt=1, repair="y", outcome="proved", at=START) for r in before)
    step = next_attempt(ladder, attempts, earlier)
    counted = [Rung(a.rung) for a in (*earlier, *attempts) if a.outcome != "cancelled"]
    if step is None:
        assert counted.count(Rung.TICKET) >= 2 or counted[-1] is Rung.TICKET
        return
    order = list(Rung)
    assert not counted or order.index(step.rung) >= order.index(counted[-1])
    assert counted.count(step.rung) < 2
    assert (step.rung.value, step.attempt) not in {(a.rung, a.attempt) for a in attempts}


# Proof


def test_a_driver_restart_needs_no_boot_and_a_reboot_does() -> None:
    for rung, proved in ((Rung.RESTART_DRIVER, True), (Rung.REBOOT, False)):
        world = broken(rung, Rung.TICKET)
        world.repair(RepairPhase.DONE)
        world.pass_time(60)
        world.observe(boot="boot-1")
        world.settle()
        assert (world.life.state is State.UNCERTIFIED) is proved, rung


def test_a_driver_restart_after_which_nothing_new_was_read_is_not_proved() -> None:
    world = broken(Rung.RESTART_DRIVER, Rung.TICKET)
    world.observe()
    world.node = replace(world.node, agent_seen=world.now)
    last = world.node.repairs[-1]
    done = RepairStatus(phase=RepairPhase.DONE, finished_at=world.now + timedelta(seconds=30))
    world.node = replace(world.node, repairs=(with_fields(last, status=done),))
    world.decide()
    assert world.life.state is State.REPAIRING
    assert "no observation is newer" in world.waits["repair"]


def test_a_replaced_gpu_is_proved_by_its_absence() -> None:
    world = broken(Rung.REPLACE, Rung.TICKET)
    assert world.node.repairs[-1].spec.gpu_uuids == ("GPU-1",)
    world.repair(RepairPhase.DONE)
    world.pass_time(60)
    world.observe(boot="boot-2")
    world.settle()
    assert "GPU-1, which was to be replaced, is still there" in world.waits["repair"]
    world.observe(boot="boot-2", fp=readings(gpu="GPU-9"))
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert world.life.profile == "bringup"


# Whose


def test_each_rung_goes_to_its_provider_and_one_without_is_left_out() -> None:
    world = broken(Rung.RESET_GPU, Rung.REBOOT, Rung.TICKET, providers={"reset-gpu": "jobs"})
    assert world.node.repairs[-1].spec.provider == "jobs"
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.node.repairs[-1].spec.provider == "p"
    alone = replace(AUTOMATED, repair_provider="", providers={"reboot": "bmc"})
    other = serving(alone)
    other.observe(fault("48", hint=Hint.RESET_GPU, seen=other.now))
    other.settle()
    assert other.rungs == ["reboot"]
    assert other.node.repairs[-1].spec.provider == "bmc"


def test_work_leaves_before_a_repair_and_a_finished_or_daemon_pod_is_no_work() -> None:
    world = laddered(Rung.REBOOT, Rung.TICKET)
    pods = (
        pod("train"),
        pod("done", phase="Succeeded"),
        pod("monitor", owner_kind="DaemonSet"),
        pod("gone", deleting=True),
    )
    world.node = replace(world.node, pods=pods, ready=False)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.DRAINING
    assert set(world.evictions) == {"work/train"}
    # On a node that is not Ready nothing confirms that a pod is gone: `gone` and now `train` are not waited for.
    world.node = replace(world.node, pods=(pod("train", deleting=True), *pods[1:]))
    world.settle()
    assert world.life.state is State.REPAIRING


def test_a_repair_object_is_a_value_that_another_controller_makes_alike() -> None:
    first, second = broken(Rung.REBOOT, Rung.TICKET), broken(Rung.REBOOT, Rung.TICKET)
    assert isinstance(first.node.repairs[-1], Repair)
    assert first.node.repairs == second.node.repairs
