"""Evictions against PodDisruptionBudgets, and bindings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import POD_DISRUPTION_BUDGETS, PODS, ResourceType
from muster.sim.api_status import StatusError
from muster.sim.store import Store

from .samples import MERGE, add_budget, add_pod, make_ready, new_store

JOBS = ResourceType("batch", "v1", "jobs", "Job", True)
REPLICA_SETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet", True)


def store_with_pods(count: int = 3, *, ready: int | None = None) -> Store:
    store = new_store()
    for number in range(count):
        add_pod(store, f"p{number}", "n1", app="a")
        make_ready(store, f"p{number}", "True" if ready is None or number < ready else "False")
    return store


def evict(store: Store, name: str, **options: Any) -> None:
    store.evict(name, "default", {"metadata": {"name": name}, "deleteOptions": options})


def budget_status(store: Store) -> dict[str, Any]:
    status: dict[str, Any] = store.get(store.kind(POD_DISRUPTION_BUDGETS), "pdb", "default").obj["status"]
    return status


def test_eviction_marks_the_pod_and_spends_the_budget() -> None:
    store = store_with_pods()
    add_budget(store, {"minAvailable": 2})
    assert budget_status(store)["disruptionsAllowed"] == 1
    evict(store, "p0")
    assert "deletionTimestamp" in store.get(store.kind(PODS), "p0", "default").obj["metadata"]
    assert budget_status(store)["disruptionsAllowed"] == 0
    with pytest.raises(StatusError) as caught:
        evict(store, "p1")
    error = caught.value
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert error.causes[0].reason == "DisruptionBudget"
    assert error.causes[0].message == "The disruption budget pdb needs 2 healthy pods and has 2 currently"


def test_pods_outside_the_budget_and_finished_pods_are_free() -> None:
    store = store_with_pods(1)
    add_budget(store, {"minAvailable": 5})
    add_pod(store, "other", "n1")
    add_pod(store, "done", "n1", app="a")
    store.patch(store.kind(PODS), "done", {"status": {"phase": "Failed"}}, MERGE, "default", subresource="status")
    evict(store, "other", gracePeriodSeconds=0)
    evict(store, "done")
    assert store.find(store.kind(PODS), ("default", "other")) is None
    assert store.find(store.kind(PODS), ("default", "done")) is None


def test_unhealthy_pods_follow_the_policy() -> None:
    store = store_with_pods(3, ready=1)
    add_budget(store, {"minAvailable": 2})
    with pytest.raises(StatusError):
        evict(store, "p2")
    spec = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
    store.patch(store.kind(POD_DISRUPTION_BUDGETS), "pdb", {"spec": spec}, MERGE, "default")
    evict(store, "p2")
    assert "deletionTimestamp" in store.get(store.kind(PODS), "p2", "default").obj["metadata"]


def test_percentages_need_a_controller_that_can_tell_its_size() -> None:
    store = new_store()
    owner = store.create(
        store.kind(REPLICA_SETS),
        {
            "metadata": {"name": "rs"},
            "spec": {
                "replicas": 4,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        },
        "default",
    ).obj
    for number in range(4):
        add_pod(store, f"p{number}", "n1", app="a")
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "rs",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        store.patch(store.kind(PODS), f"p{number}", {"metadata": {"ownerReferences": [reference]}}, MERGE, "default")
        make_ready(store, f"p{number}")
    add_budget(store, {"maxUnavailable": "30%"})
    status = budget_status(store)
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (4, 2, 2)
    evict(store, "p0")
    assert budget_status(store)["disruptionsAllowed"] == 1


def test_nobody_knows_how_many_bare_pods_there_should_be() -> None:
    store = store_with_pods(2)
    add_budget(store, {"maxUnavailable": "50%"})
    status = budget_status(store)
    assert (status["expectedPods"], status["disruptionsAllowed"], status["currentHealthy"]) == (0, 0, 2)
    with pytest.raises(StatusError) as caught:
        evict(store, "p0")
    assert caught.value.causes[0].message == "The disruption budget pdb needs 0 healthy pods and has 2 currently"


@given(
    ready=st.lists(st.booleans(), min_size=1, max_size=6),
    minimum=st.integers(0, 7),
    order=st.permutations(range(6)),
    policy=st.sampled_from(["IfHealthyBudget", "AlwaysAllow"]),
)
def test_evictions_never_break_a_budget(ready: list[bool], minimum: int, order: list[int], policy: str) -> None:
    """Whoever is evicted in whatever order: as many ready pods stay as the budget asks for, if there were so many."""
    store = new_store()
    for number, is_ready in enumerate(ready):
        add_pod(store, f"p{number}", "n1", app="a")
        make_ready(store, f"p{number}", "True" if is_ready else "False")
    add_budget(store, {"minAvailable": minimum, "unhealthyPodEvictionPolicy": policy})
    evicted = 0
    for number in (number for number in order if number < len(ready)):
        gone = is_evicted(store, f"p{number}")
        evicted += gone and ready[number]
    healthy = budget_status(store)["currentHealthy"]
    assert healthy == sum(ready) - evicted
    assert healthy >= min(minimum, sum(ready))
    assert evicted == max(0, sum(ready) - minimum), "what may go does go"


def is_evicted(store: Store, name: str) -> bool:
    """Evict a pod. Whether its budget allowed it."""
    try:
        evict(store, name)
    except StatusError as error:
        if error.code != 429:
            raise
        return False
    return True


def test_two_budgets_for_one_pod_are_an_error() -> None:
    store = store_with_pods(2)
    add_budget(store, {"minAvailable": 1})
    add_budget(store, {"minAvailable": 1}, "second")
    with pytest.raises(StatusError) as caught:
        evict(store, "p0")
    assert caught.value.code == 500


def test_eviction_preconditions_and_dry_run() -> None:
    store = store_with_pods(1)
    with pytest.raises(StatusError) as caught:
        evict(store, "p0", preconditions={"uid": "other"})
    assert caught.value.code == 409
    with pytest.raises(StatusError) as caught:
        evict(store, "nobody")
    assert caught.value.code == 404
    store.evict("p0", "default", {"metadata": {"name": "p0"}}, dry_run=True)
    assert "deletionTimestamp" not in store.get(store.kind(PODS), "p0", "default").obj["metadata"]


@pytest.mark.parametrize(
    "spec", [{"minAvailable": -1}, {"minAvailable": "x"}, {"minAvailable": 1, "maxUnavailable": 1}]
)
def test_bad_budgets_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as caught:
        add_budget(new_store(), spec)
    assert caught.value.code == 422


def test_binding_assigns_once() -> None:
    store = new_store()
    add_pod(store)
    store.bind("p1", "default", {"metadata": {"name": "p1"}, "target": {"name": "n1"}})
    obj = store.get(store.kind(PODS), "p1", "default").obj
    assert obj["spec"]["nodeName"] == "n1"
    assert obj["status"]["conditions"][0]["type"] == "PodScheduled"
    with pytest.raises(StatusError) as caught:
        store.bind("p1", "default", {"metadata": {"name": "p1"}, "target": {"name": "n2"}})
    assert caught.value.code == 409
    with pytest.raises(StatusError) as caught:
        store.bind("p1", "default", {"metadata": {"name": "p1"}})
    assert caught.value.code == 500
