"""Bodies, media types, methods and paths that a server refuses, and those that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.client import MERGE, Answer, Client
from tests.contract.samples import Things, meta, pod_spec
from tests.contract.server import Server

NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
MAX_REQUEST_BYTES = 3 * 1024 * 1024


@pytest.mark.parametrize("raw", [b"", b'{"metadata": {', b"nonsense", b"[]", b'"text"'])
def test_a_body_without_an_object(admin: Client, configs: str, things: Things, raw: bytes) -> None:
    for path, kind in ((configs, "ConfigMap"), (things.path, "Thing")):
        text = admin.request("POST", path, raw).refused(400, "BadRequest")
        start = (
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
        )
        assert text.startswith(start)
        quoted = raw.decode() if raw[:1] == b"{" else raw.hex()
        assert text.endswith(f"({quoted or '<empty>'})")


def test_an_empty_built_in_object_may_leave_its_kind_out(admin: Client, configs: str, things: Things) -> None:
    for raw in (b"null", b"{}"):
        text = admin.request("POST", configs, raw).refused(422, "Invalid")
        assert text == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
        text = admin.request("POST", things.path, raw).refused(400, "BadRequest")
        assert f"Object 'Kind' is missing in '{raw.decode()}'" in text


def test_yaml(admin: Client, configs: str) -> None:
    text = b"metadata:\n  name: a\ndata:\n  k: v\n"
    assert admin.request("POST", configs, text, content_type="application/yaml").ok()["data"] == {"k": "v"}
    bad = admin.request("POST", configs, b"a: [b", content_type="application/yaml")
    start = "the object provided is unrecognized (must be of type ConfigMap): yaml: "
    assert bad.refused(400, "BadRequest").startswith(start)


def test_another_kind_than_the_path_says(admin: Client, configs: str) -> None:
    def refused(**head: str) -> str:
        return admin.create(configs, {**head, "metadata": {"name": "a"}}).refused(400, "BadRequest")

    secret = 'Secret in version "v1" cannot be handled as a ConfigMap: '
    secret += "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    assert refused(kind="Secret") == secret
    assert refused(apiVersion="v1", kind="Secret") == secret
    text = refused(apiVersion="v2", kind="ConfigMap")
    assert text.startswith(
        'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is regist'
    )
    assert refused(apiVersion="v1", kind="Nope").startswith('Nope in version "v1" cannot be handled as a ConfigMap')
    text = refused(apiVersion="apps/v1", kind="Deployment")
    assert text.startswith('Deployment in version "v1" cannot be handled as a ConfigMap')
    assert admin.create(configs, {"kind": "ConfigMap", "metadata": {"name": "a"}}).status == 201
    assert admin.create(configs, {"apiVersion": "v1", "metadata": {"name": "b"}}).status == 201


def test_a_custom_resource_must_say_what_it_is(admin: Client, things: Things) -> None:
    whole = things.thing("a")
    without = {name: value for name, value in whole.items() if name != "kind"}
    assert "Object 'Kind' is missing in" in admin.create(things.path, without).refused(400, "BadRequest")
    for version in ("v1", ""):
        text = admin.create(things.path, {**whole, "apiVersion": version}).refused(400, "BadRequest")
        expected = f"the API version in the data ({version}) does not match the expected API version "
        assert text == f"{expected}({things.api_version})"
    answer = admin.create(things.path, {**whole, "kind": "Nope"})
    text = answer.refused(422, "Invalid")
    assert text == f'Nope.{things.group} "a" is invalid: kind: Invalid value: "Nope": must be Thing'
    assert answer.body["details"]["causes"][0]["field"] == "kind"


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (
            {"metadata": {"name": "a", "labels": {"x": 1}}},
            "number into Go struct field ObjectMeta.metadata.labels of",
        ),
        (
            {"metadata": {"name": "a", "labels": []}},
            "array into Go struct field ObjectMeta.metadata.labels of type map",
        ),
        ({"metadata": "a"}, "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        ({"metadata": {"name": 5}}, "number into Go struct field ObjectMeta.metadata.name of type string"),
        (
            {"metadata": {"name": "a", "finalizers": [5]}},
            "number into Go struct field ObjectMeta.metadata.finalizers",
        ),
        ({"metadata": {"name": "a"}, "data": {"x": 5}}, "number into Go struct field ConfigMap.data of type string"),
        ({"metadata": {"name": "a"}, "data": []}, "array into Go struct field ConfigMap.data of type map[string]str"),
        (
            {"metadata": {"name": "a"}, "immutable": "no"},
            "string into Go struct field ConfigMap.immutable of type bool",
        ),
    ],
)
def test_a_field_of_the_wrong_type(admin: Client, configs: str, part: dict[str, Any], field: str) -> None:
    text = admin.create(configs, part).refused(400, "BadRequest")
    start = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
    assert text.startswith(start + field)


def test_metadata_of_a_custom_resource_has_types_too(admin: Client, things: Things) -> None:
    text = admin.create(things.path, things.thing("a", labels={"x": 1})).refused(400, "BadRequest")
    start = 'Thing in version "v1" cannot be handled as a Thing: json: cannot unmarshal '
    assert text == f"{start}number into Go struct field ObjectMeta.labels of type string"
    text = admin.create(things.path, {**things.thing(), "metadata": "a"}).refused(400, "BadRequest")
    assert text == f"{start}string into Go value of type v1.ObjectMeta"


def test_types_deep_inside(admin: Client, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "c", "image": "i", "ports": [{"containerPort": "80"}]}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    text = admin.create(pods, body).refused(400, "BadRequest")
    assert text.endswith(
        "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"
    )
    body = {"metadata": {"name": "p"}, "spec": pod_spec(hostNetwork="yes")}
    text = admin.create(pods, body).refused(400, "BadRequest")
    assert text.endswith("string into Go struct field PodSpec.spec.hostNetwork of type bool")


def test_media_types_of_bodies(admin: Client, configs: str, things: Things) -> None:
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    for path in (configs, things.path):
        answer = admin.request("POST", path, b"{}", content_type="text/plain")
        text = answer.refused(415, "UnsupportedMediaType")
        start = "the body of the request was in an unknown format - accepted media types include: "
        assert text == start + accepted
    plain = admin.request("POST", configs, {"metadata": {"name": "a"}}, content_type="")
    assert plain.status == 201
    detailed = admin.request(
        "POST", configs, {"metadata": {"name": "b"}}, content_type="application/json; charset=utf-8"
    )
    assert detailed.status == 201


def test_media_types_of_answers(admin: Client, configs: str, things: Things) -> None:
    for path in (f"{configs}/a", configs, f"{things.path}/a"):
        assert admin.request("GET", path, accept="text/html").refused(406, "NotAcceptable")
    assert admin.request("GET", f"{configs}/a", accept="text/html, */*").refused(404, "NotFound")


def test_methods(admin: Client, configs: str) -> None:
    body = {"metadata": {"name": "a"}}
    for method, path in (
        ("PUT", configs),
        ("PATCH", configs),
        ("POST", f"{configs}/a"),
        ("OPTIONS", configs),
        ("TRACE", configs),
        ("POST", "/api/v1/configmaps"),
    ):
        media = MERGE if method == "PATCH" else "application/json"
        answer = admin.request(method, path, body, content_type=media)
        assert answer.refused(405, "MethodNotAllowed") == NOT_ALLOWED
        assert answer.body["details"] == {}
    assert admin.request("HEAD", f"{configs}/a").status == 405


def test_paths_that_are_not_served(admin: Client, configs: str, namespace: str) -> None:
    for path in (
        f"/api/v1/namespaces/{namespace}/nopes",
        f"/api/v1/namespaces/{namespace}/nopes/x",
        "/apis/apps/v9/deployments",
        f"{configs}/a/nope",
        f"{configs}/a/status",
        f"{configs}/a/status/x",
        f"/api/v1/namespaces/{namespace}/nodes",
        "/api/v1/configmaps/a",
    ):
        answer = admin.get(path)
        assert answer.refused(404, "NotFound") == NOT_FOUND, path
        assert answer.body["details"] == {}
    unknown_group = admin.get("/apis/nope.example.com/v1/things")
    assert unknown_group.status == 404
    assert b"404 page not found" in unknown_group.content


def test_namespaces_that_are_missing_or_going(server: Server, admin: Client, controllers: None) -> None:
    answer = admin.create("/api/v1/namespaces/nope-nope/configmaps", {"metadata": {"name": "a"}})
    assert answer.refused(404, "NotFound") == 'namespaces "nope-nope" not found'
    assert answer.body["details"] == {"name": "nope-nope", "kind": "namespaces"}
    name = server.new_namespace()
    path = f"/api/v1/namespaces/{name}/configmaps"
    admin.create(path, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}).ok()
    admin.delete(f"/api/v1/namespaces/{name}").ok()
    answer = admin.create(path, {"metadata": {"name": "a"}})
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert answer.refused(403, "Forbidden") == f'configmaps "a" is forbidden: {why}'
    assert answer.body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    assert admin.patch(f"{path}/held", {"metadata": {"finalizers": None}}).status == 200


def test_too_large_an_object(admin: Client, things: Things) -> None:
    thing = things.thing("a")
    thing["spec"]["more"] = {"x": "y" * 1_700_000}
    answer = admin.create(things.path, thing)
    assert answer.status == 500
    assert answer.body["message"] == "etcdserver: request is too large"
    assert admin.get(f"{things.path}/a").status == 404


def test_too_large_a_request(admin: Client, configs: str) -> None:
    body = {"metadata": {"name": "a"}, "data": {"x": "x" * (MAX_REQUEST_BYTES + 10)}}
    answer = admin.create(configs, body)
    assert answer.refused(413, "RequestEntityTooLarge") == f"Request entity too large: limit is {MAX_REQUEST_BYTES}"
    large = admin.create(configs, {"metadata": {"name": "a"}, "data": {"x": "x" * (1024 * 1024 + 1)}})
    text = large.refused(422, "Invalid")
    assert text == 'ConfigMap "a" is invalid: []: Too long: may not be more than 1048576 bytes'


@pytest.mark.parametrize("mode", ["", "Warn", "Ignore"])
def test_unknown_fields_vanish(admin: Client, configs: str, mode: str) -> None:
    body = {"metadata": {"name": "a", "zoo": 1}, "nope": 5, "data": {"k": "v"}}
    answer = admin.create(configs, body, **({"fieldValidation": mode} if mode else {}))
    assert answer.ok()["data"] == {"k": "v"}
    assert "nope" not in answer.body
    assert "zoo" not in meta(answer.body)
    told = [f'299 - "unknown field \\"{path}\\""' for path in ("metadata.zoo", "nope") if mode != "Ignore"]
    assert _warnings(answer.headers) == told


def test_unknown_fields_are_refused_strictly(admin: Client, configs: str, things: Things) -> None:
    body = {"metadata": {"name": "a", "zoo": 1}, "nope": 5}
    listed = 'strict decoding error: unknown field "metadata.zoo", unknown field "nope"'
    expected = f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {listed}'
    assert admin.create(configs, body, fieldValidation="Strict").refused(400, "BadRequest") == expected
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    answer = admin.replace(f"{configs}/a", body, fieldValidation="Strict")
    assert answer.refused(400, "BadRequest") == expected
    thing = {**things.thing("a", zoo=1), "bar": 1}
    thing["spec"]["foo"] = 2
    text = admin.create(things.path, thing, fieldValidation="Strict").refused(400, "BadRequest")
    listed = 'unknown field "metadata.zoo", unknown field "bar", unknown field "spec.foo"'
    assert text == f'Thing in version "v1" cannot be handled as a Thing: strict decoding error: {listed}'
    kept = admin.create(things.path, thing).ok()
    assert kept["spec"] == {"count": 1, "parts": ["a"], "colour": "red"}
    assert "bar" not in kept


def test_unknown_fields_deep_inside(admin: Client, namespace: str) -> None:
    container = {"name": "c", "image": "i", "foo": 1, "ports": [{"containerPort": 80, "bar": 1}]}
    body = {"metadata": {"name": "p"}, "spec": pod_spec(containers=[container], nope=2)}
    answer = admin.create(f"/api/v1/namespaces/{namespace}/pods", body)
    made = answer.ok()["spec"]
    assert "nope" not in made
    assert "foo" not in made["containers"][0]
    paths = ("spec.containers[0].foo", "spec.containers[0].ports[0].bar", "spec.nope")
    assert _warnings(answer.headers) == [f'299 - "unknown field \\"{path}\\""' for path in paths]


def test_fields_that_stand_twice(admin: Client, configs: str) -> None:
    raw = b'{"metadata": {"name": "x", "name": "a"}, "data": {"k": "1", "k": "2"}}'
    answer = admin.request("POST", configs, raw)
    assert answer.ok()["data"] == {"k": "2"}
    assert meta(answer.body)["name"] == "a"
    told = ['299 - "duplicate field \\"metadata.name\\""', '299 - "duplicate field \\"data.k\\""']
    assert _warnings(answer.headers) == told
    strict = admin.request("POST", configs, raw, params={"fieldValidation": "Strict"})
    assert 'duplicate field "metadata.name", duplicate field "data.k"' in strict.refused(400, "BadRequest")


def test_options_that_are_none(admin: Client, configs: str) -> None:
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    body, path = {"metadata": {"name": "a"}}, f"{configs}/a"
    calls: dict[str, Callable[..., Answer]] = {
        "CreateOptions": lambda **more: admin.create(configs, body, **more),
        "UpdateOptions": lambda **more: admin.replace(path, body, **more),
        "PatchOptions": lambda **more: admin.patch(path, {}, **more),
    }
    for kind, call in calls.items():
        long = call(fieldManager="x" * 129)
        prefix = f'{kind}.meta.k8s.io "" is invalid: '
        assert long.refused(422, "Invalid") == f"{prefix}fieldManager: Too long: may not be more than 128 bytes"
        assert long.body["details"]["group"] == "meta.k8s.io"
        odd = call(fieldManager="x\n").refused(422, "Invalid")
        assert odd == f'{prefix}fieldManager: Invalid value: "x\\n": invalid character U+000A (at position 1)'
        dry = call(dryRun="Some").refused(422, "Invalid")
        assert dry == f'{prefix}dryRun: Unsupported value: ["Some"]: supported values: "All"'
        mode = call(fieldValidation="Never").refused(422, "Invalid")
        supported = '"", "Ignore", "Strict", "Warn"'
        assert mode == f'{prefix}fieldValidation: Unsupported value: "Never": supported values: {supported}'
    force = admin.patch(path, {}, force="true").refused(422, "Invalid")
    assert force.endswith("force: Forbidden: may not be specified for non-apply patch")


def _warnings(headers: Any) -> list[str]:
    found: list[str] = headers.get_list("warning")
    return found
