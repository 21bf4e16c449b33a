"""Roles and admission policies of the chart on a real API server: what agents and others may write, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.server import eventually
from tests.controlplane.cluster import ControlPlane
from tests.deploy.chart import NAMESPACE, agent_token, controller_token, install, unbound_agent_token

pytestmark = pytest.mark.real_api

HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
CERTIFICATIONS = "/apis/muster.dev/v1alpha1/certifications"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
API = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth"}
OBSERVED = {
    "observedAt": "2026-01-01T00:00:00Z",
    "nodeUid": "u",
    "bootId": "b",
    "fingerprint": {"digest": "d", "readings": []},
}
LIFECYCLE = {"state": "InService", "since": "2026-01-01T00:00:00Z", "held": False}


@pytest.fixture(scope="module")
def installed(kubeconfig: Path, admin: Client, plane: ControlPlane) -> None:
    install(kubeconfig)
    probe = {**API, "metadata": {"name": "probe"}}
    with _client(plane, unbound_agent_token(admin)) as agent:
        # A policy is in force a moment after it was written.
        eventually(lambda: b"names no node" in agent.create(HEALTHS, probe, dryRun="All").content)


@pytest.fixture
def node_a(admin: Client, plane: ControlPlane, installed: None) -> Iterator[Client]:
    """The agent of the node node-a."""
    with _client(plane, agent_token(admin, "node-a")) as client:
        yield client
    admin.delete(f"{HEALTHS}/node-a")
    admin.delete(f"{LEASES}/agent-node-a")


@pytest.fixture
def controller(admin: Client, plane: ControlPlane, installed: None) -> Iterator[Client]:
    with _client(plane, controller_token(admin)) as client:
        yield client


@pytest.fixture
def operator(admin: Client, plane: ControlPlane, installed: None) -> Iterator[Client]:
    """Somebody with every right of RBAC who is in no group that may break the glass."""
    account = "/api/v1/namespaces/default/serviceaccounts"
    admin.create(account, {"metadata": {"name": "operator"}})
    binding = {
        "metadata": {"name": "operator-is-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
    }
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = admin.create(f"{account}/operator/token", request).ok()["status"]["token"]
    with _client(plane, token) as client:
        eventually(lambda: client.get(HEALTHS).status == 200)
        yield client


def _client(plane: ControlPlane, token: str) -> Client:
    return Client(plane.url, token, plane.credentials.ca_pem)


def _health(name: str, **content: Any) -> dict[str, Any]:
    return {**API, "metadata": {"name": name}, **content}


def _observe(client: Client, node: str, status: dict[str, Any] | None = None) -> Any:
    """As the agent publishes: server-side apply of the status."""
    body = _health(node, status={"observed": OBSERVED} if status is None else status)
    return client.apply(f"{HEALTHS}/{node}/status", body, manager="muster-agent", force="true")


# The agent


def test_an_agent_publishes_its_own_node(node_a: Client) -> None:
    assert _observe(node_a, "node-a").status == 404
    node_a.create(HEALTHS, _health("node-a"), fieldManager="muster-agent").ok()
    assert _observe(node_a, "node-a").ok()["status"]["observed"]["bootId"] == "b"


def test_an_agent_is_refused_the_node_of_another(node_a: Client, admin: Client) -> None:
    admin.create(HEALTHS, _health("node-b"))
    said = "The agent of node node-a may write only NodeHealth node-a and Lease agent-node-a, not node-b."
    assert said in _observe(node_a, "node-b").refused(403, "Forbidden")
    assert "not node-c" in node_a.create(HEALTHS, _health("node-c")).refused(403, "Forbidden")


def test_an_agent_does_not_write_the_lifecycle(node_a: Client, admin: Client) -> None:
    node_a.create(HEALTHS, _health("node-a")).ok()
    refused = _observe(node_a, "node-a", {"observed": OBSERVED, "lifecycle": LIFECYCLE})
    # Two policies refuse it; whose words come is up to the server.
    assert "status.lifecycle" in refused.refused(403, "Forbidden")
    # What the controller wrote stays through the agent's next word.
    admin.patch(f"{HEALTHS}/node-a/status", {"status": {"lifecycle": LIFECYCLE}}).ok()
    assert _observe(node_a, "node-a").ok()["status"]["lifecycle"] == LIFECYCLE
    gone = node_a.patch(f"{HEALTHS}/node-a/status", {"status": {"lifecycle": None}})
    assert "status.lifecycle" in gone.refused(403, "Forbidden")


def test_an_agent_does_not_become_an_owner_of_the_lifecycle(node_a: Client, controller: Client) -> None:
    """An owner keeps fields alive that the controller leaves out: what was over would stand there for ever."""
    node_a.create(HEALTHS, _health("node-a"), fieldManager="muster-agent").ok()
    path, said = f"{HEALTHS}/node-a/status", {**LIFECYCLE, "certification": "c1"}
    _decide(controller, said)
    for manager in ("muster-agent", "evil", "before-first-apply"):
        body = _health("node-a", status={"observed": OBSERVED, "lifecycle": said})
        refused = node_a.apply(path, body, manager=manager, force="true")
        assert "status.lifecycle" in refused.refused(403, "Forbidden")
    forged = {
        "apiVersion": API["apiVersion"],
        "fieldsType": "FieldsV1",
        "subresource": "status",
        "manager": "before-first-apply",
        "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
        "fieldsV1": {"f:status": {"f:lifecycle": {"f:certification": {}}}},
    }
    attempts: list[list[dict[str, Any]]] = [[{}], [forged]]
    for fields in attempts:
        # Refused, or without effect: the server does not say which it is going to be.
        assert node_a.patch(path, {"metadata": {"managedFields": fields}}).status in (200, 403)
    _decide(controller, LIFECYCLE)
    assert _observe(node_a, "node-a").ok()["status"]["lifecycle"] == LIFECYCLE


def _decide(controller: Client, life: dict[str, Any]) -> None:
    body = _health("node-a", status={"lifecycle": life})
    controller.apply(f"{HEALTHS}/node-a/status", body, manager="muster-controller", force="true").ok()


def test_an_agent_sets_no_finalizers_and_no_owners(node_a: Client, admin: Client) -> None:
    for extra in (
        {"finalizers": ["example.com/never"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]},
    ):
        health = node_a.create(HEALTHS, {**API, "metadata": {"name": "node-a", **extra}})
        assert "no finalizers and no owners" in health.refused(403, "Forbidden")
        lease = node_a.create(LEASES, {"metadata": {"name": "agent-node-a", **extra}})
        assert "no finalizers and no owners" in lease.refused(403, "Forbidden")
    node_a.create(HEALTHS, _health("node-a")).ok()
    node_a.create(LEASES, {"metadata": {"name": "agent-node-a"}}).ok()
    changed = node_a.patch(f"{LEASES}/agent-node-a", {"metadata": {"finalizers": ["example.com/never"]}})
    assert "no finalizers and no owners" in changed.refused(403, "Forbidden")
    # Through the status nothing of the metadata changes.
    meta = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/never"]}
    node_a.patch(f"{HEALTHS}/node-a/status", {"metadata": meta})
    found = admin.get(f"{HEALTHS}/node-a").ok()["metadata"]
    assert not {"labels", "annotations", "finalizers"} & set(found)
    # What somebody else put there stays, and keeps the agent from nothing.
    admin.patch(f"{HEALTHS}/node-a", {"metadata": {"finalizers": ["example.com/mine"]}}).ok()
    _observe(node_a, "node-a").ok()
    admin.patch(f"{HEALTHS}/node-a", {"metadata": {"finalizers": None}}).ok()


def test_an_agent_takes_no_other_name(node_a: Client, admin: Client) -> None:
    node_a.create(HEALTHS, _health("node-a")).ok()
    admin.create(HEALTHS, _health("node-b"))
    drawn = node_a.request("POST", HEALTHS, {**API, "metadata": {"generateName": "node-"}})
    assert "may write only NodeHealth node-a" in drawn.refused(403, "Forbidden")
    for url, name in (("node-b", "node-a"), ("node-a", "node-b")):
        body = _health(name, status={"observed": OBSERVED})
        answer = node_a.apply(f"{HEALTHS}/{url}/status", body, manager="muster-agent", force="true")
        assert "does not match the name on the URL" in answer.refused(400, "BadRequest")
    assert node_a.request("DELETE", HEALTHS).status == 403


@pytest.mark.requirement("v2.4/K8S16", "v2.4/K8S17", "v2.4/SEC06")
def test_a_token_dies_with_its_pod(admin: Client, plane: ControlPlane, installed: None) -> None:
    with _client(plane, agent_token(admin, "node-s")) as client:
        client.create(HEALTHS, _health("node-s")).ok()
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/muster-agent-node-s"
        admin.delete(pod, gracePeriodSeconds="0").ok()
        eventually(lambda: client.create(HEALTHS, _health("node-s")).status == 401)
    admin.delete(f"{HEALTHS}/node-s")


def test_an_agent_creates_a_nodehealth_empty(node_a: Client) -> None:
    for spec in ({"paused": True}, {"hold": {"by": "me", "reason": "fun"}}):
        refused = node_a.create(HEALTHS, _health("node-a", spec=spec))
        assert "creates a NodeHealth empty" in refused.refused(403, "Forbidden")
    node_a.create(HEALTHS, _health("node-a", spec={})).ok()


def test_an_agent_beats_its_own_heart(node_a: Client) -> None:
    own = {"metadata": {"name": "agent-node-a"}, "spec": {"holderIdentity": "node-a"}}
    node_a.create(LEASES, own).ok()
    node_a.patch(f"{LEASES}/agent-node-a", {"spec": {"leaseDurationSeconds": 180}}).ok()
    other = node_a.create(LEASES, {"metadata": {"name": "agent-node-b"}})
    assert "not agent-node-b" in other.refused(403, "Forbidden")
    lead = node_a.create(LEASES, {"metadata": {"name": "muster-controller"}})
    assert "not muster-controller" in lead.refused(403, "Forbidden")


def test_a_token_without_a_node_writes_nothing(admin: Client, plane: ControlPlane, installed: None) -> None:
    with _client(plane, unbound_agent_token(admin)) as client:
        assert "names no node" in client.create(HEALTHS, _health("node-a")).refused(403, "Forbidden")
        lease = client.create(LEASES, {"metadata": {"name": "agent-node-a"}})
        assert "names no node" in lease.refused(403, "Forbidden")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes/node-a"),
        ("GET", HEALTHS),
        ("PATCH", f"{HEALTHS}/node-a"),
        ("DELETE", f"{HEALTHS}/node-a"),
        ("DELETE", f"{LEASES}/agent-node-a"),
        ("POST", CERTIFICATIONS),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/muster-controller/token"),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
    ],
)
def test_an_agent_has_no_other_rights(node_a: Client, method: str, path: str) -> None:
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body: dict[str, Any] | None = None if method == "GET" else {}
    message = node_a.request(method, path, body, content_type=content).refused(403, "Forbidden")
    assert 'User "system:serviceaccount:muster-system:muster-agent" cannot' in message


@pytest.mark.requirement("v2.4/SEC25")
def test_the_policy_holds_even_where_a_role_grants_more(node_a: Client, admin: Client) -> None:
    """Somebody binds the agent to a role that is too wide: the policy still keeps it to its node and its part."""
    node_a.create(HEALTHS, _health("node-a")).ok()
    roles = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "metadata": {"name": "agent-too-wide"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "muster-agent", "namespace": NAMESPACE}],
    }
    admin.create(f"{roles}/clusterrolebindings", binding).ok()
    try:
        eventually(lambda: node_a.get(HEALTHS).status == 200)
        spec = node_a.patch(f"{HEALTHS}/node-a", {"spec": {"paused": True}})
        assert "not its spec or metadata" in spec.refused(403, "Forbidden")
        assert "deletes nothing" in node_a.delete(f"{HEALTHS}/node-a").refused(403, "Forbidden")
        assert "not muster-controller" in node_a.create(LEASES, {"metadata": {"name": "muster-controller"}}).refused(
            403, "Forbidden"
        )
    finally:
        admin.delete(f"{roles}/clusterrolebindings/agent-too-wide").ok()
        eventually(lambda: node_a.get(HEALTHS).status == 403)


# Lifecycles and verdicts


def test_the_controller_writes_lifecycles_and_verdicts(controller: Client, admin: Client) -> None:
    controller.create(HEALTHS, _health("node-l"), fieldManager="muster-controller").ok()
    body = _health("node-l", status={"lifecycle": LIFECYCLE})
    written = controller.apply(f"{HEALTHS}/node-l/status", body, manager="muster-controller", force="true")
    assert written.ok()["status"]["lifecycle"] == LIFECYCLE
    certification = _certification("of-controller")
    obj = controller.create(CERTIFICATIONS, certification).ok()
    done = controller.replace(f"{CERTIFICATIONS}/of-controller/status", {**obj, "status": {"phase": "Running"}})
    assert done.ok()["status"]["phase"] == "Running"
    assert controller.delete(f"{HEALTHS}/node-l").status == 403


def _certification(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Certification",
        "metadata": {"name": name},
        "spec": {"nodes": ["node-a"], "profile": "bringup"},
    }


def test_nobody_else_forges_a_lifecycle(operator: Client, admin: Client) -> None:
    operator.create(HEALTHS, _health("node-f")).ok()
    forged = operator.patch(f"{HEALTHS}/node-f/status", {"status": {"lifecycle": LIFECYCLE}})
    assert "Only Muster's controller writes status.lifecycle" in forged.refused(403, "Forbidden")
    # Their own part is theirs.
    operator.patch(f"{HEALTHS}/node-f", {"spec": {"hold": {"by": "o", "reason": "r"}}}).ok()
    operator.patch(f"{HEALTHS}/node-f/status", {"status": {"observed": OBSERVED}}).ok()
    operator.delete(f"{HEALTHS}/node-f").ok()


@pytest.mark.requirement("v2.4/SEC25")
def test_nobody_else_forges_a_verdict(operator: Client) -> None:
    operator.create(CERTIFICATIONS, _certification("forged")).ok()
    forged = operator.patch(f"{CERTIFICATIONS}/forged/status", {"status": {"phase": "Succeeded"}})
    assert "writes the status of a Certification" in forged.refused(403, "Forbidden")
    operator.patch(f"{CERTIFICATIONS}/forged", {"metadata": {"labels": {"a": "b"}}}).ok()
    operator.delete(f"{CERTIFICATIONS}/forged").ok()


@pytest.mark.parametrize("key", ["requests", "plan", "test-digests"])
def test_nobody_else_writes_what_a_verdict_rests_on(operator: Client, controller: Client, key: str) -> None:
    """A request that names a node's episode makes the verdict count; a plan says which tests lead to it."""
    annotations = {f"muster.dev/{key}": "{}", "example.com/note": "mine"}
    name, said = f"planned-{key}", "writes the annotations muster.dev/requests"
    forged = _certification(name)
    forged["metadata"]["annotations"] = annotations
    assert said in operator.create(CERTIFICATIONS, forged).refused(403, "Forbidden")
    operator.create(CERTIFICATIONS, _certification(name)).ok()
    change = {"metadata": {"annotations": annotations}}
    assert said in operator.patch(f"{CERTIFICATIONS}/{name}", change).refused(403, "Forbidden")
    controller.patch(f"{CERTIFICATIONS}/{name}", change).ok()
    # Neither taken away nor in the way of what is theirs.
    gone = {"metadata": {"annotations": {f"muster.dev/{key}": None}}}
    assert said in operator.patch(f"{CERTIFICATIONS}/{name}", gone).refused(403, "Forbidden")
    operator.patch(f"{CERTIFICATIONS}/{name}", {"metadata": {"annotations": {"example.com/note": "b"}}}).ok()
    operator.delete(f"{CERTIFICATIONS}/{name}").ok()


@pytest.mark.requirement("v2.4/OAL05")
def test_who_may_break_the_glass_does(admin: Client, installed: None) -> None:
    admin.create(HEALTHS, _health("node-g"))
    admin.patch(f"{HEALTHS}/node-g/status", {"status": {"lifecycle": LIFECYCLE}}).ok()
    admin.delete(f"{HEALTHS}/node-g").ok()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("POST", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/namespaces/default/pods/any/log"),
        ("DELETE", "/api/v1/nodes/node-a"),
        ("PUT", f"{LEASES}/agent-node-a"),
        ("GET", "/apis/coordination.k8s.io/v1/leases"),
        ("DELETE", f"{CERTIFICATIONS}/any"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/muster-agent/token"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ],
)
def test_the_controller_has_no_other_rights(controller: Client, method: str, path: str) -> None:
    message = controller.request(method, path, None if method == "GET" else {}).refused(403, "Forbidden")
    assert 'User "system:serviceaccount:muster-system:muster-controller" cannot' in message
