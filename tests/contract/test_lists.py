"""Lists: pages of one snapshot, what resourceVersion means, and the forms in which a list comes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.contract.client import Answer, Client
from tests.contract.server import Server
from tests.contract.things import definition, served

PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MINE = {"labelSelector": "mine"}


@pytest.fixture
def maps(admin: Client, namespace: str) -> str:
    """The list path of seven config maps c0 to c6 with the label `mine`."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(7):
        admin.create(path, config_map(f"c{number}", parity="odd" if number % 2 else "even")).ok()
    return path


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"mine": "", **labels}}, "data": {"k": "v"}}


def names(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.ok()["items"]]


def version_of(answer: Answer) -> str:
    return str(answer.ok()["metadata"]["resourceVersion"])


def test_a_list_says_what_it_is_and_its_items_do_not(admin: Client, maps: str) -> None:
    answer = admin.get(maps, **MINE)
    body = answer.ok()
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert set(body["metadata"]) == {"resourceVersion"}
    assert int(body["metadata"]["resourceVersion"]) >= int(body["items"][-1]["metadata"]["resourceVersion"])
    assert names(answer) == [f"c{number}" for number in range(7)]
    assert all("kind" not in item and "apiVersion" not in item for item in body["items"])
    assert answer.headers["content-type"] == "application/json"
    single = admin.get(f"{maps}/c0").ok()
    assert (single["kind"], single["apiVersion"]) == ("ConfigMap", "v1")


def test_an_empty_list_has_no_items_and_a_missing_namespace_is_empty(
    server: Server, admin: Client, maps: str
) -> None:
    assert admin.get(maps, labelSelector="absent").ok()["items"] == []
    assert admin.get(f"/api/v1/namespaces/{server.unique('none')}/configmaps").ok()["items"] == []


def test_pages_are_of_one_snapshot(admin: Client, maps: str) -> None:
    first = admin.get(maps, limit=3, fieldSelector="metadata.name!=kube-root-ca.crt")
    assert names(first) == ["c0", "c1", "c2"]
    token, version = first.ok()["metadata"]["continue"], version_of(first)
    admin.create(maps, config_map("c55")).ok()
    admin.delete(f"{maps}/c4").ok()
    second = admin.get(maps, limit=3, fieldSelector="metadata.name!=kube-root-ca.crt", **{"continue": token})
    assert names(second) == ["c3", "c4", "c5"]
    assert version_of(second) == version
    token = second.ok()["metadata"]["continue"]
    last = admin.get(maps, fieldSelector="metadata.name!=kube-root-ca.crt", **{"continue": token})
    assert names(last) == ["c6"]
    assert set(last.ok()["metadata"]) == {"resourceVersion"}


def test_what_remains_is_counted_unless_a_selector_hides_it(admin: Client, maps: str) -> None:
    whole = len(admin.get(maps).ok()["items"])
    first = admin.get(maps, limit=3).ok()["metadata"]
    assert first["remainingItemCount"] == whole - 3
    second = admin.get(maps, limit=3, **{"continue": first["continue"]}).ok()["metadata"]
    assert second["remainingItemCount"] == whole - 6
    assert "remainingItemCount" not in admin.get(maps, limit=3, **MINE).ok()["metadata"]
    assert "continue" not in admin.get(maps, limit=whole).ok()["metadata"]
    assert "continue" not in admin.get(maps, limit=1, fieldSelector="metadata.name=c1").ok()["metadata"]


def test_a_selector_fills_pages_with_what_it_shows(admin: Client, maps: str) -> None:
    first = admin.get(maps, limit=2, labelSelector="parity=odd")
    assert names(first) == ["c1", "c3"]
    token = first.ok()["metadata"]["continue"]
    assert names(admin.get(maps, limit=2, labelSelector="parity=odd", **{"continue": token})) == ["c5"]


@pytest.mark.parametrize("token", ["xxx", base64.urlsafe_b64encode(b'{"v":"other","rv":5,"start":"a"}').decode()])
def test_a_token_that_is_none_is_refused(admin: Client, maps: str, token: str) -> None:
    message = admin.get(maps, limit=3, **{"continue": token}).refused(400, "BadRequest")
    assert message.startswith("invalid continue token: continue key is not valid")


def test_a_token_goes_with_no_version(admin: Client, maps: str) -> None:
    token = admin.get(maps, limit=1).ok()["metadata"]["continue"]
    refused = admin.get(maps, resourceVersion="5", **{"continue": token}).refused(400, "BadRequest")
    assert refused == "specifying resource version is not allowed when using continue"
    assert "c0" not in names(admin.get(maps, resourceVersion="0", **{"continue": token}))


def test_an_exact_version_shows_the_past(admin: Client, maps: str) -> None:
    then = admin.get(f"{maps}/c2").ok()["metadata"]["resourceVersion"]
    exact = {"resourceVersion": then, "resourceVersionMatch": "Exact", **MINE}
    assert names(admin.get(maps, **exact)) == ["c0", "c1", "c2"]
    assert version_of(admin.get(maps, **exact)) == then
    page = admin.get(maps, limit=2, **exact)
    assert names(page) == ["c0", "c1"]
    assert names(admin.get(maps, **MINE, **{"continue": page.ok()["metadata"]["continue"]})) == ["c2"]


def test_a_page_at_a_version_is_of_that_version(admin: Client, maps: str) -> None:
    """The old rule for a version without resourceVersionMatch: exact with a limit, at least that new without."""
    then = admin.get(f"{maps}/c1").ok()["metadata"]["resourceVersion"]
    assert names(admin.get(maps, limit=9, resourceVersion=then, **MINE)) == ["c0", "c1"]
    assert len(names(admin.get(maps, resourceVersion=then, **MINE))) == 7
    newer = admin.get(maps, limit=9, resourceVersion=then, resourceVersionMatch="NotOlderThan", **MINE)
    assert len(names(newer)) == 7


def test_version_zero_is_the_newest_known_and_not_paged(admin: Client, maps: str) -> None:
    answer = admin.get(maps, limit=2, resourceVersion="0", **MINE)
    assert len(names(answer)) == 7
    assert "continue" not in answer.ok()["metadata"]


def test_a_version_that_does_not_exist_yet(admin: Client, maps: str) -> None:
    answer = admin.get(maps, resourceVersion="99999999999")
    message = answer.refused(504, "Timeout")
    assert message.startswith("Timeout: Too large resource version: 99999999999, current: ")
    assert answer.headers["retry-after"] == "1"
    assert answer.body["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


@pytest.mark.parametrize("version", ["abc", "-1", "1.5"])
def test_a_version_is_a_number(admin: Client, maps: str, version: str) -> None:
    message = admin.get(maps, resourceVersion=version).refused(400, "BadRequest")
    assert message == (
        f'invalid resource version: resourceVersion: Invalid value: "{version}": '
        f'strconv.ParseUint: parsing "{version}": invalid syntax'
    )


FORBIDDEN = "FieldValueForbidden"


@pytest.mark.parametrize(
    ("parameters", "causes"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            [(FORBIDDEN, "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")],
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            [(FORBIDDEN, 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"')],
        ),
        (
            {"resourceVersionMatch": "Some", "resourceVersion": "1"},
            [
                (
                    "FieldValueNotSupported",
                    'Unsupported value: "Some": supported values: "Exact", "NotOlderThan", ""',
                )
            ],
        ),
        (
            {"resourceVersionMatch": "Exact", "continue": "x"},
            [
                (FORBIDDEN, "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
                (FORBIDDEN, "Forbidden: resourceVersionMatch is forbidden when continue is provided"),
            ],
        ),
        ({"sendInitialEvents": "true"}, [(FORBIDDEN, "Forbidden: sendInitialEvents is forbidden for list")]),
    ],
)
def test_options_that_exclude_each_other(
    admin: Client, maps: str, parameters: dict[str, str], causes: list[tuple[str, str]]
) -> None:
    answer = admin.get(maps, **parameters)
    message = answer.refused(422, "Invalid")
    assert message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    details = answer.body["details"]
    assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions")
    assert "name" not in details
    assert [(cause["reason"], cause["message"]) for cause in details["causes"]] == causes


def test_a_limit_below_zero_is_none(admin: Client, maps: str) -> None:
    assert len(names(admin.get(maps, limit=-1, **MINE))) == 7
    refused = admin.get(maps, limit="many").refused(400, "BadRequest")
    assert refused == 'strconv.ParseInt: parsing "many": invalid syntax'


def test_all_namespaces_in_order(server: Server, admin: Client) -> None:
    label = server.unique("everywhere")
    homes = sorted(server.new_namespace() for _ in range(2))
    for home in reversed(homes):
        for name in ("b", "a"):
            body = {"metadata": {"name": name, "labels": {label: ""}}}
            admin.create(f"/api/v1/namespaces/{home}/configmaps", body).ok()
    found: list[tuple[str, str]] = []
    parameters: dict[str, str] = {"limit": "1", "labelSelector": label}
    while True:
        page = admin.get("/api/v1/configmaps", **parameters).ok()
        found += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page["items"]]
        if "continue" not in page["metadata"]:
            break
        parameters["continue"] = page["metadata"]["continue"]
    assert found == [(home, name) for home in homes for name in ("a", "b")]


def test_metadata_alone(admin: Client, maps: str) -> None:
    answer = admin.request("GET", maps, params={"limit": 1, **MINE}, accept=PARTIAL_LIST)
    body = answer.ok()
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert "continue" in body["metadata"]
    (item,) = body["items"]
    assert set(item) == {"kind", "apiVersion", "metadata"}
    assert (item["kind"], item["metadata"]["name"]) == ("PartialObjectMetadata", "c0")
    single = admin.request("GET", f"{maps}/c0", accept=PARTIAL).ok()
    assert (single["kind"], single["metadata"]["name"]) == ("PartialObjectMetadata", "c0")
    assert "data" not in single


def test_a_form_of_lists_does_not_fit_an_object(admin: Client, maps: str) -> None:
    one = admin.request("GET", f"{maps}/c0", accept=PARTIAL_LIST).refused(406, "NotAcceptable")
    assert one.startswith("you requested PartialObjectMetadataList, but the requested object is not a list")
    many = admin.request("GET", maps, accept=PARTIAL).refused(406, "NotAcceptable")
    assert many.startswith("you requested PartialObjectMetadata, but the requested object is a list")


def test_items_of_custom_resources_say_what_they_are(server: Server, admin: Client, maps: str) -> None:
    thing = definition(server, scope="Namespaced")
    with served(admin, thing) as path_of:
        path = path_of(maps.split("/")[4])
        body = {"apiVersion": thing.api_version, "kind": thing.kind, "metadata": {"name": "t"}}
        admin.create(path, body).ok()
        found = admin.get(path).ok()
        assert (found["kind"], found["apiVersion"]) == (f"{thing.kind}List", thing.api_version)
        assert [(item["kind"], item["apiVersion"]) for item in found["items"]] == [(thing.kind, thing.api_version)]
