"""What patterns and correlations mean for one node, and what rules ask for beside the hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from msgspec.structs import replace as with_fields

from muster.operate.correlation.model import Correlated, Correlations
from muster.operate.fleet_plan import plan_fleet
from muster.operate.fleet_roles import PlannedNode
from muster.operate.model import NOTE_REASONS, NodeView
from muster.operate.policy import FULL_AUTOMATION, EffectivePolicy, effective_policy, with_provider
from muster.operate.projection import taints
from muster.resources.base import HOLD_TAINT
from muster.resources.fault import Burst, Fault, Severity
from muster.resources.fault_policy import Disposition, Pattern, Rule
from muster.resources.node_health import State, Verb
from muster.resources.repair import RepairPhase
from tests.operate.worlds import AUTOMATED, World, fault, pod, serving


def ruled(*rules: Rule, **sections: object) -> EffectivePolicy:
    base = with_provider(FULL_AUTOMATION, "p")
    spec = with_fields(base.spec, rules=(*rules, *base.spec.rules))
    return replace(effective_policy([with_fields(base, spec=spec)], {}), **sections)  # type: ignore[arg-type]


def with_bursts(world: World, count: int) -> Fault:
    at = tuple(world.now - timedelta(minutes=10 * n) for n in reversed(range(count)))
    found = fault("31", severity=Severity.WARNING, seen=at[0])
    return with_fields(
        found, last_seen=world.now, count=count, bursts=tuple(Burst(at=moment, until=moment) for moment in at)
    )


THRICE = Pattern(
    name="thrice", within_s=86400, at_least=3, severity=Severity.FATAL, message="It comes again and again"
)
ON_PATTERN = Rule(name="on-pattern", when="fault.check == 'pattern'", disposition=Disposition.REPAIR)


def test_what_a_pattern_concludes_is_judged_and_goes_with_a_proved_repair() -> None:
    from muster.resources.fault import Hint

    thrice = with_fields(THRICE, hint=Hint.REBOOT)
    world = serving(ruled(ON_PATTERN, patterns=(thrice,), correlations=()))
    world.observe(with_bursts(world, 2))
    world.settle()
    assert world.life.derived == ()
    assert world.life.state is State.IN_SERVICE
    found = with_bursts(world, 3)
    world.observe(found)
    world.settle()
    assert [f.code for f in world.life.derived] == ["thrice"]
    assert world.life.state is State.REPAIRING
    assert world.life.episode is not None
    assert "pattern/thrice" in world.life.episode.cause.name
    world.repair(RepairPhase.DONE)
    world.pass_time(60)
    world.observe(boot="boot-2")
    world.settle()
    # The proof is the boot and a clean reading; the pattern's own fault does not stand in its way.
    assert world.life.state is State.UNCERTIFIED
    assert world.life.derived == ()


def test_deciding_again_keeps_what_was_concluded() -> None:
    world = serving(ruled(ON_PATTERN, patterns=(THRICE,), correlations=()))
    world.observe(with_bursts(world, 3))
    world.settle()
    before = world.life
    for _ in range(3):
        assert world.decide().lifecycle == before


def shared(world: World, disposition: Disposition = Disposition.CONDITION) -> Correlations:
    held = Correlated(
        correlation="many",
        group="d0",
        kind="xid/79",
        nodes=("n1", "n2", "n3"),
        since=world.now,
        change="driver.version 580.65 -> 580.95",
        disposition=disposition,
        message="XID 79 on 3 nodes of d0 after driver.version 580.65 -> 580.95.",
    )
    return Correlations(by_node={"n1": {"xid/79": held}})


def test_a_finding_that_many_nodes_have_takes_no_node_out_and_names_the_change() -> None:
    world = serving()
    world.correlations = shared(world)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert "580.65 -> 580.95" in world.waits["correlation"]
    assert "many" in world.waits["correlation"]
    assert [n.reason for d in world.decisions for n in d.notes].count("AutomationHeldBack") == 1


def test_a_node_that_is_out_for_it_stays_where_it_is_and_no_repair_is_started() -> None:
    world = serving()
    busy = (pod("train"),)
    world.node = replace(world.node, pods=busy)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.DRAINING
    world.correlations = shared(world)
    world.node = replace(world.node, pods=())
    world.pass_time(60)
    world.settle()
    assert world.life.state is State.DRAINING
    assert world.rungs == []
    assert "correlation" in world.waits
    world.correlations = Correlations()
    world.settle()
    assert world.rungs == ["reboot"]


def test_a_correlation_that_only_lets_hold_holds_and_says_why() -> None:
    world = serving()
    world.correlations = shared(world, Disposition.HOLD)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert world.rungs == []
    assert "580.65 -> 580.95" in world.waits["correlation"]


def test_a_node_that_waits_for_its_tests_is_not_tested_with_a_finding_that_many_have() -> None:
    world = World()
    world.correlations = shared(world)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert "correlation" in world.waits
    assert "batch" not in world.waits


def test_a_repair_is_not_proved_by_a_correlation_that_hides_its_fault() -> None:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    world.correlations = shared(world)
    world.repair(RepairPhase.DONE)
    world.pass_time(30)
    world.observe(fault(seen=world.now, boot="boot-2"), boot="boot-2")
    world.settle()
    assert world.life.episode is not None
    assert world.life.episode.attempts[0].outcome == "failed"
    assert world.life.state is State.QUARANTINED


def test_the_plan_sees_the_same_finding_on_many_nodes() -> None:
    planned = []
    for number in range(6):
        world = serving()
        name = f"n{number}"
        world.observe(fault(seen=world.now))
        life = with_fields(world.life, told={fault().key(): world.now})
        view = replace(world.node, name=name, lifecycle=life, labels={"topology.muster.dev/domain": "d0"})
        planned.append(PlannedNode(view, AUTOMATED))
    found = plan_fleet(planned, World().fleet.usage, planned[0].view.observed.observed_at)  # type: ignore[union-attr]
    assert set(found.correlations.by_node) == {f"n{i}" for i in range(6)}
    calm = [replace(p, view=replace(p.view, observed=None)) for p in planned]
    assert plan_fleet(calm, World().fleet.usage, World().now).correlations.by_node == {}


# Beside the hold

EVICTING = Rule(name="e", when="true", disposition=Disposition.HOLD, no_execute=True, cordon=True)


def test_a_rule_may_cordon_and_evict_and_both_end_with_the_fault() -> None:
    world = serving(ruled(EVICTING, patterns=(), correlations=()))
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.QUARANTINED
    assert (world.life.cordon, world.life.no_execute) == (True, True)
    foreign = {"key": "other", "effect": "NoExecute", "value": "x"}
    there = taints(world.life, [foreign])
    assert [(t["key"], t["effect"]) for t in there] == [
        ("other", "NoExecute"),
        (HOLD_TAINT, "NoSchedule"),
        (HOLD_TAINT, "NoExecute"),
    ]
    timed = [t | {"timeAdded": "2026-01-05T08:00:00Z"} for t in there]
    assert taints(world.life, timed) == timed
    world.observe()
    world.settle()
    assert world.life.state is State.UNCERTIFIED
    assert (world.life.cordon, world.life.no_execute) == (False, False)
    assert [(t["key"], t["effect"]) for t in taints(world.life, timed)] == [
        ("other", "NoExecute"),
        (HOLD_TAINT, "NoSchedule"),
    ]


def test_a_fault_that_only_holds_neither_cordons_nor_evicts() -> None:
    plain = with_fields(EVICTING, no_execute=False, cordon=False)
    world = serving(ruled(plain, patterns=(), correlations=()))
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.held
    assert (world.life.cordon, world.life.no_execute) == (False, False)


def test_a_node_that_waits_for_the_budget_is_neither_cordoned_nor_emptied() -> None:
    world = serving(ruled(EVICTING, patterns=(), correlations=()))
    world.others_out = tuple(m.name for m in world.others)
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert (world.life.cordon, world.life.no_execute) == (False, False)


def test_an_uncordon_by_a_person_stands_against_a_rule_that_cordons() -> None:
    world = serving(ruled(EVICTING, patterns=(), correlations=()))
    world.observe(fault(seen=world.now))
    world.settle()
    assert world.life.episode is not None
    world.node = replace(world.node, cordoned_by=world.life.episode.id, unschedulable=False)
    world.settle()
    assert not world.life.cordon
    world.node = replace(world.node, cordoned_by="")
    world.pass_time(600)
    world.settle()
    assert not world.life.cordon
    world.say(Verb.RETRY)
    world.settle()
    assert world.life.cordon


def test_a_silent_or_unknown_finding_does_neither() -> None:
    world = serving(ruled(EVICTING, patterns=(), correlations=()))
    world.observe(fault(severity=Severity.UNKNOWN, seen=world.now))
    world.settle()
    assert world.life.state is State.IN_SERVICE
    assert (world.life.cordon, world.life.no_execute) == (False, False)


def test_what_the_controller_was_told_first_and_by_which_agent_is_kept() -> None:
    world = serving()
    start = world.now
    world.observe(fault(seen=start - timedelta(days=3)), agent_version="1.0")
    world.settle()
    assert world.life.told == {fault().key(): start}
    assert world.life.agent is not None
    assert (world.life.agent.before, world.life.agent.since) == ("", start)
    world.pass_time(600)
    world.observe(fault(seen=start - timedelta(days=3)), agent_version="1.1")
    world.settle()
    assert world.life.told == {fault().key(): start}
    assert (world.life.agent.version, world.life.agent.before, world.life.agent.since) == ("1.1", "1.0", world.now)
    world.observe(agent_version="1.1")
    world.settle()
    assert world.life.told == {}


def test_every_reason_of_an_event_is_a_word_with_a_sentence() -> None:
    assert all(r.isalnum() and r[0].isupper() and s.endswith(".") for r, s in NOTE_REASONS.items())
    assert isinstance(NodeView(name="n", uid="u"), NodeView)
