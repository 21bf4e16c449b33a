"""Which pods count as work, and what a snapshot of a cluster can and cannot tell."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from muster.operate.goodput_report import goodput_values, render_goodput
from muster.operate.ledger import TimeClass, build
from muster.operate.records import pod_use, snapshot_records
from tests.demo.samples import T0, at, in_service, out_of_service, reboot_repair, repairing

GPU = {"limits": {"nvidia.com/gpu": "8"}}


def pod(phase: str = "Running", *, resources: Any = GPU, labels: Any = None, **state: Any) -> bytes:
    return json.dumps(
        {
            "metadata": {"name": "train-0", "namespace": "training", "uid": "u1", "labels": labels or {}},
            "spec": {"nodeName": "node-01", "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}] if state else []},
        }
    ).encode()


def stamp(minutes: float) -> str:
    return at(minutes).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_running_gpu_pod_is_work_since_its_container_started() -> None:
    use = pod_use(pod(running={"startedAt": stamp(40)}))
    assert (use.counts, use.running, use.node, use.started) == (True, True, "node-01", at(40))


def test_a_finished_pod_ends_when_its_container_did() -> None:
    use = pod_use(pod("Failed", terminated={"startedAt": stamp(40), "finishedAt": stamp(50), "exitCode": 1}))
    assert (use.ended, use.started, use.finished) == (True, at(40), at(50))


@pytest.mark.parametrize(
    "raw",
    [
        pod(resources={}),
        pod(resources={"limits": {"nvidia.com/gpu": "0"}}),
        pod(resources={"limits": {"cpu": "8"}}),
        pod(labels={"muster.dev/certification": "bringup-1"}),
    ],
)
def test_what_asks_for_no_gpu_and_test_pods_are_no_work(raw: bytes) -> None:
    assert not pod_use(raw).counts


def test_requests_count_when_limits_are_silent() -> None:
    assert pod_use(pod(resources={"requests": {"nvidia.com/gpu": 1}})).counts


def test_what_is_no_pod_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        pod_use(b'{"metadata": []}')


def test_a_snapshot_calls_unwatched_time_unknown() -> None:
    uses = [pod_use(pod(running={"startedAt": stamp(60)}))]
    records = snapshot_records([in_service()], uses, [], {"node-01": "a"}, at(120))
    assert records[0].pool == "a"
    sums = build(records, T0, at(120)).by_class()
    assert sums[TimeClass.BUSY] == 60 * 60_000_000
    assert sums[TimeClass.UNKNOWN] == 30 * 60_000_000
    assert sums[TimeClass.IDLE] == 0


def test_the_report_names_causes_rungs_and_closes() -> None:
    healths = [in_service(), repairing(), out_of_service()]
    values = goodput_values(snapshot_records(healths, [], [reboot_repair()], {}, at(240)), T0, at(240))
    assert values["total"]["us"] == 3 * 240 * 60_000_000
    assert values["total"]["us"] - sum(x["us"] for x in values["losses"]) == values["busy"]["us"]
    assert sum(c["us"] for c in values["classes"].values()) == values["total"]["us"]
    text = render_goodput(values)
    for piece in ("bring-up of new nodes", "faults", "failed certification", "repairing, reboot", "still out: 2"):
        assert piece in text


def test_a_report_over_nothing_says_none_counted() -> None:
    text = render_goodput(goodput_values([], T0, T0))
    assert text.startswith("Goodput 0.0%")
    assert "none counted" in text
