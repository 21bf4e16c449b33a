"""DaemonSets that prepare nodes run on held nodes, work never does: every leaf, every path, and the rule itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.bundles.coherence import HELD_NODES, incoherences
from muster.configure.bundles.placement import PlacementChoice, placed
from muster.configure.catalogue import Catalogue, Component, DaemonTolerations, Patch, Placement, load
from muster.configure.criteria import parse_criteria
from muster.configure.held_nodes import (
    REASON,
    daemon_paths,
    names_hold,
    on_held_nodes,
    repelled,
    tolerates_hold,
    undecided,
)
from muster.configure.lint import Rule, Severity, lint_catalogue
from muster.configure.parameters import filled
from muster.configure.plan import plan
from muster.configure.provenance import explain
from muster.configure.recipe import RecipeComponent
from muster.configure.resolve import Resolution, resolve
from muster.configure.upgrade.compare import UpgradeVerdict
from muster.configure.values import ABSENT, get, parse_path, put
from muster.resources.base import HOLD_TAINT
from tests.bundle.made_up import component, recipe_with
from tests.bundle.test_upgrade import between
from tests.configure.cases import H100_EKS, NAMES, leaf, recipe_of

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
HOLD = {"key": HOLD_TAINT, "operator": "Exists"}
WITH = DaemonTolerations(path="ds.tolerations", default=(GPU,), source="values.yaml")
PREPARES = {
    "NodeWright": ("spec", "additionalTolerations"),
    "NicClusterPolicy": ("spec", "tolerations"),
    "ClusterPolicy": ("spec", "daemonsets", "tolerations"),
    "NodeFeatureDiscovery": ("spec", "operand", "workerTolerations"),
    "DaemonSet": ("spec", "template", "spec", "tolerations"),
}
"""Kinds in our manifests that put pods on nodes to prepare them, and where their tolerations stand."""


def with_values(values: dict[str, Any], daemon: DaemonTolerations = WITH) -> RecipeComponent:
    return component("a", placement=Placement(daemon_tolerations=(daemon,)), values=values)


def mentions(node: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the lists that name the hold."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from mentions(value, (*at, key))
    elif isinstance(node, list):
        if any(isinstance(item, Mapping) and HOLD_TAINT in item.values() for item in node):
            yield at
        for item in node:
            yield from mentions(item, at)
    elif isinstance(node, str) and HOLD_TAINT in node and at[-1:] != ("key",):
        yield at


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_prepares_held_nodes_and_keeps_work_off_them(name: str) -> None:
    recipe = recipe_of(name)
    assert any(daemon_paths(c) for c in recipe.components)
    for found in recipe.components:
        assert repelled(found) == ()
        daemons = {parse_path(d.path) for d in found.placement.daemon_tolerations}
        assert {*mentions(found.values)} <= daemons
        for file in (
            *filled(found.pre_manifests, found),
            *filled(found.post_manifests, found),
        ):
            for item in file.objects or ():
                where = PREPARES.get(item["kind"])
                assert {*mentions(item)} <= ({where} if where else set()), (found.name, file.name)
                if where is not None:
                    assert tolerates_hold(get(item, where)), (found.name, file.name)
    assert [i for i in incoherences(recipe) if i.rule == HELD_NODES] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_deployed_is_what_the_recipe_says(name: str) -> None:
    """Drift and assertions compare with the plan, so the plan must hold the toleration too."""
    recipe = recipe_of(name)
    releases = {r.name: r for r in plan(recipe).releases}
    for found in recipe.components:
        for daemon in daemon_paths(found):
            value = get(found.values, parse_path(daemon.path))
            if found.name in releases and releases[found.name].chart:
                assert get(releases[found.name].values, parse_path(daemon.path)) == value


def test_every_chart_with_such_daemon_sets_says_what_its_default_is() -> None:
    recorded = {c.name for c in load().components.values() if c.placement.daemon_tolerations}
    assert recorded == {
        "aws-efa", "gpu-operator", "gpu-operator-ocp", "kube-prometheus-stack", "nfd", "nodewright-customizations",
        "nvidia-dra-driver-gpu", "nvidia-dra-driver-gpu-ocp", "nvsentinel", "slinky-topograph", "topograph",
    }  # fmt: skip
    for name in sorted(recorded):
        for daemon in load().components[name].placement.daemon_tolerations:
            assert daemon.source
            assert parse_path(daemon.path)


def test_work_is_never_among_the_daemon_paths() -> None:
    for name in ("kubeflow-trainer", "slinky-slurm", "dynamo-platform", "k8s-nim-operator", "kueue", "grove"):
        assert load().components[name].placement.daemon_tolerations == ()
    for found in load().components.values():
        daemons = {d.path for d in found.placement.daemon_tolerations}
        assert not {p for p in daemons if "prometheusSpec" in p or "nodesets" in p or "controller" in p.lower()}


def resolved(catalogue: Catalogue) -> Resolution:
    return resolve(parse_criteria(H100_EKS), catalogue)


def patched(component_: str, values: dict[str, Any]) -> Catalogue:
    catalogue = load()
    overlay = catalogue.overlays["h100-eks-training"]
    patch = overlay.components.get(component_, Patch())
    changed = msgspec.structs.replace(patch, values={**patch.values, **values})
    overlays = {**catalogue.overlays}
    overlays["h100-eks-training"] = msgspec.structs.replace(
        overlay, components={**overlay.components, component_: changed}
    )
    return msgspec.structs.replace(catalogue, overlays=overlays)


def test_explain_names_the_reason_and_the_charts_default() -> None:
    (entry,) = explain(resolved(load()).provenance, ["gpu-operator:daemonsets.tolerations"])
    assert entry["value"] == [GPU, HOLD]
    (setting,) = entry["settings"]
    assert setting["source"].startswith(f"{REASON}, added to the chart's own (NVIDIA/gpu-operator ")


def test_explain_shows_what_an_overlay_had_set_before() -> None:
    own = [{"key": "mine", "operator": "Exists"}]
    found = resolved(patched("gpu-operator", {"daemonsets": {"tolerations": own}}))
    (entry,) = explain(found.provenance, ["gpu-operator:daemonsets.tolerations"])
    assert entry["value"] == [*own, HOLD]
    assert [s["source"] for s in entry["settings"]] == ["overlays/h100-eks-training.yaml", REASON]
    assert entry["settings"][-1]["replaced"] == own


def test_an_explicit_empty_list_stays_and_is_warned_of() -> None:
    catalogue = patched("gpu-operator", {"daemonsets": {"tolerations": []}})
    recipe = resolved(catalogue).recipe
    operator = recipe.component("gpu-operator")
    assert operator is not None
    assert operator.values["daemonsets"]["tolerations"] == []
    (warning,) = [i for i in incoherences(recipe) if i.rule == HELD_NODES]
    assert not warning.must
    assert "gpu-operator:daemonsets.tolerations" in warning.sentence
    (finding,) = [f for f in lint_catalogue(catalogue) if f.rule is Rule.HELD]
    assert (finding.where, finding.severity) == ("overlays/h100-eks-training.yaml", Severity.WARNING)


def test_the_built_in_catalogue_empties_no_such_list() -> None:
    assert [f for f in lint_catalogue(load()) if f.rule is Rule.HELD] == []


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, [GPU, HOLD]),
        ({"ds": {"tolerations": [{"key": "a", "operator": "Exists"}]}}, [{"key": "a", "operator": "Exists"}, HOLD]),
        ({"ds": {"tolerations": [{"operator": "Exists"}]}}, [{"operator": "Exists"}]),
        (
            {"ds": {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}},
            [{"operator": "Exists", "effect": "NoSchedule"}],
        ),
        # The hold is NoSchedule, so this does not cover it.
        (
            {"ds": {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}},
            [{"operator": "Exists", "effect": "NoExecute"}, HOLD],
        ),
        # Somebody has thought about the hold already.
        (
            {"ds": {"tolerations": [{"key": HOLD_TAINT, "operator": "Equal", "value": "x"}]}},
            [{"key": HOLD_TAINT, "operator": "Equal", "value": "x"}],
        ),
        ({"ds": {"tolerations": []}}, []),
        ({"ds": {"tolerations": None}}, None),
        ({"ds": {"tolerations": "{{ .x }}"}}, "{{ .x }}"),
        ({"ds": None}, ABSENT),
        ({"ds": "text"}, ABSENT),
    ],
)
def test_what_is_written(values: dict[str, Any], wanted: Any) -> None:
    found, written = on_held_nodes(with_values(values))
    assert get(found.values, ("ds", "tolerations")) == wanted
    assert bool(written) == (found.values != values)


def test_a_chart_that_tolerates_everything_is_left_alone() -> None:
    daemon = DaemonTolerations(path="t", default=({"operator": "Exists", "effect": "NoSchedule"},), source="x")
    same, written = on_held_nodes(with_values({}, daemon))
    assert same.values == {}
    assert written == ()
    assert repelled(same) == ()


TOLERATION = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["", HOLD_TAINT, "nvidia.com/gpu"]),
        "operator": st.sampled_from(["Exists", "Equal", ""]),
        "effect": st.sampled_from(["", "NoSchedule", "NoExecute"]),
        "value": st.just("x"),
    },
)
ANYTHING = st.one_of(st.lists(TOLERATION, max_size=4), st.none(), st.text(max_size=5), st.lists(st.integers()))


@given(default=st.lists(TOLERATION, max_size=3), is_set=st.booleans(), value=ANYTHING)
def test_twice_changes_nothing_and_nothing_is_lost(default: list[dict[str, str]], is_set: bool, value: Any) -> None:
    daemon = DaemonTolerations(path="ds.tolerations", default=tuple(default), source="x")
    before = with_values({"ds": {"tolerations": value}} if is_set else {}, daemon)
    once, written = on_held_nodes(before)
    twice, again = on_held_nodes(once)
    assert twice == once
    assert again == ()
    start = value if is_set else default
    for entry in written:
        assert entry.value == [*start, HOLD]
        assert repelled(once) == ()
    if not written:
        assert once.values == before.values
    # What keeps the pods off is somebody's explicit choice, never an oversight.
    assert not repelled(once) or names_hold(start) or (is_set and (not isinstance(value, list) or value == []))


@given(extra=st.lists(TOLERATION, max_size=3), default=st.lists(TOLERATION, max_size=2))
def test_a_persons_tolerations_are_added_once(extra: list[dict[str, str]], default: list[dict[str, str]]) -> None:
    placement = Placement(
        accelerated_tolerations=("ds.tolerations", "work.tolerations"),
        daemon_tolerations=(DaemonTolerations(path="ds.tolerations", default=tuple(default), source="x"),),
    )
    start, _ = on_held_nodes(component("a", placement=placement))
    base = undecided(start, "ds.tolerations")
    assert base is not None
    choice = PlacementChoice(accelerated_node_tolerations=tuple(extra))
    (found,) = placed(recipe_with(start), choice).recipe.components
    now = get(found.values, ("ds", "tolerations"))
    if extra:
        assert now[: len(base)] == base
        assert all(item in now for item in extra)
        assert get(found.values, ("work", "tolerations")) == extra
    assert tolerates_hold(now if now is not ABSENT else base) or names_hold(base)


@pytest.mark.parametrize("own", [[], [{"key": "mine", "operator": "Exists"}]])
def test_a_list_that_the_recipe_sets_itself_keeps_its_value(own: list[dict[str, str]]) -> None:
    placement = Placement(accelerated_tolerations=("ds.tolerations", "b"), daemon_tolerations=(WITH,))
    start, _ = on_held_nodes(component("a", placement=placement, values={"ds": {"tolerations": own}}))
    found = placed(recipe_with(start), PlacementChoice(accelerated_node_tolerations=(GPU,)))
    assert found.recipe.components[0].values["ds"] == start.values["ds"]
    assert found.kept == ("a:ds.tolerations",)
    assert found.written == ("a:b",)


def before_this(found: Component) -> Component:
    """The component as it was before its DaemonSets were recorded."""
    values = {k: v for k, v in found.values.items() if (found.name, k) != ("nfd", "worker")}
    placement = msgspec.structs.replace(found.placement, daemon_tolerations=())
    return msgspec.structs.replace(found, placement=placement, values=values)


@pytest.mark.parametrize(
    ("name", "careful"),
    [
        ("h100-eks-ubuntu-training-kubeflow", {"gpu-operator", "nodewright-customizations"}),
        ("h100-aks-ubuntu-training-kubeflow", {"gpu-operator", "network-operator", "nodewright-customizations"}),
        ("ocp-training", {"gpu-operator-ocp", "network-operator-ocp"}),
    ],
)
def test_an_upgrade_that_adds_the_toleration_loses_nothing(name: str, careful: set[str]) -> None:
    """Nothing is blocked. Operators that bring nodes into line with a new pod template are told of."""
    catalogue = load()
    manifests = msgspec.json.decode(msgspec.json.encode(catalogue.manifests))
    for objects in manifests.values():
        for item in objects:
            if item["kind"] == "NicClusterPolicy":
                item["spec"]["tolerations"] = [t for t in item["spec"]["tolerations"] if t != HOLD]
            if item["kind"] == "NodeFeatureDiscovery":
                del item["spec"]["operand"]["workerTolerations"]
    older = {n: before_this(c) for n, c in catalogue.components.items()}
    old = resolve(
        parse_criteria(leaf(name)["criteria"]),
        msgspec.structs.replace(catalogue, components=older, manifests=manifests),
    ).recipe
    found = between(old, recipe_of(name))
    assert not [c.component for c in found.components if c.verdict is UpgradeVerdict.BLOCKED]
    assert {c.component for c in found.components if c.verdict is UpgradeVerdict.NEEDS_CARE} == careful
    assert {c.component for c in found.components if c.reasons} - careful


def test_a_value_that_is_put_by_hand_is_seen_as_it_is() -> None:
    start, _ = on_held_nodes(with_values({}))
    values = msgspec.json.decode(msgspec.json.encode(start.values))
    put(values, ("ds", "tolerations"), [GPU])
    assert repelled(msgspec.structs.replace(start, values=values)) == ("ds.tolerations",)
