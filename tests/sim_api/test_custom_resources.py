"""Custom resources: definitions, schemas, defaults, rules, versions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from muster.kube.api import CRDS, ResourceType
from muster.sim.api_status import StatusError
from muster.sim.schema_rules import NO_FIELD
from muster.sim.store import Store, WriteOptions

from .samples import MERGE, SPEC_SCHEMA, WIDGETS, new_store, widget, widget_crd, widget_store


def create(store: Store, **spec: Any) -> dict[str, Any]:
    return store.create(store.kind(WIDGETS), widget(**spec), "default").obj


def causes(act: Any) -> dict[str, str]:
    """Messages of the causes of a 422, by field."""
    with pytest.raises(StatusError) as caught:
        act()
    assert caught.value.code == 422, caught.value.message
    return {cause.field: cause.message for cause in caught.value.causes if cause.field != NO_FIELD}


def test_a_definition_is_established_and_serves_its_kind() -> None:
    store = widget_store()
    crd = store.get(store.kind(CRDS), "widgets.test.example.com").obj
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["storedVersions"] == ["v1"]
    kind = store.kind(WIDGETS)
    assert (kind.short_names, kind.categories, kind.namespaced) == (("wd",), ("things",), True)


def test_nothing_is_served_before_and_after() -> None:
    store = new_store()
    with pytest.raises(StatusError) as caught:
        store.kind(WIDGETS)
    assert caught.value.code == 404
    store.create(store.kind(CRDS), widget_crd())
    create(store)
    store.delete(store.kind(CRDS), "widgets.test.example.com")
    with pytest.raises(StatusError):
        store.kind(WIDGETS)
    store.create(store.kind(CRDS), widget_crd())
    assert store.list(store.kind(WIDGETS)).items == ()


def test_defaults_and_pruning() -> None:
    store = widget_store()
    options = WriteOptions()
    body = widget(parts=[{"name": "x", "bogus": 1}], unknown=1, extra={"any": {"thing": [1]}}, note=None)
    obj = store.create(store.kind(WIDGETS), body, "default", options).obj
    assert obj["spec"] == {
        "size": 3,
        "color": "red",
        "parts": [{"name": "x", "count": 1}],
        "extra": {"any": {"thing": [1]}},
        "note": None,
    }
    assert options.warnings == ['unknown field "spec.parts[0].bogus"', 'unknown field "spec.unknown"']


def test_strict_validation_refuses_unknown_fields() -> None:
    store = widget_store()
    options = WriteOptions(field_validation="Strict")
    with pytest.raises(StatusError) as caught:
        store.create(store.kind(WIDGETS), widget(unknown=1), "default", options)
    assert caught.value.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.unknown"'
    )


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"size": "x"}, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        (
            {"size": True},
            "spec.size",
            'Invalid value: "boolean": spec.size in body must be of type integer: "boolean"',
        ),
        ({"size": 0}, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"color": "green"}, "spec.color", 'Unsupported value: "green": supported values: "red", "blue"'),
        ({"name": "AB"}, "spec.name", "Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'"),
        ({"name": "a"}, "spec.name", 'Invalid value: "a": spec.name in body should be at least 2 chars long'),
        ({"name": "abcdef"}, "spec.name", "Too long: may not be more than 5 bytes"),
        ({"at": "today"}, "spec.at", 'Invalid value: "today": spec.at in body must be of type date-time: "today"'),
        (
            {"port": 1.5},
            "spec.port",
            'Invalid value: "number": spec.port in body must be of type integer,string: "number"',
        ),
        (
            {"limits": {"a": "b"}},
            "spec.limits.a",
            'Invalid value: "string": spec.limits.a in body must be of type integer: "string"',
        ),
        ({"plain": list("abcd")}, "spec.plain", "Too many: 4: must have at most 3 items"),
        (
            {"plain": [None]},
            "spec.plain[0]",
            'Invalid value: "null": spec.plain[0] in body must be of type string: "null"',
        ),
        ({"tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"'),
        ({"parts": [{"name": "x"}, {"name": "x"}]}, "spec.parts[1]", 'Duplicate value: {"name":"x"}'),
        ({"parts": [{"weight": 1}]}, "spec.parts[0].name", "Required value"),
        ({"ratio": 2}, "spec", "Invalid value: ratio must be below one"),
    ],
)
def test_validation_names_the_field(spec: dict[str, Any], field: str, message: str) -> None:
    store = widget_store()
    assert causes(lambda: create(store, **spec)) == {field: message}


def test_several_causes_in_one_answer() -> None:
    store = widget_store()
    with pytest.raises(StatusError) as caught:
        create(store, size=0, color="green")
    assert caught.value.message.startswith('Widget.test.example.com "w1" is invalid: [spec.size: ')
    assert {cause.field for cause in caught.value.causes} == {"spec.size", "spec.color", NO_FIELD}


def test_a_required_field_is_missed() -> None:
    store = widget_store()
    body = {**widget(), "spec": {}}
    assert causes(lambda: store.create(store.kind(WIDGETS), body, "default")) == {"spec.size": "Required value"}


def test_transition_rules_compare_with_the_old_value() -> None:
    store = widget_store()
    create(store, size=5)

    def patched(size: int) -> Any:
        return store.patch(store.kind(WIDGETS), "w1", {"spec": {"size": size}}, MERGE, "default").obj

    assert patched(6)["spec"]["size"] == 6
    assert causes(lambda: patched(2)) == {"spec.size": "Invalid value: size cannot shrink"}


def test_immutable_once_set() -> None:
    schema = copy.deepcopy(SPEC_SCHEMA)
    schema["properties"]["name"]["x-kubernetes-validations"] = [
        {"rule": "self == oldSelf", "message": "name is immutable"}
    ]
    store = new_store()
    store.create(store.kind(CRDS), widget_crd(schema))
    create(store, name="abc")
    patch = {"spec": {"name": "abd"}}
    assert causes(lambda: store.patch(store.kind(WIDGETS), "w1", patch, MERGE, "default")) == {
        "spec.name": 'Invalid value: "abd": name is immutable'
    }


def test_old_violations_are_let_through_where_nothing_changes() -> None:
    """Tightening a schema does not lock existing objects (ratcheting)."""
    store = widget_store()
    create(store, name="abc")
    crds = store.kind(CRDS)
    crd = copy.deepcopy(store.get(crds, "widgets.test.example.com").obj)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"][
        "maxLength"
    ] = 2
    store.update(crds, "widgets.test.example.com", crd)
    widgets = store.kind(WIDGETS)
    assert store.patch(widgets, "w1", {"spec": {"size": 9}}, MERGE, "default").obj["spec"]["size"] == 9
    assert "spec.name" in causes(lambda: store.patch(widgets, "w1", {"spec": {"name": "abd"}}, MERGE, "default"))


def rule_store(rule: dict[str, Any]) -> Store:
    schema = {**SPEC_SCHEMA, "x-kubernetes-validations": [rule]}
    store = new_store()
    store.create(store.kind(CRDS), widget_crd(schema))
    return store


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self.parts.all(p, p.count > 0)", {"parts": [{"name": "a"}]}, {"parts": [{"name": "a", "count": 0}]}),
        (
            "!has(self.at) || timestamp(self.at) > timestamp('2026-01-01T00:00:00Z')",
            {"at": "2026-02-01T00:00:00Z"},
            {"at": "2025-01-01T00:00:00Z"},
        ),
        ("!has(self.ratio) || self.ratio + 0.5 < 2.0", {"ratio": 1}, {"ratio": 2}),
        ("!has(self.name) || self.name.startsWith('a')", {"name": "ab"}, {"name": "ba"}),
        ("!has(self.tags) || 'x' in self.tags", {"tags": ["x"]}, {"tags": ["y"]}),
    ],
)
def test_rules_see_typed_values(rule: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    store = rule_store({"rule": rule})
    create(store, **{"parts": [], **good})
    store.delete(store.kind(WIDGETS), "w1", "default")
    assert list(causes(lambda: create(store, **{"parts": [], **bad}))) == ["spec"]


def test_message_expressions_and_reasons() -> None:
    rule = {
        "rule": "self.size < 5",
        "messageExpression": "'size is ' + string(self.size)",
        "reason": "FieldValueForbidden",
    }
    store = rule_store(rule)
    with pytest.raises(StatusError) as caught:
        create(store, size=7)
    assert (caught.value.causes[0].reason, caught.value.causes[0].message) == (
        "FieldValueForbidden",
        "Forbidden: size is 7",
    )


def test_a_rule_that_cannot_be_evaluated_refuses_the_object() -> None:
    store = rule_store({"rule": "self.ratio > 0.0"})
    assert "no such key: ratio evaluating rule" in causes(lambda: create(store))["spec"]


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"rule": "format.dns1123Label().validate(self.name).hasValue()"}, "format"),
        ({"rule": "self.name.reverse() == 'a'"}, "reverse"),
        ({"rule": "self.nothing == 1"}, "undefined field 'nothing'"),
        ({"rule": "self.size"}, "must evaluate to a bool"),
        ({"rule": "self.size +"}, "compilation failed"),
        ({"rule": ""}, "rule is not specified"),
        ({"rule": "'a'"}, "must evaluate to a bool"),
        ({"rule": "true", "optionalOldSelf": True}, "optionalOldSelf"),
        ({"rule": "true", "reason": "Whim"}, "Unsupported value"),
    ],
)
def test_rules_that_cannot_be_carried_out_are_refused_at_definition(rule: dict[str, Any], word: str) -> None:
    found = causes(lambda: rule_store(rule))
    assert any(word in message or word in field for field, message in found.items())


def test_old_self_needs_a_place_to_compare_with() -> None:
    schema = copy.deepcopy(SPEC_SCHEMA)
    schema["properties"]["plain"]["items"]["x-kubernetes-validations"] = [{"rule": "self == oldSelf"}]
    found = causes(lambda: new_store().create(new_store().kind(CRDS), widget_crd(schema)))
    assert any("uncorrelatable" in message for message in found.values())


def damaged(change: Any) -> dict[str, Any]:
    crd = copy.deepcopy(widget_crd())
    change(crd)
    return crd


def _schema(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda crd: crd["metadata"].update(name="other.test.example.com"),
        lambda crd: crd["spec"].update(scope="Galaxy"),
        lambda crd: crd["spec"].update(preserveUnknownFields=True),
        lambda crd: crd["spec"].update(conversion={"strategy": "Webhook"}),
        lambda crd: crd["spec"]["versions"][0].update(storage=False),
        lambda crd: crd["spec"]["versions"][0].update(schema={}),
        lambda crd: crd["spec"]["versions"][0].update(subresources={"scale": {}}),
        lambda crd: _schema(crd).pop("type"),
        lambda crd: _schema(crd)["properties"]["plain"].pop("items"),
        lambda crd: _schema(crd)["properties"].update(x={"type": "text"}),
        lambda crd: _schema(crd)["properties"].update(x={"$ref": "#/a"}),
        lambda crd: _schema(crd)["properties"].update(x={"type": "string", "pattern": "("}),
        lambda crd: _schema(crd)["properties"].update(x={"type": "string", "format": "isbn"}),
        lambda crd: _schema(crd)["properties"]["parts"].pop("x-kubernetes-list-map-keys"),
        lambda crd: _schema(crd)["properties"]["parts"]["items"].pop("required"),
    ],
)
def test_definitions_that_are_not_structural_are_refused(change: Any) -> None:
    store = new_store()
    assert causes(lambda: store.create(store.kind(CRDS), damaged(change)))


def test_versions_share_one_storage() -> None:
    store = widget_store(versions=2)
    second = ResourceType("test.example.com", "v2", "widgets", "Widget", True)
    create(store)
    version = store.get(store.kind(second), "w1", "default")
    assert b'"apiVersion":"test.example.com/v2"' in store.raw(store.kind(second), version)
    store.patch(store.kind(second), "w1", {"spec": {"size": 8}}, MERGE, "default")
    assert store.get(store.kind(WIDGETS), "w1", "default").obj["spec"]["size"] == 8
    assert store.get(store.kind(WIDGETS), "w1", "default").obj["apiVersion"] == "test.example.com/v1"


def test_without_status_subresource_status_is_a_field() -> None:
    store = widget_store(status=False)
    body = {**widget(), "status": {"phase": "Up"}}
    obj = store.create(store.kind(WIDGETS), body, "default").obj
    assert obj["status"] == {"phase": "Up"}
    with pytest.raises(StatusError) as caught:
        store.patch(store.kind(WIDGETS), "w1", {}, MERGE, "default", subresource="status")
    assert caught.value.code == 404
