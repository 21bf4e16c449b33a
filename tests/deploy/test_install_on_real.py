"""The chart on a real API server: what kubectl and Helm make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.resources.base import GROUP, VERSION
from tests.contract.client import Client
from tests.contract.server import eventually
from tests.deploy.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    REQUIRED,
    engine,
    install,
    kubectl,
    merged,
    of_kind,
    one,
    render,
    text_of,
)

pytestmark = pytest.mark.real_api

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOLD = {"enabled": True, "nodeSelector": {"example.com/gpu": "h100"}}
FAULT_POLICIES = "/apis/muster.dev/v1alpha1/faultpolicies"


@pytest.fixture(autouse=True)
def _empty(kubeconfig: Path, admin: Client) -> None:
    """Nothing of Muster is installed, but for the namespace: deleting that takes long."""
    namespace = one(render({"namespace": {"create": True}}), "Namespace")
    kubectl(kubeconfig, "apply", "--server-side", "-f", "-", stdin=text_of([namespace]))
    for crd in admin.get(CRDS).ok()["items"]:
        if crd["spec"]["group"] == GROUP:
            # A kind that is deleted before anybody has listed it takes the API server minutes to let go of.
            path = f"/apis/{GROUP}/{VERSION}/{crd['spec']['names']['plural']}"
            eventually(partial(_listed, admin, path))
    everything = text_of(render({"metrics": {"dashboard": {"enabled": True}}}))
    kubectl(kubeconfig, "delete", "--ignore-not-found", "-f", "-", stdin=everything)


def _listed(admin: Client, path: str) -> bool:
    return admin.get(path).status == 200


def test_kubectl_applies_it_without_a_warning_and_the_second_time_changes_nothing(kubeconfig: Path) -> None:
    objects = render({"metrics": {"dashboard": {"enabled": True}}})
    first = kubectl(kubeconfig, "apply", "-f", "-", stdin=text_of(objects))
    assert first.stderr == ""
    before = _specs(kubeconfig, objects)
    assert kubectl(kubeconfig, "diff", "-f", "-", stdin=text_of(objects)).stdout == ""
    second = kubectl(kubeconfig, "apply", "-f", "-", stdin=text_of(objects))
    assert second.stderr == ""
    # What kubectl prints is no proof: it says "configured" of lists that it always sends as a whole.
    assert _specs(kubeconfig, objects) == before


def test_server_side_apply_changes_nothing_the_second_time(kubeconfig: Path, admin: Client) -> None:
    objects = install(kubeconfig)
    before = _specs(kubeconfig, objects)
    again = kubectl(
        kubeconfig, "apply", "--server-side", "--field-manager=muster-install", "-f", "-", stdin=text_of(objects)
    )
    assert again.stderr == ""
    assert _specs(kubeconfig, objects) == before


def _specs(kubeconfig: Path, objects: list[dict[str, Any]]) -> list[str]:
    """Kind, name and generation; the version where an object counts no generations."""
    version = "{{or .metadata.generation .metadata.resourceVersion}}"
    column = "-o=go-template={{range .items}}{{.kind}} {{.metadata.name}} " + version + "\n{{end}}"
    found = kubectl(kubeconfig, "get", column, "-f", "-", stdin=text_of(objects)).stdout.splitlines()
    assert len(found) == len(objects)
    return found


def test_the_definitions_are_established_and_the_policies_type_check(kubeconfig: Path, admin: Client) -> None:
    objects = install(kubeconfig)
    for crd in of_kind(objects, "CustomResourceDefinition"):
        conditions = admin.get(f"{CRDS}/{crd['metadata']['name']}").ok()["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions}["Established"] == "True"
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    assert len(policies) == 2
    for policy in policies:
        checked = eventually(partial(_checked, admin, f"{POLICIES}/{policy['metadata']['name']}"))
        assert "expressionWarnings" not in checked["typeChecking"], checked


def _checked(admin: Client, path: str) -> dict[str, Any]:
    """The status once the type check has seen this generation of the policy; empty before."""
    policy = admin.get(path).ok()
    status: dict[str, Any] = policy.get("status") or {}
    seen = status.get("observedGeneration") == policy["metadata"]["generation"]
    return {"typeChecking": {}, **status} if seen else {}


@dataclass(frozen=True)
class Helm:
    """Helm on the release, with what it knows of the server read anew for each action, as in separate commands."""

    kubeconfig: Path

    def install(self, values: Mapping[str, Any]) -> None:
        with self._config() as helm:
            found = helm.install(CHART, RELEASE, merged(REQUIRED, values), namespace=NAMESPACE)
        assert found["status"] == "deployed"

    def upgrade(self, values: Mapping[str, Any]) -> None:
        with self._config() as helm:
            found = helm.upgrade(CHART, RELEASE, merged(REQUIRED, values), namespace=NAMESPACE)
        assert found["status"] == "deployed"

    def uninstall(self) -> None:
        with self._config() as helm:
            helm.uninstall(RELEASE, ignore_not_found=True)

    def _config(self) -> Any:
        return engine().Config(kubeconfig_path=self.kubeconfig, namespace=NAMESPACE)


@pytest.fixture
def helm(kubeconfig: Path) -> Iterator[Helm]:
    helm = Helm(kubeconfig)
    yield helm
    helm.uninstall()


def test_helm_installs_upgrades_and_uninstalls_it_and_keeps_the_data(helm: Helm, admin: Client) -> None:
    helm.install({})
    eventually(lambda: admin.get(FAULT_POLICIES).status == 200)
    assert admin.get(FAULT_POLICIES).ok()["items"] == []
    assert admin.get(f"{POLICIES}/muster-agent-own-node").status == 200

    policy = {"budget": {"maxDisrupted": "5%"}, "drift": {"maxGraceS": 2592000}}
    helm.upgrade({"policy": policy, "controller": {"replicas": 3}, "holdNewNodes": HOLD})
    spec = admin.get(f"{FAULT_POLICIES}/default").ok()["spec"]
    assert spec["budget"]["maxDisrupted"] == "5%"
    assert spec["drift"]["maxGraceS"] == 2592000
    deployment = admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/muster-controller").ok()
    assert deployment["spec"]["replicas"] == 3

    health = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "kept"}}
    admin.create("/apis/muster.dev/v1alpha1/nodehealths", health).ok()
    helm.uninstall()
    assert admin.get("/apis/muster.dev/v1alpha1/nodehealths/kept").status == 200
    assert admin.get(f"{POLICIES}/muster-agent-own-node").status == 404
    assert admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/muster-controller").status == 404

    # What stayed does not stand in the way of the next installation.
    helm.install({})
    assert admin.get("/apis/muster.dev/v1alpha1/nodehealths/kept").status == 200


def test_helm_refuses_a_policy_before_its_kind_is_known(helm: Helm) -> None:
    with pytest.raises(engine().HelmError, match="install this release once without `policy`"):
        helm.install({"policy": {"priority": 1}})


@pytest.mark.requirement("v2.4/K8S06")
def test_new_gpu_nodes_are_held_from_the_first_moment_on(helm: Helm, admin: Client) -> None:
    helm.install({"holdNewNodes": HOLD})
    other = {"key": "example.com/new", "value": "", "effect": "NoExecute"}
    held = {"key": "muster.dev/hold", "value": "mine", "effect": "NoSchedule"}
    gpu = {"example.com/gpu": "h100"}
    eventually(lambda: _taints(admin, "probe", gpu, []))
    assert _taints(admin, "gpu-new", gpu, []) == ["muster.dev/hold=new-node:NoSchedule"]
    tainted = _taints(admin, "gpu-tainted", gpu, [other])
    assert tainted == ["example.com/new=:NoExecute", "muster.dev/hold=new-node:NoSchedule"]
    assert _taints(admin, "gpu-held", gpu, [held]) == ["muster.dev/hold=mine:NoSchedule"]
    assert _taints(admin, "cpu-new", {}, []) == []


def _taints(admin: Client, name: str, labels: Mapping[str, str], taints: list[dict[str, str]]) -> list[str]:
    """Taints that a node of this kind gets, without those of its not being ready."""
    node = {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"taints": taints}}
    found = admin.create("/api/v1/nodes", node, dryRun="All").ok()["spec"].get("taints", [])
    return sorted(
        f"{t['key']}={t.get('value', '')}:{t['effect']}"
        for t in found
        if not t["key"].startswith("node.kubernetes.io/")
    )


def test_an_upgrade_by_kubectl_from_observers_to_the_whole(kubeconfig: Path, admin: Client) -> None:
    deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/muster-controller"
    install(kubeconfig, {"controller": {"enabled": False}})
    assert admin.get(deployments).status == 404
    install(kubeconfig, {"agent": {"heartbeatSeconds": 30}})
    assert admin.get(deployments).status == 200
    agents = admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/muster-agent").ok()
    assert "--heartbeat=30" in agents["spec"]["template"]["spec"]["containers"][0]["args"]
