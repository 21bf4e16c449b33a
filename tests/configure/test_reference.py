"""Every leaf of the reference catalogue: same order, levels, floors; differences are listed with reasons."""

from __future__ import annotations

from typing import Any

import pytest

from muster.configure.constraints import kind_of, scheme_of
from muster.configure.versions import Range
from tests.configure.cases import LEAVES, NAMES, leaf, recipe_of

# The DRA driver's chart declares kubeVersion >=1.32.0-0, so no recipe that holds it can run on less.
RAISED_TO_1_32 = {
    "a100-any", "a100-eks-ubuntu-training-kubeflow", "a100-gke-cos-training-kubeflow",
    "a100-oke-ubuntu-training-kubeflow", "b200-any", "gb200-any", "h100-any", "h200-any", "l40s-any",
    "l40s-oke-inference", "l40s-oke-training", "rtx-pro-6000-any", "rtx-pro-6000-lke-ubuntu-inference",
    "rtx-pro-6000-lke-ubuntu-training",
}  # fmt: skip
# Newer catalogues carry the driver installer in every GKE recipe, off unless the profile turns it on.
EXTRA_DISABLED = {name: ["gcp-driver-installer"] for name in NAMES if "-gke-cos-" in name}
# Edges that the reference lacks, by (component, what it waits for): a stricter order by design. All orders and levels
# of the reference hold all the same.
CRDS = "dcgmExporter.serviceMonitor.enabled makes objects of servicemonitors.monitoring.coreos.com"
STRICTER = {
    ("gpu-operator", "prometheus-operator-crds"): CRDS,
    ("kube-prometheus-stack", "aws-ebs-csi-driver"): (
        "the volume claim at prometheus.prometheusSpec.storageSpec.volumeClaimTemplate.spec needs a provisioner"
    ),
    ("dynamo-platform", "aws-ebs-csi-driver"): "a volume claim of the chart needs a provisioner",
    ("k8s-nim-operator", "nfd"): "nfd.nodeFeatureRules.deviceID makes objects of nodefeaturerules.nfd.k8s-sigs.io",
    ("slurm-accounting-mariadb", "aws-ebs-csi-driver"): "the volume claim at mariadb.storage needs a provisioner",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.requirement("v2.4/K8S25")
def test_order_and_levels(name: str) -> None:
    expected, recipe = leaf(name), recipe_of(name)
    assert [c.name for c in recipe.components] == expected["order"]
    assert [len(level) for level in recipe.levels] == expected["levels"]
    assert list(recipe.overlays) == expected["overlays"]
    assert list(recipe.mixins) == expected["mixins"]
    assert list(recipe.disabled) == sorted(expected["disabled"] + EXTRA_DISABLED.get(name, []))
    profile = "=".join(next(iter(recipe.profiles.items()))) if recipe.profiles else None
    assert profile == expected["profile"]


def same(name: str, ours: str, theirs: str) -> bool:
    scheme = scheme_of(kind_of(name))
    return ours == theirs if scheme is None else Range.parse(ours, scheme) == Range.parse(theirs, scheme)


@pytest.mark.parametrize("name", NAMES)
def test_constraints(name: str) -> None:
    expected: dict[str, Any] = leaf(name)
    recipe = recipe_of(name)
    wanted = dict(expected["constraints"])
    if name in RAISED_TO_1_32:
        wanted["kubernetes.version"] = ">= 1.32.0-0"
    # The profile adds a demand on the node pools of AKS and GKE, which the table leaves out.
    ours = {n: v for n, v in recipe.constraints.items() if n not in ("aks.gpu-pools.gpu-driver", "nodes.gpu.label")}
    assert sorted(ours) == sorted(wanted)
    assert [n for n in wanted if not same(n, ours[n], wanted[n])] == []
    for phase, table in (("performance", "performance"), ("deployment", "deployment")):
        found = recipe.checks[phase].constraints if phase in recipe.checks else {}
        assert sorted(found) == sorted(expected[table])
        assert [n for n in found if not same(n, found[n], expected[table][n])] == []


@pytest.mark.parametrize("name", NAMES)
def test_inferred_edges(name: str) -> None:
    recipe = recipe_of(name)
    names = {c.name for c in recipe.components}
    inferred = {(c.name, needed): why for c in recipe.components for needed, why in c.inferred.items()}
    assert inferred == {edge: why for edge, why in STRICTER.items() if {*edge} <= names}


def test_the_table_is_whole() -> None:
    assert len(LEAVES) == 44
    assert set(NAMES) >= RAISED_TO_1_32
