"""`bundle diff`: what each kind of change means for a cluster that runs the old bundle."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from muster.configure.bundles.build import Deployer
from muster.configure.bundles.opened import OpenedBundle
from muster.configure.catalogue import Crds, Need, Placement, SecretNeed, Source, Storage
from muster.configure.plan import plan
from muster.configure.recipe import ManifestFile, Pool, Recipe
from muster.configure.upgrade.compare import Comparison, UpgradeVerdict, compare
from muster.configure.upgrade.verdicts import worst
from tests.bundle.made_up import BARE, HELM, component, recipe_with
from tests.bundle.test_plan import recipes
from tests.configure.cases import NAMES, recipe_of

SAFE, CARE, BLOCKED = UpgradeVerdict.SAFE, UpgradeVerdict.NEEDS_CARE, UpgradeVerdict.BLOCKED
CLAIM = Storage(class_paths=("db.pvc.storageClassName",))
X = "x.example.com"


def opened(recipe: Recipe, deployer: Deployer | None = None) -> OpenedBundle:
    return OpenedBundle("somewhere", recipe, recipe, plan(recipe), deployer)


def between(old: Recipe, new: Recipe, deployer: Deployer | None = None) -> Comparison:
    return compare(opened(old, deployer), opened(new, deployer))


def at_version(version: str) -> Source:
    return msgspec.structs.replace(HELM, version=version)


def change(old: dict[str, Any], new: dict[str, Any]) -> tuple[UpgradeVerdict, str]:
    """UpgradeVerdict and text for one component that changes from `old` to `new`."""
    (found,) = between(recipe_with(component("a", **old)), recipe_with(component("a", **new))).components
    return found.verdict, "\n".join(r.what for r in found.reasons)


def objects(*found: tuple[str, str]) -> tuple[ManifestFile, ...]:
    made = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} for kind, name in found]
    return (ManifestFile(name="a.yaml", objects=made),)


def claim(**values: Any) -> dict[str, Any]:
    return {"storage": CLAIM, "values": {"db": {"pvc": values}}}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes(name: str) -> None:
    found = between(recipe_of(name), recipe_of(name), Deployer.HELM if not plan(recipe_of(name)).missing else None)
    assert found.verdict is SAFE
    assert found.reasons == ()
    assert all(c.reasons == () for c in found.components)
    assert [c.component for c in found.components] == [c.name for c in recipe_of(name).components]


@pytest.mark.parametrize(
    ("old", "new", "verdict", "text"),
    [
        ({}, {"namespace": "other"}, BLOCKED, "namespace ns -> other"),
        ({}, {"source": BARE}, BLOCKED, "from helm to manifests"),
        ({}, {"source": msgspec.structs.replace(HELM, chart="y")}, BLOCKED, "another chart: x -> y"),
        ({}, {"source": msgspec.structs.replace(HELM, repository="oci://r.example/c")}, CARE, "chart from oci://"),
        ({"source": at_version("1.2.3")}, {"source": at_version("1.2.4")}, SAFE, "version 1.2.3 -> 1.2.4"),
        ({"source": at_version("1.2.3")}, {"source": at_version("v1.3.0")}, SAFE, "version 1.2.3 -> v1.3.0"),
        ({"source": at_version("1.2.3")}, {"source": at_version("2.0.0")}, CARE, "major step"),
        ({"source": at_version("0.4.3")}, {"source": at_version("0.5.0")}, CARE, "major step"),
        ({"source": at_version("1.9.0")}, {"source": at_version("1.10.0-rc.1")}, SAFE, "version"),
        ({"source": at_version("1.10.0")}, {"source": at_version("1.10.0-rc.1")}, CARE, "downgrade"),
        ({"source": at_version("2.0.0")}, {"source": at_version("1.9.0")}, CARE, "downgrade"),
        (
            {"source": at_version("2.0.0"), "crds": Crds(owned=True)},
            {"source": at_version("1.9.0"), "crds": Crds(owned=True)},
            BLOCKED,
            "downgrade",
        ),
        ({"crds": Crds(owned=True, only=True)}, {"crds": Crds(owned=True)}, BLOCKED, "CRD policy keep -> replace"),
        ({"crds": Crds(owned=True)}, {"crds": Crds()}, CARE, "CRD policy replace -> install"),
        ({"crds": Crds()}, {"crds": Crds(owned=True)}, CARE, "CRD policy install -> replace"),
        ({"crds": Crds(provides=(X, "y.z"))}, {"crds": Crds(provides=("y.z",))}, BLOCKED, "CRDs x.example.com go"),
        ({"crds": Crds(provides=(X,))}, {"crds": Crds(provides=(X, "y.z"))}, SAFE, ""),
        (claim(size="5Gi"), claim(size="5Gi", storageClassName="fast"), BLOCKED, "the default -> fast"),
        (claim(size="5Gi"), claim(size="10Gi"), CARE, "db.pvc.size: 5Gi -> 10Gi"),
        (claim(size="5Gi"), claim(size="5000Mi"), BLOCKED, "cannot shrink"),
        (claim(size="5Gi"), {"storage": CLAIM, "values": {}}, BLOCKED, "the volume at db.pvc goes"),
        ({"storage": CLAIM, "values": {"db": {"pvc": None}}}, claim(size="5Gi"), CARE, "starts empty"),
        ({"values": {"a": 1}}, {"values": {"a": True}}, SAFE, "values changed: a"),
        ({"values": {"a": 1}}, {"values": {}}, SAFE, "values changed: a"),
        ({}, {"values": {"sub": {"fullnameOverride": "z"}}}, BLOCKED, "new name or selector"),
        ({"post_manifests": objects(("ConfigMap", "x"))}, {}, CARE, "the release a-post goes"),
        (
            {"post_manifests": objects(("ConfigMap", "x"), ("PersistentVolumeClaim", "data"))},
            {"post_manifests": objects(("ConfigMap", "x"))},
            BLOCKED,
            "no longer hold PersistentVolumeClaim data",
        ),
        (
            {"post_manifests": objects(("ConfigMap", "x"), ("ConfigMap", "y"))},
            {"post_manifests": objects(("ConfigMap", "x"))},
            CARE,
            "no longer hold ConfigMap y",
        ),
        ({}, {"secrets": (SecretNeed(name="s", keys=("k",)),)}, CARE, "needs the secret ns/s with the keys k"),
        ({"timeout_s": 600}, {"timeout_s": 1200}, SAFE, ""),
    ],
)  # fmt: skip
def test_one_component(old: dict[str, Any], new: dict[str, Any], verdict: UpgradeVerdict, text: str) -> None:
    found = change(old, new)
    assert found[0] is verdict, found
    assert text in found[1]


def test_selectors_matter_where_pods_or_volumes_would_move() -> None:
    placement = Placement(system_selectors=("op.nodeSelector",), accelerated_selectors=("ds.nodeSelector",))

    def moved(path: str, **fields: Any) -> tuple[UpgradeVerdict, str]:
        old = {**fields, "placement": placement}
        return change(old, old | {"values": {path: {"nodeSelector": {"a": "b"}}}})

    assert moved("op")[0] is SAFE
    verdict, text = moved("ds")
    assert verdict is CARE
    assert "leave the nodes" in text
    by_chart = Storage(class_paths=("db.storageClassName",), claims=True)
    verdict, text = moved("op", storage=by_chart)
    assert verdict is CARE
    assert "volumes may not be reachable" in text


def test_a_new_driver_ends_work() -> None:
    old = recipe_with(component("gpu-operator", values={"driver": {"version": "1"}}))
    new = recipe_with(component("gpu-operator", values={"driver": {"version": "2"}}))
    (found,) = between(old, new).components
    assert found.verdict is CARE
    assert "driver is replaced on every GPU node" in found.reasons[0].what


def test_new_and_removed_components_and_their_edges() -> None:
    old = recipe_with(component("a"), component("b", depends_on=("a",)))
    new = recipe_with(component("c"), component("b", depends_on=("c",)))
    found = {c.component: c for c in between(old, new).components}
    assert list(found) == ["c", "b", "a"]
    assert found["c"].reasons[0].what == "new, before b"
    assert found["c"].verdict is SAFE
    assert [r.what for r in found["b"].reasons] == ["comes after c now", "no longer waits for a"]
    assert found["a"].verdict is CARE
    assert "b came after it" in found["a"].reasons[-1].what
    assert (found["a"].before, found["a"].after) == ("1.0.0", "")


@pytest.mark.parametrize(
    ("deployer", "remedy"), [(Deployer.HELM, "UNINSTALL.md"), (Deployer.FLUX, "the deployer removes it")]
)
def test_who_removes_what_is_gone(deployer: Deployer, remedy: str) -> None:
    old, new = recipe_with(component("a"), component("b")), recipe_with(component("a"))
    found = between(old, new, deployer).components[-1]
    assert remedy in found.reasons[0].remedy


def removal(**fields: Any) -> tuple[UpgradeVerdict, str]:
    user = component("user", needs=fields.pop("needs", ()), storage=fields.pop("claims", Storage()))
    old = recipe_with(component("gone", **fields), user)
    found = between(old, recipe_with(user)).components[-1]
    assert found.component == "gone"
    return found.verdict, "\n".join(r.what for r in found.reasons)


def test_loss_of_crds_and_volumes() -> None:
    assert removal() == (CARE, "removed")
    verdict, text = removal(crds=Crds(owned=True, provides=(X,)))
    assert verdict is BLOCKED
    assert "every object of these kinds goes too" in text
    assert removal(crds=Crds(owned=True))[0] is BLOCKED
    verdict, text = removal(crds=Crds(owned=True, only=True, provides=(X,)))
    assert verdict is CARE
    assert "its CRDs stay" in text
    verdict, text = removal(crds=Crds(owned=True, only=True, provides=(X,)), needs=(Need(crd=X),))
    assert verdict is BLOCKED
    assert "user need its CRDs x.example.com" in text
    assert "its volumes may go" in removal(storage=Storage(class_paths=("a.b",), claims=True))[1]
    verdict, text = removal(
        storage=Storage(provides=True), claims=Storage(class_paths=("db.storageClassName",), claims=True)
    )
    assert verdict is BLOCKED
    assert "it provisions volumes, and user claim some" in text


def test_crds_that_change_hands() -> None:
    old = recipe_with(component("a", crds=Crds(owned=True, provides=(X,))))
    new = recipe_with(component("b", crds=Crds(owned=True, provides=(X,))))
    found = {c.component: c for c in between(old, new).components}
    assert "takes over CRDs of a" in found["b"].reasons[1].what
    assert found["b"].verdict is CARE


RENAMED = [
    ("skyhook-operator", "nodewright-operator"),
    ("skyhook-customizations", "nodewright-customizations"),
    ("kgateway", "agentgateway"),
    ("kgateway-crds", "agentgateway-crds"),
]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_known_rename_is_a_move(old: str, new: str) -> None:
    before = recipe_with(component(old, namespace="skyhook", crds=Crds(owned=True)))
    after = recipe_with(component(new, namespace="nodewright", crds=Crds(owned=True)))
    (found,) = between(before, after).components
    assert found.component == f"{old} -> {new}"
    assert found.verdict is BLOCKED
    assert "moves from namespace skyhook to nodewright" in found.reasons[0].what
    assert found.reasons[0].remedy


def test_a_component_that_became_part_of_another() -> None:
    platform = component("dynamo-platform")
    before = recipe_with(component("dynamo-crds", crds=Crds(owned=True, only=True)), platform)
    rows = between(before, recipe_with(platform)).components
    assert [row.component for row in rows] == ["dynamo-platform", "dynamo-crds -> dynamo-platform"]
    assert rows[0].reasons == ()
    assert rows[1].verdict is BLOCKED
    assert "is part of dynamo-platform now" in rows[1].reasons[0].what


def test_a_namespace_move_that_upstream_made_has_its_own_remedy() -> None:
    before = recipe_with(component("nodewright-operator", namespace="skyhook"))
    after = recipe_with(component("nodewright-operator", namespace="nodewright"))
    (found,) = between(before, after).components
    assert found.verdict is BLOCKED
    assert "skyhooks.skyhook.nvidia.com" in found.reasons[0].remedy


def test_a_component_that_is_installed_for_each_pool_from_now_on() -> None:
    before = recipe_with(component("tuning"))
    after = recipe_with(component("tuning-a", pool="a"), component("tuning-b", pool="b"))
    rows = between(before, after).components
    assert [row.component for row in rows] == ["tuning -> tuning-a", "tuning-b"]
    assert rows[0].verdict is BLOCKED
    assert rows[1].verdict is SAFE


def with_criteria(**criteria: str) -> Recipe:
    return msgspec.structs.replace(recipe_with(component("a")), criteria=criteria)


def test_recipes_for_something_else() -> None:
    assert between(with_criteria(service="eks"), with_criteria(service="gke")).verdict is BLOCKED
    found = between(with_criteria(service="eks"), with_criteria(service="eks", os="ubuntu"))
    assert found.verdict is CARE
    assert "os ubuntu, the old one for any" in found.reasons[0].what


def test_pools() -> None:
    old, new = (
        msgspec.structs.replace(
            recipe_with(component("a")), pools=tuple(Pool(name=n, criteria={"accelerator": a}) for n, a in pools)
        )
        for pools in (
            [("x", "h100"), ("y", "h100"), ("same", "a100")],
            [("y", "l40s"), ("same", "a100"), ("z", "h100")],
        )
    )
    found = between(old, new)
    assert [r.what for r in found.reasons] == ["pool x is gone", "pool y is for other nodes now", "pool z is new"]
    assert found.verdict is CARE


def test_constraints() -> None:
    old, new = (
        msgspec.structs.replace(with_criteria(), constraints={"kubernetes.version": text})
        for text in (">= 1.30", ">= 1.34")
    )
    (reason,) = between(old, new).reasons
    assert (reason.verdict, ">= 1.34" in reason.what) == (CARE, True)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (Deployer.HELM, Deployer.HELMFILE, SAFE),
        (Deployer.HELM, Deployer.FLUX, CARE),
        (Deployer.FLUX, Deployer.HELMFILE, CARE),
        (Deployer.ARGOCD, Deployer.ARGOCD_HELM, CARE),
        (Deployer.HELM, Deployer.ARGOCD, BLOCKED),
        (Deployer.ARGOCD_HELM, Deployer.FLUX, BLOCKED),
    ],
)
def test_another_deployer(old: Deployer, new: Deployer, verdict: UpgradeVerdict) -> None:
    recipe = recipe_with(component("a"))
    assert compare(opened(recipe, old), opened(recipe, new)).verdict is verdict
    assert compare(opened(recipe, old), opened(recipe, old)).verdict is SAFE


def test_a_bundle_that_lacks_a_manifest_cannot_be_deployed() -> None:
    recipe = recipe_with(component("a", post_manifests=(ManifestFile(name="x.yaml"),)))
    found = between(recipe, recipe, Deployer.HELM)
    assert found.verdict is BLOCKED
    assert "a/x.yaml" in found.reasons[0].what
    assert between(recipe, recipe).verdict is SAFE


def test_plain_values_and_summary() -> None:
    found = between(with_criteria(service="eks"), with_criteria(service="gke"))
    plain = found.as_dict()
    assert plain["verdict"] == "blocked"
    assert plain["components"] == [
        {"component": "a", "verdict": "safe", "before": "1.0.0", "after": "1.0.0", "reasons": []}
    ]
    assert found.summary == "1 blocked"
    assert between(with_criteria(), with_criteria()).summary == "all safe"
    assert worst([]) is SAFE


@given(recipes(), recipes())
def test_every_component_has_one_row_and_every_remedy_is_given(old: Recipe, new: Recipe) -> None:
    found = between(old, new)

    def names(recipe: Recipe) -> set[str]:
        return {part.name for part in recipe.components}

    rows = [c.component for c in found.components]
    assert sorted(rows) == sorted(names(old) | names(new))
    for row in found.components:
        for reason in row.reasons:
            assert "\n" not in reason.what + reason.remedy
            assert (reason.remedy != "") is (reason.verdict is not SAFE)
    assert between(new, new).verdict is SAFE


def test_from_leaf_to_leaf() -> None:
    """A real change of platform: every component is accounted for, and the same answer comes twice."""
    kubeflow = recipe_of("h100-eks-ubuntu-training-kubeflow")
    slurm = recipe_of("h100-eks-ubuntu-training-slurm")
    found = between(kubeflow, slurm)
    assert found == between(kubeflow, slurm)
    rows = {row.component: row for row in found.components}
    assert "new" in rows["slinky-slurm"].reasons[0].what
    assert rows["kubeflow-trainer"].verdict is not SAFE
    assert {c.name for c in (*kubeflow.components, *slurm.components)} == set(rows)
