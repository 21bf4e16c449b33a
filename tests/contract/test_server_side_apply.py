"""Server-side apply: what is merged, what goes, what conflicts, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.client import APPLY, Answer, Client
from tests.contract.definitions import (
    INTEGER,
    STRING,
    Widgets,
    applied_by,
    causes,
    define,
    messages,
    of,
    owners,
    updated_by,
    with_spec,
)
from tests.contract.server import Server

PARTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": of({"name": STRING, "v": INTEGER, "w": STRING}, required=["name"]),
}
PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port", "protocol"],
    "items": of({"port": INTEGER, "protocol": {"type": "string", "default": "TCP"}}, required=["port"]),
}
SPEC = of(
    {
        "size": {"type": "integer", "minimum": 1},
        "name": STRING,
        "nested": of({"a": STRING, "b": of({"c": STRING})}),
        "map": {"type": "object", "additionalProperties": STRING},
        "pair": {**of({"a": STRING, "b": STRING}), "x-kubernetes-map-type": "atomic"},
        "list": {"type": "array", "items": STRING},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "parts": PARTS,
        "ports": PORTS,
        "nullable": {"type": "string", "nullable": True},
        "filled": {"type": "string", "default": "x"},
    }
)
STATUS = of({"phase": STRING, "n": INTEGER})


@pytest.fixture
def widgets(server: Server) -> Widgets:
    return define(server, with_spec(SPEC, STATUS), subresources={"status": {}})


class ConfigMaps:
    """Applying to one config map."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.admin = server.admin
        self.name = server.unique("cm")
        self.path = f"/api/v1/namespaces/{namespace}/configmaps/{self.name}"

    def body(self, data: Any = None, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}}
        return {**found, **({"data": data} if data is not None else {}), **more}

    def apply(self, data: Any = None, *, manager: str = "one", **params: Any) -> Answer:
        return self.admin.apply(self.path, self.body(data), manager=manager, **params)


@pytest.fixture
def config_map(server: Server, namespace: str) -> ConfigMaps:
    return ConfigMaps(server, namespace)


def test_apply_creates_then_changes_then_does_nothing(config_map: ConfigMaps) -> None:
    created = config_map.apply({"a": "1", "b": "2"})
    assert created.status == 201
    first = created.ok()
    assert applied_by(first, "one") == {"f:data": {"f:a": {}, "f:b": {}}}
    again = config_map.apply({"a": "1", "b": "2"})
    assert again.status == 200
    assert again.ok() == first
    changed = config_map.apply({"a": "1"}).ok()
    assert changed["data"] == {"a": "1"}
    assert changed["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]


def test_a_field_goes_only_when_nobody_applies_it_any_more(config_map: ConfigMaps) -> None:
    config_map.apply({"a": "1", "b": "2"}).ok()
    shared = config_map.apply({"a": "1", "c": "3"}, manager="two").ok()
    assert applied_by(shared, "one") == {"f:data": {"f:a": {}, "f:b": {}}}
    left = config_map.apply({}, manager="one").ok()
    assert left["data"] == {"a": "1", "c": "3"}
    assert applied_by(left, "one") == {"f:data": {}}
    gone = config_map.apply({"c": "3"}, manager="two").ok()
    assert gone["data"] == {"c": "3"}


def test_a_conflict_names_each_field_and_manager(config_map: ConfigMaps) -> None:
    config_map.apply({"a": "1", "b": "2"}).ok()
    one = config_map.apply({"a": "9"}, manager="two")
    assert one.refused(409, "Conflict") == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert one.body["details"] == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}]
    }
    both = config_map.apply({"a": "9", "b": "8"}, manager="two")
    assert both.refused(409, "Conflict") == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
    )
    assert config_map.admin.get(config_map.path).ok()["data"] == {"a": "1", "b": "2"}


def test_force_takes_the_fields(config_map: ConfigMaps) -> None:
    config_map.apply({"a": "1", "b": "2"}).ok()
    taken = config_map.apply({"a": "9"}, manager="two", force="true").ok()
    assert taken["data"] == {"a": "9", "b": "2"}
    assert applied_by(taken, "one") == {"f:data": {"f:b": {}}}
    assert applied_by(taken, "two") == {"f:data": {"f:a": {}}}


def test_the_same_value_is_shared_without_a_conflict(config_map: ConfigMaps) -> None:
    config_map.apply({"a": "1"}).ok()
    shared = config_map.apply({"a": "1"}, manager="two").ok()
    assert applied_by(shared, "one") == applied_by(shared, "two") == {"f:data": {"f:a": {}}}
    entry = next(e for e in shared["metadata"]["managedFields"] if e["manager"] == "two")
    assert "time" not in entry, "who changes nothing has changed at no time"


def test_an_updater_is_in_the_way_too(config_map: ConfigMaps) -> None:
    admin = config_map.admin
    admin.create(config_map.path.rpartition("/")[0], config_map.body({"a": "1"}), fieldManager="editor").ok()
    refused = config_map.apply({"a": "2"})
    assert refused.refused(409, "Conflict") == (
        'Apply failed with 1 conflict: conflict with "editor" using v1: .data.a'
    )
    taken = config_map.apply({"a": "2"}, force="true").ok()
    assert owners(taken)[("editor", "Update", "")] == {"f:data": {}}
    edited = admin.patch(config_map.path, {"data": {"a": "3"}}, fieldManager="editor").ok()
    assert applied_by(edited, "one") == {}
    assert owners(edited)[("editor", "Update", "")] == {"f:data": {".": {}, "f:a": {}}}


def test_kubectl_takes_over_what_its_client_side_apply_left(widgets: Widgets) -> None:
    key = "kubectl.kubernetes.io/last-applied-configuration"
    last = json.dumps(widgets.body("w", {"size": 1}))
    metadata = {"name": "w", "annotations": {key: last}}
    body = {**widgets.body("w", {"size": 1}), "metadata": metadata}
    widgets.admin.create(widgets.path, body, fieldManager="kubectl-client-side-apply").ok()
    refused = widgets.apply("w", {"size": 2}, manager="somebody")
    refused.refused(409, "Conflict")
    taken = widgets.apply("w", {"size": 2}, manager="kubectl").ok()
    assert taken["spec"]["size"] == 2
    assert json.loads(taken["metadata"]["annotations"][key])["spec"] == {"size": 2}
    assert applied_by(taken, "kubectl") == {"f:spec": {"f:size": {}}}


def test_maps_lists_and_sets(widgets: Widgets) -> None:
    first = {"size": 1, "map": {"a": "1"}, "set": ["x", "y"], "list": ["1", "2"], "pair": {"a": "1"}}
    created = widgets.apply("w", first, manager="one").ok()
    assert applied_by(created, "one") == {
        "f:spec": {
            "f:size": {},
            "f:map": {"f:a": {}},
            "f:set": {'v:"x"': {}, 'v:"y"': {}},
            "f:list": {},
            "f:pair": {},
        }
    }
    second = widgets.apply("w", {"map": {"b": "2"}, "set": ["z", "x"]}, manager="two").ok()
    assert second["spec"]["map"] == {"a": "1", "b": "2"}
    assert second["spec"]["set"] == ["z", "x", "y"]
    whole = widgets.apply("w", {"list": ["1"], "pair": {"b": "2"}}, manager="two")
    assert {field for field, _, _ in causes(whole, 409)} == {".spec.list", ".spec.pair"}
    forced = widgets.apply("w", {"list": ["1"], "pair": {"b": "2"}}, manager="two", force="true").ok()
    assert forced["spec"]["list"] == ["1"]
    assert forced["spec"]["pair"] == {"b": "2"}
    left = widgets.apply("w", {"size": 1}, manager="one").ok()
    assert left["spec"] == {"size": 1, "list": ["1"], "pair": {"b": "2"}, "filled": "x"}


def test_items_of_a_keyed_list_have_owners_of_their_own(widgets: Widgets) -> None:
    one = {"parts": [{"name": "a", "v": 1}], "ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}
    created = widgets.apply("w", one, manager="one").ok()
    assert applied_by(created, "one")["f:spec"] == {
        "f:parts": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:v": {}}},
        "f:ports": {
            'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}},
            'k:{"port":80,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}},
        },
    }
    both = widgets.apply("w", {"parts": [{"name": "b"}, {"name": "a", "w": "x"}]}, manager="two").ok()
    assert both["spec"]["parts"] == [{"name": "b"}, {"name": "a", "v": 1, "w": "x"}]
    refused = widgets.apply("w", {"parts": [{"name": "a", "v": 2}]}, manager="two")
    assert refused.refused(409, "Conflict") == (
        'Apply failed with 1 conflict: conflict with "one": .spec.parts[name="a"].v'
    )
    left = widgets.apply("w", {"parts": []}, manager="one").ok()
    assert left["spec"]["parts"] == [{"name": "b"}, {"name": "a", "w": "x"}]
    assert "ports" not in left["spec"] or left["spec"]["ports"] is None


def test_the_applied_order_wins_for_shared_items(widgets: Widgets) -> None:
    widgets.apply("w", {"size": 1, "set": ["a", "b", "c", "d"]}, manager="one").ok()
    second = widgets.apply("w", {"set": ["c", "e", "a"]}, manager="two").ok()
    assert second["spec"]["set"] == ["b", "c", "d", "e", "a"]
    third = widgets.apply("w", {"size": 1, "set": ["d", "c", "b", "a"]}, manager="one").ok()
    assert third["spec"]["set"] == ["d", "e", "c", "b", "a"]


def test_node_conditions_and_taints(server: Server, admin: Client) -> None:
    name = server.unique("n")
    path = f"/api/v1/nodes/{name}"
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"muster.dev/test": ""}}}
    admin.create("/api/v1/nodes", head).ok()
    condition = {
        "type": "MusterHealthy",
        "status": "True",
        "reason": "Fine",
        "message": "m",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    named = {**head, "metadata": {"name": name}}

    def applied(manager: str, status: str, **params: Any) -> Answer:
        body = {**named, "status": {"conditions": [{**condition, "status": status}]}}
        return admin.apply(f"{path}/status", body, manager=manager, **params)

    first = applied("one", "True").ok()
    assert applied_by(first, "one", "status") == {
        "f:status": {
            "f:conditions": {
                'k:{"type":"MusterHealthy"}': {".": {}, **{f"f:{field}": {} for field in condition}},
            }
        }
    }
    refused = applied("two", "False")
    assert refused.refused(409, "Conflict") == (
        'Apply failed with 1 conflict: conflict with "one" with subresource "status": '
        '.status.conditions[type="MusterHealthy"].status'
    )
    taint = {"key": "muster.dev/hold", "value": "fault", "effect": "NoSchedule"}
    tainted = admin.apply(path, {**named, "spec": {"taints": [taint]}}, manager="one", force="true").ok()
    assert [t for t in tainted["spec"]["taints"] if t["key"] == "muster.dev/hold"] == [taint]
    assert applied_by(tainted, "one") == {"f:spec": {"f:taints": {}}}, "taints are one value"
    admin.delete(path).ok()


def test_ports_of_a_container_have_two_keys(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("p")
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    pod = {**head, "spec": {"containers": [{"name": "c", "image": "i:1", "ports": ports}]}}
    created = admin.apply(path, pod, manager="one").ok()
    container = applied_by(created, "one")["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert set(container["f:ports"]) == {
        'k:{"containerPort":80,"protocol":"TCP"}',
        'k:{"containerPort":80,"protocol":"UDP"}',
    }
    changed = {**head, "spec": {"containers": [{"name": "c", "image": "i:2"}]}}
    refused = admin.apply(path, changed, manager="two")
    assert refused.refused(409, "Conflict").endswith('.spec.containers[name="c"].image')
    assert admin.apply(path, changed, manager="two", force="true").ok()["spec"]["containers"][0]["image"] == "i:2"


def test_the_status_is_applied_where_it_lives(widgets: Widgets) -> None:
    missing = widgets.apply("w", manager="agent", subresource="status", status={"phase": "A"})
    missing.refused(404, "NotFound")
    created = widgets.apply("w", {"size": 1}, manager="agent", status={"phase": "A"}).ok()
    assert "status" not in created
    body = widgets.body("w", {"size": 7}, status={"phase": "A"})
    body["metadata"]["labels"] = {"a": "b"}
    status = widgets.admin.apply(widgets.at("w", "status"), body, manager="agent").ok()
    assert status["spec"]["size"] == 1
    assert "labels" not in status["metadata"]
    assert status["metadata"]["generation"] == 1
    assert applied_by(status, "agent") == {"f:spec": {"f:size": {}}}
    assert applied_by(status, "agent", "status") == {"f:status": {"f:phase": {}}}
    other = widgets.apply("w", manager="agent", subresource="status", status={"n": 1}).ok()
    assert other["status"] == {"n": 1}


def test_nulls_and_empty_values(widgets: Widgets) -> None:
    widgets.apply("w", {"size": 1, "name": "n", "map": {"a": "1"}}, manager="one").ok()
    refused = widgets.apply("w", {"size": 1, "name": None}, manager="one")
    assert causes(refused) == {
        (
            "spec.name",
            "FieldValueTypeInvalid",
            'Invalid value: "null": spec.name in body must be of type string: "null"',
        )
    }
    kept = widgets.apply("w", {"size": 1, "filled": None, "nullable": None}, manager="one").ok()
    assert kept["spec"] == {"size": 1, "filled": "x", "nullable": None}
    empty = widgets.apply("w", {"size": 1, "map": {}, "set": [], "list": [], "nested": {}}, manager="one").ok()
    assert applied_by(empty, "one") == {"f:spec": {"f:size": {}, "f:map": {}, "f:list": {}, "f:nested": {}}}
    assert empty["spec"] == {"size": 1, "map": {}, "set": [], "list": [], "nested": {}, "filled": "x"}


def test_an_object_emptied_by_its_only_owner_is_invalid_as_null(widgets: Widgets) -> None:
    widgets.apply("w", {"size": 1, "nested": {"a": "1", "b": {}}}, manager="one").ok()
    widgets.apply("w", {"nested": {"b": {"c": "1"}}}, manager="two").ok()
    refused = widgets.apply("w", {}, manager="two")
    assert {field for field, _, _ in causes(refused)} == {"spec.nested.b"}


def test_a_dry_run_stores_nothing(config_map: ConfigMaps) -> None:
    dry = config_map.apply({"a": "1"}, dryRun="All")
    assert (dry.status, dry.ok()["data"]) == (201, {"a": "1"})
    config_map.admin.get(config_map.path).refused(404, "NotFound")
    stored = config_map.apply({"a": "1"}).ok()
    assert config_map.apply({"a": "2"}, dryRun="All").ok()["data"] == {"a": "2"}
    assert config_map.admin.get(config_map.path).ok() == stored


def test_yaml_and_json_bodies(config_map: ConfigMaps) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {config_map.name}\ndata:\n  a: '1'\n"
    created = config_map.admin.apply(config_map.path, text.encode(), manager="one")
    assert created.status == 201
    assert config_map.apply({"a": "1"}).ok() == created.ok()


def test_preconditions(config_map: ConfigMaps) -> None:
    admin, path = config_map.admin, config_map.path

    def applied(**metadata: Any) -> Answer:
        body = config_map.body({"a": "1"}, metadata={"name": config_map.name, **metadata})
        return admin.apply(path, body, manager="one")

    uid = "b1f3f1f0-0000-4000-8000-000000000000"
    assert applied(uid=uid).refused(409, "Conflict") == (
        f'Operation cannot be fulfilled on configmaps "{config_map.name}": uid mismatch: the provided object '
        f"specified uid {uid}, and no existing object was found"
    )
    stored = applied().ok()
    wrong = applied(uid=uid)
    assert causes(wrong) == {
        ("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable'),
    }
    stale = applied(resourceVersion="1")
    assert "the object has been modified" in stale.refused(409, "Conflict")
    right = applied(uid=stored["metadata"]["uid"], resourceVersion=stored["metadata"]["resourceVersion"])
    assert right.ok()["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "v2"}, "invalid object type: /v2, Kind=ConfigMap"),
        ({"apiVersion": "apps/v1"}, "invalid object type: apps/v1, Kind=ConfigMap"),
        ({"kind": None}, "invalid object type: /v1, Kind="),
        ({"apiVersion": None}, "invalid object type: /, Kind=ConfigMap"),
    ],
)
def test_a_configuration_of_another_kind_is_refused(
    config_map: ConfigMaps, change: dict[str, Any], message: str
) -> None:
    body = {key: value for key, value in {**config_map.body(), **change}.items() if value is not None}
    assert config_map.admin.apply(config_map.path, body, manager="one").refused(400, "BadRequest") == message


def test_a_configuration_says_nothing_about_ownership(config_map: ConfigMaps) -> None:
    for entries in ([], [{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]):
        body = config_map.body(metadata={"name": config_map.name, "managedFields": entries})
        refused = config_map.admin.apply(config_map.path, body, manager="one")
        assert refused.refused(400, "BadRequest") == "metadata.managedFields must be nil"


def test_names_in_body_and_url_agree(config_map: ConfigMaps) -> None:
    other = config_map.body(metadata={"name": "another"})
    refused = config_map.admin.apply(config_map.path, other, manager="one")
    assert refused.refused(400, "BadRequest") == (
        f"the name of the object (another) does not match the name on the URL ({config_map.name})"
    )
    elsewhere = config_map.body(metadata={"name": config_map.name, "namespace": "kube-system"})
    refused = config_map.admin.apply(config_map.path, elsewhere, manager="one")
    assert refused.refused(400, "BadRequest") == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def test_the_field_manager(config_map: ConfigMaps) -> None:
    admin, path = config_map.admin, config_map.path
    missing = admin.patch(path, config_map.body(), APPLY)
    assert missing.refused(422, "Invalid") == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )
    long = admin.apply(path, config_map.body(), manager="x" * 129)
    assert causes(long) == {
        ("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes"),
    }
    odd = admin.apply(path, config_map.body(), manager="a\tb")
    assert causes(odd) == {
        (
            "fieldManager",
            "FieldValueInvalid",
            'Invalid value: "a\\tb": invalid character U+0009 (at position 1)',
        ),
    }
    forced = admin.patch(path, {}, force="true")
    assert causes(forced) == {
        ("force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch"),
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"parts": [{"name": "a", "z": 1}]}, '.spec.parts[name="a"].z: field not declared in schema'),
        ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
        ({"name": 5}, ".spec.name: expected string, got &value.valueUnstructured{Value:5}"),
        ({"map": [1]}, ".spec.map: expected map, got &{[1]}"),
        ({"set": {"a": 1}}, ".spec.set: expected list, got &{map[a:1]}"),
        ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, '.spec.parts: duplicate entries for key [name="a"]'),
        (
            {"parts": [{"v": 1}]},
            '.spec.parts: element 0: associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)",
        ),
        (
            {"parts": ["a"]},
            ".spec.parts: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"set": [None]},
            ".spec.set: element 0: associative list without keys has an element that's an explicit null",
        ),
    ],
)
def test_what_cannot_be_merged_is_an_error_of_the_server(
    widgets: Widgets, spec: dict[str, Any], problem: str
) -> None:
    refused = widgets.apply("w", spec, manager="one")
    assert refused.status == 500
    assert "reason" not in refused.body
    assert refused.body["message"] == (
        f"failed to create typed patch object (/w; {widgets.api_version}, Kind=Widget): {problem}"
    )


def test_unknown_fields_of_a_built_in_kind(config_map: ConfigMaps) -> None:
    refused = config_map.admin.apply(config_map.path, config_map.body(bogus=1), manager="one")
    assert refused.status == 500
    assert refused.body["message"] == (
        f"failed to create typed patch object (/{config_map.name}; /v1, Kind=ConfigMap): .bogus: field not declared "
        "in schema"
    )


def test_what_is_merged_is_validated(widgets: Widgets) -> None:
    assert {field for field, _, _ in causes(widgets.apply("w", {"size": 0}, manager="one"))} == {"spec.size"}
    widgets.admin.get(widgets.at("w")).refused(404, "NotFound")


def test_a_cluster_scoped_object_has_no_namespace(widgets: Widgets) -> None:
    body = {**widgets.body("w", {"size": 1}), "metadata": {"name": "w", "namespace": "default"}}
    created = widgets.admin.apply(widgets.at("w"), body, manager="one").ok()
    assert "namespace" not in created["metadata"]


def test_an_object_without_owners_belongs_to_before_first_apply(config_map: ConfigMaps) -> None:
    admin, path = config_map.admin, config_map.path
    admin.create(path.rpartition("/")[0], config_map.body({"a": "1"}), fieldManager="editor").ok()
    reset = config_map.body({"a": "1"}, metadata={"name": config_map.name, "managedFields": [{}]})
    assert "managedFields" not in admin.replace(path, reset).ok()["metadata"]
    applied = config_map.apply({"a": "1", "b": "2"}).ok()
    assert updated_by(applied, "before-first-apply") == {"f:data": {".": {}, "f:a": {}}}
    assert 'conflict with "before-first-apply" using v1: .data.a' in config_map.apply({"a": "3"}).refused(
        409, "Conflict"
    )


def test_who_creates_must_name_the_object(server: Server, widgets: Widgets, namespace: str) -> None:
    admin, name = server.admin, server.unique("w")
    nameless = {"apiVersion": widgets.api_version, "kind": "Widget", "spec": {"size": 1}}
    told = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    assert admin.apply(widgets.at(name), nameless, manager="a").refused(400, "BadRequest") == told
    widgets.apply(name, {"size": 1}, manager="a").ok()
    assert admin.apply(widgets.at(name), nameless, manager="a").status == 200
    configs = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert admin.apply(configs, config, manager="a").refused(400, "BadRequest") == told
    admin.apply(configs, {**config, "metadata": {"name": name}}, manager="a").ok()
    assert admin.apply(configs, config, manager="a").status == 200


def test_values_that_the_schema_lets_through_and_the_kind_does_not(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/c"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
    wrong = {**config, "binaryData": {"b": "!"}}
    told = (
        f"failed to convert new object ({namespace}/c; /v1, Kind=ConfigMap) to proper version: unable to convert "
        "unstructured object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0"
    )
    for _ in range(2):
        refused = admin.apply(path, wrong, manager="a")
        assert (refused.status, refused.body.get("reason"), refused.body["message"]) == (500, None, told)
        admin.apply(path, config, manager="a").ok()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    late = admin.apply(lease, {**body, "spec": {"renewTime": "x"}}, manager="a")
    assert late.status == 500
    assert "to proper version: unable to convert unstructured object" in late.body["message"]


def test_nulls_in_a_status_that_is_not_written(server: Server) -> None:
    widgets = define(server, with_spec(SPEC, of({"phase": STRING})), subresources={"status": {}})
    for status in (None, {"phase": None}):
        made = widgets.apply("w", {"size": 1}, manager="a", status=status).ok()
        assert "status" not in made
    written = widgets.apply("w", manager="b", subresource="status", status=None).ok()
    assert "status" not in written
    assert applied_by(written, "b", "status") == {"f:status": {}}
    assert "status.phase" in messages(widgets.apply("w", manager="b", subresource="status", status={"phase": None}))


def test_who_gives_up_the_last_of_the_metadata_must_say_the_name_again(widgets: Widgets, admin: Client) -> None:
    body = widgets.body("w", {"size": 1})
    labelled = {**body, "metadata": {"name": "w", "labels": {"a": "b"}}}
    admin.apply(widgets.at("w"), labelled, manager="a").ok()
    told = "the name of the object (w based on URL) was undeterminable: name must be provided"
    nameless = {field: value for field, value in body.items() if field != "metadata"}
    assert admin.apply(widgets.at("w"), nameless, manager="a").refused(400, "BadRequest") == told
    assert "labels" not in admin.apply(widgets.at("w"), body, manager="a").ok()["metadata"]


def test_a_first_apply_to_a_status_claims_no_metadata_for_others(server: Server) -> None:
    widgets = define(server, with_spec(SPEC, of({"phase": STRING})), subresources={"status": {}})
    body = {**widgets.body("w", {"size": 1}), "metadata": {"name": "w", "labels": {"a": "b"}}}
    widgets.admin.create(widgets.path, body).ok()
    widgets.merge("w", {"metadata": {"managedFields": [{}]}}).ok()
    applied = widgets.apply("w", manager="b", subresource="status", status={"phase": "x"}).ok()
    assert owners(applied) == {("b", "Apply", "status"): {"f:status": {"f:phase": {}}}}
