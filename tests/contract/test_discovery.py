"""What a server says about what it serves: groups, resources, and descriptions of their fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.resources.crd import manifests
from tests.contract.client import Client
from tests.contract.server import Server, eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
GROUPS = [
    *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "authentication.k8s.io"),
    *("authorization.k8s.io", "batch", "coordination.k8s.io", "events.k8s.io", "policy"),
    *("rbac.authorization.k8s.io", "scheduling.k8s.io"),
]


@pytest.fixture
def muster_kinds(admin: Client) -> None:
    for manifest in manifests():
        assert admin.create(CRDS, manifest).status in (201, 409)
    eventually(lambda: admin.get("/apis/muster.dev/v1alpha1/nodehealths").status == 200)


def test_versions_of_the_core_group(admin: Client) -> None:
    found = admin.get("/api").ok()
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


def test_groups(admin: Client, muster_kinds: None) -> None:
    found = admin.get("/apis").ok()
    assert (found["kind"], found["apiVersion"]) == ("APIGroupList", "v1")
    groups = {group["name"]: group for group in found["groups"]}
    assert set(GROUPS) < set(groups)
    version = {"groupVersion": "muster.dev/v1alpha1", "version": "v1alpha1"}
    expected = {"name": "muster.dev", "versions": [version], "preferredVersion": version}
    assert groups["muster.dev"] == expected
    assert admin.get("/apis/muster.dev").ok() == {"kind": "APIGroup", "apiVersion": "v1", **expected}


def test_the_aggregated_groups_say_the_same(admin: Client, muster_kinds: None) -> None:
    answer = admin.request("GET", "/apis", accept=f"{AGGREGATED},application/json")
    found = answer.ok()
    assert answer.headers["content-type"] == AGGREGATED
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    groups = {item["metadata"]["name"]: item for item in found["items"]}
    assert set(GROUPS) < set(groups)
    (version,) = groups["muster.dev"]["versions"]
    assert (version["version"], version["freshness"]) == ("v1alpha1", "Current")
    health = {resource["resource"]: resource for resource in version["resources"]}["nodehealths"]
    kind = {"group": "muster.dev", "version": "v1alpha1", "kind": "NodeHealth"}
    assert sorted(health.pop("verbs")) == VERBS
    assert health == {
        "resource": "nodehealths",
        "responseKind": kind,
        "scope": "Cluster",
        "singularResource": "nodehealth",
        "shortNames": ["nh"],
        "categories": ["muster"],
        "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}],
    }


def test_the_aggregated_core_group(admin: Client) -> None:
    found = admin.request("GET", "/api", accept=f"{AGGREGATED},application/json").ok()
    (version,) = found["items"][0]["versions"]
    resources = {resource["resource"]: resource for resource in version["resources"]}
    assert {"nodes", "pods", "configmaps", "events", "namespaces", "serviceaccounts", "bindings"} <= set(resources)
    pods = resources["pods"]
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert (pods["scope"], pods["shortNames"], pods["categories"]) == ("Namespaced", ["po"], ["all"])
    subresources = {part["subresource"]: part for part in pods["subresources"]}
    assert subresources["eviction"] == {
        "subresource": "eviction",
        "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "verbs": ["create"],
    }
    assert resources["namespaces"]["verbs"] == [verb for verb in VERBS if verb != "deletecollection"]


SAME = {
    "/api/v1": [
        "nodes",
        "nodes/status",
        "pods",
        "pods/eviction",
        "pods/binding",
        "configmaps",
        "serviceaccounts/token",
    ],
    "/apis/policy/v1": ["poddisruptionbudgets", "poddisruptionbudgets/status"],
    "/apis/authorization.k8s.io/v1": [
        "selfsubjectaccessreviews",
        "subjectaccessreviews",
        "localsubjectaccessreviews",
    ],
    "/apis/coordination.k8s.io/v1": ["leases"],
    "/apis/admissionregistration.k8s.io/v1": ["validatingadmissionpolicies", "mutatingadmissionpolicies"],
    "/apis/rbac.authorization.k8s.io/v1": ["roles", "clusterrolebindings"],
}


@pytest.mark.parametrize("path", SAME)
def test_resources_of_a_version(admin: Client, path: str) -> None:
    found = admin.get(path).ok()
    # The core group leaves out the version of the list itself.
    assert (found["kind"], found.get("apiVersion")) == ("APIResourceList", None if path == "/api/v1" else "v1")
    assert found["groupVersion"] == path.removeprefix("/apis/").removeprefix("/api/")
    names = [resource["name"] for resource in found["resources"]]
    assert names == sorted(names)
    assert set(SAME[path]) <= set(names)


def test_one_resource(admin: Client) -> None:
    listed = {resource["name"]: resource for resource in admin.get("/api/v1").ok()["resources"]}
    pods = {key: value for key, value in listed["pods"].items() if key != "storageVersionHash"}
    assert pods == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert listed["serviceaccounts/token"] == {
        "name": "serviceaccounts/token",
        "singularName": "",
        "namespaced": True,
        "group": "authentication.k8s.io",
        "version": "v1",
        "kind": "TokenRequest",
        "verbs": ["create"],
    }


def test_what_is_not_served(admin: Client) -> None:
    for path in ("/apis/nope.example", "/nonsense"):
        answer = admin.get(path)
        assert (answer.status, answer.content) == (404, b"404 page not found\n")
    for path in ("/apis/apps/v2", "/apis/policy/v1/nopes"):
        assert admin.get(path).status == 404


# OpenAPI


def document(admin: Client, path: str) -> dict[str, Any]:
    index = admin.get("/openapi/v3").body["paths"]
    return admin.get(index[path]["serverRelativeURL"]).ok()


def schema_of(found: dict[str, Any], group: str, version: str, kind: str) -> dict[str, Any]:
    wanted = {"group": group, "version": version, "kind": kind}
    schemas = found["components"]["schemas"].values()
    return next(s for s in schemas if wanted in s.get("x-kubernetes-group-version-kind", ()))


def test_a_custom_resource_is_described_by_its_schema(admin: Client, muster_kinds: None) -> None:
    path = "apis/muster.dev/v1alpha1"
    # A real server publishes a new group a moment after it serves it, and its kinds one by one.
    eventually(lambda: path in admin.get("/openapi/v3").body["paths"])
    eventually(lambda: "NodeHealth" in json.dumps(document(admin, path)["components"]["schemas"]))
    found = document(admin, path)
    assert found["openapi"] == "3.0.0"
    health = schema_of(found, "muster.dev", "v1alpha1", "NodeHealth")
    manifest = next(m for m in manifests() if m["spec"]["names"]["kind"] == "NodeHealth")
    declared = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(health["properties"]) == set(declared["properties"]) | {"apiVersion", "kind", "metadata"}
    assert set(health["properties"]["spec"]["properties"]) == set(declared["properties"]["spec"]["properties"])
    operation = found["paths"]["/apis/muster.dev/v1alpha1/nodehealths/{name}"]["patch"]
    assert operation["x-kubernetes-action"] == "patch"
    assert operation["x-kubernetes-group-version-kind"]["kind"] == "NodeHealth"
    assert "application/apply-patch+yaml" in operation["requestBody"]["content"]


def resolved(found: dict[str, Any], schema: dict[str, Any], *path: str) -> dict[str, Any]:
    """The schema of a field, references followed."""
    for name in (*path, ""):
        while inner := schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref"):
            schema = found["components"]["schemas"][inner.rpartition("/")[2]]
        if name:
            schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def test_the_fields_of_built_in_kinds(server: Server, admin: Client) -> None:
    found = document(admin, "api/v1")
    node = schema_of(found, "", "v1", "Node")
    assert set(resolved(found, node, "spec", "taints", "[]")["properties"]) == {"key", "value", "effect", "timeAdded"}
    assert resolved(found, node, "spec", "unschedulable")["type"] == "boolean"
    pod = schema_of(found, "", "v1", "Pod")
    container = resolved(found, pod, "spec", "containers", "[]")["properties"]
    assert {"name", "image", "resources", "env", "volumeMounts"} <= set(container)
    policy = document(admin, "apis/policy/v1")
    budget = schema_of(policy, "policy", "v1", "PodDisruptionBudget")
    assert {"minAvailable", "maxUnavailable", "selector"} <= set(resolved(policy, budget, "spec")["properties"])
