"""The verbs: both forms of each, bad input in one sentence with the right exit code, nothing partial left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.configure import lock
from tests.configure.cases import H100_EKS, recipe_of

ARGS = [part for key, value in H100_EKS.items() for part in (f"--{key}", value)]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    assert run(["recipe", *ARGS, "-o", str(path)]) == 0
    return path


def test_recipe(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", *ARGS]) == 0
    assert capsys.readouterr().out == recipe.read_text()
    assert lock.read(recipe) == recipe_of("h100-eks-ubuntu-training-kubeflow")
    assert run(["recipe", "check", str(recipe)]) == 0
    assert "fine" in capsys.readouterr().out


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "list", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name": "h100-eks-ubuntu-training-kubeflow", "criteria": H100_EKS, "unavailable": ""} in rows
    assert run(["recipe", "list"]) == 0
    assert "not usable yet" in capsys.readouterr().out


def test_explain(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "explain", "gpu-operator:driver.version", "--recipe", str(recipe)]) == 0
    assert "components/gpu-operator.yaml" in capsys.readouterr().out
    assert run(["recipe", "explain", "constraint:kubernetes.version", *ARGS, "-o", "yaml"]) == 0
    (entry,) = yamlio.loads(capsys.readouterr().out, "out")
    assert entry["value"] == ">= 1.32.4"
    assert entry["settings"][-1]["source"] == "overlays/h100-eks-training.yaml"


def test_diff(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    assert run(["recipe", *ARGS, "--nodes", "8", "-o", str(other)]) == 0
    assert run(["recipe", "diff", str(recipe), str(other)]) == 0
    assert "nodewright-operator:estimatedNodeCount: (absent) -> 8" in capsys.readouterr().out


def test_bundle(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for deployer in ("helm", "argocd"):
        target = tmp_path / deployer
        assert run(["bundle", str(recipe), "--deployer", deployer, "-o", str(target), "--set", "nfd:a=1"]) == 0
        assert run(["bundle", "verify", str(target)]) == 0
        assert "unchanged" in capsys.readouterr().out
        assert yamlio.load(target / "bundle.yaml")["set"] == ["nfd:a=1"]
    (target / "README.md").write_text("")
    assert run(["bundle", "verify", str(target)]) == 3
    assert "README.md was changed" in capsys.readouterr().err


def test_bundle_with_a_manifest(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "tuning.yaml"
    manifest.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    command = ["bundle", str(recipe), "--deployer", "argocd", "--repo", "https://git.example.com/x.git"]
    supply = ["--manifest", f"nodewright-customizations/tuning.yaml={manifest}"]
    assert run([*command, "-o", str(tmp_path / "b"), *supply]) == 0
    assert "Supply" not in capsys.readouterr().err
    app = yamlio.load(next((tmp_path / "b/applications").glob("*nodewright-customizations.yaml")))
    assert app["spec"]["source"]["repoURL"] == "https://git.example.com/x.git"
    manifest.write_text("just text")
    assert run([*command, "-o", str(tmp_path / "c"), *supply]) == 2
    assert not (tmp_path / "c").exists()


def test_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--node", "-o", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(["snapshot", "--node", "--file", str(tmp_path / "s.yaml")]) == 0
    assert (first["apiVersion"], first["kind"]) == ("muster.dev/v1alpha1", "Snapshot")
    assert yamlio.load(tmp_path / "s.yaml")["fingerprint"] == first["fingerprint"]
    assert run(["snapshot", "--node"]) == 0
    assert "fingerprint of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["recipe"], 2, "Nothing was stated"),
        (["recipe", "--accelerator", "h10"], 2, "did you mean 'h100'"),
        (["recipe", "--accelerator", "h100", "--nodes", "0"], 2, "nodes"),
        (["recipe", "--accelerator", "h100", "--profile", "x"], 2, "name=value"),
        (["recipe", "--accelerator", "h100", "-o", "FOLDER"], 2, "is a folder"),
        (["recipe", "--accelerator", "h100", "-o", "FOLDER/no/where.yaml"], 2, "Cannot write"),
        (["recipe", "--accelerator", "h100", "--catalogue", "x"], 2, "--catalogue"),
        (["recipe", "check", "FOLDER/missing.yaml"], 2, "Cannot read"),
        (["recipe", "check", "FOLDER"], 2, "Cannot read"),
        (["recipe", "check", "EDITED"], 2, "changed after it was locked"),
        (["recipe", "check", "TWICE"], 2, "duplicate key"),
        (["recipe", "check", "BOMB"], 2, "aliases are not accepted"),
        (["recipe", "check", "BINARY"], 2, "not valid YAML"),
        (["recipe", "explain", "nope", "--accelerator", "h100"], 2, "sets nothing"),
        (["recipe", "explain", "x", "--accelerator", "h100", "--recipe", "RECIPE"], 2, "either the file"),
        (["bundle", "EDITED", "--deployer", "helm", "-o", "OUT"], 2, "changed after it was locked"),
        (["bundle", "RECIPE", "--deployer", "flux", "-o", "OUT"], 2, "flux is not rendered yet"),
        (["bundle", "RECIPE", "--deployer", "magic", "-o", "OUT"], 2, "magic"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "FOLDER"], 2, "holds no bundle"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--repo", "https://a/b"], 2, "belong to"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--set", "nfd:password=x"], 2, "secret"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--manifest", "x=/nope"], 2, "Cannot read"),
        (["recipe", "foo"], 2, "No such command 'foo'"),
        (["recipe", "--service", "metal3"], 2, "muster recipe list"),
        (["recipe", "--platform", "kueue"], 2, "not usable yet"),
        (["recipe", "--accelerator", "h100", "-o", "x" * 300], 2, "File name too long"),
        (["recipe", "--accelerator", "h100", "-o", "/dev/full"], 2, "No space left"),
        (["recipe", "check", "/dev/zero"], 2, "larger than"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "."], 2, "no name of a folder"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "x" * 300], 2, "File name too long"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "LINK"], 2, "symbolic link"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--set", "nfd:x=1.30"], 2, "inner quotes"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--set", 'nfd:x="\\ud800"'], 2, "surrogate"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--set", 'nfd:x={"a":1,"a":2}'], 2, "twice"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "OUT", "--set", "gpu-operator:driver=1"], 2, "is a map"),
        (["bundle", "verify", "FOLDER"], 2, "not a bundle"),
        (["bundle", "verify", "FOLDER/missing"], 2, "not a folder"),
        (["snapshot"], 2, "--node"),
    ],
)  # fmt: skip
def test_bad_input(
    args: list[str], code: int, message: str, recipe: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "something").write_text("")
    files = {
        "EDITED": recipe.read_text().replace("580.173.02", "580.173.03"),
        "TWICE": "kind: Recipe\nkind: Recipe\n",
        "BOMB": "a: &a [x]\nb: &b [*a, *a]\n",
        "BINARY": "\x00\x01",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "LINK").symlink_to(folder)
    places = {"FOLDER": str(folder), "RECIPE": str(recipe), "OUT": str(tmp_path / "out")}
    places |= {name: str(tmp_path / name) for name in (*files, "LINK")}
    resolved = [next((a.replace(k, v, 1) for k, v in places.items() if a.startswith(k)), a) for a in args]
    before = sorted(tmp_path.rglob("*"))
    assert run(resolved) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    assert run(["recipe", "--accelerator", "h100", "-o", str(link)]) == 0
    assert link.is_symlink()
    assert lock.read(tmp_path / "real.yaml").criteria == {"accelerator": "h100"}
    assert run(["recipe", "--accelerator", "h100", "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


def test_an_interrupted_write_leaves_the_old_recipe(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe.read_bytes()

    def interrupt(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    assert run(["recipe", "--accelerator", "h100", "-o", str(recipe)]) == 130
    assert recipe.read_bytes() == before
    assert list(recipe.parent.iterdir()) == [recipe]


def test_doubtful_overrides_are_allowed_and_pointed_out(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bundle", str(recipe), "--deployer", "helm", "-o", str(tmp_path / "b")]
    assert run([*command, "--set", "gpu-operator:driver.versio=x", "--set", "nfd:enabled=false"]) == 0
    said = capsys.readouterr().err
    assert "did you mean driver.version?" in said
    assert "nfd is left out, and in the recipe gpu-operator comes after it" in said
