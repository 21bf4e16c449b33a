"""Bundles: one suite reads what each deployer gets back and compares it with the recipe."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure import bundle as bundles
from muster.configure import lock
from muster.configure.bundle import Deployer
from muster.configure.overrides import Override, parse_overrides, with_manifests, with_overrides
from muster.configure.plan import CrdPolicy, Plan, plan
from muster.configure.recipe import Recipe
from muster.configure.render.helm import COLUMNS
from muster.configure.render.repository import UNSET_REPOSITORY, Repository, check_repository
from muster.errors import BadInputError, NotSatisfiedError
from tests.configure.cases import NAMES, recipe_of
from tests.configure.test_values import HOSTILE


@dataclass(frozen=True)
class Found:
    """One release as read back from rendered files."""

    name: str
    namespace: str
    chart: str
    version: str
    values: Any
    place: int
    """Grows in the order in which the deployer starts releases; equal places start together."""
    manifests: tuple[Any, ...]


def manifests_of(files: dict[str, str], folder: str) -> tuple[Any, ...]:
    names = sorted(name for name in files if name.startswith(f"{folder}/manifests/"))
    return tuple(d for name in names for d in yamlio.loads_all(files[name], name))


def read_helm(files: dict[str, str]) -> list[Found]:
    rows = [line.split("\t") for line in files["releases.tsv"].splitlines()]
    assert tuple(rows[0]) == COLUMNS
    found = []
    for place, fields in enumerate(rows[1:]):
        row = dict(zip(COLUMNS, fields, strict=True))
        local = row["chart"] == row["folder"]
        chart = "" if local else row["chart"].rsplit("/", 1)[-1]
        values = yamlio.loads(files[f"{row['folder']}/values.yaml"], row["folder"])
        version = "" if row["version"] == "-" else row["version"]
        found.append(
            Found(row["name"], row["namespace"], chart, version, values, place, manifests_of(files, row["folder"]))
        )
    return found


def read_argocd(files: dict[str, str]) -> list[Found]:
    found = []
    for name in sorted(n for n in files if n.startswith("applications/")):
        app = yamlio.loads(files[name], name)
        source = app["spec"]["source"]
        helm = source["helm"]
        found.append(
            Found(
                helm["releaseName"],
                app["spec"]["destination"]["namespace"],
                source.get("chart", ""),
                source["targetRevision"] if "chart" in source else "",
                yamlio.loads(helm["values"], name),
                int(app["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]),
                manifests_of(files, source["path"]) if "path" in source else (),
            )
        )
    return found


READERS: dict[Deployer, Callable[[dict[str, str]], list[Found]]] = {
    Deployer.HELM: read_helm,
    Deployer.ARGOCD: read_argocd,
}


def built(recipe: Recipe, deployer: Deployer, overrides: tuple[Override, ...] = ()) -> tuple[Plan, dict[str, str]]:
    return bundles.build(recipe, with_overrides(recipe, overrides), deployer, overrides)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deployer", list(READERS))
def test_read_back(deployer: Deployer, name: str) -> None:
    recipe = recipe_of(name)
    planned, files = built(recipe, deployer)
    found = {f.name: f for f in READERS[deployer](files)}
    assert sorted(found) == sorted(r.name for r in planned.releases)
    for release in planned.releases:
        got = found[release.name]
        assert (got.namespace, got.chart, got.version) == (release.namespace, release.chart, release.version)
        assert got.values == release.values
        assert all(found[needed].place < got.place for needed in release.depends_on)
        supplied = [o for f in release.manifests if f.objects is not None for o in f.objects]
        assert list(got.manifests) == supplied
    # Edges between components hold between all of their releases, manifests before and after the chart included.
    by_component: dict[str, list[Found]] = {}
    for release in planned.releases:
        by_component.setdefault(release.component, []).append(found[release.name])
    assert sorted(by_component) == sorted(c.name for c in recipe.components)
    for component in recipe.components:
        for needed in component.depends_on:
            assert max(f.place for f in by_component[needed]) < min(f.place for f in by_component[component.name])


@pytest.mark.parametrize("name", NAMES)
def test_both_deployers_hold_the_same_releases(name: str) -> None:
    def identity(deployer: Deployer) -> set[tuple[str, str, str, str]]:
        found = READERS[deployer](built(recipe_of(name), deployer)[1])
        return {(f.name, f.namespace, f.chart, f.version) for f in found}

    assert identity(Deployer.HELM) == identity(Deployer.ARGOCD)


@pytest.mark.parametrize("deployer", list(READERS))
def test_hostile_values_and_nulls_survive(deployer: Deployer) -> None:
    recipe = recipe_of("h100-any")
    import json

    sets = [f"nfd:k{at}.{key}={json.dumps(text)}" for at, text in enumerate(HOSTILE) for key in ("yes",)]
    sets += ["nfd:nothing=null", "nfd:empty=[]", "nfd:map={}", r"nfd:sel.nvidia\.com/gpu=true", 'nfd:123="123"']
    overrides = parse_overrides(sets, recipe)
    values = next(f.values for f in READERS[deployer](built(recipe, deployer, overrides)[1]) if f.name == "nfd")
    assert [values[f"k{at}"]["yes"] for at in range(len(HOSTILE))] == HOSTILE
    assert values["nothing"] is None
    assert values["empty"] == []
    assert values["map"] == {}
    assert values["sel"] == {"nvidia.com/gpu": True}
    assert values["123"] == "123"


def test_nulls_of_overlays_reach_helm() -> None:
    found = {
        f.name: f for f in read_argocd(built(recipe_of("h100-eks-ubuntu-training-kubeflow"), Deployer.ARGOCD)[1])
    }
    storage = found["kube-prometheus-stack"].values["prometheus"]["prometheusSpec"]["storageSpec"]
    assert storage["emptyDir"] is None
    assert storage["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] == "50Gi"


def test_waves_wait() -> None:
    _, files = built(recipe_of("h100-any"), Deployer.ARGOCD)
    rule = yamlio.loads(files["argocd-cm.yaml"], "rule")
    assert rule["metadata"]["name"] == "argocd-cm"
    lua = rule["data"]["resource.customizations.health.argoproj.io_Application"]
    assert "Progressing" in lua
    # After an upgrade the old objects are healthy still: the rule asks which source was synced.
    assert "syncResult" in lua
    assert "comparedTo" in lua
    for name in (n for n in files if n.startswith("applications/")):
        sync = yamlio.loads(files[name], name)["spec"]["syncPolicy"]
        assert sync["retry"]["limit"] > 0
        assert {"CreateNamespace=true", "ServerSideApply=true"} <= set(sync["syncOptions"])


@pytest.mark.parametrize("name", ["h100-eks-ubuntu-training-slurm", "h100-eks-ubuntu-inference-dynamo"])
def test_shared_crds_are_kept(name: str) -> None:
    planned, files = built(recipe_of(name), Deployer.ARGOCD)
    kept = [r for r in planned.releases if r.crds is CrdPolicy.KEEP]
    assert kept
    for release in kept:
        app = yamlio.loads(files[f"applications/{planned.folder(release)}.yaml"], release.name)
        assert "finalizers" not in app["metadata"]
        assert app["spec"]["syncPolicy"]["automated"]["prune"] is False


def test_a_missing_manifest_stops_the_deployment() -> None:
    recipe = recipe_of("h100-eks-ubuntu-training-kubeflow")
    planned, files = built(recipe, Deployer.HELM)
    assert planned.missing == ("nodewright-customizations/tuning.yaml",)
    assert files["missing.txt"] == "nodewright-customizations/tuning.yaml\n"
    assert any(name.endswith("templates/missing.yaml") and "fail" in text for name, text in files.items())
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"t": "{{ fail }}"}}
    supplied = with_manifests(recipe, {"nodewright-customizations/tuning.yaml": [config_map]})
    whole, files = bundles.build(recipe, supplied, Deployer.HELM)
    assert whole.missing == ()
    assert files["missing.txt"] == ""
    assert not any(name.endswith("templates/missing.yaml") for name in files)
    with pytest.raises(BadInputError, match=r"names no manifest 'x/y\.yaml'"):
        with_manifests(recipe, {"x/y.yaml": []})


def test_secrets_are_asked_for_only_where_needed() -> None:
    eks, kind = recipe_of("h100-eks-ubuntu-training-kubeflow"), recipe_of("h100-kind-training-kubeflow")
    assert [s.name for s in plan(eks).secrets] == ["grafana-admin"]
    assert plan(kind).secrets == ()


def test_overrides() -> None:
    recipe = recipe_of("h100-eks-ubuntu-training-kubeflow")
    off = with_overrides(recipe, parse_overrides(["nodewright-customizations:enabled=false"], recipe))
    assert off.component("nodewright-customizations") is None
    assert "nodewright-customizations" not in off.component("gpu-operator").depends_on  # type: ignore[union-attr]
    by_alias = parse_overrides(["gpuoperator:driver.version=1.2.3"], recipe)
    assert by_alias[0].component == "gpu-operator"
    assert recipe.component("gpu-operator").values["driver"]["version"] == "580.173.02"  # type: ignore[union-attr]


def test_an_override_can_bring_an_edge() -> None:
    recipe = recipe_of("h100-eks-ubuntu-training-kubeflow")
    path = "kube-prometheus-stack:prometheus.prometheusSpec.storageSpec.volumeClaimTemplate"
    without = with_overrides(recipe, parse_overrides([f"{path}=null"], recipe))
    assert without.component("kube-prometheus-stack").inferred == {}  # type: ignore[union-attr]
    again = with_overrides(without, parse_overrides([path + '={"spec":{"accessModes":[]}}'], without))
    assert list(again.component("kube-prometheus-stack").inferred) == ["aws-ebs-csi-driver"]  # type: ignore[union-attr]


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
    ],
)
def test_bad_overrides(sets: list[str], message: str) -> None:
    recipe = recipe_of("h100-any")
    with pytest.raises(BadInputError, match=message):
        with_overrides(recipe, parse_overrides(sets, recipe))


def test_a_component_that_is_off_cannot_be_set() -> None:
    recipe = recipe_of("ocp-training")
    with pytest.raises(BadInputError, match="turned off"):
        parse_overrides(["gpu-operator:enabled=true"], recipe)


@pytest.mark.parametrize("deployer", [d for d in Deployer if d not in READERS])
def test_other_deployers_are_refused_by_name(deployer: Deployer) -> None:
    with pytest.raises(BadInputError, match=f"{deployer} is not rendered yet"):
        built(recipe_of("h100-any"), deployer)


@pytest.mark.parametrize("url", ["", "x", "file:///etc", "https://", "https://a b/c", "-oProxyCommand=x"])
def test_bad_repositories(url: str) -> None:
    with pytest.raises(BadInputError, match="--repo"):
        check_repository(Repository(url))
    with pytest.raises(BadInputError, match="--repo-path"):
        check_repository(Repository(UNSET_REPOSITORY, path="../x"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "bundle"
    bundles.write(target, built(recipe_of("h100-any"), Deployer.HELM)[1])
    return target


def test_builds_are_reproducible(folder: Path, tmp_path: Path) -> None:
    bundles.write(tmp_path / "again", built(recipe_of("h100-any"), Deployer.HELM)[1])
    assert bundles.verify(folder) == bundles.verify(tmp_path / "again")
    assert lock.read(folder / "recipe.yaml") == recipe_of("h100-any")


def test_closed_world(folder: Path) -> None:
    """Every file that is changed, gone or extra is noticed."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    assert len(files) > 15
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + b"\n" if content else b"x")
        with pytest.raises((NotSatisfiedError, BadInputError)):
            bundles.verify(folder)
        path.unlink()
        with pytest.raises((NotSatisfiedError, BadInputError)):
            bundles.verify(folder)
        path.write_bytes(content)
    bundles.verify(folder)
    (folder / "releases" / "extra").write_text("")
    with pytest.raises(NotSatisfiedError, match="releases/extra is not part"):
        bundles.verify(folder)


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


FAKE = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >>"$LOG"
cat >/dev/null <&0 || true
case "$(basename "$0") $*" in
  "helm status "*) [[ -f "$STATE/$2" ]] || exit 1
    printf '{"info":{"description":"%s","status":"deployed"}}' "$(cat "$STATE/$2")" ;;
  "helm upgrade "*)
    [[ "$3" != "$BROKEN" ]] || exit 1
    while [[ $# -gt 1 ]]; do [[ $1 != --description ]] || d=$2; [[ $1 != --install ]] || n=$2; shift; done
    printf '%s' "$d" >"$STATE/$n" ;;
esac
"""


@pytest.mark.full
def test_the_scripts_stop_resume_and_remove(tmp_path: Path) -> None:
    recipe = recipe_of("h100-any")
    planned, files = built(recipe, Deployer.HELM)
    target = tmp_path / "bundle"
    bundles.write(target, files)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "state").mkdir()
    for name in ("helm", "kubectl", "sleep"):
        (tools / name).write_text(FAKE)
        (tools / name).chmod(0o755)
    log = tmp_path / "log"

    def run(script: str, broken: str = "") -> tuple[int, list[str], str]:
        log.write_text("")
        env = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "LOG": str(log),
            "STATE": str(tmp_path / "state"),
            "BROKEN": broken,
        }
        done = subprocess.run([str(target / script)], env=env, capture_output=True, text=True, check=False)
        upgrades = [line.split()[3] for line in log.read_text().splitlines() if line.startswith("helm upgrade")]
        return done.returncode, upgrades, done.stdout + done.stderr

    order = [r.name for r in planned.releases]
    at = order.index("gpu-operator")
    code, upgrades, output = run("deploy.sh", broken="gpu-operator")
    assert code == 1, output
    assert upgrades == order[:at] + ["gpu-operator"] * 5
    code, upgrades, output = run("deploy.sh")
    assert (code, upgrades) == (0, order[at:]), output
    assert run("deploy.sh")[:2] == (0, [])
    code, _, output = run("uninstall.sh")
    assert code == 0, output
    removed = [line.split()[2] for line in log.read_text().splitlines() if line.startswith("helm uninstall")]
    assert removed == [r.name for r in reversed(planned.releases) if r.crds is not CrdPolicy.KEEP]
    (target / "releases.tsv").write_text("x")
    code, upgrades, output = run("deploy.sh")
    assert (code, upgrades) == (1, [])
    assert "changed" in output


@pytest.mark.full
@pytest.mark.parametrize("script", ["deploy.sh", "uninstall.sh"])
def test_the_scripts_are_valid_bash(script: str, folder: Path) -> None:
    done = subprocess.run(["bash", "-n", str(folder / script)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    if linter := shutil.which("shellcheck"):
        linted = subprocess.run([linter, str(folder / script)], capture_output=True, text=True, check=False)
        assert linted.returncode == 0, linted.stdout


def test_nothing_from_values_reaches_a_script() -> None:
    """Scripts are the same for every bundle."""
    texts = {
        (
            built(recipe_of(name), Deployer.HELM)[1]["deploy.sh"],
            built(recipe_of(name), Deployer.HELM)[1]["uninstall.sh"],
        )
        for name in itertools.islice(NAMES, 5)
    }
    assert len(texts) == 1
