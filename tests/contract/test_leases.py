"""Leases, as an election uses them: created, renewed, taken over, given back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client

T0 = "2026-01-01T00:00:00.000000Z"
T1 = "2026-01-01T00:00:10.123456Z"


@pytest.fixture
def path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def held(name: str, holder: str) -> dict[str, Any]:
    return lease(
        name, holderIdentity=holder, leaseDurationSeconds=15, acquireTime=T0, renewTime=T0, leaseTransitions=1
    )


def test_a_lease_comes_back_as_it_was_sent(admin: Client, path: str) -> None:
    created = admin.create(path, held("a", "x")).ok()
    assert created["spec"] == held("a", "x")["spec"]
    assert "generation" not in created["metadata"]
    assert "status" not in created
    assert admin.get(f"{path}/a").ok() == created


def test_a_lease_is_renewed_and_taken_over_only_as_it_was_read(admin: Client, path: str) -> None:
    read = admin.create(path, held("a", "x")).ok()
    renewed = admin.replace(f"{path}/a", {**read, "spec": {**read["spec"], "renewTime": T1}}).ok()
    assert renewed["spec"]["renewTime"] == T1
    assert renewed["metadata"]["resourceVersion"] != read["metadata"]["resourceVersion"]
    stale = {**read, "spec": {**read["spec"], "holderIdentity": "thief", "leaseTransitions": 2}}
    answer = admin.replace(f"{path}/a", stale)
    assert answer.refused(409, "Conflict") == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "a": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    assert answer.body["details"] == {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}
    taken = admin.replace(f"{path}/a", {**renewed, "spec": stale["spec"]}).ok()
    assert (taken["spec"]["holderIdentity"], taken["spec"]["leaseTransitions"]) == ("thief", 2)


def test_a_lease_is_given_back_by_an_empty_holder(admin: Client, path: str) -> None:
    read = admin.create(path, held("a", "x")).ok()
    free = admin.replace(f"{path}/a", {**read, "spec": {**read["spec"], "holderIdentity": ""}}).ok()
    assert free["spec"]["holderIdentity"] == ""
    gone = admin.patch(f"{path}/a", {"spec": {"holderIdentity": None}}).ok()
    assert "holderIdentity" not in gone["spec"]


def test_a_replacement_must_say_which_version_it_replaces(admin: Client, path: str) -> None:
    admin.create(path, held("a", "x")).ok()
    answer = admin.replace(f"{path}/a", held("a", "y"))
    message = answer.refused(422, "Invalid")
    assert message == (
        'leases.coordination.k8s.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )
    assert answer.body["details"]["kind"] == "leases"


def test_a_renewal_that_changes_nothing_is_no_new_version(admin: Client, path: str) -> None:
    read = admin.create(path, held("a", "x")).ok()
    assert admin.replace(f"{path}/a", read).ok()["metadata"] == read["metadata"]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds", "Invalid value: 0: must be greater than 0"),
        ({"leaseDurationSeconds": -5}, "spec.leaseDurationSeconds", "Invalid value: -5: must be greater than 0"),
        (
            {"leaseTransitions": -1},
            "spec.leaseTransitions",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
)
def test_durations_and_counts(admin: Client, path: str, spec: dict[str, int], field: str, message: str) -> None:
    answer = admin.create(path, lease("a", **spec))
    assert answer.refused(422, "Invalid") == f'Lease.coordination.k8s.io "a" is invalid: {field}: {message}'
    assert answer.body["details"] == {
        "name": "a",
        "group": "coordination.k8s.io",
        "kind": "Lease",
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": field}],
    }
    admin.create(path, held("a", "x")).ok()
    admin.patch(f"{path}/a", {"spec": spec}).refused(422, "Invalid")


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": "2026-01-01T00:00:00Z"},
        {"renewTime": "2026-01-01T00:00:00.123456789Z"},
        {"renewTime": "2026-01-01T00:00:00.5Z"},
        {"renewTime": "yesterday"},
        {"renewTime": 5},
        {"leaseDurationSeconds": "15"},
        {"leaseDurationSeconds": 1.5},
        {"holderIdentity": 5},
        {"holderIdentity": ["x"]},
    ],
)
def test_values_of_another_type(admin: Client, path: str, spec: dict[str, Any]) -> None:
    """Times have exactly six decimals."""
    message = admin.create(path, lease("a", **spec)).refused(400, "BadRequest")
    assert message.startswith('Lease in version "v1" cannot be handled as a Lease: ')


def test_a_lease_may_say_nothing(admin: Client, path: str) -> None:
    assert admin.create(path, {"metadata": {"name": "a"}}).ok()["spec"] == {}
    assert admin.create(path, {"metadata": {"name": "b"}, "spec": None}).ok()["spec"] == {}


def test_a_lease_is_applied_by_an_agent(admin: Client, path: str) -> None:
    """The heartbeat of an agent: server-side apply, created the first time."""
    body = lease("agent-n1", holderIdentity="n1", leaseDurationSeconds=40, renewTime=T0)
    first = admin.apply(f"{path}/agent-n1", body, manager="muster-agent", force="true")
    assert first.status == 201
    body["spec"]["renewTime"] = T1
    second = admin.apply(f"{path}/agent-n1", body, manager="muster-agent", force="true")
    assert second.status == 200
    assert second.ok()["spec"] == body["spec"]
    (entry,) = second.ok()["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("muster-agent", "Apply")
