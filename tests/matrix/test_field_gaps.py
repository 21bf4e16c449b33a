"""Situations of the field reports that no other test has."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.policy import EffectivePolicy, effective_policy
from muster.operate.projection import MESSAGE_LIMIT, condition, health, node_patch, taints
from muster.operate.views import node_record
from muster.resources.base import ObjectMeta
from muster.resources.fault import Entity, EntityKind, Fault
from muster.resources.fault_policy import Disposition, FaultPolicy, FaultPolicySpec, Rule
from muster.resources.node_health import State
from tests.operate.worlds import World, fault, pod, serving


def ruled(*rules: Rule) -> EffectivePolicy:
    spec = FaultPolicySpec(rules=rules, repair_provider="test-provider")
    return effective_policy([FaultPolicy(metadata=ObjectMeta(name="gaps"), spec=spec)], {})


HOLDS = Rule(name="holds", when="fault.code == '79'", disposition=Disposition.HOLD)
EVICTS = Rule(name="evicts", when="fault.code == '48'", disposition=Disposition.HOLD, no_execute=True)


def effects(world: World) -> list[str]:
    return [str(t["effect"]) for t in taints(world.life, [])]


def on(code: str, gpu: str, world: World) -> Fault:
    return with_fields(fault(code, seen=world.now), entity=Entity(kind=EntityKind.GPU, uuid=gpu))


def test_the_taint_of_a_second_finding_comes_and_goes_with_it() -> None:
    world = serving(ruled(HOLDS, EVICTS))
    world.node = replace(world.node, pods=(pod("train"),))
    first, second = on("79", "GPU-1", world), on("48", "GPU-2", world)
    world.observe(first)
    world.settle()
    assert effects(world) == ["NoSchedule"]
    world.pass_time(60)
    world.observe(first, second)
    world.settle()
    assert effects(world) == ["NoSchedule", "NoExecute"]
    world.pass_time(60)
    world.observe(first)
    world.settle()
    assert effects(world) == ["NoSchedule"]
    world.pass_time(60)
    world.observe()
    world.settle()
    assert world.life.state is State.UNCERTIFIED, "the last finding is gone: the node is tested"


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(["GPU-1", "GPU-2", "GPU-3"]), twice=st.booleans())
def test_a_node_returns_in_whatever_order_its_findings_end(order: list[str], twice: bool) -> None:
    world = serving(ruled(HOLDS))
    there = {gpu: on("79", gpu, world) for gpu in sorted(order)}
    world.observe(*there.values())
    world.settle()
    for gpu in order:
        assert world.life.state is State.QUARANTINED
        world.pass_time(30)
        del there[gpu]
        for _ in range(1 + twice):
            world.observe(*there.values())
            world.settle()
    world.certify()
    assert world.life.state is State.IN_SERVICE
    assert taints(world.life, []) == []


def test_the_text_of_the_condition_is_bounded_and_never_read_back() -> None:
    world = serving(ruled(HOLDS))
    many = [
        with_fields(on("79", f"GPU-{n:04}", world), message="; ErrorCode:79; " + "x" * 2000 + "...")
        for n in range(200)
    ]
    world.observe(*many)
    world.settle()
    told = health(world.life)
    assert 0 < len(told.message) <= MESSAGE_LIMIT
    # Whatever stands in the condition, nothing of it reaches the decision or the marks of the node.
    marks = node_patch(world.life, [], {}, "", False)
    for text in ("", "No Health Failures", "...;", "x" * 40_000):
        wrong = {"type": "MusterHealthy", "status": "True", "reason": "Certified", "message": text}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "uid": "uid-1", "labels": {"nvidia.com/gpu.present": "true"}},
            "status": {"conditions": [wrong, {"type": "Ready", "status": "True"}]},
        }
        record = node_record(msgspec.json.encode(node))
        assert record.condition is not None
        assert "condition" not in {field.name for field in fields(world.node)}
        rewritten = condition(world.life, dict(record.condition), world.now)
        assert rewritten is not None
        assert rewritten["message"] == told.message
        assert node_patch(world.life, [], {}, record.cordoned_by, record.unschedulable) == marks
    for left, state in ((many[:1], State.QUARANTINED), ([], State.UNCERTIFIED)):
        world.pass_time(30)
        world.observe(*left)
        world.settle()
        assert world.life.state is state
