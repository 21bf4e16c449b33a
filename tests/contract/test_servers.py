"""The bed itself: both servers are there, and each is the one it says it is."""

from __future__ import annotations

from tests.contract.client import Client
from tests.contract.server import SIMULATOR, Server


def test_the_server_tells_its_version(server: Server, admin: Client) -> None:
    version = admin.get("/version").ok()
    assert version["major"] == "1"
    assert ("muster" in version["gitVersion"]) == (server.name == SIMULATOR)


def test_a_namespace_is_active_at_once(admin: Client, namespace: str) -> None:
    assert admin.get(f"/api/v1/namespaces/{namespace}").ok()["status"] == {"phase": "Active"}
