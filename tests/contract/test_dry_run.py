"""Dry runs: everything is checked and answered, and nothing is stored."""

from __future__ import annotations

from typing import Any

from tests.contract.client import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.contract.samples import Things, configs_of, meta, pod_spec


def test_create(admin: Client, namespace: str, things: Things) -> None:
    for path, body in (
        (configs_of(namespace), {"metadata": {"name": "a"}, "data": {"k": "1"}}),
        (f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "a"}, "spec": pod_spec()}),
        (things.path, things.thing("a")),
    ):
        answer = admin.create(path, body, dryRun="All")
        assert answer.status == 201
        got = meta(answer.ok())
        assert got["uid"]
        assert got["creationTimestamp"]
        assert "resourceVersion" not in got
        assert admin.get(f"{path}/a").status == 404
        assert admin.create(path, body).status == 201
        again = admin.create(path, body, dryRun="All")
        assert again.refused(409, "AlreadyExists")


def test_generated_names(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    name = meta(admin.create(configs, {"metadata": {"generateName": "a-"}}, dryRun="All").ok())["name"]
    assert name.startswith("a-")
    assert len(name) == 7
    assert admin.get(f"{configs}/{name}").status == 404


def test_defaults_and_validation(admin: Client, namespace: str, things: Things) -> None:
    made = admin.create(things.path, things.thing("a"), dryRun="All").ok()
    assert made["spec"]["colour"] == "red"
    bad = {**things.thing("a"), "spec": {"count": 0}}
    assert admin.create(things.path, bad, dryRun="All").refused(422, "Invalid")
    assert admin.create(configs_of(namespace), {"metadata": {"name": "A"}}, dryRun="All").refused(422, "Invalid")
    nowhere = admin.create("/api/v1/namespaces/nope-nope/configmaps", {"metadata": {"name": "a"}}, dryRun="All")
    assert nowhere.refused(404, "NotFound")


def test_changes(admin: Client, namespace: str, things: Things) -> None:
    patches: dict[str, list[tuple[str, Any]]] = {
        configs_of(namespace): [
            (MERGE, {"data": {"k": "2"}}),
            (STRATEGIC, {"data": {"k": "2"}}),
            (JSON_PATCH, [{"op": "replace", "path": "/data/k", "value": "2"}]),
        ],
        things.path: [
            (MERGE, {"spec": {"count": 2}}),
            (JSON_PATCH, [{"op": "add", "path": "/spec/count", "value": 2}]),
        ],
    }
    for path, changes in patches.items():
        body = {"metadata": {"name": "a"}, "data": {"k": "1"}} if path != things.path else things.thing("a")
        before = admin.create(path, body).ok()
        for media, patch in changes:
            answer = admin.patch(f"{path}/a", patch, media, dryRun="All").ok()
            assert answer.get("data", answer.get("spec")) != before.get("data", before.get("spec"))
            assert meta(answer)["resourceVersion"] == meta(before)["resourceVersion"]
        put = {**before, "metadata": {**meta(before), "labels": {"x": "1"}}}
        replaced = admin.replace(f"{path}/a", put, dryRun="All").ok()
        assert meta(replaced)["labels"] == {"x": "1"}
        assert meta(replaced)["resourceVersion"] == meta(before)["resourceVersion"]
        assert admin.get(f"{path}/a").ok() == before
        stale = {**put, "metadata": {**put["metadata"], "resourceVersion": "1"}}
        assert admin.replace(f"{path}/a", stale, dryRun="All").refused(409, "Conflict")


def test_a_generation_that_would_be(admin: Client, things: Things) -> None:
    admin.create(things.path, things.thing("a")).ok()
    for _ in range(2):
        would = admin.patch(f"{things.path}/a", {"spec": {"count": 2}}, dryRun="All").ok()
        assert meta(would)["generation"] == 2
    status = admin.patch(f"{things.path}/a/status", {"status": {"seen": "x"}}, dryRun="All").ok()
    assert status["status"] == {"seen": "x"}
    assert "status" not in admin.get(f"{things.path}/a").ok()


def test_deletions(admin: Client, namespace: str, things: Things) -> None:
    for path, body in ((configs_of(namespace), {"metadata": {"name": "a"}}), (things.path, things.thing("a"))):
        admin.create(path, body).ok()
        for options, params in ((None, {"dryRun": "All"}), ({"dryRun": ["All"]}, {})):
            answer = admin.delete(f"{path}/a", options, **params)
            assert answer.ok()["status"] == "Success"
            assert admin.get(f"{path}/a").status == 200
        missing = admin.delete(f"{path}/nope", dryRun="All")
        assert missing.refused(404, "NotFound")
        wrong = {"dryRun": ["All"], "preconditions": {"uid": "other"}}
        assert admin.delete(f"{path}/a", wrong).refused(409, "Conflict")


def test_a_dry_run_leaves_no_trace_in_later_versions(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    first = admin.create(configs, {"metadata": {"name": "a"}, "data": {"k": "1"}}).ok()
    admin.patch(f"{configs}/a", {"data": {"k": "2"}}, dryRun="All", fieldManager="trial").ok()
    second = admin.patch(f"{configs}/a", {"data": {"z": "3"}}).ok()
    assert second["data"] == {"k": "1", "z": "3"}
    assert "trial" not in [entry["manager"] for entry in meta(second)["managedFields"]]
    assert meta(second)["uid"] == meta(first)["uid"]
