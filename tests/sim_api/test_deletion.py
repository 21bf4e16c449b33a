"""Grace periods, finalizers, preconditions, owners."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import NODES, PODS, Object
from muster.sim.api_deletion import DeleteOptions, options_of
from muster.sim.api_lists import ListOptions
from muster.sim.api_status import StatusError
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock

from .samples import CONFIG_MAPS, MERGE, add_node, add_pod, new_store


def config(
    store: Store, name: str, *, owners: tuple[Object, ...] = (), block: bool = False, **metadata: Any
) -> Object:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
        }
        for owner in owners
    ]
    body = {"metadata": {"name": name, "ownerReferences": references, **metadata}}
    return store.create(store.kind(CONFIG_MAPS), body, "default").obj


def exists(store: Store, name: str) -> bool:
    return store.find(store.kind(CONFIG_MAPS), ("default", name)) is not None


def test_bound_pods_end_gracefully() -> None:
    clock = VirtualClock()
    store = Store(clock)
    pods = store.kind(PODS)
    add_pod(store, "p1", "n1")
    version, gone = store.delete(pods, "p1", "default")
    assert not gone
    metadata = version.obj["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-05T08:00:30Z", 30)
    before = store.version
    assert store.delete(pods, "p1", "default", DeleteOptions(grace_period_s=60))[0].obj == version.obj
    assert store.version == before
    clock.elapsed_s = 5
    shorter, _ = store.delete(pods, "p1", "default", DeleteOptions(grace_period_s=10))
    assert shorter.obj["metadata"]["deletionTimestamp"] == "2026-01-05T08:00:10Z"
    _, gone = store.delete(pods, "p1", "default", DeleteOptions(grace_period_s=0))
    assert gone
    assert store.find(pods, ("default", "p1")) is None


def test_unbound_and_finished_pods_go_at_once() -> None:
    store = new_store()
    pods = store.kind(PODS)
    add_pod(store, "waiting")
    add_pod(store, "done", "n1")
    store.patch(pods, "done", {"status": {"phase": "Succeeded"}}, MERGE, "default", subresource="status")
    assert store.delete(pods, "waiting", "default")[1]
    assert store.delete(pods, "done", "default")[1]


def test_finalizers_hold_an_object() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    config(store, "c", finalizers=["test.example.com/hold"])
    _, gone = store.delete(kind, "c", "default")
    assert not gone
    with pytest.raises(StatusError) as caught:
        store.patch(kind, "c", {"metadata": {"finalizers": ["test.example.com/hold", "more"]}}, MERGE, "default")
    assert "no new finalizers can be added" in caught.value.message
    store.patch(kind, "c", {"metadata": {"finalizers": None}}, MERGE, "default")
    assert not exists(store, "c")


def test_preconditions() -> None:
    store = new_store()
    nodes = store.kind(NODES)
    add_node(store)
    obj = store.get(nodes, "n1").obj
    for options in (DeleteOptions(uid="other"), DeleteOptions(resource_version="1")):
        with pytest.raises(StatusError) as caught:
            store.delete(nodes, "n1", options=options)
        assert (caught.value.code, caught.value.reason) == (409, "Conflict")
        assert "in the precondition" in caught.value.message
    metadata = obj["metadata"]
    options = DeleteOptions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    assert store.delete(nodes, "n1", options=options)[1]


def test_a_node_made_again_has_another_uid() -> None:
    store = new_store()
    first = add_node(store)
    store.delete(store.kind(NODES), "n1")
    assert add_node(store)["metadata"]["uid"] != first["metadata"]["uid"]


def test_background_collects_dependents_when_the_last_owner_goes() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    a, b = config(store, "a"), config(store, "b")
    child = config(store, "child", owners=(a, b))
    config(store, "grandchild", owners=(child,))
    store.delete(kind, "a", "default")
    left = store.get(kind, "child", "default").obj["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in left] == ["b"]
    store.delete(kind, "b", "default")
    assert not exists(store, "child")
    assert not exists(store, "grandchild")


def test_an_object_of_a_missing_owner_is_collected() -> None:
    store = new_store()
    ghost = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost", "uid": "0"}}
    config(store, "child", owners=(ghost,))
    assert not exists(store, "child")


def test_orphans_stay_without_the_reference() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    config(store, "child", owners=(config(store, "a"),))
    store.delete(kind, "a", "default", DeleteOptions(propagation="Orphan"))
    assert not exists(store, "a")
    assert "ownerReferences" not in store.get(kind, "child", "default").obj["metadata"]


def test_foreground_waits_for_blocking_dependents() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    config(store, "child", owners=(config(store, "a"),), block=True, finalizers=["test.example.com/hold"])
    _, gone = store.delete(kind, "a", "default", DeleteOptions(propagation="Foreground"))
    assert not gone
    assert store.get(kind, "a", "default").obj["metadata"]["finalizers"] == ["foregroundDeletion"]
    store.patch(kind, "child", {"metadata": {"finalizers": None}}, MERGE, "default")
    assert not exists(store, "child")
    assert not exists(store, "a")


def test_delete_collection() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    for name, keep in (("a", "no"), ("b", "yes"), ("c", "no")):
        config(store, name, labels={"keep": keep})
    found = store.delete_collection(kind, "default", ListOptions(label_selector="keep=no"))
    assert len(found.items) == 2
    assert [exists(store, name) for name in "abc"] == [False, True, False]


def test_dry_run_and_bad_options() -> None:
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    config(store, "a")
    store.delete(kind, "a", "default", DeleteOptions(dry_run=True))
    assert exists(store, "a")
    with pytest.raises(StatusError) as caught:
        options_of({"propagationPolicy": "Sideways"}, {})
    assert caught.value.code == 422
    with pytest.raises(StatusError) as caught:
        store.delete(kind, "zz", "default")
    assert caught.value.message == 'configmaps "zz" not found'


def test_options_come_from_the_body_or_else_from_the_query() -> None:
    assert options_of({"gracePeriodSeconds": 3}, {"gracePeriodSeconds": "9"}).grace_period_s == 3
    found = options_of(None, {"gracePeriodSeconds": "-9", "propagationPolicy": "Orphan", "dryRun": "All"})
    assert (found.grace_period_s, found.propagation, found.dry_run) == (-9, "Orphan", True)
    assert options_of({"orphanDependents": False}, {}).propagation == "Background"


@given(st.lists(st.tuples(st.sampled_from(range(6)), st.sampled_from(range(6)), st.booleans()), max_size=12))
def test_no_dependent_outlives_its_owners_and_nothing_else_goes(edges: list[tuple[int, int, bool]]) -> None:
    """Objects own each other in any way, also in circles; then the first of them is deleted in the foreground."""
    store = new_store()
    kind = store.kind(CONFIG_MAPS)
    objects = [config(store, f"o{number}") for number in range(6)]
    owners: dict[int, list[int]] = {}
    for owner, child, block in edges:
        if owner == child or owner in owners.setdefault(child, []):
            continue  # an object that blocks itself would wait for itself, on a real server too
        owners[child].append(owner)
        references = store.get(kind, f"o{child}", "default").obj["metadata"].get("ownerReferences") or []
        uid = objects[owner]["metadata"]["uid"]
        more = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{owner}", "uid": uid, "blockOwnerDeletion": block}
        patch = {"metadata": {"ownerReferences": [*references, more]}}
        store.patch(kind, f"o{child}", patch, MERGE, "default")
    store.delete(kind, "o0", "default", DeleteOptions(propagation="Foreground"))
    alive = {number for number in range(6) if exists(store, f"o{number}")}
    assert 0 not in alive
    for number in alive:
        left = store.get(kind, f"o{number}", "default").obj["metadata"]
        named = [int(reference["name"][1:]) for reference in left.get("ownerReferences") or []]
        assert all(owner in alive for owner in named)
        assert named or not owners.get(number) or "deletionTimestamp" in left, "the last owner is gone"
    for number in range(6):
        if not _descends(number, owners):
            assert number == 0 or number in alive


def _descends(number: int, owners: dict[int, list[int]]) -> bool:
    """Whether the object is below the first one."""
    seen: list[int] = []
    todo = [number]
    while todo:
        for owner in owners.get(todo.pop(), []):
            if owner == 0:
                return True
            if owner not in seen:
                seen.append(owner)
                todo.append(owner)
    return False


def test_pods_of_a_lost_node_go_when_it_stays_away() -> None:
    clock = VirtualClock()
    store = Store(clock)
    nodes, pods = store.kind(NODES), store.kind(PODS)
    for name in ("n1", "n2"):
        add_node(store, name)
        add_pod(store, f"on-{name}", name)
        store.delete(nodes, name)
    add_node(store, "n2")
    clock.elapsed_s = 39.0
    config(store, "early")
    assert store.find(pods, ("default", "on-n1")) is not None
    clock.elapsed_s = 40.0
    config(store, "late")
    assert store.find(pods, ("default", "on-n1")) is None
    assert store.find(pods, ("default", "on-n2")) is not None


def test_a_namespace_of_many_objects_is_emptied() -> None:
    store = new_store()
    namespaces = store.registry_kind("", "v1", "namespaces")
    store.create(namespaces, {"metadata": {"name": "full"}})
    kind = store.kind(CONFIG_MAPS)
    for number in range(2000):
        store.create(kind, {"metadata": {"name": f"c{number}"}}, "full")
    store.delete(namespaces, "full")
    assert store.find(namespaces, ("", "full")) is None
    assert store.storage(kind).keys("full") == []
