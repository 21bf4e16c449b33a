"""Objects of the bundles before a real API server that has the real CRDs of Argo CD and Flux.

Server-side dry run with strict field validation: a field that the server does not know is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure.bundles.build import Deployer
from tests.bundle import read_flux
from tests.bundle.cases import GIT, OCI, built, bundle_of
from tests.bundle.found import manifests_of
from tests.bundle.test_argocd_helm import CHILDREN, rendered, written
from tests.configure.cases import NAMES, recipe_of
from tests.contract.client import Client
from tests.contract.server import eventually, real
from tests.controlplane.plugin import RealCluster
from tests.deploy.chart import KubectlError, kubectl

MANAGER = "muster-test"
MAX_ANNOTATIONS_BYTES = 256 * 1024
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Object = dict[str, Any]


@dataclass
class Api:
    """The server, and what it has answered already: equal objects of many leaves are asked about once."""

    client: Client
    kubeconfig: Path
    kinds: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    namespaces: list[str] = field(default_factory=list)

    def learn(self, api_version: str) -> None:
        """Note the kinds of a group and version: (plural, namespaced)."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        answer = self.client.get(root)
        for found in answer.body.get("resources", []) if answer.status == 200 else []:
            if "/" not in found["name"]:
                self.kinds[api_version, found["kind"]] = (found["name"], found["namespaced"])

    def known(self, thing: Object) -> bool:
        key = (thing["apiVersion"], thing["kind"])
        if key not in self.kinds:
            self.learn(thing["apiVersion"])
        return key in self.kinds

    def namespace(self, name: str) -> None:
        """Make the namespace: even a dry run needs it."""
        if name not in self.namespaces and self.client.get(f"/api/v1/namespaces/{name}").status == 404:
            self.client.create("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
            self.namespaces.append(name)

    def refusal(self, thing: Object, namespace: str = "") -> str:
        """What the server has against the object; empty when it takes it."""
        assert self.known(thing), f"the server knows no {thing['kind']} of {thing['apiVersion']}"
        plural, namespaced = self.kinds[thing["apiVersion"], thing["kind"]]
        key = json.dumps([thing, namespace], sort_keys=True)
        if key not in self.asked:
            group = thing["apiVersion"]
            path = f"/apis/{group}" if "/" in group else f"/api/{group}"
            if namespaced:
                where = thing["metadata"].get("namespace") or namespace
                self.namespace(where)
                path += f"/namespaces/{where}"
            strict = {"dryRun": "All", "fieldValidation": "Strict", "force": "true"}
            answer = self.client.apply(
                f"{path}/{plural}/{thing['metadata']['name']}", thing, manager=MANAGER, **strict
            )
            self.asked[key] = "" if answer.status in (200, 201) else f"{answer.status}: {answer.body['message']}"
        return self.asked[key]


def refusals(api: Api, things: list[Object], namespace: str = "") -> list[str]:
    found = [(thing, api.refusal(thing, namespace)) for thing in things]
    return [f"{thing['kind']}/{thing['metadata']['name']}: {why}" for thing, why in found if why]


@pytest.fixture(scope="module")
def api(real_cluster: RealCluster, deployer_crds: list[Path]) -> Iterator[Api]:
    """The server with the CRDs applied on the server's side, as the deployers' own instructions say."""
    server = real(real_cluster)
    found = Api(server.admin, server.kubeconfig)
    crds = [d for file in deployer_crds for d in yamlio.loads_all(file.read_bytes(), file.name) if d is not None]
    mine = [crd for crd in crds if server.admin.get(f"{CRDS}/{crd['metadata']['name']}").status == 404]
    try:
        for crd in crds:
            server.admin.apply(f"{CRDS}/{crd['metadata']['name']}", crd, manager=MANAGER, force="true").ok()
        for crd in crds:
            path = f"{CRDS}/{crd['metadata']['name']}"

            def established(path: str = path) -> bool:
                conditions = server.admin.get(path).ok().get("status", {}).get("conditions") or []
                return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

            eventually(established)
            version = crd["spec"]["versions"][-1]["name"]
            kind = (f"{crd['spec']['group']}/{version}", crd["spec"]["names"]["kind"])
            eventually(lambda kind=kind: found.known({"apiVersion": kind[0], "kind": kind[1]}))
        yield found
    finally:
        for crd in mine:
            server.admin.delete(f"{CRDS}/{crd['metadata']['name']}")
        for name in found.namespaces:
            server.admin.delete(f"/api/v1/namespaces/{name}")


def argocd_objects(files: dict[str, str]) -> list[Object]:
    names = ["app-of-apps.yaml", "argocd-cm.yaml", *sorted(n for n in files if n.startswith("applications/"))]
    return [yamlio.loads(files[name], name) for name in names]


def flux_objects(files: dict[str, str]) -> list[Object]:
    first = [o for o in yamlio.loads_all(files["flux-bundle.yaml"], "flux-bundle.yaml") if o is not None]
    return first + read_flux.objects(files)


@pytest.mark.parametrize("name", NAMES)
def test_argo_cd_takes_the_applications(api: Api, name: str) -> None:
    objects = argocd_objects(bundle_of(name, Deployer.ARGOCD)[1])
    assert {o["kind"] for o in objects} == {"Application", "ConfigMap"}
    assert refusals(api, objects) == []


@pytest.mark.parametrize("name", NAMES)
def test_argo_cd_takes_what_the_chart_renders(api: Api, helm: Path, name: str, tmp_path: Path) -> None:
    folder = written(name, tmp_path)
    objects = rendered(helm, folder, {}) + rendered(helm, folder, CHILDREN)
    objects.append(yamlio.load(folder / "argocd-cm.yaml"))
    assert len(objects) > 5
    assert refusals(api, objects, "argocd") == []


@pytest.mark.parametrize("name", NAMES)
def test_flux_takes_its_objects(api: Api, name: str) -> None:
    objects = flux_objects(bundle_of(name, Deployer.FLUX)[1])
    assert {"HelmRelease", "Kustomization"} <= {o["kind"] for o in objects}
    assert refusals(api, objects, "flux-system") == []


def test_bundles_in_a_registry_are_taken(api: Api) -> None:
    recipe = recipe_of("h100-eks-ubuntu-training-kubeflow")
    assert refusals(api, argocd_objects(built(recipe, Deployer.ARGOCD, repository=OCI)[1])) == []
    objects = flux_objects(built(recipe, Deployer.FLUX, repository=OCI)[1])
    known = [o for o in objects if api.known(o)]
    assert "OCIRepository" in {o["kind"] for o in known}
    assert refusals(api, known, "flux-system") == []


@pytest.mark.parametrize("name", NAMES)
def test_the_namespaces_and_charts_of_the_bundle(api: Api, name: str) -> None:
    """Objects of charts in the bundle whose kinds the server knows; the others belong to charts that it lacks."""
    planned, files = bundle_of(name, Deployer.ARGOCD)
    namespaces: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": labels}}
        for n, labels in planned.namespaces.items()
    ]
    assert refusals(api, namespaces) == []
    for document in argocd_objects(files)[2:]:
        source = document["spec"]["source"]
        if "path" in source:
            objects = list(manifests_of(files, source["path"].removeprefix("gpu/bundle/")))
            known = [o for o in objects if api.known(o)]
            assert refusals(api, known, document["spec"]["destination"]["namespace"]) == []


def test_the_server_is_asked_about_something(api: Api) -> None:
    """The dry run refuses what it should: else all of this would show nothing."""
    application = argocd_objects(bundle_of("h100-any", Deployer.ARGOCD)[1])[2]
    wrong = json.loads(json.dumps(application))
    wrong["spec"]["syncPolicy"]["retry"]["limits"] = 5
    assert "limits" in api.refusal(wrong)
    del wrong["spec"]["syncPolicy"]["retry"]["limits"], wrong["spec"]["destination"]
    assert api.refusal(wrong)


def test_nulls_survive_in_text_alone(api: Api) -> None:
    """Why values travel as text: a later `kubectl apply` sends a merge patch, where a null means removal."""
    application = argocd_objects(bundle_of("h100-any", Deployer.ARGOCD)[1])[2]
    application["metadata"]["name"] = "nulls"
    del application["metadata"]["finalizers"]
    helm = application["spec"]["source"]["helm"]
    helm |= {"values": "b: 1\n", "valuesObject": {"b": 1}}
    api.namespace("argocd")
    path = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/nulls"
    try:
        kubectl(api.kubeconfig, "apply", "-f", "-", stdin=yamlio.dumps(application))
        helm |= {"values": "a: null\nb: 1\n", "valuesObject": {"a": None, "b": 1}}
        kubectl(api.kubeconfig, "apply", "-f", "-", stdin=yamlio.dumps(application))
        got = api.client.get(path).ok()["spec"]["source"]["helm"]
    finally:
        api.client.delete(path)
    assert got["values"] == "a: null\nb: 1\n"
    assert got["valuesObject"] == {"b": 1}


@pytest.mark.parametrize("deployer", [Deployer.ARGOCD, Deployer.ARGOCD_HELM])
def test_the_rule_is_merged_into_what_is_there(api: Api, deployer: Deployer, tmp_path: Path) -> None:
    namespace = "argocd" if deployer is Deployer.ARGOCD else "gitops"
    api.namespace(namespace)
    file = tmp_path / "argocd-cm.yaml"
    file.write_text(bundle_of("h100-any", deployer)[1]["argocd-cm.yaml"])
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm"}, "data": {"url": "x"}}
    api.client.create(path, config).ok()
    try:
        flags = ("--namespace", namespace, "--type", "merge", "--patch-file", str(file))
        kubectl(api.kubeconfig, "patch", "configmap", "argocd-cm", *flags)
        data = api.client.get(f"{path}/argocd-cm").ok()["data"]
        assert sorted(data) == ["resource.customizations.health.argoproj.io_Application", "url"]
        remove = '[{"op":"remove","path":"/data/resource.customizations.health.argoproj.io_Application"}]'
        kubectl(
            api.kubeconfig,
            "patch",
            "configmap",
            "argocd-cm",
            "--namespace",
            namespace,
            "--type",
            "json",
            "-p",
            remove,
        )
        assert api.client.get(f"{path}/argocd-cm").ok()["data"] == {"url": "x"}
    finally:
        api.client.delete(f"{path}/argocd-cm")


def test_a_failed_sync_can_be_forgotten(api: Api) -> None:
    """The remedy of the how-to: status is no subresource of an Application, so a patch of the object reaches it."""
    application = argocd_objects(bundle_of("h100-any", Deployer.ARGOCD)[1])[2]
    application["metadata"]["name"] = "failed"
    del application["metadata"]["finalizers"]
    moment = "2026-09-01T12:00:00Z"
    state = {"operation": {"sync": {}}, "phase": "Failed", "startedAt": moment, "message": "x"}
    application["status"] = {"operationState": state}
    api.namespace("argocd")
    path = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
    try:
        made = api.client.create(path, application, fieldValidation="Strict").ok()
        assert made["status"]["operationState"]["phase"] == "Failed"
        patch = '[{"op":"remove","path":"/status/operationState"}]'
        kubectl(api.kubeconfig, "patch", "application", "failed", "--namespace", "argocd", "--type=json", "-p", patch)
        assert "operationState" not in api.client.get(f"{path}/failed").ok()["status"]
    finally:
        api.client.delete(f"{path}/failed")


def test_large_crds_need_server_side_apply(deployer_crds: list[Path], api: Api) -> None:
    large = [file for file in deployer_crds if len(json.dumps(yamlio.load(file))) > MAX_ANNOTATIONS_BYTES]
    assert large
    with pytest.raises(KubectlError, match="Too long"):
        kubectl(api.kubeconfig, "apply", "--dry-run=server", "-f", str(large[0]))
    kubectl(api.kubeconfig, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(large[0]))


@pytest.mark.parametrize("deployer", [Deployer.ARGOCD, Deployer.ARGOCD_HELM, Deployer.FLUX])
@pytest.mark.requirement("v2.4/K8S25")
def test_kubectl_takes_them(api: Api, helm: Path, deployer: Deployer, tmp_path: Path) -> None:
    name = "h100-eks-ubuntu-training-kubeflow"
    _, files = built(recipe_of(name), deployer, repository=GIT)
    for namespace in ("argocd", "flux-system"):
        api.namespace(namespace)
    if deployer is Deployer.ARGOCD:
        objects = argocd_objects(files)
    elif deployer is Deployer.FLUX:
        objects = flux_objects(files)
    else:
        objects = rendered(helm, written(name, tmp_path), CHILDREN)
    listed = yamlio.dumps_all(objects)
    done = kubectl(api.kubeconfig, "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=listed)
    assert done.stdout.count("server dry run") == len(objects)
