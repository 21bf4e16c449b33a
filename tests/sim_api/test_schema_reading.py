"""A schema that was read once is shared by all simulated clusters: nothing that one does may reach another."""

from __future__ import annotations

import copy
from typing import Any

from muster.sim.api_status import Cause
from muster.sim.schema import with_defaults
from muster.sim.schema_reading import read_root

RAW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "default": {"colours": ["red"]},
            "properties": {"colours": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
            "x-kubernetes-validations": [{"rule": "size(self.colours) > 0"}],
        }
    },
}


def test_the_same_text_is_read_once() -> None:
    assert read_root(copy.deepcopy(RAW), "", []) is read_root(copy.deepcopy(RAW), "", [])


def test_a_caller_that_changes_its_text_or_an_object_changes_no_schema() -> None:
    raw = copy.deepcopy(RAW)
    schema = read_root(raw, "", [])
    raw["properties"]["spec"]["properties"]["colours"]["maxItems"] = 1
    raw["properties"]["spec"]["default"]["colours"].append("blue")
    filled = with_defaults({}, schema, None)
    filled["spec"]["colours"].append("green")
    assert schema.properties["spec"].properties["colours"].limits == {"maxItems": 3}
    assert with_defaults({}, schema, None) == {"spec": {"colours": ["red"]}}
    assert read_root(raw, "", []).properties["spec"].properties["colours"].limits == {"maxItems": 1}


def test_what_is_wrong_is_told_at_every_reading_and_under_the_path_of_the_reader() -> None:
    wrong = {"type": "object", "properties": {"spec": {"type": "array"}}}
    for path in ("a", "a", "b"):
        causes: list[Cause] = []
        read_root(wrong, path, causes)
        assert [cause.field for cause in causes] == [f"{path}.properties[spec].items"]
