"""Resolution: coverage, vocabulary, profiles, provenance, disabled components, determinism."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from muster.configure.catalogue import Catalogue, Overlay, Patch, Source, load
from muster.configure.criteria import VOCABULARY, Dimension, parse_criteria
from muster.configure.matching import maximal_leaves
from muster.configure.provenance import explain
from muster.configure.resolve import Resolution, leaf_names, resolve
from muster.errors import BadInputError
from tests.configure.cases import H100_EKS, LEAVES


def resolved(
    criteria: dict[str, str], profiles: dict[str, str] | None = None, nodes: int | None = None
) -> Resolution:
    return resolve(parse_criteria(dict(criteria)), load(), profiles, nodes)


def with_overlay(name: str, **changes: Any) -> Catalogue:
    """The catalogue with one overlay changed."""
    catalogue = load()
    overlay = msgspec.structs.replace(catalogue.overlays[name], **changes)
    return msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {name: overlay})


def test_every_projection_is_carried_or_refused() -> None:
    """Whatever part of a recipe's criteria is stated: one applied overlay carries all of it, or it is an error."""
    catalogue = load()
    seen: set[tuple[tuple[str, str], ...]] = set()
    carried = refused = 0
    for leaf in LEAVES:
        items = sorted(leaf["criteria"].items())
        for size in range(1, len(items) + 1):
            seen.update(itertools.combinations(items, size))
    for items_stated in sorted(seen):
        stated = dict(items_stated)
        exact = [
            n for n in maximal_leaves(parse_criteria(stated), catalogue) if catalogue.overlays[n].criteria == stated
        ]
        if exact:
            carried += 1
            assert exact[0] in resolved(stated).recipe.overlays
        else:
            refused += 1
            with pytest.raises(BadInputError, match="No recipe"):
                resolved(stated)
    assert carried > 40
    assert refused > 200


def test_a_missing_dimension_is_named_with_its_completions() -> None:
    with pytest.raises(BadInputError, match=r"state also intent\. Add one of: intent=inference; intent=training"):
        resolved({"service": "eks", "accelerator": "h100"})


def test_a_dimension_that_nothing_carries_is_named() -> None:
    with pytest.raises(BadInputError, match=r"carries os=ubuntu in .*closest: service=eks accelerator=h200"):
        resolved({"service": "eks", "accelerator": "h200", "intent": "training", "os": "ubuntu"})


def test_the_closest_recipes_may_contradict_one_dimension() -> None:
    with pytest.raises(BadInputError, match=r"carries os=ubuntu in .*closest: service=gke accelerator=h100 .*os=cos"):
        resolved({"service": "gke", "accelerator": "h100", "intent": "training", "os": "ubuntu"})


def test_vocabulary() -> None:
    with pytest.raises(BadInputError, match=r"did you mean 'h100'\?\); valid values: a100, b200"):
        parse_criteria({"accelerator": "h10"})
    with pytest.raises(BadInputError, match="Unknown dimension 'nodes'"):
        parse_criteria({"nodes": "4"})
    with pytest.raises(BadInputError, match="Nothing was stated"):
        parse_criteria({"service": "any", "os": ""})
    used = {(d, v) for o in load().overlays.values() for d, v in o.criteria.items()}
    assert [pair for pair in sorted(used) if pair[1] not in VOCABULARY[Dimension(pair[0])]] == []


def test_every_leaf_resolves_or_says_why_not() -> None:
    catalogue = load()
    for name in leaf_names(catalogue):
        criteria = parse_criteria(dict(catalogue.overlays[name].criteria))
        unavailable = any(catalogue.overlays[n].unavailable for n in catalogue.chain(name))
        if unavailable:
            with pytest.raises(BadInputError, match="not usable yet"):
                resolve(criteria, catalogue)
        else:
            assert resolve(criteria, catalogue).recipe.components


def test_profiles() -> None:
    aks = {"service": "aks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"}
    default = resolved(aks).recipe
    chosen = resolved(aks, {"gpuStack": "operator-managed"}).recipe
    assert default.profiles == {"gpuStack": "azure-managed"}
    assert default.component("gpu-operator").values["driver"]["enabled"] is False  # type: ignore[union-attr]
    assert chosen.component("gpu-operator").values["driver"]["enabled"] is True  # type: ignore[union-attr]
    assert chosen.constraints["aks.gpu-pools.gpu-driver"] == "None"
    with pytest.raises(BadInputError, match="choose azure-managed or operator-managed"):
        resolved(aks, {"gpuStack": "x"})
    with pytest.raises(BadInputError, match="profiles here: none"):
        resolved(H100_EKS, {"gpuStack": "x"})


def test_a_profile_can_turn_a_component_on() -> None:
    gke = {"service": "gke", "accelerator": "h100", "intent": "training", "os": "cos", "platform": "kubeflow"}
    assert resolved(gke).recipe.component("gcp-driver-installer") is None
    on = resolved(gke, {"gpuStack": "bundle-installer"}).recipe
    assert on.component("gcp-driver-installer") is not None


def test_constraints_of_parents_cannot_be_weakened() -> None:
    catalogue = with_overlay("h100-eks-training", constraints={"kubernetes.version": ">= 1.20"})
    recipe = resolve(
        parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training"}), catalogue
    ).recipe
    assert recipe.constraints["kubernetes.version"] == ">= 1.32.0-0"


def test_constraints_that_exclude_each_other_show_both_files() -> None:
    catalogue = with_overlay("h100-eks-training", constraints={"kubernetes.version": "< 1.29"})
    with pytest.raises(BadInputError, match=r"overlays/eks-training\.yaml.*overlays/h100-eks-training\.yaml"):
        resolve(parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training"}), catalogue)


def test_a_pin_below_its_floor_is_refused() -> None:
    patch = Patch(version="v24.3.0", version_reason="test")
    catalogue = with_overlay("h100-eks-training", components={"gpu-operator": patch})
    with pytest.raises(BadInputError, match=r"pinned to v24\.3\.0"):
        resolve(parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training"}), catalogue)


@pytest.mark.parametrize(
    ("needed", "message"),
    [("kai-scheduler", "cycle: gpu-operator -> kai-scheduler -> gpu-operator"), ("gpu-operatr", "did you mean")],
)
def test_cycles_and_dangling_dependencies(needed: str, message: str) -> None:
    catalogue = with_overlay("eks-training", components={"gpu-operator": Patch(depends_on=(needed,))})
    with pytest.raises(BadInputError, match=message):
        resolve(parse_criteria({"service": "eks", "intent": "training"}), catalogue)


def test_a_literal_secret_is_refused() -> None:
    patch = Patch(values={"grafana": {"adminPassword": "hunter2"}})
    catalogue = with_overlay("eks-training", components={"kube-prometheus-stack": patch})
    with pytest.raises(BadInputError, match=r"kube-prometheus-stack:grafana\.adminPassword"):
        resolve(parse_criteria({"service": "eks", "intent": "training"}), catalogue)


def test_disabled_components_are_gone_and_not_waited_for() -> None:
    recipe = resolved({"service": "ocp", "intent": "training"}).recipe
    assert "gpu-operator" in recipe.disabled
    assert recipe.component("gpu-operator") is None
    assert all(set(c.depends_on) <= {o.name for o in recipe.components} for c in recipe.components)


def test_a_version_override_is_locked_and_explained() -> None:
    aks = resolved({"service": "aks", "intent": "training"})
    assert aks.recipe.component("kube-prometheus-stack").source.version == "83.7.0"  # type: ignore[union-attr]
    (entry,) = explain(aks.provenance, ["kube-prometheus-stack.version"])
    assert entry["settings"][-1] == {
        "value": "83.7.0",
        "source": "overlays/aks.yaml",
        "replaced": "84.4.0",
        "replacedSource": "components/kube-prometheus-stack.yaml",
    }


def test_provenance_covers_every_value() -> None:
    found = resolved(H100_EKS, nodes=8)
    for component in found.recipe.components:
        for key in component.values:
            assert explain(found.provenance, [f"{component.name}:{key}"]), (component.name, key)
    assert explain(found.provenance, ["nodewright-operator:estimatedNodeCount"])[0]["value"] == 8
    with pytest.raises(BadInputError, match=r"did you mean 'gpu-operator:driver\.version'"):
        explain(found.provenance, ["gpu-operator:driver.versoin"])


def test_resolution_leaves_the_catalogue_alone() -> None:
    before = msgspec.json.encode(load())
    recipe = resolved(H100_EKS).recipe
    for component in recipe.components:
        component.values["changed"] = True
    assert msgspec.json.encode(load()) == before


def test_unused_parts_of_a_source_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="patches"):
        msgspec.convert({"name": "x", "patches": []}, Overlay)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "kustomize"}, Source)
