"""Who a client is: no token, a wrong token, and what strangers may see."""

from __future__ import annotations

import pytest

from tests.contract.accounts import IDENTITY, make_account, token_of, whoami
from tests.contract.client import Client
from tests.contract.server import Server

UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}


@pytest.mark.parametrize(
    "path", ["/livez", "/version", "/api", "/api/v1/nodes", "/apis/muster.dev/v1alpha1/x", "/no"]
)
@pytest.mark.parametrize("token", ["wrong", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
def test_a_wrong_token_opens_nothing(server: Server, path: str, token: str) -> None:
    with server.client(token) as client:
        answer = client.get(path)
    assert (answer.status, answer.body) == (401, UNAUTHORIZED)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_strangers_see_whether_the_server_lives(server: Server, path: str) -> None:
    with server.client("") as stranger:
        answer = stranger.get(path)
    assert (answer.status, answer.content) == (200, b"ok")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_strangers_see_the_version(server: Server, admin: Client) -> None:
    with server.client("") as stranger:
        assert stranger.get("/version").ok() == admin.get("/version").ok()


@pytest.mark.parametrize(
    "path", ["/", "/api", "/apis", "/api/v1", "/openapi/v3", "/livez/ping", "/metrics", "/nonsense"]
)
def test_strangers_see_no_other_path(server: Server, path: str) -> None:
    with server.client("") as stranger:
        answer = stranger.get(path)
    assert answer.refused(403, "Forbidden") == f'forbidden: User "system:anonymous" cannot get path "{path}"'
    assert answer.body["details"] == {}


@pytest.mark.parametrize(
    ("path", "name", "details"),
    [
        ("/api/v1/nodes", "nodes", {"kind": "nodes"}),
        ("/api/v1/nodes/x", 'nodes "x"', {"name": "x", "kind": "nodes"}),
    ],
)
def test_strangers_see_no_resource(server: Server, path: str, name: str, details: dict[str, str]) -> None:
    verb = "get" if "x" in details.values() else "list"
    with server.client("") as stranger:
        answer = stranger.get(path)
    assert answer.refused(403, "Forbidden") == (
        f'{name} is forbidden: User "system:anonymous" cannot {verb} resource "nodes" in API group "" '
        "at the cluster scope"
    )
    assert answer.body["details"] == details


def test_a_stranger_cannot_ask_who_it_is(server: Server) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with server.client("") as stranger:
        answer = stranger.create(f"{IDENTITY}/selfsubjectreviews", body)
    assert answer.refused(403, "Forbidden") == (
        'selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource '
        '"selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope'
    )


def test_the_administrator_knows_itself(admin: Client) -> None:
    found = whoami(admin)
    assert {"system:masters", "system:authenticated"} <= set(found["groups"])


def test_a_review_of_a_token(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("account")
    make_account(server, namespace, name)

    def review(token: str) -> dict[str, object]:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status: dict[str, object] = admin.create(f"{IDENTITY}/tokenreviews", body).ok()["status"]
        return status

    token = token_of(server, namespace, name)
    with server.client(token) as client:
        assert review(token) == {
            "authenticated": True,
            "user": whoami(client),
            "audiences": ["https://kubernetes.default.svc"],
        }
    assert review("wrong") == {"user": {}, "error": "invalid bearer token"}
