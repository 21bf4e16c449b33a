"""Watches: where they begin, what they tell through selectors, and how they end."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.contract.client import Client, Watch
from tests.contract.server import Server, eventually
from tests.contract.things import CRDS, definition, served

INITIAL_END = {"k8s.io/initial-events-end": "true"}
NEWEST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
ABSENT = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}


@pytest.fixture
def path(server: Server, admin: Client, namespace: str) -> str:
    """The config maps of a namespace whose own (the authority) is there already, so that it disturbs no watch."""
    found = f"/api/v1/namespaces/{namespace}/configmaps"
    if server.name == "real" and server.controllers:
        eventually(lambda: admin.get(f"{found}/kube-root-ca.crt").status == 200)
    return found


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def version(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def told(watch: Watch, count: int) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"]["name"]) for kind, obj in watch.take(count)]


def test_a_watch_from_a_version_tells_what_came_after_it_in_order(admin: Client, path: str) -> None:
    first = admin.create(path, config_map("a")).ok()
    admin.create(path, config_map("b")).ok()
    changed = admin.patch(f"{path}/a", {"data": {"x": "1"}}).ok()
    with admin.watch(path, resourceVersion=version(first), **ABSENT) as watch:
        assert watch.status == 200
        assert told(watch, 1) == [("ADDED", "b")]
        ((kind, obj),) = watch.take(1)
        assert (kind, obj) == ("MODIFIED", changed)
        admin.delete(f"{path}/b").ok()
        ((kind, obj),) = watch.take(1)
        assert (kind, obj["metadata"]["name"]) == ("DELETED", "b")
        assert int(version(obj)) > int(version(changed))
        assert int(version(admin.get(path).ok())) >= int(version(obj))
        admin.create(path, config_map("c")).ok()
        assert told(watch, 1) == [("ADDED", "c")]


@pytest.mark.parametrize("parameters", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
def test_a_watch_without_a_version_begins_with_what_is_there(
    admin: Client, path: str, parameters: dict[str, str]
) -> None:
    for name in ("b", "a"):
        admin.create(path, config_map(name)).ok()
    with admin.watch(path, **parameters, **ABSENT) as watch:
        found = told(watch, 2)
        if parameters.get("resourceVersion") == "0":
            # Whatever the server's cache holds: the younger object may still be on its way.
            found.sort()
        assert found == [("ADDED", "a"), ("ADDED", "b")]
        admin.patch(f"{path}/a", {"data": {"x": "1"}}).ok()
        assert told(watch, 1) == [("MODIFIED", "a")]


def test_objects_enter_and_leave_a_selection(admin: Client, path: str) -> None:
    start = version(admin.create(path, config_map("a", color="red")).ok())
    with admin.watch(path, resourceVersion=start, labelSelector="color=blue") as watch:
        admin.create(path, config_map("other", color="green")).ok()
        blue = admin.patch(f"{path}/a", {"metadata": {"labels": {"color": "blue"}}}).ok()
        assert watch.take(1) == [("ADDED", blue)]
        changed = admin.patch(f"{path}/a", {"data": {"x": "1"}}).ok()
        assert watch.take(1) == [("MODIFIED", changed)]
        green = admin.patch(f"{path}/a", {"metadata": {"labels": {"color": "green"}}, "data": {"x": "2"}}).ok()
        ((kind, left),) = watch.take(1)
        assert kind == "DELETED"
        assert left["metadata"]["labels"] == {"color": "blue"}
        assert left["data"] == {"x": "1"}
        assert version(left) == version(green)
        admin.delete(f"{path}/a").ok()
        admin.create(path, config_map("b", color="blue")).ok()
        assert told(watch, 1) == [("ADDED", "b")]


def test_one_object_is_watched_by_its_name(admin: Client, path: str) -> None:
    with admin.watch(path, fieldSelector="metadata.name=a") as watch:
        admin.create(path, config_map("b")).ok()
        admin.create(path, config_map("a")).ok()
        admin.delete(f"{path}/b").ok()
        admin.delete(f"{path}/a").ok()
        assert told(watch, 2) == [("ADDED", "a"), ("DELETED", "a")]


def test_pods_of_one_node(server: Server, admin: Client, namespace: str) -> None:
    pods, node = f"/api/v1/namespaces/{namespace}/pods", server.unique("node")
    spec = {"containers": [{"name": "c", "image": "i"}]}
    with admin.watch(pods, fieldSelector=f"spec.nodeName={node}") as watch:
        admin.create(pods, {"metadata": {"name": "elsewhere"}, "spec": spec}).ok()
        admin.create(pods, {"metadata": {"name": "bound"}, "spec": spec}).ok()
        binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": node}}
        admin.create(f"{pods}/bound/binding", binding).ok()
        assert told(watch, 1) == [("ADDED", "bound")]


def test_initial_events_end_with_a_marked_bookmark(admin: Client, path: str) -> None:
    for name in ("a", "b"):
        admin.create(path, config_map(name)).ok()
    with admin.watch(path, **NEWEST, **ABSENT) as watch:
        assert [watch.next()["object"]["metadata"]["name"] for _ in range(2)] == ["a", "b"]  # type: ignore[index]
        end = watch.next()
        assert end is not None
        assert end["type"] == "BOOKMARK"
        assert (end["object"]["kind"], end["object"]["apiVersion"]) == ("ConfigMap", "v1")
        assert end["object"]["metadata"]["annotations"] == INITIAL_END
        assert int(version(end["object"])) >= int(version(admin.get(f"{path}/b").ok()))
        admin.create(path, config_map("c")).ok()
        assert told(watch, 1) == [("ADDED", "c")]


def test_initial_events_can_be_left_out(admin: Client, path: str) -> None:
    admin.create(path, config_map("a")).ok()
    parameters = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    with admin.watch(path, **parameters, **ABSENT) as watch:
        admin.create(path, config_map("b")).ok()
        assert told(watch, 1) == [("ADDED", "b")]


def test_whoever_takes_bookmarks_learns_where_the_initial_events_end(admin: Client, path: str) -> None:
    admin.create(path, config_map("a")).ok()
    with admin.watch(path, allowWatchBookmarks="true", **ABSENT) as watch:
        first, end = watch.next(), watch.next()
        assert first is not None
        assert first["type"] == "ADDED"
        assert end is not None
        assert end["object"]["metadata"]["annotations"] == INITIAL_END


FORBIDDEN = "FieldValueForbidden"


@pytest.mark.parametrize(
    ("parameters", "messages"),
    [
        (
            {"sendInitialEvents": "true"},
            ["Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"],
        ),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "1"},
            [
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            ["Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"],
        ),
        ({"continue": "x"}, ["Forbidden: resourceVersionMatch is forbidden when continue is provided"]),
    ],
)
def test_options_that_exclude_each_other(
    admin: Client, path: str, parameters: dict[str, str], messages: list[str]
) -> None:
    answer = admin.get(path, watch="true", **parameters)
    assert answer.refused(422, "Invalid").startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert [cause["message"] for cause in answer.body["details"]["causes"]] == messages
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {"resourceVersionMatch"}


def test_a_version_that_is_no_number_is_an_accident_in_a_watch(admin: Client, path: str) -> None:
    answer = admin.get(path, watch="true", resourceVersion="abc")
    assert answer.status == 500
    assert "reason" not in answer.body
    assert answer.body["message"] == (
        'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    )


def test_a_version_to_come_is_waited_for(admin: Client, path: str) -> None:
    """A watch from the future tells nothing of what is older; it ends in good order."""
    with admin.watch(path, resourceVersion="99999999999", timeoutSeconds="2") as watch:
        admin.create(path, config_map("a")).ok()
        assert watch.next() is None
        assert watch.status == 200


def test_initial_events_of_a_version_to_come_are_an_error(admin: Client, path: str) -> None:
    with admin.watch(path, resourceVersion="99999999999", **NEWEST) as watch:
        event = watch.next()
        assert watch.status == 200
        assert event is not None
        assert event["type"] == "ERROR"
        status = event["object"]
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 504, "Timeout")
        assert status["message"].startswith("Timeout: Too large resource version: 99999999999, current: ")
        assert watch.next() is None


def test_a_watch_ends_when_its_time_is_up(admin: Client, path: str) -> None:
    began = time.monotonic()
    with admin.watch(path, timeoutSeconds="1", resourceVersion=version(admin.get(path).ok())) as watch:
        assert watch.next() is None
        assert 0.8 <= time.monotonic() - began < 10
    refused = admin.get(path, watch="true", timeoutSeconds="soon").refused(400, "BadRequest")
    assert refused == 'strconv.ParseInt: parsing "soon": invalid syntax'


@pytest.mark.parametrize(
    ("value", "watches"), [("1", True), ("True", True), ("yes", True), ("0", False), ("FALSE", False)]
)
def test_what_counts_as_yes(admin: Client, path: str, value: str, watches: bool) -> None:
    parameters = {"timeoutSeconds": "1", "resourceVersion": version(admin.get(path).ok())}
    answer = admin.get(path, watch=value, **parameters)
    assert answer.status == 200
    assert (answer.content == b"") is watches


def test_a_watch_goes_on_where_another_ended(admin: Client, path: str) -> None:
    """No event is lost and none comes twice when each watch begins at the last version seen."""
    last = version(admin.create(path, config_map("m")).ok())
    numbers: list[str] = []
    stopped = threading.Event()

    def write() -> None:
        for number in range(40):
            admin.patch(f"{path}/m", {"data": {"n": str(number)}}).ok()
        stopped.set()

    writer = threading.Thread(target=write)
    writer.start()
    while len(numbers) < 40:
        with admin.watch(path, resourceVersion=last, **ABSENT) as watch:
            for _, obj in watch.take(min(7, 40 - len(numbers))):
                numbers.append(obj["data"]["n"])
                last = version(obj)
    writer.join()
    assert numbers == [str(number) for number in range(40)]


def test_metadata_alone(admin: Client, path: str) -> None:
    start = version(admin.get(path).ok())
    admin.create(path, {**config_map("a"), "data": {"x": "1"}}).ok()
    parameters = {"watch": "true", "resourceVersion": start, "timeoutSeconds": "1", **ABSENT}
    answer = admin.request("GET", path, params=parameters, accept=PARTIAL)
    assert answer.body["type"] == "ADDED"
    assert set(answer.body["object"]) == {"kind", "apiVersion", "metadata"}
    assert answer.body["object"]["kind"] == "PartialObjectMetadata"


def test_tables_describe_their_columns_once(admin: Client, path: str) -> None:
    import json

    start = version(admin.get(path).ok())
    admin.create(path, {**config_map("a"), "data": {"x": "1"}}).ok()
    admin.delete(f"{path}/a").ok()
    parameters = {"watch": "true", "resourceVersion": start, "timeoutSeconds": "1", **ABSENT}
    lines = admin.request("GET", path, params=parameters, accept=TABLE).content.splitlines()
    added, deleted = (json.loads(line) for line in lines)
    assert (added["type"], deleted["type"]) == ("ADDED", "DELETED")
    assert [column["name"] for column in added["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert deleted["object"]["columnDefinitions"] is None
    for event in (added, deleted):
        table = event["object"]
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        (row,) = table["rows"]
        assert row["cells"][:2] == ["a", 1]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        assert table["metadata"]["resourceVersion"] == version(row["object"])


def test_custom_resources_are_watched_until_their_definition_goes(
    server: Server, admin: Client, namespace: str
) -> None:
    thing = definition(server, scope="Namespaced")
    with served(admin, thing) as path_of:
        path = path_of(namespace)
        for name in ("a", "b"):
            body = {"apiVersion": thing.api_version, "kind": thing.kind, "metadata": {"name": name}}
            admin.create(path, body).ok()
        start = version(admin.get(path).ok())
        with admin.watch(path, resourceVersion=start) as watch:
            admin.delete(f"{CRDS}/{thing.body['metadata']['name']}").ok()
            seen = watch.take(2)
            assert [(kind, obj["metadata"]["name"]) for kind, obj in seen] == [("DELETED", "a"), ("DELETED", "b")]
            assert {obj["kind"] for _, obj in seen} == {thing.kind}
            assert watch.next() is None
        eventually(lambda: admin.get(path).status == 404)
