"""Projections: rebuilt from the lifecycle alone, foreign parts untouched."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.operate.projection import condition, cordon, node_patch, taints
from muster.resources.node_health import Lifecycle, State
from tests.operate.worlds import START, World, fault, serving

FOREIGN = {"key": "team/x", "value": "y", "effect": "NoSchedule"}


def held() -> Lifecycle:
    world = World()
    world.settle()
    return world.life


def apply(patch: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The Node after a merge patch, in the fields that projections touch."""
    spec, metadata = patch.get("spec", {}), patch.get("metadata", {})
    merged = dict(node)
    if "taints" in spec:
        merged["taints"] = spec["taints"] or []
    if "unschedulable" in spec:
        merged["unschedulable"] = bool(spec["unschedulable"])
    merged["labels"] = node["labels"] | metadata.get("labels", {})
    if "annotations" in metadata:
        merged["cordoned_by"] = next(iter(metadata["annotations"].values())) or ""
    return merged


def patch_of(life: Lifecycle, node: dict[str, Any]) -> dict[str, Any]:
    return node_patch(life, node["taints"], node["labels"], node["cordoned_by"], node["unschedulable"])


@given(
    state=st.sampled_from(list(State)),
    wants_cordon=st.booleans(),
    foreign=st.booleans(),
    stale=st.sampled_from([None, "quarantined", "other"]),
    unschedulable=st.booleans(),
    ours=st.booleans(),
)
def test_one_patch_puts_everything_in_place_and_a_second_is_empty(
    state: State, wants_cordon: bool, foreign: bool, stale: str | None, unschedulable: bool, ours: bool
) -> None:
    base = held()
    life = replace(base, state=state, held=state is not State.IN_SERVICE, cordon=wants_cordon)
    present = [FOREIGN] if foreign else []
    if stale:
        present.append({"key": "muster.dev/hold", "value": stale, "effect": "NoSchedule"})
    node = {
        "taints": present,
        "labels": {"a": "b"},
        "cordoned_by": base.episode.id if ours else "",
        "unschedulable": unschedulable,
    }
    after = apply(patch_of(life, node), node)
    assert patch_of(life, after) == {}
    assert (FOREIGN in after["taints"]) is foreign
    assert any(t["key"] == "muster.dev/hold" for t in after["taints"]) is life.held
    assert after["labels"] == {"a": "b", "muster.dev/state": state.value}
    if unschedulable and not ours:
        assert after["unschedulable"], "a person's cordon was lifted"
        assert after["cordoned_by"] == ""
    if ours and not wants_cordon:
        assert not after["unschedulable"]
    if ours and wants_cordon and not unschedulable:
        assert not after["unschedulable"], "a person's uncordon was undone"


def test_the_hold_taint_says_why() -> None:
    assert taints(held(), []) == [{"key": "muster.dev/hold", "value": "uncertified", "effect": "NoSchedule"}]


def test_our_cordon_carries_the_episode() -> None:
    world = serving()
    world.observe(fault(seen=world.now))
    world.settle()
    change = cordon(world.life, False, "")
    assert (change.unschedulable, change.annotation) == (True, world.life.episode.id)
    assert world.life.since > START


def test_the_hold_keeps_its_place_among_the_taints_of_others() -> None:
    life = held()
    hold = {"key": "muster.dev/hold", "value": life.hold_reason, "effect": "NoSchedule"}
    other = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert taints(life, [FOREIGN, hold, other]) == [FOREIGN, hold, other]
    assert taints(life, [FOREIGN, {**hold, "value": "old"}, other]) == [FOREIGN, hold, other]
    assert taints(life, [FOREIGN, other]) == [FOREIGN, other, hold]
    assert taints(replace(life, held=False), [FOREIGN, hold, other]) == [FOREIGN, other]


def test_a_condition_without_a_time_gets_one() -> None:
    life = held()
    present = {"type": "MusterHealthy", "status": "False", "reason": "Old", "message": "", "lastTransitionTime": None}
    written = condition(life, present, START)
    assert written is not None
    assert written["lastTransitionTime"] == written["lastHeartbeatTime"]
