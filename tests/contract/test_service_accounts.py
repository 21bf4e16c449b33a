"""Service accounts: the default one, their tokens, and what ends a token."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.contract.accounts import make_account, token_of, user_name, whoami
from tests.contract.client import Client
from tests.contract.server import REAL, Server, eventually

PREFIX = "authentication.kubernetes.io"
CACHED_S = 10.0
"""A real API server takes a token that it has just seen for about as long without looking again."""


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return decoded


@pytest.fixture
def account(server: Server, namespace: str) -> str:
    name = server.unique("account")
    make_account(server, namespace, name)
    return name


@pytest.fixture
def node(server: Server, admin: Client) -> Any:
    """A node of this test alone."""
    name = server.unique("node")
    yield admin.create("/api/v1/nodes", {"metadata": {"name": name}}).ok()
    admin.delete(f"/api/v1/nodes/{name}")


def make_pod(admin: Client, namespace: str, account: str, node: str = "") -> dict[str, Any]:
    spec = {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": node} if node else spec}
    return admin.create(f"/api/v1/namespaces/{namespace}/pods", body).ok()


def reference(pod: dict[str, Any]) -> dict[str, str]:
    return {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"]}


def ask(admin: Client, namespace: str, account: str, **spec: Any) -> Any:
    return admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", {"spec": spec})


def test_every_namespace_has_a_default_account(admin: Client, namespace: str, controllers: None) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    first = admin.get(path).ok()
    admin.delete(path).ok()
    eventually(lambda: admin.get(path).status == 200)
    assert admin.get(path).ok()["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_token_says_whose_it_is(server: Server, admin: Client, namespace: str, account: str) -> None:
    answer = ask(admin, namespace, account)
    assert answer.status == 201
    found = answer.ok()
    uid = admin.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}").ok()["metadata"]["uid"]
    assert (found["kind"], found["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert found["metadata"]["name"] == account
    assert found["metadata"]["namespace"] == namespace
    assert found["spec"] == {
        "audiences": ["https://kubernetes.default.svc"],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    told = claims(found["status"]["token"])
    assert told["sub"] == user_name(namespace, account)
    assert told["exp"] - told["iat"] == 3600
    assert told["kubernetes.io"] == {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}}
    with server.client(found["status"]["token"]) as client:
        assert whoami(client) == {
            "username": user_name(namespace, account),
            "uid": uid,
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "extra": {f"{PREFIX}/credential-id": [f"JTI={told['jti']}"]},
        }


def test_a_token_bound_to_a_pod_names_its_node(
    server: Server, admin: Client, namespace: str, account: str, node: dict[str, Any]
) -> None:
    pod = make_pod(admin, namespace, account, node["metadata"]["name"])
    token = token_of(server, namespace, account, boundObjectRef=reference(pod))
    with server.client(token) as client:
        extra = whoami(client)["extra"]
    assert extra == {
        f"{PREFIX}/credential-id": [f"JTI={claims(token)['jti']}"],
        f"{PREFIX}/node-name": [node["metadata"]["name"]],
        f"{PREFIX}/node-uid": [node["metadata"]["uid"]],
        f"{PREFIX}/pod-name": ["p"],
        f"{PREFIX}/pod-uid": [pod["metadata"]["uid"]],
    }


def test_a_token_of_a_pod_without_a_node_names_none(
    server: Server, admin: Client, namespace: str, account: str
) -> None:
    pod = make_pod(admin, namespace, account)
    with server.client(token_of(server, namespace, account, boundObjectRef=reference(pod))) as client:
        extra = whoami(client)["extra"]
    assert sorted(extra) == [f"{PREFIX}/credential-id", f"{PREFIX}/pod-name", f"{PREFIX}/pod-uid"]


def test_a_token_bound_to_a_node(server: Server, namespace: str, account: str, node: dict[str, Any]) -> None:
    bound = {"kind": "Node", "apiVersion": "v1", "name": node["metadata"]["name"]}
    with server.client(token_of(server, namespace, account, boundObjectRef=bound)) as client:
        assert whoami(client)["extra"][f"{PREFIX}/node-name"] == [node["metadata"]["name"]]


def ends(client: Client) -> bool:
    return bool(client.get("/api/v1/nodes").status == 401)


def test_a_token_ends_with_its_pod(
    server: Server, admin: Client, namespace: str, account: str, node: dict[str, Any]
) -> None:
    pod = make_pod(admin, namespace, account, node["metadata"]["name"])
    with server.client(token_of(server, namespace, account, boundObjectRef=reference(pod))) as client:
        assert not ends(client)
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        assert admin.delete(path, {"gracePeriodSeconds": 0}).status == 200
        # The same name again is another pod.
        make_pod(admin, namespace, account, node["metadata"]["name"])
        eventually(lambda: ends(client), CACHED_S * 3)


def test_a_token_ends_with_its_account(server: Server, admin: Client, namespace: str, account: str) -> None:
    with server.client(token_of(server, namespace, account)) as client:
        assert not ends(client)
        admin.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}").ok()
        make_account(server, namespace, account)
        eventually(lambda: ends(client), CACHED_S * 3)


def test_a_token_for_another_audience_does_not_open_this_server(server: Server, namespace: str, account: str) -> None:
    with server.client(token_of(server, namespace, account, audiences=["vault"])) as client:
        assert ends(client)


def test_a_changed_token_is_no_token(server: Server, namespace: str, account: str) -> None:
    head, payload, signature = token_of(server, namespace, account).split(".")
    changed = {**claims(f"{head}.{payload}.x"), "sub": "system:serviceaccount:kube-system:default"}
    forged = base64.urlsafe_b64encode(json.dumps(changed).encode()).rstrip(b"=").decode()
    with server.client(f"{head}.{forged}.{signature}") as client:
        assert ends(client)


@pytest.mark.parametrize(
    ("spec", "code", "reason", "message"),
    [
        (
            {"expirationSeconds": 10},
            422,
            "Invalid",
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 10: '
            "may not specify a duration less than 10 minutes",
        ),
        (
            {"expirationSeconds": 1 << 33},
            422,
            "Invalid",
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 8589934592: '
            "may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nope"}},
            404,
            "NotFound",
            'pods "nope" not found',
        ),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "nope"}},
            400,
            "BadRequest",
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ],
)
def test_refused_requests(
    admin: Client, namespace: str, account: str, spec: dict[str, Any], code: int, reason: str, message: str
) -> None:
    assert ask(admin, namespace, account, **spec).refused(code, reason) == message


def test_a_token_is_bound_only_to_a_pod_of_its_account(admin: Client, namespace: str, account: str) -> None:
    pod = make_pod(admin, namespace, account)
    other = ask(admin, namespace, "default", boundObjectRef=reference(pod))
    assert other.refused(400, "BadRequest") == (
        'cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.'
    )
    stale = ask(admin, namespace, account, boundObjectRef={**reference(pod), "uid": "old"})
    assert stale.refused(409, "Conflict") == (
        'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (old) does not match the '
        "UID in record. The object might have been deleted and then recreated"
    )


def test_no_account_no_token(admin: Client, namespace: str) -> None:
    assert ask(admin, namespace, "nope").refused(404, "NotFound") == 'serviceaccounts "nope" not found'


def test_pods_take_the_default_account(server: Server, admin: Client, namespace: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = admin.create(f"/api/v1/namespaces/{namespace}/pods", body).ok()["spec"]
    assert spec["serviceAccountName"] == "default"
    assert server.name != REAL or "volumes" in spec
