"""The scripts of a Helm bundle with the real Helm against a real API server. Without nodes, no pod ever runs."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.render import helm as renderer
from tests.bundle.shell import Shell, written
from tests.bundle.stand_in import charts, served, small_plan
from tests.controlplane.plugin import RealCluster


@pytest.fixture
def shell(tmp_path: Path, helm: Path, real_cluster: RealCluster) -> Shell:
    return Shell(tmp_path, helm.parent, real_cluster.kubeconfig)


@pytest.fixture(scope="module")
def repository() -> Iterator[str]:
    with served({**charts("helm"), **charts("helm", "two")}) as address:
        yield address


def test_install_resume_upgrade_and_remove(shell: Shell, repository: str) -> None:
    namespace = "helm-flow"
    bundle = written(shell.home / "one", renderer.render(small_plan(repository, namespace, "helm")))
    deploy, uninstall = str(bundle / "deploy.sh"), str(bundle / "uninstall.sh")

    code, output = shell.run(deploy)
    assert code == 1
    assert output == (
        "preflight.sh: the secret helm-flow/key with the keys user,password is needed; create it and run again\n"
    )
    assert shell.releases(namespace) == {}
    assert "true" in shell.kubectl("get", "namespace", namespace, "-o", "yaml")
    shell.kubectl(
        "create", "secret", "generic", "key", "-n", namespace, "--from-literal=user=u", "--from-literal=x=y"
    )
    code, output = shell.run(deploy)
    assert (code, "user,password is needed" in output) == (1, True)
    shell.kubectl("patch", "secret", "key", "-n", namespace, "-p", '{"stringData":{"password":"p"}}')

    code, output = shell.run(deploy)
    assert code == 1, output
    assert "go is missing" in output
    assert "late failed 1 times; mend it and run deploy.sh again" in output
    done = {"shared-crds": "1 deployed", "base": "1 deployed", "operator": "1 deployed"}
    assert {name: r for name, r in shell.releases(namespace).items() if name != "late"} == done
    values = json.loads(shell.run("helm", "get", "values", "base", "-n", namespace, "-o", "json")[1])
    assert values == {"nothing": None, "empty": [], "yes": "no", "123": "1e3", "braces": "{{ x }}"}

    shell.kubectl("create", "configmap", "go", "-n", namespace)
    code, output = shell.run(deploy, "--dry-run")
    assert code == 0, output
    assert [line.split(":")[0] for line in output.splitlines() if "would be deployed" in line] == ["late", "objects"]
    code, output = shell.run(deploy)
    assert code == 0, output
    assert [line for line in output.splitlines() if "already" not in line] == [
        "late: deployed", "objects: deployed", "All releases are deployed.",
    ]  # fmt: skip
    before = shell.releases(namespace)
    assert {name: before[name] for name in done} == done
    widget = json.loads(shell.kubectl("get", "helmwidgets", "yes", "-n", namespace, "-o", "json"))
    assert widget["metadata"]["annotations"]["null"] == "{{ .Values.no }}"
    assert shell.run(deploy)[0] == 0
    assert shell.releases(namespace) == before

    # Somebody else sets a field that the next version of the bundle changes; the CRDs of the charts change as well.
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "operator", "namespace": namespace}}
    text = yamlio.dumps(foreign | {"data": {"values": "foreign"}})
    shell.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-", text=text)
    newer = written(shell.home / "two", renderer.render(small_plan(repository, namespace, "helm", version="2.0.0")))
    code, output = shell.run(str(newer / "deploy.sh"))
    assert code == 0, output
    for plural in ("helmwidgets", "helmgizmos"):
        found = json.loads(shell.kubectl("get", "crd", f"{plural}.stand-in.example", "-o", "json"))
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert list(schema["properties"]["spec"]["properties"]) == ["two"]
    config = json.loads(shell.kubectl("get", "configmap", "operator", "-n", namespace, "-o", "json"))
    assert config["data"]["values"] == "{}"

    gizmo = {
        "apiVersion": "stand-in.example/v1",
        "kind": "HelmGizmo",
        "metadata": {"name": "mine", "namespace": namespace, "finalizers": ["stand-in.example/operator"]},
    }
    shell.kubectl("apply", "-f", "-", text=yamlio.dumps(gizmo))
    code, output = shell.run(uninstall)
    assert code == 1
    assert "only operator can finalize these objects" in output
    assert f"{namespace}/mine" in output
    assert sorted(shell.releases(namespace)) == ["base", "operator", "shared-crds"]
    shell.kubectl(
        "patch", "helmgizmos", "mine", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}'
    )
    code, output = shell.run(uninstall)
    assert code == 0, output
    assert output.splitlines() == [
        "objects: not there", "late: not there", "operator: removed", "base: removed",
        "shared-crds: kept, it holds shared CRDs",
    ]  # fmt: skip
    assert sorted(shell.releases(namespace)) == ["shared-crds"]
    shell.kubectl("get", "crd", "helmwidgets.stand-in.example")


def test_a_killed_helm_is_named_and_so_is_the_remedy(shell: Shell, repository: str) -> None:
    namespace = "helm-killed"
    whole = small_plan(repository, namespace, "helm")
    plan = msgspec.structs.replace(whole, releases=whole.releases[1:2], secrets=())
    bundle = written(shell.home / "b", renderer.render(plan))
    assert shell.run(str(bundle / "deploy.sh"))[0] == 0
    secret = "sh.helm.release.v1.base.v1"
    stored = json.loads(shell.kubectl("get", "secret", secret, "-n", namespace, "-o", "json"))
    _set_status(shell, stored, namespace, "pending-install")
    code, output = shell.run(str(bundle / "deploy.sh"))
    assert code == 1
    assert "another Helm works on base, or one was killed" in output
    remedy = output.strip().rpartition(": ")[2]
    assert remedy.startswith("kubectl delete secret")
    assert shell.run("bash", "-c", remedy)[0] == 0
    code, output = shell.run(str(bundle / "deploy.sh"))
    assert code == 0, output
    assert shell.releases(namespace) == {"base": "1 deployed"}


def _set_status(shell: Shell, stored: dict[str, Any], namespace: str, status: str) -> None:
    record = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(stored["data"]["release"]))))
    record["info"]["status"] = status
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(record).encode()))).decode()
    patch = {"metadata": {"labels": {"status": status}}, "data": {"release": packed}}
    shell.kubectl("patch", "secret", stored["metadata"]["name"], "-n", namespace, "-p", json.dumps(patch))


def test_a_namespace_that_goes_away_stops_the_deployment(
    shell: Shell, repository: str, real_cluster: RealCluster
) -> None:
    namespace = "helm-leaving"
    bundle = written(shell.home / "b", renderer.render(small_plan(repository, namespace, "helm")))
    holder = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": namespace, "finalizers": ["stand-in.example/held"]},
    }
    shell.kubectl("create", "namespace", namespace)
    shell.kubectl("apply", "-f", "-", text=yamlio.dumps(holder))
    shell.kubectl("delete", "namespace", namespace, "--wait=false")
    code, output = shell.run(str(bundle / "deploy.sh"))
    shell.kubectl(
        "patch", "configmap", "held", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}'
    )
    assert code == 1
    assert output.count("\n") == 1
    assert f"the namespace {namespace} is being removed; wait until it is gone" in output


def test_a_cluster_that_does_not_answer(shell: Shell, repository: str) -> None:
    bundle = written(shell.home / "b", renderer.render(small_plan(repository, "helm-away", "helm")))
    shell.env["KUBECONFIG"] = "/nowhere"
    code, output = shell.run(str(bundle / "deploy.sh"))
    assert (code, output.count("\n")) == (1, 1)
    assert "the cluster does not answer; check KUBECONFIG" in output


def test_the_gate_holds_back_what_follows(shell: Shell, repository: str) -> None:
    """A Deployment that never becomes available: its release is deployed, the next one never starts."""
    namespace = "helm-gate"
    whole = small_plan(repository, namespace, "helm")
    gated = msgspec.structs.replace(whole.releases[1], gate=Gate.DEPLOYMENTS_AVAILABLE, timeout_s=3)
    plan = msgspec.structs.replace(whole, releases=(gated, whole.releases[2]), secrets=())
    bundle = written(shell.home / "b", renderer.render(plan))
    shell.kubectl("create", "namespace", namespace)
    shell.kubectl("create", "deployment", "slow", "--image=stand-in.example/x:1", "-n", namespace)
    code, output = shell.run(str(bundle / "deploy.sh"))
    assert code == 1
    assert f"gate.sh: not every Deployment in {namespace} is available after 3 s" in output
    assert shell.releases(namespace) == {"base": "1 deployed"}
    started = time.monotonic()
    code, output = shell.run(str(bundle / "deploy.sh"))
    assert code == 1
    assert "base is deployed, but not all of its Deployments are available" in output
    assert time.monotonic() - started < 60
    assert shell.releases(namespace) == {"base": "1 deployed"}
