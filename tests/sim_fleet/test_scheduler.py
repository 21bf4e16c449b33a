"""Placement: whole groups or nothing, and only where a pod may go."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.pods import Pod, project_pod
from muster.sim.scheduler import NodeView, place, project_node, refusal


def node(name: str = "n1", *, taint: str = "", effect: str = "NoSchedule", **fields: Any) -> NodeView:
    obj: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": {"unschedulable": fields.get("unschedulable", False)},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": fields.get("ready", "True")}],
        },
    }
    if taint:
        obj["spec"]["taints"] = [{"key": taint, "value": "v", "effect": effect}]
    return project_node(msgspec.json.encode(obj))


def pod(name: str = "p", gpus: int = 8, tolerations: list[dict[str, str]] | None = None, zone: str = "") -> Pod:
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        "tolerations": tolerations or [],
        "nodeSelector": {"zone": zone} if zone else {},
    }
    return project_pod(msgspec.json.encode({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec}))


def test_a_plain_node_takes_a_plain_pod() -> None:
    assert refusal(pod(), node()) == ""


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (node(ready="False"), "not ready"),
        (node(ready="Unknown"), "not ready"),
        (node(unschedulable=True), "unschedulable"),
        (node(taint="muster.dev/hold"), "untolerated taint {muster.dev/hold: v}"),
        (node(taint="x", effect="NoExecute"), "untolerated taint"),
    ],
)
def test_where_a_plain_pod_may_not_go(where: NodeView, says: str) -> None:
    assert says in refusal(pod(), where)


def test_selectors_and_tolerations_count() -> None:
    assert "selector" in refusal(pod(zone="b"), node())
    assert refusal(pod(zone="a"), node()) == ""
    assert refusal(pod(), node(taint="x", effect="PreferNoSchedule")) == ""
    for toleration in ({"operator": "Exists"}, {"key": "x", "operator": "Exists"}, {"key": "x", "value": "v"}):
        assert refusal(pod(tolerations=[toleration]), node(taint="x")) == ""
    assert refusal(pod(tolerations=[{"key": "x", "value": "other"}]), node(taint="x")) != ""
    assert refusal(pod(tolerations=[{"operator": "Exists"}]), node(unschedulable=True)) == ""


def test_a_group_that_does_not_fit_goes_nowhere() -> None:
    nodes = {"n1": node("n1"), "n2": node("n2")}
    group = [pod(f"p{i}") for i in range(3)]
    chosen, reasons = place(group, nodes, {"n1": 8, "n2": 8})
    assert chosen == {}
    assert reasons == {"Insufficient nvidia.com/gpu": 2}


@given(
    free=st.dictionaries(st.sampled_from([f"n{i}" for i in range(8)]), st.integers(0, 8), min_size=1),
    wanted=st.lists(st.integers(1, 8), min_size=1, max_size=6),
)
def test_placement_never_overcommits_and_is_all_or_nothing(free: dict[str, int], wanted: list[int]) -> None:
    group = [pod(f"p{i}", gpus) for i, gpus in enumerate(wanted)]
    chosen, _ = place(group, {name: node(name) for name in free}, free)
    assert len(chosen) in (0, len(group))
    for name, room in free.items():
        assert sum(p.gpus for p in group if chosen.get(p.key) == name) <= room
    if all(room == 0 for room in free.values()):
        assert chosen == {}


def test_a_wish_that_is_not_known_is_refused() -> None:
    spec = {"containers": [], "affinity": {"nodeAffinity": {}}, "topologySpreadConstraints": [{"maxSkew": 1}]}
    wishful = project_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec}))
    assert refusal(wishful, node()).endswith("does not support spec.affinity, spec.topologySpreadConstraints")


def test_init_containers_need_their_gpus_too() -> None:
    limits = [{"resources": {"limits": {"nvidia.com/gpu": str(count)}}} for count in (2, 3, 4)]
    spec = {"containers": limits[:2], "initContainers": limits[2:]}
    assert project_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec})).gpus == 5
    spec = {"containers": limits[:1], "initContainers": limits[2:]}
    assert project_pod(msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec})).gpus == 4
