"""Objects through their life: what the server sets, keeps, fills in and refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.samples import Things, define_things, meta, pod_spec, workload_spec
from tests.contract.server import Server

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
SENT = {
    "uid": "mine",
    "selfLink": "/mine",
    "creationTimestamp": "2001-01-01T00:00:00Z",
    "deletionTimestamp": "2001-01-01T00:00:00Z",
    "deletionGracePeriodSeconds": 3,
    "generation": 7,
    "managedFields": [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:x": {}}}
    ],
}


def test_the_server_owns_identity_and_time(admin: Client, configs: str) -> None:
    made = admin.create(configs, {"metadata": {"name": "a", **SENT}, "data": {"k": "v"}}, fieldManager="me").ok()
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"k": "v"})
    got = meta(made)
    assert UID.fullmatch(got["uid"])
    assert TIME.fullmatch(got["creationTimestamp"])
    assert got["creationTimestamp"] > "2020"
    assert int(got["resourceVersion"]) > 0
    names = ["creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "uid"]
    assert sorted(got) == names
    assert [entry["manager"] for entry in got["managedFields"]] == ["m", "me"]
    assert admin.get(f"{configs}/a").ok() == made


def test_a_custom_resource_begins_with_generation_one(admin: Client, things: Things) -> None:
    made = admin.create(things.path, things.thing("a", uid="mine", generation=9, selfLink="/x")).ok()
    assert meta(made)["generation"] == 1
    assert UID.fullmatch(meta(made)["uid"])
    assert "selfLink" not in meta(made)
    assert made["spec"] == {"count": 1, "parts": ["a"], "colour": "red"}


def test_creating_twice_is_refused(admin: Client, configs: str) -> None:
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    again = admin.create(configs, {"metadata": {"name": "a"}})
    assert again.refused(409, "AlreadyExists") == 'configmaps "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "configmaps"}


def test_a_new_object_has_no_version_of_its_own(admin: Client, configs: str) -> None:
    answer = admin.create(configs, {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert answer.status == 500
    assert answer.body["message"] == "resourceVersion should not be set on objects to be created"
    assert "reason" not in answer.body
    assert admin.create(configs, {"metadata": {"name": "a", "resourceVersion": "0"}}).status == 201


def test_empty_parts_are_not_there(admin: Client, configs: str) -> None:
    empty: dict[str, Any] = {
        "metadata": {"name": "a", "labels": None, "annotations": {}},
        "data": None,
        "binaryData": {},
    }
    assert "data" not in admin.create(configs, empty).ok()
    nulls = {"metadata": {"name": "b", "labels": {"x": None}}, "data": {"x": None}}
    made = admin.create(configs, nulls).ok()
    assert made["data"] == {"x": ""}
    assert meta(made)["labels"] == {"x": ""}
    false = admin.create(configs, {"metadata": {"name": "c"}, "immutable": False}).ok()
    assert false["immutable"] is False


def test_replacing_takes_away_what_is_left_out(admin: Client, configs: str) -> None:
    first = admin.create(configs, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}}).ok()
    second = admin.replace(f"{configs}/a", {"metadata": {"name": "a"}, "data": {"z": "1"}}).ok()
    assert second["data"] == {"z": "1"}
    assert "labels" not in meta(second)
    assert meta(second)["uid"] == meta(first)["uid"]
    assert meta(second)["creationTimestamp"] == meta(first)["creationTimestamp"]
    assert int(meta(second)["resourceVersion"]) > int(meta(first)["resourceVersion"])


def test_what_only_the_server_changes(admin: Client, configs: str) -> None:
    path = f"{configs}/a"
    made = admin.create(configs, {"metadata": {"name": "a"}}).ok()
    for time in (None, "2001-01-01T00:00:00Z"):
        ignored = {"generation": 9, "selfLink": "/x", "creationTimestamp": time}
        assert meta(admin.patch(path, {"metadata": ignored}).ok()) == meta(made)
    for field, value in (("uid", "mine"), ("deletionTimestamp", "2001-01-01T00:00:00Z")):
        answer = admin.patch(path, {"metadata": {field: value}})
        text = answer.refused(422, "Invalid")
        assert text == f'ConfigMap "a" is invalid: metadata.{field}: Invalid value: "{value}": field is immutable'


def test_a_replacement_for_another_object(admin: Client, configs: str) -> None:
    uid = meta(admin.create(configs, {"metadata": {"name": "a"}}).ok())["uid"]
    text = admin.replace(f"{configs}/a", {"metadata": {"name": "a", "uid": "other"}}).refused(409, "Conflict")
    assert text.startswith('Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4')
    assert text.endswith(f"Precondition failed: UID in precondition: other, UID in object meta: {uid}")


def test_a_name_is_for_life(admin: Client, configs: str, namespace: str) -> None:
    path = f"{configs}/a"
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    other = "the name of the object (b) does not match the name on the URL (a)"
    assert admin.replace(path, {"metadata": {"name": "b"}}).refused(400, "BadRequest") == other
    assert admin.patch(path, {"metadata": {"name": "b"}}).refused(400, "BadRequest") == other
    missing = "the name of the object (a based on URL) was undeterminable: name must be provided"
    assert admin.replace(path, {"data": {}}).refused(400, "BadRequest") == missing
    moved = "the namespace of the provided object does not match the namespace sent on the request"
    body = {"metadata": {"name": "a", "namespace": "elsewhere"}}
    assert admin.replace(path, body).refused(400, "BadRequest") == moved
    assert admin.patch(path, body).refused(400, "BadRequest") == moved
    assert admin.create(configs, body).refused(400, "BadRequest") == moved
    assert admin.replace(path, {"metadata": {"name": "a", "namespace": namespace}}).status == 200


def test_a_cluster_scoped_object_loses_its_namespace(server: Server, admin: Client) -> None:
    name = server.unique("class")
    body = {"metadata": {"name": name, "namespace": "x"}, "value": 5}
    made = admin.create("/apis/scheduling.k8s.io/v1/priorityclasses", body).ok()
    assert "namespace" not in meta(made)
    assert made["preemptionPolicy"] == "PreemptLowerPriority"


def test_generate_name_may_change(admin: Client, configs: str) -> None:
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    assert meta(admin.patch(f"{configs}/a", {"metadata": {"generateName": "x-"}}).ok())["generateName"] == "x-"


@pytest.mark.parametrize("word", ["deployments", "daemonsets", "replicasets", "statefulsets"])
def test_generation_counts_changes_of_the_spec(admin: Client, namespace: str, word: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/{word}"
    made = admin.create(path, {"metadata": {"name": "w"}, "spec": workload_spec()}).ok()
    assert meta(made)["generation"] == 1
    counted = {
        "label": ({"metadata": {"labels": {"x": "1"}}}, "", 1),
        "same": ({"spec": {"minReadySeconds": 0}}, "", 1),
        "spec": ({"spec": {"minReadySeconds": 5}}, "", 2),
        "status": ({"status": {"observedGeneration": 1}, "spec": {"minReadySeconds": 5}}, "/status", 1),
    }
    for patch, subresource, generation in counted.values():
        answer = admin.patch(f"{path}/w{subresource}", patch, dryRun="All").ok()
        assert meta(answer)["generation"] == generation


def test_generation_of_a_custom_resource(server: Server, admin: Client, namespace: str) -> None:
    for status, counts in ((True, 1), (False, 2)):
        things = define_things(server, namespace, status=status)
        path = f"{things.path}/a"
        admin.create(things.path, things.thing("a")).ok()
        labelled = admin.patch(path, {"metadata": {"labels": {"x": "1"}}}).ok()
        assert meta(labelled)["generation"] == 1
        # Without a status subresource, the status is a field like any other.
        assert meta(admin.patch(path, {"status": {"seen": "1"}}).ok())["generation"] == counts
        assert meta(admin.patch(path, {"spec": {"count": 5}}).ok())["generation"] == counts + 1


def test_kinds_without_generation(admin: Client, server: Server, namespace: str, configs: str) -> None:
    node = admin.create("/api/v1/nodes", {"metadata": {"name": server.unique("node")}}).ok()
    config = admin.create(configs, {"metadata": {"name": "a"}}).ok()
    lease = admin.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {"metadata": {"name": "l"}})
    admin.delete(f"/api/v1/nodes/{meta(node)['name']}")
    for made in (node, config, lease.ok()):
        assert "generation" not in meta(made)
    pod = admin.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": pod_spec()}).ok()
    assert meta(pod)["generation"] == 1


def test_deleting_answers_with_what_is_gone(admin: Client, configs: str) -> None:
    uid = meta(admin.create(configs, {"metadata": {"name": "a"}}).ok())["uid"]
    gone = admin.delete(f"{configs}/a").ok()
    details = {"name": "a", "kind": "configmaps", "uid": uid}
    assert gone == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert admin.delete(f"{configs}/a").refused(404, "NotFound") == 'configmaps "a" not found'
    assert admin.get(f"{configs}/a").refused(404, "NotFound") == 'configmaps "a" not found'


def test_some_kinds_are_made_by_replacing_them(admin: Client, namespace: str, configs: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    made = admin.replace(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    assert made.status == 201
    assert made.ok()["spec"] == {"holderIdentity": "me"}
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"
    assert admin.replace(f"{roles}/r", {"metadata": {"name": "r"}, "rules": []}).status == 201
    missing = admin.replace(f"{configs}/nope", {"metadata": {"name": "nope"}})
    assert missing.refused(404, "NotFound") == 'configmaps "nope" not found'


def test_the_managers_of_plain_writes(admin: Client, configs: str) -> None:
    path = f"{configs}/a"
    admin.create(configs, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}}, fieldManager="creator").ok()
    admin.patch(path, {"data": {"y": "2"}}, fieldManager="patcher").ok()
    body = {"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"x": "1", "y": "2"}}
    entries = meta(admin.replace(path, body, fieldManager="replacer").ok())["managedFields"]
    owned = {entry["manager"]: (entry["operation"], entry["apiVersion"], entry["fieldsV1"]) for entry in entries}
    assert owned == {
        "creator": ("Update", "v1", {"f:data": {".": {}, "f:x": {}}}),
        "patcher": ("Update", "v1", {"f:data": {"f:y": {}}}),
        "replacer": ("Update", "v1", {"f:metadata": {"f:labels": {".": {}, "f:l": {}}}}),
    }
    assert all(entry["fieldsType"] == "FieldsV1" and TIME.fullmatch(entry["time"]) for entry in entries)
