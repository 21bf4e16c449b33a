"""Our manifests before a real API server that has the real CRDs of their kinds, as far as Go modules carry them.

Server-side dry run with strict field validation: a field that a kind does not know is an error. No module carries the
CRDs of NodeWright, ClusterPolicy, NicClusterPolicy, CertManager and ComputeDomain; `test_manifests` holds NodeWright
against the fields that were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure.catalogue import load
from muster.configure.parameters import filled
from muster.configure.recipe import ManifestFile, RecipeComponent
from tests.bundle.test_real_api import CRDS, MANAGER, Api
from tests.contract.server import eventually, real
from tests.controlplane.plugin import RealCluster
from tests.programs.sources import Module, SourceMissingError, fetch

MODULES: tuple[tuple[Module, str, str], ...] = (
    (
        Module("sigs.k8s.io/kueue", "v0.17.1", "h1:r4cwg3ZFF75l7RjVbdCJgM+0RpU0MJGp7t3rLH8Zyh4="),
        "config/components/crd/bases",
        "kueue.x-k8s.io_*.yaml",
    ),
    (
        Module("github.com/kubeflow/trainer/v2", "v2.2.0", "h1:whChZckEtycLo1UKH/M0hiNaCUozbLvf9JrgmMv+TAg="),
        "charts/kubeflow-trainer/crds",
        "*clustertrainingruntimes.yaml",
    ),
    (
        Module("sigs.k8s.io/node-feature-discovery", "v0.19.0", "h1:9CYm16vjSIbNO5Z1Y67rcrfy51YWmy3+6wjiWzJbrC4="),
        "deployment/helm/node-feature-discovery/crds",
        "*.yaml",
    ),
    (
        Module("github.com/operator-framework/api", "v0.40.0", "h1:xTTKJM6Yv6sr/pLibiINlnaXy+iNClmCo5QJMeHwyuc="),
        "crds",
        "operators.coreos.com_[os][pu][eb]*s.yaml",
    ),
    (
        Module("github.com/agentgateway/agentgateway", "v1.3.1", "h1:yogoKFzt+PSCKQavyFv1jS5jKO8ewNtG4OW7ERHvnOQ="),
        "controller/install/helm/agentgateway-crds/templates",
        "agentgateway.dev_agentgatewayparameters.yaml",
    ),
    (
        Module("sigs.k8s.io/gateway-api", "v1.5.1", "h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0="),
        "config/crd/standard",
        "gateway.networking.k8s.io_gateways.yaml",
    ),
)
"""Module, folder and files of CRDs. Their checksums pin what they hold."""

CHECKED = {
    "kueue": "kueue-system", "kubeflow-trainer": "kubeflow", "network-operator": "nvidia-network-operator",
    "gpu-operator": "gpu-operator", "nfd-ocp-olm": "openshift-nfd", "gpu-operator-ocp-olm": "gpu-operator",
    "network-operator-ocp-olm": "nvidia-network-operator", "cert-manager-ocp-olm": "cert-manager-operator",
    "agentgateway": "agentgateway-system", "prometheus-adapter-ocp": "monitoring", "slinky-slurm": "slurm",
    "nvidia-dra-driver-gpu-ocp": "nvidia-dra-driver", "k8s-nim-operator-ocp": "nvidia-nim",
    "gpu-operator-ocp": "gpu-operator",
}  # fmt: skip
UNCHECKED = {"ClusterPolicy", "NicClusterPolicy", "ComputeDomain"}
"""Kinds whose CRD no module carries."""


def documents() -> list[dict[str, Any]]:
    found = []
    for module, folder, pattern in MODULES:
        for file in sorted((fetch(module) / folder).glob(pattern)):
            if file.name != "kustomization.yaml":
                found += [d for d in yamlio.loads_all(file.read_bytes(), file.name) if d is not None]
    return [d for d in found if d.get("kind") == "CustomResourceDefinition"]


@pytest.fixture(scope="module")
def api(real_cluster: RealCluster) -> Iterator[Api]:
    try:
        crds = documents()
    except SourceMissingError as error:
        pytest.skip(f"no real program: {error}")
    server = real(real_cluster)
    found = Api(server.admin, Path(server.kubeconfig))
    mine = [crd for crd in crds if server.admin.get(f"{CRDS}/{crd['metadata']['name']}").status == 404]
    try:
        for crd in crds:
            server.admin.apply(f"{CRDS}/{crd['metadata']['name']}", crd, manager=MANAGER, force="true").ok()
        for crd in crds:
            served = [v["name"] for v in crd["spec"]["versions"] if v["served"]]
            wanted = {"apiVersion": f"{crd['spec']['group']}/{served[-1]}", "kind": crd["spec"]["names"]["kind"]}

            def known(wanted: dict[str, Any] = wanted) -> bool:
                return found.known(wanted)

            eventually(known)
        yield found
    finally:
        for crd in mine:
            server.admin.delete(f"{CRDS}/{crd['metadata']['name']}")
        for name in found.namespaces:
            server.admin.delete(f"/api/v1/namespaces/{name}")


PLACES = [{"operator": "Exists"}]
VALUES: dict[str, list[dict[str, Any]]] = {
    "kueue": [{}, {"quotas": {"cpu": "64", "memory": "1Ti", "gpu": "8", "flavor": "tas-flavor"}}],
    "kubeflow-trainer": [{}, {"acceleratedNodeSelector": {"a": "b"}, "acceleratedTolerations": PLACES}],
    "agentgateway": [{}, {"nodeSelector": {"a": "b"}, "tolerations": PLACES, "allowedSourceRanges": []}],
    "gpu-operator": [{"toolkit": {"enabled": False}}, {}],
    "slinky-slurm": [{}, {"storage": {"enabled": True, "home": {"size": "1Gi"}}, "enroot": {"enabled": True}}],
    "gpu-operator-ocp-olm": [{}, {"channel": "v26.3", "installPlanApproval": "Manual"}],
}


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_the_server_takes_our_objects(api: Api, name: str) -> None:
    component = load().components[name]
    keys = sorted(k for k in load().manifests if k.startswith(f"{name}/"))
    checked = 0
    for values in VALUES.get(name, [{}]):
        placed = RecipeComponent(name=name, source=component.source, namespace=CHECKED[name], values=values)
        files = tuple(ManifestFile(name=k.split("/")[1], objects=load().manifests[k]) for k in keys)
        for file in filled(files, placed):
            for item in file.objects or ():
                if item["kind"] in UNCHECKED:
                    continue
                checked += 1
                assert api.refusal(item, CHECKED[name]) == "", (name, file.name, values)
    assert checked > 0


def test_a_field_that_the_kind_lacks_is_refused(api: Api) -> None:
    """The dry run can fail at all: a misspelt policy is one that the server does not take."""
    (runtime,) = load().manifests["kubeflow-trainer/torch-distributed-cluster-training-runtime.yaml"]
    source = load().components["kubeflow-trainer"].source
    trainer = RecipeComponent(name="kubeflow-trainer", source=source, namespace="kubeflow")
    (file,) = filled((ManifestFile(name="a.yaml", objects=[runtime]),), trainer)
    assert file.objects is not None
    good = file.objects[0]
    bad = {**good, "spec": {**good["spec"], "mlPolicy": {"numNodes": 1, "torhc": {}}}}
    assert "torhc" in api.refusal(bad)
