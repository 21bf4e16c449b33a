"""What objects of a cluster say, taken apart: images, labels, values, providers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.snapshot.nodes import entry_of, expected_gpus, label_class, service_of, taint_class
from muster.configure.snapshot.objects import (
    crd_item,
    definition_of,
    images_of,
    policy_item,
    storage_class_item,
    uses_of,
)
from muster.configure.snapshot.values import readings_of
from muster.resources.fingerprint import ReadingClass

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
IDENTITY, STACK, CONFIG, VOLATILE = ReadingClass


def pod_json(image: str, image_id: str = "", owner: str = "DaemonSet", phase: str = "Running") -> bytes:
    owners = [{"kind": owner, "controller": True}] if owner else []
    status: dict[str, Any] = {"phase": phase}
    if image_id:
        status["containerStatuses"] = [{"name": "c", "imageID": image_id}]
    pod = {"metadata": {"ownerReferences": owners}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return json.dumps({**pod, "status": status}).encode()


@pytest.mark.parametrize(
    ("image", "repository", "tag", "pinned"),
    [
        ("nginx", "nginx", "latest", ""),
        ("nginx:1.27", "nginx", "1.27", ""),
        ("localhost:5000/nginx", "localhost:5000/nginx", "latest", ""),
        ("reg.example.com:5000/a/b:v1-x", "reg.example.com:5000/a/b", "v1-x", ""),
        (f"a/b@{A}", "a/b", "", A),
        (f"a/b:1@{A}", "a/b", "1", A),
    ],
)
def test_parts_of_an_image(image: str, repository: str, tag: str, pinned: str) -> None:
    (use,) = uses_of(pod_json(image))
    assert (use.repository, use.tag, use.pinned) == (repository, tag, pinned)


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        (f"reg.example.com/a@{A}", A),
        (f"docker-pullable://a@{A}", A),
        (A, ""),  # the identity of a configuration, which is no digest of an image
        ("", ""),
        ("a@sha256:short", ""),
    ],
)
def test_the_digest_of_a_running_image(image_id: str, digest: str) -> None:
    assert uses_of(pod_json("a:1", image_id))[0].digest == digest


def test_one_tag_with_two_digests_and_two_tags_are_all_told() -> None:
    pods = [pod_json("a:1", f"a@{A}"), pod_json("a:1", f"a@{B}"), pod_json("a:2", f"a@{A}")]
    (image,) = images_of(use for raw in pods for use in uses_of(raw))
    assert {r.name: r.value for r in image.readings} == {"tag.1": f"{A},{B}", "tag.2": A}


@pytest.mark.parametrize(
    ("owner", "phase", "expected"),
    [
        ("DaemonSet", "Running", STACK),
        ("Job", "Running", VOLATILE),
        ("", "Running", VOLATILE),
        ("ReplicaSet", "Failed", VOLATILE),
    ],
)
def test_images_of_what_comes_and_goes_are_volatile(owner: str, phase: str, expected: ReadingClass) -> None:
    (image,) = images_of(uses_of(pod_json("a:1", f"a@{A}", owner, phase)))
    assert image.readings[0].reading_class is expected


def test_an_image_of_which_nothing_has_started_is_unknown() -> None:
    (image,) = images_of(uses_of(pod_json("a:1", phase="Pending")))
    assert [u.name for u in image.unknown] == ["tag.1"]


@pytest.mark.parametrize(
    ("provider_id", "service"),
    [
        ("aws:///us-west-2a/i-0abc", "eks"),
        ("gce://project/zone/name", "gke"),
        ("azure:///subscriptions/x", "aks"),
        ("ocid1.instance.oc1.iad.abc", "oke"),
        ("linode://123", "lke"),
        ("metal3://x", "metal3"),
    ],
)
def test_the_service_of_a_provider_id(provider_id: str, service: str) -> None:
    assert service_of(provider_id) == service


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("nvidia.com/gfd.timestamp", VOLATILE),
        ("nvidia.com/gpu.deploy.driver", VOLATILE),
        ("muster.dev/state", VOLATILE),
        ("skyhook.nvidia.com/status_tuning", VOLATILE),
        ("nodewright.nvidia.com/status_tuning", VOLATILE),
        ("dgxc.nvidia.com/nvsentinel-state", VOLATILE),
        ("topology.kubernetes.io/rack", IDENTITY),
        ("nvidia.com/cuda.driver-version.full", STACK),
        ("team", CONFIG),
    ],
)
def test_what_a_label_means(key: str, expected: ReadingClass) -> None:
    assert label_class(key) is expected


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unreachable",
        "muster.dev/hold",
        # The autoscaler gives and takes this one on any idle node, with the time as value.
        "DeletionCandidateOfClusterAutoscaler",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cilium.io/agent-not-ready",
        "skyhook.nvidia.com",
    ],
)
def test_taints_of_controllers_are_volatile(key: str) -> None:
    assert taint_class(key) is VOLATILE
    assert taint_class("nvidia.com/gpu") is CONFIG


def test_a_key_with_two_effects_is_two_taints() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute", "value": "v"}]
    entry = entry_of({"metadata": {"name": "n"}, "spec": {"taints": taints}})
    assert [(t.key, t.effect, t.value) for t in entry.taints] == [("k", "NoExecute", "v"), ("k", "NoSchedule", "")]


@pytest.mark.parametrize(
    ("capacity", "labels", "expected"),
    [
        ({"nvidia.com/gpu": "8"}, {}, 8),
        ({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu.count": "4"}, 4),
        ({}, {"nvidia.com/gpu.present": "true"}, 1),
        ({}, {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, 1),
        ({}, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, 1),
        ({"nvidia.com/gpu": "many"}, {}, 0),
        ({}, {}, 0),
    ],
)
def test_gpus_that_a_node_promises(capacity: dict[str, str], labels: dict[str, str], expected: int) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"capacity": capacity}}
    assert expected_gpus(entry_of(node)) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_values_become_readings_with_names_of_their_own(values: Any) -> None:
    found = readings_of("values", values, CONFIG)
    assert len({r.name for r in found}) == len(found) >= 1
    assert readings_of("values", values, CONFIG) == found


@given(
    st.dictionaries(
        st.sampled_from(["password", "apiKey", "client_secret", "token"]), st.just("hunter2hunter2"), min_size=1
    )
)
def test_no_secret_is_kept(values: dict[str, str]) -> None:
    nested = {"a": [{"b": values}], "env": [{"name": next(iter(values)), "value": "hunter2hunter2"}]}
    assert "hunter2" not in str(readings_of("values", nested, CONFIG))


def test_a_password_of_digits_is_hidden() -> None:
    (reading,) = readings_of("values", {"grafana": {"adminPassword": 123456}}, CONFIG)
    assert reading.value == "(hidden)"


def test_an_entry_in_front_of_a_list_is_one_change() -> None:
    """Compared by position, every entry behind it would count as changed."""
    tolerations = [{"key": key, "operator": "Exists"} for key in ("a", "b", "c")]
    before = readings_of("spec", {"tolerations": tolerations, "driver": {"version": "580"}}, CONFIG)
    after = readings_of("spec", {"tolerations": [{"key": "z"}, *tolerations], "driver": {"version": "580"}}, CONFIG)
    assert [r.name for r in before] == [r.name for r in after] == ["spec.driver.version", "spec.tolerations"]
    assert [a.name for a, b in zip(before, after, strict=True) if a != b] == ["spec.tolerations"]
    many = [{"name": f"k{n}"} for n in range(500)]
    ends = [readings_of("spec", {"l": [*many, {"name": end}]}, CONFIG)[0].value for end in "xy"]
    assert ends[0] != ends[1]


def test_long_text_is_kept_as_its_digest() -> None:
    (reading,) = readings_of("values", {"script": "x" * 5000}, CONFIG)
    assert reading.value.startswith("sha256:")
    assert reading.value != readings_of("values", {"script": "x" * 4999 + "y"}, CONFIG)[0].value


@pytest.mark.parametrize(
    "hostile", [{}, {"metadata": None, "spec": [], "status": 3}, {"metadata": {"name": None, "labels": [1]}}]
)
def test_odd_objects_do_not_break_a_snapshot(hostile: dict[str, Any]) -> None:
    assert entry_of(hostile).labels == {}
    assert isinstance(policy_item("x", hostile).readings, tuple)
    assert isinstance(storage_class_item(hostile).readings, tuple)


def test_a_definition_that_is_not_established_yet() -> None:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
    crd = {"metadata": {"name": "a.b"}, "spec": {"group": "b", "scope": "Cluster", "versions": versions}}
    item = crd_item(definition_of(json.dumps(crd).encode()))
    assert [u.name for u in item.unknown] == ["established"]
    told = {r.name: r.value for r in item.readings}
    assert (told["stored"], told["versions"]) == ("v1", "v1")
