"""The scripts of bundles with stand-ins for helm, kubectl and sleep: order, retries, what is asked of whom."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, Plan, plan
from muster.configure.recipe import ManifestFile
from muster.configure.render import helm as renderer
from muster.configure.render import helmfile
from tests.bundle.shell import written
from tests.bundle.stand_in import small_plan
from tests.configure.cases import NAMES, recipe_of

SCRIPTS = ("deploy.sh", "uninstall.sh", "preflight.sh", "gate.sh", "crds.sh", "sync.sh", "keep.sh")
FAKE = """#!/bin/bash
program=$(basename "$0")
printf '%s\\n' "$program $*" >>"$LOG"
cat >/dev/null <&0 || true
case "$program $*" in
  "helm version "*) printf '%s\\n' "${HELM_VERSION:-v4.3.2}" ;;
  "helm history "*) [[ -f "$STATE/$2" ]] || exit 1
    printf '[{"revision":1,"status":"deployed","description":"%s"}]' "$(cat "$STATE/$2")" ;;
  "helm status "*) [[ -f "$STATE/$2" ]] || exit 1 ;;
  "helm uninstall "*) rm "$STATE/$2" ;;
  "helm upgrade "*)
    [[ "$3" != "$BROKEN" ]] || exit 1
    while [[ $# -gt 1 ]]; do [[ $1 != --description ]] || d=$2; [[ $1 != --install ]] || n=$2; shift; done
    printf '%s' "$d" >"$STATE/$n" ;;
  "kubectl get secret "*) printf 'admin-user,admin-password,user,password,' ;;
  "kubectl get deployments "*) printf 'deployment.apps/one\\n' ;;
esac
"""


class Stage:
    """A bundle, and programs that only write down what they are asked."""

    def __init__(self, folder: Path, planned: Plan) -> None:
        self.bundle = written(folder / "bundle", renderer.render(planned))
        self.tools, self.state, self.log = folder / "bin", folder / "state", folder / "log"
        self.tools.mkdir()
        self.state.mkdir()
        for name in ("helm", "kubectl", "sleep"):
            (self.tools / name).write_text(FAKE)
            (self.tools / name).chmod(0o755)

    def run(self, script: str, *arguments: str, broken: str = "", helm: str = "v4.3.2") -> tuple[int, str]:
        self.log.write_text("")
        env = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "LOG": str(self.log),
            "STATE": str(self.state),
            "BROKEN": broken,
            "HELM_VERSION": helm,
        }
        done = subprocess.run(
            [str(self.bundle / script), *arguments], env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def asked(self, start: str, word: int) -> list[str]:
        return [line.split()[word] for line in self.log.read_text().splitlines() if line.startswith(start)]

    @property
    def upgraded(self) -> list[str]:
        return self.asked("helm upgrade ", 3)


@pytest.mark.full
@pytest.mark.parametrize("name", ["h100-any", "h100-eks-ubuntu-training-slurm"])
def test_the_scripts_stop_resume_and_remove(name: str, tmp_path: Path) -> None:
    planned = plan(recipe_of(name))
    if planned.missing:
        planned = msgspec.structs.replace(planned, releases=tuple(r for r in planned.releases if not r.missing))
    stage = Stage(tmp_path, planned)
    order = [r.name for r in planned.releases]
    at = len(order) // 2
    code, output = stage.run("deploy.sh", broken=order[at])
    assert code == 1, output
    assert f"{order[at]} failed 5 times" in output
    assert stage.upgraded == order[:at] + [order[at]] * 5
    assert [s for s in stage.asked("sleep ", 1) if s != "30"] == ["5", "20", "45", "80"]
    code, output = stage.run("deploy.sh")
    assert (code, stage.upgraded) == (0, order[at:]), output
    assert stage.run("deploy.sh")[0] == 0
    assert stage.upgraded == []
    assert stage.run("deploy.sh", "--all")[0] == 0
    assert stage.upgraded == order
    code, output = stage.run("uninstall.sh")
    assert code == 0, output
    kept = [r.name for r in planned.releases if r.crds is CrdPolicy.KEEP]
    assert stage.asked("helm uninstall ", 2) == [n for n in reversed(order) if n not in kept]
    assert output.count("kept, it holds shared CRDs") == len(kept)
    assert stage.run("uninstall.sh", "--delete-crds")[0] == 0
    assert stage.asked("helm uninstall ", 2) == list(reversed(kept))
    (stage.bundle / "releases.tsv").write_text("x")
    code, output = stage.run("deploy.sh")
    assert (code, stage.upgraded) == (1, [])
    assert "files of the bundle were changed" in output


@pytest.mark.full
def test_each_release_gets_its_own_timeout_and_waits(tmp_path: Path) -> None:
    whole = small_plan("https://charts.example.com", "n")
    planned = msgspec.structs.replace(
        whole, releases=tuple(msgspec.structs.replace(r, timeout_s=100 + at) for at, r in enumerate(whole.releases))
    )
    stage = Stage(tmp_path, planned)
    code, output = stage.run("deploy.sh")
    assert code == 0, output
    lines = [line for line in stage.log.read_text().splitlines() if line.startswith("helm upgrade")]
    for at, line in enumerate(lines):
        assert f"--timeout {100 + at}s --wait --wait-for-jobs --server-side=true --force-conflicts" in line
    assert len(lines) == len(planned.releases)
    # Helm 3 has no such flags.
    assert stage.run("deploy.sh", "--all", helm="v3.19.0")[0] == 0
    assert "--force-conflicts" not in "".join(
        line for line in stage.log.read_text().splitlines() if line.startswith("helm upgrade")
    )


@pytest.mark.full
def test_a_claim_is_not_waited_for(tmp_path: Path) -> None:
    """It may be bound only by a pod of a later release, so waiting would never end."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "n"}}
    whole = small_plan("https://charts.example.com", "n")
    claims = msgspec.structs.replace(whole.releases[-1], manifests=(ManifestFile(name="c.yaml", objects=[claim]),))
    stage = Stage(tmp_path, msgspec.structs.replace(whole, releases=(*whole.releases[:-1], claims)))
    assert stage.run("deploy.sh")[0] == 0
    lines = [line for line in stage.log.read_text().splitlines() if line.startswith("helm upgrade")]
    assert ["--wait" in line.split() for line in lines] == [True, True, True, True, False]


@pytest.mark.full
def test_the_gate_stands_behind_its_release(tmp_path: Path) -> None:
    whole = small_plan("https://charts.example.com", "n")
    gated = msgspec.structs.replace(whole.releases[0], gate=Gate.DEPLOYMENTS_AVAILABLE)
    stage = Stage(tmp_path, msgspec.structs.replace(whole, releases=(gated, *whole.releases[1:])))
    assert stage.run("deploy.sh")[0] == 0
    told = [
        " ".join(line.split()[:3])
        for line in stage.log.read_text().splitlines()
        if line.startswith(("helm upgrade", "kubectl wait", "sleep"))
    ]
    # All available, a pause, the same ones still available; only then the next release.
    assert told[:4] == ["helm upgrade --install", "kubectl wait deployment", "sleep 20", "kubectl wait deployment"]
    assert told[4:] == ["helm upgrade --install"] * 4


@pytest.mark.full
def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, small_plan("https://charts.example.com", "n"))
    code, output = stage.run("deploy.sh", "--dry-run")
    assert code == 0, output
    assert output.count("would be deployed in n") == 5
    changing = ("helm upgrade", "helm uninstall", "kubectl apply", "kubectl delete", "helm show")
    assert not [line for line in stage.log.read_text().splitlines() if line.startswith(changing)]


@pytest.mark.full
def test_missing_manifests_are_named_before_anything_happens(tmp_path: Path) -> None:
    whole = small_plan("https://charts.example.com", "n")
    unknown = msgspec.structs.replace(whole.releases[-1], manifests=(ManifestFile(name="tuning.yaml"),))
    planned = msgspec.structs.replace(whole, releases=(*whole.releases[:-1], unknown))
    stage = Stage(tmp_path, planned)
    code, output = stage.run("deploy.sh")
    assert code == 1
    assert planned.missing == ("objects/tuning.yaml",)
    assert "objects/tuning.yaml" in output
    assert stage.upgraded == []


@pytest.mark.full
@pytest.mark.parametrize("script", ["deploy.sh", "uninstall.sh"])
def test_an_unknown_argument_is_refused(script: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, small_plan("https://charts.example.com", "n"))
    code, output = stage.run(script, "--al")
    assert (code, output) == (1, f"{script}: unknown argument '--al'; see {script} --help\n")
    assert stage.log.read_text() == ""
    code, output = stage.run(script, "--help")
    assert code == 0
    assert output.startswith(f"Usage: {script}")


@pytest.mark.full
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_are_valid_bash(script: str, tmp_path: Path) -> None:
    path = tmp_path / script
    path.write_text(renderer.script(script))
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    if linter := shutil.which("shellcheck"):
        linted = subprocess.run([linter, str(path)], capture_output=True, text=True, check=False)
        assert linted.returncode == 0, linted.stdout


def scripts_of(bundles: Iterable[dict[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for files in bundles:
        for name, text in files.items():
            if name.endswith(".sh"):
                found.setdefault(name, set()).add(text)
    return found


def test_nothing_from_a_recipe_reaches_a_script() -> None:
    """Scripts are the same in every bundle."""
    planned = [plan(recipe_of(name)) for name in NAMES[::9]]
    for render in (renderer.render, helmfile.render):
        found = scripts_of(render(p) for p in planned)
        assert set(found) <= set(SCRIPTS)
        assert all(len(texts) == 1 for texts in found.values())


def test_no_field_of_the_table_is_empty_or_splits() -> None:
    for name in NAMES:
        for line in renderer.render(plan(recipe_of(name)))["releases.tsv"].splitlines():
            fields = line.split("\t")
            assert len(fields) == len(renderer.COLUMNS)
            assert all(fields)
