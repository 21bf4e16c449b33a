"""Service accounts with rights, for tests of who may do what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.contract.client import Client
from tests.contract.server import Server, eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
IDENTITY = "/apis/authentication.k8s.io/v1"
Rule = Mapping[str, Sequence[str]]


def rule(group: str, resources: str, verbs: str, names: str = "") -> dict[str, list[str]]:
    """A PolicyRule from words separated by spaces."""
    found = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**found, "resourceNames": names.split()} if names else found


def make_account(server: Server, namespace: str, name: str) -> str:
    """The path of a new service account."""
    server.admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}).ok()
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"


def token_of(server: Server, namespace: str, name: str, **spec: Any) -> str:
    """A token of a service account; `spec` as in a TokenRequest."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = server.admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
    return str(answer.ok()["status"]["token"])


def grant(server: Server, namespace: str, account: str, *rules: Rule, cluster: bool = False) -> str:
    """Give rights to an account in its namespace, or everywhere. Returns the name of role and binding."""
    name = server.unique("grant")
    where, kind = (f"{RBAC}/cluster", "ClusterRole") if cluster else (f"{RBAC}/namespaces/{namespace}/", "Role")
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    server.admin.create(f"{where}roles", {"metadata": {"name": name}, "rules": list(rules)}).ok()
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    server.admin.create(f"{where}rolebindings", binding).ok()
    return name


def may(client: Client, verb: str, resource: str, **more: str) -> dict[str, Any]:
    """The status of a review of one's own access."""
    attributes = {"verb": verb, "resource": resource, **more}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status: dict[str, Any] = client.create(f"{REVIEWS}/selfsubjectaccessreviews", body).ok()["status"]
    return status


def holder(server: Server, namespace: str, *rules: Rule, cluster: bool = False, **spec: Any) -> Client:
    """A client of a new account that holds `rules`, once the server knows that it does."""
    name = server.unique("holder")
    make_account(server, namespace, name)
    if rules:
        grant(server, namespace, name, *rules, cluster=cluster)
    client = server.client(token_of(server, namespace, name, **spec))
    for asked in rules:
        _wait_for(client, asked, "" if cluster else namespace)
    return client


def _wait_for(client: Client, asked: Rule, namespace: str) -> None:
    resource, _, subresource = asked["resources"][0].partition("/")
    names = asked.get("resourceNames") or [""]
    more = {"namespace": namespace, "subresource": subresource, "group": asked["apiGroups"][0], "name": names[0]}
    eventually(lambda: may(client, asked["verbs"][0], resource, **more)["allowed"])


def user_name(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def whoami(client: Client) -> dict[str, Any]:
    """Name, groups and extra facts by which the server knows a client."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found: dict[str, Any] = client.create(f"{IDENTITY}/selfsubjectreviews", body).ok()["status"]["userInfo"]
    return found
