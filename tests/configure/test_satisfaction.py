"""Constraints against readings: passed, failed, or unknown with a reason; unknown is never a pass."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.recipe import Pool, Recipe
from muster.configure.satisfaction import Answer, Subject, holds, judge
from muster.configure.snapshot.model import ClusterSnapshot, NodeEntry
from muster.configure.subjects import subjects_of
from muster.inventory.record import NodeSnapshot, UnknownReading
from muster.resources.fingerprint import Reading, ReadingClass
from tests.configure.cases import recipe_of

READINGS = {"os.id": "ubuntu", "os.version_id": "24.04", "kernel.version": "6.8.0-1028-aws"}
H100 = recipe_of("h100-eks-ubuntu-training-kubeflow")


def answers(recipe: Recipe, *subjects: Subject) -> dict[str, str]:
    return {f"{j.subject}: {j.constraint}": j.answer.value for j in judge(recipe, subjects)}


def test_a_node_that_fits() -> None:
    assert set(answers(H100, Subject("n", READINGS)).values()) == {"passed"}


def test_a_cluster_is_held_against_its_version() -> None:
    def found(version: str) -> dict[str, str]:
        return answers(H100, Subject("cluster", {"kubernetes.version": version}, is_cluster=True))

    assert found("v1.33.5-eks-3025e55") == {"cluster: kubernetes.version": "passed"}
    assert found("v1.32.3-eks-3025e55") == {"cluster: kubernetes.version": "failed"}
    assert found("garbage") == {"cluster: kubernetes.version": "unknown"}


def test_what_could_not_be_read_is_unknown_with_its_reason() -> None:
    node = Subject("n", {"os.id": "ubuntu"}, reasons={"kernel.version": "permission denied"})
    found = {j.constraint: j for j in judge(H100, [node])}
    assert found["kernel.version"].answer is Answer.UNKNOWN
    assert found["kernel.version"].reason == "permission denied"
    assert "does not hold" in found["os.version_id"].reason


@pytest.mark.parametrize(
    ("name", "text", "reading", "wanted"),
    [
        ("driver.version", ">= 580.95.05", "580.95.05.01", True),
        ("driver.version", ">= 580.95.05", "570.211.01", False),
        ("driver.version", ">= 580.95.05", "not loaded", None),
        ("kernel.version", ">= 6.8", "5.14.0-503.el9", False),
        ("kernel.version", ">= 6.8", "6.6.87+", False),
        ("kubernetes.version", ">= 1.34.3-gke.1318000", "v1.34.3-gke.1318000", True),
        ("kubernetes.version", ">= 1.34.3-gke.1318000", "v1.34.3", False),
        ("os.version_id", "24.04", "24.4", False),
    ],
)
def test_holds(name: str, text: str, reading: str, wanted: bool | None) -> None:
    assert holds(name, text, reading) is wanted


def labelled(text: str) -> Recipe:
    return msgspec.structs.replace(H100, constraints={"nodes.gpu.label": text})


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"a": "1"}, "passed"),
        ({"a": "1", "b": "x"}, "failed"),
        ({"a": "2"}, "failed"),
        ({}, "failed"),
        (None, "unknown"),
    ],
)
def test_labels(labels: dict[str, str] | None, wanted: str) -> None:
    assert answers(labelled("!b a=1"), Subject("n", {}, labels=labels)) == {"n: nodes.gpu.label": wanted}


def pooled() -> Recipe:
    pools = tuple(
        Pool(name=n, criteria={}, node_selector={"p": n}, constraints={"os.id": "ubuntu", "kernel.version": kernel})
        for n, kernel in (("x", ">= 6.8"), ("y", ">= 5.14"))
    )
    return msgspec.structs.replace(H100, constraints={"kubernetes.version": ">= 1.32"}, pools=pools)


def test_a_node_is_held_against_its_own_pool() -> None:
    old = {**READINGS, "kernel.version": "5.14.0-503.el9"}
    assert answers(pooled(), Subject("n", old, labels={"p": "x"}))["n: kernel.version"] == "failed"
    assert answers(pooled(), Subject("n", old, labels={"p": "y"}))["n: kernel.version"] == "passed"
    assert answers(pooled(), Subject("n", old, labels={"p": "z"})) == {"n: pool": "unknown"}
    assert answers(pooled(), Subject("n", old)) == {"n: os.id": "passed", "n: kernel.version": "unknown"}


@given(st.sets(st.sampled_from(sorted(READINGS))), st.sampled_from([None, {}, {"p": "x"}, {"p": "y"}]))
def test_knowing_less_never_turns_into_a_pass(hidden: set[str], labels: Any) -> None:
    whole = answers(pooled(), Subject("n", READINGS, labels={"p": "x"}))
    less = {name: value for name, value in READINGS.items() if name not in hidden}
    known_labels = labels if labels == {"p": "x"} else None
    for name, answer in answers(pooled(), Subject("n", less, labels=known_labels)).items():
        assert answer in (whole[name], "unknown")


def readings(**values: str) -> tuple[Reading, ...]:
    return tuple(
        Reading(name=name.replace("__", "/").replace("_", "."), value=value, reading_class=ReadingClass.STACK)
        for name, value in values.items()
    )


NOW = datetime(2026, 9, 1, tzinfo=UTC)


def test_a_node_snapshot_is_a_subject() -> None:
    snapshot = NodeSnapshot(
        node="n",
        taken_at=NOW,
        fingerprint="",
        digests={},
        readings=readings(os_id="ubuntu"),
        unknown=(UnknownReading(name="driver.version", reason="permission denied"),),
    )
    (subject,) = subjects_of(snapshot)
    assert subject == Subject("node n", {"os.id": "ubuntu"}, reasons={"driver.version": "permission denied"})


def test_a_cluster_snapshot_is_a_cluster_and_its_gpu_nodes() -> None:
    gpus = readings(capacity_nvidia_com__gpu="8", kernel_version="5.14.0-503.el9")
    snapshot = ClusterSnapshot(
        taken_at=NOW,
        readings=readings(kubernetes_version="v1.34.1"),
        nodes=(
            NodeEntry(node="cpu", reported=readings(kernel_version="5.4", capacity_nvidia_com__gpu="0")),
            NodeEntry(node="gpu", reported=gpus, readings=readings(kernel_version="6.8.0", os_id="ubuntu")),
            NodeEntry(node="seen", labels={"nvidia.com/gpu.present": "true"}),
        ),
    )
    cluster, gpu, seen = subjects_of(snapshot)
    assert (cluster.is_cluster, cluster.readings) == (True, {"kubernetes.version": "v1.34.1"})
    assert gpu.readings["kernel.version"] == "6.8.0"
    assert (gpu.name, seen.name) == ("node gpu", "node seen")
    found = answers(H100, cluster, gpu, seen)
    assert found["cluster: kubernetes.version"] == "passed"
    assert found["node gpu: os.id"] == "passed"
    assert found["node seen: os.id"] == "unknown"
    assert not any("cpu" in key for key in found)


def test_a_cluster_without_gpu_nodes_is_never_a_pass() -> None:
    whole = subjects_of(ClusterSnapshot(taken_at=NOW, readings=readings(kubernetes_version="v1.34.1")))
    assert answers(H100, *whole)["GPU nodes: os.id"] == "unknown"
    assert "no node with GPUs" in next(j.reason for j in judge(H100, whole) if j.constraint == "os.id")
    forbidden = ClusterSnapshot(taken_at=NOW, unknown=(UnknownReading(name="nodes", reason="forbidden"),))
    found = {j.constraint: j for j in judge(H100, subjects_of(forbidden))}
    assert found["os.id"].reason == "forbidden"
    assert found["kubernetes.version"].answer is Answer.UNKNOWN


def test_a_snapshot_that_contradicts_itself_is_unknown() -> None:
    twice = (
        *readings(kernel_version="5.4"),
        *readings(kernel_version="6.8.0", os_id="ubuntu"),
    )
    both = (UnknownReading(name="os.id", reason="permission denied"),)
    entry = NodeEntry(node="n", labels={"nvidia.com/gpu.present": "true"}, readings=twice, unknown=both)
    versions = (*readings(kubernetes_version="v1.20.0"), *readings(kubernetes_version="v1.34.1"))
    whole = subjects_of(ClusterSnapshot(taken_at=NOW, readings=versions, nodes=(entry,)))
    alone = subjects_of(
        NodeSnapshot(node="n", taken_at=NOW, fingerprint="", digests={}, readings=twice, unknown=both)
    )
    for found in (answers(H100, *whole), answers(H100, *alone)):
        assert found["node n: kernel.version"] == "unknown"
        assert found["node n: os.id"] == "unknown"
    assert answers(H100, *whole)["cluster: kubernetes.version"] == "unknown"
    reasons = {j.constraint: j.reason for j in judge(H100, whole)}
    assert reasons["kubernetes.version"] == "the snapshot says v1.20.0 and v1.34.1"
    assert reasons["os.id"] == "permission denied"
    said_twice = (*readings(kubernetes_version="v1.34.1"), *readings(kubernetes_version="v1.34.1"))
    cluster, _ = subjects_of(ClusterSnapshot(taken_at=NOW, readings=said_twice))
    assert answers(H100, cluster) == {"cluster: kubernetes.version": "passed"}


def test_a_node_that_cannot_count_its_gpus_is_not_passed_over() -> None:
    good = NodeEntry(
        node="good",
        labels={"nvidia.com/gpu.present": "true"},
        readings=readings(os_id="ubuntu", kernel_version="6.8.0"),
    )
    dead = NodeEntry(
        node="dead",
        reported=readings(capacity_nvidia_com__gpu="0", kernel_version="6.8.0"),
        readings=readings(os_id="ubuntu"),
        unknown=(UnknownReading(name="gpu.count", reason="the PCI device 0000:3b:00.0: I/O error"),),
    )
    cpu = NodeEntry(node="cpu", readings=readings(gpu_count="0", os_id="rhel"))
    found = subjects_of(ClusterSnapshot(taken_at=NOW, nodes=(good, dead, cpu)))
    answered = {j.subject: j for j in judge(H100, found) if j.constraint == "os.id"}
    assert answered["node good"].answer is Answer.PASSED
    assert answered["node dead"].answer is Answer.UNKNOWN
    assert answered["node dead"].reason == "its GPUs could not be counted: the PCI device 0000:3b:00.0: I/O error"
    assert "node cpu" not in answered
