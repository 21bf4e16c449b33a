"""The Status of a refusal: code, reason, message, details, causes."""

from __future__ import annotations

import json

from tests.contract.client import Client
from tests.contract.samples import configs_of, define_things
from tests.contract.server import Server


def _status(code: int, message: str, **more: object) -> dict[str, object]:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**head, "message": message, "code": code, **more}


def test_an_object_that_is_not_there(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    assert admin.get(f"{configs_of(namespace)}/x").body == _status(
        404, 'configmaps "x" not found', reason="NotFound", details={"name": "x", "kind": "configmaps"}
    )
    details = {"name": "x", "group": things.group, "kind": "things"}
    message = f'{things.resource} "x" not found'
    for answer in (admin.get(f"{things.path}/x"), admin.delete(f"{things.path}/x")):
        assert answer.body == _status(404, message, reason="NotFound", details=details)


def test_a_resource_that_is_not_there(admin: Client, namespace: str) -> None:
    message = "the server could not find the requested resource"
    answer = admin.get(f"/api/v1/namespaces/{namespace}/nopes")
    assert answer.body == _status(404, message, reason="NotFound", details={})


def test_an_invalid_object_names_its_kind(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    cause = {"reason": "FieldValueInvalid", "field": "spec.count"}
    answer = admin.create(things.path, {**things.thing("a"), "spec": {"count": 0}})
    body = answer.body
    assert (body["code"], body["reason"]) == (422, "Invalid")
    assert {name: body["details"][name] for name in ("name", "group", "kind")} == {
        "name": "a",
        "group": things.group,
        "kind": "Thing",
    }
    assert [{**cause, "message": found["message"]} for found in body["details"]["causes"]] == body["details"][
        "causes"
    ]
    text = body["details"]["causes"][0]["message"]
    assert body["message"] == f'Thing.{things.group} "a" is invalid: spec.count: {text}'


def test_several_causes_are_listed(admin: Client, namespace: str) -> None:
    body = {"metadata": {"name": "A", "labels": {"k": "-"}, "finalizers": ["x"]}}
    answer = admin.create(configs_of(namespace), body)
    details = answer.body["details"]
    told = [f"{cause['field']}: {cause['message']}" for cause in details["causes"]]
    assert sorted(cause["field"] for cause in details["causes"]) == [
        "metadata.finalizers[0]",
        "metadata.labels",
        "metadata.name",
    ]
    assert answer.body["message"] == f'ConfigMap "A" is invalid: [{", ".join(told)}]'
    assert "group" not in details


def test_a_conflict_names_the_resource(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    again = 'configmaps "a" already exists'
    details = {"name": "a", "kind": "configmaps"}
    answer = admin.create(configs, {"metadata": {"name": "a"}})
    assert answer.body == _status(409, again, reason="AlreadyExists", details=details)
    stale = admin.patch(f"{configs}/a", {"metadata": {"resourceVersion": "1"}, "data": {"x": "1"}})
    why = "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on configmaps "a": {why}'
    assert stale.body == _status(409, message, reason="Conflict", details=details)


def test_a_body_that_cannot_be_used_has_no_details(admin: Client, namespace: str) -> None:
    answer = admin.create(configs_of(namespace), {"metadata": {"name": 5}})
    assert sorted(answer.body) == ["apiVersion", "code", "kind", "message", "metadata", "reason", "status"]


def test_refusals_are_json(admin: Client, namespace: str) -> None:
    for answer in (admin.get(f"{configs_of(namespace)}/x"), admin.create(configs_of(namespace), {})):
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.content)["kind"] == "Status"
