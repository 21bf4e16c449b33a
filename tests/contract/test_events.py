"""Events of events.k8s.io/v1 and of the core group: one store, two forms, two sets of rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.server import Server

T0 = "2026-01-01T00:00:00.000000Z"
T1 = "2026-01-01T00:00:10.000000Z"


@pytest.fixture
def events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


@pytest.fixture
def core(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


def event(path: str, name: str, **changed: Any) -> dict[str, Any]:
    """A valid event; a change to None leaves the field out."""
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": T0,
        "reportingController": "muster.dev/controller",
        "reportingInstance": "pod-1",
        "action": "Hold",
        "reason": "Held",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": path.split("/")[-2]},
        "note": "hello",
        "type": "Normal",
        **changed,
    }
    return {key: value for key, value in body.items() if value is not None}


def test_an_event_has_two_forms(admin: Client, events: str, core: str) -> None:
    created = admin.create(events, event(events, "a")).ok()
    for key, value in event(events, "a").items():
        assert key == "metadata" or created[key] == value
    assert (created["deprecatedSource"], created["deprecatedFirstTimestamp"]) == ({}, None)
    assert created["deprecatedLastTimestamp"] is None
    assert "deprecatedCount" not in created
    old = admin.get(f"{core}/a").ok()
    assert (old["apiVersion"], old["kind"]) == ("v1", "Event")
    assert old["metadata"] == created["metadata"]
    assert old["involvedObject"] == created["regarding"]
    assert (old["message"], old["reason"], old["type"], old["action"]) == ("hello", "Held", "Normal", "Hold")
    assert (old["reportingComponent"], old["reportingInstance"]) == ("muster.dev/controller", "pod-1")
    assert (old["source"], old["firstTimestamp"], old["lastTimestamp"]) == ({}, None, None)
    assert old["eventTime"] == T0
    (entry,) = created["metadata"]["managedFields"]
    assert entry["apiVersion"] == "events.k8s.io/v1"


def test_an_old_event_in_the_new_form(admin: Client, events: str, core: str) -> None:
    body = {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": core.split("/")[-2]},
        "reason": "Pulled",
        "message": "m",
        "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:05Z",
        "count": 3,
        "source": {"component": "kubelet", "host": "h"},
    }
    created = admin.create(core, body).ok()
    assert (created["eventTime"], created["reportingComponent"], created["reportingInstance"]) == (None, "", "")
    new = admin.get(f"{events}/a").ok()
    assert (new["note"], new["reason"], new["eventTime"]) == ("m", "Pulled", None)
    assert new["regarding"] == body["involvedObject"]
    assert new["deprecatedSource"] == body["source"]
    assert (new["deprecatedFirstTimestamp"], new["deprecatedLastTimestamp"], new["deprecatedCount"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:05Z",
        3,
    )
    assert "reportingController" not in new


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"eventTime": None}, "eventTime", "Required value"),
        ({"reportingInstance": None}, "reportingInstance", "Required value"),
        ({"action": None}, "action", "Required value"),
        ({"reason": None}, "reason", "Required value"),
        ({"type": None}, "type", 'Invalid value: "": has invalid value: '),
        ({"type": "Bad"}, "type", 'Invalid value: "": has invalid value: Bad'),
        ({"note": "x" * 1025}, "message", 'Invalid value: "": can have at most 1024 characters'),
        ({"action": "x" * 129}, "action", 'Invalid value: "": can have at most 128 characters'),
        ({"reason": "x" * 129}, "reason", 'Invalid value: "": can have at most 128 characters'),
        (
            {"reportingInstance": "x" * 129},
            "reportingInstance",
            'Invalid value: "": can have at most 128 characters',
        ),
        ({"series": {"count": 1, "lastObservedTime": T0}}, "series.count", 'Invalid value: "": should be at least 2'),
        ({"series": {"count": 2}}, "series.lastObservedTime", "Required value"),
        ({"deprecatedCount": 1}, "count", 'Invalid value: "": needs to be unset'),
        ({"deprecatedSource": {"component": "x"}}, "source", 'Invalid value: "": needs to be unset'),
        (
            {"deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"},
            "firstTimestamp",
            'Invalid value: "": needs to be unset',
        ),
        ({"regarding": None}, "involvedObject.namespace", 'Invalid value: "": does not match event.namespace'),
        (
            {"regarding": {"apiVersion": "v1", "kind": "Node", "name": "n"}},
            "involvedObject.namespace",
            'Invalid value: "": does not match event.namespace',
        ),
    ],
)
def test_what_a_new_event_must_be(
    admin: Client, events: str, changed: dict[str, Any], field: str, message: str
) -> None:
    answer = admin.create(events, event(events, "a", **changed))
    assert answer.refused(422, "Invalid") == f'Event "a" is invalid: {field}: {message}'
    reason = "FieldValueRequired" if message == "Required value" else "FieldValueInvalid"
    assert answer.body["details"] == {
        "name": "a",
        "kind": "Event",
        "causes": [{"reason": reason, "message": message, "field": field}],
    }


def test_the_reporting_controller_is_a_qualified_name(admin: Client, events: str) -> None:
    wrong = admin.create(events, event(events, "a", reportingController="bad name!")).refused(422, "Invalid")
    assert wrong.startswith('Event "a" is invalid: reportingController: Invalid value: "bad name!": name part must ')
    answer = admin.create(events, event(events, "a", reportingController=None))
    answer.refused(422, "Invalid")
    causes = answer.body["details"]["causes"]
    assert [(cause["field"], cause["reason"]) for cause in causes] == [
        ("reportingController", "FieldValueRequired"),
        ("reportingController", "FieldValueInvalid"),
        ("reportingController", "FieldValueInvalid"),
    ]
    assert causes[1]["message"] == 'Invalid value: "": name part must be non-empty'


def test_a_note_may_be_missing(admin: Client, events: str) -> None:
    assert "note" not in admin.create(events, event(events, "a", note=None)).ok()


def test_a_series_is_counted_by_a_patch(admin: Client, events: str, core: str) -> None:
    admin.create(events, event(events, "a")).ok()
    series = {"count": 2, "lastObservedTime": T1}
    assert admin.patch(f"{events}/a", {"series": series}).ok()["series"] == series
    assert admin.get(f"{core}/a").ok()["series"] == series
    again = {"count": 3, "lastObservedTime": T1}
    assert admin.replace(f"{events}/a", event(events, "a", series=again)).ok()["series"] == again
    admin.patch(f"{events}/a", {"metadata": {"labels": {"a": "b"}}}).ok()


@pytest.mark.parametrize(
    ("patch", "field", "value"),
    [
        ({"note": "other"}, "message", '"other"'),
        ({"reason": "Other"}, "reason", '"Other"'),
        ({"type": "Warning"}, "type", '"Warning"'),
        ({"action": "Other"}, "action", '"Other"'),
        ({"eventTime": "2026-01-01T00:00:00.000001Z"}, "eventTime", '"2026-01-01T00:00:00.000001Z"'),
        ({"reportingController": "other"}, "reportingController", '"other"'),
        ({"reportingInstance": "other"}, "reportingInstance", '"other"'),
    ],
)
def test_nothing_but_the_series_changes(
    admin: Client, events: str, patch: dict[str, str], field: str, value: str
) -> None:
    admin.create(events, event(events, "a")).ok()
    message = f"Invalid value: {value}: field is immutable"
    answer = admin.patch(f"{events}/a", patch)
    assert answer.refused(422, "Invalid") == f'Event "a" is invalid: {field}: {message}'
    assert answer.body["details"]["causes"] == [{"reason": "FieldValueInvalid", "message": message, "field": field}]


def test_whom_an_event_regards_does_not_change(admin: Client, events: str) -> None:
    admin.create(events, event(events, "a")).ok()
    message = admin.patch(f"{events}/a", {"regarding": {"name": "other"}}).refused(422, "Invalid")
    assert message.startswith('Event "a" is invalid: involvedObject: Invalid value: ')
    assert message.endswith(": field is immutable")


def test_events_about_things_without_a_namespace(server: Server, admin: Client) -> None:
    """They belong into `default`, or into kube-system."""
    regarding = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "name": "n1"}
    for home in ("default", "kube-system"):
        path = f"/apis/events.k8s.io/v1/namespaces/{home}/events"
        name = server.unique("event")
        assert admin.create(path, event(path, name, regarding=regarding)).ok()["regarding"] == regarding
        admin.delete(f"{path}/{name}").ok()


def test_the_core_group_asks_for_little(admin: Client, core: str) -> None:
    home = core.split("/")[-2]
    involved = {"involvedObject": {"namespace": home}}
    created = admin.create(core, {"metadata": {"name": "a"}, **involved}).ok()
    assert (created["source"], created["firstTimestamp"], created["lastTimestamp"]) == ({}, None, None)
    assert admin.create(core, {"metadata": {"name": "b"}, **involved, "type": "Odd"}).ok()["type"] == "Odd"
    admin.create(core, {"metadata": {"name": "c"}, **involved, "message": "x" * 2000}).ok()
    assert admin.patch(f"{core}/c", {"message": "other"}).ok()["message"] == "other"
    for wrong in ({}, {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "elsewhere"}}):
        answer = admin.create(core, {"metadata": {"name": "d"}, **wrong})
        named = wrong.get("involvedObject", {}).get("namespace", "")
        rule = f'Invalid value: "{named}": does not match event.namespace'
        assert answer.refused(422, "Invalid") == f'Event "d" is invalid: involvedObject.namespace: {rule}'


def test_a_core_event_with_a_time_of_its_own_needs_the_rest_too(admin: Client, core: str) -> None:
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": core.split("/")[-2]}, "eventTime": T0}
    answer = admin.create(core, body)
    answer.refused(422, "Invalid")
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [
        *["reportingComponent"] * 3,
        *("reportingInstance", "action", "reason"),
    ]
    rest = {"reportingComponent": "a/b", "reportingInstance": "x", "action": "a", "reason": "r"}
    assert admin.create(core, {**body, **rest}).ok()["eventTime"] == T0


def test_events_are_found_by_what_they_regard(server: Server, admin: Client, events: str, core: str) -> None:
    name = server.unique("pod")
    home = core.split("/")[-2]
    regarding = {"kind": "Pod", "name": name, "namespace": home, "apiVersion": "v1"}
    admin.create(events, event(events, "a", regarding=regarding)).ok()
    admin.create(events, event(events, "b")).ok()

    def found(path: str, selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in admin.get(path, fieldSelector=selector).ok()["items"]]

    assert found(events, f"regarding.name={name}") == ["a"]
    assert found(core, f"involvedObject.name={name},involvedObject.kind=Pod") == ["a"]
    assert found(core, "source=muster.dev/controller") == ["a", "b"]
    assert found(events, "reportingController=muster.dev/controller,reason=Held,type=Normal") == ["a", "b"]
    assert found(events, "reason=Other") == []


def test_one_watch_sees_the_events_of_both_groups(admin: Client, events: str, core: str) -> None:
    start = admin.get(events).ok()["metadata"]["resourceVersion"]
    with admin.watch(events, resourceVersion=start) as watch:
        involved = {"kind": "Pod", "name": "p", "namespace": core.split("/")[-2]}
        admin.create(core, {"metadata": {"name": "old"}, "involvedObject": involved, "message": "m"}).ok()
        admin.create(events, event(events, "new")).ok()
        seen = [(obj["apiVersion"], obj["metadata"]["name"], obj.get("note")) for _, obj in watch.take(2)]
        assert seen == [("events.k8s.io/v1", "old", "m"), ("events.k8s.io/v1", "new", "hello")]
