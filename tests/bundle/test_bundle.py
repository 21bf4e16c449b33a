"""Bundles on disk: written whole or not at all, and read back with every choice that was made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure import lock
from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import Deployer
from muster.configure.bundles.choices import Choices, apply_choices
from muster.configure.bundles.opened import open_bundle, open_either
from muster.configure.bundles.overrides import (
    FileValues,
    file_values,
    parse_overrides,
    require_known_paths,
    with_manifests,
    with_overrides,
)
from muster.configure.bundles.placement import PlacementChoice
from muster.configure.catalogue import Crds, Need
from muster.configure.plan import plan
from muster.configure.recipe import ManifestFile, Recipe
from muster.configure.values import Path as ValuePath
from muster.configure.values import get, path_text, whole_leaves
from muster.errors import BadInputError, NotSatisfiedError
from tests.bundle.cases import built
from tests.bundle.made_up import component, recipe_with
from tests.configure.cases import recipe_of

EKS = "h100-eks-ubuntu-training-kubeflow"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"t": "{{ fail }}"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "bundle"
    bundles.write(target, built(recipe_of("h100-any"), Deployer.HELM)[1])
    return target


# Choices


def test_overrides() -> None:
    recipe = recipe_of(EKS)
    off = with_overrides(recipe, parse_overrides(["nodewright-customizations:enabled=false"], recipe))
    assert off.component("nodewright-customizations") is None
    gpu_operator = off.component("gpu-operator")
    assert gpu_operator is not None
    assert "nodewright-customizations" not in gpu_operator.depends_on
    by_alias = parse_overrides(["gpuoperator:driver.version=1.2.3"], recipe)
    assert by_alias[0].component == "gpu-operator"
    changed = with_overrides(recipe, by_alias).component("gpu-operator")
    assert changed is not None
    assert changed.values["driver"]["version"] == "1.2.3"
    assert recipe.component("gpu-operator") != changed


def test_an_override_can_bring_an_edge() -> None:
    recipe = recipe_of(EKS)
    path = "kube-prometheus-stack:prometheus.prometheusSpec.storageSpec.volumeClaimTemplate"

    def inferred(texts: list[str]) -> list[str]:
        component = with_overrides(recipe, parse_overrides(texts, recipe)).component("kube-prometheus-stack")
        assert component is not None
        return list(component.inferred)

    assert "aws-ebs-csi-driver" not in inferred([f"{path}=null"])
    assert "aws-ebs-csi-driver" in inferred([path + '={"spec":{"accessModes":[]}}'])


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["gpu-operator"], "malformed"),
        (["gpu-operator:=1"], "malformed"),
        (["gpu-operatr:a=1"], "did you mean 'gpu-operator'"),
        (["gpu-operator:a=1", "gpu-operator:a.b=2"], "overlap"),
        (["gpu-operator:enabled=maybe"], "true or false"),
        (["nfd:apiToken=abc"], "secret"),
        (["nfd:a[3]=1"], "list"),
        (["gpu-operator:driver.enabled=False"], "true, false or null"),
        (["gpu-operator:driver.version=NULL"], "true, false or null"),
        (["gpu-operator:a.enabled=no"], "true or false"),
        (["nfd:worker.tolerations=[{key: a}]"], "not valid JSON"),
        (['nfd:worker.config={"a":'], "not valid JSON"),
        (["nfd:worker.list={a,b}"], "not valid JSON"),
        (['nfd:worker.text="a'], "not valid JSON"),
    ],
)
def test_bad_overrides(sets: list[str], message: str) -> None:
    recipe = recipe_of("h100-any")
    with pytest.raises(BadInputError, match=message):
        with_overrides(recipe, parse_overrides(sets, recipe))


def test_a_recipe_that_holds_a_secret_is_no_bundle() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    for fields in (
        {"values": {"adminPassword": "hunter2"}},
        {"post_manifests": (ManifestFile(name="s.yaml", objects=[secret]),)},
    ):
        recipe = recipe_with(component("a", **fields))
        with pytest.raises(BadInputError, match=r"(?i)secret"):
            bundles.build(recipe, recipe, Deployer.HELM)


def test_a_folder_that_cannot_be_read_is_not_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "extra").write_text("")
    scan = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == hidden:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BadInputError, match=r"no readable hidden \(Permission denied\)"):
        bundles.verify(folder)


def test_a_switch_of_the_recipe_takes_no_word() -> None:
    recipe = recipe_of("h100-any")
    switch = next(
        f"{c.name}:{path_text(path)}" for c in recipe.components for path, v in whole_leaves(c.values) if v is True
    )
    with pytest.raises(BadInputError, match="true or false"):
        parse_overrides([f"{switch}=maybe"], recipe)


@pytest.mark.parametrize("text", ["False", "no", "{{ .x }}", "[a", "a: [b", ""])
def test_quotes_say_that_text_is_meant(text: str) -> None:
    recipe = recipe_of("h100-any")
    (found,) = parse_overrides([f'gpu-operator:driver.enabled="{text}"'], recipe)
    assert found.value == text
    assert parse_overrides([str(found)], recipe) == (found,), "a bundle records it like this"


def test_a_component_that_is_off_cannot_be_set() -> None:
    recipe = recipe_of("ocp-training")
    with pytest.raises(BadInputError, match="turned off"):
        parse_overrides(["gpu-operator:enabled=true"], recipe)


def test_a_file_of_values_merges_and_set_wins() -> None:
    recipe = recipe_of("h100-any")
    file = file_values(
        "nfd", {"worker": {"config": {"a": 1, "b": [1, 2]}}, "gone": None, "list": []}, "values.yaml", recipe
    )
    sets = parse_overrides(["nfd:worker.config.b=[3]"], recipe)
    changed = with_overrides(recipe, sets, [file]).component("nfd")
    assert changed is not None
    assert changed.values["worker"]["config"] == {"a": 1, "b": [3]}
    assert changed.values["gone"] is None
    assert changed.values["list"] == []


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("nfd", None, "no map of Helm values"),
        ("nfd", [1], "no map of Helm values"),
        ("nope", {"a": 1}, "no component 'nope'"),
        ("nfd", {1: 2}, "not text"),
        ("nfd", {"password": "x"}, "secret written out"),
    ],
)
def test_bad_files_of_values(name: str, values: Any, message: str) -> None:
    recipe = recipe_of("h100-any")
    with pytest.raises(BadInputError, match=message):
        with_overrides(recipe, (), [file_values(name, values, "values.yaml", recipe)])


class Recorded:
    """A chart that knows `driver.version` and everything below `env`."""

    def unknown(self, path: ValuePath) -> str | None:
        if path_text(path) in ("driver.version", "driver") or path[0] == "env":
            return None
        return "driver.version" if path[0] == "driver" else ""


def test_unknown_value_paths() -> None:
    recipe = recipe_of("h100-any")

    def check(*texts: str, files: tuple[FileValues, ...] = ()) -> None:
        paths_of = {"gpu-operator": Recorded()}.get
        require_known_paths(recipe, parse_overrides(texts, recipe), files, paths_of)

    check("gpu-operator:driver.version=1.2.3", "gpu-operator:env.x.y=1", "nfd:what.ever=1", "nfd:enabled=false")
    # What the recipe sets itself needs no record.
    check("gpu-operator:nfd.enabled=true")
    with pytest.raises(
        BadInputError, match=r"no value 'driver\.versio'; did you mean 'driver.version'.*allow-unknown"
    ):
        check("gpu-operator:driver.versio=1.2.3")
    with pytest.raises(BadInputError, match=r"no value 'nope\.deep'"):
        check('gpu-operator:nope={"deep":1}')
    with pytest.raises(BadInputError, match=r"--set-file gpu-operator: .*no value 'nope'"):
        check(files=(FileValues("gpu-operator", {"nope": [1]}),))


def test_a_need_that_nothing_meets_is_refused_and_a_lost_one_is_told() -> None:
    need = Need(crd="widgets.example.com", when="monitor", default=False)
    recipe = recipe_with(
        component("crds", crds=Crds(provides=("widgets.example.com",))),
        component("user", depends_on=("crds",), needs=(need,), values={"monitor": True}),
        component("other", needs=(Need(crd="gadgets.example.com", when="monitor", default=False),)),
    )
    assert apply_choices(recipe, Choices()).unmet == ()
    off = Choices(parse_overrides(["crds:enabled=false"], recipe))
    (sentence,) = apply_choices(recipe, off).unmet
    assert "widgets.example.com" in sentence
    assert sentence.endswith("Or make sure that the cluster has it already.")
    with pytest.raises(BadInputError, match=r"gadgets\.example\.com"):
        apply_choices(recipe, Choices(parse_overrides(["other:monitor=true"], recipe)))


def test_a_missing_manifest_stops_the_deployment() -> None:
    bare = recipe_with_a_missing_manifest()
    planned, files = built(bare, Deployer.HELM)
    assert planned.missing == ("nfd/extra.yaml",)
    assert any(name.endswith("templates/missing.yaml") and "fail" in text for name, text in files.items())
    supplied = with_manifests(bare, {"nfd/extra.yaml": [CONFIG_MAP]})
    whole, files = bundles.build(bare, supplied, Deployer.HELM)
    assert whole.missing == ()
    assert not any(name.endswith("templates/missing.yaml") for name in files)
    with pytest.raises(BadInputError, match=r"names no manifest 'x/y\.yaml'"):
        with_manifests(bare, {"x/y.yaml": []})


@pytest.mark.parametrize("content", [{"data": {"k": "eA=="}}, {"stringData": {"k": "x"}}])
def test_a_secret_is_no_manifest(content: dict[str, Any]) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    bare = recipe_with_a_missing_manifest()
    with pytest.raises(BadInputError, match=r"nfd/extra\.yaml holds a Secret with its content"):
        with_manifests(bare, {"nfd/extra.yaml": [CONFIG_MAP, secret | content]})
    assert plan(with_manifests(bare, {"nfd/extra.yaml": [secret]})).missing == ()


def recipe_with_a_missing_manifest() -> Recipe:
    recipe = recipe_of("h100-any")
    components = tuple(
        msgspec.structs.replace(c, post_manifests=(*c.post_manifests, ManifestFile(name="extra.yaml")))
        if c.name == "nfd"
        else c
        for c in recipe.components
    )
    return lock.locked(msgspec.structs.replace(recipe, components=components))


# Bundles read back


@pytest.mark.parametrize("deployer", list(Deployer))
def test_every_choice_comes_back(deployer: Deployer, tmp_path: Path) -> None:
    recipe = recipe_with_a_missing_manifest()
    choices = Choices(
        overrides=parse_overrides(["gpu-operator:driver.version=1.2.3", r"nfd:s.a\.b=null", "nfd:e=[]"], recipe),
        files=(FileValues("cert-manager", {"x": {"yes": None, "list": [], "map": {}}}),),
        placement=PlacementChoice(
            accelerated_node_selector={"pool": "gpu"}, accelerated_node_tolerations=({"operator": "Exists"},)
        ),
        manifests={"nfd/extra.yaml": [CONFIG_MAP]},
    )
    chosen = apply_choices(recipe, choices).recipe
    planned, files = bundles.build(recipe, chosen, deployer, choices.overrides, None, choices)
    bundles.write(tmp_path / "b", files)
    opened = open_bundle(tmp_path / "b")
    assert opened.locked == recipe
    assert opened.recipe == chosen
    assert opened.plan == planned
    assert opened.deployer is deployer
    assert opened.plan.missing == ()
    found = opened.recipe.component("gpu-operator")
    assert found is not None
    assert get(found.values, ("daemonsets", "nodeSelector")) == {"pool": "gpu"}
    certs = opened.recipe.component("cert-manager")
    assert certs is not None
    assert certs.values["x"] == {"yes": None, "list": [], "map": {}}


def test_a_recipe_is_opened_like_a_bundle(tmp_path: Path) -> None:
    recipe = recipe_of("h100-any")
    path = tmp_path / "recipe.yaml"
    path.write_text(lock.write(recipe))
    opened = open_either(path)
    assert (opened.recipe, opened.plan, opened.deployer) == (recipe, plan(recipe), None)
    bundles.write(tmp_path / "b", built(recipe, Deployer.HELM)[1])
    assert open_either(tmp_path / "b").plan == opened.plan


def rewrite(folder: Path, name: str, text: str) -> None:
    """Change a file and close the world again, as somebody would who knows how."""
    (folder / name).write_text(text)
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "checksums.txt"]
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}
    (folder / "checksums.txt").write_text(bundles.checksums(files))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Other"}, "does not describe a bundle"),
        ({"surprise": 1}, "another version of Muster"),
        ({"recipe": "sha256:0"}, "holds another recipe"),
        ({"deployer": "magic"}, "another version of Muster"),
        ({"manifests": ["../../etc/passwd"]}, "names the manifest"),
        ({"manifests": ["nfd/none.yaml"]}, "Cannot read"),
        ({"setFiles": {"nope": {"a": 1}}}, "which its recipe lacks"),
        ({"set": ["nope:a=1"]}, "no component 'nope'"),
    ],
)
def test_a_description_that_does_not_fit(folder: Path, change: dict[str, Any], message: str) -> None:
    described = yamlio.load(folder / "bundle.yaml")
    rewrite(folder, "bundle.yaml", yamlio.dumps(described | change))
    bundles.verify(folder)
    with pytest.raises(BadInputError, match=message):
        open_bundle(folder)


def test_the_recipe_of_a_bundle_is_verified_too(folder: Path) -> None:
    recipe = folder / "recipe.yaml"
    rewrite(folder, "recipe.yaml", recipe.read_text().replace("580.173.02", "580.173.03"))
    with pytest.raises(BadInputError, match="changed after it was locked"):
        open_bundle(folder)
    recipe.write_text(recipe.read_text() + "#")
    with pytest.raises(NotSatisfiedError, match=r"recipe\.yaml"):
        open_bundle(folder)


# Writing


def test_a_symbolic_link_is_no_file_of_a_bundle(folder: Path) -> None:
    readme = folder / "README.md"
    readme.rename(folder.parent / "elsewhere")
    readme.symlink_to(folder.parent / "elsewhere")
    with pytest.raises(NotSatisfiedError, match=r"README\.md"):
        bundles.verify(folder)


def test_output_is_all_or_nothing(tmp_path: Path, folder: Path) -> None:
    files = built(recipe_of("gb200-any"), Deployer.ARGOCD)[1]
    with pytest.raises(BadInputError, match="--force"):
        bundles.write(folder, files)
    bundles.write(folder, files, force=True)
    assert (folder / "app-of-apps.yaml").is_file()
    assert not (folder / "deploy.sh").exists()
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(BadInputError, match=r"mine\.txt"):
        bundles.write(folder, files, force=True)
    assert (folder / "mine.txt").read_text() == "keep"
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    with pytest.raises(BadInputError, match="holds no bundle"):
        bundles.write(other, files, force=True)
    with pytest.raises(BadInputError, match="does not exist"):
        bundles.write(tmp_path / "no" / "where", files)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="not a folder"):
        bundles.write(tmp_path / "file", files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "file", "other"]


def test_a_failing_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="Cannot write"):
        bundles.write(tmp_path / "b", {"a": "x", "a/b": "y"})
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_the_old_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bundles.verify(folder)
    rename = Path.rename

    def interrupt(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bundles.write(folder, built(recipe_of("gb200-any"), Deployer.ARGOCD)[1], force=True)
    assert bundles.verify(folder) == before
    assert list(folder.parent.iterdir()) == [folder]


def test_odd_entries_are_not_part_of_a_bundle(folder: Path) -> None:
    (folder / "empty" / "inner").mkdir(parents=True)
    with pytest.raises(NotSatisfiedError, match="empty/inner/ is not part"):
        bundles.verify(folder)
    shutil.rmtree(folder / "empty")
    (folder / "two\nlines").write_text("")
    with pytest.raises(NotSatisfiedError) as caught:
        bundles.verify(folder)
    assert "\n" not in str(caught.value)
    (folder / "two\nlines").unlink()
    (folder / "checksums.txt").unlink()
    os.mkfifo(folder / "checksums.txt")
    with pytest.raises(BadInputError, match="not a regular file"):
        bundles.verify(folder)


@pytest.mark.parametrize("deployer", list(Deployer))
def test_the_readme_tells_how_to_start(deployer: Deployer) -> None:
    planned, files = built(recipe_of(EKS), deployer)
    readme = files["README.md"]
    start = {
        Deployer.HELM: "./deploy.sh",
        Deployer.HELMFILE: "./sync.sh",
        Deployer.ARGOCD: "kubectl apply -f app-of-apps.yaml",
        Deployer.ARGOCD_HELM: "helm upgrade --install muster-bundle .",
        Deployer.FLUX: "kubectl apply -f flux-bundle.yaml",
    }[deployer]
    assert start in readme
    # Secrets need their namespace, and come before the start.
    namespaces = "namespaces.yaml" if "namespaces.yaml" in files else "kubectl create namespace monitoring"
    assert readme.index(namespaces) < readme.index("monitoring/grafana-admin") < readme.index(start)
    named = [word.strip("`") for word in start.split() if "." in word and word != "."]
    assert all(name.removeprefix("./") in files for name in named)
    assert all(release.name in readme for release in planned.releases)
    assert [s.name for s in planned.secrets] == ["grafana-admin"]
    assert "grafana-admin" in readme
