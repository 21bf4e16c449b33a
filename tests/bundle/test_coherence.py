"""Rules over merged values: each is broken on purpose, and no reference leaf breaks one that must hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.configure.bundles.coherence import MANIFESTS, RULES, incoherences, require_coherence
from muster.configure.recipe import Pool, Recipe
from muster.errors import BadInputError
from tests.bundle.made_up import component, recipe_with
from tests.configure.cases import NAMES, recipe_of


def recipe_on(service: str, **values: dict[str, Any]) -> Recipe:
    parts = [component(name.replace("_", "-"), values=found) for name, found in values.items()]
    return msgspec.structs.replace(recipe_with(*parts), criteria={"service": service})


def broken(recipe: Recipe) -> list[str]:
    return [i.rule for i in incoherences(recipe)]


SENTINEL = {"labeler": {"assumeDriverInstalled": True}}
ROOT = "/run/nvidia/driver"
CASES: list[tuple[str, Recipe, Recipe]] = [
    (
        "driver-root",
        recipe_on("eks", gpu_operator={}, nvidia_dra_driver_gpu={}),
        recipe_on("eks", gpu_operator={}, nvidia_dra_driver_gpu={"nvidiaDriverRoot": ROOT}),
    ),
    (
        "driver-root",
        recipe_on(
            "aks", gpu_operator={"driver": {"enabled": False}}, nvidia_dra_driver_gpu={"nvidiaDriverRoot": ROOT}
        ),
        recipe_on(
            "aks", gpu_operator={"driver": {"enabled": False}}, nvidia_dra_driver_gpu={"nvidiaDriverRoot": "/"}
        ),
    ),
    (
        "gke-driver-directory",
        recipe_on("gke", gpu_operator={"driver": {"enabled": False}}),
        recipe_on(
            "gke",
            gpu_operator={
                "driver": {"enabled": False},
                "hostPaths": {"driverInstallDir": "/home/kubernetes/bin/nvidia"},
            },
        ),
    ),
    (
        "provider-owns-driver",
        recipe_on("oke", gpu_operator={}),
        recipe_on("oke", gpu_operator={"driver": {"enabled": False}}),
    ),
    (
        "driver-label",
        recipe_on("eks", gpu_operator={}, nvsentinel=SENTINEL),
        recipe_on("eks", gpu_operator={"driver": {"enabled": False}}, nvsentinel=SENTINEL),
    ),
    (
        "runtime-class",
        recipe_on("aks", gpu_operator={"operator": {"runtimeClass": "other"}, "driver": {}}, nvsentinel={}),
        recipe_on("aks", gpu_operator={}, nvsentinel={}),
    ),
    (
        "dcgm",
        recipe_on("eks", gpu_operator={}, nvsentinel={}),
        recipe_on("kind", gpu_operator={}, nvsentinel={}),
    ),
    (
        "metrics-address",
        recipe_on("eks", prometheus_adapter={}, kube_prometheus_stack={}),
        recipe_on(
            "eks",
            prometheus_adapter={"prometheus": {"url": "http://mine-prometheus.monitoring.svc"}},
            kube_prometheus_stack={"fullnameOverride": "mine"},
        ),
    ),
    (
        "accounting-database",
        recipe_on("eks", slinky_slurm={"accounting": {"enabled": True}}),
        recipe_on("eks", slinky_slurm={"accounting": {"enabled": True}}, slurm_accounting_mariadb={}),
    ),
    (
        "one-feature-discovery",
        recipe_on("eks", gpu_operator={}, nfd={}),
        recipe_on("eks", gpu_operator={"nfd": {"enabled": False}}, nfd={}),
    ),
    (
        "host-mofed",
        recipe_on("eks", gpu_operator={"driver": {"rdma": {"enabled": True}}}),
        recipe_on("eks", gpu_operator={"driver": {"rdma": {"enabled": True}}}, network_operator={}),
    ),
    (
        "workload-selector",
        recipe_on("eks", nodewright_customizations={"acceleratedNodeSelector": {"a": "b"}}),
        recipe_on("eks", nodewright_customizations={"workloadSelector": {"a": "b"}}),
    ),
    (
        "accelerated-selector",
        recipe_on("eks", nodewright_customizations={"workloadSelector": {"a": "b"}}),
        recipe_on("eks", nodewright_customizations={"acceleratedNodeSelector": {"a": "b"}}),
    ),
    (
        "wildcard-toleration",
        recipe_on(
            "eks",
            nodewright_operator={"controllerManager": {"manager": {"env": {"runtimeRequiredTaint": "a:NoExecute"}}}},
            kubeflow_trainer={"acceleratedTolerations": [{"operator": "Exists"}]},
        ),
        recipe_on(
            "eks", nodewright_operator={}, kubeflow_trainer={"acceleratedTolerations": [{"operator": "Exists"}]}
        ),
    ),
    (
        "one-problem-detector",
        recipe_on("gke", node_problem_detector={}),
        recipe_on("eks", node_problem_detector={}),
    ),
    ("gke-critical-quota", recipe_on("gke", gpu_operator={}), recipe_on("eks", gpu_operator={})),
]


@pytest.mark.parametrize(("rule", "bad", "good"), CASES, ids=[f"{rule}-{at}" for at, (rule, *_) in enumerate(CASES)])
def test_each_rule(rule: str, bad: Recipe, good: Recipe) -> None:
    assert rule in broken(bad)
    assert rule not in broken(good)
    (sentence,) = [i.sentence for i in incoherences(bad) if i.rule == rule]
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_every_rule_has_a_case() -> None:
    assert {r.name for r in RULES} | {m.name for m in MANIFESTS} == {rule for rule, _, _ in CASES}


@pytest.mark.parametrize("name", NAMES)
def test_no_leaf_breaks_a_rule_that_must_hold(name: str) -> None:
    assert [i.sentence for i in incoherences(recipe_of(name)) if i.must] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_leaf_warns_of_is_left_to_the_person(name: str) -> None:
    """Labels of nodes and pods are the person's to name; everything else a leaf settles itself."""
    assert {i.rule for i in incoherences(recipe_of(name))} <= {"workload-selector", "accelerated-selector"}


@pytest.mark.parametrize("name", [name for name in NAMES if "gke" in name])
def test_gke_recipes_allow_critical_pods(name: str) -> None:
    """GKE refuses pods of a critical priority outside kube-system without a quota."""
    found = recipe_of(name).component("gpu-operator")
    assert found is not None
    (objects,) = [f.objects for f in found.pre_manifests if f.name == "gke-critical-pods-quota.yaml"]
    assert objects is not None
    (quota,) = objects
    assert quota["kind"] == "ResourceQuota"
    classes = quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"]
    assert {"system-node-critical", "system-cluster-critical"} <= set(classes)


def test_who_breaks_a_rule_hears_of_it() -> None:
    good = recipe_on("eks", gpu_operator={}, nvidia_dra_driver_gpu={"nvidiaDriverRoot": ROOT})
    bad = recipe_on(
        "eks", gpu_operator={"driver": {"enabled": False}}, nvidia_dra_driver_gpu={"nvidiaDriverRoot": ROOT}
    )
    with pytest.raises(BadInputError, match=r"driver\.enabled is false.*--allow-incoherent"):
        require_coherence(good, bad)
    (warning,) = require_coherence(good, bad, allow=True)
    assert "nvidiaDriverRoot" in warning
    # The recipe itself is not the fault of who builds a bundle from it.
    assert require_coherence(bad, bad) == (warning,)
    assert require_coherence(bad, good) == ()


def test_each_pool_is_looked_at() -> None:
    parts = [
        component("gpu-operator", values={}),
        component("nvidia-dra-driver-gpu-a", pool="a", values={"nvidiaDriverRoot": ROOT}),
        component("nvidia-dra-driver-gpu-b", pool="b", values={"nvidiaDriverRoot": "/"}),
    ]
    pools = (Pool(name="a", criteria={}), Pool(name="b", criteria={}))
    recipe = msgspec.structs.replace(recipe_with(*parts), pools=pools)
    (found,) = incoherences(recipe)
    assert "nvidia-dra-driver-gpu-b:nvidiaDriverRoot" in found.sentence
