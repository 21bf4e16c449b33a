"""Structural schemas: what an object must be, what is filled in, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import JSON_PATCH
from tests.contract.definitions import (
    INTEGER,
    STRING,
    Widgets,
    causes,
    define,
    messages,
    of,
    rule,
    with_spec,
)
from tests.contract.server import SIMULATOR, Server, eventually

NO_FIELD = "<nil>"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
TYPES = of(
    {
        "i": INTEGER,
        "i32": {"type": "integer", "format": "int32"},
        "n": {"type": "number"},
        "single": {"type": "number", "format": "float"},
        "s": STRING,
        "b": {"type": "boolean"},
        "o": of({"x": INTEGER}),
        "a": {"type": "array", "items": INTEGER},
        "m": {"type": "object", "additionalProperties": INTEGER},
        "either": {"x-kubernetes-int-or-string": True},
        "any": {PRESERVE: True},
        "nullable": {"type": "string", "nullable": True},
        "empty": {"type": "object"},
    }
)


@pytest.fixture(scope="module")
def types(server: Server) -> Widgets:
    return define(server, with_spec(TYPES))


def trial(widgets: Widgets, spec: Any) -> Any:
    """What would be stored, without storing it."""
    return widgets.create("w", spec, dryRun="All")


@pytest.mark.parametrize(
    ("spec", "field", "wanted", "actual"),
    [
        ({"i": "1"}, "i", "integer", "string"),
        ({"i": True}, "i", "integer", "boolean"),
        ({"n": "x"}, "n", "number", "string"),
        ({"s": 1}, "s", "string", "integer"),
        ({"s": []}, "s", "string", "array"),
        ({"b": "true"}, "b", "boolean", "string"),
        ({"b": 1}, "b", "boolean", "integer"),
        ({"o": "x"}, "o", "object", "string"),
        ({"o": []}, "o", "object", "array"),
        ({"a": {}}, "a", "array", "object"),
        ({"a": [1, None]}, "a[1]", "integer", "null"),
        ({"m": [1]}, "m", "object", "array"),
        ({"m": {"x": "y"}}, "m.x", "integer", "string"),
        ({"either": True}, "either", "integer,string", "boolean"),
        ({"either": 1.5}, "either", "integer,string", "number"),
        ({"either": {}}, "either", "integer,string", "object"),
    ],
)
def test_types(types: Widgets, spec: Any, field: str, wanted: str, actual: str) -> None:
    message = f'Invalid value: "{actual}": spec.{field} in body must be of type {wanted}: "{actual}"'
    assert causes(trial(types, spec)) == {(f"spec.{field}", "FieldValueTypeInvalid", message)}


@pytest.mark.parametrize(
    ("spec", "form"),
    [
        ({"i32": 2**31}, "integer with format int32"),
        ({"i32": -(2**31) - 1}, "integer with format int32"),
    ],
)
def test_ranges_of_formats(types: Widgets, spec: Any, form: str) -> None:
    message = f'Invalid value: "": Checked value must be of type {form} in spec.i32'
    assert causes(trial(types, spec)) == {(NO_FIELD, "FieldValueInvalid", message)}
    assert trial(types, {"i32": 2**31 - 1}).ok()["spec"] == {"i32": 2**31 - 1}


def test_a_float_has_32_bits(types: Widgets) -> None:
    message = 'Invalid value: "": Checked value must be of type number with format float in spec.single'
    assert causes(trial(types, {"single": 1e300})) == {(NO_FIELD, "FieldValueInvalid", message)}
    assert trial(types, {"single": 1e30}).status == 201


@pytest.mark.parametrize("value", [1.5, 2**63])
def test_a_number_that_is_no_integer(types: Widgets, value: float) -> None:
    assert causes(trial(types, {"i": value})) == {
        (
            "spec.i",
            "FieldValueTypeInvalid",
            'Invalid value: "number": spec.i in body must be of type integer: "number"',
        ),
        (
            NO_FIELD,
            "FieldValueInvalid",
            'Invalid value: "": Checked value must be of type integer (default format) in spec.i',
        ),
    }


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        ({"n": 1}, {"n": 1}),
        ({"either": "5%"}, {"either": "5%"}),
        ({"either": 5}, {"either": 5}),
        ({"any": {"x": [1, {"y": None}]}}, {"any": {"x": [1, {"y": None}]}}),
        ({"nullable": None}, {"nullable": None}),
        ({"i": None, "s": None, "o": None, "either": None, "any": None}, {}),
        ({"m": {"a": 1, "c": None}}, {"m": {"a": 1}}),
        ({"o": {"x": 1, "y": 2}, "bogus": 1, "empty": {"x": 1}}, {"o": {"x": 1}, "empty": {}}),
    ],
)
def test_what_is_stored(types: Widgets, spec: Any, stored: Any) -> None:
    assert trial(types, spec).ok()["spec"] == stored


def test_unknown_fields(types: Widgets) -> None:
    spec = {"o": {"y": 2}, "bogus": {"a": 1}}
    warned = types.create("w", spec, dryRun="All")
    assert sorted(warned.headers.get_list("warning")) == [
        '299 - "unknown field \\"spec.bogus\\""',
        '299 - "unknown field \\"spec.o.y\\""',
    ]
    ignored = types.create("w", spec, dryRun="All", fieldValidation="Ignore")
    assert (ignored.status, "warning" in ignored.headers) == (201, False)
    strict = types.create("w", spec, fieldValidation="Strict")
    assert strict.refused(400, "BadRequest") == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.bogus", '
        'unknown field "spec.o.y"'
    )


LIMITS = of(
    {
        "least": {"type": "integer", "minimum": 2},
        "most": {"type": "integer", "maximum": 5},
        "above": {"type": "number", "minimum": 2, "exclusiveMinimum": True},
        "below": {"type": "number", "maximum": 5, "exclusiveMaximum": True},
        "step": {"type": "number", "multipleOf": 0.5},
        "long": {"type": "string", "minLength": 2},
        "short": {"type": "string", "maxLength": 3},
        "pattern": {"type": "string", "pattern": "^a+$"},
        "some": {"type": "array", "minItems": 1, "items": STRING},
        "few": {"type": "array", "maxItems": 2, "items": STRING},
        "one": {"type": "object", "maxProperties": 1, "additionalProperties": STRING},
        "full": {"type": "object", "minProperties": 1, "additionalProperties": STRING},
        "word": {"type": "string", "enum": ["a", "b"]},
        "number": {"type": "integer", "enum": [1, 2]},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "keyed": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k", "l"],
            "items": of({"k": STRING, "l": {"type": "string", "default": "L"}}, required=["k"]),
        },
        "both": of({"a": STRING, "b": STRING}, required=["a", "b"]),
        "nothing": {"type": "string", "nullable": True, "enum": ["a"]},
    }
)


@pytest.fixture(scope="module")
def limits(server: Server) -> Widgets:
    return define(server, with_spec(LIMITS))


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"least": 1}, "least", "Invalid value: 1: spec.least in body should be greater than or equal to 2"),
        ({"most": 6}, "most", "Invalid value: 6: spec.most in body should be less than or equal to 5"),
        ({"above": 2}, "above", "Invalid value: 2: spec.above in body should be greater than 2"),
        ({"below": 5}, "below", "Invalid value: 5: spec.below in body should be less than 5"),
        ({"step": 0.75}, "step", "Invalid value: 0.75: spec.step in body should be a multiple of 0.5"),
        ({"long": "a"}, "long", 'Invalid value: "a": spec.long in body should be at least 2 chars long'),
        ({"short": "abcd"}, "short", "Too long: may not be more than 3 bytes"),
        ({"short": "äöüß"}, "short", "Too long: may not be more than 3 bytes"),
        ({"pattern": "ab"}, "pattern", "Invalid value: \"ab\": spec.pattern in body should match '^a+$'"),
        ({"some": []}, "some", "Invalid value: 0: spec.some in body should have at least 1 items"),
        ({"few": ["a", "b", "c"]}, "few", "Too many: 3: must have at most 2 items"),
        ({"one": {"a": "1", "b": "2"}}, "one", "Too many: 2: must have at most 1 item"),
        ({"full": {}}, "full", "Invalid value: 0: spec.full in body should have at least 1 properties"),
        ({"word": "c"}, "word", 'Unsupported value: "c": supported values: "a", "b"'),
        ({"number": 3}, "number", 'Unsupported value: 3: supported values: "1", "2"'),
        ({"set": ["a", "b", "a", "a"]}, "set[2]", 'Duplicate value: "a"'),
        ({"keyed": [{"k": "a"}, {"k": "a", "l": "L"}]}, "keyed[1]", 'Duplicate value: {"k":"a","l":"L"}'),
        ({"both": {"a": "1"}}, "both.b", "Required value"),
        ({"nothing": None}, "nothing", 'Unsupported value: null: supported values: "a"'),
    ],
)
def test_limits(limits: Widgets, spec: Any, field: str, message: str) -> None:
    assert messages(trial(limits, spec)) == {f"spec.{field}": message}


def test_three_characters_are_three_whatever_their_bytes(limits: Widgets) -> None:
    assert trial(limits, {"short": "äöü"}).ok()["spec"] == {"short": "äöü"}


def test_all_causes_come_in_one_answer(limits: Widgets) -> None:
    answer = trial(limits, {"most": 9, "word": "c", "pattern": "b", "both": {}})
    assert set(messages(answer)) == {"spec.most", "spec.word", "spec.pattern", "spec.both.a", "spec.both.b"}
    assert answer.body["message"].startswith(f'Widget.{limits.group} "w" is invalid: [')


GOOD_AND_BAD = {
    "date-time": (
        ["2026-01-01T00:00:00Z", "2026-01-01t00:00:00.5+01:00", "0000-02-29T00:00:00Z", "2026-01-01T00:00:00,5Z"],
        ["2026-01-01 00:00:00", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"],
    ),
    "date": (["2026-01-01"], ["2026-02-30", "2026-01-01T00:00:00Z"]),
    "duration": (["1h5m", "1.5h", "-1h", "1 day", "3 weeks", "1µs"], ["a@b.c", "5", ""]),
    "byte": (["aGk="], ["aGk", ""]),
    "uuid": (["550e8400-e29b-41d4-a716-446655440000"], ["550e8400", ""]),
    "ipv4": (["1.2.3.4"], ["::1", "1.2.3"]),
    "ipv6": (["::1"], ["1.2.3.4"]),
    "cidr": (["10.0.0.0/8"], ["10.0.0.0", "x/8"]),
    "uri": (["http://a.b/c"], ["a.b-c", ""]),
    "email": (["a@b.c"], ["a", "1.2.3.4"]),
    "k8s-short-name": (["abc-d", "5"], ["UPPER_x", "a.b", ""]),
    "k8s-long-name": (["a.b-c", "abc"], ["UPPER_x", "-a", ""]),
}


def test_formats_of_strings(server: Server) -> None:
    names = {form: form.replace("-", "") for form in GOOD_AND_BAD}
    properties = {name: {"type": "string", "format": form} for form, name in names.items()}
    widgets = define(server, with_spec(of(properties)))
    for form, (good, bad) in GOOD_AND_BAD.items():
        for value in good:
            assert trial(widgets, {names[form]: value}).status == 201, (form, value)
        for value in bad:
            where = f"spec.{names[form]}"
            expected = f'Invalid value: "{value}": {where} in body must be of type {form}: "{value}"'
            assert messages(trial(widgets, {names[form]: value})) == {where: expected}, (form, value)


def test_a_format_that_nobody_knows_is_not_checked(server: Server) -> None:
    widgets = define(server, with_spec(of({"s": {"type": "string", "format": "whatever"}})))
    assert trial(widgets, {"s": "x"}).status == 201


DEFAULTS = of(
    {
        "s": {"type": "string", "default": "d"},
        "z": STRING,
        "n": of(
            {"a": {"type": "integer", "default": 1}, "deep": of({"q": {"type": "string", "default": "q"}})},
            default={},
        ),
        "l": {"type": "array", "items": of({"x": {"type": "string", "default": "X"}})},
        "m": {"type": "object", "additionalProperties": of({"x": {"type": "string", "default": "X"}})},
        "keep": {"type": "string", "nullable": True, "default": "N"},
        "values": {"type": "object", "additionalProperties": {"type": "string", "default": "V"}},
        "items": {"type": "array", "items": {"type": "string", "default": "I"}},
    },
    default={"z": "outer"},
)


def test_defaults(server: Server) -> None:
    status = of({"phase": STRING, "n": {"type": "integer", "default": 3}}, default={"phase": "P"})
    widgets = define(server, with_spec(DEFAULTS, status), subresources={"status": {}})
    filled = {"s": "d", "n": {"a": 1}, "keep": "N"}
    created = widgets.create("w").ok()
    assert created["spec"] == {**filled, "z": "outer"}
    assert created["status"] == {"phase": "P", "n": 3}, "a status that is not sent has its default"
    assert widgets.create("x", {}, {"phase": "sent"}).ok()["status"] == {"phase": "P", "n": 3}
    nested = {
        "s": None,
        "n": {"deep": {}},
        "l": [{}, {"x": "y"}],
        "m": {"k": {}},
        "keep": None,
        "values": {"a": None},
        "items": [None],
    }
    assert widgets.create("y", nested).ok()["spec"] == {
        "s": "d",
        "n": {"a": 1, "deep": {"q": "q"}},
        "l": [{"x": "X"}, {"x": "y"}],
        "m": {"k": {"x": "X"}},
        "keep": None,
        "values": {"a": "V"},
        "items": ["I"],
    }
    assert widgets.merge("w", {"spec": {"s": None, "n": None, "z": None}}).ok()["spec"] == filled
    assert widgets.merge("w", {"spec": None}).ok()["spec"] == {**filled, "z": "outer"}


def test_embedded_resources(server: Server) -> None:
    spec = of({"e": {"type": "object", EMBEDDED: True, PRESERVE: True}})
    widgets = define(server, with_spec(spec))
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "bogus": 1}, "spec": {"x": 1}}
    stored = trial(widgets, {"e": body}).ok()["spec"]["e"]
    assert stored == {**body, "metadata": {"name": "a"}}
    assert messages(trial(widgets, {"e": {}})) == {
        "spec.e.apiVersion": "Required value",
        "spec.e.kind": "Required value",
    }
    labels = {**body, "metadata": {"labels": {"a b": "x"}}}
    assert list(messages(trial(widgets, {"e": labels}))) == ["spec.e.metadata.labels"]


def test_preserved_fields(server: Server) -> None:
    known = {"type": "object", PRESERVE: True, "properties": {"known": of({"a": STRING})}}
    widgets = define(server, with_spec(of({"p": known, "open": {"type": "object", "additionalProperties": True}})))
    spec = {"p": {"known": {"a": "1", "b": "2"}, "other": {"x": 1}}, "open": {"x": {"y": 1}, "n": 1}}
    assert trial(widgets, spec).ok()["spec"] == {
        "p": {"known": {"a": "1"}, "other": {"x": 1}},
        "open": {"x": {}, "n": 1},
    }


def test_combined_schemas(server: Server) -> None:
    pair = {"a": STRING, "b": STRING}
    either = [{"required": ["a"]}, {"required": ["b"]}]
    spec = of(
        {
            "any": of(pair, anyOf=either),
            "one": of(pair, oneOf=either),
            "all": {"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}]},
            "not": {"type": "string", "not": {"enum": ["x"]}},
        }
    )
    widgets = define(server, with_spec(spec))

    def told(value: Any) -> set[tuple[str, str]]:
        return {(field, message) for field, _, message in causes(trial(widgets, value))}

    def whole(field: str, what: str) -> tuple[str, str]:
        return (NO_FIELD, f'Invalid value: "": "spec.{field}" {what}')

    any_of = "must validate at least one schema (anyOf)"
    assert told({"any": {}}) == {whole("any", any_of), ("spec.any.a", "Required value")}
    one_of = "must validate one and only one schema (oneOf). Found "
    assert told({"one": {}}) == {whole("one", one_of + "none valid"), ("spec.one.a", "Required value")}
    assert told({"one": {"a": "1", "b": "2"}}) == {whole("one", one_of + "2 valid alternatives")}
    assert told({"all": 5}) == {
        whole("all", "must validate all the schemas (allOf)"),
        ("spec.all", "Invalid value: 5: spec.all in body should be less than or equal to 4"),
    }
    assert told({"not": "x"}) == {whole("not", "must not validate the schema (not)")}
    assert trial(widgets, {"any": {"a": "1"}, "one": {"b": "1"}, "all": 3, "not": "y"}).status == 201


def test_an_unchanged_value_stays_valid_when_the_schema_tightens(server: Server) -> None:
    part = of({"k": STRING, "v": STRING}, required=["k"])
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": part,
    }
    properties = {
        "s": STRING,
        "l": {"type": "array", "items": STRING},
        "keyed": keyed,
        "o": of({"a": STRING, "b": STRING}),
        "other": STRING,
    }
    widgets = define(server, with_spec(of(properties)))
    first = {
        "s": "long",
        "l": ["long", "b"],
        "keyed": [{"k": "x", "v": "long"}, {"k": "y", "v": "b"}],
        "o": {"a": "1"},
    }
    widgets.create("w", first).ok()
    base = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
    tighter = [
        {"op": "add", "path": f"{base}/s/maxLength", "value": 2},
        {"op": "add", "path": f"{base}/l/items/maxLength", "value": 2},
        {"op": "add", "path": f"{base}/keyed/items/properties/v/maxLength", "value": 2},
        {"op": "add", "path": f"{base}/o/required", "value": ["b"]},
    ]
    widgets.admin.patch(widgets.definition, tighter, JSON_PATCH).ok()
    eventually(lambda: trial(widgets, {"s": "long"}).status == 422)

    def changed(**spec: Any) -> Any:
        return widgets.merge("w", {"spec": spec}, dryRun="All")

    def wrong(**spec: Any) -> list[str]:
        return list(messages(changed(**spec)))

    assert changed(other="x").status == 200
    assert wrong(s="lonk") == ["spec.s"]
    assert wrong(l=["long", "b", "c"]) == ["spec.l[0]"], "items of an atomic list are new with their list"
    assert changed(keyed=[{"k": "y", "v": "b"}, {"k": "x", "v": "long"}]).status == 200
    assert wrong(keyed=[{"k": "x", "v": "lonk"}, {"k": "y", "v": "b"}]) == ["spec.keyed[0].v"]
    assert wrong(o={"a": "2"}) == ["spec.o.b"]


def test_rules_are_not_judged_on_an_object_of_the_wrong_shape(server: Server) -> None:
    spec = of(
        {
            "i": INTEGER,
            "s": {"type": "string", "maxLength": 3},
            "e": {"type": "string", "enum": ["a"]},
            "least": {"type": "integer", "minimum": 5},
        }
    )
    widgets = define(server, with_spec({**spec, **rule("!has(self.i) || self.i > 1", message="small")}))
    skipped = (
        "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
        "existing errors to complete validation"
    )
    assert messages(trial(widgets, {"s": "long", "i": 1})) == {
        "spec.s": "Too long: may not be more than 3 bytes",
        NO_FIELD: skipped,
    }
    assert messages(trial(widgets, {"e": "b", "i": 1})) == {
        "spec.e": 'Unsupported value: "b": supported values: "a"',
        NO_FIELD: skipped,
    }
    assert set(messages(trial(widgets, {"least": 1, "i": 1}))) == {"spec.least", "spec"}


@pytest.mark.parametrize("form", ["isbn", "creditcard", "hostname"])
def test_formats_that_the_simulator_cannot_check_are_refused(server: Server, form: str) -> None:
    from tests.contract.definitions import DEFINITIONS, definition

    schema = with_spec(of({"s": {"type": "string", "format": form}}))
    answer = server.admin.create(DEFINITIONS, definition(server, schema))
    if server.name == SIMULATOR:
        (told,) = messages(answer).values()
        assert told.endswith(f"does not check the format '{form}'")
    else:
        assert answer.status == 201
