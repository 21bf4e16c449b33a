"""`muster snapshot --cluster` and its kin over HTTP, against the simulated and the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.clock import SystemClock
from muster.kube.api import CRDS, LEASES, NODE_HEALTHS, NODES, SECRETS, AlreadyExistsError
from muster.kube.http import HttpApi
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease
from muster.sim.nodes import ensure_namespace
from tests.configure.snapshot_bed import add_agent, node, release
from tests.contract.accounts import holder, rule
from tests.contract.conftest import SIDES
from tests.contract.server import REAL, Server, eventually, real, simulated

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", params=SIDES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each of the two servers in turn."""
    if request.param == REAL:
        yield real(request.getfixturevalue("real_cluster"))
        return
    with simulated(tmp_path_factory.mktemp("simulator")) as found:
        yield found


def invoke(*args: str) -> int:
    return run(["snapshot", *args])


def on(server: Server, work: Callable[[HttpApi], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with HttpApi.from_kubeconfig(server.kubeconfig) as api:
            return await work(api)

    return asyncio.run(main())


@pytest.fixture
def gpu_node(server: Server) -> str:
    """A node of this test alone with an agent that publishes."""
    name = server.unique("gpu")

    async def work(api: HttpApi) -> None:
        for manifest in crd.manifests():
            try:
                await api.create(CRDS, dict(manifest))
            except AlreadyExistsError:
                pass
        await ensure_namespace(api, SYSTEM_NAMESPACE)
        await api.create(NODES, node(name))

    on(server, work)
    eventually(lambda: server.admin.get("/apis/muster.dev/v1alpha1/nodehealths").status == 200)
    on(server, lambda api: add_agent(api, name, SystemClock().now()))
    return name


def remove(server: Server, name: str) -> None:
    async def work(api: HttpApi) -> None:
        await api.delete(NODES, name)
        await api.delete(NODE_HEALTHS, name)
        await api.delete(LEASES, agent_lease(name), SYSTEM_NAMESPACE)

    on(server, work)


def test_a_cluster_over_http(server: Server, gpu_node: str, tmp_path: Path, capsys: Capture) -> None:
    namespace = server.new_namespace()
    values = {"a": {"password": "hunter2hunter2"}}
    on(server, lambda api: api.create(SECRETS, release("some-release", namespace, values=values), namespace))
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    here = ("--kubeconfig", str(server.kubeconfig))
    assert invoke("--cluster", "--all-nodes", *here, "--file", str(first)) in (0, 3)
    content = json.loads(first.read_text())
    told = {r["name"]: r["value"] for r in content["readings"]}
    assert told["kubernetes.version"].startswith("v1.")
    assert told["kubernetes.platform"].startswith("linux/")
    entry = next(e for e in content["nodes"] if e["node"] == gpu_node)
    assert {r["name"]: r["value"] for r in entry["readings"]}["gpu.count"] == "8"
    assert entry["labels"]["a.b/c"] == entry["labels"]["a/b.c"] == "d"
    item = next(i for i in content["releases"] if i["namespace"] == namespace)
    assert {r["name"]: r["value"] for r in item["readings"]}["values.a.password"] == "(hidden)"
    assert "hunter2" not in first.read_text()
    assert "nodehealths.muster.dev" in [i["name"] for i in content["crds"]]
    assert invoke("--cluster", "--all-nodes", *here, "--file", str(second)) in (0, 3)
    capsys.readouterr()
    assert invoke("diff", str(first), str(second), "-o", "json") in (0, 3)
    changed = json.loads(capsys.readouterr().out)["changes"]
    assert not [c for c in changed if gpu_node in c["subject"] or namespace in c["subject"]]
    remove(server, gpu_node)


def test_a_node_of_the_cluster_over_http(server: Server, gpu_node: str, capsys: Capture) -> None:
    here = ("--kubeconfig", str(server.kubeconfig))
    assert invoke("--node", gpu_node, *here, "--expect-gpus", "8", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["node"] == gpu_node
    assert invoke("--node", gpu_node, *here, "--expect-gpus", "9") == 3
    assert invoke("--node", f"{gpu_node}x", *here) == 2
    on(server, lambda api: api.delete(NODE_HEALTHS, gpu_node))
    capsys.readouterr()
    assert invoke("--node", gpu_node, *here) == 4
    assert "no agent has published" in capsys.readouterr().err
    on(server, lambda api: api.delete(NODES, gpu_node))


def test_someone_who_may_read_little_gets_a_snapshot_that_says_so(
    server: Server,
    tmp_path: Path,
) -> None:
    namespace = server.new_namespace()
    client = holder(server, namespace, rule("", "nodes", "list"), cluster=True)
    config = yamlio.load(server.kubeconfig)
    config["users"][0]["user"] = {"token": client.token}
    (tmp_path / "little").write_text(yamlio.dumps(config))
    file = tmp_path / "s.json"
    assert invoke("--cluster", "--kubeconfig", str(tmp_path / "little"), "--file", str(file)) == 0
    reasons = {u["name"]: u["reason"] for u in json.loads(file.read_text())["unknown"]}
    assert {"images", "releases", "crds"} <= reasons.keys()
    assert all(reasons[name].startswith("not allowed: ") for name in ("images", "releases", "crds"))
    config["users"][0]["user"] = {"token": "nobody"}
    (tmp_path / "nobody").write_text(yamlio.dumps(config))
    assert invoke("--cluster", "--kubeconfig", str(tmp_path / "nobody"), "--file", str(tmp_path / "none")) == 4
    assert not (tmp_path / "none").exists()


def test_a_node_that_should_have_gpus_and_has_none_is_no_success(
    server: Server, gpu_node: str, tmp_path: Path, capsys: Capture
) -> None:
    here = ("--kubeconfig", str(server.kubeconfig))
    on(server, lambda api: add_agent(api, gpu_node, SystemClock().now(), gpus=0))
    file = tmp_path / "s.json"
    assert invoke("--all-nodes", *here, "--file", str(file)) == 3
    assert gpu_node in capsys.readouterr().err
    entry = next(e for e in json.loads(file.read_text())["nodes"] if e["node"] == gpu_node)
    assert [u["name"] for u in entry["unknown"]] == ["gpu"]
    assert invoke("--node", gpu_node, *here) == 3
    remove(server, gpu_node)
