"""What the server makes of a built-in object: unknown fields, zero values, quantities, times, errors."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.builtin_fields import DecodeError, FieldType, read, structs, zero
from muster.sim.quantities import canonical_quantity, quantity_value

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/.", max_size=3) | st.floats(-2, 2)
bodies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3),
    max_leaves=10,
)


def _values(kind: FieldType, depth: int) -> st.SearchStrategy[Any]:
    """Values of the right type."""
    if kind.form == "list":
        assert kind.element is not None
        return st.lists(_values(kind.element, depth - 1), max_size=2) if depth > 0 else st.just([])
    if kind.form == "map":
        assert kind.element is not None
        return st.dictionaries(st.sampled_from(["a", "b"]), _values(kind.element, depth - 1), max_size=2)
    if kind.form == "struct":
        return _objects(kind.name, depth - 1) if depth > 0 else st.just({})
    return {
        "string": st.text("ab", max_size=2),
        "bool": st.booleans(),
        "float64": st.integers(-2, 2),
        "bytes": st.sampled_from(["", "YQ==", "YWI="]),
        "time": st.sampled_from(["2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00"]),
        "microtime": st.just("2024-01-01T00:00:00.000001Z"),
        "quantity": st.sampled_from(["0", "1000m", "1024Mi", "2", "1e3"]),
        "int-or-string": st.integers(0, 3) | st.sampled_from(["", "1%"]),
        "any": st.just({"x": 1}),
    }.get(kind.name, st.integers(-2, 2))


def _objects(name: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = {field.name: _values(field.type, depth) | st.none() for field in structs()[name].fields.values()}
    return st.lists(st.sampled_from(sorted(fields)), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
    )


@pytest.mark.parametrize("kind", ["Pod", "Node", "Service", "Deployment", "Event", "PodDisruptionBudget"])
@given(data=st.data())
def test_reading_again_changes_nothing(kind: str, data: st.DataObject) -> None:
    unknown: list[str] = []
    once = read(kind, data.draw(_objects(kind, 4)), None, unknown)
    assert unknown == []
    again = read(kind, once, None, unknown)
    assert again == once
    assert unknown == []
    shared = read(kind, once, once, unknown)
    assert shared == once
    assert all(shared[name] is once[name] for name in once)


@pytest.mark.parametrize("kind", ["Pod", "Node", "ConfigMap", "Lease"])
@given(body=bodies)
def test_nothing_but_a_decode_error_comes_of_nonsense(kind: str, body: Any) -> None:
    always = {field.name for field in structs()[kind].always}
    for field in ("metadata", "spec", "status", "data"):
        with contextlib.suppress(DecodeError):
            assert always <= set(read(kind, {field: body}, None, []))


def test_a_node_has_its_zeros() -> None:
    made = read("Node", {"metadata": {"name": "n"}}, None, [])
    assert made["spec"] == {}
    assert made["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert set(made["status"]["nodeInfo"].values()) == {""}


def test_absent_and_zero_are_told_apart_where_it_matters() -> None:
    spec = {"hostNetwork": False, "priority": 0, "nodeName": "", "containers": None, "activeDeadlineSeconds": 0}
    made = read("Pod", {"spec": spec}, None, [])["spec"]
    assert made == {"priority": 0, "containers": None, "activeDeadlineSeconds": 0}


def test_unknown_fields_are_named_and_dropped() -> None:
    unknown: list[str] = []
    body = {"spec": {"containers": [{"name": "c", "foo": 1}], "nope": 2}, "zoo": 3}
    made = read("Pod", body, None, unknown)
    assert unknown == ["spec.containers[0].foo", "spec.nope", "zoo"]
    assert made["spec"] == {"containers": [{"name": "c", "resources": {}}]}


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (
            "ConfigMap",
            {"data": {"x": 5}},
            "cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        ("Node", {"spec": {"taints": 5}}, "number into Go struct field NodeSpec.spec.taints of type []v1.Taint"),
        ("Lease", {"spec": {"leaseDurationSeconds": 1.5}}, "number 1.5 into Go struct field LeaseSpec.spec.leaseDur"),
        ("Lease", {"spec": {"leaseDurationSeconds": 1 << 40}}, "number 1099511627776 into Go struct field LeaseSpec"),
        ("Pod", "x", "cannot unmarshal string into Go value of type v1.Pod"),
    ],
)
def test_errors_name_the_field(kind: str, body: Any, text: str) -> None:
    with pytest.raises(DecodeError, match=None) as caught:
        read(kind, body, None, [])
    assert text in str(caught.value)


def test_zero_of_a_list_that_is_always_written_is_null() -> None:
    assert zero(FieldType("struct", "Role", "")) == {"metadata": {}, "rules": None}


@given(st.integers(-(10**6), 10**6), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e3"]))
def test_a_quantity_keeps_its_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    canonical = canonical_quantity(text)
    assert canonical is not None
    assert quantity_value(canonical) == quantity_value(text)
    assert canonical_quantity(canonical) == canonical


@given(st.decimals("-1000", "1000", places=3, allow_nan=False))
def test_fractions_keep_their_value(number: Decimal) -> None:
    canonical = canonical_quantity(f"{number:f}")
    assert canonical is not None
    assert quantity_value(canonical) == number


@given(st.text("0123456789.eEmkKMGi+- x", max_size=6))
def test_what_is_no_quantity_is_none(text: str) -> None:
    canonical = canonical_quantity(text)
    assert canonical is None or canonical_quantity(canonical) == canonical
