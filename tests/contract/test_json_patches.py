"""JSON patch and JSON merge patch, on a built-in kind and on a custom resource."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import JSON_PATCH, MERGE, Answer, Client
from tests.contract.samples import Things, causes, configs_of, meta

REJECTED = "the server rejected our request due to an error in our request"
MAX_OPERATIONS = 10_000
BEFORE = {
    "metadata": {"name": "a", "annotations": {"a/b": "1", "c": "2"}, "finalizers": ["x.io/a", "x.io/b"]},
    "data": {"a": "1", "b": "2"},
}


@pytest.fixture
def config(admin: Client, namespace: str) -> str:
    """The path of a config map."""
    admin.create(configs_of(namespace), BEFORE).ok()
    return f"{configs_of(namespace)}/a"


def _json(admin: Client, path: str, *operations: Any, **params: Any) -> Answer:
    return admin.patch(path, list(operations), JSON_PATCH, **{"dryRun": "All", **params})


@pytest.mark.parametrize(
    ("operations", "data"),
    [
        ([{"op": "add", "path": "/data/c", "value": "3"}], {"a": "1", "b": "2", "c": "3"}),
        ([{"op": "add", "path": "/data/a", "value": "3"}], {"a": "3", "b": "2"}),
        ([{"op": "add", "path": "/data/c", "value": None}], {"a": "1", "b": "2", "c": ""}),
        ([{"op": "add", "path": "/data/c"}], {"a": "1", "b": "2", "c": ""}),
        ([{"op": "remove", "path": "/data/a"}], {"b": "2"}),
        ([{"op": "replace", "path": "/data/a", "value": "z"}], {"a": "z", "b": "2"}),
        ([{"op": "replace", "path": "/data/zz", "value": "z"}], {"a": "1", "b": "2", "zz": "z"}),
        ([{"op": "move", "from": "/data/a", "path": "/data/z"}], {"z": "1", "b": "2"}),
        ([{"op": "copy", "from": "/data/a", "path": "/data/z"}], {"a": "1", "b": "2", "z": "1"}),
        ([{"op": "copy", "from": "/data/zz", "path": "/data/z"}], {"a": "1", "b": "2", "z": ""}),
        ([{"op": "test", "path": "/data", "value": {"b": "2", "a": "1"}}], {"a": "1", "b": "2"}),
        ([{"op": "test", "path": "/data/zz", "value": None}], {"a": "1", "b": "2"}),
        ([{"op": "test", "path": "/metadata/finalizers/1", "value": "x.io/b"}], {"a": "1", "b": "2"}),
        ([], {"a": "1", "b": "2"}),
    ],
)
def test_operations(admin: Client, config: str, operations: list[Any], data: dict[str, str]) -> None:
    assert _json(admin, config, *operations).ok()["data"] == data


@pytest.mark.parametrize(
    ("path", "op", "finalizers"),
    [
        ("-", "add", ["x.io/a", "x.io/b", "x.io/c"]),
        ("0", "add", ["x.io/c", "x.io/a", "x.io/b"]),
        ("2", "add", ["x.io/a", "x.io/b", "x.io/c"]),
        ("-1", "add", ["x.io/a", "x.io/b", "x.io/c"]),
        ("0", "remove", ["x.io/b"]),
        ("-1", "remove", ["x.io/a"]),
        ("1", "replace", ["x.io/a", "x.io/c"]),
    ],
)
def test_places_in_lists(admin: Client, config: str, path: str, op: str, finalizers: list[str]) -> None:
    answer = _json(admin, config, {"op": op, "path": f"/metadata/finalizers/{path}", "value": "x.io/c"})
    assert meta(answer.ok())["finalizers"] == finalizers


def test_escaped_paths(admin: Client, config: str) -> None:
    change = {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "9"}
    gone = {"op": "remove", "path": "/metadata/annotations/c"}
    assert meta(_json(admin, config, change, gone).ok())["annotations"] == {"a/b": "9"}


def test_a_parent_comes_first(admin: Client, config: str) -> None:
    label = {"op": "add", "path": "/metadata/labels/x", "value": "1"}
    assert _json(admin, config, label).refused(422, "Invalid") == REJECTED
    parent = {"op": "add", "path": "/metadata/labels", "value": {}}
    assert meta(_json(admin, config, parent, label).ok())["labels"] == {"x": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/nope/c", "value": "3"},
        {"op": "remove", "path": "/data/zz"},
        {"op": "remove", "path": "/zz/y"},
        {"op": "replace", "path": "/zz/zz", "value": "z"},
        {"op": "move", "from": "/data/zz", "path": "/data/z"},
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/zz", "value": "2"},
        {"op": "test", "path": "/zz/zz", "value": "2"},
        {"op": "add", "path": "/metadata/finalizers/9", "value": "x.io/c"},
        {"op": "remove", "path": "/metadata/finalizers/5"},
        {"op": "remove", "path": "/metadata/finalizers/x"},
        {"op": "replace", "path": "/metadata/finalizers/5", "value": "x"},
        {"op": "test", "path": "/metadata/finalizers/7", "value": "x"},
        {"op": "add", "path": "/data/a/x", "value": "1"},
        {"op": "frob", "path": "/data/a"},
        {"path": "/data/a"},
        {"op": "remove"},
        {"op": "add", "path": "", "value": {}},
        {"op": "remove", "path": ""},
    ],
)
def test_operations_that_do_not_fit(admin: Client, config: str, operation: dict[str, Any]) -> None:
    answer = _json(admin, config, operation)
    assert answer.refused(422, "Invalid") == REJECTED
    assert answer.body["details"] == {}


def test_nothing_is_done_when_one_operation_fails(admin: Client, config: str) -> None:
    change = {"op": "replace", "path": "/data/a", "value": "9"}
    failing = {"op": "test", "path": "/data/b", "value": "9"}
    assert admin.patch(config, [change, failing], JSON_PATCH).status == 422
    assert admin.get(config).ok()["data"] == BEFORE["data"]


def test_the_whole_document(admin: Client, config: str) -> None:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    made = _json(admin, config, {"op": "replace", "path": "", "value": whole}).ok()
    assert "data" not in made
    assert "annotations" not in meta(made)


def test_bodies_that_are_no_patch(admin: Client, config: str) -> None:
    cannot = "error decoding patch: json: cannot unmarshal"
    text = admin.patch(config, {"op": "add"}, JSON_PATCH).refused(400, "BadRequest")
    assert text == f"{cannot} object into Go value of type []handlers.jsonPatchOp"
    text = admin.patch(config, ["x"], JSON_PATCH).refused(400, "BadRequest")
    assert text == f"{cannot} string into Go value of type handlers.jsonPatchOp"
    for body, what in (([1], "array"), ("x", "string")):
        text = admin.patch(config, body, MERGE).refused(400, "BadRequest")
        assert text == f"{cannot} {what} into Go value of type map[string]interface {{}}"
    for media in (JSON_PATCH, MERGE):
        for raw in (b'[{"op"', b'{"a":', b"", b"data: {a: b}"):
            assert admin.patch(config, raw, media).refused(400, "BadRequest") == "invalid JSON patch"
    assert admin.patch(config, b"null", MERGE).refused(400, "BadRequest") == "Invalid JSON Patch"


def test_too_many_operations(admin: Client, config: str) -> None:
    operations = [{"op": "test", "path": "/data/a", "value": "1"}] * (MAX_OPERATIONS + 1)
    text = admin.patch(config, operations, JSON_PATCH).refused(413, "RequestEntityTooLarge")
    limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {MAX_OPERATIONS + 1}"
    assert text == f"Request entity too large: {limit}"


@pytest.mark.parametrize(
    ("patch", "data", "finalizers"),
    [
        ({"data": {"a": None, "c": "3"}}, {"b": "2", "c": "3"}, ["x.io/a", "x.io/b"]),
        ({"data": None}, None, ["x.io/a", "x.io/b"]),
        ({"data": {"zz": None}}, {"a": "1", "b": "2"}, ["x.io/a", "x.io/b"]),
        ({"metadata": {"finalizers": ["x.io/c"]}}, {"a": "1", "b": "2"}, ["x.io/c"]),
        ({"metadata": {"finalizers": None}}, {"a": "1", "b": "2"}, None),
        ({}, {"a": "1", "b": "2"}, ["x.io/a", "x.io/b"]),
    ],
)
def test_merge_patches(admin: Client, config: str, patch: Any, data: Any, finalizers: Any) -> None:
    made = admin.patch(config, patch, MERGE, dryRun="All").ok()
    assert made.get("data") == data
    assert meta(made).get("finalizers") == finalizers


def test_patches_whose_result_cannot_be_read(admin: Client, config: str, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    wrong: list[tuple[str, Any, str, str]] = [
        (config, {"data": 5}, MERGE, "number into Go struct field ConfigMap.data of type map[string]string"),
        (config, {"data": {"a": 5}}, MERGE, "number into Go struct field ConfigMap.data of type string"),
        (config, {"metadata": 5}, MERGE, "number into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        (config, {"metadata": {"labels": {"a": 5}}}, MERGE, "struct field ObjectMeta.metadata.labels of type string"),
        (config, [{"op": "replace", "path": "/data", "value": 5}], JSON_PATCH, "field ConfigMap.data of type map"),
        (f"{things.path}/a", {"metadata": {"labels": {"a": 1}}}, MERGE, "field ObjectMeta.labels of type string"),
    ]
    for path, patch, media, text in wrong:
        answer = admin.patch(path, patch, media)
        message = answer.refused(422, "Invalid")
        assert message.startswith(' "" is invalid: patch: Invalid value: "{')
        assert "cannot unmarshal" in message
        assert text in message
        assert causes(answer.body) == [("patch", "FieldValueInvalid")]
        assert sorted(answer.body["details"]) == ["causes"]


def test_unknown_fields_in_patches(admin: Client, config: str, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    for path, patch, unknown in (
        (config, {"nope": 5, "metadata": {"zoo": 1}}, ["metadata.zoo", "nope"]),
        (f"{things.path}/a", {"spec": {"foo": 1}, "metadata": {"zoo": 1}}, ["metadata.zoo", "spec.foo"]),
    ):
        before = admin.get(path).ok()
        warned = admin.patch(path, patch)
        assert warned.ok() == before
        told = [f'299 - "unknown field \\"{name}\\""' for name in unknown]
        assert sorted(warned.headers.get_list("warning")) == told  # type: ignore[attr-defined]  # httpx2's headers
        assert "warning" not in admin.patch(path, patch, fieldValidation="Ignore").headers
        text = admin.patch(path, patch, fieldValidation="Strict").refused(422, "Invalid")
        assert "strict decoding error: " in text
        assert all(f'unknown field "{name}"' in text for name in unknown)


def test_patches_that_make_an_invalid_object(admin: Client, config: str, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    answer = admin.patch(config, {"metadata": {"labels": {"a b": "c"}}})
    assert answer.refused(422, "Invalid").startswith(
        'ConfigMap "a" is invalid: metadata.labels: Invalid value: "a b"'
    )
    answer = admin.patch(f"{things.path}/a", {"spec": {"count": 0}})
    assert answer.refused(422, "Invalid").startswith(
        f'Thing.{things.group} "a" is invalid: spec.count: Invalid value'
    )
    assert causes(answer.body) == [("spec.count", "FieldValueInvalid")]
    answer = admin.patch(f"{things.path}/a", {"spec": {"count": None}})
    assert causes(answer.body) == [("spec.count", "FieldValueRequired")]
    assert admin.get(f"{things.path}/a").ok()["spec"]["count"] == 1


def test_patches_that_change_the_kind(admin: Client, config: str, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    for patch in ({"kind": "Secret"}, {"apiVersion": "v2"}):
        answer = admin.patch(config, patch)
        assert answer.refused(422, "Invalid").startswith(' "" is invalid: patch: Invalid value')
    assert admin.patch(config, {"kind": None}).status == 200
    text = admin.patch(f"{things.path}/a", {"kind": "Other"}).refused(422, "Invalid")
    assert text == f'Other.{things.group} "a" is invalid: kind: Invalid value: "Other": must be Thing'
    text = admin.patch(f"{things.path}/a", {"apiVersion": "v9"}).refused(422, "Invalid")
    assert text == f'Thing "a" is invalid: apiVersion: Invalid value: "v9": must be {things.api_version}'


def test_patches_of_a_custom_resource(admin: Client, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    path = f"{things.path}/a"
    patch = {"spec": {"count": 3, "parts": ["b"], "more": {"x": "1", "y": None}}}
    spec = {"count": 3, "parts": ["b"], "more": {"x": "1"}, "colour": "red"}
    assert admin.patch(path, patch).ok()["spec"] == spec
    back = admin.patch(path, {"spec": {"colour": None, "more": None}}).ok()
    assert back["spec"] == {"count": 3, "parts": ["b"], "colour": "red"}
    changed = admin.patch(path, [{"op": "add", "path": "/spec/parts/-", "value": "c"}], JSON_PATCH).ok()
    assert changed["spec"]["parts"] == ["b", "c"]
    assert meta(changed)["generation"] == 4


def test_patches_of_what_is_not_there(admin: Client, namespace: str, things: Things) -> None:
    for media, patch in ((MERGE, {}), (JSON_PATCH, [])):
        answer = admin.patch(f"{configs_of(namespace)}/nope", patch, media)
        assert answer.refused(404, "NotFound") == 'configmaps "nope" not found'
        answer = admin.patch(f"{things.path}/nope", patch, media)
        assert answer.refused(404, "NotFound") == f'{things.resource} "nope" not found'


def test_media_types_of_patches(admin: Client, config: str, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    for media in ("application/json", "text/plain", ""):
        answer = admin.patch(config, {}, media)
        assert answer.refused(415, "UnsupportedMediaType") == "415: Unsupported Media Type"
    accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    for media in ("application/json", "application/strategic-merge-patch+json"):
        text = admin.patch(f"{things.path}/a", {}, media).refused(415, "UnsupportedMediaType")
        start = "the body of the request was in an unknown format - accepted media types include: "
        assert text == start + accepted
