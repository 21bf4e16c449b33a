"""The life of a namespace: active at once, emptied before it goes, closed to new content meanwhile."""

from __future__ import annotations

import pytest

from tests.contract.client import Client
from tests.contract.server import Server, eventually
from tests.contract.workloads import HOLD, Place, config_map, pod

NAMESPACES = "/api/v1/namespaces"
SLOW_S = 90.0
"""A namespace controller looks at a namespace every few seconds, and waits for graces of its pods."""


@pytest.fixture
def place(server: Server, namespace: str) -> Place:
    return Place(server, namespace)


def test_a_new_namespace(server: Server, admin: Client) -> None:
    name = server.unique("t")
    made = admin.create(NAMESPACES, {"metadata": {"name": name}}).ok()
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}


def test_the_end_of_a_namespace_begins_with_a_mark(admin: Client, place: Place) -> None:
    place.config("held", finalizers=[HOLD])
    answer = admin.delete(place.path).ok()
    assert answer["kind"] == "Namespace"
    assert answer["status"]["phase"] == "Terminating"
    assert answer["spec"] == {"finalizers": ["kubernetes"]}
    assert "deletionTimestamp" in answer["metadata"]
    assert "deletionGracePeriodSeconds" not in answer["metadata"]
    again = admin.delete(place.path).ok()
    assert again["metadata"]["deletionTimestamp"] == answer["metadata"]["deletionTimestamp"]
    place.free(f"{place.config_maps}/held").ok()


def test_a_terminating_namespace_takes_nothing_new(admin: Client, place: Place) -> None:
    place.config("held", finalizers=[HOLD])
    admin.delete(place.path).ok()
    answer = admin.create(place.config_maps, config_map("new"))
    message = answer.refused(403, "Forbidden")
    assert message == (
        f'configmaps "new" is forbidden: unable to create new content in namespace {place.namespace} because it is '
        "being terminated"
    )
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {place.namespace} is being terminated",
        "field": "metadata.namespace",
    }
    assert answer.body["details"] == {"name": "new", "kind": "configmaps", "causes": [cause]}
    applied = admin.apply(f"{place.config_maps}/new", config_map("new"), manager="tester")
    assert applied.body["details"]["causes"] == [cause]
    changed = admin.patch(f"{place.config_maps}/held", {"data": {"still": "here"}}).ok()
    assert changed["data"] == {"still": "here"}
    place.free(f"{place.config_maps}/held").ok()


@pytest.mark.full
@pytest.mark.usefixtures("controllers")
def test_a_namespace_is_emptied_pods_first(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("loose")).ok()
    admin.create(place.pods, pod("bound", "some-node")).ok()
    place.config("held", finalizers=[HOLD])
    place.config("plain")
    admin.delete(place.path).ok()
    eventually(lambda: place.is_gone(f"{place.pods}/loose"), SLOW_S)
    bound = admin.get(f"{place.pods}/bound").ok()
    assert bound["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" not in admin.get(f"{place.config_maps}/plain").ok()["metadata"]
    admin.delete(f"{place.pods}/bound", {"gracePeriodSeconds": 0}).ok()
    eventually(lambda: place.is_gone(f"{place.config_maps}/plain"), SLOW_S)
    assert "deletionTimestamp" in admin.get(f"{place.config_maps}/held").ok()["metadata"]
    eventually(lambda: conditions(admin, place).get("NamespaceContentRemaining", ("",))[0] == "True", SLOW_S)
    found = conditions(admin, place)
    assert found["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert found["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        f"Some content in the namespace has finalizers remaining: {HOLD} in 1 resource instances",
    )
    assert found["NamespaceDeletionContentFailure"] == (
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    )
    place.free(f"{place.config_maps}/held").ok()
    eventually(lambda: place.is_gone(place.path), SLOW_S)
    assert admin.create(place.config_maps, config_map("late")).refused(404, "NotFound") == (
        f'namespaces "{place.namespace}" not found'
    )


def conditions(admin: Client, place: Place) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition of the namespace."""
    found = admin.get(place.path).ok()["status"].get("conditions", [])
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}


@pytest.mark.usefixtures("controllers")
def test_a_finalizer_of_others_holds_an_empty_namespace(server: Server, admin: Client) -> None:
    name = server.unique("t")
    path = f"{NAMESPACES}/{name}"
    admin.create(NAMESPACES, {"metadata": {"name": name, "finalizers": [HOLD]}}).ok()
    admin.delete(path).ok()
    eventually(lambda: admin.get(path).ok()["spec"] == {}, SLOW_S)
    assert admin.get(path).ok()["metadata"]["finalizers"] == [HOLD]
    admin.patch(path, {"metadata": {"finalizers": None}}).ok()
    assert admin.get(path).status == 404


def test_preconditions_of_a_namespace_are_worded_in_their_own_way(admin: Client, place: Place) -> None:
    metadata = admin.get(place.path).ok()["metadata"]
    answer = admin.delete(place.path, {"preconditions": {"uid": "another"}})
    assert answer.refused(409, "Conflict") == (
        f'Operation cannot be fulfilled on namespaces "{place.namespace}": Precondition failed: UID in precondition: '
        f"another, UID in object meta: {metadata['uid']}"
    )
    assert answer.body["details"] == {"name": place.namespace, "kind": "namespaces"}


def test_a_dry_run_shows_the_mark(admin: Client, place: Place) -> None:
    shown = admin.delete(place.path, None, dryRun="All").ok()
    assert shown["status"]["phase"] == "Terminating"
    assert admin.get(place.path).ok()["status"] == {"phase": "Active"}


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_namespaces_that_a_cluster_cannot_lose(admin: Client, name: str) -> None:
    answer = admin.delete(f"{NAMESPACES}/{name}")
    message = answer.refused(403, "Forbidden")
    assert message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    assert answer.body["details"] == {"name": name, "kind": "namespaces"}
