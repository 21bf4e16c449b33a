"""CEL rules of custom resources (`x-kubernetes-validations`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.definitions import (
    DEFINITIONS,
    INTEGER,
    STRING,
    Schema,
    Widgets,
    causes,
    define,
    definition,
    messages,
    of,
    rule,
    with_spec,
)
from tests.contract.server import REAL, Server

RULES_PATH = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
SMALL = "self > 1"


def number(**more: Any) -> Schema:
    return {"type": "integer", **rule(SMALL, **more)}


SPEC = of(
    {
        "plain": number(),
        "told": number(message="  too small "),
        "computed": number(messageExpression="self > -5 ? 'a small one' : ''"),
        "forbidden": number(reason="FieldValueForbidden", message="no"),
        "required": number(reason="FieldValueRequired"),
        "duplicate": number(reason="FieldValueDuplicate", message="no"),
        "text": {"type": "string", "maxLength": 9, **rule("self.startsWith('a')", message="not a")},
        "flag": {"type": "boolean", **rule("self", message="must be true")},
        "object": {
            **of({"x": INTEGER, "y": {"type": "string", "maxLength": 9}}),
            "x-kubernetes-validations": [
                {"rule": "!has(self.x) || self.x > 1", "fieldPath": ".x", "message": "x is small"},
                {"rule": "!has(self.y) || self.y != 'bad'", "message": "y is bad"},
            ],
        },
        "list": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "integer", **rule(SMALL)},
            **rule("size(self) != 2", message="not two"),
        },
        "map": {
            "type": "object",
            "maxProperties": 3,
            "additionalProperties": {"type": "integer", **rule(SMALL)},
            **rule("!('z' in self)", message="no z"),
        },
        "nullable": {"type": "string", "nullable": True, "maxLength": 5, **rule("self != 'x'", message="no x")},
    }
)


@pytest.fixture(scope="module")
def widgets(server: Server) -> Widgets:
    return define(server, with_spec(SPEC))


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({"plain": 1}, "plain", "Invalid", "Invalid value: 1: failed rule: self > 1"),
        ({"told": 1}, "told", "Invalid", "Invalid value: 1: too small"),
        ({"computed": 1}, "computed", "Invalid", "Invalid value: 1: a small one"),
        ({"computed": -9}, "computed", "Invalid", "Invalid value: -9: failed rule: self > 1"),
        ({"forbidden": 1}, "forbidden", "Forbidden", "Forbidden: no"),
        ({"required": 1}, "required", "Required", "Required value: failed rule: self > 1"),
        ({"duplicate": 1}, "duplicate", "Duplicate", "Duplicate value: 1"),
        ({"text": "b"}, "text", "Invalid", 'Invalid value: "b": not a'),
        ({"flag": False}, "flag", "Invalid", "Invalid value: false: must be true"),
        ({"object": {"x": 1}}, "object.x", "Invalid", "Invalid value: x is small"),
        ({"object": {"y": "bad"}}, "object", "Invalid", "Invalid value: y is bad"),
        ({"list": [2, 2]}, "list", "Invalid", "Invalid value: not two"),
        ({"list": [2, 1, 2]}, "list[1]", "Invalid", "Invalid value: 1: failed rule: self > 1"),
        ({"map": {"z": 2}}, "map", "Invalid", "Invalid value: no z"),
        ({"map": {"q": 1}}, "map[q]", "Invalid", "Invalid value: 1: failed rule: self > 1"),
        ({"nullable": "x"}, "nullable", "Invalid", 'Invalid value: "x": no x'),
    ],
)
def test_a_rule_refuses(widgets: Widgets, spec: Any, field: str, reason: str, message: str) -> None:
    answer = widgets.create("w", spec)
    assert causes(answer) == {(f"spec.{field}", f"FieldValue{reason}", message)}


@pytest.mark.parametrize(
    "spec", [{}, {"plain": 2}, {"nullable": None}, {"list": [2]}, {"map": {"a": 2}}, {"object": {}}]
)
def test_a_rule_accepts(widgets: Widgets, spec: Any) -> None:
    assert widgets.create("w", spec, dryRun="All").status == 201


def test_every_rule_that_fails_is_told(widgets: Widgets) -> None:
    assert set(messages(widgets.create("w", {"plain": 1, "told": 1, "flag": False}))) == {
        "spec.plain",
        "spec.told",
        "spec.flag",
    }


def test_rules_that_compare_with_the_old_value(server: Server) -> None:
    keyed = {
        "type": "array",
        "maxItems": 3,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": of(
            {
                "k": {"type": "string", "maxLength": 5},
                "v": {"type": "integer", **rule("self >= oldSelf", message="item shrinks")},
            },
            required=["k"],
        ),
    }
    spec = of(
        {
            "size": {"type": "integer", **rule("self >= oldSelf", message="shrinks")},
            "fixed": {"type": "string", "maxLength": 9, **rule("self == oldSelf", message="fixed")},
            "keyed": keyed,
            "map": {
                "type": "object",
                "maxProperties": 3,
                "additionalProperties": {"type": "integer", **rule("self >= oldSelf", message="value shrinks")},
            },
        },
        **rule("!has(oldSelf.fixed) || has(self.fixed)", message="fixed stays"),
    )
    widgets = define(server, with_spec(spec))
    widgets.create("w", {"size": 5, "fixed": "x", "keyed": [{"k": "a", "v": 2}], "map": {"a": 2}}).ok()

    def wrong(**changes: Any) -> dict[str, str]:
        return messages(widgets.merge("w", {"spec": changes}, dryRun="All"))

    def fine(**changes: Any) -> bool:
        return widgets.merge("w", {"spec": changes}, dryRun="All").status == 200

    assert wrong(size=4) == {"spec.size": "Invalid value: 4: shrinks"}
    assert fine(size=6)
    assert fine(size=None)
    assert wrong(fixed="y") == {"spec.fixed": 'Invalid value: "y": fixed'}
    assert wrong(fixed=None) == {"spec": "Invalid value: fixed stays"}
    assert wrong(keyed=[{"k": "b", "v": 0}, {"k": "a", "v": 1}]) == {
        "spec.keyed[1].v": "Invalid value: 1: item shrinks"
    }
    assert fine(keyed=[{"k": "b", "v": 0}, {"k": "a", "v": 3}])
    assert wrong(map={"a": 1}) == {"spec.map[a]": "Invalid value: 1: value shrinks"}
    assert fine(map={"a": None, "b": 0})


def test_an_optional_old_value(server: Server) -> None:
    grows = rule("!oldSelf.hasValue() || self > oldSelf.value()", optionalOldSelf=True, message="must grow")
    widgets = define(server, with_spec(of({"n": {"type": "integer", **grows}, "other": INTEGER})))
    assert widgets.create("w", {"n": 3}).status == 201, "the rule runs on creation, without an old value"
    assert messages(widgets.merge("w", {"spec": {"n": 2}})) == {"spec.n": "Invalid value: 2: must grow"}
    assert messages(widgets.merge("w", {"spec": {"other": 1}})) == {"spec.n": "Invalid value: 3: must grow"}
    assert widgets.merge("w", {"spec": {"n": 4}}).ok()["spec"]["n"] == 4


def test_a_rule_at_the_root_sees_name_spec_and_status(server: Server) -> None:
    rules = [
        {"rule": "self.metadata.name.startsWith('ok')", "message": "name"},
        {"rule": "self.kind == 'Widget'", "message": "kind"},
        {
            "rule": "!has(oldSelf.status) || !has(oldSelf.status.p) || oldSelf.status.p != 'run' || "
            "self.spec == oldSelf.spec",
            "message": "frozen",
        },
    ]
    schema = with_spec(of({"a": INTEGER}), of({"p": STRING}), **{"x-kubernetes-validations": rules})
    widgets = define(server, schema, subresources={"status": {}})
    assert messages(widgets.create("no", {"a": 1})) == {"<nil>": "Invalid value: name"}
    widgets.create("ok", {"a": 1}).ok()
    widgets.merge("ok", {"spec": {"a": 2}}).ok()
    widgets.merge("ok", {"status": {"p": "run"}}, "status").ok()
    assert messages(widgets.merge("ok", {"spec": {"a": 3}})) == {"<nil>": "Invalid value: frozen"}
    widgets.merge("ok", {"metadata": {"labels": {"a": "b"}}}).ok()
    widgets.merge("ok", {"status": {"p": "done"}}, "status").ok()
    assert widgets.merge("ok", {"spec": {"a": 3}}).ok()["spec"] == {"a": 3}


FIELDS = {
    "s": {"type": "string", "maxLength": 60},
    "i": INTEGER,
    "n": {"type": "number"},
    "l": {"type": "array", "maxItems": 5, "items": INTEGER},
    "words": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
    "m": {"type": "object", "maxProperties": 5, "additionalProperties": INTEGER},
    "at": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date-time"},
    "for": {"type": "string", "format": "duration"},
    "day": {"type": "string", "format": "date"},
    "bytes": {"type": "string", "format": "byte", "maxLength": 20},
    "either": {"x-kubernetes-int-or-string": True, "maxLength": 9},
    "in": STRING,
    "x-y": STRING,
    "a.b": INTEGER,
    "o": of({"x": INTEGER}),
}
DAY1, DAY2 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("quantity(self.s).isGreaterThan(quantity('1'))", {"s": "2"}, {"s": "500m"}),
        ("isQuantity(self.s)", {"s": "5Gi"}, {"s": "x"}),
        ("quantity(self.s).compareTo(quantity('1Gi')) == 0", {"s": "1024Mi"}, {"s": "1Mi"}),
        ("self.at < self.until", {"at": DAY1, "until": DAY2}, {"at": DAY2, "until": DAY1}),
        ("timestamp(self.s) < self.until", {"s": DAY1, "until": DAY2}, {"s": DAY2, "until": DAY1}),
        ("self.until - self.at > duration('1h')", {"at": DAY1, "until": DAY2}, {"at": DAY1, "until": DAY1}),
        ("self.__for__ > duration('1h')", {"for": "2h"}, {"for": "1m"}),
        ("self.at.getFullYear() == 2026", {"at": DAY1}, {"at": "2025-01-01T00:00:00Z"}),
        ("self.day.getFullYear() == 2026", {"day": "2026-01-01"}, {"day": "2025-01-01"}),
        ("size(self.bytes) == 2", {"bytes": "aGk="}, {"bytes": "aGlp"}),
        ("self.s.matches('^a+$')", {"s": "aa"}, {"s": "b"}),
        ("self.s.find('[0-9]+') == '12'", {"s": "a12"}, {"s": "a1"}),
        ("self.s.findAll('[0-9]').size() == 2", {"s": "1a2"}, {"s": "1"}),
        ("self.l.isSorted()", {"l": [1, 2]}, {"l": [2, 1]}),
        ("self.l.sum() == 3", {"l": [1, 2]}, {"l": [1]}),
        ("self.l.min() > 0 && self.l.max() < 10", {"l": [1]}, {"l": [11]}),
        ("self.l.exists_one(x, x == 1) && self.l.all(x, x > 0)", {"l": [1, 2]}, {"l": [1, 1]}),
        ("self.l.map(x, x * 2).filter(y, y > 2).size() == 1", {"l": [1, 2]}, {"l": [1]}),
        ("self.m.all(k, self.m[k] > 0)", {"m": {"a": 1}}, {"m": {"a": 0}}),
        ("'a' in self.m && self.m.a == 1", {"m": {"a": 1}}, {"m": {"b": 1}}),
        (
            "type(self.either) == int ? self.either > 5 : self.either.endsWith('%')",
            {"either": 6},
            {"either": "5"},
        ),
        ("self.__in__ == 'x'", {"in": "x"}, {"in": "y"}),
        ("self.x__dash__y == 'x'", {"x-y": "x"}, {"x-y": "y"}),
        ("self.a__dot__b == 1", {"a.b": 1}, {"a.b": 2}),
        ("has(self.o) && has(self.o.x)", {"o": {"x": 1}}, {"o": {}}),
        ("self.?o.?x.orValue(7) == 7", {}, {"o": {"x": 1}}),
        ("self.words.join('-') == 'a-b'", {"words": ["a", "b"]}, {"words": ["a"]}),
        ("self.s.lowerAscii().split('').size() == 2", {"s": "aB"}, {"s": "x"}),
        ("url(self.s).getHost() == 'a.b'", {"s": "http://a.b/c"}, {"s": "http://x/"}),
        ("isIP(self.s) && ip(self.s).family() == 4", {"s": "1.2.3.4"}, {"s": "::1"}),
        ("cidr('10.0.0.0/8').containsIP(self.s)", {"s": "10.1.1.1"}, {"s": "11.1.1.1"}),
        ("semver(self.s).isGreaterThan(semver('1.0.0'))", {"s": "1.2.3"}, {"s": "0.1.0"}),
        ("sets.contains(self.l, [1])", {"l": [1]}, {"l": [2]}),
        ("self.n > 1.0", {"n": 2}, {"n": 1}),
        ("double(self.i) / 2.0 > 1.0", {"i": 3}, {"i": 2}),
        ("self.l == [1, 2]", {"l": [1, 2]}, {"l": [2, 1]}),
        ("self.until.getHours('Europe/Berlin') == 1", {"until": DAY1}, {"until": "2026-01-01T01:00:00Z"}),
    ],
)
def test_what_rules_can_say(server: Server, text: str, good: Any, bad: Any) -> None:
    widgets = define(server, with_spec(of(FIELDS, **rule(text))))
    accepted = widgets.create("good", good)
    assert accepted.status == 201, accepted.content
    assert messages(widgets.create("bad", bad)) == {"spec": f"Invalid value: failed rule: {text}"}


@pytest.mark.parametrize(
    ("text", "spec", "why"),
    [
        ("self.i / 0 == 1", {"i": 2}, "division by zero"),
        ("self.l[3] == 1", {"l": [1]}, "index out of bounds: 3"),
        ("self.s == 'a'", {}, "no such key: s"),
        ("int(self.s) == 1", {"s": "x"}, "type conversion error from 'string' to 'int'"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_refuses(server: Server, text: str, spec: Any, why: str) -> None:
    widgets = define(server, with_spec(of(FIELDS, **rule(text))))
    assert messages(widgets.create("w", spec)) == {"spec": f'Invalid value: "object": {why} evaluating rule: {text}'}


def refused_rule(server: Server, **fields: Any) -> dict[str, str]:
    """Field below the rule -> message."""
    spec = of({"i": INTEGER, "s": {"type": "string", "maxLength": 5}}, **{"x-kubernetes-validations": [fields]})
    found = messages(server.admin.create(DEFINITIONS, definition(server, with_spec(spec))))
    return {field.removeprefix(f"{RULES_PATH}."): message for field, message in found.items()}


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("self.nope", "1:5", "undefined field 'nope'"),
        ("has(self.nope)", "1:4", "undefined field 'nope'"),
        ("self.metadata.name == 'a'", "1:5", "undefined field 'metadata'"),
        ("foo(self.i)", "1:4", "undeclared reference to 'foo' (in container '')"),
        ("self.s > 1", "1:8", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.i == 1.0", "1:8", "found no matching overload for '_==_' applied to '(int, double)'"),
    ],
)
def test_a_rule_is_compiled_against_the_schema(server: Server, text: str, position: str, what: str) -> None:
    column = int(position.partition(":")[2])
    found = refused_rule(server, rule=text)
    assert list(found) == ["rule"]
    pointer = "." * (column - 1) + "^"
    assert found["rule"].endswith(f"compilation failed: ERROR: <input>:{position}: {what}\n | {text}\n | {pointer}")
    assert found["rule"].startswith('Invalid value: {"Rule":"')


@pytest.mark.parametrize(
    ("fields", "where", "message"),
    [
        ({"rule": ""}, "rule", "Required value: rule is not specified"),
        ({"rule": "true", "message": "a\nb"}, "message", 'Invalid value: "a\\nb": must not contain line breaks'),
        ({"rule": "true", "message": " "}, "message", 'Invalid value: " ": must be non-empty if specified'),
        (
            {"rule": "true\n&& true"},
            "message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            {"rule": "true", "reason": "Foo"},
            "reason",
            'Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
            '"FieldValueInvalid", "FieldValueRequired"',
        ),
        ({"rule": "true", "fieldPath": ".nope"}, "fieldPath", 'Invalid value: ".nope": must be a valid path'),
        ({"rule": "true", "fieldPath": "i"}, "fieldPath", 'Invalid value: "i": must be a valid path'),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf",
            "Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_what_a_rule_must_say(server: Server, fields: Any, where: str, message: str) -> None:
    assert refused_rule(server, **fields) == {where: message}


def test_a_rule_yields_a_bool_and_its_message_a_string(server: Server) -> None:
    assert refused_rule(server, rule="self.i")["rule"].endswith(": cel expression must evaluate to a bool")
    found = refused_rule(server, rule="true", messageExpression="self.i")
    assert found["messageExpression"].endswith(": messageExpression must evaluate to a string")


def test_an_old_value_needs_a_place_that_can_be_found_again(server: Server) -> None:
    items = {"type": "string", "maxLength": 3, **rule("self == oldSelf")}
    for list_type in ("set", "atomic"):
        spec = of({"l": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": list_type, "items": items}})
        found = messages(server.admin.create(DEFINITIONS, definition(server, with_spec(spec))))
        where = "spec.validation.openAPIV3Schema.properties[spec].properties[l]"
        assert found == {
            f"{where}.items.x-kubernetes-validations[0].rule": 'Invalid value: "self == oldSelf": oldSelf cannot be '
            f"used on the uncorrelatable portion of the schema within {where}"
        }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": STRING, **rule("self.all(x, self.all(y, x == y))")},
        {"type": "array", "items": {"type": "string", **rule("self.matches('a+')")}},
    ],
)
def test_rules_that_may_be_too_expensive(server: Server, schema: Schema) -> None:
    """A real server estimates what a rule may cost; the simulated one does not, and takes every rule."""
    answer = server.admin.create(DEFINITIONS, definition(server, with_spec(of({"l": schema}))))
    if server.name == REAL:
        assert "exceeds budget" in messages(answer)["spec.validation.openAPIV3Schema"]
    else:
        assert answer.status == 201


def test_bounds_make_a_rule_cheap(server: Server) -> None:
    items = {"type": "string", "maxLength": 10}
    schema = {"type": "array", "maxItems": 10, "items": items, **rule("self.all(x, self.all(y, x == y))")}
    define(server, with_spec(of({"l": schema})))


@pytest.mark.parametrize("text", ["format.dns1123Label().validate(self.s).hasValue()", "self.l.all(i, x, i < 2)"])
def test_rules_that_the_simulator_cannot_carry_out_are_refused(server: Server, text: str) -> None:
    answer = server.admin.create(DEFINITIONS, definition(server, with_spec(of(FIELDS, **rule(text)))))
    if server.name == REAL:
        assert answer.status == 201
    else:
        assert "compilation failed" in messages(answer)[f"{RULES_PATH}.rule"]
