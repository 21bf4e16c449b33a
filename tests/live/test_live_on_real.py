"""Releases of the real Helm on a real API server; objects of Argo CD and Flux through their real CRDs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.follow import follow
from muster.configure.live.read import read
from muster.configure.live.state import LiveState, Via
from muster.configure.plan import plan
from muster.configure.recipe import Recipe
from muster.kube.api import (
    ARGO_APPLICATIONS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    FLUX_HELM_RELEASES,
    FLUX_HELM_REPOSITORIES,
    NODES,
    PODS,
    KubeApi,
    NotFoundError,
    PatchType,
)
from muster.kube.http import HttpApi
from muster.resources.baseline import AssertionResult
from tests.contract.server import Server, eventually, real
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.credentials import NOBODY
from tests.controlplane.plugin import RealCluster
from tests.live.bed import component, recipe_of, results, told, workload
from tests.live.cluster import create, on, save, set_status

PASSED, FAILED = AssertionResult.PASSED, AssertionResult.FAILED
VALUES: dict[str, Any] = {"a": {"b": 1, "gone": None}, "list": [], "big": 1048576, "text": "1.30"}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Installation:
    """One chart of our own, installed by the real Helm into a namespace of the test."""

    def __init__(self, server: Server, helm: Path, folder: Path) -> None:
        self.server = server
        self.helm = helm
        self.folder = folder
        self.namespace = server.new_namespace()
        self.name = server.unique("op")
        self.group = f"{self.name}.example.com"
        self.recipe: Recipe = recipe_of(component(self.name, self.namespace, version="0.3.0", values=VALUES))

    def chart(self, version: str = "0.3.0") -> Path:
        chart = self.folder / f"chart-{version}"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        (chart / "crds").mkdir(exist_ok=True)
        head = {"apiVersion": "v2", "name": self.name, "version": version, "appVersion": "7"}
        (chart / "Chart.yaml").write_text(yamlio.dumps(head))
        (chart / "values.yaml").write_text(yamlio.dumps({"a": {"gone": "default"}, "list": [1]}))
        daemon = workload("DaemonSet", "driver", "", pod={"nodeSelector": {f"{self.group}/never": "true"}})
        objects = [workload("Deployment", "renamed", ""), daemon]
        for obj in objects:
            del obj["metadata"]["namespace"]
        (chart / "templates" / "all.yaml").write_text(yamlio.dumps_all(objects))
        names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
        crd = {
            **CRD,
            "metadata": {"name": f"gadgets.{self.group}"},
            "spec": {**CRD["spec"], "group": self.group, "names": names},
        }  # type: ignore[dict-item]
        (chart / "crds" / "gadgets.yaml").write_text(yamlio.dumps(crd))
        return chart

    def run(self, *args: str) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.server.kubeconfig),
        }
        done = subprocess.run(
            [str(self.helm), *args, "--namespace", self.namespace],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stray(self) -> None:
        """A release that no recipe knows, in the same namespace."""
        chart = self.folder / "stray"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text(yamlio.dumps({"apiVersion": "v2", "name": "stray", "version": "0.1.0"}))
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stray"}}
        (chart / "templates" / "a.yaml").write_text(yamlio.dumps(config))
        self.run("install", "stray", str(chart))

    def install(self, values: Mapping[str, Any] = VALUES, version: str = "0.3.0") -> None:
        file = self.folder / "values.yaml"
        file.write_text(yamlio.dumps(dict(values)))
        self.run("upgrade", "--install", self.name, str(self.chart(version)), "--values", str(file))

    def look(self) -> LiveState:
        async def work(api: HttpApi) -> LiveState:
            return await self._read(api)

        return on(self.server, work)

    async def _read(self, api: KubeApi) -> LiveState:
        return await read(api, self.recipe, plan(self.recipe), now=datetime.now(UTC), kubernetes_version="v1.37.2")

    def results(self) -> dict[str, AssertionResult]:
        return results(assess(self.recipe, plan(self.recipe), self.look()))

    def drifts(self) -> list[tuple[str, str]]:
        """(class, path) of the drifts but failed assertions, names of this test left out."""
        found = told(drift(self.recipe, plan(self.recipe), self.look()))
        return [
            (kind, path.replace(self.name, "op").replace(self.namespace, "ns"))
            for kind, _, path in found
            if kind != "assertion"
        ]

    def well(self) -> None:
        """What controllers and kubelets would write where nodes run."""
        status = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        set_status(self.server, DEPLOYMENTS, "renamed", self.namespace, {"observedGeneration": 1, **status})


@pytest.fixture(scope="module")
def server(real_cluster: RealCluster) -> Server:
    return real(real_cluster)


@pytest.fixture
def installation(server: Server, helm: Path, tmp_path: Path) -> Installation:
    return Installation(server, helm, tmp_path)


@pytest.fixture
def gpu_node(server: Server) -> Iterator[str]:
    name = server.unique("gpu")
    labels = {"nvidia.com/gpu.present": "true", "muster.dev/test": "true", "kubernetes.io/os": "linux"}
    create(server, NODES, {"metadata": {"name": name, "labels": labels}})
    yield name
    on(server, lambda api: api.delete(NODES, name))


def test_what_helm_installed_is_as_locked_nulls_and_empty_lists_included(installation: Installation) -> None:
    installation.install()
    found = installation.results()
    space = installation.namespace
    assert found[f"{installation.name}/Release/{space}/{installation.name}"] is PASSED
    assert found[f"{installation.name}/Version/{space}/{installation.name}"] is PASSED
    assert installation.drifts() == []
    assert installation.drifts() == []
    eventually(
        lambda: (
            installation.results().get(f"{installation.name}/CustomResourceDefinition/gadgets.{installation.group}")
            is PASSED
        )
    )


def test_a_changed_release_drifts_and_a_removed_one_is_missing(installation: Installation) -> None:
    installation.install()
    installation.install({**VALUES, "a": {"b": 2}}, version="0.4.0")
    assert installation.drifts() == [("version", "release ns/op"), ("values", "op:a.b"), ("values", "op:a.gone")]
    installation.stray()
    assert ("foreign", "release ns/stray") in installation.drifts()
    installation.run("uninstall", installation.name)
    assert ("missing", "release ns/op") in installation.drifts()


def test_an_upgrade_that_helm_gave_up_is_not_deployed(installation: Installation) -> None:
    installation.install()
    chart = installation.chart("0.5.0")
    (chart / "templates" / "bad.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'Not A Name'}\n")
    with pytest.raises(AssertionError):
        installation.run("upgrade", installation.name, str(chart))
    name = f"{installation.name}/Release/{installation.namespace}/{installation.name}"
    assert installation.results()[name] is FAILED


def test_a_daemon_set_on_no_node_fails_on_a_gpu_cluster(installation: Installation, gpu_node: str) -> None:
    installation.install()
    space, name = installation.namespace, installation.name

    def seen() -> bool:
        obj = on(installation.server, lambda api: api.get(DAEMON_SETS, "driver", space))
        return obj["status"].get("observedGeneration") == obj["metadata"]["generation"]

    eventually(seen)
    state = installation.look()
    found = {a.name: a for a in assess(installation.recipe, plan(installation.recipe), state)}
    told_ = found[f"{name}/DaemonSet/{space}/driver"]
    assert told_.result is FAILED
    assert f"{installation.group}/never=true matches no node" in told_.message


def test_a_crash_loop_behind_a_running_pod_of_a_real_deployment_is_found(installation: Installation) -> None:
    installation.install()
    space, name = installation.namespace, installation.name

    def pods() -> list[str]:
        page = on(installation.server, lambda api: api.list_page(PODS, space))
        return [yamlio.loads(raw, "pod")["metadata"]["name"] for raw in page.items]

    (pod,) = eventually(pods)
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": "work:1",
                "imageID": "",
                "ready": False,
                "restartCount": 9,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {
                    "terminated": {"exitCode": 139, "reason": "Error", "finishedAt": "2026-01-05T07:00:00Z"}
                },
            }
        ],
    }
    assert installation.results()[f"{name}/Pods/{space}"] is PASSED
    set_status(installation.server, PODS, pod, space, status)
    state = installation.look()
    found = {a.name: a for a in assess(installation.recipe, plan(installation.recipe), state)}
    assert found[f"{name}/Pods/{space}"].result is FAILED
    assert "CrashLoopBackOff after 9 restarts, last exit code 139" in found[f"{name}/Pods/{space}"].message


def test_what_is_edited_beside_helm_is_told_and_what_an_autoscaler_does_is_not(installation: Installation) -> None:
    space, server = installation.namespace, installation.server
    counted = workload("Deployment", "counted", "", replicas=2)
    del counted["metadata"]["namespace"]
    (installation.chart() / "templates" / "counted.yaml").write_text(yamlio.dumps(counted))
    installation.install()
    assert installation.drifts() == []

    def scale(replicas: int, manager: str) -> None:
        body, place = {"spec": {"replicas": replicas}}, {"subresource": "scale", "manager": manager}
        on(server, lambda api: api.patch(DEPLOYMENTS, "counted", body, PatchType.MERGE, space, **place))

    def run_image(image: str) -> None:
        body = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
        on(server, lambda api: api.patch(DEPLOYMENTS, "counted", body, PatchType.STRATEGIC, space))

    run_image("mirror.example/proxy/work:1")
    assert installation.drifts() == []
    run_image("work:evil")
    assert installation.drifts() == [("values", "Deployment ns/counted: image of main")]
    run_image("work:1")
    scale(4, "kubectl")
    assert installation.drifts() == [("values", "Deployment ns/counted: replicas")]
    scale(5, "kube-controller-manager")
    assert installation.drifts() == []


def test_following_the_real_server_sees_the_upgrade(installation: Installation) -> None:
    installation.install()

    async def main(api: HttpApi) -> list[tuple[str, str, str]]:
        from muster.clock import SystemClock

        planned = plan(installation.recipe)
        states = follow(api, installation.recipe, planned, SystemClock(), version=api.server_version)
        await anext(states)
        await asyncio.to_thread(installation.install, {**VALUES, "text": "1.31"})
        try:
            async with asyncio.timeout(60):
                async for state in states:
                    assert isinstance(state, LiveState)
                    found = [d for d in told(drift(installation.recipe, planned, state)) if d[0] == "values"]
                    if found:
                        return found
        finally:
            await states.aclose()
        return []

    name = installation.name
    assert on(installation.server, main) == [("values", name, f"{name}:text")]


def test_a_user_without_rights_learns_that_everything_is_unknown(
    installation: Installation, control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installation.install()
    kubeconfig = tmp_path / "nobody"
    kubeconfig.write_text(control_plane.kubeconfig(NOBODY))
    file = save(installation.recipe, tmp_path)
    assert run(["assert", str(file), "--kubeconfig", str(kubeconfig)]) == 3
    out = capsys.readouterr().out
    assert "reading it is not allowed (RBAC)" in out
    assert "0 passed, 0 failed" in out
    assert run(["drift", str(file), "--kubeconfig", str(kubeconfig)]) == 3
    assert "Nothing differs in what could be read." in capsys.readouterr().out


# Argo CD and Flux


@pytest.fixture(scope="module")
def _definitions(server: Server, deployer_crds: list[Path]) -> None:
    wanted = {
        "applications.argoproj.io",
        "helmreleases.helm.toolkit.fluxcd.io",
        "helmrepositories.source.toolkit.fluxcd.io",
    }
    for file in deployer_crds:
        for crd in yamlio.loads_all(file.read_bytes(), str(file)):
            if isinstance(crd, dict) and crd["metadata"]["name"] in wanted:
                on(server, lambda api, crd=crd: api.apply(CRDS, crd, manager="test"))
    for res in (ARGO_APPLICATIONS, FLUX_HELM_RELEASES, FLUX_HELM_REPOSITORIES):
        eventually(lambda res=res: on(server, lambda api: _served(api, res)))


async def _served(api: HttpApi, res: Any) -> bool:
    try:
        await api.list_page(res, limit=1)
    except NotFoundError:
        return False
    return True


@pytest.mark.usefixtures("_definitions")
def test_a_release_of_argo_cd_is_read_through_its_real_definition(installation: Installation) -> None:
    name, space = installation.name, installation.namespace
    application = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "project": "default",
            "source": {
                "repoURL": "https://charts.example.com",
                "chart": name,
                "targetRevision": "0.3.0",
                "helm": {"releaseName": name, "values": yamlio.dumps(VALUES)},
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": space},
        },
        "status": {
            "sync": {"status": "Synced", "revision": "0.3.0"},
            "health": {"status": "Healthy"},
            "resources": [{"group": "apps", "version": "v1", "kind": "Deployment", "namespace": space, "name": "d"}],
        },
    }
    create(installation.server, ARGO_APPLICATIONS, application)
    state = installation.look()
    assert [i.via for i in state.installed if i.name == name] == [Via.ARGOCD]
    found = results(assess(installation.recipe, plan(installation.recipe), state))
    assert found[f"{name}/Release/{space}/{name}"] is PASSED
    assert found[f"{name}/Version/{space}/{name}"] is PASSED
    assert installation.drifts() == [("missing", "Deployment ns/d")]


@pytest.mark.usefixtures("_definitions")
def test_a_release_of_flux_is_read_through_its_real_definition(installation: Installation) -> None:
    name, space = installation.name, installation.namespace
    repository = {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmRepository",
        "metadata": {"name": "r", "namespace": space},
        "spec": {"url": "https://elsewhere.example.com", "interval": "1h"},
    }
    chart = {"chart": name, "version": "0.3.0", "sourceRef": {"kind": "HelmRepository", "name": "r"}}
    release = {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": name, "namespace": space},
        "spec": {"interval": "10m", "releaseName": name, "targetNamespace": space, "chart": {"spec": chart}},
    }
    at = "2026-01-05T07:00:00Z"
    ready = {"type": "Ready", "status": "False", "reason": "InstallFailed", "message": "no", "lastTransitionTime": at}
    create(installation.server, FLUX_HELM_REPOSITORIES, repository)
    create(installation.server, FLUX_HELM_RELEASES, release, {"observedGeneration": 1, "conditions": [ready]})
    assert installation.results()[f"{name}/Release/{space}/{name}"] is FAILED
    assert installation.drifts() == [("version", "release ns/op source")]
