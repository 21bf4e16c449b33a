"""Create, update and patch: what the server sets, keeps and refuses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import LEASES, NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, ResourceType
from muster.sim.api_names import is_dns_label, is_dns_subdomain, is_qualified_name
from muster.sim.api_status import StatusError
from muster.sim.store import Store, WriteOptions
from muster.sim.tables import table_of
from muster.sim.virtual import VirtualClock

from .samples import (
    CONFIG_MAPS,
    JSON,
    MERGE,
    STRATEGIC,
    WIDGETS,
    add_budget,
    add_node,
    add_pod,
    new_store,
    node,
    pod,
    widget,
    widget_store,
)


def refused(code: int, reason: str, act: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        act()
    assert (caught.value.code, caught.value.reason) == (code, reason)
    return caught.value


def test_a_new_object_gets_identity_and_version() -> None:
    store = new_store()
    obj = add_node(store)
    metadata = obj["metadata"]
    assert metadata["creationTimestamp"] == "2026-01-05T08:00:00Z"
    assert len(metadata["uid"]) == 36
    assert 0 < int(metadata["resourceVersion"]) <= store.version
    assert obj["kind"] == "Node"


def test_the_same_seed_gives_the_same_objects() -> None:
    first, second = new_store(), new_store()
    assert add_node(first) == add_node(second)


def test_generated_names_differ() -> None:
    store = new_store()
    kind = store.kind(PODS)
    made = [store.create(kind, {**pod(), "metadata": {"generateName": "job-"}}, "default").obj for _ in range(3)]
    names = [obj["metadata"]["name"] for obj in made]
    assert len(set(names)) == 3
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_create_refusals() -> None:
    store = new_store()
    nodes, pods = store.kind(NODES), store.kind(PODS)
    add_node(store)
    error = refused(409, "AlreadyExists", lambda: store.create(nodes, node()))
    assert error.message == 'nodes "n1" already exists'
    error = refused(422, "Invalid", lambda: store.create(nodes, node("Bad_Name")))
    assert error.causes[0].field == "metadata.name"
    assert 'Node "Bad_Name" is invalid: metadata.name' in error.message
    error = refused(404, "NotFound", lambda: store.create(pods, pod(), "nowhere"))
    assert error.message == 'namespaces "nowhere" not found'
    refused(422, "Invalid", lambda: store.create(nodes, {"metadata": {}}))
    refused(422, "Invalid", lambda: store.create(nodes, node("n2", **{"bad key": "x"})))
    refused(422, "Invalid", lambda: store.create(pods, {**pod("p2"), "spec": {"containers": []}}, "default"))
    other = {**pod("p2"), "metadata": {"name": "p2", "namespace": "kube-system"}}
    refused(400, "BadRequest", lambda: store.create(pods, other, "default"))
    refused(400, "BadRequest", lambda: store.create(nodes, {**node("n2"), "kind": "Pod"}))
    refused(400, "BadRequest", lambda: store.create(nodes, {"metadata": {"name": "n2", "labels": {"a": 1}}}))
    refused(500, "", lambda: store.create(nodes, {"metadata": {"name": "n2", "resourceVersion": "5"}}))
    refused(400, "BadRequest", lambda: store.create(nodes, [1]))  # type: ignore[arg-type] # hostile input


def test_update_is_optimistic() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store)
    old = store.get(nodes, "n1").obj
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "1"}}}
    new = store.update(nodes, "n1", labelled).obj
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    error = refused(409, "Conflict", lambda: store.update(nodes, "n1", old))
    assert error.message == (
        'Operation cannot be fulfilled on nodes "n1": the object has been modified; please apply your changes to the '
        "latest version and try again"
    )
    unconditional = node(b="2")
    assert store.update(nodes, "n1", unconditional).obj["metadata"]["labels"] == {"b": "2"}


def test_identity_cannot_change() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    old = add_node(store)
    refused(400, "BadRequest", lambda: store.update(nodes, "n1", node("n2")))
    foreign = {"metadata": {"name": "n1", "uid": "other"}}
    error = refused(409, "Conflict", lambda: store.update(nodes, "n1", foreign))
    assert "Precondition failed: UID in precondition: other" in error.message
    patched = store.patch(nodes, "n1", {"metadata": {"creationTimestamp": "1999-01-01T00:00:00Z"}}, MERGE).obj
    assert patched["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]


def test_writes_that_change_nothing_keep_the_version() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store, a="1")
    old, before = store.get(nodes, "n1").obj, store.version
    assert store.patch(nodes, "n1", {"metadata": {"labels": {"a": "1"}}}, MERGE).obj == old
    assert store.update(nodes, "n1", old).obj == old
    assert store.version == before


def test_leases_and_custom_resources_need_a_version_to_be_replaced() -> None:
    store = widget_store()
    store.create(store.kind(WIDGETS), widget(), "default")
    error = refused(422, "Invalid", lambda: store.update(store.kind(WIDGETS), "w1", widget(), "default"))
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in error.message
    store.create(store.kind(LEASES), {"metadata": {"name": "l"}}, "default")
    refused(422, "Invalid", lambda: store.update(store.kind(LEASES), "l", {"metadata": {"name": "l"}}, "default"))


def test_status_and_main_writes_keep_apart() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    store.create(nodes, {**node(), "status": {"phase": "kept on create"}})
    spec = store.get(nodes, "n1").obj["spec"]
    patch = {"spec": {"unschedulable": True}, "status": {"phase": "x"}, "metadata": {"labels": {"l": "1"}}}
    obj = store.patch(nodes, "n1", patch, MERGE).obj
    assert obj["spec"] == {**spec, "unschedulable": True}
    assert obj["status"]["phase"] == "kept on create"
    obj = store.patch(nodes, "n1", {**patch, "spec": {"unschedulable": False}}, MERGE, subresource="status").obj
    assert obj["spec"]["unschedulable"] is True
    assert obj["status"]["phase"] == "x"


def test_generation_counts_changes_of_the_spec_only() -> None:
    store = widget_store()
    widgets = store.kind(WIDGETS)
    assert store.create(widgets, widget(), "default").obj["metadata"]["generation"] == 1

    def patched(patch: dict[str, Any], subresource: str = "") -> int:
        obj = store.patch(widgets, "w1", patch, MERGE, "default", subresource=subresource).obj
        return int(obj["metadata"]["generation"])

    assert patched({"metadata": {"labels": {"a": "1"}}}) == 1
    assert patched({"status": {"phase": "Up"}}, "status") == 1
    assert patched({"spec": {"size": 4}}) == 2


def test_dry_run_stores_nothing() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    dry = WriteOptions(dry_run=True)
    before = store.version
    assert store.create(nodes, node(), options=dry).obj["metadata"]["uid"]
    assert store.find(nodes, ("", "n1")) is None
    assert store.version == before
    add_node(store)
    stored = store.version
    labelled = store.patch(nodes, "n1", {"metadata": {"labels": {"a": "1"}}}, MERGE, options=dry)
    assert labelled.obj["metadata"]["labels"] == {"a": "1"}
    assert "labels" not in store.get(nodes, "n1").obj["metadata"]
    assert store.version == stored


def test_patch_kinds_through_the_store() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store)
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]
    assert store.patch(nodes, "n1", operations, JSON).obj["metadata"]["labels"] == {"a": "1"}
    conditions = [{"type": "Ready", "status": "True"}]
    store.patch(nodes, "n1", {"status": {"conditions": conditions}}, STRATEGIC, subresource="status")
    more = {"status": {"conditions": [{"type": "MusterHealthy", "status": "True"}]}}
    obj = store.patch(nodes, "n1", more, STRATEGIC, subresource="status").obj
    assert [c["type"] for c in obj["status"]["conditions"]] == ["MusterHealthy", "Ready"]
    refused(422, "Invalid", lambda: store.patch(nodes, "n1", [{"op": "test", "path": "/kind", "value": "x"}], JSON))
    refused(415, "UnsupportedMediaType", lambda: store.patch(nodes, "n1", {}, "text/plain"))
    refused(400, "BadRequest", lambda: store.patch(nodes, "n1", [1], MERGE))
    refused(404, "NotFound", lambda: store.patch(nodes, "n9", {}, MERGE))


def test_strategic_patches_of_custom_resources_are_refused() -> None:
    store = widget_store()
    widgets = store.kind(WIDGETS)
    store.create(widgets, widget(), "default")
    refused(415, "UnsupportedMediaType", lambda: store.patch(widgets, "w1", {}, STRATEGIC, "default"))


def test_resource_version_in_a_patch_is_a_precondition() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store)
    refused(409, "Conflict", lambda: store.patch(nodes, "n1", {"metadata": {"resourceVersion": "1"}}, MERGE))


def test_pod_specs_are_frozen() -> None:
    store = new_store()
    pods = store.kind(PODS)
    obj = add_pod(store)
    assert obj["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert obj["spec"]["restartPolicy"] == "Always"
    refused(422, "Invalid", lambda: store.patch(pods, "p1", {"spec": {"nodeName": "n1"}}, MERGE, "default"))
    tolerations = [*obj["spec"]["tolerations"], {"key": "x", "operator": "Exists"}]
    changed = store.patch(pods, "p1", {"spec": {"tolerations": tolerations}}, MERGE, "default").obj
    assert changed["spec"]["tolerations"] == tolerations
    refused(422, "Invalid", lambda: store.patch(pods, "p1", {"spec": {"tolerations": []}}, MERGE, "default"))


def test_taints_are_checked() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store)
    error = refused(
        422, "Invalid", lambda: store.patch(nodes, "n1", {"spec": {"taints": [{"key": "k", "effect": "Bad"}]}}, MERGE)
    )
    assert error.causes[0].field == "metadata.taints[0].effect"


def test_unknown_fields_follow_field_validation() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    body = {"metadata": {"name": "c", "colour": "x"}, "data": {"a": "b"}, "dat": 1}
    error = refused(
        400, "BadRequest", lambda: store.create(kind, body, "default", WriteOptions(field_validation="Strict"))
    )
    assert 'unknown field "metadata.colour"' in error.message
    options = WriteOptions(field_validation="Warn")
    obj = store.create(kind, body, "default", options).obj
    assert options.warnings == ['unknown field "metadata.colour"', 'unknown field "dat"']
    assert "dat" not in obj
    assert "colour" not in obj["metadata"]


def test_objects_are_bounded() -> None:
    store = new_store()
    big = {"metadata": {"name": "c"}, "data": {"a": "x" * 1_600_000}}
    refused(422, "Invalid", lambda: store.create(store.kind(CONFIG_MAPS), big, "default"))
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    nested = {"metadata": {"name": "d"}, "data": deep}
    refused(400, "BadRequest", lambda: store.create(store.kind(CONFIG_MAPS), nested, "default"))


def test_namespaces_carry_their_name_and_vanish_with_their_content() -> None:
    store = new_store()
    namespaces = store.kind(NAMESPACES)
    obj = store.create(namespaces, {"metadata": {"name": "team"}}).obj
    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert obj["status"] == {"phase": "Active"}
    store.create(store.kind(PODS), pod("held", "n1"), "team")
    _, gone = store.delete(namespaces, "team")
    assert not gone
    terminating = store.get(namespaces, "team").obj
    assert terminating["status"]["phase"] == "Terminating"
    refused(403, "Forbidden", lambda: store.create(store.kind(PODS), pod("late"), "team"))
    store.remove(store.kind(PODS), ("team", "held"))
    assert store.find(namespaces, ("", "team")) is None
    refused(403, "Forbidden", lambda: store.delete(namespaces, "default"))


def test_both_event_versions_are_one_storage() -> None:
    store = new_store()
    new, core = store.registry_kind("events.k8s.io", "v1", "events"), store.registry_kind("", "v1", "events")
    event = {
        "metadata": {"name": "e1"},
        "regarding": {"kind": "Node", "name": "n1"},
        "note": "it broke",
        "reason": "Broken",
        "type": "Warning",
        "reportingController": "muster",
        "reportingInstance": "here",
        "action": "Watch",
        "eventTime": "2026-01-05T08:00:00.000000Z",
    }
    store.create(new, event, "default")
    seen = store.list(core, "default").items[0]
    assert seen.obj["message"] == "it broke"
    assert seen.obj["involvedObject"]["name"] == "n1"
    assert b'"note":"it broke"' in store.raw(new, seen)
    assert b'"message":"it broke"' in store.raw(core, seen)


def test_events_go_after_an_hour() -> None:
    clock = VirtualClock()
    store = Store(clock)
    kind = store.registry_kind("", "v1", "events")
    for name, at in (("a", 0), ("b", 1800), ("c", 3700)):
        clock.elapsed_s = at
        store.create(kind, {"metadata": {"name": name}, "reason": "x"}, "default")
    assert [v.obj["metadata"]["name"] for v in store.list(kind).items] == ["b", "c"]


@given(st.text(max_size=80))
def test_name_rules_imply_each_other(name: str) -> None:
    if is_dns_label(name):
        assert is_dns_subdomain(name)
    if is_dns_subdomain(name) and len(name) <= 63:
        assert is_qualified_name(name)


json_text = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def _outcome(act: Any) -> int:
    """0 when the request was carried out, else the code of the refusal.

    A real server answers a malformed strategic merge patch with 500, and so does this one.
    """
    try:
        act()
    except StatusError as error:
        return error.code
    return 0


KINDS = [NODES, PODS, POD_DISRUPTION_BUDGETS, CONFIG_MAPS]


@given(json_text, st.sampled_from([JSON, MERGE, STRATEGIC]), st.sampled_from(KINDS))
def test_hostile_patches_are_refused_or_leave_a_valid_object(patch: Any, patch_type: str, res: ResourceType) -> None:
    store = new_store()
    add_budget(store, {"minAvailable": 1}, "x")
    kind = store.kind(res)
    namespace = "default" if res.namespaced else ""
    if res is not POD_DISRUPTION_BUDGETS:
        store.create(kind, {**pod("x"), "kind": res.kind, "apiVersion": res.api_version}, namespace)
    old = store.get(kind, "x", namespace).obj
    spreads = [patch, *({"metadata": part} for part in (patch, {"labels": patch}, {"finalizers": patch}))]
    fields = ("containers", "taints", "tolerations", "selector", "minAvailable")
    spreads += [{"spec": {name: patch}} for name in fields]
    spreads += [{"spec": patch}, {"spec": {"containers": [patch]}}, {"metadata": {"ownerReferences": [patch]}}]
    for spread in spreads:
        code = _outcome(partial(store.patch, kind, "x", spread, patch_type, namespace))
        assert code == 0 or 400 <= code <= 500
    for name in ("conditions", "phase", "containerStatuses", "addresses", "capacity"):
        for value in (patch, [patch], {"a": patch}):
            body = {"status": {name: value}}
            act = partial(store.patch, kind, "x", body, patch_type, namespace, subresource="status")
            code = _outcome(act)
            assert code == 0 or 400 <= code <= 500
    found = store.find(kind, (namespace, "x"))
    if found is not None:
        assert found.obj["metadata"]["uid"] == old["metadata"]["uid"]
        assert (found.obj["kind"], found.obj["metadata"]["name"]) == (res.kind, "x")
        assert table_of(kind, [found.obj], {}, store.now())["rows"]
