"""Placement flags: written to recorded paths, never over what the recipe says, never without effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.bundles.placement import (
    PlacementChoice,
    parse_selector,
    parse_storage_class,
    parse_taint,
    parse_toleration,
    placed,
    with_placement,
)
from muster.configure.catalogue import Placement, Storage
from muster.configure.held_nodes import undecided
from muster.configure.plan import plan
from muster.configure.recipe import ManifestFile, Recipe
from muster.configure.values import ABSENT, get, parse_path
from muster.errors import BadInputError
from tests.bundle.made_up import BARE, component, recipe_with
from tests.configure.cases import NAMES, recipe_of

ANY: dict[str, str] = {"operator": "Exists"}
GPU: dict[str, str] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def value(recipe: Recipe, path: str) -> Any:
    name, _, inner = path.partition(":")
    found = recipe.component(name)
    assert found is not None
    return get(found.values, parse_path(inner))


def part(values: dict[str, Any], **fields: Any) -> Recipe:
    placement = Placement(
        accelerated_selectors=("ds.nodeSelector",),
        accelerated_tolerations=("ds.tolerations", "all.tolerations"),
        system_selectors=("op.nodeSelector",),
        system_tolerations=("op.tolerations", "all.tolerations"),
        accelerated_taints=("env.taint",),
        workload_selectors=("workload",),
    )
    return recipe_with(component("a", **({"placement": placement, "values": values} | fields)))


def test_each_flag_reaches_its_paths() -> None:
    choice = PlacementChoice(
        system_node_selector={"role": "system"},
        system_node_tolerations=(ANY,),
        accelerated_node_selector={"role": "gpu"},
        accelerated_node_tolerations=(GPU,),
        workload_selector={"job": "train"},
        workload_gate="skyhook.nvidia.com=required:NoSchedule",
    )
    found = placed(part({}), choice)
    component = found.recipe.components[0]
    assert component.values == {
        "all": {"tolerations": [ANY, GPU]},
        "ds": {"nodeSelector": {"role": "gpu"}, "tolerations": [GPU]},
        "env": {"taint": "skyhook.nvidia.com=required:NoSchedule"},
        "op": {"nodeSelector": {"role": "system"}, "tolerations": [ANY]},
        "workload": {"job": "train"},
    }
    assert found.kept == ()
    assert len(found.written) == 7


@pytest.mark.parametrize("explicit", [[], None, [GPU], "text"])
def test_what_the_recipe_sets_wins_an_explicit_empty_list_too(explicit: Any) -> None:
    found = placed(part({"ds": {"tolerations": explicit}}), PlacementChoice(accelerated_node_tolerations=(ANY,)))
    assert value(found.recipe, "a:ds.tolerations") == explicit
    assert value(found.recipe, "a:all.tolerations") == [ANY]
    assert found.kept == ("a:ds.tolerations",)


@pytest.mark.parametrize("around", [None, [], "text"])
def test_no_map_on_the_way_is_a_decision_of_the_recipe(around: Any) -> None:
    with pytest.raises(
        BadInputError, match=r"--accelerated-node-selector changes nothing: .* sets a:ds\.nodeSelector"
    ):
        placed(part({"ds": around}), PlacementChoice(accelerated_node_selector={"a": "b"}))


def test_a_flag_that_reaches_nothing_is_an_error() -> None:
    bare = recipe_with(component("a"))
    choices = {
        "--system-node-selector": PlacementChoice(system_node_selector={"a": "b"}),
        "--system-node-toleration": PlacementChoice(system_node_tolerations=(ANY,)),
        "--accelerated-node-selector": PlacementChoice(accelerated_node_selector={"a": "b"}),
        "--accelerated-node-toleration": PlacementChoice(accelerated_node_tolerations=(ANY,)),
        "--workload-selector": PlacementChoice(workload_selector={"a": "b"}),
        "--workload-gate": PlacementChoice(workload_gate="a=b:NoExecute"),
        "--storage-class": PlacementChoice(storage_class="x"),
        "--shared-storage-class": PlacementChoice(shared_storage_class="x"),
    }
    for flag, choice in choices.items():
        with pytest.raises(BadInputError, match=f"{flag} reaches no component"):
            with_placement(bare, choice)


def test_a_storage_class_is_named_only_where_a_volume_is_claimed() -> None:
    storage = Storage(class_paths=("db.pvc.storageClassName",))
    choice = PlacementChoice(storage_class="fast")
    with pytest.raises(BadInputError, match="--storage-class reaches no component"):
        with_placement(part({}, storage=storage), choice)
    claimed = with_placement(part({"db": {"pvc": {"size": "5Gi"}}}, storage=storage), choice)
    assert value(claimed, "a:db.pvc") == {"size": "5Gi", "storageClassName": "fast"}
    by_chart = Storage(class_paths=("db.pvc.storageClassName",), claims=True)
    assert value(with_placement(part({}, storage=by_chart), choice), "a:db.pvc.storageClassName") == "fast"
    with pytest.raises(BadInputError, match="changes nothing"):
        with_placement(part({"db": {"pvc": {"storageClassName": ""}}}, storage=storage), choice)
    shared = Storage(shared_class_paths=("home.storageClassName",), claims=True)
    assert with_placement(part({}, storage=shared), PlacementChoice(shared_storage_class="nfs"))
    with pytest.raises(BadInputError, match="--storage-class reaches no component"):
        with_placement(part({}, storage=shared), choice)


def test_selectors_that_disagree_about_one_path() -> None:
    both = Placement(system_selectors=("nodeSelector",), accelerated_selectors=("nodeSelector",))
    recipe = recipe_with(component("a", placement=both))
    same = PlacementChoice(system_node_selector={"a": "b"}, accelerated_node_selector={"a": "b"})
    assert value(with_placement(recipe, same), "a:nodeSelector") == {"a": "b"}
    with pytest.raises(BadInputError, match="both set a:nodeSelector"):
        with_placement(recipe, PlacementChoice(system_node_selector={"a": "b"}, accelerated_node_selector={"a": "c"}))


def test_a_component_without_a_chart_reads_only_what_its_manifests_name() -> None:
    placement = Placement(accelerated_selectors=("sel",))
    choice = PlacementChoice(accelerated_node_selector={"a": "b"})
    with pytest.raises(BadInputError, match="reaches no component"):
        with_placement(recipe_with(component("a", source=BARE, placement=placement)), choice)
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"nodeSelector": {"$value": "sel"}}}
    ]
    files = (ManifestFile(name="x.yaml", objects=objects),)
    reading = recipe_with(component("a", source=BARE, placement=placement, post_manifests=files))
    (release,) = plan(with_placement(reading, choice)).releases
    assert release.manifests[0].objects is not None
    assert release.manifests[0].objects[0]["spec"] == {"nodeSelector": {"a": "b"}}


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf(name: str) -> None:
    """What a leaf sets stays, or is added to where DaemonSets prepare nodes; the rest that is recorded is written."""
    recipe = recipe_of(name)
    if not any(c.placement.system_tolerations for c in recipe.components):
        pytest.fail(f"{name} has no component that can be placed")
    found = placed(recipe, PlacementChoice(system_node_tolerations=(ANY,)))
    for before, after in zip(recipe.components, found.recipe.components, strict=True):
        for path in before.placement.system_tolerations:
            was, now = get(before.values, parse_path(path)), get(after.values, parse_path(path))
            free = undecided(before, path)
            wanted = [*free, ANY] if free is not None else was if was is not ABSENT else [ANY]
            assert now == wanted, f"{before.name}:{path}"
            assert (f"{before.name}:{path}" in found.kept) == (free is None and was is not ABSENT)
        if not before.placement.system_tolerations:
            assert after == before
    assert found.recipe.levels == recipe.levels


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("Exists", {"operator": "Exists"}),
        ("a", {"key": "a", "operator": "Exists"}),
        ("a:NoExecute", {"key": "a", "operator": "Exists", "effect": "NoExecute"}),
        ("a=b", {"key": "a", "operator": "Equal", "value": "b"}),
        ("a=:NoSchedule", {"key": "a", "operator": "Equal", "value": "", "effect": "NoSchedule"}),
        (
            "nvidia.com/gpu=present:PreferNoSchedule",
            {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "PreferNoSchedule"},
        ),
    ],
)
def test_tolerations(text: str, toleration: dict[str, str]) -> None:
    assert parse_toleration("--x", text) == toleration


@pytest.mark.parametrize(
    "text", ["", ":", "a:", "a:nosuch", "=b:NoSchedule", "a b:NoSchedule", "a=b c", "a=b:c:NoExecute"]
)
def test_bad_tolerations(text: str) -> None:
    with pytest.raises(BadInputError, match="is no toleration"):
        parse_toleration("--x", text)


@given(st.text(max_size=40))
def test_hostile_texts_are_refused_in_a_sentence_or_read(text: str) -> None:
    def said(read: Callable[[], dict[str, str]]) -> list[str]:
        try:
            return list(read().values())
        except BadInputError as error:
            return [str(error)]

    for line in (*said(lambda: parse_toleration("--x", text)), *said(lambda: parse_selector("--x", [text]))):
        assert "\n" not in line


def test_selectors_taints_and_classes() -> None:
    assert parse_selector("--x", ["b=2", "a=", "b=2"]) == {"a": "", "b": "2"}
    for texts in (["a"], ["=b"], ["a=b=c"], ["a b=c"]):
        with pytest.raises(BadInputError, match="--x"):
            parse_selector("--x", texts)
    with pytest.raises(BadInputError, match="gives a two values"):
        parse_selector("--x", ["a=1", "a=2"])
    assert parse_taint("--x", "a=b:NoSchedule") == "a=b:NoSchedule"
    for text in ("a=b", "a=b:Nope", ":NoSchedule", ""):
        with pytest.raises(BadInputError, match="is no taint"):
            parse_taint("--x", text)
    assert parse_storage_class("--x", "premium-rwo") == "premium-rwo"
    for text in ("", "A", "a b", "-a"):
        with pytest.raises(BadInputError, match="storage class"):
            parse_storage_class("--x", text)
