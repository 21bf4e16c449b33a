"""Rules and the schema: which paths become typed variables, and what stays as it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.cel_names import UndefinedFieldError, escaped, values_of, with_variables
from muster.sim.managed_fields import APPLY, Manager
from muster.sim.schema import Schema
from muster.sim.schema_reading import read_root
from muster.sim.server_side_apply import apply_configuration
from muster.sim.shapes import Merge, Shape

RAW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {
            "type": "object",
            "properties": {"b": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        },
        "x-y": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def schema() -> Schema:
    causes: list[Any] = []
    found = read_root(RAW, "", causes)
    assert causes == []
    return found


@pytest.mark.parametrize(
    ("text", "written", "paths"),
    [
        ("self.a.b > 1", "self_a_b > 1", {("a", "b")}),
        ("oldSelf.a.b < self.a.b", "oldSelf_a_b < self_a_b", {("a", "b")}),
        ("self.x__dash__y.startsWith('self.a')", "self_x__dash__y.startsWith('self.a')", {("x-y",)}),
        ("has(self.a.b) && self.a.b > 1", "has(self.a.b) && self_a_b > 1", {("a", "b")}),
        ("self.map.q == 1", "self_map.q == 1", {("map",)}),
        ("self.open.q == 1", "self_open.q == 1", {("open",)}),
        ("self.?a.?b.orValue(1) == 1", "self.?a.?b.orValue(1) == 1", set()),
        ('"self.a.b" == "x"', '"self.a.b" == "x"', set()),
        ("size(self) == 1", "size(self) == 1", set()),
        ("[1].all(self_x, true)", "[1].all(self_x, true)", set()),
    ],
)
def test_paths_become_variables(text: str, written: str, paths: set[tuple[str, ...]]) -> None:
    found, variables = with_variables(text, schema(), root=False)
    assert found == written
    assert len(found) == len(text), "errors are reported at the column of the text as it was written"
    assert {variable.path for variable in variables} == paths


@pytest.mark.parametrize(
    ("text", "column"), [("self.nope", 5), ("1 == 1 &&\nself.a.c == 1", 7), ("has(self.a.z)", 4)]
)
def test_a_field_that_does_not_exist(text: str, column: int) -> None:
    with pytest.raises(UndefinedFieldError) as caught:
        with_variables(text, schema(), root=False)
    assert (caught.value.line, caught.value.column) == (text.count("\n") + 1, column)


def test_a_path_that_leads_nowhere_stays_unbound() -> None:
    _, variables = with_variables("self.a.b > oldSelf.a.b", schema(), root=False)
    assert values_of(variables, {"self": {"a": {"b": 3}}, "oldSelf": {"a": {}}}) == {"self_a_b": 3}


@given(st.text("ab_-./", min_size=1, max_size=12))
def test_an_escaped_name_is_an_identifier(name: str) -> None:
    assert all(character.isalnum() or character == "_" for character in escaped(name))


@given(
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.lists(st.sampled_from("abcdef"), unique=True),
)
def test_a_set_keeps_every_item_once_and_the_applied_order(live: list[str], applied: list[str]) -> None:
    shape = Shape(Merge.STRUCT, fields={"set": Shape(Merge.SET)})
    applier = Manager("one", APPLY, "v1", "", "", {})
    merged = apply_configuration({"set": live}, (), {"set": applied}, shape, applier, force=True).obj["set"]
    assert sorted(merged) == sorted({*live, *applied})
    assert [item for item in merged if item in applied] == applied
    assert [item for item in merged if item not in applied] == [item for item in live if item not in applied]
