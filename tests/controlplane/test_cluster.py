"""The control plane of the tests does what other tests rely on."""

from __future__ import annotations

import json

from tests.contract.server import eventually, server_of
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.credentials import NOBODY


def test_what_was_stored_is_there_after_a_restart(control_plane: ControlPlane) -> None:
    server = server_of("real", control_plane.kubeconfig_file())
    name = server.unique("kept")
    path = "/api/v1/namespaces/default/configmaps"
    server.admin.create(path, {"metadata": {"name": name}, "data": {"a": "b"}}).ok()
    for kill in (False, True):
        before = control_plane.pid("kube-apiserver")
        control_plane.stop_api_server(kill=kill)
        control_plane.start_api_server()
        assert control_plane.pid("kube-apiserver") != before
        again = server_of("real", control_plane.kubeconfig_file())
        assert again.admin.get(f"{path}/{name}").ok()["data"] == {"a": "b"}


def test_a_compacted_version_is_gone(control_plane: ControlPlane) -> None:
    server = server_of("real", control_plane.kubeconfig_file())
    path = "/api/v1/namespaces/default/configmaps"
    old = server.admin.get(path).ok()["metadata"]["resourceVersion"]
    server.admin.create(path, {"metadata": {"name": server.unique("newer")}}).ok()
    assert control_plane.compact() > int(old)
    # The API server remembers more than etcd does, until it is started anew.
    control_plane.stop_api_server()
    control_plane.start_api_server()
    answer = server.admin.get(path, resourceVersion=old, resourceVersionMatch="Exact")
    assert "too old" in answer.refused(410, "Expired")


def test_every_request_of_a_user_is_in_the_audit_log(control_plane: ControlPlane) -> None:
    server = server_of("real", control_plane.kubeconfig_file())
    with server.client(control_plane.credentials.tokens[NOBODY]) as client:
        client.get("/api/v1/namespaces/default/pods").refused(403, "Forbidden")

    def logged() -> bool:
        events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
        ours = [event for event in events if event["user"].get("username") == NOBODY]
        return [(e["verb"], e["objectRef"]["resource"], e["responseStatus"]["code"]) for e in ours] == [
            ("list", "pods", 403)
        ]

    assert eventually(logged)
