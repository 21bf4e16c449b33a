"""Custom resource definitions: from creation to removal, and what is refused on the way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.client import JSON_PATCH, Client
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
    wait_served,
    with_spec,
)
from tests.contract.server import REAL, Server, eventually

SCHEMA = with_spec(of({"size": INTEGER, "name": STRING}), of({"phase": STRING}))
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def conditions_of(crd: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = (crd.get("status") or {}).get("conditions") or ()
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def established(admin: Client, path: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        crd = admin.get(path).ok()
        return crd if conditions_of(crd).get("Established", ("", ""))[0] == "True" else None

    return eventually(look) or {}


def test_a_definition_is_established_and_served(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA)
    crd = established(admin, widgets.definition)
    assert conditions_of(crd) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    listed = admin.get(widgets.path).ok()
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == ("WidgetList", widgets.api_version, [])


def test_names_are_filled_in(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA)
    crd["spec"]["names"] = {"kind": "Widget", "plural": "widgets"}
    created = admin.create(DEFINITIONS, crd).ok()
    assert created["spec"]["names"] == {
        "kind": "Widget",
        "listKind": "WidgetList",
        "plural": "widgets",
        "singular": "widget",
    }


def test_discovery_shows_the_resource(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA, subresources={"status": {}})
    short = server.unique("w").replace("-", "")
    crd["spec"]["names"] |= {"shortNames": [short], "categories": ["things"]}
    admin.create(DEFINITIONS, crd).ok()
    widgets = Widgets(admin, crd["spec"]["group"])
    wait_served(widgets)
    found = eventually(lambda: (admin.get(f"/apis/{widgets.group}/v1").body or {}).get("resources"))
    assert found is not None
    by_name = {resource["name"]: resource for resource in found}
    assert set(by_name) == {"widgets", "widgets/status"}
    resource = by_name["widgets"]
    assert (resource["kind"], resource["singularName"], resource["namespaced"]) == ("Widget", "widget", False)
    assert (resource["shortNames"], resource["categories"]) == ([short], ["things"])
    verbs = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert set(resource["verbs"]) == verbs
    assert set(by_name["widgets/status"]["verbs"]) == {"get", "patch", "update"}
    groups = eventually(lambda: [g for g in admin.get("/apis").ok()["groups"] if g["name"] == widgets.group])
    assert groups[0]["preferredVersion"] == {"groupVersion": widgets.api_version, "version": "v1"}


def test_printer_columns(server: Server, admin: Client) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Name", "type": "string", "jsonPath": ".spec.name", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    widgets = define(server, SCHEMA, additionalPrinterColumns=columns)
    widgets.create("w", {"size": 3, "name": "n"}).ok()
    widgets.create("x", {}).ok()
    table = admin.request("GET", widgets.path, accept=TABLE).ok()
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Name", "string", 1),
        ("Age", "date", 0),
    ]
    told = [c["description"] for c in table["columnDefinitions"][1:3]]
    assert told == ["How large.", "Custom resource definition column (in JSONPath format): .spec.name"]
    cells = [row["cells"] for row in table["rows"]]
    assert [row[:3] for row in cells] == [["w", 3, "n"], ["x", None, None]]
    assert all(row[3].endswith("s") for row in cells)


def test_a_changed_schema_takes_effect(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA)
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour"
    patch = [{"op": "add", "path": path, "value": STRING}]
    changed = admin.patch(widgets.definition, patch, JSON_PATCH).ok()
    assert changed["metadata"]["generation"] == 2

    def accepted() -> bool:
        spec = {"colour": "red"}
        return widgets.create("probe", spec, dryRun="All", fieldValidation="Strict").status == 201

    eventually(accepted)
    assert widgets.create("w", {"colour": "red"}).ok()["spec"] == {"colour": "red"}


def test_removal_takes_the_objects_along(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA)
    widgets.create("w", {"size": 1}).ok()
    admin.delete(widgets.definition).ok()
    eventually(lambda: admin.get(widgets.definition).status == 404)
    eventually(lambda: admin.get(widgets.path).status == 404)
    again = definition(server, SCHEMA)
    again["spec"]["group"] = widgets.group
    again["metadata"]["name"] = f"widgets.{widgets.group}"
    admin.create(DEFINITIONS, again).ok()
    wait_served(widgets)
    assert admin.get(widgets.path).ok()["items"] == []


def test_names_are_taken_once_per_group(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA)
    second = definition(server, SCHEMA)
    second["metadata"]["name"] = f"others.{widgets.group}"
    second["spec"]["group"] = widgets.group
    second["spec"]["names"] = {"kind": "Widget", "plural": "others"}
    admin.create(DEFINITIONS, second).ok()
    path = f"{DEFINITIONS}/others.{widgets.group}"
    eventually(lambda: conditions_of(admin.get(path).ok()))
    crd = admin.get(path).ok()
    assert conditions_of(crd) == {
        "NamesAccepted": ("False", "ListKindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    message = next(c["message"] for c in crd["status"]["conditions"] if c["type"] == "NamesAccepted")
    assert message == '"WidgetList" is already in use'
    assert admin.get(f"/apis/{widgets.group}/v1/others").status == 404
    admin.delete(widgets.definition).ok()
    established(admin, path)
    eventually(lambda: admin.get(f"/apis/{widgets.group}/v1/others").status == 200)


def test_versions_with_one_schema_share_their_objects(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA)
    second = {**copy.deepcopy(crd["spec"]["versions"][0]), "name": "v2", "storage": False}
    crd["spec"]["versions"].append(second)
    admin.create(DEFINITIONS, crd).ok()
    widgets = Widgets(admin, crd["spec"]["group"])
    wait_served(widgets)
    widgets.create("w", {"size": 1}).ok()
    other = widgets.at("w").replace("/v1/", "/v2/")
    eventually(lambda: admin.get(other).status == 200)
    seen = admin.get(other).ok()
    assert (seen["apiVersion"], seen["spec"]) == (f"{widgets.group}/v2", {"size": 1})
    changed = admin.patch(other, {"spec": {"size": 2}}, fieldManager="two").ok()
    assert changed["apiVersion"] == f"{widgets.group}/v2"
    stored = widgets.stored("w")
    assert (stored["apiVersion"], stored["spec"]) == (widgets.api_version, {"size": 2})
    entries = {e["manager"]: e["apiVersion"] for e in stored["metadata"]["managedFields"]}
    assert entries["two"] == f"{widgets.group}/v2"
    groups = eventually(
        lambda: [
            g for g in admin.get("/apis").ok()["groups"] if g["name"] == widgets.group and len(g["versions"]) == 2
        ]
    )
    assert groups[0]["preferredVersion"]["version"] == "v2", "the later version is preferred"


def test_versions_with_schemas_of_their_own(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA)
    schema = {"openAPIV3Schema": with_spec(of({"size": INTEGER}))}
    crd["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "schema": schema})
    answer = admin.create(DEFINITIONS, crd)
    if server.name == REAL:
        assert answer.status == 201
    else:
        assert messages(answer) == {
            "spec.versions": "Invalid value: null: the simulated API server serves several versions only where they "
            "have one schema"
        }


def test_the_scale_subresource(server: Server, admin: Client) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}
    answer = admin.create(DEFINITIONS, definition(server, SCHEMA, subresources={"scale": paths}))
    if server.name == REAL:
        assert answer.status == 201
    else:
        assert "does not serve the subresource scale" in messages(answer)["spec.subresources.scale"]


def test_the_status_subresource_is_separate(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA, subresources={"status": {}})
    created = widgets.create("w", {"size": 1}, {"phase": "A"}).ok()
    assert "status" not in created
    main = widgets.merge("w", {"status": {"phase": "A"}, "spec": {"size": 2}}).ok()
    assert "status" not in main
    assert main["metadata"]["generation"] == 2
    body = {"status": {"phase": "B"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    status = widgets.merge("w", body, "status").ok()
    assert (status["status"], status["spec"]) == ({"phase": "B"}, {"size": 2})
    assert status["metadata"]["generation"] == 2
    assert "labels" not in status["metadata"]
    assert admin.get(widgets.at("w", "status")).ok() == widgets.stored("w")


def test_without_the_subresource_status_is_a_field(server: Server) -> None:
    widgets = define(server, SCHEMA)
    created = widgets.create("w", {"size": 1}, {"phase": "A"}).ok()
    assert created["status"] == {"phase": "A"}
    assert widgets.merge("w", {"status": {"phase": "B"}}).ok()["metadata"]["generation"] == 2
    assert widgets.merge("w", {"status": {"phase": "C"}}, "status").status == 404


def test_an_update_needs_a_resource_version(server: Server) -> None:
    widgets = define(server, SCHEMA)
    widgets.create("w", {"size": 1}).ok()
    answer = widgets.admin.replace(widgets.at("w"), widgets.body("w", {"size": 2}))
    assert messages(answer) == {"metadata.resourceVersion": "Invalid value: 0: must be specified for an update"}


def test_selectable_fields(server: Server, admin: Client) -> None:
    widgets = define(server, SCHEMA, selectableFields=[{"jsonPath": ".spec.size"}])
    widgets.create("one", {"size": 1}).ok()
    widgets.create("two", {"size": 2}).ok()
    found = eventually(lambda: admin.get(widgets.path, fieldSelector="spec.size=2").body.get("items"))
    assert [item["metadata"]["name"] for item in found or ()] == ["two"]
    admin.get(widgets.path, fieldSelector="spec.name=x").refused(400, "BadRequest")


Change = Callable[[dict[str, Any]], Any]


def version_of(crd: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]
    return found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda crd: crd["metadata"].update(name="x.y.z"),
            {"metadata.name": 'Invalid value: "x.y.z": must be spec.names.plural+"."+spec.group'},
        ),
        (lambda crd: crd["spec"].pop("scope"), {"spec.scope": "Required value"}),
        (
            lambda crd: crd["spec"].update(scope="Galaxy"),
            {"spec.scope": 'Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'},
        ),
        (
            lambda crd: crd["spec"]["names"].update(singular="A B"),
            {"spec.names.singular": f'Invalid value: "A B": {LABEL_RULE}'},
        ),
        (
            lambda crd: crd["spec"]["names"].update(shortNames=["A_b"]),
            {"spec.names.shortNames[0]": f'Invalid value: "A_b": {LABEL_RULE}'},
        ),
        (
            lambda crd: crd["spec"]["names"].update(categories=["A b"]),
            {"spec.names.categories[0]": f'Invalid value: "A b": {LABEL_RULE}'},
        ),
        (
            lambda crd: crd["spec"]["names"].update(listKind="Widget"),
            {"spec.names.listKind": 'Invalid value: "Widget": kind and listKind may not be the same'},
        ),
        (
            lambda crd: version_of(crd).pop("schema"),
            {"spec.versions[0].schema.openAPIV3Schema": "Required value"},
        ),
        (
            lambda crd: version_of(crd).update(name="V_1"),
            {
                "spec.versions[0].name": f'Invalid value: "V_1": {LABEL_RULE}',
                "spec.version": f'Invalid value: "V_1": {LABEL_RULE}',
            },
        ),
        (
            lambda crd: crd["spec"].update(preserveUnknownFields=True),
            {
                "spec.preserveUnknownFields": "Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            },
        ),
        (
            lambda crd: crd["spec"].update(conversion={"strategy": "Foo"}),
            {"spec.conversion.strategy": 'Unsupported value: "Foo": supported values: "None", "Webhook"'},
        ),
        (
            lambda crd: version_of(crd).update(additionalPrinterColumns=[{"name": "a", "type": "string"}]),
            {"spec.additionalPrinterColumns[0].JSONPath": "Required value"},
        ),
        (
            lambda crd: version_of(crd).update(
                additionalPrinterColumns=[{"name": "a", "type": "foo", "jsonPath": "spec.a"}]
            ),
            {
                "spec.additionalPrinterColumns[0].type": 'Invalid value: "foo": must be one of '
                "boolean,date,integer,number,string",
                "spec.additionalPrinterColumns[0].JSONPath": 'Invalid value: "spec.a": must be a simple json path '
                "starting with .",
            },
        ),
        (
            lambda crd: version_of(crd).update(subresources={"scale": {}}),
            {
                "spec.subresources.scale.specReplicasPath": "Required value",
                "spec.subresources.scale.statusReplicasPath": "Required value",
            },
        ),
        (
            lambda crd: version_of(crd).update(selectableFields=[{"jsonPath": ".spec.nothing"}]),
            {
                "spec.selectableFields[0].jsonPath": 'Invalid value: ".spec.nothing": is an invalid path: does not '
                "refer to a valid field"
            },
        ),
        (
            lambda crd: version_of(crd).update(deprecationWarning="x"),
            {"spec.versions[0].deprecationWarning": 'Invalid value: "x": can only be set for deprecated versions'},
        ),
    ],
)
def test_what_a_definition_must_say(server: Server, admin: Client, change: Change, expected: dict[str, str]) -> None:
    crd = definition(server, SCHEMA)
    change(crd)
    assert messages(admin.create(DEFINITIONS, crd)) == expected


def test_one_version_is_stored(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA)
    version_of(crd)["storage"] = False
    found = messages(admin.create(DEFINITIONS, crd))
    assert found["spec.versions"].endswith("must have exactly one version marked as storage version")
    assert found["status.storedVersions"] == "Invalid value: null: must have at least one stored version"


def test_groups_of_kubernetes_are_protected(server: Server, admin: Client) -> None:
    crd = definition(server, SCHEMA)
    crd["spec"]["group"] = f"{server.unique('g')}.k8s.io"
    crd["metadata"]["name"] = f"widgets.{crd['spec']['group']}"
    assert list(messages(admin.create(DEFINITIONS, crd))) == ["metadata.annotations[api-approved.kubernetes.io]"]


@pytest.mark.parametrize(
    ("field", "value"), [("scope", "Namespaced"), ("kind", "Other"), ("plural", "others"), ("group", "x.example.com")]
)
def test_what_never_changes(server: Server, admin: Client, field: str, value: str) -> None:
    widgets = define(server, SCHEMA)
    established(admin, widgets.definition)
    named = field in ("kind", "plural")
    patch = {"spec": {"names": {field: value}} if named else {field: value}}
    where = f"spec.names.{field}" if named else f"spec.{field}"
    answer = admin.patch(widgets.definition, patch)
    assert causes(answer) == {(where, "FieldValueInvalid", f'Invalid value: "{value}": field is immutable')}


ROOT = "spec.validation.openAPIV3Schema"
SPEC_PATH = f"{ROOT}.properties[spec]"
KEYED = {"type": "array", "x-kubernetes-list-type": "map"}
ITEM = of({"k": STRING}, required=["k"])


@pytest.mark.parametrize(
    ("spec", "where", "message"),
    [
        ({"properties": {}}, "type", "Required value: must not be empty for specified object fields"),
        (
            of({"a": {"type": "foo"}}),
            "properties[a].type",
            'Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        (of({"a": {"type": "array"}}), "properties[a].items", "Required value: must be specified"),
        (
            of({"a": {"type": "array", "items": [INTEGER]}}),
            "properties[a].items",
            "Forbidden: items must be a schema object and not an array",
        ),
        (of({"a": {"$ref": "#/x"}}), "properties[a].$ref", "Forbidden: $ref is not supported"),
        (
            of({"a": INTEGER}, additionalProperties=STRING),
            "additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            of({"a": {"type": "array", "uniqueItems": True, "items": STRING}}),
            "properties[a].uniqueItems",
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            of({"a": {"type": "string", "pattern": "("}}),
            "properties[a].pattern",
            'Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing regexp: missing '
            "closing ): `(`",
        ),
        (
            of({"a": {"type": "integer", "default": "x"}}),
            "properties[a].default",
            'Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            of({"a": of({"q": STRING}, default={"z": 1})}),
            "properties[a].default",
            'Invalid value: {"z":1}: must not have unknown fields',
        ),
        (
            of({"a": {"type": "integer", "minimum": 5, "default": 1}}),
            "properties[a].default",
            "Invalid value: 1:  in body should be greater than or equal to 5",
        ),
        (
            of({"a": {**KEYED, "items": ITEM}}),
            "properties[a].x-kubernetes-list-map-keys",
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            of({"a": {**KEYED, "x-kubernetes-list-map-keys": ["z"], "items": ITEM}}),
            "properties[a].x-kubernetes-list-map-keys",
            'Invalid value: ["z"]: entries must all be names of item properties',
        ),
        (
            of({"a": {**KEYED, "x-kubernetes-list-map-keys": ["k"], "items": of({"k": STRING})}}),
            "properties[a].items.properties[k].default",
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
            "required property",
        ),
        (
            of({"a": {**KEYED, "x-kubernetes-list-map-keys": ["k"], "items": STRING}}),
            "properties[a].items.type",
            'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map',
        ),
        (
            of({"a": {"type": "array", "x-kubernetes-list-map-keys": ["k"], "items": STRING}}),
            "properties[a].x-kubernetes-list-type",
            "Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            of({"a": {"type": "array", "x-kubernetes-list-type": "set", "items": ITEM}}),
            "properties[a].items.x-kubernetes-map-type",
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            of({"a": {"type": "array", "x-kubernetes-list-type": "foo", "items": STRING}}),
            "properties[a].x-kubernetes-list-type",
            'Unsupported value: "foo": supported values: "atomic", "set", "map"',
        ),
        (
            of({"a": {"type": "string", "x-kubernetes-list-type": "set"}}),
            "properties[a].type",
            'Invalid value: "string": must be array if x-kubernetes-list-type is specified',
        ),
        (
            of({"a": of({}, **{"x-kubernetes-map-type": "foo"})}),
            "properties[a].x-kubernetes-map-type",
            'Unsupported value: "foo": supported values: "atomic", "granular"',
        ),
        (
            of({"a": of({}, **{"x-kubernetes-preserve-unknown-fields": False})}),
            "properties[a].x-kubernetes-preserve-unknown-fields",
            "Invalid value: false: must be true or undefined",
        ),
        (
            of({"a": of({}, **{"x-kubernetes-embedded-resource": True})}),
            "properties[a].properties",
            "Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        ),
        (
            of({"a": {"type": "string", "anyOf": [{"type": "string"}]}}),
            "properties[a].anyOf[0].type",
            "Forbidden: must be empty to be structural",
        ),
        (
            of({"a": {"type": "string", "anyOf": [{"default": "x"}]}}),
            "properties[a].anyOf[0].default",
            "Forbidden: must be undefined to be structural",
        ),
        (of({}, definitions={"a": STRING}), "definitions", "Forbidden: definitions is not supported"),
        (
            of({}, patternProperties={"a": STRING}),
            "patternProperties",
            "Forbidden: patternProperties is not supported",
        ),
    ],
)
def test_schemas_are_structural(server: Server, admin: Client, spec: Schema, where: str, message: str) -> None:
    answer = admin.create(DEFINITIONS, definition(server, with_spec(spec)))
    assert messages(answer) == {f"{SPEC_PATH}.{where}": message}


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (lambda root: root.pop("type"), "type", "Required value: must not be empty at the root"),
        (lambda root: root.update(nullable=True), "nullable", "Forbidden: nullable cannot be true at the root"),
        (
            lambda root: root["properties"].update(apiVersion=INTEGER),
            "properties[apiVersion].type",
            'Invalid value: "integer": must be string',
        ),
        (
            lambda root: root["properties"].update(metadata=of({"labels": {"type": "object"}})),
            "properties[metadata]",
            "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly "
            "specified",
        ),
        (
            lambda root: root["properties"].update(metadata=of({}, default={})),
            "properties[metadata].default",
            "Forbidden: must not be set in top-level metadata",
        ),
    ],
)
def test_the_root_of_a_schema(server: Server, admin: Client, change: Change, where: str, message: str) -> None:
    schema = with_spec(of({"a": INTEGER}))
    change(schema)
    assert messages(admin.create(DEFINITIONS, definition(server, schema))) == {f"{ROOT}.{where}": message}


def test_unknown_keywords(server: Server, admin: Client) -> None:
    crd = definition(server, with_spec(of({"a": {"type": "string", "foo": 1}})))
    answer = admin.create(DEFINITIONS, crd)
    if answer.status == 422:
        assert server.name != REAL
        assert "is not supported by the simulated API server" in messages(answer)[f"{SPEC_PATH}.properties[a].foo"]
    else:
        assert "unknown field" in answer.headers["warning"]
