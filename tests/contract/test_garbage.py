"""What becomes of dependents when their owners go, and of owners that wait for their dependents."""

from __future__ import annotations

from functools import partial

import pytest

from tests.contract.client import Client
from tests.contract.server import Server, eventually
from tests.contract.workloads import HOLD, Place, config_map, node, pod, reference

pytestmark = pytest.mark.usefixtures("controllers")
NOBODY = "11111111-1111-4111-8111-111111111111"
"""A uid that no object has."""


@pytest.fixture
def place(server: Server, namespace: str) -> Place:
    return Place(server, namespace)


def ghost(place: Place, name: str = "ghost") -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": NOBODY}


def path(place: Place, name: str) -> str:
    return f"{place.config_maps}/{name}"


def owners(admin: Client, place: Place, name: str) -> list[str]:
    """Names of the owners of a config map that is there."""
    found = admin.get(path(place, name)).ok()["metadata"].get("ownerReferences", [])
    return [owner["name"] for owner in found]


def collected(place: Place, *names: str) -> None:
    for name in names:
        eventually(partial(place.is_gone, path(place, name)))


def flushed(place: Place) -> None:
    """Return when the collector has dealt with everything up to now: it works in the order of events."""
    name = place.server.unique("flush")
    place.config(name, ghost(place))
    collected(place, name)


def test_dependents_follow_their_owner_down_the_line(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    child = place.config("child", reference(owner))
    place.config("grandchild", reference(child, controller=True))
    admin.delete(path(place, "owner")).ok()
    assert place.is_gone(path(place, "owner"))
    collected(place, "child", "grandchild")


def test_an_object_of_several_owners_goes_with_the_last(admin: Client, place: Place) -> None:
    a, b = place.config("a"), place.config("b")
    place.config("child", reference(a), reference(b))
    admin.delete(path(place, "a")).ok()
    eventually(lambda: owners(admin, place, "child") == ["b"])
    admin.delete(path(place, "b")).ok()
    collected(place, "child")


def test_a_dependent_with_a_finalizer_waits_for_it(admin: Client, place: Place) -> None:
    place.config("child", reference(place.config("owner")), finalizers=[HOLD])
    admin.delete(path(place, "owner")).ok()
    eventually(lambda: "deletionTimestamp" in admin.get(path(place, "child")).ok()["metadata"])
    place.free(path(place, "child")).ok()
    assert place.is_gone(path(place, "child"))


# Owners that are not there


def test_an_owner_that_does_not_exist(place: Place) -> None:
    place.config("by-name", ghost(place))
    place.config("owner")
    place.config("by-uid", ghost(place, "owner"))
    collected(place, "by-name", "by-uid")


def test_one_of_two_owners_does_not_exist(admin: Client, place: Place) -> None:
    place.config("child", reference(place.config("owner")), ghost(place))
    eventually(lambda: owners(admin, place, "child") == ["owner"])


def test_an_owner_of_the_right_name_and_uid_but_the_wrong_kind(place: Place) -> None:
    owner = {**reference(place.config("owner")), "kind": "Secret"}
    place.config("child", owner)
    collected(place, "child")


def test_an_owner_of_an_unknown_kind_is_never_collected_for(place: Place, admin: Client) -> None:
    owner = {"apiVersion": "nobody.muster.dev/v1", "kind": "Unknown", "name": "x", "uid": NOBODY}
    place.config("child", owner)
    flushed(place)
    assert admin.get(path(place, "child")).status == 200


def test_an_owner_in_another_namespace_is_no_owner(server: Server, place: Place) -> None:
    elsewhere = Place(server, server.new_namespace())
    place.config("child", reference(elsewhere.config("owner")))
    collected(place, "child")
    assert not elsewhere.is_gone(path(elsewhere, "owner"))


def test_a_node_owns_namespaced_objects(server: Server, admin: Client, place: Place) -> None:
    name = server.unique("node")
    owner = admin.create("/api/v1/nodes", node(name)).ok()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
    admin.create(lease, {"metadata": {"name": name, "ownerReferences": [reference(owner)]}}).ok()
    flushed(place)
    assert admin.get(f"{lease}/{name}").status == 200
    admin.delete(f"/api/v1/nodes/{name}").ok()
    eventually(lambda: place.is_gone(f"{lease}/{name}"))


def test_a_node_made_again_does_not_own_what_the_old_one_owned(server: Server, admin: Client, place: Place) -> None:
    name = server.unique("node")
    old = admin.create("/api/v1/nodes", node(name)).ok()
    admin.delete(f"/api/v1/nodes/{name}").ok()
    new = admin.create("/api/v1/nodes", node(name)).ok()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    place.config("of-old", reference(old))
    place.config("of-new", reference(new))
    collected(place, "of-old")
    assert admin.get(path(place, "of-new")).status == 200


def test_a_namespaced_object_cannot_own_a_node(server: Server, admin: Client, place: Place) -> None:
    name = server.unique("node")
    owner = place.config("owner")
    admin.create("/api/v1/nodes", node(name, ownerReferences=[reference(owner)])).ok()
    admin.delete(path(place, "owner")).ok()
    flushed(place)
    assert admin.get(f"/api/v1/nodes/{name}").status == 200


# Foreground


def test_foreground_waits_for_dependents_that_block(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    place.config("child", reference(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    admin.delete(path(place, "owner"), {"propagationPolicy": "Foreground"}).ok()
    eventually(lambda: "deletionTimestamp" in admin.get(path(place, "child")).ok()["metadata"])
    assert admin.get(path(place, "owner")).ok()["metadata"]["finalizers"] == ["foregroundDeletion"]
    place.free(path(place, "child")).ok()
    collected(place, "child", "owner")


def test_foreground_does_not_wait_for_dependents_that_do_not_block(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    place.config("child", reference(owner), finalizers=[HOLD])
    admin.delete(path(place, "owner"), {"propagationPolicy": "Foreground"}).ok()
    collected(place, "owner")
    eventually(lambda: "deletionTimestamp" in admin.get(path(place, "child")).ok()["metadata"])
    place.free(path(place, "child")).ok()


def test_foreground_lets_a_dependent_with_another_owner_live(admin: Client, place: Place) -> None:
    owner, other = place.config("owner"), place.config("other")
    place.config("child", reference(owner, blockOwnerDeletion=True), reference(other))
    admin.delete(path(place, "owner"), {"propagationPolicy": "Foreground"}).ok()
    collected(place, "owner")
    assert owners(admin, place, "child") == ["other"]


def test_foreground_ends_when_the_dependent_is_let_go(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    place.config("child", reference(owner, blockOwnerDeletion=True), finalizers=[HOLD])
    admin.delete(path(place, "owner"), {"propagationPolicy": "Foreground"}).ok()
    eventually(lambda: "deletionTimestamp" in admin.get(path(place, "child")).ok()["metadata"])
    admin.patch(path(place, "child"), {"metadata": {"ownerReferences": None}}).ok()
    collected(place, "owner")
    place.free(path(place, "child")).ok()


def test_foreground_goes_down_the_line(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    child = place.config("child", reference(owner, blockOwnerDeletion=True))
    place.config("grandchild", reference(child, blockOwnerDeletion=True), finalizers=[HOLD])
    admin.delete(path(place, "owner"), {"propagationPolicy": "Foreground"}).ok()
    eventually(lambda: "deletionTimestamp" in admin.get(path(place, "grandchild")).ok()["metadata"])
    for name in ("owner", "child"):
        assert admin.get(path(place, name)).ok()["metadata"]["finalizers"] == ["foregroundDeletion"]
    place.free(path(place, "grandchild")).ok()
    collected(place, "grandchild", "child", "owner")


def test_objects_that_own_each_other_go(admin: Client, place: Place) -> None:
    a = place.config("a")
    b = place.config("b", reference(a, blockOwnerDeletion=True))
    admin.patch(path(place, "a"), {"metadata": {"ownerReferences": [reference(b, blockOwnerDeletion=True)]}}).ok()
    admin.delete(path(place, "a"), {"propagationPolicy": "Foreground"}).ok()
    collected(place, "a", "b")


# Orphans


def test_orphans_stay_without_the_reference(admin: Client, place: Place) -> None:
    owner, other = place.config("owner"), place.config("other")
    place.config("child", reference(owner))
    place.config("shared", reference(owner), reference(other))
    admin.delete(path(place, "owner"), {"propagationPolicy": "Orphan"}).ok()
    collected(place, "owner")
    assert owners(admin, place, "child") == []
    assert owners(admin, place, "shared") == ["other"]


def test_jobs_leave_their_pods_unless_told_otherwise(admin: Client, place: Place) -> None:
    jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    # Suspended, so that no controller makes pods of its own.
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    owner = admin.create(jobs, body).ok()
    place.config("child", reference(owner))
    answer = admin.delete(f"{jobs}/j")
    assert answer.ok()["metadata"]["finalizers"] == ["orphan"]
    assert "child pods are preserved by default when jobs are deleted" in answer.headers["warning"]
    eventually(lambda: place.is_gone(f"{jobs}/j"))
    assert owners(admin, place, "child") == []


# Pods, as Muster makes them


def test_a_bound_pod_of_a_deleted_owner_ends_gracefully(admin: Client, place: Place) -> None:
    owner = place.config("owner")
    meta = {"ownerReferences": [reference(owner)]}
    admin.create(place.pods, pod("bound", "some-node", meta=meta, terminationGracePeriodSeconds=10)).ok()
    admin.create(place.pods, pod("loose", meta=meta)).ok()
    admin.delete(path(place, "owner")).ok()
    eventually(lambda: place.is_gone(f"{place.pods}/loose"))
    eventually(lambda: "deletionTimestamp" in admin.get(f"{place.pods}/bound").ok()["metadata"])
    assert admin.get(f"{place.pods}/bound").ok()["metadata"]["deletionGracePeriodSeconds"] == 10
    admin.delete(f"{place.pods}/bound", {"gracePeriodSeconds": 0}).ok()
    assert place.is_gone(f"{place.pods}/bound")


# References that are refused


def test_bad_references_are_refused(admin: Client, place: Place) -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": NOBODY}
    answer = admin.create(place.config_maps, config_map("a", nameless))
    message = answer.refused(422, "Invalid")
    assert message == (
        'ConfigMap "a" is invalid: metadata.ownerReferences[0].name: Required value: must not be empty'
    )
    event = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": NOBODY}
    message = admin.create(place.config_maps, config_map("a", event)).refused(422, "Invalid")
    assert "Kind=Event is disallowed from being an owner" in message
    a, b = place.config("x"), place.config("y")
    two = [reference(a, controller=True), reference(b, controller=True)]
    message = admin.create(place.config_maps, config_map("a", *two)).refused(422, "Invalid")
    assert 'Only one reference can have Controller set to true. Found "true" in references for' in message
