"""Each rule of the checker finds a planted violation and leaves a sound snapshot alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.resources.base import ObjectMeta
from muster.resources.certification import Certification, CertificationSpec
from muster.resources.fault import Severity
from muster.resources.node_health import (
    Cause,
    CauseKind,
    Lifecycle,
    NodeHealth,
    NodeHealthStatus,
    Standing,
    State,
    Transition,
)
from muster.resources.repair import RepairPhase
from tests.invariants.checker import Snapshot, Violation, broken_between, violations
from tests.operate.worlds import AUTOMATED, World, fault, pod, readings, serving


def node(life: Lifecycle, **spec: Any) -> dict[str, Any]:
    from muster.operate.projection import condition, node_patch

    patch = node_patch(life, [], {}, "", False)
    made: dict[str, Any] = {
        "metadata": {"name": "n1", "uid": "uid-1", **patch.get("metadata", {})},
        "spec": {**patch.get("spec", {}), **spec},
    }
    made["status"] = {"conditions": [condition(life, None, life.since)]}
    return made


def snapshot(world: World, **spec: Any) -> Snapshot:
    status = NodeHealthStatus(observed=world.node.observed, lifecycle=world.life)
    return Snapshot(
        now=world.now,
        policy=AUTOMATED,
        nodes={"n1": node(world.life, **spec)},
        healths={"n1": NodeHealth(metadata=ObjectMeta(name="n1"), status=status)},
        repairs={r.metadata.name: r for r in world.node.repairs},
    )


def with_life(s: Snapshot, name: str = "n1", **changes: Any) -> Snapshot:
    found = s.healths["n1"]
    life = with_fields(found.status.lifecycle, **changes)
    status = with_fields(found.status, lifecycle=life)
    return replace(s, healths={**s.healths, name: with_fields(found, status=status)})


def numbers(found: list[Violation]) -> set[int]:
    return {v.invariant for v in found}


def repairing() -> World:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    return world


def test_sound_snapshots_break_nothing() -> None:
    fresh = World()
    fresh.settle()
    for world in (fresh, serving(), repairing()):
        assert violations(snapshot(world), settled=True) == []


def test_1_a_lifecycle_that_admits_without_a_certificate() -> None:
    s = snapshot(serving())
    assert 1 in numbers(violations(with_life(s, certificate=None)))


@pytest.mark.parametrize("taints", [None, []])
def test_1_a_held_node_without_its_taint(taints: object) -> None:
    world = World()
    world.settle()
    assert 1 in numbers(violations(snapshot(world, taints=taints), settled=True))


def test_1_a_changed_fingerprint_under_a_valid_certificate() -> None:
    world = serving()
    s = snapshot(world)
    world.observe(fp=readings(driver="580.95"))
    drifted = replace(s, healths=snapshot(world).healths)
    assert 1 in numbers(violations(drifted, settled=True))


def test_1_a_grace_without_end() -> None:
    world = serving()
    world.observe(fp=readings(driver="580.95"))
    world.settle()
    s = snapshot(world)
    late = replace(s, now=s.now + timedelta(seconds=AUTOMATED.drift.max_grace_s + 1))
    assert violations(s, settled=True) == []
    assert 1 in numbers(violations(late, settled=True))


def test_1_a_certificate_of_an_earlier_node() -> None:
    s = snapshot(serving())
    s.nodes["n1"]["metadata"]["uid"] = "uid-2"
    assert 1 in numbers(violations(s, settled=True))


def test_2_a_projection_that_differs_from_the_status() -> None:
    s = snapshot(serving())
    s.nodes["n1"]["metadata"]["labels"]["muster.dev/state"] = "Repairing"
    assert numbers(violations(s, settled=True)) == {2}


def test_3_more_nodes_out_than_the_budget_allows() -> None:
    s = snapshot(repairing())
    assert violations(s) == []
    two = replace(s, nodes={**s.nodes, "n2": s.nodes["n1"]})
    two = replace(with_life(two, "n2"), nodes=two.nodes)
    assert 3 in numbers(violations(two))


def test_4_blame_without_a_failed_verdict() -> None:
    s = snapshot(repairing())
    cause = Cause(kind=CauseKind.CERTIFICATION, name="cert")
    entry = Transition(state=State.QUARANTINED, at=s.now, cause=cause)
    blamed = with_life(s, history=(entry,), state=State.QUARANTINED)
    undecided = Certification(
        metadata=ObjectMeta(name="cert"), spec=CertificationSpec(nodes=("n1",), profile="repair")
    )
    assert 4 in numbers(violations(replace(blamed, certifications={"cert": undecided})))


def test_5_a_repair_that_counts_without_a_new_boot() -> None:
    world = repairing()
    before = snapshot(world)
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")
    world.settle()
    sound = snapshot(world)
    assert broken_between(before, sound) == []
    world.observe(boot="boot-1")
    assert numbers(broken_between(before, replace(sound, healths=snapshot(world).healths))) == {5}


def test_6_a_hold_for_an_unknown_fault() -> None:
    world = repairing()
    s = snapshot(world)
    world.observe(fault(seen=world.now, severity=Severity.UNKNOWN))
    observed = world.node.observed
    found = s.healths["n1"]
    status = with_fields(found.status, observed=observed)
    assert 6 in numbers(violations(replace(s, healths={"n1": with_fields(found, status=status)})))


def test_7_a_persons_cordon_that_was_lifted() -> None:
    world = serving()
    before = snapshot(world, unschedulable=True)
    after = snapshot(world)
    assert numbers(broken_between(before, after)) == {7}
    assert broken_between(before, after, uncordoned=["n1"]) == []
    assert broken_between(before, before) == []


def test_8_two_repairs_at_once() -> None:
    s = snapshot(repairing())
    (repair,) = s.repairs.values()
    twin = with_fields(repair, metadata=ObjectMeta(name="twin"))
    assert 8 in numbers(violations(replace(s, repairs={**s.repairs, "twin": twin})))


def test_9_a_node_that_does_not_say_what_is_next() -> None:
    s = snapshot(serving())
    assert 9 in numbers(violations(with_life(s, next="")))


def test_a_drain_in_progress_is_sound() -> None:
    world = serving()
    world.node = replace(world.node, pods=(pod(),))
    world.observe(fault(seen=world.now))
    world.settle()
    s = snapshot(world)
    assert violations(s, settled=True) == []
    assert with_life(s).healths["n1"].status.lifecycle.certificate.standing is Standing.VOID
