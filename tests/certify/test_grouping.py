"""Plans: cells of equal nodes, untested nodes with reasons, the same for the same input."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify.catalogue import profile
from muster.certify.grouping import gpus_of, make_plan, members_of, targets_of
from muster.certify.nodes import HealthFacts, NodeFacts, change_since, health_facts, identity, node_facts
from muster.certify.picture import gpu_user
from muster.resources.certification import CertificationSpec, Pods, Purpose, Reason

BRINGUP = profile("bringup")


def node(name: str, **fields: object) -> NodeFacts:
    given_fields = {"uid": f"uid-{name}", "boot_id": "b1", "product": "H100", "gpus": 8, **fields}
    return NodeFacts(name=name, **given_fields)  # type: ignore[arg-type]


def plan_of(nodes: list[NodeFacts], targets: list[str], partners: tuple[str, ...] = (), **more: object):  # type: ignore[no-untyped-def]
    spec = CertificationSpec(nodes=tuple(targets), partners=partners, profile="bringup")
    return make_plan("c", spec, BRINGUP, {n.name: n for n in nodes}, {}, **more)  # type: ignore[arg-type]


def test_architectures_are_certified_apart() -> None:
    nodes = [node("a"), node("b", product="GB200", gpus=4), node("c"), node("d", product="GB200", gpus=4)]
    plan = plan_of(nodes, ["a", "b", "c", "d"])
    assert [(c.product, c.gpus, [m.name for m in c.targets]) for c in plan.cells] == [
        ("GB200", 4, ["b", "d"]),
        ("H100", 8, ["a", "c"]),
    ]
    assert gpus_of(plan) == {"b": 4, "d": 4, "a": 8, "c": 8}


@pytest.mark.requirement("v2.4/CNP03", "v2.4/STG05")
def test_members_stand_along_the_topology() -> None:
    nodes = [node("a", domain="d2"), node("b", domain="d1"), node("c", domain="d2"), node("d", domain="d1")]
    assert list(members_of(plan_of(nodes, ["a", "b", "c", "d"]))) == ["b", "d", "a", "c"]


def test_untested_nodes_have_reasons_and_partners_do_not_vote() -> None:
    nodes = [node("a"), node("b", gpus=7), node("c", gpus=0), node("d", ready=False), node("e")]
    plan = plan_of(nodes, ["a", "b", "c", "d", "ghost"], ("e",))
    assert {u.name: u.reason for u in plan.untested} == {
        "b": Reason.HARDWARE,
        "c": Reason.HARDWARE,
        "d": Reason.SCHEDULING,
        "ghost": Reason.SCHEDULING,
    }
    assert [m.name for m in plan.cells[0].partners] == ["e"]


def test_a_partner_that_is_a_target_or_taken_or_alone_of_its_kind_is_left_out() -> None:
    nodes = [node("a"), node("b"), node("c"), node("x", product="B200")]
    plan = plan_of(nodes, ["a"], ("a", "b", "c", "x"), taken={"b": "other"})
    assert [([m.name for m in c.targets], [m.name for m in c.partners]) for c in plan.cells] == [(["a"], ["c"])]


@given(st.permutations(["a", "b", "c", "d", "e", "ghost"]), st.permutations(["p", "q", "a"]))
def test_the_order_of_names_does_not_matter(targets: list[str], partners: list[str]) -> None:
    nodes = [node(n, domain=f"d{ord(n) % 2}") for n in "abcdepq"]
    assert plan_of(nodes, targets, tuple(partners)) == plan_of(
        list(reversed(nodes)), sorted(targets), tuple(sorted(partners))
    )


def test_changes_are_told_apart_and_what_is_unknown_is_no_change() -> None:
    before, health = node("a"), HealthFacts(node_uid="uid-a", boot_id="b1", fingerprint="f1")
    start = identity(before, health)
    assert change_since(start, before, health) == ""
    assert change_since(start, None, health) == "vanished from the cluster"
    assert change_since(start, node("a", uid="other"), health) == "was replaced by another node of that name"
    assert change_since(start, node("a", boot_id="b2"), health) == "rebooted"
    changed = HealthFacts(node_uid="uid-a", boot_id="b1", fingerprint="f2")
    assert change_since(start, before, changed) == "changed its fingerprint"
    assert change_since(start, before, None) == ""
    assert change_since(identity(before, None), before, health) == ""


def test_a_report_about_an_earlier_node_of_the_name_says_nothing_about_this_one() -> None:
    stale = HealthFacts(node_uid="uid-of-before", boot_id="b0", fingerprint="f0")
    assert identity(node("a"), stale) == identity(node("a"), None)


def test_a_node_is_read_from_the_api() -> None:
    raw = {
        "metadata": {
            "name": "a",
            "uid": "u",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-H100",
                "nvidia.com/gpu.clique": "q1",
                "node.kubernetes.io/instance-type": "p5",
            },
        },
        "spec": {"providerID": "gce://project/zone/a"},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "b"},
        },
    }
    found = node_facts(json.dumps(raw).encode())
    assert found == NodeFacts(
        "a", "u", "b", True, "NVIDIA-H100", "gcp", "p5", "q1", "q1", 8, labels=raw["metadata"]["labels"]
    )
    bare = node_facts(json.dumps({"metadata": {"name": "a"}}).encode())
    assert (bare.ready, bare.gpus, bare.platform) == (False, 0, "")


def test_a_health_without_an_observation_knows_nothing() -> None:
    assert health_facts(json.dumps({"metadata": {"name": "a"}}).encode()) == HealthFacts()


def test_labels_choose_nodes_beside_those_named() -> None:
    nodes = [node("a"), node("b", labels={"pool": "x", "z": "1"}), node("c", labels={"pool": "x"}), node("d")]
    spec = CertificationSpec(nodes=("a",), node_selector={"pool": "x"}, profile="bringup")
    known = {n.name: n for n in nodes}
    assert targets_of(spec, known) == ("a", "b", "c")
    assert list(members_of(make_plan("c", spec, BRINGUP, known, {}))) == ["a", "b", "c"]
    both = CertificationSpec(node_selector={"pool": "x", "z": "1"}, profile="bringup")
    assert targets_of(both, known) == ("b",)
    assert targets_of(CertificationSpec(profile="bringup"), known) == ()


def test_by_hand_nobody_tests_what_people_or_faults_hold_or_work_uses() -> None:
    nodes = [
        node("a"),
        node("b", cordoned=True),
        node("c", held_for="quarantined"),
        node("d"),
        node("e", held_for="uncertified"),
    ]
    plan = plan_of(nodes, ["a", "b", "c", "d", "e"], busy={"d": "team/train-0"})
    assert [m.name for m in plan.cells[0].targets] == ["a", "e"]
    assert {u.name: (u.reason, "team/train-0" in u.message) for u in plan.untested} == {
        "b": (Reason.SCHEDULING, False),
        "c": (Reason.HARDWARE, False),
        "d": (Reason.SCHEDULING, True),
    }
    for_repair = CertificationSpec(nodes=("b", "c"), profile="repair", purpose=Purpose.REPAIR)
    assert make_plan("c", for_repair, profile("repair"), {n.name: n for n in nodes}, {}).untested == ()


def test_what_the_certification_expects_stands_in_the_plan() -> None:
    spec = CertificationSpec(nodes=("a",), profile="bringup", expected_transport="EFA", floors={"pair": 300.0})
    plan = make_plan("c", spec, BRINGUP, {"a": node("a")}, {})
    assert (plan.expected_transport, plan.floors) == ("EFA", {"pair": 300.0})


def test_who_cordoned_and_why_it_is_held_is_read_from_the_node() -> None:
    raw = {
        "metadata": {"name": "a", "annotations": {}},
        "spec": {"unschedulable": True, "taints": [{"key": "muster.dev/hold", "value": "quarantined"}]},
    }
    found = node_facts(json.dumps(raw).encode())
    assert (found.cordoned, found.held_for) == (True, "quarantined")
    raw["metadata"]["annotations"] = {"muster.dev/cordoned-by": "episode-1"}
    assert not node_facts(json.dumps(raw).encode()).cordoned


def test_who_has_gpus_is_read_from_pods() -> None:
    def pod(gpus: str, phase: str = "Running", **labels: str) -> bytes:
        spec = {"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}, {}]}
        meta = {"name": "p", "namespace": "team", "labels": labels}
        return json.dumps({"metadata": meta, "spec": spec, "status": {"phase": phase}}).encode()

    assert gpu_user(pod("8")) == ("a", "", "team/p")
    assert gpu_user(pod("8", **{"muster.dev/certification": "c"})) == ("a", "c", "team/p")
    assert gpu_user(pod("0")) is None
    assert gpu_user(pod("8", "Succeeded")) is None
    assert gpu_user(b"{}") is None


def test_rails_are_the_nics_that_pods_ask_for() -> None:
    spec = CertificationSpec(nodes=("a",), profile="bringup", pods=Pods(nic_resource="rdma/ib", nics=4))
    assert make_plan("c", spec, BRINGUP, {"a": node("a")}, {}).cells[0].rails == 4


def test_a_node_without_a_partner_is_told_of_before_anything_runs() -> None:
    nodes = [node("a"), node("b", product="GB200", gpus=4), node("c"), node("d", product="GB200", gpus=4)]
    (note,) = plan_of(nodes, ["a", "b"], ("d",)).notes
    assert "a is the only node of its kind (H100)" in note
    assert "pair" in note
    assert "name a partner" in note
    assert plan_of(nodes, ["a", "c"]).notes == ()
    spec = CertificationSpec(nodes=("a",), profile="bringup", tests=("host",))
    assert make_plan("c", spec, BRINGUP, {"a": node("a")}, {}).notes == ()
