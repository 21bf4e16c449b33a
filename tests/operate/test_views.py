"""Projections of Kubernetes objects: what is kept, and that hostile text asks for nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.model import TestRequest
from muster.operate.views import (
    certification_record,
    gpus_of_annotations,
    node_record,
    pod_view,
    read_requests,
    write_requests,
)
from muster.resources.certification import NodeVerdict
from tests.operate.worlds import START


def raw(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def pod(resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "work", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": resources}], **spec},
    }


@pytest.mark.parametrize(
    ("body", "gpus"),
    [
        (pod({"limits": {"nvidia.com/gpu": "8"}}), 8),
        (pod({"limits": {"nvidia.com/gpu": 4}}), 4),
        (pod({"requests": {"nvidia.com/mig-1g.10gb": "2"}}), 2),
        (pod({}, resourceClaims=[{"name": "gpu"}]), 1),
    ],
)
def test_a_pod_that_may_hold_gpus_is_kept(body: dict[str, Any], gpus: int) -> None:
    view = pod_view(raw(body))
    assert view is not None
    assert (view.gpus, view.is_work) == (gpus, True)


def test_a_pod_without_gpus_is_not_kept_and_a_test_pod_is_no_work() -> None:
    assert pod_view(raw(pod({"limits": {"cpu": "8"}}))) is None
    test = pod({"limits": {"nvidia.com/gpu": "8"}})
    test["metadata"]["labels"] = {"muster.dev/certification": "c"}
    view = pod_view(raw(test))
    assert view is not None
    assert not view.is_work


def test_a_node_with_neither_label_nor_gpus_is_none_of_our_business() -> None:
    assert not node_record(raw({"metadata": {"name": "cpu"}, "status": {"capacity": {"cpu": "8"}}})).gpus
    assert node_record(raw({"metadata": {"name": "g"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}})).gpus


def test_requests_survive_the_annotation() -> None:
    requests = [("n1", TestRequest("e1", START, "sha256:x", "b")), ("n0", TestRequest("e2", START, "sha256:y", "c"))]
    assert read_requests(write_requests(requests)) == dict(requests)


@given(st.one_of(st.text(max_size=60), st.sampled_from(['{"n":1}', "[]", '{"n":{"episode":"e"}}', "null"])))
def test_an_annotation_that_is_something_else_asks_for_nothing(text: str) -> None:
    assert read_requests(text) == {}


def test_a_certificate_lists_the_tests_that_the_node_passed_with_their_numbers() -> None:
    runs = [
        {"id": "a", "round": 1, "test": "pair", "nodes": ["n1", "n2"], "outcome": "PASS"},
        {"id": "b", "round": 1, "test": "host", "nodes": ["n1"], "outcome": "FAIL"},
        {"id": "c", "round": 1, "test": "burn", "nodes": ["n2"], "outcome": "PASS"},
    ]
    nodes = [{"name": "n1", "verdict": "Passed", "metrics": {"pair.busbw": 480.0, "burn.tflops": 1.0}}]
    record = certification_record(
        raw(
            {
                "metadata": {"name": "c", "annotations": {"muster.dev/test-digests": '{"pair": "sha256:p"}'}},
                "spec": {"nodes": ["n1", "n2"], "profile": "repair"},
                "status": {"phase": "Succeeded", "nodes": nodes, "runs": runs},
            }
        )
    )
    (test,) = record.view("n1").tests
    assert (test.name, test.digest, test.metrics) == ("pair", "sha256:p", {"pair.busbw": 480.0})
    assert record.view("n2").verdict is NodeVerdict.UNTESTED


def test_what_is_kept_of_a_pod_tells_its_labels_gpus_and_checkpoints() -> None:
    gpu = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    raw = {
        "metadata": {
            "name": "train",
            "namespace": "work",
            "uid": "u1",
            "labels": {"tier": "batch", "app": "x"},
            "annotations": {
                "dgxc.nvidia.com/devices": json.dumps({"devices": {"nvidia.com/gpu": [gpu]}}),
                "muster.dev/checkpoint": "true",
                "muster.dev/checkpoint-asked": "e1",
                "muster.dev/checkpoint-done": "e0",
            },
        },
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    view = pod_view(json.dumps(raw).encode())
    assert view is not None
    assert view.carries({"tier": "batch"})
    assert not view.carries({"tier": "web"})
    assert view.gpu_uuids == (gpu,)
    assert (view.checkpoint, view.checkpoint_asked, view.checkpoint_done) == (True, "e1", "e0")


@pytest.mark.parametrize(
    "text", ["", "GPU-1", "MIG-01234567-89ab-cdef-0123-456789abcdef", "{" * 9000, "x" * 9000 + "GPU-"]
)
def test_an_annotation_that_names_no_whole_gpu_tells_nothing(text: str) -> None:
    assert gpus_of_annotations({"muster.dev/gpus": text}) == ()


def test_a_pod_takes_little_memory() -> None:
    import tracemalloc

    def raw(number: int) -> bytes:
        labels = {"app": "train", "job": f"job-{number // 64}", "index": str(number % 64), "tier": "batch"}
        meta = {"name": f"train-{number}", "namespace": "work", "uid": f"u-{number:032}", "labels": labels}
        spec = {"nodeName": f"n{number // 8}", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
        return json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}).encode()

    raws = [raw(n) for n in range(2000)]
    pod_view(raws[0])
    tracemalloc.start()
    kept = [pod_view(r) for r in raws]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(kept) < 620, "bytes for each pod"
