"""Heterogeneous clusters: pools over shared components."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.configure import lock
from muster.configure.catalogue import Catalogue, Patch, Placement, Scope, load
from muster.configure.criteria import Dimension, parse_criteria
from muster.configure.difference import differences
from muster.configure.matching import unavailable
from muster.configure.plan import plan
from muster.configure.pools import PoolChoice, choices_of, parse_pools, resolve_pools, settle_texts
from muster.configure.provenance import explain
from muster.configure.recipe import Recipe
from muster.configure.resolve import Resolution, leaf_names, resolve
from muster.configure.soundness import require_sound
from muster.configure.values import get, parse_path, path_text, same, whole_leaves
from muster.errors import BadInputError

EKS = {"service": "eks", "intent": "training"}
TRAIN, BIG = "train:accelerator=h100,os=ubuntu", "big:accelerator=gb200,os=ubuntu"


def plain() -> Catalogue:
    """The catalogue with a component that differs by pool (`agent`, scope pool) and one that is shared (`app`)."""
    catalogue = load()
    entry = catalogue.components["aws-efa"]
    agent = msgspec.structs.replace(
        entry,
        name="agent",
        aliases=("helper",),
        scope=Scope.POOL,
        placement=Placement(accelerated_selectors=("nodeSelector",)),
        values={"nodeSelector": {"gpu": "yes"}, "deep": {"a": 1}},
    )
    app = msgspec.structs.replace(
        entry, name="app", aliases=(), scope=Scope.CLUSTER, placement=Placement(), values={"x": {"y": 1}}
    )
    overlays = dict(catalogue.overlays)
    added = {"agent": Patch(depends_on=("nfd",)), "app": Patch(depends_on=("agent",))}
    overlays["eks"] = msgspec.structs.replace(overlays["eks"], components=overlays["eks"].components | added)
    return msgspec.structs.replace(
        catalogue, components=catalogue.components | {"agent": agent, "app": app}, overlays=overlays
    )


def with_patch(catalogue: Catalogue, overlay: str, component: str, patch: Patch) -> Catalogue:
    changed = catalogue.overlays[overlay]
    changed = msgspec.structs.replace(changed, components=changed.components | {component: patch})
    return msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {overlay: changed})


def open_paths(shared: dict[str, str], texts: list[str], catalogue: Catalogue) -> list[str]:
    """Settlements, in favour of the first pool, of everything on which the pools differ."""
    settle: list[str] = []
    pool = min(text.partition(":")[0] for text in texts)
    while True:
        try:
            resolved(shared, texts, catalogue, settle)
        except BadInputError as error:
            if "want different things" not in str(error):
                raise
            listed = str(error).partition(": ")[2].partition(" is ")[0]
            assert f"{listed}=@{pool}" not in settle
            settle.append(f"{listed}=@{pool}")
        else:
            return settle


def resolved(
    shared: dict[str, str],
    texts: list[str],
    catalogue: Catalogue | None = None,
    settle: Any = (),
    selectors: Any = (),
    profiles: dict[str, str] | None = None,
    nodes: int | None = None,
) -> Resolution:
    catalogue = catalogue or load()
    pools = parse_pools(texts, selectors, shared, catalogue)
    criteria = parse_criteria(shared) if shared else {}
    return resolve_pools(criteria, pools, catalogue, profiles, nodes, settle)


def two(catalogue: Catalogue | None = None, **more: Any) -> Resolution:
    """The two pools, with everything settled in favour of `big`."""
    catalogue = catalogue or plain()
    return resolved(EKS, [TRAIN, BIG], catalogue, open_paths(EKS, [TRAIN, BIG], catalogue), **more)


def test_one_pool_is_the_plain_recipe() -> None:
    wanted = resolve(parse_criteria({**EKS, "accelerator": "h100", "os": "ubuntu"}), load(), None, 8)
    found = resolved(EKS, [TRAIN], nodes=8)
    assert lock.write(found.recipe) == lock.write(wanted.recipe)
    assert found.provenance == wanted.provenance
    with pytest.raises(BadInputError, match="nothing to settle"):
        resolved(EKS, [TRAIN], selectors=["train:a=b"])


def test_two_pools() -> None:
    recipe = two().recipe
    assert [pool.name for pool in recipe.pools] == ["big", "train"]
    big, train = recipe.pools
    assert recipe.criteria == EKS
    assert train.criteria == {**EKS, "accelerator": "h100", "os": "ubuntu"}
    assert big.node_selector == {"muster.dev/pool": "big"}
    assert recipe.constraints["kubernetes.version"] == ">= 1.34"
    assert not recipe.constraints.keys() & {"os.id", "kernel.version"}
    assert train.constraints["os.id"] == "ubuntu"
    assert train.checks["performance"].constraints == {"nccl-all-reduce-bw": ">= 300"}
    assert "nccl-all-reduce-bw-nvls" in big.checks["performance"].constraints
    assert "h100-eks-training" in train.overlays
    assert "h100-eks-training" not in big.overlays


def test_a_component_per_pool_and_its_edges() -> None:
    found = two()
    recipe = found.recipe
    copy = recipe.component("agent-train")
    assert copy is not None
    assert (copy.pool, copy.catalogue_name, copy.aliases) == ("train", "agent", ("helper-train",))
    assert recipe.component("agent") is None
    assert copy.values == {"deep": {"a": 1}, "nodeSelector": {"gpu": "yes", "muster.dev/pool": "train"}}
    assert copy.depends_on == ("nfd",)
    app = recipe.component("app")
    assert app is not None
    assert app.depends_on == ("agent-big", "agent-train")
    (entry,) = explain(found.provenance, [r"agent-train:nodeSelector.muster\.dev/pool"])
    assert entry["settings"][-1]["source"] == "selector of pool train"
    (entry,) = explain(found.provenance, ["app.dependsOn.agent-train"])
    assert entry["value"] == "declared"


def test_selectors_of_the_user() -> None:
    found = two(selectors=["train:node.kubernetes.io/instance-type=p5.48xlarge,zone=a"])
    copy = found.recipe.component("agent-train")
    assert copy is not None
    assert copy.values["nodeSelector"] == {
        "gpu": "yes",
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "zone": "a",
    }
    with pytest.raises(BadInputError, match="'big' and 'train' select the same nodes"):
        two(selectors=["train:a=b", "big:a=b"])


def test_values_that_differ_show_path_both_values_and_both_pools() -> None:
    catalogue = with_patch(plain(), "h100-eks-training", "app", Patch(values={"x": {"y": "h"}}))
    with pytest.raises(BadInputError) as caught:
        resolved(EKS, [TRAIN, BIG], catalogue, open_paths(EKS, [TRAIN, BIG], plain()))
    assert 'app:x.y is 1 for pool big and "h" for pool train' in str(caught.value)
    assert "--settle" in str(caught.value)


@pytest.mark.parametrize(
    ("settle", "value"),
    [
        ("app:x.y=@train", "h"),
        ("app:x.y=@big", 1),
        ("app:x.y=7", 7),
        ('app:x={"z": null}', None),
        ("app:x.y=null", None),
    ],
)
def test_a_settlement_decides_and_is_recorded(settle: str, value: Any) -> None:
    catalogue = with_patch(plain(), "h100-eks-training", "app", Patch(values={"x": {"y": "h"}}))
    others = open_paths(EKS, [TRAIN, BIG], plain())
    found = resolved(EKS, [TRAIN, BIG], catalogue, [*others, settle])
    app = found.recipe.component("app")
    assert app is not None
    target, _, text = settle.partition("=")
    assert found.recipe.settled[target] == text
    path = "x.z" if "z" in settle else "x.y"
    assert get(app.values, parse_path(path)) == value
    (entry,) = explain(found.provenance, [f"app:{path}"])
    assert entry["value"] == value
    assert entry["settings"][-1]["source"] == f"--settle {target}"


def test_a_settlement_can_mean_not_set() -> None:
    catalogue = with_patch(plain(), "h100-eks-training", "app", Patch(values={"only": {"here": True}}))
    others = open_paths(EKS, [TRAIN, BIG], plain())
    recipe = resolved(EKS, [TRAIN, BIG], catalogue, [*others, "app:only.here=@big"]).recipe
    assert recipe.component("app").values == {"x": {"y": 1}}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settle", "message"),
    [
        ("app:x.y=1", "decides nothing"),
        ("app:x.y=@nowhere", "no pool is named 'nowhere'"),
        ("app", "malformed"),
        ("app:l[0]=1", "whole list"),
        ("app:x=1.30", "inner quotes"),
    ],
)
def test_bad_settlements(settle: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        resolved(EKS, [TRAIN, BIG], plain(), [*open_paths(EKS, [TRAIN, BIG], plain()), settle])


def test_versions_must_agree() -> None:
    catalogue = with_patch(plain(), "h100-eks-training", "app", Patch(version="9.9.9", version_reason="test"))
    with pytest.raises(BadInputError, match=r"'big' and 'train' need 'app' as .* 9\.9\.9 .*one version"):
        two(catalogue)


def test_on_for_one_pool_and_off_for_another_needs_a_decision() -> None:
    catalogue = with_patch(plain(), "h100-eks-training", "app", Patch(enabled=False))
    others = open_paths(EKS, [TRAIN, BIG], plain())
    with pytest.raises(BadInputError, match="app:enabled is true for pool big and false for pool train"):
        resolved(EKS, [TRAIN, BIG], catalogue, others)
    on = resolved(EKS, [TRAIN, BIG], catalogue, [*others, "app:enabled=true"]).recipe
    off = resolved(EKS, [TRAIN, BIG], catalogue, [*others, "app:enabled=@train"]).recipe
    assert on.component("app") is not None
    assert "app" not in on.disabled
    assert off.component("app") is None
    assert "app" in off.disabled


def test_constraints_of_the_cluster_that_exclude_each_other_name_both_pools() -> None:
    catalogue = load()
    overlay = msgspec.structs.replace(
        catalogue.overlays["h100-eks-training"], constraints={"kubernetes.version": "< 1.34"}
    )
    catalogue = msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {overlay.name: overlay})
    with pytest.raises(BadInputError, match=r"gb200.* in pool big.*in pool train"):
        two(catalogue)


def test_a_component_per_pool_without_a_selector_path_is_refused() -> None:
    catalogue = plain()
    agent = msgspec.structs.replace(catalogue.components["agent"], placement=Placement())
    catalogue = msgspec.structs.replace(catalogue, components=catalogue.components | {"agent": agent})
    with pytest.raises(BadInputError, match="names no value path"):
        two(catalogue)


@pytest.mark.parametrize(
    ("texts", "selectors", "message"),
    [
        (["train"], [], "malformed"),
        (["train:"], [], "malformed"),
        (["train:accelerator"], [], "malformed"),
        (["Train:accelerator=h100"], [], "small letters"),
        (["a-name-that-is-far-too-long:accelerator=h100"], [], "at most 20"),
        (["a:accelerator=h100", "a:accelerator=b200"], [], "twice"),
        (["a:accelerator=h100,accelerator=b200"], [], "twice"),
        (["a:accelerator=h10"], [], r"Pool 'a': .*did you mean 'h100'"),
        (["a:nodes=3"], [], "Unknown dimension"),
        (["a:service=gke"], [], "one cluster has one service"),
        (["a:intent=inference"], [], "state it once"),
        (["a:accelerator=h100"], ["b:x=y"], "which no --pool does"),
        (["a:accelerator=h100"], ["a:x y=z"], "is no label"),
        (["a:accelerator=h100"], ["a:x=y z"], "is no label"),
    ],
)
def test_bad_pools(texts: list[str], selectors: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        resolved(EKS, texts, selectors=selectors)


def test_an_error_of_one_pool_names_it() -> None:
    with pytest.raises(BadInputError, match=r"Pool 'x' \(service=eks .*No recipe"):
        resolved(EKS, [TRAIN, "x:accelerator=vr200"])


def test_profiles_go_to_the_pools_that_have_them() -> None:
    aks = {"service": "aks", "os": "ubuntu", "intent": "training"}
    texts = ["a:accelerator=h100", "b:accelerator=a100"]
    settle = open_paths(aks, texts, load())
    default = resolved(aks, texts, settle=settle).recipe
    assert [pool.profiles for pool in default.pools] == [{"gpuStack": "azure-managed"}] * 2
    chosen = resolved(aks, texts, settle=settle, profiles={"gpuStack": "operator-managed"}).recipe
    assert [pool.profiles["gpuStack"] for pool in chosen.pools] == ["operator-managed"] * 2
    assert [pool.constraints["aks.gpu-pools.gpu-driver"] for pool in chosen.pools] == ["None"] * 2
    with pytest.raises(BadInputError, match="No pool has a profile 'x'; profiles here: gpuStack"):
        resolved(aks, texts, settle=settle, profiles={"x": "y"})


def test_lock_plan_diff_check_and_again() -> None:
    found = two(nodes=4)
    recipe = lock.locked(found.recipe)
    text = lock.write(recipe)
    read = lock.parse(yamlio.loads(text, "pools"), "pools")
    assert read == recipe
    require_sound(read, "pools", lambda _: None)
    assert {"agent-big", "agent-train"} <= {release.name for release in plan(recipe).releases}
    again = resolve_pools(
        {Dimension(d): v for d, v in read.criteria.items()},
        choices_of(read),
        plain(),
        nodes=read.nodes,
        settle=settle_texts(read),
    )
    assert lock.write(again.recipe) == text
    assert again.provenance == found.provenance
    other = two(nodes=4, selectors=["train:a=b"]).recipe
    paths = {d.path for d in differences(recipe, other)}
    assert r"pools.train.nodeSelector.muster\.dev/pool" in paths
    assert not any(path.startswith("pools.big") for path in paths)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  pool: train\n", "  pool: nowhere\n", "its pool 'nowhere' is not one"),
        ("  nodeSelector:\n    muster.dev/pool: big\n", "", "cannot be told"),
        ("- name: train\n  criteria", "- name: big\n  criteria", "a name of its own"),
    ],
)
def test_forged_pools_are_refused(old: str, new: str, message: str) -> None:
    text = lock.write(two().recipe)
    assert old in text
    content = yamlio.loads(text.replace(old, new, 1), "test")
    content["digest"] = lock.digest_of(content)
    with pytest.raises(BadInputError, match=message):
        lock.parse(content, "forged")


def pairs_of_leaves() -> list[tuple[str, str]]:
    catalogue = load()
    usable = [n for n in leaf_names(catalogue) if not unavailable(n, catalogue)]
    by_service: dict[str, list[str]] = {}
    for name in usable:
        criteria = catalogue.overlays[name].criteria
        if "service" in criteria:
            by_service.setdefault(criteria["service"], []).append(name)
    return [pair for names in by_service.values() for pair in itertools.combinations(names, 2)]


PAIRS = pairs_of_leaves()


def texts_of(pair: tuple[str, str]) -> tuple[dict[str, str], list[str]]:
    criteria = [load().overlays[name].criteria for name in pair]
    texts = [
        f"{pool}:" + ",".join(f"{d}={v}" for d, v in own.items() if d != "service")
        for pool, own in zip(("a", "b"), criteria, strict=True)
    ]
    return {"service": criteria[0]["service"]}, texts


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PAIRS))
def test_every_pair_of_leaves_merges_once_settled(pair: tuple[str, str]) -> None:
    shared, texts = texts_of(pair)
    settle = open_paths(shared, texts, load())
    found = resolved(shared, texts, settle=settle)
    turned = resolved(shared, texts[::-1], settle=settle[::-1])
    assert lock.write(turned.recipe) == lock.write(found.recipe)
    assert turned.provenance == found.provenance
    alone = [resolve(parse_criteria(dict(load().overlays[name].criteria)), load()).recipe for name in pair]
    whole: Recipe = found.recipe
    on = {c.name for r in alone for c in r.components}
    off = {text.partition(":")[0] for text in settle if text.endswith(":enabled=@a")} & {*whole.disabled}
    assert {c.catalogue_name for c in whole.components} == on - off
    for component in whole.components:
        for path, value in whole_leaves(component.values):
            said = found.provenance[f"{component.name}:{path_text(path)}"]
            assert same(said[-1].value, value)
    # With nothing in dispute, each pool gets of a shared component exactly what it would get alone.
    if not settle:
        for recipe in alone:
            for component in recipe.components:
                merged = whole.component(component.name)
                assert merged is None or merged.values == component.values


def test_the_order_of_pools_does_not_matter() -> None:
    catalogue = plain()
    texts = [TRAIN, BIG, "small:accelerator=rtx-pro-6000,os=ubuntu"]
    settle = open_paths(EKS, texts, catalogue)
    written = {
        lock.write(resolved(EKS, list(order), catalogue, settle).recipe) for order in itertools.permutations(texts)
    }
    assert len(written) == 1


def test_pools_are_values() -> None:
    one = PoolChoice("a", {Dimension.OS: "ubuntu"})
    assert one.node_selector == {"muster.dev/pool": "a"}
