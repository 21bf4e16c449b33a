"""Grace periods, finalizers, preconditions, owners."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube.api import NODES, PODS, Object
from muster.sim.api_deletion import DeleteOptions
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
    obj = add_node(store)
    for options in (DeleteOptions(uid="other"), DeleteOptions(resource_version="1")):
        with pytest.raises(StatusError) as caught:
            store.delete(nodes, "n1", options=options)
        assert (caught.value.code, caught.value.reason) == (409, "Conflict")
        assert "Precondition failed" in caught.value.message
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
    with pytest.raises(StatusError):
        store.delete(kind, "a", "default", DeleteOptions(propagation="Sideways"))
    with pytest.raises(StatusError) as caught:
        store.delete(kind, "zz", "default")
    assert caught.value.message == 'configmaps "zz" not found'
