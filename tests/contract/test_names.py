"""Names, generated names, labels, annotations, finalizers and owners."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.client import Answer, Client
from tests.contract.samples import causes, configs_of, define_things, meta, pod_spec, workload_spec
from tests.contract.server import Server

SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
LONG = "a" * 254
BAD = ("Upper", "a_b", "-a", "a..b", "a/b", "system:x")


def _told(answer: Answer) -> list[str]:
    """What is said about the name."""
    told = [cause["message"] for cause in answer.body["details"]["causes"] if cause["field"] == "metadata.name"]
    return [text.partition('": ')[2] for text in told]


def _collections(namespace: str) -> dict[str, tuple[str, dict[str, Any]]]:
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    return {
        "Node": ("/api/v1/nodes", {}),
        "ConfigMap": (f"{core}/configmaps", {}),
        "Secret": (f"{core}/secrets", {}),
        "ServiceAccount": (f"{core}/serviceaccounts", {}),
        "Pod": (f"{core}/pods", {"spec": pod_spec()}),
        "Lease": (f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {}),
        "Deployment": (f"{apps}/deployments", {"spec": workload_spec()}),
        "DaemonSet": (f"{apps}/daemonsets", {"spec": workload_spec()}),
        "Namespace": ("/api/v1/namespaces", {}),
        "Service": (f"{core}/services", {"spec": {"ports": [{"port": 80}]}}),
        "Role": (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles", {}),
        "PodDisruptionBudget": (f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {}),
        "Event": (f"{core}/events", {"involvedObject": {"namespace": namespace}}),
    }


@pytest.mark.parametrize(
    "kind", ["Node", "ConfigMap", "Secret", "ServiceAccount", "Pod", "Lease", "Deployment", "DaemonSet"]
)
def test_names_that_are_subdomains(admin: Client, namespace: str, kind: str) -> None:
    path, body = _collections(namespace)[kind]

    def create(name: str) -> Answer:
        return admin.create(path, {**body, "metadata": {"name": name}}, dryRun="All")

    for name in ("a.b", "9a", "a" * 63):
        assert create(name).status == 201, name
    for name in BAD:
        answer = create(name)
        answer.refused(422, "Invalid")
        assert _told(answer)[0].startswith(SUBDOMAIN), name
    assert _told(create(LONG)) == ["must be no more than 253 characters"]


@pytest.mark.parametrize("kind", ["Namespace", "Service"])
def test_names_that_are_labels(admin: Client, namespace: str, kind: str) -> None:
    path, body = _collections(namespace)[kind]

    def create(name: str) -> Answer:
        return admin.create(path, {**body, "metadata": {"name": name}}, dryRun="All")

    assert create("9a").status == 201
    for name in BAD:
        assert _told(create(name))[0].startswith(LABEL), name
    assert _told(create("a.b")) == ["must not contain dots"]
    assert _told(create("a" * 64)) == ["must be no more than 63 characters"]


@pytest.mark.parametrize("kind", ["Role", "PodDisruptionBudget", "Event"])
def test_names_that_are_parts_of_a_path(admin: Client, namespace: str, kind: str) -> None:
    path, body = _collections(namespace)[kind]

    def create(name: str) -> Answer:
        return admin.create(path, {**body, "metadata": {"name": name}}, dryRun="All")

    for name in ("Upper", "a_b", "-a", "a..b", "system:x", LONG):
        assert create(name).status == 201, name
    assert _told(create("a/b")) == ["may not contain '/'"]
    assert _told(create("a%")) == ["may not contain '%'"]
    assert _told(create("..")) == ["may not be '..'"]


def test_names_of_custom_resources(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    assert admin.create(things.path, things.thing("a.b"), dryRun="All").status == 201
    answer = admin.create(things.path, things.thing("Upper"), dryRun="All")
    assert _told(answer)[0].startswith(SUBDOMAIN)
    assert _told(admin.create(things.path, things.thing(LONG), dryRun="All")) == [
        "must be no more than 253 characters"
    ]


def test_pods_are_told_about_bad_hostnames(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = admin.create(path, {"metadata": {"name": "a.b"}, "spec": pod_spec()}, dryRun="All")
    advice = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
    assert answer.headers["warning"] == f'299 - "metadata.name: {advice}: [must not contain dots]"'
    assert "warning" not in admin.create(path, {"metadata": {"name": "a"}, "spec": pod_spec()}, dryRun="All").headers


def test_generated_names(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    made = meta(admin.create(configs, {"metadata": {"generateName": "abc-"}}).ok())
    assert re.fullmatch(r"abc-[bcdfghjklmnpqrstvwxz2456789]{5}", made["name"])
    assert made["generateName"] == "abc-"
    long = meta(admin.create(configs, {"metadata": {"generateName": "a" * 100}}).ok())
    assert len(long["name"]) == 63
    assert long["generateName"] == "a" * 100
    named = meta(admin.create(configs, {"metadata": {"generateName": "x-", "name": "given"}}).ok())
    assert (named["name"], named["generateName"]) == ("given", "x-")
    names = {meta(admin.create(configs, {"metadata": {"generateName": "n-"}}).ok())["name"] for _ in range(10)}
    assert len(names) == 10


def test_generated_names_that_cannot_be(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    answer = admin.create(configs, {"metadata": {"generateName": "A_"}})
    answer.refused(422, "Invalid")
    invalid = "FieldValueInvalid"
    assert causes(answer.body) == [("metadata.generateName", invalid), ("metadata.name", invalid)]
    answer = admin.create(configs, {"metadata": {"generateName": "a" * 300}})
    assert causes(answer.body) == [("metadata.generateName", invalid)]
    answer = admin.create(configs, {"metadata": {"generateName": "a."}})
    assert causes(answer.body) == [("metadata.generateName", invalid)]
    answer = admin.create(configs, {"metadata": {}})
    text = answer.refused(422, "Invalid")
    assert text == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert answer.body["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("", ["name part must be non-empty", "name part must consist of alphanumeric"]),
        ("a b", ["name part must consist of alphanumeric"]),
        ("-a", ["name part must consist of alphanumeric"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("x.y/", ["name part must be non-empty", "name part must consist of alphanumeric"]),
        ("/x", ["prefix part must be non-empty"]),
        ("a b/c", [f"prefix part {SUBDOMAIN}"]),
        ("a/b/c", ["a valid label key must consist of alphanumeric"]),
        (f"{LONG}/b", ["prefix part must be no more than 253 bytes"]),
        ("Ä", ["name part must consist of alphanumeric"]),
    ],
)
def test_keys_of_labels_and_annotations(admin: Client, namespace: str, key: str, told: list[str]) -> None:
    for where in ("labels", "annotations"):
        body = {"metadata": {"name": "a", where: {key: "v"}}}
        answer = admin.create(configs_of(namespace), body, dryRun="All")
        answer.refused(422, "Invalid")
        found = [cause["message"] for cause in answer.body["details"]["causes"]]
        assert {cause["field"] for cause in answer.body["details"]["causes"]} == {f"metadata.{where}"}
        # Annotations are checked in lower case, but quoted as they came.
        starts = [f'Invalid value: "{key}": {text}' for text in told]
        assert len(found) == len(starts)
        assert all(text.startswith(start) for text, start in zip(found, starts, strict=True)), found


def test_annotations_take_more_than_labels(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    kept = {"Upper.io/Name": "", "k": "any text at all / \n ä"}
    made = admin.create(configs, {"metadata": {"name": "a", "annotations": kept}}).ok()
    assert meta(made)["annotations"] == kept
    answer = admin.create(configs, {"metadata": {"name": "b", "labels": {"Upper.io/Name": ""}}})
    assert causes(answer.body) == [("metadata.labels", "FieldValueInvalid")]
    answer = admin.create(configs, {"metadata": {"name": "b", "annotations": {"k": "x" * (256 * 1024)}}})
    text = answer.refused(422, "Invalid")
    assert text == 'ConfigMap "b" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes'


@pytest.mark.parametrize("value", ["a b", "-a", "a.", "Ä"])
def test_values_of_labels(admin: Client, namespace: str, value: str) -> None:
    answer = admin.create(configs_of(namespace), {"metadata": {"name": "a", "labels": {"k": value}}}, dryRun="All")
    text = answer.refused(422, "Invalid")
    advice = "a valid label must be an empty string or consist of alphanumeric characters"
    assert text.startswith(f'ConfigMap "a" is invalid: metadata.labels: Invalid value: "{value}": {advice}')


def test_lengths_of_label_values(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    for value in ("", "a" * 63):
        made = admin.create(configs, {"metadata": {"name": "a", "labels": {"k": value}}}, dryRun="All").ok()
        assert meta(made)["labels"] == {"k": value}
    text = admin.create(configs, {"metadata": {"name": "a", "labels": {"k": "a" * 64}}}).refused(422, "Invalid")
    assert text.endswith(": must be no more than 63 bytes")


def test_finalizers(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)

    def create(*finalizers: str) -> Answer:
        return admin.create(configs, {"metadata": {"name": "a", "finalizers": list(finalizers)}}, dryRun="All")

    assert meta(create("example.com/a", "kubernetes", "orphan").ok())["finalizers"][0] == "example.com/a"
    text = create("plain").refused(422, "Invalid")
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    assert text == f'ConfigMap "a" is invalid: metadata.finalizers[0]: Invalid value: "plain": {detail}'
    text = create("a b/c").refused(422, "Invalid")
    assert f'metadata.finalizers: Invalid value: "a b/c": prefix part {SUBDOMAIN}' in text
    text = create("orphan", "foregroundDeletion").refused(422, "Invalid")
    listed = '["orphan","foregroundDeletion"]'
    detail = "finalizer orphan and foregroundDeletion cannot be both set"
    assert text == f'ConfigMap "a" is invalid: metadata.finalizers: Invalid value: {listed}: {detail}'


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}


def test_owners(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)

    def create(*owners: dict[str, Any]) -> Answer:
        return admin.create(configs, {"metadata": {"name": "a", "ownerReferences": list(owners)}}, dryRun="All")

    assert meta(create(OWNER).ok())["ownerReferences"] == [OWNER]
    empty = create({})
    paths = [f"metadata.ownerReferences[0].{name}" for name in ("apiVersion", "kind", "name", "uid")]
    assert causes(empty.body) == [(path, "FieldValueRequired") for path in paths]
    text = create({**OWNER, "apiVersion": "a/b/c"}).refused(422, "Invalid")
    assert text.endswith('apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>')
    text = create({**OWNER, "kind": "Event"}).refused(422, "Invalid")
    assert text.endswith("/v1, Kind=Event is disallowed from being an owner")
    text = create({**OWNER, "controller": True}, {**OWNER, "uid": "v", "controller": True}).refused(422, "Invalid")
    found = 'Found "true" in references for ConfigMap/x and ConfigMap/x'
    assert text.endswith(f"Only one reference can have Controller set to true. {found}")


def test_owners_that_stand_twice(admin: Client, namespace: str) -> None:
    body = {"metadata": {"name": "a", "ownerReferences": [OWNER, OWNER]}}
    answer = admin.create(configs_of(namespace), body, dryRun="All")
    assert meta(answer.ok())["ownerReferences"] == [OWNER]
    assert ".metadata.ownerReferences contains duplicate entries" in answer.headers["warning"]
    assert answer.headers["warning"].endswith('duplicate UID(s) observed: u"')


@pytest.mark.parametrize(
    "place",
    [
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
        "/api/v1/namespaces/{namespace}/events",
    ],
)
def test_kinds_that_take_any_finalizer(admin: Client, namespace: str, place: str) -> None:
    about = {"involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p"}} if "events" in place else {}

    def create(*finalizers: str) -> Answer:
        body = {"metadata": {"name": "a", "finalizers": list(finalizers)}, **about}
        return admin.create(place.format(namespace=namespace), body, dryRun="All")

    assert meta(create("plain").ok())["finalizers"] == ["plain"]
    assert "a b/c" in create("a b/c").refused(422, "Invalid")
    assert "cannot be both set" in create("orphan", "foregroundDeletion").refused(422, "Invalid")


def test_custom_resources_take_any_finalizer_with_a_warning(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    made = admin.create(things.path, things.thing("a", finalizers=["plain"]), dryRun="All")
    assert meta(made.ok())["finalizers"] == ["plain"]
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    assert advice in made.headers["warning"]
