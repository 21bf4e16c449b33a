"""The verbs: both forms of each, bad input in one sentence with the right exit code, nothing partial left."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.configure import lock
from muster.configure.snapshot.file import content_of
from muster.inventory.record import NodeSnapshot, UnknownReading
from muster.resources.fingerprint import Reading, ReadingClass, class_digest, fingerprint
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


def test_the_recipe_as_json_and_yaml(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", *ARGS, "-o", "yaml"]) == 0
    assert capsys.readouterr().out == recipe.read_text()
    assert run(["recipe", *ARGS, "-o", "json"]) == 0
    printed = capsys.readouterr().out
    assert run(["recipe", *ARGS, "-o", str(tmp_path / "recipe.json")]) == 0
    assert (tmp_path / "recipe.json").read_text() == printed
    assert json.loads(printed)["digest"] == lock.read(recipe).digest
    assert lock.read(tmp_path / "recipe.json") == lock.read(recipe)


def test_explain_edges(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "explain", "kube-prometheus-stack.dependsOn", *ARGS, "-o", "json"]) == 0
    entries = {entry["path"].rpartition(".")[2]: entry["value"] for entry in json.loads(capsys.readouterr().out)}
    assert entries == {"prometheus-operator-crds": "declared", "aws-ebs-csi-driver": "inferred"}


POOLS = [
    "--service", "eks", "--intent", "training",
    "--pool", "train:accelerator=h100,os=ubuntu", "--pool", "small:accelerator=rtx-pro-6000,os=ubuntu",
]  # fmt: skip
SETTLE = ["--settle", "gpu-operator:gdrcopy.enabled=@train"]


def test_pools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pools.yaml"
    assert run(["recipe", *POOLS, "-o", str(path)]) == 2
    assert "gpu-operator:gdrcopy.enabled is not set for pool small and true for pool train" in capsys.readouterr().err
    assert not path.exists()
    assert run(["recipe", *POOLS, *SETTLE, "-o", str(path)]) == 0
    assert [pool.name for pool in lock.read(path).pools] == ["small", "train"]
    assert run(["recipe", "check", str(path), "-o", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["pools"]) == ["small", "train"]
    assert run(["recipe", "explain", "gpu-operator:gdrcopy.enabled", "--recipe", str(path)]) == 0
    assert "by --settle gpu-operator:gdrcopy.enabled" in capsys.readouterr().out


def test_diff_with_an_exit_code(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    assert run(["recipe", *ARGS, "--nodes", "8", "-o", str(other)]) == 0
    assert run(["recipe", "diff", str(recipe), str(other), "--exit-code"]) == 3
    assert run(["recipe", "diff", str(recipe), str(recipe), "--exit-code"]) == 0
    assert "The recipes are equal." in capsys.readouterr().out


def node_snapshot(path: Path, unknown: tuple[UnknownReading, ...] = (), **values: str) -> None:
    named = {name.replace("_", ".", 1): value for name, value in values.items()}
    readings = tuple(
        Reading(name=name, value=value, reading_class=ReadingClass.STACK) for name, value in sorted(named.items())
    )
    snapshot = NodeSnapshot(
        node="gpu-1",
        taken_at=datetime(2026, 9, 1, tzinfo=UTC),
        fingerprint=fingerprint(readings).digest,
        digests={"stack": class_digest(readings, [ReadingClass.STACK])},
        readings=readings,
        unknown=unknown,
    )
    path.write_text(yamlio.dumps(content_of(snapshot)))


def test_check_against_a_snapshot(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"

    def answers() -> tuple[int, dict[str, str]]:
        code = run(["recipe", "check", str(recipe), "--snapshot", str(path), "-o", "json"])
        found = json.loads(capsys.readouterr().out)["constraints"]
        return code, {entry["constraint"]: entry["answer"] for entry in found}

    fits = {"kernel.version": "passed", "os.id": "passed", "os.version_id": "passed"}
    node_snapshot(path, os_id="ubuntu", os_version_id="24.04", kernel_version="6.8.0-1028-aws")
    assert answers() == (0, fits)
    node_snapshot(path, os_id="ubuntu", os_version_id="24.04", kernel_version="5.14.0-503.el9")
    assert answers() == (3, fits | {"kernel.version": "failed"})
    hidden = UnknownReading(name="kernel.version", reason="permission denied")
    node_snapshot(path, (hidden,), os_id="ubuntu", os_version_id="24.04")
    assert answers() == (3, fits | {"kernel.version": "unknown"})
    assert run(["recipe", "check", str(recipe), "--snapshot", str(path)]) == 3
    said = capsys.readouterr().out
    assert "the file is fine, 1 of 3 constraints not satisfied" in said
    assert "unknown node gpu-1: kernel.version >= 6.8 (permission denied)" in said
    path.write_text("kind: Other\n")
    assert run(["recipe", "check", str(recipe), "--snapshot", str(path)]) == 2
    assert "is no snapshot of muster.dev/v1alpha1; make one with 'muster snapshot -o FILE'" in capsys.readouterr().err


def test_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = tmp_path / "acme"
    (layer / "components").mkdir(parents=True)
    (layer / "layer.yaml").write_text(
        "apiVersion: muster.dev/v1alpha1\nkind: CatalogueLayer\nname: acme\ndescription: test\n"
    )
    (layer / "components" / "gpu-operator.yaml").write_text("values: {driver: {version: 580.200.01}}\n")
    file = tmp_path / "r.yaml"
    assert run(["recipe", *ARGS, "--catalogue", str(layer), "-o", str(file)]) == 0
    assert [entry.name for entry in lock.read(file).layers] == ["acme"]
    command = ["recipe", "explain", "gpu-operator:driver.version", "--recipe", str(file)]
    assert run([*command, "--catalogue", str(layer)]) == 0
    said = capsys.readouterr().out
    assert 'set to "580.173.02" by components/gpu-operator.yaml' in said
    assert 'by layer acme: components/gpu-operator.yaml, replacing "580.173.02"' in said
    assert run(command) == 2
    assert "resolved with the layer acme (sha256:" in capsys.readouterr().err
    assert run(["recipe", "list", "--catalogue", str(layer), "-o", "json"]) == 0


def test_a_value_that_the_chart_does_not_know_is_refused(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yamlio.load(recipe)
    operator = next(c for c in content["components"] if c["name"] == "gpu-operator")
    operator["values"]["driver"]["versoin"] = "1"
    content["digest"] = lock.digest_of(content)
    path = tmp_path / "typo.yaml"
    path.write_text(yamlio.dumps(content))
    assert run(["recipe", "check", str(path)]) == 2
    said = capsys.readouterr().err
    assert "has no value gpu-operator:driver.versoin" in said
    assert "driver.version" in said


def test_edges_that_inference_does_not_say_are_refused(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yamlio.load(recipe)
    stack = next(c for c in content["components"] if c["name"] == "kube-prometheus-stack")
    stack["dependsOn"].remove("aws-ebs-csi-driver")
    del stack["inferred"]
    content["digest"] = lock.digest_of(content)
    path = tmp_path / "forged.yaml"
    path.write_text(yamlio.dumps(content))
    assert run(["recipe", "check", str(path)]) == 2
    assert (
        "'kube-prometheus-stack': its inferred edges are none and should be aws-ebs-csi-driver"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["recipe"], 2, "Nothing was stated"),
        (["recipe", "--accelerator", "h10"], 2, "did you mean 'h100'"),
        (["recipe", "--accelerator", "h100", "--nodes", "0"], 2, "nodes"),
        (["recipe", "--accelerator", "h100", "--profile", "x"], 2, "name=value"),
        (["recipe", "--accelerator", "h100", "-o", "FOLDER"], 2, "is a folder"),
        (["recipe", "--accelerator", "h100", "-o", "FOLDER/no/where.yaml"], 2, "Cannot write"),
        (["recipe", "--accelerator", "h100", "--catalogue", "FOLDER/missing"], 2, "missing"),
        (["recipe", "--pool", "a"], 2, "malformed"),
        (["recipe", "--pool", "a:accelerator=h100", "--pool", "b:accelerator=h10"], 2, "Pool 'b'"),
        (["recipe", "--accelerator", "h100", "--settle", "a:b=c"], 2, "belong to pools"),
        (["recipe", "check", "RECIPE", "--snapshot", "FOLDER/missing"], 2, "Cannot read"),
        (["recipe", "check", "RECIPE", "--snapshot", "BOMB"], 2, "aliases are not accepted"),
        (["recipe", "check", "FOLDER/missing.yaml"], 2, "Cannot read"),
        (["recipe", "check", "FOLDER"], 2, "Cannot read"),
        (["recipe", "check", "EDITED"], 2, "changed after it was locked"),
        (["recipe", "check", "TWICE"], 2, "duplicate key"),
        (["recipe", "check", "BOMB"], 2, "aliases are not accepted"),
        (["recipe", "check", "BINARY"], 2, "not valid YAML"),
        (["recipe", "explain", "nope", "--accelerator", "h100"], 2, "sets nothing"),
        (["recipe", "explain", "x", "--accelerator", "h100", "--recipe", "RECIPE"], 2, "either the file"),
        (["recipe", "foo"], 2, "No such command 'foo'"),
        (["recipe", "--service", "metal3"], 2, "muster recipe list"),
        (["recipe", "--platform", "kueue"], 2, "state also service and accelerator and intent"),
        (["recipe", "--accelerator", "h100", "-o", "x" * 300], 2, "File name too long"),
        (["recipe", "--accelerator", "h100", "-o", "/dev/full"], 2, "No space left"),
        (["recipe", "check", "/dev/zero"], 2, "larger than"),
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


def forged(path: Path, old: str, new: str) -> None:
    """Change the content at `path` and give it the right digest: anybody can."""
    text = path.read_text()
    assert old in text
    content = yamlio.loads(text.replace(old, new), "test")
    content["digest"] = lock.digest_of(content)
    path.write_text(yamlio.dumps(content))


def test_nothing_in_a_recipe_reaches_the_terminal_as_a_command(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(recipe.read_text())
    forged(other, "gdrcopy:", '"\\e]0;gdr\\a\\ncopy\\x9b2J":')
    assert run(["recipe", "check", str(other)]) == 2
    said = capsys.readouterr().err
    assert "gdr" in said
    assert said.count("\n") == 1
    assert said.removesuffix("\n").isprintable()
    assert run(["recipe", "diff", str(recipe), str(other)]) == 0
    changes = capsys.readouterr().out
    assert "gdr" in changes
    assert all(line.isprintable() for line in changes.splitlines())


def test_a_long_name_does_not_flood_the_terminal(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged(recipe, "- nodewright-customizations\n", f"- {'a' * 100_000}\n")
    assert run(["recipe", "check", str(recipe)]) == 2
    said = capsys.readouterr().err
    assert "not part of the recipe" in said
    assert len(said) < 1000
