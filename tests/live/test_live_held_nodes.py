"""A DaemonSet that prepares nodes and does not tolerate the hold never brings a held node its driver."""

from __future__ import annotations

from typing import Any

import pytest

from muster.configure.catalogue import DaemonTolerations, Placement
from muster.resources.baseline import AssertionResult
from tests.live.bed import GPU_NODE, World, component, judge, recipe_of, well, workload

FAILED, PASSED = AssertionResult.FAILED, AssertionResult.PASSED
HOLD = {"key": "muster.dev/hold", "value": "new", "effect": "NoSchedule"}
PLACEMENT = Placement(daemon_tolerations=(DaemonTolerations(path="tolerations", source="values.yaml"),))


@pytest.mark.parametrize(
    ("tolerations", "prepares", "result"),
    [
        ([], True, FAILED),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], True, FAILED),
        ([{"key": "muster.dev/hold", "operator": "Exists"}], True, PASSED),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True, PASSED),
        ([{"operator": "Exists"}], True, PASSED),
        # Work is meant to stay away.
        ([], False, PASSED),
    ],
)
def test_a_held_node_without_its_driver_pod_is_not_covered(
    tolerations: list[dict[str, str]], prepares: bool, result: AssertionResult
) -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1", GPU_NODE)
        await world.node("gpu-2", GPU_NODE, taints=[HOLD])
        pods = {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "tolerations": tolerations}
        await world.install("op", (workload("DaemonSet", "driver", "op", pod=pods), well("DaemonSet")))

    recipe = recipe_of(component("op", placement=PLACEMENT if prepares else Placement()))
    found = judge(recipe, setup)["op/DaemonSet/op/driver"]
    assert found.result is result
    assert ("gpu-2" in found.message and "muster.dev/hold" in found.message) == (result is FAILED)
    assert "gpu-1" not in found.message


def test_a_new_cluster_whose_nodes_are_all_held_says_why_nothing_comes() -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1", GPU_NODE, taints=[HOLD])
        none: dict[str, Any] = well("DaemonSet", 0)
        await world.install("op", (workload("DaemonSet", "driver", "op"), none))

    found = judge(recipe_of(component("op", placement=PLACEMENT)), setup)["op/DaemonSet/op/driver"]
    assert found.result is FAILED
    assert "does not tolerate the taint muster.dev/hold" in found.message


def test_nodes_that_it_does_not_select_do_not_matter() -> None:
    async def setup(world: World) -> None:
        await world.node("gpu-1", GPU_NODE)
        await world.node("gpu-2", GPU_NODE, taints=[HOLD])
        pods = {"nodeSelector": {"kubernetes.io/os": "windows"}}
        await world.install("op", (workload("DaemonSet", "driver", "op", pod=pods), well("DaemonSet")))

    assert judge(recipe_of(component("op", placement=PLACEMENT)), setup)["op/DaemonSet/op/driver"].result is PASSED
