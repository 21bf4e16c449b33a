"""The age of certificates: when they expire, who is renewed when, and what gives way to work."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.age import LEAD, PAUSE_S, SPREAD, expiry, renewal_due
from muster.operate.baselines import RecipesInForce
from muster.operate.budget import Usage
from muster.operate.coverage import InForce
from muster.operate.fleet_plan import WANTED, plan_fleet
from muster.operate.fleet_roles import PlannedNode, candidate_of
from muster.operate.model import WavePlan
from muster.operate.policy import EffectivePolicy
from muster.operate.waves import plan_wave
from muster.resources.base import ObjectMeta
from muster.resources.certification import NodeVerdict
from muster.resources.fault_policy import CertificationPolicy, DriftAction, DriftPolicy
from muster.resources.maintenance import Maintenance, MaintenanceSpec
from muster.resources.node_health import Standing, State, Verb
from tests.operate.worlds import AUTOMATED, START, World, fault, pod, readings, serving

DAY_S = 86400
AGE_S = 30 * DAY_S
TURN = WavePlan(turn=("n1",))


def aging(action: DriftAction = DriftAction.ROLL, **certification: int) -> EffectivePolicy:
    asks = CertificationPolicy(**{"max_age_s": AGE_S, "age_action": action, **certification})  # type: ignore[arg-type]
    return replace(AUTOMATED, certification=asks)


def due(action: DriftAction = DriftAction.ROLL) -> World:
    """A node whose certificate is good and due to be renewed."""
    world = serving(aging(action))
    at = renewal_due("n1", world.life, world.policy.certification)
    assert at is not None
    world.pass_time((at - world.now).total_seconds())
    world.observe()
    world.settle()
    return world


@given(name=st.text(min_size=1, max_size=30), age_s=st.integers(DAY_S, 400 * DAY_S))
def test_a_certificate_never_lives_longer_than_the_policy_says_nor_much_shorter(name: str, age_s: int) -> None:
    certificate = serving().life.certificate
    policy = CertificationPolicy(max_age_s=age_s)
    ends = expiry(certificate, name, policy)
    assert ends == expiry(certificate, name, policy)
    lives_s = (ends - certificate.issued_at).total_seconds()
    assert (1 - SPREAD) * age_s - 1 <= lives_s <= age_s + 1


def test_a_fleet_that_was_certified_in_one_moment_does_not_expire_in_one_hour() -> None:
    certificate = serving().life.certificate
    policy = CertificationPolicy(max_age_s=AGE_S)
    hours = [int((expiry(certificate, f"node-{i}", policy) - START).total_seconds() // 3600) for i in range(1000)]
    # A quarter of 30 days are 180 hours: 1000 nodes are about 6 an hour.
    assert max(hours.count(hour) for hour in set(hours)) < 25


def test_the_age_stands_in_the_certificate_and_wakes_the_node() -> None:
    world = serving(aging())
    assert world.life.certificate.expires_at == expiry(world.life.certificate, "n1", world.policy.certification)
    world.node = replace(world.node, agent_seen=None)
    at = renewal_due("n1", world.life, world.policy.certification)
    assert world.decide().recheck_at == at
    assert world.life.certificate.expires_at - at == LEAD * (
        world.life.certificate.expires_at - world.life.certificate.issued_at
    )


def test_a_limit_that_came_later_holds_for_certificates_that_were_there() -> None:
    world = serving()
    assert world.life.certificate.expires_at is None
    world.policy = aging()
    world.pass_time(AGE_S)
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE


@given(
    name=st.text(min_size=1, max_size=30),
    stated_s=st.none() | st.integers(0, 400 * DAY_S),
    age_s=st.sampled_from([0]) | st.integers(DAY_S, 400 * DAY_S),
)
def test_the_earlier_of_what_the_certificate_and_what_the_policy_says_counts(
    name: str, stated_s: int | None, age_s: int
) -> None:
    plain = serving().life.certificate
    stated = None if stated_s is None else plain.issued_at + timedelta(seconds=stated_s)
    limit = expiry(plain, name, CertificationPolicy(max_age_s=age_s))
    found = expiry(with_fields(plain, expires_at=stated), name, CertificationPolicy(max_age_s=age_s))
    assert found == min((at for at in (stated, limit) if at is not None), default=None)


def test_a_limit_that_is_lowered_holds_for_certificates_that_were_there() -> None:
    world = serving(aging())
    world.policy = aging(max_age_s=2 * DAY_S)
    world.pass_time(2 * DAY_S)
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE


def test_a_clock_that_went_back_expires_nothing_and_renews_nothing() -> None:
    world = serving(aging())
    before = world.life
    world.pass_time(-400 * DAY_S)
    world.settle()
    assert (world.life.state, world.life.certificate) == (before.state, before.certificate)
    assert world.life.history == before.history


def test_a_driver_that_came_during_a_renewal_is_tested_as_a_driver() -> None:
    world = renewing()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    assert world.life.profile == "stack"


def test_a_node_that_is_recreated_during_a_renewal_is_new() -> None:
    world = renewing()
    world.node = replace(world.node, uid="uid-2", observed=None)
    world.demand = True
    world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "bringup")
    assert world.life.certificate.standing is Standing.VOID


def test_without_a_limit_nothing_expires() -> None:
    world = serving()
    world.pass_time(3000 * DAY_S)
    world.settle()
    assert world.life.certificate.standing is Standing.VALID


def test_before_its_time_no_node_is_a_candidate_and_after_it_only_while_it_is_idle() -> None:
    world = serving(aging())
    assert candidate_of(PlannedNode(world.node, world.policy), world.life, world.now) is None
    world = due()
    found = candidate_of(PlannedNode(world.node, world.policy), world.life, world.now)
    assert found is not None
    assert found.idle_only
    usage = Usage(members=(found.member,))
    assert plan_wave([found], [], usage, world.now).turn == ("n1",)
    assert plan_wave([replace(found, busy=True)], [], usage, world.now).turn == ()
    waits = plan_wave([found], [], usage, world.now, demand=True)
    assert (waits.turn, "no pods wait" in waits.waits["n1"]) == ((), True)


@pytest.mark.parametrize("why", ["work", "demand", "budget", "silent", "cordoned", "paused", "unready"])
def test_a_renewal_takes_nobody_out_who_is_wanted_or_could_not_be_tested(why: str) -> None:
    world = due()
    world.wave = TURN
    match why:
        case "work":
            world.node = replace(world.node, pods=(pod(),))
        case "demand":
            world.demand = True
        case "budget":
            world.others_out = ("x0", "x1")
        case "silent":
            world.node = replace(world.node, agent_seen=None)
        case "cordoned":
            world.node = replace(world.node, unschedulable=True)
        case "paused":
            world.pause()
        case _:
            world.node = replace(world.node, ready=False)
    before = world.life.history
    world.settle()
    assert world.life.history == before
    assert candidate_of(PlannedNode(world.node, world.policy), world.life, world.now) is None or why in (
        "work",
        "demand",
        "budget",
    )
    assert world.life.certificate.standing is Standing.VALID


def renewing() -> World:
    world = due()
    assert "expires" in world.life.next
    world.wave = TURN
    world.settle()
    world.wave = WavePlan()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, "idle")
    assert world.life.certificate.standing is Standing.VALID
    return world


@pytest.mark.parametrize("wanted", ["work", "demand"])
def test_a_renewal_that_only_waits_gives_way_and_then_leaves_the_node_alone(wanted: str) -> None:
    world = renewing()
    if wanted == "work":
        world.node = replace(world.node, pods=(pod(),))
    else:
        world.demand = True
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert not world.life.held
    assert world.life.episode is None
    assert [n.reason for d in world.decisions for n in d.notes].count("GaveWay") == 1
    back = world.now
    world.node = replace(world.node, pods=())
    world.demand = False
    world.wave = TURN
    world.pass_time(PAUSE_S - 1)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert renewal_due("n1", world.life, world.policy.certification) == back + timedelta(seconds=PAUSE_S)
    world.pass_time(1)
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_renewal_without_a_verdict_gives_the_node_back() -> None:
    world = renewing()
    world.certify(NodeVerdict.UNDETERMINED)
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID


def test_a_renewal_that_fails_costs_the_certificate() -> None:
    world = renewing()
    world.certify(NodeVerdict.FAILED)
    assert world.life.held
    assert world.life.certificate.standing is Standing.VOID


def test_a_fault_during_a_renewal_costs_the_certificate_and_nothing_gives_way_any_more() -> None:
    world = renewing()
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.certificate.standing is Standing.VOID
    world.demand = True
    world.observe()
    world.settle()
    assert world.life.held


def test_a_change_of_the_node_during_a_renewal_is_not_given_back() -> None:
    world = renewing()
    world.observe(fp=readings(driver="580.95"))
    world.demand = True
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_certificate_that_expires_while_its_renewal_waits_gives_nothing_back() -> None:
    world = renewing()
    world.pass_time((world.life.certificate.expires_at - world.now).total_seconds())
    world.demand = True
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_an_expired_certificate_gives_nothing_back_even_where_age_is_only_reported() -> None:
    world = renewing()
    world.policy = aging(DriftAction.REPORT)
    world.pass_time((world.life.certificate.expires_at - world.now).total_seconds())
    world.demand = True
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_who_retires_a_node_or_takes_it_for_maintenance_during_a_renewal_ends_its_certificate() -> None:
    retired = renewing()
    retired.say(Verb.RETIRE)
    retired.settle()
    assert retired.life.certificate.standing is Standing.VOID
    kept = renewing()
    spec = MaintenanceSpec(
        reason="firmware", nodes=("n1",), opens_at=kept.now, closes_at=kept.now + timedelta(seconds=3600)
    )
    planned = Maintenance(metadata=ObjectMeta(name="fw"), spec=spec)
    kept.node = replace(kept.node, maintenances=(planned,))
    kept.settle()
    assert kept.life.state is State.QUARANTINED
    assert kept.life.certificate.standing is Standing.VOID


def test_a_baseline_that_is_written_with_the_same_recipe_is_no_news() -> None:
    recipes = RecipesInForce()
    first = InForce("train", (), "sha256:a")
    assert recipes.note("train", first)
    assert not recipes.note("train", InForce("train", (), "sha256:a"))
    assert recipes.note("train", InForce("train", (), "sha256:b"))
    assert recipes.note("train", None)
    assert not recipes.note("train", None)
    assert recipes.all() == ()


def test_a_plan_leaves_a_waiting_renewal_out_of_every_batch_while_pods_wait() -> None:
    world = renewing()
    nodes = [PlannedNode(world.node, world.policy)]
    later = world.now + timedelta(seconds=600)
    assert WANTED not in plan_fleet(nodes, world.fleet.usage, later).batches.waits.values()
    assert plan_fleet(nodes, world.fleet.usage, later, demand=True).batches.waits == {"n1": WANTED}


def test_a_node_that_is_never_idle_takes_its_turn_after_the_grace_inside_the_budget() -> None:
    world = _never_idle(DriftAction.ROLL)
    assert world.life.state is State.IN_SERVICE
    found = candidate_of(PlannedNode(world.node, world.policy), world.life, world.now)
    assert not found.idle_only
    world.wave = TURN
    world.settle()
    assert world.life.state is State.UNCERTIFIED


def test_a_node_that_is_never_idle_is_held_after_the_grace_where_the_policy_insists() -> None:
    assert _never_idle(DriftAction.HOLD).life.state is State.UNCERTIFIED


def test_an_age_that_is_only_reported_moves_nobody() -> None:
    world = _never_idle(DriftAction.REPORT)
    assert world.life.certificate.standing is Standing.VALID
    assert "Reported only: The certificate of 2026-01-05" in world.life.next


def _never_idle(action: DriftAction) -> World:
    policy = replace(aging(action), drift=DriftPolicy(max_grace_s=DAY_S))
    world = serving(policy)
    world.others_out = ("x0", "x1")
    world.node = replace(world.node, pods=(pod(),))
    world.pass_time((world.life.certificate.expires_at - world.now).total_seconds())
    world.settle()
    assert world.life.state is State.IN_SERVICE
    found = candidate_of(PlannedNode(world.node, policy), world.life, world.now)
    assert found is None or found.idle_only
    world.pass_time(DAY_S)
    world.observe()
    world.settle()
    world.others_out = ()
    return world


@pytest.mark.parametrize("news", ["driver", "fault"])
def test_a_grace_for_age_that_is_long_over_does_not_count_for_what_comes_after(news: str) -> None:
    """A fleet that is never idle is past it everywhere: with one driver update all of it would be held at once."""
    world = _never_idle(DriftAction.ROLL)
    world.others_out = ("x0", "x1")
    world.pass_time(30 * DAY_S)

    def see() -> None:
        faults = (fault(seen=world.now),) if news == "fault" else ()
        world.observe(*faults, fp=readings(driver="580.95") if news == "driver" else None)
        world.settle()

    see()
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.voided_at == world.now
    world.pass_time(DAY_S - 1)
    see()
    assert world.life.state is State.IN_SERVICE
    world.pass_time(1)
    see()
    assert world.life.held, "this grace does end"


def test_a_hold_of_a_person_during_a_renewal_ends_in_service() -> None:
    world = renewing()
    world.hold()
    world.settle()
    assert world.life.state is State.QUARANTINED
    world.hold(False)
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert with_fields(world.life.certificate) == world.life.certificate
