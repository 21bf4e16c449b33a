"""Evictions against PodDisruptionBudgets: what they allow, what they answer, and how budgets recover."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import STRATEGIC, Answer, Client
from tests.contract.server import SIMULATOR, Server, eventually
from tests.contract.workloads import Place, budget, pod

pytestmark = pytest.mark.usefixtures("controllers")
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
Figures = tuple[int, int, int, int]
"""disruptionsAllowed, currentHealthy, desiredHealthy, expectedPods."""


@pytest.fixture
def place(server: Server, namespace: str) -> Place:
    return Place(server, namespace)


def status_of(place: Place, name: str = "b") -> dict[str, Any]:
    """The budget's status once the disruption controller has seen this version of it."""

    def seen() -> dict[str, Any]:
        found = place.admin.get(f"{place.budgets}/{name}").ok()
        status: dict[str, Any] = found["status"]
        return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}

    return eventually(seen)


def figures(place: Place, name: str = "b") -> Figures:
    status = status_of(place, name)
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    allowed, healthy, desired, expected = (status[name] for name in names)
    return allowed, healthy, desired, expected


def settles(place: Place, wanted: Figures, name: str = "b") -> None:
    eventually(lambda: figures(place, name) == wanted)


def set_budget(place: Place, wanted: Figures, name: str = "b", **spec: Any) -> None:
    """Create a budget for the pods of `app: a` and wait until its status is `wanted`."""
    place.admin.create(place.budgets, budget(name, "a", **spec)).ok()
    settles(place, wanted, name)


def refused(answer: Answer) -> str:
    """The cause that a refusal by a budget tells."""
    assert answer.refused(429, "TooManyRequests") == REFUSAL
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    return str(cause["message"])


def is_ending(place: Place, name: str) -> bool:
    return "deletionTimestamp" in place.admin.get(f"{place.pods}/{name}").ok()["metadata"]


def success(answer: Answer) -> None:
    assert answer.status == 201
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }


# Without a budget


def test_an_eviction_is_a_deletion_with_a_reason(admin: Client, place: Place) -> None:
    place.run("p", app="a")
    success(place.evict("p"))
    found = admin.get(f"{place.pods}/p").ok()
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    (target,) = [c for c in found["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"
    success(place.evict("p"))
    success(place.evict("p", {"gracePeriodSeconds": 0}))
    assert place.is_gone(f"{place.pods}/p")


def test_the_grace_period_of_an_eviction(admin: Client, place: Place) -> None:
    place.run("p", app="a")
    success(place.evict("p", {"gracePeriodSeconds": 7}))
    assert admin.get(f"{place.pods}/p").ok()["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_pod_that_is_not_there(place: Place) -> None:
    assert place.evict("nobody").refused(404, "NotFound") == 'pods "nobody" not found'


def test_preconditions_of_an_eviction(admin: Client, place: Place) -> None:
    made = place.run("p", app="a")["metadata"]
    answer = place.evict("p", {"preconditions": {"uid": "another"}})
    message = answer.refused(409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on Pod "p": the UID in the precondition (another) does not match the UID in '
        f"record ({made['uid']}). The object might have been deleted and then recreated"
    )
    assert answer.body["details"] == {"name": "p", "kind": "Pod"}
    message = place.evict("p", {"preconditions": {"resourceVersion": "1"}}).refused(409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record" in message
    assert not is_ending(place, "p")
    right = {"uid": made["uid"], "resourceVersion": admin.get(f"{place.pods}/p").ok()["metadata"]["resourceVersion"]}
    success(place.evict("p", {"preconditions": right}))
    assert is_ending(place, "p")


@pytest.mark.parametrize("body", [{"metadata": {"name": "other"}}, {"metadata": {}}, {}])
def test_the_name_must_be_that_of_the_url(admin: Client, place: Place, body: dict[str, Any]) -> None:
    place.run("p", app="a")
    answer = admin.create(f"{place.pods}/p/eviction", body)
    assert answer.refused(400, "BadRequest") == "name in URL does not match name in Eviction object"
    assert not is_ending(place, "p")


def test_a_dry_run_evicts_nobody(place: Place) -> None:
    place.run("p", app="a")
    set_budget(place, (1, 1, 0, 1), minAvailable=0)
    success(place.evict("p", {"dryRun": ["All"]}))
    success(place.evict("p", None, dryRun="All"))
    assert not is_ending(place, "p")
    assert figures(place) == (1, 1, 0, 1)


def test_an_unbound_pod_is_evicted_at_once(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p")).ok()
    success(place.evict("p"))
    assert place.is_gone(f"{place.pods}/p")


# With a budget


def test_a_budget_allows_as_many_as_it_can_spare_and_recovers(admin: Client, place: Place) -> None:
    for name in ("p0", "p1", "p2"):
        place.run(name, app="a")
    set_budget(place, (1, 3, 2, 3), minAvailable=2)
    success(place.evict("p0"))
    assert is_ending(place, "p0")
    settles(place, (0, 2, 2, 3))
    answer = place.evict("p1")
    assert refused(answer) == "The disruption budget b needs 2 healthy pods and has 2 currently"
    assert "retry-after" not in answer.headers
    assert not is_ending(place, "p1")
    admin.delete(f"{place.pods}/p0", {"gracePeriodSeconds": 0}).ok()
    settles(place, (0, 2, 2, 2))
    place.run("p3", app="a")
    settles(place, (1, 3, 2, 3))
    success(place.evict("p1"))
    settles(place, (0, 2, 2, 3))
    # The eviction names the pod in the same write as the figures; the controller takes it off
    # once it has seen the pod end.
    eventually(lambda: "disruptedPods" not in status_of(place))
    (condition,) = status_of(place)["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )


def test_an_eviction_of_the_wrong_pod_costs_the_budget_for_a_while(admin: Client, place: Place) -> None:
    place.run("p0", app="a")
    place.run("p1", app="a")
    set_budget(place, (1, 2, 1, 2), minAvailable=1)
    place.evict("p0", {"preconditions": {"uid": "another"}}).refused(409, "Conflict")
    settles(place, (0, 1, 1, 2))
    assert list(admin.get(f"{place.budgets}/b").ok()["status"]["disruptedPods"]) == ["p0"]
    assert refused(place.evict("p1")) == "The disruption budget b needs 1 healthy pods and has 1 currently"


def test_two_budgets_for_one_pod(place: Place) -> None:
    place.run("p", app="a")
    set_budget(place, (1, 1, 0, 1), minAvailable=0)
    set_budget(place, (1, 1, 0, 1), "c", minAvailable=0)
    answer = place.evict("p")
    assert answer.status == 500
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        "code": 500,
    }
    assert not is_ending(place, "p")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1}, (2, 3, 1, 3)),
        ({"minAvailable": 3}, (0, 3, 3, 3)),
        ({"minAvailable": 9}, (0, 3, 9, 3)),
        ({"minAvailable": 0}, (3, 3, 0, 3)),
        # Nobody says how many bare pods there should be: a share of them, or a number that may be missing, allows
        # nothing.
        ({"minAvailable": "50%"}, (0, 3, 0, 0)),
        ({"maxUnavailable": "50%"}, (0, 3, 0, 0)),
        ({"maxUnavailable": 1}, (0, 3, 0, 0)),
        ({}, (0, 3, 0, 0)),
    ],
)
def test_what_budgets_of_bare_pods_allow(place: Place, spec: dict[str, Any], expected: Figures) -> None:
    for name in ("p0", "p1", "p2"):
        place.run(name, app="a")
    set_budget(place, expected, **spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": "50%"}, (1, 3, 2, 4)),
        ({"minAvailable": "51%"}, (0, 3, 3, 4)),
        ({"maxUnavailable": "30%"}, (1, 3, 2, 4)),
        ({"maxUnavailable": 1}, (0, 3, 3, 4)),
        ({"maxUnavailable": "100%"}, (3, 3, 0, 4)),
    ],
)
def test_what_budgets_of_a_set_allow(admin: Client, place: Place, spec: dict[str, Any], expected: Figures) -> None:
    owner = replica_set(admin, place, replicas=4)
    for name in ("p0", "p1", "p2"):
        place.run(name, app="a", ownerReferences=[owner])
    set_budget(place, expected, **spec)


def replica_set(admin: Client, place: Place, replicas: int) -> dict[str, Any]:
    """A reference to a set that wants `replicas` pods. On a real cluster it makes up for those that are missing;
    its own pods have no node, so it deletes them first when there are more."""
    labels = {"app": "a"}
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{place.namespace}/replicasets"
    made = admin.create(path, {"metadata": {"name": "set"}, "spec": spec}).ok()
    uid = made["metadata"]["uid"]
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": uid, "controller": True}


def test_a_budget_of_pods_whose_controller_has_no_size(admin: Client, place: Place) -> None:
    owner = admin.create(place.config_maps, {"metadata": {"name": "owner"}}).ok()["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner, "controller": True}
    place.run("p", app="a", ownerReferences=[reference])
    admin.create(place.budgets, budget("b", "a", maxUnavailable=1)).ok()

    def failed() -> dict[str, Any]:
        conditions = admin.get(f"{place.budgets}/b").ok()["status"].get("conditions", [])
        return next((c for c in conditions if c["reason"] == "SyncFailed"), {})

    condition = eventually(failed)
    assert condition["status"] == "False"
    assert condition["message"] == "configmaps does not implement the scale subresource"
    answer = place.evict("p")
    assert refused(answer) == "The disruption budget b is still being processed by the server."
    assert answer.headers["retry-after"] == "10"
    assert answer.body["details"]["retryAfterSeconds"] == 10


# Pods that are not ready, or not running


def test_a_pod_that_is_not_ready_may_go_when_enough_others_are(place: Place) -> None:
    place.run("p0", app="a")
    place.run("p1", app="a")
    place.run("ill", app="a", ready="False")
    set_budget(place, (0, 2, 2, 3), minAvailable=2)
    success(place.evict("ill"))
    assert figures(place)[:2] == (0, 2)
    assert refused(place.evict("p0")).endswith("needs 2 healthy pods and has 2 currently")


@pytest.mark.parametrize(("policy", "allowed"), [("IfHealthyBudget", False), ("AlwaysAllow", True), (None, False)])
def test_a_pod_that_is_not_ready_while_others_lack(place: Place, policy: str | None, allowed: bool) -> None:
    place.run("p0", app="a")
    place.run("ill", app="a", ready="False")
    set_budget(place, (0, 1, 2, 2), minAvailable=2, unhealthyPodEvictionPolicy=policy)
    answer = place.evict("ill")
    if allowed:
        success(answer)
    else:
        assert refused(answer) == "The disruption budget b needs 2 healthy pods and has 1 currently"
    assert is_ending(place, "ill") is allowed


@pytest.mark.parametrize(("phase", "at_once"), [("Pending", False), ("Succeeded", True), ("Failed", True)])
def test_pods_that_do_not_run_are_free(place: Place, phase: str, at_once: bool) -> None:
    place.run("p", app="a", phase=phase, ready="False")
    set_budget(place, (0, 0, 5, 1), minAvailable=5)
    success(place.evict("p"))
    assert place.is_gone(f"{place.pods}/p") is at_once


def test_a_pod_that_is_ending_already_is_free(admin: Client, place: Place) -> None:
    place.run("p", app="a")
    set_budget(place, (0, 1, 5, 1), minAvailable=5)
    assert "needs 5 healthy pods" in refused(place.evict("p"))
    admin.delete(f"{place.pods}/p").ok()
    success(place.evict("p"))


def test_readiness_moves_the_budget(admin: Client, place: Place) -> None:
    place.run("p0", app="a")
    place.run("p1", app="a")
    set_budget(place, (1, 2, 1, 2), minAvailable=1)
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    admin.patch(f"{place.pods}/p0/status", status, STRATEGIC).ok()
    settles(place, (0, 1, 1, 2))
    admin.patch(f"{place.budgets}/b", {"spec": {"minAvailable": 0}}).ok()
    settles(place, (1, 1, 0, 2))


def test_whom_a_selector_is_about(admin: Client, place: Place) -> None:
    place.run("p", app="a")
    everybody = {"metadata": {"name": "all"}, "spec": {"minAvailable": 0, "selector": {}}}
    admin.create(place.budgets, everybody).ok()
    settles(place, (1, 1, 0, 1), "all")
    admin.create(place.budgets, {"metadata": {"name": "none"}, "spec": {"minAvailable": 0}}).ok()
    settles(place, (0, 0, 0, 0), "none")
    success(place.evict("p"))


# Budgets themselves


def test_a_new_budget_has_seen_nothing(admin: Client, place: Place) -> None:
    made = admin.create(place.budgets, {**budget("b", "a", minAvailable=1), "status": {"currentHealthy": 9}}).ok()
    assert made["metadata"]["generation"] == 1
    zeros = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    assert made["status"] == zeros


@pytest.mark.parametrize(
    ("spec", "field", "detail"),
    [
        ({"minAvailable": -1}, "spec.minAvailable", "Invalid value: -1: must be greater than or equal to 0"),
        ({"minAvailable": "120%"}, "spec.minAvailable", 'Invalid value: "120%": must not be greater than 100%'),
        (
            {"maxUnavailable": "x"},
            "spec.maxUnavailable",
            "Invalid value: \"x\": a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
        (
            {"minAvailable": 1, "unhealthyPodEvictionPolicy": "Maybe"},
            "spec.unhealthyPodEvictionPolicy",
            'Unsupported value: "Maybe": supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
    ],
)
def test_bad_budgets_are_refused(admin: Client, place: Place, spec: dict[str, Any], field: str, detail: str) -> None:
    answer = admin.create(place.budgets, budget("b", "a", **spec))
    message = answer.refused(422, "Invalid")
    assert message == f'PodDisruptionBudget.policy "b" is invalid: {field}: {detail}'
    assert answer.body["details"]["causes"][0]["field"] == field


def test_a_budget_has_one_limit(server: Server, admin: Client, place: Place) -> None:
    answer = admin.create(place.budgets, budget("b", "a", minAvailable=1, maxUnavailable=1))
    assert answer.refused(422, "Invalid").endswith("minAvailable and maxUnavailable cannot be both set")
    assert answer.body["details"]["causes"][0]["field"] == "spec"


def test_the_status_of_a_budget_is_the_controllers(server: Server, admin: Client, place: Place) -> None:
    place.run("p", app="a")
    set_budget(place, (0, 1, 1, 1), minAvailable=1)
    admin.patch(f"{place.budgets}/b", {"status": {"disruptionsAllowed": 5}}).ok()
    assert figures(place) == (0, 1, 1, 1), "the main resource does not write the status"
    admin.patch(f"{place.budgets}/b/status", {"status": {"disruptionsAllowed": 5}}).ok()
    settles(place, (0, 1, 1, 1))
    assert server.name == SIMULATOR or server.controllers
