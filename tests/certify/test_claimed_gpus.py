"""GPUs that only DRA offers: counted and named from ResourceSlices, whatever else is published there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.certify.catalogue import profile
from muster.certify.claimed_gpus import GPU_DRIVER, ClaimedGpus, claimed_gpus, with_claims
from muster.certify.grouping import gpus_of, make_plan
from muster.certify.nodes import NodeFacts
from muster.cli.certify_cluster import fleet_from_file
from muster.cli.certify_plan import planned
from muster.resources.certification import CertificationSpec, Pods, Reason

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
H100 = "NVIDIA H100 80GB HBM3"


def gpu(index: int, product: str = H100, **more: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": product}, "pcieBusID": {"string": "0000:1b"}}
    return {
        "name": f"gpu-{index}",
        "attributes": {**attributes, "minor": {"int": index}, "driverVersion": {"version": "580.65.6"}},
        "capacity": {"memory": {"value": "81559Mi"}},
        **more,
    }


def published(node: str, *devices: dict[str, Any], driver: str = GPU_DRIVER, generation: int = 1) -> bytes:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}).encode()


def test_gpus_are_counted_by_node_and_the_product_reads_like_its_label() -> None:
    slices = [
        published("a", *(gpu(i) for i in range(4))),
        published("a", *(gpu(i) for i in range(4, 8))),
        published("b", *(gpu(i) for i in range(7)), gpu(7, taints=[{"key": "x", "effect": "NoExecute"}])),
        published("c", {"name": "m", "attributes": {f"{GPU_DRIVER}/type": {"string": "mig"}}}),
        published("d", gpu(0), driver="compute-domain.nvidia.com"),
        b"{",
        b'{"spec": {"driver": "gpu.nvidia.com", "nodeName": "e", "devices": 7}}',
    ]
    assert claimed_gpus(slices) == {
        "a": ClaimedGpus(8, "NVIDIA-H100-80GB-HBM3"),
        "b": ClaimedGpus(7, "NVIDIA-H100-80GB-HBM3"),
        "c": ClaimedGpus(0),
    }


@given(st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_an_older_generation_of_a_pool_does_not_count(old: int, new: int, reverse: bool) -> None:
    slices = [
        published("a", *(gpu(i) for i in range(old)), generation=3),
        published("a", *(gpu(i) for i in range(new)), generation=4),
    ]
    assert claimed_gpus(slices[::-1] if reverse else slices)["a"].count == new


def test_nodes_with_dra_alone_are_planned_with_their_gpus() -> None:
    nodes = {n: NodeFacts(n, uid=n, gpus=0) for n in ("a", "b", "c")}
    claimed = {"a": ClaimedGpus(8, "NVIDIA-H100-80GB-HBM3"), "b": ClaimedGpus(8, "NVIDIA-H100-80GB-HBM3")}
    pods = Pods(gpu_claim_template="all-gpus")
    spec = CertificationSpec(nodes=("a", "b", "c"), profile="bringup", pods=pods)
    plan = make_plan("x", spec, profile("bringup"), with_claims(nodes, claimed), {})
    assert gpus_of(plan) == {"a": 8, "b": 8}
    assert [c.product for c in plan.cells] == ["NVIDIA-H100-80GB-HBM3"]
    (none,) = plan.untested
    assert (none.name, none.reason) == ("c", Reason.HARDWARE)
    assert "ResourceSlice" in none.message


def test_a_product_label_stays() -> None:
    found = with_claims({"a": NodeFacts("a", product="H100", gpus=0)}, {"a": ClaimedGpus(8, "NVIDIA-H100")})
    assert (found["a"].product, found["a"].gpus) == ("H100", 8)


def test_a_plan_from_files_counts_claimed_gpus_where_they_are_asked_for(tmp_path: Path) -> None:
    nodes = [{"kind": "Node", "metadata": {"name": n, "uid": n}, "status": READY} for n in ("a", "b")]
    slices = [json.loads(published(n, gpu(0), gpu(1))) for n in ("a", "b")]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*nodes, *slices]}))
    fleet = fleet_from_file(path)
    spec = CertificationSpec(nodes=("a", "b"), profile="bringup")
    assert gpus_of(planned("x", spec, fleet)) == {}
    claiming = replace(spec, pods=Pods(gpu_claim_template="all-gpus"))
    assert gpus_of(planned("x", claiming, fleet)) == {"a": 2, "b": 2}
