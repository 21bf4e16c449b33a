"""`muster bundle`: every verb, bad input in one sentence with the right exit code, nothing partial left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster import yamlio
from muster.cli.group import run
from muster.configure import lock
from muster.configure.bundles.build import Deployer
from muster.configure.bundles.opened import open_bundle
from tests.configure.cases import recipe_of

NAME = "h100-eks-ubuntu-training-kubeflow"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(lock.write(recipe_of(NAME)))
    return path


@pytest.mark.parametrize("deployer", list(Deployer))
def test_render_and_verify(
    deployer: Deployer, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    command = ["bundle", str(recipe), "--deployer", deployer.value, "-o", str(target), "--allow-unknown"]
    assert run([*command, "--set", "nfd:a=1"]) == 0
    said = capsys.readouterr().err
    assert "releases for " + deployer.value in said
    assert run(["bundle", "verify", str(target)]) == 0
    assert yamlio.load(target / "bundle.yaml")["set"] == ["nfd:a=1"]
    assert run(["bundle", "verify", str(target), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert f"for {deployer.value}, {shown['files']} files." in said
    (target / "recipe.yaml").write_text("x")
    assert run(["bundle", "verify", str(target)]) == 3
    assert "recipe.yaml was changed" in capsys.readouterr().err


def test_every_flag_of_placement(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    flags = {
        "--system-node-selector": "role=system",
        "--system-node-toleration": "role=system:NoSchedule",
        "--accelerated-node-selector": "role=gpu",
        "--accelerated-node-toleration": "nvidia.com/gpu:NoSchedule",
        "--workload-selector": "job=train",
        "--workload-gate": "skyhook.nvidia.com=runtime-required:NoSchedule",
        "--storage-class": "gp3",
    }
    command = ["bundle", "render", str(recipe), "--deployer", "helm", "-o", str(target)]
    assert run([*command, *(part for flag in flags.items() for part in flag)]) == 0
    capsys.readouterr()
    opened = open_bundle(target)
    values = {c.name: c.values for c in opened.recipe.components}
    assert values["gpu-operator"]["daemonsets"]["nodeSelector"] == {"role": "gpu"}
    assert values["gpu-operator"]["operator"]["nodeSelector"] == {"role": "system"}
    assert values["nodewright-customizations"]["workloadSelector"] == {"job": "train"}
    claim = values["kube-prometheus-stack"]["prometheus"]["prometheusSpec"]["storageSpec"]["volumeClaimTemplate"]
    assert claim["spec"]["storageClassName"] == "gp3"
    assert yamlio.load(target / "bundle.yaml")["placement"]["storageClass"] == "gp3"
    assert opened.locked == recipe_of(NAME)


def test_set_file_and_manifest(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, manifest = tmp_path / "values.yaml", tmp_path / "m.yaml"
    values.write_text("driver:\n  version: '999.1'\n  gone: null\n")
    manifest.write_text(CONFIG_MAP)
    named = next(f"{c.name}/{f.name}" for c in recipe_of(NAME).components for f in c.post_manifests)
    target = tmp_path / "out"
    command = [
        "bundle",
        str(recipe),
        "--deployer",
        "argocd",
        "--repo",
        "https://git.example.com/x.git",
        "-o",
        str(target),
    ]
    flags = ["--set-file", f"gpuoperator={values}", "--manifest", f"{named}={manifest}", "--allow-unknown"]
    assert run([*command, *flags]) == 0
    assert "repository is not set" not in capsys.readouterr().err
    opened = open_bundle(target)
    found = opened.recipe.component("gpu-operator")
    assert found is not None
    assert found.values["driver"]["version"] == "999.1"
    assert found.values["driver"]["gone"] is None
    assert (target / "supplied" / named).is_file()


def test_diff(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert run(["bundle", str(recipe), "--deployer", "helm", "-o", str(old)]) == 0
    more = ["--set", "gpu-operator:driver.version=999.1", "--set", "nfd:enabled=false", "--allow-unknown"]
    assert run(["bundle", str(recipe), "--deployer", "helm", "-o", str(new), *more]) == 0
    capsys.readouterr()
    assert run(["bundle", "diff", str(old), str(old)]) == 0
    assert "components without a change" in capsys.readouterr().out
    assert run(["bundle", "diff", str(old), str(new)]) == 3
    shown = capsys.readouterr()
    assert "driver is replaced on every GPU node" in shown.out
    assert "not safe as it is" in shown.err
    assert run(["bundle", "diff", str(recipe), str(new), "-o", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    rows = {row["component"]: row for row in found["components"]}
    assert rows["gpu-operator"]["verdict"] == "needs-care"
    assert "after" not in rows["nfd"]
    assert run(["bundle", "diff", str(old), str(new), "-o", "yaml"]) == 3
    assert yamlio.loads(capsys.readouterr().out, "out")["components"] == found["components"]
    (new / "README.md").write_text("x")
    assert run(["bundle", "diff", str(old), str(new)]) == 3
    assert "README.md was changed" in capsys.readouterr().err


HELM = ["--deployer", "helm", "-o", "OUT"]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["bundle", "EDITED", *HELM], 2, "changed after it was locked"),
        (["bundle", "CYCLE", *HELM], 2, "form a cycle: gpu-operator -> nfd -> gpu-operator"),
        (["bundle", "DANGLING", *HELM], 2, "which is not part of the recipe"),
        (["bundle", "TWICE", *HELM], 2, "duplicate key"),
        (["bundle", "BOMB", *HELM], 2, "aliases are not accepted"),
        (["bundle", "BINARY", *HELM], 2, "not valid YAML"),
        (["bundle", "/dev/zero", *HELM], 2, "larger than"),
        (["bundle", "FOLDER", *HELM], 2, "Cannot read"),
        (["bundle", "RECIPE", "--deployer", "magic", "-o", "OUT"], 2, "magic"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "FOLDER"], 2, "holds no bundle"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "."], 2, "no name of a folder"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "x" * 300], 2, "File name too long"),
        (["bundle", "RECIPE", "--deployer", "helm", "-o", "LINK"], 2, "symbolic link"),
        (["bundle", "RECIPE", *HELM, "--repo", "https://a/b"], 2, "belong to"),
        (["bundle", "RECIPE", "--deployer", "helmfile", "-o", "OUT", "--revision", "v1"], 2, "belong to"),
        (["bundle", "RECIPE", "--deployer", "flux", "-o", "OUT", "--repo", "file:///etc"], 2, "--repo"),
        (["bundle", "RECIPE", "--deployer", "argocd", "-o", "OUT", "--repo", "oci://r.example/x"], 2, "revision"),
        (["bundle", "RECIPE", *HELM, "--set", "nfd:password=x"], 2, "secret"),
        (["bundle", "RECIPE", *HELM, "--set", "nfd:x=1.30"], 2, "inner quotes"),
        (["bundle", "RECIPE", *HELM, "--set", 'nfd:x="\\ud800"'], 2, "surrogate"),
        (["bundle", "RECIPE", *HELM, "--set", 'nfd:x={"a":1,"a":2}'], 2, "twice"),
        (["bundle", "RECIPE", *HELM, "--set", "gpu-operator:driver=1"], 2, "is a map"),
        (["bundle", "RECIPE", *HELM, "--set", "nope:x=1"], 2, "no component 'nope'"),
        (["bundle", "RECIPE", *HELM, "--set", "gpu-operator:driver.versio=1.2.3"], 2, "did you mean"),
        (["bundle", "RECIPE", *HELM, "--set", "gpu-operator:nfd.enabled=true"], 2, "--allow-incoherent"),
        (["bundle", "RECIPE", *HELM, "--set-file", "nfd"], 2, "component=FILE"),
        (["bundle", "RECIPE", *HELM, "--set-file", "nfd=/nope"], 2, "Cannot read"),
        (["bundle", "RECIPE", *HELM, "--set-file", "nfd=BOMB"], 2, "aliases are not accepted"),
        (["bundle", "RECIPE", *HELM, "--set-file", "nfd=TWICE"], 2, "duplicate key"),
        (["bundle", "RECIPE", *HELM, "--set-file", "nfd=VALUES", "--set-file", "nfd=VALUES"], 2, "given twice"),
        (["bundle", "RECIPE", *HELM, "--manifest", "x=/nope"], 2, "Cannot read"),
        (["bundle", "RECIPE", *HELM, "--manifest", "x=VALUES"], 2, "no Kubernetes object"),
        (["bundle", "RECIPE", *HELM, "--manifest", "x=/dev/zero"], 2, "larger than"),
        (["bundle", "RECIPE", *HELM, "--system-node-selector", "x"], 2, "--system-node-selector"),
        (["bundle", "RECIPE", *HELM, "--accelerated-node-toleration", "x:Nope"], 2, "is no toleration"),
        (["bundle", "RECIPE", *HELM, "--workload-gate", "x"], 2, "is no taint"),
        (["bundle", "RECIPE", *HELM, "--storage-class", "A b"], 2, "storage class"),
        (["bundle", "RECIPE", *HELM, "--shared-storage-class", "nfs"], 2, "reaches no component"),
        (["bundle", "verify", "FOLDER"], 2, "not a bundle"),
        (["bundle", "verify", "FOLDER/missing"], 2, "not a folder"),
        (["bundle", "verify", "FOLDER", "--certificate-identity", "x"], 2, "belong together"),
        (["bundle", "verify", "FOLDER", "--trusted-root", "x"], 2, "--certificate-identity"),
        (["bundle", "diff", "FOLDER", "RECIPE"], 2, "not a bundle"),
        (["bundle", "diff", "RECIPE", "EDITED"], 2, "changed after it was locked"),
        (["bundle", "diff", "RECIPE", "FOLDER/missing"], 2, "Cannot read"),
        (["bundle", "push", "FOLDER", "oci://127.0.0.1:1/x"], 2, "not a bundle"),
        (["bundle", "pull", "http://x", "-o", "OUT"], 2, "oci://"),
        (["bundle", "pull", "oci://127.0.0.1:1/x:v1", "-o", "OUT"], 4, "127.0.0.1:1"),
        (["bundle", "pull", "oci://127.0.0.1:1/x:v1", "-o", "FOLDER"], 2, "holds no bundle"),
        (["bundle", "sign", "FOLDER"], 2, "not a bundle"),
        (["bundle", "foo", "-o", "OUT"], 2, "--deployer helm, argocd"),
    ],
)  # fmt: skip
def test_bad_input(
    args: list[str], code: int, message: str, recipe: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "something").write_text("")
    files = {
        "EDITED": recipe.read_text().replace("driver:", "drivers:", 1),
        "CYCLE": relocked(recipe, {"nfd": ["gpu-operator"], "gpu-operator": ["nfd"]}),
        "DANGLING": relocked(recipe, {"nfd": ["gone"]}),
        "TWICE": "kind: Recipe\nkind: Recipe\n",
        "BOMB": "a: &a [x]\nb: &b [*a, *a]\n",
        "BINARY": "\x00\x01",
        "VALUES": "a: 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "LINK").symlink_to(folder)
    places = {"FOLDER": str(folder), "RECIPE": str(recipe), "OUT": str(tmp_path / "out")}
    places |= {name: str(tmp_path / name) for name in (*files, "LINK")}

    def resolved(argument: str) -> str:
        head, equals, tail = argument.partition("=")
        if tail in places:
            return f"{head}{equals}{places[tail]}"
        return next((argument.replace(k, v, 1) for k, v in places.items() if argument.startswith(k)), argument)

    before = sorted(tmp_path.rglob("*"))
    assert run([resolved(a) for a in args]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert sorted(tmp_path.rglob("*")) == before


def relocked(recipe: Path, edges: dict[str, list[str]]) -> str:
    """A recipe with other edges and a digest that fits, as somebody would make it who wants to get past the lock."""
    content = yamlio.load(recipe)
    for entry in content["components"]:
        if entry["name"] in edges:
            entry["dependsOn"] = edges[entry["name"]]
            entry.pop("inferred", None)
    content["digest"] = lock.digest_of(content)
    return yamlio.dumps(content)


def test_one_byte_in_any_file_is_noticed_by_every_verb(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert run(["bundle", str(recipe), "--deployer", "helm", "-o", str(target)]) == 0
    values = next(target.rglob("values.yaml"))
    content = bytearray(values.read_bytes())
    content[0] ^= 1
    values.write_bytes(bytes(content))
    for args in (
        ["bundle", "verify", str(target)],
        ["bundle", "diff", str(recipe), str(target)],
        ["bundle", "push", str(target), "oci://127.0.0.1:1/x:v1"],
        ["bundle", "sign", str(target)],
    ):
        capsys.readouterr()
        assert run(args) == 3
        said = capsys.readouterr().err
        assert "values.yaml was changed" in said
        assert said.count("\n") == 1
    assert run(["bundle", str(recipe), "--deployer", "helm", "-o", str(target), "--force"]) == 2
    assert "changes of its own" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_doubtful_overrides_are_allowed_and_pointed_out(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bundle", str(recipe), "--deployer", "helm", "-o", str(tmp_path / "b"), "--allow-unknown"]
    assert run([*command, "--set", "gpu-operator:driver.versio=x", "--set", "nfd:enabled=false"]) == 0
    said = capsys.readouterr().err
    assert "did you mean driver.version?" in said
    assert "nfd is left out, and in the recipe gpu-operator comes after it" in said


def test_what_breaks_a_rule_can_be_forced(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bundle", str(recipe), "--deployer", "helm", "-o", str(tmp_path / "b"), "--allow-incoherent"]
    assert run([*command, "--set", "gpu-operator:nfd.enabled=true"]) == 0
    assert "two copies of Node Feature Discovery" in capsys.readouterr().err
