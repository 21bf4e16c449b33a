"""`metadata.managedFields`: exactly who owns what after each kind of write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import JSON_PATCH, Client
from tests.contract.definitions import INTEGER, STRING, Widgets, applied_by, define, of, owners, updated_by, with_spec
from tests.contract.server import Server

SPEC = of(
    {
        "size": INTEGER,
        "filled": {"type": "string", "default": "x"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": of({"name": STRING, "v": INTEGER}, required=["name"]),
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
)


@pytest.fixture
def widgets(server: Server) -> Widgets:
    schema = with_spec(SPEC, of({"phase": STRING, "n": INTEGER}))
    return define(server, schema, subresources={"status": {}})


def test_a_creator_owns_what_it_sent_and_the_defaults(widgets: Widgets) -> None:
    body = widgets.body("w", {"size": 1, "tags": ["a"], "parts": [{"name": "p"}], "free": {"x": {"y": 1}}})
    body["metadata"] |= {"labels": {"l": "1"}, "annotations": {"a": "2"}, "finalizers": ["example.com/f"]}
    created = widgets.admin.create(widgets.path, body, fieldManager="creator").ok()
    (entry,) = created["metadata"]["managedFields"]
    assert {key: entry[key] for key in ("manager", "operation", "apiVersion", "fieldsType")} == {
        "manager": "creator",
        "operation": "Update",
        "apiVersion": widgets.api_version,
        "fieldsType": "FieldsV1",
    }
    assert entry["time"] == created["metadata"]["creationTimestamp"] or entry["time"]
    assert entry["fieldsV1"] == {
        "f:metadata": {
            "f:labels": {".": {}, "f:l": {}},
            "f:annotations": {".": {}, "f:a": {}},
            "f:finalizers": {".": {}, 'v:"example.com/f"': {}},
        },
        "f:spec": {
            ".": {},
            "f:size": {},
            "f:filled": {},
            "f:tags": {".": {}, 'v:"a"': {}},
            "f:parts": {".": {}, 'k:{"name":"p"}': {".": {}, "f:name": {}}},
            "f:free": {".": {}, "f:x": {".": {}, "f:y": {}}},
        },
    }


def test_a_generated_name_is_owned_too(widgets: Widgets) -> None:
    body = {**widgets.body("", {"size": 1}), "metadata": {"generateName": "gen-"}}
    created = widgets.admin.create(widgets.path, body, fieldManager="creator").ok()
    assert updated_by(created, "creator")["f:metadata"] == {"f:generateName": {}}


def test_an_updater_owns_what_it_changed(widgets: Widgets) -> None:
    widgets.create("w", {"size": 1, "parts": [{"name": "p", "v": 1}]}, fieldManager="creator").ok()
    changed = widgets.merge(
        "w", {"spec": {"parts": [{"name": "p", "v": 2}, {"name": "q"}], "tags": ["b"]}}, fieldManager="other"
    ).ok()
    assert updated_by(changed, "other") == {
        "f:spec": {
            "f:parts": {'k:{"name":"p"}': {"f:v": {}}, 'k:{"name":"q"}': {".": {}, "f:name": {}}},
            "f:tags": {".": {}, 'v:"b"': {}},
        }
    }
    assert updated_by(changed, "creator")["f:spec"] == {
        ".": {},
        "f:size": {},
        "f:filled": {},
        "f:parts": {".": {}, 'k:{"name":"p"}': {".": {}, "f:name": {}}},
    }
    gone = widgets.merge("w", {"spec": {"parts": None}}, fieldManager="third").ok()
    assert updated_by(gone, "third") == {}, "removing makes nobody an owner"
    assert "f:parts" not in updated_by(gone, "creator")["f:spec"]


def test_a_write_that_changes_nothing_changes_no_owner(widgets: Widgets) -> None:
    created = widgets.create("w", {"size": 1}, fieldManager="creator").ok()
    again = widgets.merge("w", {"spec": {"size": 1}}, fieldManager="other").ok()
    assert again == created


def test_the_status_has_entries_of_its_own(widgets: Widgets) -> None:
    created = widgets.create("w", {"size": 1}, {"phase": "no"}, fieldManager="one").ok()
    assert "f:status" not in updated_by(created, "one")
    patched = widgets.merge("w", {"status": {"phase": "A"}, "spec": {"size": 9}}, "status", fieldManager="one").ok()
    assert updated_by(patched, "one", "status") == {"f:status": {".": {}, "f:phase": {}}}
    assert patched["spec"]["size"] == 1
    body = {**patched, "status": {"phase": "B", "n": 1}}
    replaced = widgets.admin.replace(widgets.at("w", "status"), body, fieldManager="two").ok()
    assert updated_by(replaced, "two", "status") == {"f:status": {"f:n": {}, "f:phase": {}}}
    assert updated_by(replaced, "one", "status") == {"f:status": {}}


def test_one_name_applies_and_updates_under_two_entries(widgets: Widgets) -> None:
    widgets.create("w", {"size": 1}, fieldManager="same").ok()
    applied = widgets.apply("w", {"size": 1, "tags": ["a"]}, manager="same").ok()
    assert applied_by(applied, "same") == {"f:spec": {"f:size": {}, "f:tags": {'v:"a"': {}}}}
    assert "f:size" in updated_by(applied, "same")["f:spec"]
    refused = widgets.apply("w", {"size": 2}, manager="same")
    assert refused.refused(409, "Conflict") == (
        f'Apply failed with 1 conflict: conflict with "same" using {widgets.api_version}: .spec.size'
    )


def config_map(server: Server, namespace: str, admin: Client) -> str:
    name = server.unique("cm")
    base = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.create(base, {"metadata": {"name": name}, "data": {"a": "1"}}, fieldManager="creator").ok()
    return f"{base}/{name}"


def body_of(path: str, data: dict[str, str], entries: Any) -> dict[str, Any]:
    return {"metadata": {"name": path.rpartition("/")[2], "managedFields": entries}, "data": data}


@pytest.mark.parametrize("entries", [[], [{}]])
def test_ownership_is_reset_by_an_empty_list(
    server: Server, admin: Client, namespace: str, entries: list[Any]
) -> None:
    path = config_map(server, namespace, admin)
    reset = admin.replace(path, body_of(path, {"a": "1"}, entries), fieldManager="x").ok()
    assert "managedFields" not in reset["metadata"]
    changed = admin.patch(path, {"data": {"a": "2"}}, fieldManager="x").ok()
    assert "managedFields" not in changed["metadata"], "an object without owners stays without"


def test_ownership_can_be_written(server: Server, admin: Client, namespace: str) -> None:
    path = config_map(server, namespace, admin)
    entry = {
        "manager": "given",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }
    written = admin.replace(path, body_of(path, {"a": "1"}, [entry]), fieldManager="x").ok()
    assert owners(written) == {("given", "Apply", ""): {"f:data": {"f:a": {}}}}
    for bad in ({**entry, "operation": "Foo"}, {**entry, "fieldsType": "X"}, {**entry, "fieldsV1": {"a": {}}}):
        kept = admin.replace(path, body_of(path, {"a": "1"}, [bad]), fieldManager="x").ok()
        assert owners(kept) == owners(written), "entries that cannot be read are ignored"
    same = admin.replace(path, body_of(path, {"a": "1"}, None), fieldManager="x").ok()
    assert owners(same) == owners(written)


def test_a_manager_is_renamed_with_a_patch(widgets: Widgets) -> None:
    widgets.apply("w", {"size": 1}, manager="old").ok()
    rename = [{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "new"}]
    renamed = widgets.admin.patch(widgets.at("w"), rename, JSON_PATCH, fieldManager="x").ok()
    assert owners(renamed) == {("new", "Apply", ""): {"f:spec": {"f:size": {}}}}
    assert widgets.apply("w", {"size": 2}, manager="new").ok()["spec"]["size"] == 2


def test_the_oldest_updaters_are_lumped_together(server: Server, admin: Client, namespace: str) -> None:
    path = config_map(server, namespace, admin)
    for number in range(12):
        admin.patch(path, {"data": {f"k{number:02}": "1"}}, fieldManager=f"u{number:02}").ok()
    found = owners(admin.get(path).ok())
    assert len(found) == 10
    lump = found[("ancient-changes", "Update", "")]["f:data"]
    assert {"f:a", "f:k00"} <= set(lump)
    assert ("u11", "Update", "") in found


def test_a_node_and_a_pod_own_no_status_when_created(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("n")
    node = {
        "metadata": {"name": name, "labels": {"muster.dev/test": ""}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    created = admin.create("/api/v1/nodes", node, fieldManager="kubelet").ok()
    assert created["status"]["conditions"][0]["type"] == "Ready", "a node keeps the status it is created with"
    assert updated_by(created, "kubelet") == {
        "f:metadata": {"f:labels": {".": {}, "f:muster.dev/test": {}}},
        "f:spec": {"f:taints": {}},
    }
    admin.delete(f"/api/v1/nodes/{name}").ok()
    pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = admin.create(f"/api/v1/namespaces/{namespace}/pods", pod, fieldManager="me").ok()
    fields = updated_by(made, "me")
    assert set(fields) == {"f:spec"}
    assert set(fields["f:spec"]["f:containers"]) == {'k:{"name":"c"}'}
    assert "f:restartPolicy" in fields["f:spec"]


def test_nobody_owns_what_the_server_makes_up(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("n")
    made = admin.create("/api/v1/namespaces", {"metadata": {"name": name}}, fieldManager="m").ok()
    labels = {".": {}, "f:kubernetes.io/metadata.name": {}}
    assert updated_by(made, "m") == {"f:metadata": {"f:labels": labels}}
    admin.delete(f"/api/v1/namespaces/{name}")
    place = f"/api/v1/namespaces/{namespace}/services"
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
    service = admin.create(place, {"metadata": {"name": "s"}, "spec": spec}, fieldManager="m").ok()
    assert service["spec"]["clusterIP"]
    assert sorted(updated_by(service, "m")["f:spec"]) == [
        *("f:internalTrafficPolicy", "f:ports", "f:selector", "f:sessionAffinity", "f:type")
    ]
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    job = admin.create(jobs, body, fieldManager="m").ok()
    assert job["spec"]["selector"]["matchLabels"]
    owned = updated_by(job, "m")
    assert "f:metadata" not in owned
    assert "f:selector" not in owned["f:spec"]
    assert "f:metadata" not in owned["f:spec"]["f:template"]


def test_the_write_that_lets_a_terminating_object_go(admin: Client, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"metadata": {"name": "c", "finalizers": ["example.com/f"]}, "data": {"k": "v"}}
    admin.create(place, body, fieldManager="m").ok()
    admin.delete(f"{place}/c").ok()
    last = admin.patch(f"{place}/c", {"metadata": {"finalizers": None}, "data": {"l": "w"}}, fieldManager="n").ok()
    assert admin.get(f"{place}/c").status == 404
    assert updated_by(last, "m") == {"f:data": {".": {}, "f:k": {}}}
    assert updated_by(last, "n") == {"f:data": {"f:l": {}}}
