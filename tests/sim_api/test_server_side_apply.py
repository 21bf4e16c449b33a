"""Server-side apply through the store."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.api import NODES, PODS, Object, ResourceType
from muster.sim.api_status import StatusError
from muster.sim.managed_fields import Manager
from muster.sim.server_side_apply import apply_configuration
from muster.sim.shapes import Shape
from muster.sim.store import Store, WriteOptions

from .samples import CONFIG_MAPS, MERGE, STRATEGIC, WIDGETS, add_node, new_store, pod, widget, widget_store


def apply(
    store: Store, res: ResourceType, obj: Object, manager: str, *, force: bool = False, sub: str = ""
) -> Object:
    body = {"apiVersion": res.api_version, "kind": res.kind, **obj}
    options = WriteOptions(manager=manager)
    namespace = "default" if res.namespaced else ""
    version, _ = store.apply(
        store.kind(res), body["metadata"]["name"], body, namespace, options, force=force, subresource=sub
    )
    return version.obj


def labels(**values: str) -> Object:
    return {"metadata": {"name": "n1", **({"labels": values} if values else {})}}


def owners(obj: Object) -> list[tuple[str, str]]:
    """Manager and operation of each entry but that of the controllers, who write on every Node."""
    found = [(entry["manager"], entry["operation"]) for entry in obj["metadata"].get("managedFields", [])]
    return [owner for owner in found if owner[0] != "kube-controller-manager"]


def test_apply_creates_and_records_the_manager() -> None:
    store = new_store()
    obj = apply(store, NODES, labels(a="1"), "one")
    entry = obj["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("one", "Apply", "v1")
    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}


def test_fields_no_longer_applied_are_removed_but_not_those_of_others() -> None:
    store = new_store()
    apply(store, NODES, labels(a="1", b="2"), "one")
    apply(store, NODES, labels(b="2", c="3"), "two")
    obj = apply(store, NODES, labels(z="0"), "one")
    assert obj["metadata"]["labels"] == {"b": "2", "c": "3", "z": "0"}
    obj = apply(store, NODES, labels(c="3"), "two")
    assert obj["metadata"]["labels"] == {"c": "3", "z": "0"}


def test_conflict_lists_causes_and_force_takes_the_field() -> None:
    store = new_store()
    apply(store, NODES, labels(a="1"), "one")
    with pytest.raises(StatusError) as caught:
        apply(store, NODES, labels(a="2"), "two")
    error = caught.value
    assert (error.code, error.reason, error.name) == (409, "Conflict", "")
    assert error.message == 'Apply failed with 1 conflict: conflict with "one": .metadata.labels.a'
    assert [(cause.reason, cause.field) for cause in error.causes] == [("FieldManagerConflict", ".metadata.labels.a")]
    obj = apply(store, NODES, labels(a="2"), "two", force=True)
    assert obj["metadata"]["labels"] == {"a": "2"}
    assert owners(obj) == [("two", "Apply")]


def test_same_value_is_shared_and_survives_one_owner() -> None:
    store = new_store()
    apply(store, NODES, labels(a="1"), "one")
    apply(store, NODES, labels(a="1"), "two")
    obj = apply(store, NODES, labels(), "one")
    assert obj["metadata"]["labels"] == {"a": "1"}
    assert owners(obj) == [("two", "Apply")]


def test_applying_again_changes_nothing() -> None:
    store = widget_store()
    first = apply(store, WIDGETS, widget(tags=["a"]), "one")
    assert apply(store, WIDGETS, widget(tags=["a"]), "one") == first


def test_an_apply_shares_with_the_live_object_what_it_leaves_alone() -> None:
    """All that comes after the merge passes over shared parts, so that a large status costs what changes of it."""
    shape = Shape.builtin("Node")
    taint = {"key": "k", "effect": "NoSchedule"}
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]
    live: Object = {
        "metadata": {"name": "n"},
        "spec": {"podCIDR": "x", "taints": [taint]},
        "status": {"capacity": {"cpu": "1"}, "conditions": conditions},
    }
    applier = Manager("one", "Apply", "v1", "", "", {})

    def applied(config: Object) -> Object:
        return apply_configuration(live, (), copy.deepcopy(config), shape, applier, force=True).obj

    assert applied(live) is live
    changed = applied({"status": {"conditions": [{"type": "Ready", "status": "False"}, dict(conditions[1])]}})
    assert changed["status"]["conditions"] == [{"type": "Ready", "status": "False"}, conditions[1]]
    assert changed["status"]["conditions"][1] is conditions[1]
    assert changed["status"]["capacity"] is live["status"]["capacity"]
    assert changed["spec"] is live["spec"]
    assert applied({"spec": {"taints": [taint]}}) is live
    assert applied({"spec": {"unschedulable": True}})["spec"]["taints"] is live["spec"]["taints"]


def test_update_takes_ownership_and_apply_then_conflicts() -> None:
    store = new_store()
    apply(store, NODES, labels(a="1"), "one")
    options = WriteOptions(manager="editor")
    store.patch(store.kind(NODES), "n1", {"metadata": {"labels": {"a": "2"}}}, MERGE, options=options)
    with pytest.raises(StatusError) as caught:
        apply(store, NODES, labels(a="1"), "one")
    assert 'conflict with "editor" using v1' in caught.value.message


def test_keyed_lists_merge_by_key_and_items_go_with_their_owner() -> None:
    store = widget_store()
    one = widget(parts=[{"name": "x", "weight": 1}, {"name": "y"}])
    apply(store, WIDGETS, one, "one")
    other = {"metadata": {"name": "w1"}, "spec": {"parts": [{"name": "z", "weight": 5}, {"name": "x", "count": 7}]}}
    with pytest.raises(StatusError) as caught:
        apply(store, WIDGETS, {**other, "spec": {"parts": [{"name": "x", "weight": 2}]}}, "two")
    assert caught.value.causes[0].field == '.spec.parts[name="x"].weight'
    obj = apply(store, WIDGETS, other, "two")
    assert [part["name"] for part in obj["spec"]["parts"]] == ["z", "x", "y"]
    obj = apply(store, WIDGETS, widget(), "one")
    assert [part["name"] for part in obj["spec"]["parts"]] == ["z", "x"]
    assert obj["spec"]["parts"][1] == {"name": "x", "count": 7}


def test_sets_and_atomic_lists() -> None:
    store = widget_store()
    apply(store, WIDGETS, widget(tags=["a", "b"], plain=["x"]), "one")
    obj = apply(store, WIDGETS, {"metadata": {"name": "w1"}, "spec": {"tags": ["c"]}}, "two")
    assert obj["spec"]["tags"] == ["a", "b", "c"]
    with pytest.raises(StatusError) as caught:
        apply(store, WIDGETS, {"metadata": {"name": "w1"}, "spec": {"plain": ["y"]}}, "two")
    assert caught.value.causes[0].field == ".spec.plain"
    obj = apply(store, WIDGETS, widget(tags=["b"], plain=["x"]), "one")
    assert obj["spec"]["tags"] == ["b", "c"]


def test_status_has_owners_of_its_own() -> None:
    store = widget_store()
    apply(store, WIDGETS, widget(), "one")
    body = {"metadata": {"name": "w1", "labels": {"no": "way"}}, "spec": {"size": 9}, "status": {"phase": "Up"}}
    obj = apply(store, WIDGETS, body, "one", sub="status")
    assert obj["spec"]["size"] == 3
    assert obj["status"] == {"phase": "Up"}
    assert "labels" not in obj["metadata"]
    entries = {entry.get("subresource", ""): entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}
    assert entries["status"] == {"f:status": {"f:phase": {}}}
    assert entries[""] == {"f:spec": {"f:size": {}}}
    obj = apply(store, WIDGETS, widget(), "one")
    assert obj["status"] == {"phase": "Up"}


def test_two_writers_of_one_status_do_not_touch_each_other() -> None:
    store = widget_store()
    apply(store, WIDGETS, widget(), "person")
    name = {"metadata": {"name": "w1"}}
    apply(store, WIDGETS, {**name, "status": {"phase": "Up"}}, "agent", sub="status")
    obj = apply(store, WIDGETS, {**name, "status": {"seen": 4}}, "controller", sub="status")
    assert obj["status"] == {"phase": "Up", "seen": 4}


def test_apply_refusals() -> None:
    store = widget_store()
    with pytest.raises(StatusError) as caught:
        apply(store, WIDGETS, {**widget(), "status": {"phase": "Up"}}, "one", sub="status")
    assert caught.value.code == 404
    with pytest.raises(StatusError) as caught:
        apply(store, NODES, {"metadata": {"name": "n1", "managedFields": [{}]}}, "one")
    assert caught.value.code == 400
    with pytest.raises(StatusError) as caught:
        apply(store, NODES, labels(a="1"), "")
    assert "fieldManager" in caught.value.message
    with pytest.raises(StatusError) as caught:
        apply(store, WIDGETS, widget(parts=[{"weight": 1}]), "one")
    assert caught.value.code == 500
    assert 'omits all key fields ["name"]' in caught.value.message


def test_stale_resource_version_in_an_applied_configuration() -> None:
    store = new_store()
    apply(store, NODES, labels(a="1"), "one")
    with pytest.raises(StatusError) as caught:
        apply(store, NODES, {"metadata": {"name": "n1", "resourceVersion": "1", "labels": {"a": "2"}}}, "one")
    assert caught.value.reason == "Conflict"


def test_apply_to_a_pod_after_client_side_writes() -> None:
    store = new_store()
    store.create(store.kind(PODS), pod(), "default", WriteOptions(manager="creator"))
    patch = {"metadata": {"annotations": {"x": "1"}}}
    store.patch(store.kind(PODS), "p1", patch, STRATEGIC, "default", WriteOptions(manager="annotator"))
    obj = apply(store, PODS, {"metadata": {"name": "p1", "labels": {"team": "a"}}}, "applier")
    assert owners(obj) == [("applier", "Apply"), ("annotator", "Update"), ("creator", "Update")]
    with pytest.raises(StatusError):
        apply(store, PODS, {"metadata": {"name": "p1", "annotations": {"x": "2"}}}, "applier")


def test_managed_fields_sent_by_a_client_replace_the_record() -> None:
    store = new_store()
    add_node(store)
    live = store.get(store.kind(NODES), "n1").obj
    entry = {
        "manager": "new",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-05T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
    }
    changed = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}
    obj = store.update(store.kind(NODES), "n1", changed).obj
    assert owners(obj) == [("new", "Apply")]


configs = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("01"), max_size=3)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), configs), max_size=8))
def test_forced_applies_keep_the_ownership_invariants(steps: list[tuple[str, dict[str, str]]]) -> None:
    """What a manager applied last is in the object unless another took it; the same again changes nothing; no field
    without an owner stays."""
    store = new_store()
    for manager, data in steps:
        body: dict[str, Any] = {"metadata": {"name": "c"}, "data": data}
        obj = apply(store, CONFIG_MAPS, body, manager, force=True)
        assert all(obj.get("data", {}).get(key) == value for key, value in data.items())
        # Applying no data at all takes the empty map from whoever else applies it, which is a change once.
        again = apply(store, CONFIG_MAPS, body, manager, force=True)
        assert again == obj if data else again.get("data") == obj.get("data")
        owned: set[str] = set()
        for entry in obj["metadata"].get("managedFields", []):
            owned |= {name[2:] for name in entry["fieldsV1"].get("f:data", {}) if name != "."}
        assert set(obj.get("data", {})) == owned
