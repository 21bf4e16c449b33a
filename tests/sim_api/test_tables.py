"""Tables, ages and JSONPath."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.api import NODES, PODS
from muster.sim.json_path import JsonPathError, compile_path
from muster.sim.table_cells import duration
from muster.sim.tables import columns_of, table_of

from .samples import WIDGETS, add_node, add_pod, new_store, widget, widget_store


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (9 * 3600, "9h"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


VALUE = {
    "spec": {"nodes": ["a", "b"], "x.y": 5},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    "metadata": {"labels": {"muster.dev/state": "InService"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.nodes", [["a", "b"]]),
        (".spec.nodes[*]", ["a", "b"]),
        (".spec.nodes[0]", ["a"]),
        (".spec.nodes[-1]", ["b"]),
        (".spec.nodes[7]", []),
        (".spec['x.y']", [5]),
        (r".spec.x\.y", [5]),
        (r".metadata.labels.muster\.dev/state", ["InService"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        (".missing.path", []),
        ("{.spec.nodes[0]}", ["a"]),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert compile_path(path)(VALUE) == found


@pytest.mark.parametrize("path", ["..a", ".a[", ".a[?(@.b)", ".a[1:2]", "a"])
def test_paths_outside_the_subset_are_refused(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_path(path)


@given(st.text(max_size=20))
def test_any_path_compiles_or_is_refused(path: str) -> None:
    try:
        find = compile_path(path)
    except JsonPathError:
        return
    assert isinstance(find(VALUE), list)


def rows(store: Any, res: Any) -> list[dict[str, Any]]:
    kind = store.kind(res)
    table = table_of(kind, [v.obj for v in store.list(kind).items], {}, store.now())
    names = [column["name"] for column in table["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


def test_node_and_pod_rows() -> None:
    store = new_store()
    add_node(store, "n1", **{"node-role.kubernetes.io/worker": ""})
    add_pod(store, "p1", "n1")
    row = rows(store, NODES)[0]
    assert (row["Name"], row["Status"], row["Roles"], row["Age"]) == ("n1", "Unknown", "worker", "0s")
    row = rows(store, PODS)[0]
    assert (row["Ready"], row["Status"], row["Restarts"], row["Node"]) == ("0/1", "Pending", "0", "n1")


def test_custom_columns() -> None:
    store = widget_store()
    store.create(store.kind(WIDGETS), widget(), "default")
    assert rows(store, WIDGETS) == [{"Name": "w1", "Size": 3, "Born": "0s"}]


def test_every_builtin_kind_survives_an_empty_object() -> None:
    store = new_store()
    for kind in store.registry.all():
        table = table_of(kind, [{"metadata": {"name": "x"}}], {}, store.now(), "None")
        assert len(table["rows"][0]["cells"]) == len(columns_of(kind))
