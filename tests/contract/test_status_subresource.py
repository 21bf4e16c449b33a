"""The status endpoint writes the status, the main endpoint everything else."""

from __future__ import annotations

from typing import Any

from tests.contract.client import MERGE, STRATEGIC, Client
from tests.contract.samples import configs_of, define_things, meta, pod_spec, workload_spec
from tests.contract.server import Server

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}


def test_a_custom_resource(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    path = f"{things.path}/a"
    made = admin.create(things.path, {**things.thing("a"), "status": {"seen": "1"}}).ok()
    assert "status" not in made
    ignored = admin.patch(path, {"status": {"seen": "1"}}).ok()
    assert "status" not in ignored
    assert meta(ignored)["resourceVersion"] == meta(made)["resourceVersion"]
    everything = {
        "status": {"seen": "2"},
        "spec": {"count": 9},
        "metadata": {"labels": {"x": "1"}, "annotations": {"x": "1"}, "finalizers": ["x.io/a"]},
    }
    only = admin.patch(f"{path}/status", everything).ok()
    assert only["status"] == {"seen": "2"}
    assert only["spec"] == made["spec"]
    assert [name for name in ("labels", "annotations", "finalizers") if name in meta(only)] == []
    assert meta(only)["generation"] == 1
    put = {**only, "status": {"seen": "3"}, "spec": {"count": 9}}
    replaced = admin.replace(f"{path}/status", put).ok()
    assert (replaced["status"], replaced["spec"]) == ({"seen": "3"}, made["spec"])
    kept = admin.replace(path, {**replaced, "status": {"seen": "4"}, "spec": {"count": 5, "parts": []}}).ok()
    assert (kept["status"], kept["spec"]["count"]) == ({"seen": "3"}, 5)
    assert admin.get(f"{path}/status").ok() == kept
    gone = {name: value for name, value in kept.items() if name != "status"}
    assert "status" not in admin.replace(f"{path}/status", gone).ok()


def test_a_status_that_does_not_fit_the_schema(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    admin.create(things.path, things.thing("a")).ok()
    answer = admin.patch(f"{things.path}/a/status", {"status": {"seen": 5}})
    text = answer.refused(422, "Invalid")
    assert text.startswith(f'Thing.{things.group} "a" is invalid: status.seen: Invalid value: "integer": ')
    unknown = admin.patch(f"{things.path}/a/status", {"status": {"seen": "1", "nope": 1}})
    assert unknown.ok()["status"] == {"seen": "1"}
    assert 'unknown field \\"status.nope\\"' in unknown.headers["warning"]


def test_a_custom_resource_without_the_endpoint(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace, status=False)
    path = f"{things.path}/a"
    made = admin.create(things.path, {**things.thing("a"), "status": {"seen": "1"}}).ok()
    assert made["status"] == {"seen": "1"}
    assert admin.patch(path, {"status": {"seen": "2"}}).ok()["status"] == {"seen": "2"}
    for answer in (admin.get(f"{path}/status"), admin.patch(f"{path}/status", {"status": {}})):
        assert answer.refused(404, "NotFound") == f'{things.resource} "a" not found'


def test_who_writes_a_status_owns_it(server: Server, admin: Client, namespace: str) -> None:
    things = define_things(server, namespace)
    admin.create(things.path, things.thing("a"), fieldManager="maker").ok()
    status = f"{things.path}/a/status"
    entries = meta(admin.patch(status, {"status": {"seen": "1"}}, fieldManager="maker").ok())["managedFields"]
    owned = {entry.get("subresource", ""): entry["fieldsV1"] for entry in entries}
    assert owned["status"] == {"f:status": {".": {}, "f:seen": {}}}
    assert "f:status" not in owned[""]
    assert {entry["manager"] for entry in entries} == {"maker"}


def test_a_node(admin: Client, node: str) -> None:
    main = admin.patch(node, {"metadata": {"labels": {"a": "1"}}, "status": {"phase": "Running"}}, STRATEGIC).ok()
    assert "phase" not in main["status"]
    change = {
        "metadata": {"labels": {"b": "2"}, "annotations": {"c": "3"}, "finalizers": ["x.io/a"]},
        "spec": {"unschedulable": True},
        "status": {"phase": "Running"},
    }
    through = admin.patch(f"{node}/status", change, STRATEGIC).ok()
    assert through["status"]["phase"] == "Running"
    assert "unschedulable" not in through["spec"]
    labels = meta(through)["labels"]
    # A Node's metadata can be changed through its status: kubelets do.
    assert (labels["a"], labels["b"]) == ("1", "2")
    assert meta(through)["annotations"]["c"] == "3"
    assert meta(through)["finalizers"] == ["x.io/a"]
    admin.patch(node, {"metadata": {"finalizers": None}}).ok()


def test_a_new_node_keeps_its_status(server: Server, admin: Client) -> None:
    name = server.unique("node")
    body: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"muster.dev/test": "true"}},
        "status": {"capacity": {"cpu": "8"}, "nodeInfo": {"bootID": "x"}},
    }
    made = admin.create("/api/v1/nodes", body).ok()
    admin.delete(f"/api/v1/nodes/{name}")
    assert made["status"]["capacity"] == made["status"]["allocatable"] == {"cpu": "8"}
    assert made["status"]["nodeInfo"]["bootID"] == "x"
    assert made["status"]["nodeInfo"]["kubeletVersion"] == ""
    assert made["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}


def test_a_pod(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = admin.create(path, {"metadata": {"name": "p"}, "spec": pod_spec(), "status": {"phase": "Running"}}).ok()
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    main = admin.patch(f"{path}/p", {"status": {"phase": "Running"}}, MERGE).ok()
    assert main["status"]["phase"] == "Pending"
    change = {
        "metadata": {"labels": {"x": "1"}, "ownerReferences": [OWNER]},
        "spec": {"containers": [{"name": "c", "image": "i:9"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    through = admin.patch(f"{path}/p/status", change, STRATEGIC).ok()
    assert through["status"]["phase"] == "Running"
    ready = next(c for c in through["status"]["conditions"] if c["type"] == "Ready")
    assert ready == {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    assert through["spec"]["containers"][0]["image"] == "i:1"
    assert meta(through)["labels"] == {"x": "1"}
    assert "ownerReferences" not in meta(through)
    assert meta(through)["generation"] == 1


def test_workloads(admin: Client, namespace: str) -> None:
    for word, labels in (("deployments", None), ("replicasets", {"x": "1"}), ("daemonsets", {"x": "1"})):
        path = f"/apis/apps/v1/namespaces/{namespace}/{word}"
        admin.create(path, {"metadata": {"name": "w"}, "spec": workload_spec()}).ok()
        change = {
            "metadata": {"labels": {"x": "1"}},
            "spec": {"minReadySeconds": 3},
            "status": {"observedGeneration": 7},
        }
        through = admin.patch(f"{path}/w/status", change, dryRun="All").ok()
        assert through["status"]["observedGeneration"] == 7
        assert "minReadySeconds" not in through["spec"]
        # Of the three, only a Deployment keeps its labels from its status.
        assert meta(through).get("labels") == labels


def test_a_namespace_keeps_its_finalizers_and_its_phase(server: Server, admin: Client) -> None:
    path = f"/api/v1/namespaces/{server.new_namespace()}"
    before = admin.get(path).ok()
    for change in (
        {"spec": {"finalizers": ["x.io/y"]}},
        {"spec": {"finalizers": None}},
        {"status": {"phase": "Gone"}},
    ):
        after = admin.patch(path, change).ok()
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])
    name = meta(before)["name"]
    relabelled = admin.patch(path, {"metadata": {"labels": {"kubernetes.io/metadata.name": "other", "x": "1"}}}).ok()
    assert meta(relabelled)["labels"] == {"kubernetes.io/metadata.name": name, "x": "1"}


def test_a_budget(admin: Client, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": "p"}, "spec": {"minAvailable": 1}, "status": {"expectedPods": 9}}
    zeros = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
    assert admin.create(path, body).ok()["status"] == zeros


def test_kinds_without_a_status(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    admin.create(configs, {"metadata": {"name": "a"}}).ok()
    for answer in (admin.get(f"{configs}/a/status"), admin.patch(f"{configs}/a/status", {"data": {}})):
        assert answer.refused(404, "NotFound") == "the server could not find the requested resource"
        assert answer.body["details"] == {}


def test_addresses_and_class_of_a_pod(admin: Client, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    admin.create(pods, {"metadata": {"name": "p"}, "spec": pod_spec()}).ok()

    def status(**fields: Any) -> dict[str, Any]:
        found: dict[str, Any] = admin.patch(f"{pods}/p/status", {"status": fields}).ok()["status"]
        return found

    first = status(phase="Running", podIP="10.0.0.1")
    assert (first["podIP"], first["podIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}])
    assert status(podIP="10.0.0.2")["podIPs"] == [{"ip": "10.0.0.2"}]
    assert status(podIP=None)["podIP"] == "10.0.0.2"
    assert status(podIPs=[{"ip": "10.0.0.3"}])["podIPs"] == [{"ip": "10.0.0.2"}]
    assert status(podIP=None, podIPs=[{"ip": "10.0.0.3"}])["podIP"] == "10.0.0.3"
    assert status(qosClass=None)["qosClass"] == "BestEffort"
    other = admin.patch(f"{pods}/p/status", {"status": {"qosClass": "Guaranteed"}})
    assert other.refused(422, "Invalid").endswith('status.qosClass: Invalid value: "Guaranteed": field is immutable')
