"""Mistakes that the matrix found, each in the small."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from muster.operate.budget import Usage
from muster.operate.fleet_plan import plan_fleet
from muster.operate.fleet_roles import PlannedNode
from muster.operate.model import NodeView
from muster.operate.providers.turn import Capability, Step, turns
from muster.resources.base import ObjectMeta
from muster.resources.certification import NodeVerdict, Phase
from muster.resources.node_health import State
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung
from tests.operate.worlds import AUTOMATED, World, readings

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
OURS = {"p": Capability(frozenset(Rung))}


def claimed(rung: Rung, external_id: str = "") -> Repair:
    """A Repair that was claimed a minute ago; without `external_id` nobody knows whether it was begun."""
    return Repair(
        metadata=ObjectMeta(name="r1", creation_timestamp=NOW - timedelta(seconds=70)),
        spec=RepairSpec(node_name="n1", node_uid="u1", episode="e", rung=rung, provider="p", timeout_s=300),
        status=RepairStatus(
            phase=RepairPhase.RUNNING, started_at=NOW - timedelta(seconds=60), external_id=external_id
        ),
    )


def test_what_was_claimed_and_perhaps_not_begun_does_not_begin_on_a_node_that_left() -> None:
    """The first call failed for a moment, the node was deleted, and the next call rebooted what it had been."""
    (turn,) = turns([claimed(Rung.REBOOT)], OURS, None, NOW)
    assert turn.step is Step.WAIT
    assert turn.recheck_at is not None
    assert NOW < turn.recheck_at <= NOW + timedelta(seconds=240)
    (back,) = turns([claimed(Rung.REBOOT)], OURS, "u1", NOW)
    assert back.step is Step.BEGIN
    (another,) = turns([claimed(Rung.REBOOT)], OURS, "u2", NOW)
    assert another.step is Step.ABANDON
    (late,) = turns([claimed(Rung.REBOOT)], OURS, None, NOW + timedelta(seconds=300))
    assert late.step is Step.EXPIRE


@pytest.mark.parametrize(
    ("repair", "step"),
    [(claimed(Rung.REBOOT, "op/1"), Step.LOOK), (claimed(Rung.REPLACE), Step.BEGIN)],
)
def test_what_is_under_way_is_followed_while_the_node_is_away(repair: Repair, step: Step) -> None:
    (turn,) = turns([repair], OURS, None, NOW)
    assert turn.step is step


def test_a_node_that_changed_before_its_certification_ended_is_certified_again_under_another_name() -> None:
    """The second certification had the name of the first, which was there already: the node waited for ever."""
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification(Phase.RUNNING)
    world.observe(fp=readings(driver="580.95"), boot="boot-2")
    world.settle()
    assert "before the node changed" in world.waits["certification"]
    world.pass_time(600)
    ended = replace(world.node.certifications[0], phase=Phase.SUCCEEDED, verdict=NodeVerdict.PASSED)
    world.node = replace(world.node, certifications=(ended,))
    world.settle()
    assert world.life.state is State.UNCERTIFIED, "it passed as what it was before"
    assert "batch" in world.waits
    second = replace(world.node, name="n2", certifications=())
    later = world.now + timedelta(seconds=900)

    def planned(first: NodeView) -> list[str]:
        nodes = [PlannedNode(first, AUTOMATED), PlannedNode(second, AUTOMATED)]
        return [batch.name for batch in plan_fleet(nodes, Usage(members=()), later).batches.batches]

    asked, again = planned(replace(world.node, certifications=())), planned(world.node)
    assert len(asked) == len(again) == 1
    assert asked != again
    assert planned(world.node) == again, "the same state gives the same name"


def test_of_two_certifications_of_one_stay_the_one_for_the_node_as_it_is_counts() -> None:
    world = World()
    world.settle()
    world.pass_time(60)
    world.certification(Phase.RUNNING)
    first = replace(world.node.certifications[0], phase=Phase.SUCCEEDED, verdict=NodeVerdict.PASSED)
    world.node = replace(world.node, certifications=())
    world.observe(fp=readings(driver="580.95"), boot="boot-2")
    world.certification(Phase.RUNNING)
    fresh = replace(world.node.certifications[0], name="z-later")
    world.node = replace(world.node, certifications=(first, fresh))
    world.settle()
    assert world.life.state is State.CERTIFYING
    assert world.life.certification == "z-later"
