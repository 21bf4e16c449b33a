"""Reports from the field about tools of this kind that no other test of ours would notice, by their kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.cli.group import run
from muster.configure import lock
from muster.configure.bundles.overrides import parse_overrides, with_overrides
from muster.configure.catalogue import Catalogue, Overlay, Patch, Profile, ProfileValue, load
from muster.configure.catalogue_check import check_catalogue
from muster.configure.criteria import parse_criteria
from muster.configure.recipe import Recipe
from muster.configure.resolve import resolve
from muster.configure.snapshot.read import take_cluster
from muster.configure.values import get, parse_path
from muster.configure.versions import Range, Scheme
from muster.errors import BadInputError
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from tests.configure.cases import NAMES, leaf, recipe_of
from tests.configure.snapshot_bed import fill
from tests.configure.test_snapshot_cluster import Api

LEAF = "h100-eks-ubuntu-training-kubeflow"


# Constraints


def with_profile(value: dict[str, str]) -> Catalogue:
    """The catalogue with a profile on h100-eks-training of which the one value constrains."""
    catalogue = load()
    profile = Profile(name="stack", default="a", values={"a": ProfileValue(constraints=value)})
    overlay = msgspec.structs.replace(catalogue.overlays["h100-eks-training"], profile=profile)
    return msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {overlay.name: overlay})


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        (">= 1.20", ">= 1.32.4"),
        (">= 1.20 < 1.36", ">= 1.32.4 < 1.36"),
        (">= 1.33.5-eks-1", ">= 1.33.5-eks-1"),
        (">= 1.30 || >= 1.34", ">= 1.32.4"),
    ],
)
def test_the_constraint_of_a_profile_never_weakens_that_of_an_overlay(wanted: str, result: str) -> None:
    criteria = parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu"})
    catalogue = with_profile({"kubernetes.version": wanted})
    strict = catalogue.overlays["h100-eks-training"]
    strict = msgspec.structs.replace(strict, constraints={"kubernetes.version": ">= 1.32.4"})
    catalogue = msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {strict.name: strict})
    assert resolve(criteria, catalogue).recipe.constraints["kubernetes.version"] == result


@pytest.mark.parametrize("name", NAMES)
def test_no_recipe_demands_less_than_any_overlay_in_it(name: str) -> None:
    """A leaf that forgets the floor of its parents has it all the same."""
    recipe = recipe_of(name)
    effective = Range.parse(recipe.constraints["kubernetes.version"], Scheme.KUBERNETES)
    floors = [o.constraints.get("kubernetes.version") for n in recipe.overlays if (o := load().overlays[n])]
    floors += [load().components[c.catalogue_name].kube_version for c in recipe.components]
    for text in filter(None, floors):
        assert effective.intersection(Range.parse(text, Scheme.KUBERNETES)) == effective, text


@pytest.mark.parametrize("criteria", [{"nodes": "8"}, {"service": "EKS"}, {"accelerator": "any"}, {"intent": ""}])
def test_a_criterion_that_nobody_can_state_is_refused(criteria: dict[str, str]) -> None:
    """It would match nothing, or everything."""
    overlay = Overlay(name="odd", base="base", criteria=criteria)
    catalogue = msgspec.structs.replace(load(), overlays=load().overlays | {"odd": overlay})
    with pytest.raises(BadInputError, match=r"'odd'"):
        check_catalogue(catalogue)


# Edges


@pytest.mark.parametrize("name", [n for n in NAMES if "-eks-" in n])
def test_a_volume_on_eks_waits_for_its_provisioner(name: str) -> None:
    """Alphabetical order and levels hide the missing edge from deployers that do not follow edges alone."""
    prometheus = recipe_of(name).component("kube-prometheus-stack")
    assert prometheus is not None
    claim = get(prometheus.values, parse_path("prometheus.prometheusSpec.storageSpec.volumeClaimTemplate"))
    assert isinstance(claim, dict)
    assert "aws-ebs-csi-driver" in prometheus.depends_on


def test_an_edge_goes_with_what_needed_it() -> None:
    recipe = recipe_of(LEAF)
    sets = ["kube-prometheus-stack:prometheus.prometheusSpec.storageSpec=null"]
    changed = with_overrides(recipe, parse_overrides(sets, recipe)).component("kube-prometheus-stack")
    assert changed is not None
    assert "aws-ebs-csi-driver" not in changed.depends_on


# Secrets


def test_no_leaf_holds_a_password() -> None:
    """Grafana's had one fixed for everybody."""
    seen = 0
    for name in NAMES:
        stack = recipe_of(name).component("kube-prometheus-stack")
        if stack is None or get(stack.values, parse_path("grafana.enabled")) is False:
            continue
        seen += 1
        assert "adminPassword" not in str(stack.values)
        assert get(stack.values, parse_path("grafana.admin.existingSecret"))
        assert [need.name for need in stack.secrets] == ["grafana-admin"]
    assert seen > 20


# Values


@pytest.mark.parametrize("way", ["set", "layer"])
def test_a_null_is_kept_on_its_way_into_the_recipe(way: str, tmp_path: Path) -> None:
    catalogue, recipe = load(), recipe_of(LEAF)
    if way == "set":
        sets = ["nfd:worker.nodeSelector=null", 'nfd:worker.x={"y":null}', 'nfd:list=[null,{"a":null}]']
        found = with_overrides(recipe, parse_overrides(sets, recipe))
    else:
        patch = Patch(values={"worker": {"nodeSelector": None, "x": {"y": None}}, "list": [None, {"a": None}]})
        overlay = catalogue.overlays["h100-eks-training"]
        overlay = msgspec.structs.replace(overlay, components=overlay.components | {"nfd": patch})
        catalogue = msgspec.structs.replace(catalogue, overlays=catalogue.overlays | {overlay.name: overlay})
        found = resolve(parse_criteria(dict(leaf(LEAF)["criteria"])), catalogue).recipe
    values = _read_back(found, tmp_path)
    assert (values["worker"]["nodeSelector"], values["worker"]["x"]) == (None, {"y": None})
    assert values["list"] == [None, {"a": None}]


def _read_back(recipe: Recipe, folder: Path) -> dict[str, Any]:
    (folder / "recipe.yaml").write_text(lock.write(recipe))
    component = lock.read(folder / "recipe.yaml").component("nfd")
    assert component is not None
    return component.values


# Snapshots


def test_a_snapshot_makes_nothing_and_two_at_once_agree() -> None:
    """Runs that create accounts and bindings delete each other's."""

    class ReadOnly(Api):
        async def create(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("a snapshot writes")

        replace = patch = apply = delete = create

    async def main(clock: VirtualClock) -> None:
        store = Store(clock, seed=1)
        await fill(Api(store))
        before = store.version
        one, other = await asyncio.gather(*(take_cluster(ReadOnly(store), clock.now(), agents=True) for _ in "12"))
        assert one == other
        assert [entry.node for entry in one.nodes] == ["gpu-1", "gpu-2"]
        assert store.version == before

    run_virtual(main)


# Addresses


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest", "https://example.com/r.yaml", "cm://a/b", "file:///etc/passwd"]
)
@pytest.mark.parametrize(
    "command",
    [
        ["recipe", "check", "PLACE"],
        ["recipe", "--accelerator", "h100", "--catalogue", "PLACE"],
        ["bundle", "verify", "PLACE"],
        ["bundle", "render", "PLACE", "--deployer", "helm", "-o", "out"],
        ["snapshot", "diff", "PLACE", "PLACE"],
    ],
)
def test_nothing_is_fetched_from_an_address(
    command: list[str],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert run([place if word == "PLACE" else word for word in command]) == 2
    said = capsys.readouterr().err
    assert said.startswith("muster: ")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# Pins


def test_only_pins_with_a_reason_differ_from_their_component() -> None:
    """A pin that stays behind in an overlay hides the newer one of its component."""
    catalogue = load()
    shadowing = {
        (overlay.name, name): patch.version_reason
        for overlay in catalogue.overlays.values()
        for name, patch in overlay.components.items()
        if patch.version
    }
    assert sorted(shadowing) == [("aks", "kube-prometheus-stack")]
    assert all(shadowing.values())


@pytest.mark.parametrize("version", ["^26.7", "26.x", "latest-1", ">= v26.7.0"])
def test_a_pin_that_is_no_version_names_its_component(version: str) -> None:
    patch = Patch(version=version, version_reason="test")
    overlay = load().overlays["h100-eks-training"]
    overlay = msgspec.structs.replace(overlay, components={**overlay.components, "gpu-operator": patch})
    catalogue = msgspec.structs.replace(load(), overlays=load().overlays | {overlay.name: overlay})
    with pytest.raises(BadInputError, match=r"gpu-operator.*exact version"):
        resolve(parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training"}), catalogue)
