"""Field sets and the ownership that plain writes and applies leave behind."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.sim.field_sets import compare, difference, fields_of, intersection, paths, union
from muster.sim.shapes import Shape

elements = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'v:"y"'])
sets: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(elements, inner, max_size=3).flatmap(
        lambda d: st.booleans().map(lambda dot: {".": {}, **d} if dot and d else d)
    ),
    max_leaves=8,
).map(lambda node: {name: part for name, part in node.items() if name != "."})


def members(fields: dict[str, Any]) -> set[str]:
    return set(paths(fields))


@given(sets, sets)
def test_set_algebra_matches_python_sets(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert members(union(a, b)) == members(a) | members(b)
    assert members(difference(a, b)) == members(a) - members(b)
    assert members(intersection(a, b)) == members(a) & members(b)


@given(sets)
def test_neutral_elements(a: dict[str, Any]) -> None:
    assert union(a, {}) == a
    assert union(a, a) == a
    assert difference(a, {}) == a
    assert not difference(a, a)


POD = Shape.builtin("Pod")


def test_fields_of_an_applied_pod() -> None:
    applied = {
        "metadata": {"labels": {"app": "x"}, "finalizers": ["f"]},
        "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]}], "tolerations": [{"key": "k"}]},
    }
    assert fields_of(applied, POD) == {
        "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {'v:"f"': {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {
                    ".": {},
                    "f:name": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                }
            },
            "f:tolerations": {},
        },
    }


def test_compare_names_what_changed_and_what_went() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": [{"name": "x", "image": "1"}]}}
    new = {"metadata": {"labels": {"a": "9"}}, "spec": {"containers": [{"name": "x", "image": "1"}, {"name": "y"}]}}
    changes = compare(old, new, POD)
    assert list(paths(changes.changed)) == [
        ".metadata.labels.a",
        '.spec.containers[name="y"]',
        '.spec.containers[name="y"].name',
    ]
    assert list(paths(changes.removed)) == [".metadata.labels.b"]


json_objects = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.integers(0, 2) | st.text("x", max_size=1),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        max_leaves=6,
    ),
    max_size=3,
)


@given(json_objects, json_objects)
def test_compare_is_empty_only_for_equal_objects(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert bool(compare(old, new, Shape())) == (old != new)
