"""Versions: who overwrites whom, and who is told that somebody else was faster."""

from __future__ import annotations

import pytest

from tests.contract.client import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.contract.samples import configs_of, define_things, meta
from tests.contract.server import Server

STALE = "the object has been modified; please apply your changes to the latest version and try again"


def test_versions_of_replacements(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    path = f"{configs}/a"
    first = meta(admin.create(configs, {"metadata": {"name": "a"}, "data": {"k": "1"}}).ok())["resourceVersion"]
    assert admin.replace(path, {"metadata": {"name": "a"}, "data": {"k": "2"}}).status == 200
    stale = {"metadata": {"name": "a", "resourceVersion": first}, "data": {"k": "3"}}
    answer = admin.replace(path, stale)
    assert answer.refused(409, "Conflict") == f'Operation cannot be fulfilled on configmaps "a": {STALE}'
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}
    assert admin.replace(path, {"metadata": {"name": "a", "resourceVersion": "0"}, "data": {"k": "4"}}).status == 200
    current = meta(admin.get(path).ok())["resourceVersion"]
    assert admin.replace(path, {"metadata": {"name": "a", "resourceVersion": current}, "data": {}}).status == 200
    future = {"metadata": {"name": "a", "resourceVersion": "99999999999"}}
    assert admin.replace(path, future).refused(409, "Conflict")
    broken = admin.replace(path, {"metadata": {"name": "a", "resourceVersion": "abc"}})
    assert broken.status == 500
    assert broken.body["message"] == 'strconv.ParseUint: parsing "abc": invalid syntax'


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
def test_versions_in_patches(admin: Client, namespace: str, media: str) -> None:
    configs = configs_of(namespace)
    path = f"{configs}/a"
    first = meta(admin.create(configs, {"metadata": {"name": "a"}, "data": {"k": "1"}}).ok())["resourceVersion"]
    current = meta(admin.patch(path, {"data": {"k": "2"}}, media).ok())["resourceVersion"]
    stale = admin.patch(path, {"metadata": {"resourceVersion": first}, "data": {"k": "3"}}, media)
    assert stale.refused(409, "Conflict") == f'Operation cannot be fulfilled on configmaps "a": {STALE}'
    fresh = admin.patch(path, {"metadata": {"resourceVersion": current}, "data": {"k": "4"}}, media)
    assert fresh.ok()["data"] == {"k": "4"}


def test_versions_in_json_patches(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    path = f"{configs}/a"
    made = meta(admin.create(configs, {"metadata": {"name": "a"}, "data": {"k": "1"}}).ok())
    change = {"op": "replace", "path": "/data/k", "value": "2"}
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": made["resourceVersion"]}
    assert admin.patch(path, [test, change], JSON_PATCH).ok()["data"] == {"k": "2"}
    assert admin.patch(path, [test, change], JSON_PATCH).status == 422
    stale = {"op": "replace", "path": "/metadata/resourceVersion", "value": made["resourceVersion"]}
    answer = admin.patch(path, [stale, {"op": "replace", "path": "/data/k", "value": "3"}], JSON_PATCH)
    assert answer.refused(409, "Conflict")


def test_custom_resources_are_replaced_with_their_version(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    path = f"{things.path}/a"
    first = meta(admin.create(things.path, things.thing("a")).ok())["resourceVersion"]
    for subresource in ("", "/status"):
        for version in ("", "0"):
            answer = admin.replace(f"{path}{subresource}", things.thing("a", resourceVersion=version))
            text = answer.refused(422, "Invalid")
            why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            assert text == f'{things.resource} "a" is invalid: {why}'
            details = answer.body["details"]
            assert (details["name"], details["group"], details["kind"]) == ("a", things.group, "things")
    changed = {**things.thing("a", resourceVersion=first), "spec": {"count": 2}}
    assert admin.replace(path, changed).status == 200
    answer = admin.replace(path, changed)
    assert answer.refused(409, "Conflict") == f'Operation cannot be fulfilled on {things.resource} "a": {STALE}'
    assert admin.patch(path, {"spec": {"count": 3}}).status == 200
    assert admin.patch(path, {"metadata": {"resourceVersion": first}, "spec": {"count": 4}}).status == 409


@pytest.mark.parametrize(("group", "plural"), [("coordination.k8s.io", "leases"), ("policy", "poddisruptionbudgets")])
def test_built_in_kinds_that_ask_for_a_version(admin: Client, namespace: str, group: str, plural: str) -> None:
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}"
    made = admin.create(path, {"metadata": {"name": "a"}, "spec": {}}).ok()
    answer = admin.replace(f"{path}/a", {"metadata": {"name": "a"}, "spec": {}})
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert answer.refused(422, "Invalid") == f'{plural}.{group} "a" is invalid: {why}'
    assert answer.body["details"]["kind"] == plural
    assert admin.patch(f"{path}/a", {"metadata": {"labels": {"x": "1"}}}).status == 200
    assert meta(made)["resourceVersion"]


def test_writes_that_change_nothing_make_no_version(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    configs = configs_of(namespace)
    admin.create(configs, {"metadata": {"name": "a"}, "data": {"k": "1"}}).ok()
    admin.create(things.path, things.thing("a")).ok()
    for path, same in ((f"{configs}/a", {"data": {"k": "1"}}), (f"{things.path}/a", {"spec": {"count": 1}})):
        before = admin.get(path).ok()
        for answer in (admin.replace(path, before), admin.patch(path, {}), admin.patch(path, same)):
            assert answer.ok() == before
        another = admin.patch(path, same, fieldManager="somebody-else").ok()
        assert meta(another)["resourceVersion"] == meta(before)["resourceVersion"]


def test_only_one_of_two_writers_wins(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    admin.create(things.path, things.thing("a")).ok()
    path = f"{things.path}/a"
    seen = [admin.get(path).ok() for _ in range(2)]
    codes = [admin.replace(path, {**obj, "spec": {"count": 10 + at}}).status for at, obj in enumerate(seen)]
    assert codes == [200, 409]
    assert admin.get(path).ok()["spec"]["count"] == 10


def test_preconditions_of_deletions(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    configs = configs_of(namespace)
    group = things.group
    for path, kind, body in (
        (configs, "ConfigMap", {"metadata": {"name": "a"}}),
        (things.path, f"Thing.{group}", things.thing("a")),
    ):
        made = meta(admin.create(path, body).ok())
        uid, version = made["uid"], made["resourceVersion"]
        start = f'Operation cannot be fulfilled on {kind} "a": '
        text = admin.delete(f"{path}/a", {"preconditions": {"uid": "other"}}).refused(409, "Conflict")
        why = f"the UID in the precondition (other) does not match the UID in record ({uid}). "
        assert text == f"{start}{why}The object might have been deleted and then recreated"
        text = admin.delete(f"{path}/a", {"preconditions": {"resourceVersion": "1"}}).refused(409, "Conflict")
        why = (
            f"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({version}). "
        )
        assert text == f"{start}{why}The object might have been modified"
        assert admin.get(f"{path}/a").status == 200
        both = {"preconditions": {"uid": uid, "resourceVersion": version}}
        assert admin.delete(f"{path}/a", both).status == 200
        assert admin.get(f"{path}/a").status == 404
