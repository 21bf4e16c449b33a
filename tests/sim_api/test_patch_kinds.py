"""JSON patch, JSON merge patch and strategic merge patch as pure functions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.patch_json import PatchError, apply_json_patch, same_json
from muster.sim.patch_merge import apply_merge_patch
from muster.sim.patch_strategic import apply_strategic_patch
from muster.sim.shapes import Shape

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz/~", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.text("xyz", min_size=1, max_size=2), json_values, max_size=4)


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_rfc_7386(document: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_merge_patch(document, patch) == result
    assert document == before


@given(json_values, json_values)
def test_merge_patch_twice_is_once(document: Any, patch: Any) -> None:
    once = apply_merge_patch(document, patch)
    assert same_json(apply_merge_patch(once, patch), once)


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["a", "c"]}, [{"op": "add", "path": "/foo/1", "value": "b"}], {"foo": ["a", "b", "c"]}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/-", "value": "b"}], {"foo": ["a", "b"]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": {"b": 1}}], {"a": {"b": 1}}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        (
            {"a/b": 1, "m~n": 2},
            [{"op": "test", "path": "/a~1b", "value": 1}, {"op": "remove", "path": "/m~0n"}],
            {"a/b": 1},
        ),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": 1}, [{"op": "replace", "path": "/zz", "value": 2}], {"a": 1, "zz": 2}),
        ({"a": 1}, [{"op": "add", "path": "/x"}], {"a": 1, "x": None}),
        ({"a": 1}, [{"op": "copy", "from": "/zz", "path": "/x"}], {"a": 1, "x": None}),
        ({"a": 1}, [{"op": "test", "path": "/zz"}], {"a": 1}),
        ({"a": 1}, [{"op": "add", "path": "ignored/b", "value": 2}], {"a": 1, "b": 2}),
        ({"l": [1, 2]}, [{"op": "add", "path": "/l/-1", "value": 3}], {"l": [1, 2, 3]}),
        ({"l": [1, 2]}, [{"op": "remove", "path": "/l/-1"}], {"l": [1]}),
    ],
)
def test_json_patch_examples(document: Any, operations: list[Any], result: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_json_patch(document, operations) == result
    assert document == before


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "test", "path": "/flag", "value": 1}],
        [{"op": "remove", "path": "/zz"}],
        [{"op": "replace", "path": "/zz/x", "value": 1}],
        [{"op": "copy", "from": "/zz/x", "path": "/y"}],
        [{"op": "move", "from": "/zz", "path": "/y"}],
        [{"op": "add", "path": "", "value": {}}],
        [{"op": "add", "path": "/zz/x", "value": 1}],
        [{"op": "add", "path": "/l/9", "value": 1}],
        [{"op": "add", "path": "/l/-3", "value": 1}],
        [{"op": "add", "path": "/l/x", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "move", "from": "/m", "path": "/m/x"}],
        [{"op": "jump", "path": "/a"}],
        [1],
        {"op": "add"},
    ],
)
def test_json_patch_refuses(operations: Any) -> None:
    with pytest.raises(PatchError):
        apply_json_patch({"a": 1, "flag": True, "l": [1], "m": {}}, operations)


@given(objects, objects)
def test_json_patch_round_trip(a: dict[str, Any], b: dict[str, Any]) -> None:
    """The patch that removes what is gone and adds what is new leads from a to b."""

    def pointer(name: str) -> str:
        return "/" + name.replace("~", "~0").replace("/", "~1")

    operations: list[Any] = [{"op": "remove", "path": pointer(name)} for name in a if name not in b]
    operations += [{"op": "add", "path": pointer(name), "value": value} for name, value in b.items()]
    operations += [{"op": "test", "path": pointer(name), "value": value} for name, value in b.items()]
    assert same_json(apply_json_patch(a, operations), b)


POD = Shape.builtin("Pod")
NODE = Shape.builtin("Node")


def test_strategic_merges_containers_by_name_and_env_inside() -> None:
    live = {
        "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
    }
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}}
    merged = apply_strategic_patch(live, patch, POD)
    containers = merged["spec"]["containers"]
    # What the patch adds comes before what only the server has, unless the server's order says otherwise.
    assert [c["name"] for c in containers] == ["a", "c", "b"]
    assert containers[0] == {
        "name": "a",
        "image": "1",
        "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
    }


def test_strategic_merges_conditions_by_type_and_replaces_taints() -> None:
    live = {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]},
    }
    patch = {
        "spec": {"taints": [{"key": "b", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    merged = apply_strategic_patch(live, patch, NODE)
    assert merged["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}]
    assert merged["status"]["conditions"] == [{"type": "Ready", "status": "False"}, {"type": "X", "status": "False"}]


def test_strategic_directives() -> None:
    live = {"spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeSelector": {"x": "1"}}}
    deleted = apply_strategic_patch(live, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, POD)
    assert deleted["spec"]["containers"] == [{"name": "b"}]
    replaced = apply_strategic_patch(live, {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}, POD)
    assert replaced["spec"]["containers"] == [{"name": "z"}]
    whole = apply_strategic_patch(live, {"spec": {"$patch": "replace", "nodeName": "n"}}, POD)
    assert whole["spec"] == {"nodeName": "n"}
    emptied = apply_strategic_patch(live, {"spec": {"nodeSelector": {"$patch": "delete"}}}, POD)
    assert emptied["spec"]["nodeSelector"] == {}


def test_strategic_order_and_primitive_lists() -> None:
    live = {
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"containers": [{"name": "a"}, {"name": "s"}, {"name": "b"}]},
    }
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
    }
    merged = apply_strategic_patch(live, patch, POD)
    assert merged["metadata"]["finalizers"] == ["c", "b"]
    assert [c["name"] for c in merged["spec"]["containers"]] == ["s", "b", "a"]


def test_strategic_retain_keys() -> None:
    live = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    merged = apply_strategic_patch(live, {"spec": {"volumes": [volume]}}, POD)
    assert merged["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$patch": "explode"}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$setElementOrder/containers": "x", "containers": [{"name": "a"}]}},
        {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
    ],
)
def test_strategic_refuses_malformed_patches(patch: dict[str, Any]) -> None:
    with pytest.raises(PatchError):
        apply_strategic_patch({"spec": {"containers": [{"name": "a"}]}}, patch, POD)


@given(objects)
def test_strategic_patch_without_directives_is_a_merge_patch_for_unknown_fields(patch: dict[str, Any]) -> None:
    live = {"x": {"y": 1, "z": [1]}, "y": 2}
    plain = Shape()

    def without_nulls_in_lists(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_nulls_in_lists(part) for name, part in value.items() if part is not None}
        return [without_nulls_in_lists(item) for item in value] if isinstance(value, list) else value

    merged = apply_strategic_patch(live, patch, plain)
    assert without_nulls_in_lists(merged) == without_nulls_in_lists(apply_merge_patch(live, patch))
