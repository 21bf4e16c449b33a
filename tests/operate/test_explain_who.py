"""Whoever follows what `muster node NAME` says about who can change it is never told that there is nothing to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields

from muster.operate.explain import Explanation, explain
from muster.resources.base import ObjectMeta
from muster.resources.certification import NodeVerdict
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import NodeHealth, NodeHealthStatus, Verb
from muster.resources.repair import RepairPhase, Rung
from tests.operate.test_decide_history import shared
from tests.operate.test_decide_maintenance import busy, go_to, planned
from tests.operate.test_decide_midway import handed_over, only
from tests.operate.test_decide_repairs import broken, set_status
from tests.operate.worlds import World, fault, readings, serving


def faulty(disposition: Disposition, *, work: bool = False) -> World:
    world = serving(only(disposition))
    if work:
        busy(world)
    world.observe(fault(seen=world.now))
    world.settle()
    return world


def capped(disposition: Disposition) -> World:
    world = serving()
    world.correlations = shared(world, disposition)
    world.observe(fault(seen=world.now))
    world.settle()
    return world


def spent() -> World:
    world = serving()
    world.others_out = tuple(m.name for m in world.others)
    world.observe(fault(seen=world.now))
    world.settle()
    return world


def drifted() -> World:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    return world


def paused() -> World:
    world = serving()
    world.pause()
    world.observe(fault(seen=world.now))
    world.settle()
    return world


def running() -> World:
    world = broken(Rung.REBOOT, Rung.TICKET)
    set_status(world, phase=RepairPhase.RUNNING, started_at=world.now)
    world.settle()
    return world


def given_up() -> World:
    world = broken(Rung.REBOOT, Rung.TICKET)
    world.repair(RepairPhase.FAILED)
    world.settle()
    return world


def called_back() -> World:
    world = broken(Rung.REBOOT, Rung.TICKET)
    for _ in range(4):
        set_status(world, phase=RepairPhase.CANCELLED)
        world.settle()
    return world


def draining_for_maintenance() -> World:
    world = serving()
    busy(world)
    made = planned(world)
    go_to(world, made.spec.opens_at)
    world.settle()
    return world


def announced() -> World:
    world = serving()
    busy(world)
    world.others_out = tuple(m.name for m in world.others)
    made = planned(world)
    go_to(world, made.spec.opens_at + timedelta(minutes=1))
    world.settle()
    return world


def failed() -> World:
    world = World(policy=only(Disposition.HOLD))
    world.certify(NodeVerdict.FAILED)
    return world


def certifying() -> World:
    world = World()
    world.settle()
    world.certification()
    world.settle()
    return world


def fresh() -> World:
    world = World()
    world.settle()
    return world


def silent() -> World:
    world = serving()
    world.now += timedelta(hours=1)
    world.settle()
    return world


SITUATIONS: list[Callable[[], World]] = [
    serving,
    fresh,
    certifying,
    lambda: faulty(Disposition.HOLD),
    lambda: faulty(Disposition.DRAIN),
    lambda: faulty(Disposition.DRAIN, work=True),
    lambda: faulty(Disposition.REPAIR),
    lambda: capped(Disposition.HOLD),
    lambda: capped(Disposition.CONDITION),
    lambda: broken(Rung.REBOOT, Rung.TICKET),
    running,
    given_up,
    called_back,
    spent,
    drifted,
    paused,
    handed_over,
    draining_for_maintenance,
    announced,
    failed,
    silent,
]
VERBS = [v.value for v in Verb]
_SAID = re.compile(r"'muster node n1 ([a-z]+)")


def _told(world: World) -> Explanation:
    status = NodeHealthStatus(observed=world.node.observed, lifecycle=world.life)
    health = NodeHealth(metadata=ObjectMeta(name="n1"), spec=world.node.spec, status=status)
    return explain(health, repairs=world.node.repairs, maintenances=world.node.maintenances, now=world.now)


@pytest.mark.parametrize("number", range(len(SITUATIONS)))
def test_what_it_says_a_person_can_do_has_an_effect(number: int) -> None:
    told = _told(SITUATIONS[number]())
    assert told.who
    assert told.next
    for verb in _SAID.findall(" ".join((*told.who, told.next, *told.waits_for))):
        world = SITUATIONS[number]()
        world.decisions.clear()
        world.pass_time(1)
        if verb == "hold":
            world.hold()
        elif verb in VERBS:
            world.say(Verb(verb))
            until = world.now + timedelta(minutes=10)
            said = world.node.spec.decision
            assert said is not None
            spec = with_fields(world.node.spec, decision=with_fields(said, until=until))
            world.node = replace(world.node, spec=spec)
        else:
            continue
        world.settle()
        notes = [n.reason for d in world.decisions for n in d.notes]
        refused = [n for n in notes if n.startswith("NothingTo") or n in ("HoldStands", "DeferNotPossible")]
        assert not refused, (verb, told.who)
