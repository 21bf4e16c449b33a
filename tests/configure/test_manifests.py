"""Our manifests: placeholders filled, objects as their kinds define them, recipes that deploy without more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.catalogue import Source, SourceKind, load
from muster.configure.criteria import parse_criteria
from muster.configure.matching import unavailable
from muster.configure.parameters import filled, value_paths
from muster.configure.plan import plan
from muster.configure.recipe import ManifestFile, RecipeComponent
from muster.configure.resolve import leaf_names, resolve
from muster.configure.values import merge
from muster.errors import BadInputError

CATALOGUE = load()
USABLE = [n for n in leaf_names(CATALOGUE) if not unavailable(n, CATALOGUE)]


def component(values: dict[str, Any], pool: str = "") -> RecipeComponent:
    source = Source(kind=SourceKind.MANIFESTS)
    return RecipeComponent(name="thing", source=source, namespace="thing", values=values, pool=pool)


def fill(template: Any, values: dict[str, Any], pool: str = "") -> list[dict[str, Any]]:
    (file,) = filled((ManifestFile(name="a.yaml", objects=[template]),), component(values, pool))
    assert file.objects is not None
    return file.objects


EITHER = {"d": {"x": {"$when": "on", "$then": "1"}, "y": {"$unless": "on", "$then": "2"}}}


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ({"a": {"$value": "x.y"}}, {"x": {"y": 1}}, [{"a": 1}]),
        ({"a": {"$value": "x.y"}, "b": 2}, {}, [{"b": 2}]),
        ({"a": {"$value": "x", "$default": [1]}}, {}, [{"a": [1]}]),
        ({"a": {"$value": "x", "$default": [1]}}, {"x": None}, [{"a": [1]}]),
        ({"a": {"$value": "x", "$default": [1]}}, {"x": []}, [{"a": []}]),
        ({"a": {"$value": "x", "$default": 1}}, {"x": False}, [{"a": False}]),
        ({"s": {"m": {"$value": "x"}}, "b": 2}, {}, [{"b": 2}]),
        ({"s": [{"$value": "x"}], "b": 2}, {}, [{"b": 2}]),
        ({"s": {}, "l": []}, {}, [{"s": {}, "l": []}]),
        ({"$when": "on", "a": 1}, {}, [{"a": 1}]),
        ({"$when": "on", "a": 1}, {"on": True}, [{"a": 1}]),
        ({"$when": "on", "a": 1}, {"on": False}, []),
        ({"$when": "on", "a": 1}, {"on": "false"}, []),
        ({"$when": "on", "$default": False, "a": 1}, {}, []),
        ({"$unless": "on", "a": 1}, {}, []),
        ({"$unless": "on", "a": 1}, {"on": False}, [{"a": 1}]),
        (EITHER, {}, [{"d": {"x": "1"}}]),
        (EITHER, {"on": False}, [{"d": {"y": "2"}}]),
        ({"n": {"$name": "tuning"}}, {}, [{"n": "tuning"}]),
        ({"a": "$value", "b": "{{ .Values.x }}"}, {}, [{"a": "$value", "b": "{{ .Values.x }}"}]),
    ],
)  # fmt: skip
def test_placeholders(template: Any, values: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert fill(template, values) == expected


def test_each_pool_has_objects_of_its_own() -> None:
    assert fill({"metadata": {"name": {"$name": "tuning"}}}, {}, pool="big") == [{"metadata": {"name": "tuning-big"}}]


@pytest.mark.parametrize(
    "template",
    [
        {"a": {"$value": 1}},
        {"a": {"$value": "x", "$then": 1}},
        {"a": {"$when": "x", "$then": 1, "b": 2}},
        {"a": {"$when": 3, "b": 2}},
        {"a": {"$valeu": "x"}},
        {"a": {"$name": ["x"]}},
        {"$value": "x", "$default": [1]},
    ],
)
def test_a_malformed_placeholder_is_refused(template: Any) -> None:
    with pytest.raises(BadInputError, match=r"thing/a\.yaml, object 1") as refused:
        fill(template, {})
    assert "\n" not in str(refused.value)


def test_a_value_that_is_no_path_is_refused() -> None:
    with pytest.raises(BadInputError, match="path"):
        fill({"a": {"$value": "x..y"}}, {})


def test_a_file_known_by_name_only_stays_so() -> None:
    assert filled((ManifestFile(name="a.yaml"),), component({})) == (ManifestFile(name="a.yaml"),)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_characters="$"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(alphabet="abc", min_size=1), PLAIN, min_size=1, max_size=4), PLAIN)
def test_what_holds_no_placeholder_stays_and_values_go_in_unchanged(template: dict[str, Any], value: Any) -> None:
    assert fill(template, {}) == [template]
    if value is not None:
        assert fill({"a": {"$value": "v"}, **template}, {"v": value})[0]["a"] == template.get("a", value)


# The catalogue's own ---------------------------------------------------------------------------------------------


def placed(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(component/file, object) of every manifest of ours in the recipe of a leaf."""
    recipe = resolve(parse_criteria(CATALOGUE.overlays[name].criteria), CATALOGUE).recipe
    for release in plan(recipe).releases:
        for file in release.manifests:
            for item in file.objects or ():
                yield f"{release.component}/{file.name}", item


@pytest.mark.parametrize("name", USABLE)
def test_objects_of_every_recipe_are_whole(name: str) -> None:
    seen: set[tuple[str, ...]] = set()
    for where, item in placed(name):
        assert item["apiVersion"], where
        assert item["kind"], where
        meta = item["metadata"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", meta["name"]), where
        identity = (item["kind"], meta.get("namespace", ""), meta["name"])
        assert (where.split("/")[0], *identity) not in seen, f"{where}: the same object twice"
        seen.add((where.split("/")[0], *identity))
        text = repr(item)
        assert "'$" not in text, f"{where}: a placeholder was left"
        assert "latest" not in re.findall(r"'image': '[^']*:(\w+)'", text), where


SUPPLIED = {
    "agentgateway-crds/gateway-api-crds.yaml", "agentgateway-crds/inference-extension-crds.yaml",
    "aws-net-dra/roce.yaml", "dranet/dranet.yaml", "gcp-driver-installer/nvidia-driver-installer.yaml",
    "gke-nccl-tcpxo/nccl-tcpxo-installer.yaml", "gke-nccl-tcpxo/nri-device-injector.yaml",
}  # fmt: skip
"""Other projects' files: whoever builds a bundle supplies them. The component's notes say which they are."""


def test_only_files_of_other_projects_have_to_be_supplied() -> None:
    missing: set[str] = set()
    for name in USABLE:
        missing.update(plan(resolve(parse_criteria(CATALOGUE.overlays[name].criteria), CATALOGUE).recipe).missing)
    assert missing <= SUPPLIED
    for text in SUPPLIED:
        notes = CATALOGUE.components[text.split("/")[0]].notes
        assert "not copied here" in notes
        assert "--manifest" in notes


@pytest.mark.parametrize(
    "criteria",
    [
        {"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"},
        {"service": "eks", "accelerator": "gb200", "intent": "training", "os": "ubuntu", "platform": "slurm"},
        {"service": "aks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"},
        {"service": "ocp", "intent": "inference", "platform": "nim"},
        {"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kueue"},
    ],
)
def test_these_recipes_deploy_without_supplied_manifests(criteria: dict[str, str]) -> None:
    assert plan(resolve(parse_criteria(criteria), CATALOGUE).recipe).missing == ()


def test_every_manifest_of_ours_is_referred_to() -> None:
    named: set[str] = set()
    for component_ in CATALOGUE.components.values():
        named.update(f"{component_.name}/{m}" for m in (*component_.manifests.pre, *component_.manifests.post))
    for patches in [
        *(o.components for o in CATALOGUE.overlays.values()),
        *(m.components for m in CATALOGUE.mixins.values()),
    ]:
        named.update(f"{n}/{m}" for n, p in patches.items() for m in (*p.manifests.pre, *p.manifests.post))
    assert sorted(set(CATALOGUE.manifests) - named) == []


NODEWRIGHT = {
    "runtimeRequired": bool, "autoTaintNewNodes": bool, "interruptionBudget": dict, "nodeSelectors": dict,
    "additionalTolerations": list, "podNonInterruptLabels": dict, "packages": dict,
}  # fmt: skip
"""Fields of spec that we use, of NVIDIA/nodewright chart/templates/nodewright-crd.yaml at 5a158dbc (2026-09)."""
PACKAGE = {
    "image", "version", "containerSHA", "configMap", "configInterrupts", "env", "interrupt", "resources", "dependsOn",
}  # fmt: skip
COMBINATIONS = {
    "nvidia-setup": {("eks", "h100"), ("eks", "gb200"), ("aks", "h100"), ("bcm", "h100"), ("bcm", "gb200")},
}
"""What the package takes, by its README in NVIDIA/nodewright-packages at 1a0e0490 (2026-08)."""


def tunings() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in USABLE:
        for where, item in placed(name):
            if item["kind"] == "NodeWright":
                yield f"{name}: {where}", item


def test_node_tuning_is_what_its_kind_and_packages_define() -> None:
    count = 0
    for where, item in tunings():
        count += 1
        spec = item["spec"]
        for key, value in spec.items():
            assert isinstance(value, NODEWRIGHT[key]), (where, key)
        assert spec["nodeSelectors"]["matchLabels"], f"{where}: no selector would mean every node"
        for name, package in spec["packages"].items():
            assert re.fullmatch(r"[a-z][-a-z0-9]{0,41}[a-z]", name), where
            assert set(package) <= PACKAGE, (where, name)
            assert not set(package["image"]) & {":", "@"}, "the version is a field of its own"
            assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", package.get("containerSHA", "sha256:" + "0" * 64))
            assert all(isinstance(v, str) for v in package["configMap"].values()), (where, name)
            assert package.get("interrupt", {"type": "noop"})["type"] in (
                "service",
                "reboot",
                "noop",
                "restartAllServices",
            )
            for needed, version in package.get("dependsOn", {}).items():
                assert spec["packages"][needed]["version"] == version, f"{where}: {name} waits for what is not there"
            short = package["image"].rsplit("/", 1)[1]
            if short in COMBINATIONS:
                config = package["configMap"]
                assert (config["service"], config["accelerator"]) in COMBINATIONS[short], (where, config)
    assert count > 15


def test_gke_is_never_rebooted_for_tuning() -> None:
    found = 0
    for where, item in tunings():
        if "tuning-gke" in where:
            found += 1
            assert item["spec"]["packages"]["tuning"]["interrupt"]["type"] == "service", where
            assert set(item["spec"]["packages"]["tuning"]["configMap"]) == {"accelerator", "intent"}, where
    assert found >= 5


def tuned(values: dict[str, Any]) -> dict[str, Any]:
    recipe = resolve(
        parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training"}), CATALOGUE
    ).recipe
    found = recipe.component("nodewright-customizations")
    assert found is not None
    all_values: dict[str, Any] = {}
    merge(all_values, found.values)
    merge(all_values, values)
    (file,) = filled(
        (ManifestFile(name="tuning.yaml", objects=CATALOGUE.manifests["nodewright-customizations/tuning.yaml"]),),
        RecipeComponent(name=found.name, source=found.source, namespace=found.namespace, values=all_values),
    )
    assert file.objects is not None
    return file.objects[0]["spec"]  # type: ignore[no-any-return]  # parsed YAML


def test_tuning_follows_the_placement_and_its_switches() -> None:
    spec = tuned({
        "acceleratedNodeSelector": {"pool": "a"}, "acceleratedTolerations": [], "workloadSelector": {"app": "train"},
        "autoTaintNewNodes": False, "interruptionBudget": {"percent": 100},
    })  # fmt: skip
    assert spec["nodeSelectors"] == {"matchLabels": {"pool": "a"}}
    assert spec["additionalTolerations"] == []
    assert spec["podNonInterruptLabels"] == {"matchLabels": {"app": "train"}}
    assert spec["autoTaintNewNodes"] is False
    assert spec["interruptionBudget"] == {"percent": 100}
    assert "podNonInterruptLabels" not in tuned({})


def test_tuning_without_the_tuned_profile_leaves_no_edge_dangling() -> None:
    packages = tuned({"tuningEnabled": False})["packages"]
    assert sorted(packages) == ["nvidia-setup-full", "nvidia-setup-kernel"]
    assert packages["nvidia-setup-full"]["dependsOn"] == {"nvidia-setup-kernel": "0.5.0"}
    assert packages["nvidia-setup-kernel"]["interrupt"] == {"type": "reboot"}
    assert "interrupt" not in tuned({})["packages"]["nvidia-setup-kernel"]


def test_the_queue_admits_into_a_flavor_that_is_there() -> None:
    for name in USABLE:
        objects = [item for where, item in placed(name) if where.startswith("kueue/")]
        if not objects:
            continue
        flavors = {o["metadata"]["name"] for o in objects if o["kind"] == "ResourceFlavor"}
        (queue,) = [o for o in objects if o["kind"] == "ClusterQueue"]
        (group,) = queue["spec"]["resourceGroups"]
        assert {f["name"] for f in group["flavors"]} <= flavors
        for flavor in group["flavors"]:
            assert [r["name"] for r in flavor["resources"]] == group["coveredResources"]
        for topology in [o for o in objects if o["kind"] == "Topology"]:
            assert topology["spec"]["levels"][-1] == {"nodeLabel": "kubernetes.io/hostname"}


def test_placeholders_read_values_of_the_kind_that_placement_writes() -> None:
    """What `--accelerated-node-selector` and the like write is read by the manifests that need it."""
    for name in ("nodewright-customizations", "kubeflow-trainer"):
        placement = CATALOGUE.components[name].placement
        read = {
            p
            for key, objects in CATALOGUE.manifests.items()
            if key.startswith(f"{name}/")
            for p in value_paths(objects)
        }
        wanted = {*placement.accelerated_selectors, *placement.accelerated_tolerations, *placement.workload_selectors}
        assert wanted <= read
