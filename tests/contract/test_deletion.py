"""What DELETE does and answers: Status or object, finalizers, grace periods, preconditions, collections."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.contract.client import JSON_PATCH, Client
from tests.contract.server import Server
from tests.contract.workloads import HOLD, Place, node, pod


@pytest.fixture
def place(server: Server, namespace: str) -> Place:
    return Place(server, namespace)


@pytest.fixture
def on_node(server: Server, admin: Client) -> str:
    """The name of a Node of this test."""
    name = server.unique("node")
    admin.create("/api/v1/nodes", node(name)).ok()
    return name


def deleted(answer: dict[str, Any]) -> dict[str, Any]:
    """The details of a Status that says that an object is gone."""
    assert {name: value for name, value in answer.items() if name != "details"} == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    return dict(answer["details"])


# Objects without a grace period


def test_an_object_without_finalizers_is_gone_at_once(admin: Client, place: Place) -> None:
    uid = place.config("a")["metadata"]["uid"]
    path = f"{place.config_maps}/a"
    assert deleted(admin.delete(path).ok()) == {"name": "a", "kind": "configmaps", "uid": uid}
    message = admin.delete(path).refused(404, "NotFound")
    assert message == 'configmaps "a" not found'


def test_the_group_is_told_where_there_is_one(admin: Client, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    uid = admin.create(path, {"metadata": {"name": "l"}}).ok()["metadata"]["uid"]
    expected = {"name": "l", "group": "coordination.k8s.io", "kind": "leases", "uid": uid}
    assert deleted(admin.delete(f"{path}/l").ok()) == expected


def test_some_kinds_answer_with_the_object(admin: Client, place: Place) -> None:
    path = f"{place.path}/serviceaccounts"
    made = admin.create(path, {"metadata": {"name": "s"}}).ok()
    answer = admin.delete(f"{path}/s").ok()
    assert (answer["kind"], answer["metadata"]["uid"]) == ("ServiceAccount", made["metadata"]["uid"])
    assert place.is_gone(f"{path}/s")


def test_a_dry_run_deletes_nothing(admin: Client, place: Place) -> None:
    place.config("a")
    path = f"{place.config_maps}/a"
    assert deleted(admin.delete(path, None, dryRun="All").ok())["name"] == "a"
    assert deleted(admin.delete(path, {"dryRun": ["All"]}).ok())["name"] == "a"
    assert admin.get(path).status == 200


# Finalizers


def test_finalizers_hold_an_object_and_the_last_one_lets_it_go(admin: Client, place: Place) -> None:
    made = place.config("a", finalizers=[HOLD])
    path = f"{place.config_maps}/a"
    held = admin.delete(path).ok()
    assert held["kind"] == "ConfigMap"
    assert held["metadata"]["finalizers"] == [HOLD]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert held["metadata"]["deletionTimestamp"] >= made["metadata"]["creationTimestamp"]
    assert held["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    again = admin.delete(path).ok()
    assert again == held, "a second deletion changes nothing"
    last = place.free(path).ok()
    assert "finalizers" not in last["metadata"]
    assert last["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
    assert place.is_gone(path)


def test_a_put_takes_the_last_finalizer_off_as_well(admin: Client, place: Place) -> None:
    place.config("a", finalizers=[HOLD])
    path = f"{place.config_maps}/a"
    held = admin.delete(path).ok()
    held["metadata"]["finalizers"] = []
    held["data"] = {"last": "words"}
    last = admin.replace(path, held).ok()
    assert last["data"] == {"last": "words"}
    assert place.is_gone(path)


def test_a_json_patch_takes_one_of_two_finalizers_off(admin: Client, place: Place) -> None:
    place.config("a", finalizers=[HOLD, "test.muster.dev/other"])
    path = f"{place.config_maps}/a"
    admin.delete(path).ok()
    left = admin.patch(path, [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH).ok()
    assert left["metadata"]["finalizers"] == ["test.muster.dev/other"]
    admin.patch(path, [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH).ok()
    assert place.is_gone(path)


def test_a_terminating_object_can_be_changed_but_takes_no_new_finalizers(admin: Client, place: Place) -> None:
    place.config("a", finalizers=[HOLD])
    path = f"{place.config_maps}/a"
    admin.delete(path).ok()
    changed = admin.patch(path, {"data": {"still": "here"}}).ok()
    assert changed["data"] == {"still": "here"}
    answer = admin.patch(path, {"metadata": {"finalizers": [HOLD, "test.muster.dev/more"]}})
    detail = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"test.muster.dev/more"}'
    )
    assert answer.refused(422, "Invalid") == f'ConfigMap "a" is invalid: metadata.finalizers: {detail}'
    cause = {"reason": "FieldValueForbidden", "message": detail, "field": "metadata.finalizers"}
    assert answer.body["details"] == {"name": "a", "kind": "ConfigMap", "causes": [cause]}


def test_the_date_of_deletion_cannot_be_taken_back(admin: Client, place: Place) -> None:
    place.config("a", finalizers=[HOLD])
    path = f"{place.config_maps}/a"
    date = admin.delete(path).ok()["metadata"]["deletionTimestamp"]
    admin.patch(path, {"metadata": {"deletionTimestamp": None}})
    assert admin.get(path).ok()["metadata"]["deletionTimestamp"] == date


def test_a_new_object_is_not_born_terminating(admin: Client, place: Place) -> None:
    made = place.config("a", deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=5)
    assert "deletionTimestamp" not in made["metadata"]
    assert "deletionGracePeriodSeconds" not in made["metadata"]


def test_a_watch_sees_the_mark_and_then_the_end(admin: Client, place: Place) -> None:
    made = place.config("a", finalizers=[HOLD])
    version = made["metadata"]["resourceVersion"]
    with admin.watch(place.config_maps, resourceVersion=version, fieldSelector="metadata.name=a") as watch:
        held = admin.delete(f"{place.config_maps}/a").ok()
        place.free(f"{place.config_maps}/a").ok()
        (first, marked), (second, last) = watch.take(2)
    assert (first, second) == ("MODIFIED", "DELETED")
    assert marked["metadata"]["deletionTimestamp"] == held["metadata"]["deletionTimestamp"]
    assert last["metadata"]["finalizers"] == [HOLD], "the last state that was stored, not that of the last update"
    assert int(last["metadata"]["resourceVersion"]) > int(held["metadata"]["resourceVersion"])


def test_the_generation_of_an_object_grows_when_its_end_begins(admin: Client, place: Place) -> None:
    made = admin.create(place.pods, pod("p", meta={"finalizers": [HOLD]})).ok()
    held = admin.delete(f"{place.pods}/p").ok()
    assert held["metadata"]["generation"] == made["metadata"]["generation"] + 1
    again = admin.delete(f"{place.pods}/p").ok()
    assert again["metadata"]["generation"] == held["metadata"]["generation"]


# Preconditions and options


def test_preconditions(admin: Client, place: Place) -> None:
    metadata = place.config("a")["metadata"]
    path = f"{place.config_maps}/a"
    answer = admin.delete(path, {"preconditions": {"uid": "another"}})
    message = answer.refused(409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (another) does not match the '
        f"UID in record ({metadata['uid']}). The object might have been deleted and then recreated"
    )
    assert answer.body["details"] == {"name": "a", "kind": "ConfigMap"}
    answer = admin.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert answer.refused(409, "Conflict") == (
        'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match '
        f"the ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
    )
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    admin.delete(path, {"preconditions": right}).ok()
    assert place.is_gone(path)


@pytest.mark.parametrize(
    ("options", "field", "detail"),
    [
        (
            {"propagationPolicy": "Sideways"},
            "propagationPolicy",
            'Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            "propagationPolicy",
            'Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        ({"dryRun": ["Some"]}, "dryRun", 'Unsupported value: ["Some"]: supported values: "All"'),
    ],
)
def test_bad_options_are_refused(
    admin: Client, place: Place, options: dict[str, Any], field: str, detail: str
) -> None:
    place.config("a")
    answer = admin.delete(f"{place.config_maps}/a", options)
    message = answer.refused(422, "Invalid")
    assert message == f'DeleteOptions.meta.k8s.io "" is invalid: {field}: {detail}'
    assert answer.body["details"]["causes"][0]["field"] == field
    assert admin.get(f"{place.config_maps}/a").status == 200


def test_options_of_the_wrong_type_are_refused(admin: Client, place: Place) -> None:
    place.config("a")
    path = f"{place.config_maps}/a"
    message = admin.delete(path, {"gracePeriodSeconds": "soon"}).refused(400, "BadRequest")
    assert message == (
        "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
    )
    message = admin.delete(path, None, gracePeriodSeconds="soon").refused(400, "BadRequest")
    assert message == 'strconv.ParseInt: parsing "soon": invalid syntax'
    message = admin.delete(path, None, propagationPolicy="Sideways").refused(422, "Invalid")
    assert "propagationPolicy" in message


def test_options_in_the_body_hide_those_of_the_query(admin: Client, place: Place, on_node: str) -> None:
    admin.create(place.pods, pod("p", on_node)).ok()
    marked = admin.delete(f"{place.pods}/p", {"gracePeriodSeconds": 9}, gracePeriodSeconds="5").ok()
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 9


# Pods


def test_a_bound_pod_waits_for_its_kubelet(admin: Client, place: Place, on_node: str) -> None:
    made = admin.create(place.pods, pod("p", on_node)).ok()
    path = f"{place.pods}/p"
    marked = admin.delete(path).ok()
    assert marked["kind"] == "Pod"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert seconds_between(made["metadata"]["creationTimestamp"], marked["metadata"]["deletionTimestamp"]) >= 30
    assert admin.get(path).ok()["metadata"] == marked["metadata"]
    last = admin.delete(path, {"gracePeriodSeconds": 0}).ok()
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert place.is_gone(path)


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_the_grace_of_a_pod_can_be_shortened_only(admin: Client, place: Place, on_node: str) -> None:
    admin.create(place.pods, pod("p", on_node)).ok()
    path = f"{place.pods}/p"
    first = admin.delete(path).ok()["metadata"]
    longer = admin.delete(path, {"gracePeriodSeconds": 60}).ok()["metadata"]
    assert longer == first
    shorter = admin.delete(path, {"gracePeriodSeconds": 10}).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert seconds_between(shorter["deletionTimestamp"], first["deletionTimestamp"]) == 20
    unsaid = admin.delete(path).ok()["metadata"]
    assert unsaid == shorter
    negative = admin.delete(path, {"gracePeriodSeconds": -1}).ok()["metadata"]
    assert negative["deletionGracePeriodSeconds"] == 1


def test_a_longer_grace_than_the_pods_own_stays_when_nobody_shortens_it(
    admin: Client, place: Place, on_node: str
) -> None:
    admin.create(place.pods, pod("p", on_node)).ok()
    path = f"{place.pods}/p"
    assert admin.delete(path, {"gracePeriodSeconds": 90}).ok()["metadata"]["deletionGracePeriodSeconds"] == 90
    assert admin.delete(path).ok()["metadata"]["deletionGracePeriodSeconds"] == 90


def test_an_unbound_pod_goes_at_once(admin: Client, place: Place) -> None:
    made = admin.create(place.pods, pod("p")).ok()
    version = made["metadata"]["resourceVersion"]
    with admin.watch(place.pods, resourceVersion=version) as watch:
        last = admin.delete(f"{place.pods}/p").ok()
        events = watch.take(2)
    assert last["kind"] == "Pod"
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert [kind for kind, _ in events] == ["MODIFIED", "DELETED"]
    assert events[1][1]["metadata"] == last["metadata"]
    assert place.is_gone(f"{place.pods}/p")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_goes_at_once(admin: Client, place: Place, on_node: str, phase: str) -> None:
    admin.create(place.pods, pod("p", on_node)).ok()
    admin.patch(f"{place.pods}/p/status", {"status": {"phase": phase}}).ok()
    admin.delete(f"{place.pods}/p", {"gracePeriodSeconds": 20}).ok()
    assert place.is_gone(f"{place.pods}/p")


def test_force_does_not_break_a_finalizer(admin: Client, place: Place, on_node: str) -> None:
    admin.create(place.pods, pod("p", on_node, meta={"finalizers": [HOLD]})).ok()
    path = f"{place.pods}/p"
    held = admin.delete(path, {"gracePeriodSeconds": 0}).ok()
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert admin.get(path).status == 200
    place.free(path).ok()
    assert place.is_gone(path)


def test_a_pod_whose_finalizer_goes_first_still_waits_for_its_kubelet(
    admin: Client, place: Place, on_node: str
) -> None:
    admin.create(place.pods, pod("p", on_node, meta={"finalizers": [HOLD]})).ok()
    path = f"{place.pods}/p"
    admin.delete(path).ok()
    left = place.free(path).ok()
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    assert admin.get(path).status == 200
    admin.delete(path, {"gracePeriodSeconds": 0}).ok()
    assert place.is_gone(path)


def test_the_pods_own_grace_is_the_default(admin: Client, place: Place, on_node: str) -> None:
    admin.create(place.pods, pod("p", on_node, terminationGracePeriodSeconds=7)).ok()
    assert admin.delete(f"{place.pods}/p").ok()["metadata"]["deletionGracePeriodSeconds"] == 7
    admin.create(place.pods, pod("q", on_node, terminationGracePeriodSeconds=0)).ok()
    admin.delete(f"{place.pods}/q").ok()
    assert place.is_gone(f"{place.pods}/q")


def test_a_dry_run_shows_what_would_become_of_a_pod(admin: Client, place: Place, on_node: str) -> None:
    made = admin.create(place.pods, pod("p", on_node)).ok()
    shown = admin.delete(f"{place.pods}/p", None, dryRun="All", gracePeriodSeconds="4").ok()
    assert shown["metadata"]["deletionGracePeriodSeconds"] == 4
    assert shown["metadata"]["generation"] == 2
    assert admin.get(f"{place.pods}/p").ok()["metadata"] == made["metadata"]


# Collections


def test_a_collection_is_deleted_by_selector(admin: Client, place: Place) -> None:
    for name, group in (("a", "1"), ("b", "1"), ("c", "2")):
        place.config(name, labels={"group": group})
    shown = admin.delete(place.config_maps, None, labelSelector="group", dryRun="All").ok()
    assert shown["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in shown["items"]] == ["a", "b", "c"]
    found = admin.delete(place.config_maps, None, labelSelector="group=1").ok()
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    left = admin.get(place.config_maps, labelSelector="group").ok()["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]
    assert admin.delete(place.config_maps, None, labelSelector="group=1").ok()["items"] == []
    found = admin.delete(place.config_maps, None, fieldSelector="metadata.name=c").ok()
    assert [item["metadata"]["name"] for item in found["items"]] == ["c"]


def test_a_collection_of_pods_keeps_its_graces(admin: Client, place: Place, on_node: str) -> None:
    admin.create(place.pods, pod("bound", on_node)).ok()
    admin.create(place.pods, pod("loose")).ok()
    admin.delete(place.pods, {"gracePeriodSeconds": 6}).ok()
    assert admin.get(f"{place.pods}/bound").ok()["metadata"]["deletionGracePeriodSeconds"] == 6
    assert place.is_gone(f"{place.pods}/loose")


def test_namespaces_are_not_deleted_as_a_collection(admin: Client) -> None:
    answer = admin.delete("/api/v1/namespaces", None, labelSelector="test.muster.dev/nothing=here")
    assert answer.refused(405, "MethodNotAllowed") == (
        "the server does not allow this method on the requested resource"
    )


# What the answer says about dependents


def test_a_foreground_deletion_answers_with_the_waiting_object(admin: Client, place: Place) -> None:
    place.config("a")
    answer = admin.delete(f"{place.config_maps}/a", {"propagationPolicy": "Foreground"}).ok()
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0


def test_an_orphaning_deletion_answers_with_the_waiting_object(admin: Client, place: Place) -> None:
    place.config("a")
    answer = admin.delete(f"{place.config_maps}/a", None, propagationPolicy="Orphan").ok()
    assert answer["metadata"]["finalizers"] == ["orphan"]


def test_a_second_deletion_may_change_the_policy(admin: Client, place: Place) -> None:
    place.config("a", finalizers=[HOLD])
    place.config("child", finalizers=[HOLD])
    path = f"{place.config_maps}/a"
    admin.delete(path).ok()
    answer = admin.delete(path, {"propagationPolicy": "Foreground"}).ok()
    assert answer["metadata"]["finalizers"] == [HOLD, "foregroundDeletion"]
    place.free(path).ok()
    assert place.is_gone(path)
