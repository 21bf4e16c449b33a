"""One suite over every reference leaf and every deployer: what the deployer gets is what the plan says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.configure import lock
from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import Deployer
from muster.configure.bundles.overrides import parse_overrides
from muster.configure.plan import CrdPolicy
from muster.configure.recipe import ManifestFile, Recipe, RecipeComponent
from muster.errors import BadInputError, NotSatisfiedError
from tests.bundle import read_argocd, read_argocd_helm, read_flux, read_helm, read_helmfile
from tests.bundle.cases import built, bundle_of
from tests.bundle.found import Found, closure
from tests.configure.cases import NAMES, recipe_of
from tests.configure.test_values import HOSTILE, trees

READERS: dict[Deployer, Callable[[dict[str, str]], list[Found]]] = {
    Deployer.HELM: read_helm.read,
    Deployer.ARGOCD: read_argocd.read,
    Deployer.ARGOCD_HELM: read_argocd_helm.read,
    Deployer.FLUX: read_flux.read,
    Deployer.HELMFILE: read_helmfile.read,
}
ALL = list(Deployer)
SMALL = "h100-any"
# A deployer may do more for CRDs than it was asked, never less.
SATISFIES = {
    CrdPolicy.INSTALL: {CrdPolicy.INSTALL, CrdPolicy.REPLACE, CrdPolicy.KEEP},
    CrdPolicy.REPLACE: {CrdPolicy.REPLACE},
    CrdPolicy.KEEP: {CrdPolicy.KEEP},
}


def found_in(files: dict[str, str], deployer: Deployer) -> dict[str, Found]:
    releases = READERS[deployer](files)
    by_name = {f.name: f for f in releases}
    assert len(by_name) == len(releases)
    return by_name


@cache
def found_of(name: str, deployer: Deployer) -> dict[str, Found]:
    """The releases of a reference leaf, read once; not to be changed."""
    return found_in(bundle_of(name, deployer)[1], deployer)


def plain(value: Any) -> bytes:
    """One text for equal values: 1 and true differ, the order of keys does not matter."""
    return msgspec.json.encode(value, order="deterministic")


def test_every_deployer_is_read() -> None:
    assert sorted(READERS) == sorted(Deployer)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deployer", ALL)
def test_releases(deployer: Deployer, name: str) -> None:
    planned, _ = bundle_of(name, deployer)
    found = found_of(name, deployer)
    assert sorted(found) == sorted(r.name for r in planned.releases)
    for release in planned.releases:
        got = found[release.name]
        assert (got.namespace, got.chart, got.version) == (release.namespace, release.chart, release.version)
        assert got.repository == release.repository.rstrip("/")
        assert plain(got.values) == plain(release.values)
        assert list(got.manifests) == [o for f in release.manifests for o in f.objects or ()]
        assert got.timeout_s == release.timeout_s
        assert got.retries in (release.retries, None)
        assert got.gate is release.gate
        assert got.crds in SATISFIES[release.crds]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deployer", ALL)
def test_edges_as_the_deployer_orders(deployer: Deployer, name: str) -> None:
    planned, _ = bundle_of(name, deployer)
    before = closure(found_of(name, deployer).values())
    for release in planned.releases:
        assert set(release.depends_on) <= before[release.name]
    # Edges between components hold between all of their releases, manifests before and after the chart included.
    recipe = recipe_of(name)
    releases = {c.name: [r.name for r in planned.releases if r.component == c.name] for c in recipe.components}
    assert all(releases.values())
    for component in recipe.components:
        for needed in component.depends_on:
            for later in releases[component.name]:
                assert set(releases[needed]) <= before[later]


@pytest.mark.parametrize("name", NAMES)
def test_all_deployers_hold_the_same(name: str) -> None:
    def identity(deployer: Deployer) -> list[bytes]:
        return [
            plain([f.name, f.namespace, f.chart, f.repository, f.version, f.values, f.manifests])
            for _, f in sorted(found_of(name, deployer).items())
        ]

    first = identity(Deployer.HELM)
    assert first
    for deployer in ALL:
        assert identity(deployer) == first, deployer


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deployer", ALL)
def test_every_document_parses(deployer: Deployer, name: str) -> None:
    _, files = bundle_of(name, deployer)
    for path, text in files.items():
        assert text.endswith("\n") or not text, path
        if "/templates/" in f"/{path}":
            continue
        if path.endswith((".yaml", ".yml")):
            yamlio.loads_all(text, path)
        elif path.endswith(".json"):
            json.loads(text)


@pytest.mark.parametrize("deployer", ALL)
def test_hostile_overrides_survive(deployer: Deployer) -> None:
    recipe = recipe_of(SMALL)
    sets = [f"nfd:k{at}.yes={json.dumps(text)}" for at, text in enumerate(HOSTILE)]
    sets += ["nfd:nothing=null", "nfd:empty=[]", "nfd:map={}", r"nfd:sel.nvidia\.com/gpu=true", 'nfd:123="123"']
    sets += ['nfd:list=[null,[],{},{"a":null}]', 'nfd:y="1.30"', "nfd:off=false", "nfd:zero=0"]
    files = built(recipe, deployer, parse_overrides(sets, recipe))[1]
    values = found_in(files, deployer)["nfd"].values
    assert [values[f"k{at}"]["yes"] for at in range(len(HOSTILE))] == HOSTILE
    assert values["nothing"] is None
    assert values["empty"] == []
    assert values["map"] == {}
    assert values["sel"] == {"nvidia.com/gpu": True}
    assert (values["123"], values["y"], values["off"], values["zero"]) == ("123", "1.30", False, 0)
    assert values["list"] == [None, [], {}, {"a": None}]


def test_nulls_of_overlays_reach_every_deployer() -> None:
    for deployer in ALL:
        found = found_of("h100-eks-ubuntu-training-kubeflow", deployer)
        storage = found["kube-prometheus-stack"].values["prometheus"]["prometheusSpec"]["storageSpec"]
        assert storage["emptyDir"] is None
        assert storage["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] == "50Gi"


def changed(recipe: Recipe, name: str, **fields: Any) -> Recipe:
    components = tuple(msgspec.structs.replace(c, **fields) if c.name == name else c for c in recipe.components)
    return msgspec.structs.replace(recipe, components=components)


def _writable(tree: Any) -> bool:
    """Lone surrogates are no text that a file can hold; NaN and infinity are no values of Helm."""
    try:
        msgspec.json.encode(tree)
        repr(tree).encode()
    except (UnicodeEncodeError, ValueError):
        return False
    return True


values_trees = st.dictionaries(st.text() | st.sampled_from(HOSTILE), trees, max_size=3).filter(_writable)


@pytest.mark.parametrize("deployer", ALL)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values_trees)
def test_any_values_survive(deployer: Deployer, values: dict[str, Any]) -> None:
    recipe = recipe_of(SMALL)
    _, files = bundles.build(recipe, changed(recipe, "nfd", values=values), deployer)
    assert plain(found_in(files, deployer)["nfd"].values) == plain(values)


@pytest.mark.parametrize("deployer", ALL)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([k for k in HOSTILE if not k.startswith("$")]), st.sampled_from(HOSTILE)))
def test_any_manifests_survive(deployer: Deployer, data: dict[str, str]) -> None:
    recipe = recipe_of(SMALL)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "yes"}, "data": data}
    files = (ManifestFile(name="a.yaml", objects=[config]), ManifestFile(name="b.yaml", objects=[]))
    planned, texts = bundles.build(recipe, changed(recipe, "nfd", post_manifests=files), deployer)
    assert planned.missing == ()
    assert list(found_in(texts, deployer)["nfd-post"].manifests) == [config]


ODD = ("yes", "123", "null", "y", "1e3", "0x1f", "off", "true", "a--b")


@pytest.mark.parametrize("deployer", ALL)
def test_hostile_names_survive(deployer: Deployer) -> None:
    recipe = recipe_of(SMALL)
    names = {c.name: odd for c, odd in zip(recipe.components, ODD, strict=False)}
    assert len(names) >= 5

    def renamed(component: RecipeComponent) -> RecipeComponent:
        name = names.get(component.name, component.name)
        needed = tuple(names.get(n, n) for n in component.depends_on)
        return msgspec.structs.replace(component, name=name, namespace=name, depends_on=needed)

    odd = msgspec.structs.replace(recipe, components=tuple(renamed(c) for c in recipe.components))
    planned, files = bundles.build(recipe, odd, deployer)
    found = found_in(files, deployer)
    assert set(names.values()) <= set(found)
    assert {f.name: f.namespace for f in found.values()} == {r.name: r.namespace for r in planned.releases}
    before = closure(found.values())
    assert all(set(r.depends_on) <= before[r.name] for r in planned.releases)


@pytest.mark.parametrize("deployer", ALL)
def test_a_missing_manifest_cannot_be_overlooked(deployer: Deployer) -> None:
    planned, files = bundle_of("h100-eks-ubuntu-training-kubeflow", deployer)
    if not planned.missing:
        planned, files = bundle_of("h100-eks-ubuntu-inference-dynamo", deployer)
    assert planned.missing
    stops = [text for name, text in files.items() if name.endswith("templates/missing.yaml")]
    assert stops
    assert all("fail" in text for text in stops)


@pytest.mark.parametrize("deployer", ALL)
def test_shared_crds_are_kept(deployer: Deployer) -> None:
    kept = 0
    for name in NAMES:
        planned, _ = bundle_of(name, deployer)
        found = found_of(name, deployer)
        keep = [r.name for r in planned.releases if r.crds is CrdPolicy.KEEP]
        assert all(found[n].crds is CrdPolicy.KEEP for n in keep)
        kept += len(keep)
    assert kept > 0


@pytest.mark.parametrize("deployer", ALL)
def test_builds_are_reproducible(deployer: Deployer, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        bundles.write(tmp_path / folder, built(recipe_of(SMALL), deployer)[1])
    assert bundles.verify(tmp_path / "one") == bundles.verify(tmp_path / "two")
    assert lock.read(tmp_path / "one" / "recipe.yaml") == recipe_of(SMALL)


@pytest.mark.full
def test_builds_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from muster.configure.bundles.build import Deployer\n"
        "from tests.bundle.cases import bundle_of\n"
        "for name in ('h100-eks-ubuntu-training-kubeflow', 'h100-eks-ubuntu-inference-dynamo'):\n"
        "    for deployer in Deployer:\n"
        "        print(bundle_of(name, deployer)[1]['checksums.txt'])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("recipe.yaml") == 2 * len(ALL)


@pytest.mark.parametrize("deployer", ALL)
def test_the_checksums_are_a_closed_world(deployer: Deployer, tmp_path: Path) -> None:
    """Every file that is changed by one byte, cut, gone or extra is noticed."""
    folder = tmp_path / "bundle"
    bundles.write(folder, built(recipe_of(SMALL), deployer)[1])
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    assert len(files) > 15

    def refused() -> None:
        with pytest.raises((NotSatisfiedError, BadInputError)):
            bundles.verify(folder)

    for path in files:
        content = path.read_bytes()
        for place in sorted({0, len(content) // 3, len(content) // 2, len(content) - 1} - {-1}):
            if place < len(content):
                path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
                refused()
        path.write_bytes(content[:-1] if content else b"x")
        refused()
        path.unlink()
        refused()
        path.write_bytes(content)
    bundles.verify(folder)
    (files[0].parent / "extra").write_text("")
    refused()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_byte_of_any_file(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "bundle"
    if not folder.exists():
        bundles.write(folder, built(recipe_of(SMALL), Deployer.HELM)[1])
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    path.write_bytes(content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :])
    try:
        with pytest.raises((NotSatisfiedError, BadInputError)):
            bundles.verify(folder)
    finally:
        path.write_bytes(content)
    assert bundles.verify(folder)[0] > 0
