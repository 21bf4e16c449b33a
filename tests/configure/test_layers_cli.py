"""`muster catalogue`, and layers in `muster recipe`: both forms, bad input in one sentence, right exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.cli.group import run
from muster.configure import lock
from muster.configure.layers.opening import read_layer
from tests.configure.layer_cases import write_layer

PATCH = {"components/gpu-operator.yaml": {"values": {"driver": {"version": "580.200.01"}}}}
MINE = {"overlays/mine.yaml": {"name": "mine", "base": "base", "criteria": {"service": "mycloud"}}}


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))


def test_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_layer(tmp_path, files=MINE, criteria={"service": ["mycloud"]})
    assert run(["catalogue", "lint", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("layer acme: fine, 1 recipe touched and resolved, sha256:")
    assert run(["catalogue", "lint", str(folder), "-o", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["recipes"] == ["mine"]
    assert summary["digest"] == read_layer(folder).digest
    assert summary["findings"] == []


def test_lint_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_layer(
        tmp_path, files={"overlays/eks.yaml": {"components": {"nfd": {"values": {"tag": "latest"}}}}}
    )
    assert run(["catalogue", "lint", str(folder)]) == 3
    assert "error: overlays/eks.yaml" in capsys.readouterr().out


def test_lint_over_another_layer(tmp_path: Path) -> None:
    below = write_layer(tmp_path / "below", "below", MINE)
    above = write_layer(tmp_path / "above", "above", {"overlays/mine.yaml": {"notes": "ours"}})
    assert run(["catalogue", "lint", str(above)]) == 2
    assert run(["catalogue", "lint", str(above), "--catalogue", str(below)]) == 0


def test_a_recipe_with_a_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_layer(tmp_path / "layer", files={**MINE, **PATCH})
    file = tmp_path / "recipe.yaml"
    stated = ["--service", "mycloud", "--catalogue", str(folder)]
    assert run(["recipe", *stated, "-o", str(file)]) == 0
    recipe = lock.read(file)
    assert [(entry.name, entry.digest) for entry in recipe.layers] == [("acme", read_layer(folder).digest)]
    capsys.readouterr()
    assert run(["recipe", "explain", "gpu-operator:driver.version", *stated]) == 0
    out = capsys.readouterr().out
    assert "by layer acme: components/gpu-operator.yaml, replacing" in out
    assert run(["recipe", "--service", "mycloud"]) == 2
    assert "Unknown service 'mycloud'" in capsys.readouterr().err


def test_push(oci_registry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_layer(tmp_path / "in", files={**MINE, "README.md": "Ours."}, criteria={"service": ["mycloud"]})
    assert run(["catalogue", "push", str(folder), f"oci://{oci_registry}/acme/catalogue:1"]) == 0
    reference = capsys.readouterr().out.strip()
    assert reference.startswith(f"oci://{oci_registry}/acme/catalogue@sha256:")
    assert run(["recipe", "--service", "mycloud", "--catalogue", reference]) == 0
    assert read_layer(folder).digest in capsys.readouterr().out
    assert run(["recipe", "--service", "mycloud", "--catalogue", f"oci://{oci_registry}/acme/catalogue:1"]) == 2
    assert reference in capsys.readouterr().err
    assert run(["catalogue", "push", str(folder), f"oci://{oci_registry}/acme/catalogue", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"] == reference
    assert run(["catalogue", "pull", f"oci://{oci_registry}/acme/catalogue:1", "-o", str(tmp_path / "out")]) == 0
    assert reference in capsys.readouterr().err
    assert read_layer(tmp_path / "out") == read_layer(folder)


def test_what_must_be_mended_is_not_pushed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_layer(tmp_path, files={"components/nfd.yaml": {"values": {"password": "x"}}})
    assert run(["catalogue", "push", str(folder), "oci://127.0.0.1:1/acme/catalogue"]) == 3
    assert "was not pushed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["catalogue", "lint", "absent"], 2, "absent is no folder"),
        (["catalogue", "push", "absent", "oci://r/a"], 2, "absent is no folder"),
        (["catalogue", "pull", "oci://127.0.0.1:1/a", "-o", "out"], 4, "does not answer"),
        (["catalogue", "push", ".", "r/a"], 2, "no reference to a registry"),
        (["catalogue", "push", "{layer}", "oci://127.0.0.1:1/a"], 4, "does not answer"),
        (["recipe", "--service", "eks", "--catalogue", "absent"], 2, "absent is no folder"),
        (
            ["recipe", "--service", "eks", "--catalogue", f"oci://127.0.0.1:1/a@sha256:{'0' * 64}"],
            4,
            "does not answer",
        ),
    ],
)
def test_bad_input(
    args: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_layer(tmp_path, files=MINE, criteria={"service": ["mycloud"]})
    assert run([arg.format(layer=folder) for arg in args]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_the_example_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[2] / "docs" / "examples" / "catalogue-layer"
    assert run(["catalogue", "lint", str(folder), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    stated = ["--service", "acme", "--accelerator", "h100", "--intent", "training", "--catalogue", str(folder)]
    assert run(["recipe", *stated, "-o", str(tmp_path / "recipe.yaml")]) == 0
    assert lock.read(tmp_path / "recipe.yaml").overlays[-1] == "acme-h100-training"
