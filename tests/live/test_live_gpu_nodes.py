"""Which nodes count as GPU nodes: one that was never labelled must not hide that nothing runs on it."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube.api import CRDS, NODE_HEALTHS
from muster.resources.base import API_VERSION, to_object
from muster.resources.baseline import AssertionResult
from muster.resources.crd import manifests
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import Gpu, NodeHealthStatus, Observed
from muster.sim.virtual import VirtualClock
from tests.live.bed import World, judge, on_gpu_nodes, recipe_of, well, workload

NFD = "feature.node.kubernetes.io/"
TAINTED = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
RECIPE = recipe_of(on_gpu_nodes("op"))


async def labeller(world: World, **node: Any) -> None:
    """A DaemonSet without selector that tolerates nothing runs on the CPU node alone."""
    await world.node("cpu-1", {"kubernetes.io/os": "linux"})
    await world.node("gpu-1", **node)
    await world.install("op", (workload("DaemonSet", "worker", "op"), well("DaemonSet", 1)))


@pytest.mark.parametrize(
    "labels",
    [
        {f"{NFD}pci-10de.present": "true"},
        {f"{NFD}pci-0302_10de.present": "true"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
    ],
)
def test_a_tainted_node_that_only_others_know_to_have_gpus_is_not_covered(labels: dict[str, str]) -> None:
    async def setup(world: World) -> None:
        await labeller(world, labels=labels, taints=TAINTED)

    found = judge(RECIPE, setup)["op/DaemonSet/op/worker"]
    assert found.result is AssertionResult.FAILED
    assert "gpu-1" in found.message
    assert "nvidia.com/gpu" in found.message


def test_a_tainted_node_whose_gpus_only_the_agent_sees_is_not_covered() -> None:
    async def setup(world: World) -> None:
        await labeller(world, labels={"kubernetes.io/os": "linux"}, taints=TAINTED)
        for crd in manifests():
            if crd["spec"]["names"]["plural"] == NODE_HEALTHS.plural:
                await world.api.create(CRDS, crd)
        made = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": "gpu-1"}, "spec": {}}
        await world.api.create(NODE_HEALTHS, made)
        observed = Observed(
            observed_at=VirtualClock().now(),
            node_uid="u",
            boot_id="b",
            fingerprint=fingerprint([]),
            gpus=(Gpu(index=0, uuid="GPU-0", pci="0000:01:00.0"),),
        )
        await world.status(NODE_HEALTHS, "gpu-1", "", to_object(NodeHealthStatus(observed=observed)))

    found = judge(RECIPE, setup)["op/DaemonSet/op/worker"]
    assert found.result is AssertionResult.FAILED
    assert "gpu-1" in found.message
