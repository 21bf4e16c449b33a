"""A Baseline on the real API server: the real Helm installs, the controller compares, what changes shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure import lock
from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import Deployer
from muster.configure.recipe import ManifestFile
from muster.resources import crd
from muster.resources.base import SYSTEM_NAMESPACE
from tests.bundle.made_up import BARE, component, recipe_with
from tests.contract.server import server_of
from tests.controlplane.plugin import RealCluster

LIMIT_S = 90.0
BASELINES = "/apis/muster.dev/v1alpha1/baselines"


class Bed:
    """One namespace with one release, and a Baseline of its recipe."""

    def __init__(self, cluster: RealCluster, helm: Path, folder: Path) -> None:
        self.admin = server_of("real", cluster.kubeconfig).admin
        self.name = f"settings-{uuid.uuid4().hex[:8]}"
        self.kubeconfig = cluster.kubeconfig
        self._helm = helm
        self._folder = folder
        objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, "data": {"a": "1"}}]
        part = component(
            self.name,
            source=BARE,
            namespace=self.name,
            pre_manifests=(ManifestFile(name="settings.yaml", objects=objects),),
            values={"mode": "calm"},
        )
        recipe = lock.locked(recipe_with(part))
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(lock.write(recipe))
        _, files = bundles.build(recipe, recipe, Deployer.HELM)
        self.bundle = folder / "bundle"
        bundles.write(self.bundle, files)

    def helm(self, *arguments: str) -> None:
        command = [str(self._helm), *arguments, "--namespace", self.name, "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr

    def install(self, *more: str) -> None:
        (chart,) = (self.bundle / "releases").iterdir()
        self.helm("upgrade", "--install", self.name, str(chart), "--create-namespace", *more)

    def apply_baseline(self) -> None:
        command = [
            sys.executable,
            "-m",
            "muster.cli.main",
            "baseline",
            str(self.bundle),
            "--name",
            self.name,
            "--interval",
            "10",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        body: dict[str, Any] = yamlio.loads(done.stdout, "baseline")
        body["spec"]["intervalS"] = 1
        answer = self.admin.create(BASELINES, body)
        assert answer.ok()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"{BASELINES}/{self.name}").body.get("status", {})
        return found

    def until(self, what: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status once it is as it should be; an error that shows it when it never is."""
        end = time.monotonic() + LIMIT_S
        while not true(status := self.status()):
            assert time.monotonic() < end, f"never {what}: {json.dumps(status)[:3000]}"
            time.sleep(0.2)
        return status


@contextmanager
def controller(kubeconfig: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "muster.cli.main", "controller", "run", "--kubeconfig", str(kubeconfig), *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": ""})
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture
def bed(real_cluster: RealCluster, helm: Path, tmp_path: Path) -> Iterator[Bed]:
    found = Bed(real_cluster, helm, tmp_path)
    for manifest in crd.manifests():
        name = manifest["metadata"]["name"]
        found.admin.apply(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", dict(manifest), manager="test"
        )
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    found.admin.apply(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}", system, manager="test")
    yield found
    found.admin.delete(f"{BASELINES}/{found.name}")
    found.admin.delete(f"/api/v1/namespaces/{found.name}")


def classes(status: dict[str, Any]) -> set[str]:
    return {drift["driftClass"] for drift in status.get("drifts", ())}


@pytest.mark.requirement("v2.4/OCR05")
def test_a_cluster_is_held_against_its_recipe_for_ever(bed: Bed) -> None:
    bed.install("--values", str(next((bed.bundle / "releases").iterdir()) / "values.yaml"))
    with controller(bed.kubeconfig, "--baselines"):
        bed.apply_baseline()
        first = bed.until("matches", lambda s: s.get("result") == "passed")
        assert first["counts"].get("failed", 0) == 0
        assert first["recipeDigest"] == lock.read(bed.recipe).digest
        # Untouched: compared again and again, and nothing is found.
        again = bed.until("compared again", lambda s: s["checkedAt"] > first["checkedAt"])
        assert again["result"] == "passed"

        bed.install("--set", "mode=wild")
        drifted = bed.until("drifted", lambda s: "values" in classes(s))
        (drift,) = (d for d in drifted["drifts"] if d["driftClass"] == "values")
        assert (drift["component"], drift["expected"], drift["found"]) == (bed.name, '"calm"', '"wild"')
        assert {c["type"]: c["status"] for c in drifted["conditions"]} == {"Checked": "True", "Matches": "False"}

        bed.helm("uninstall", bed.name)
        gone = bed.until("missing", lambda s: "missing" in classes(s))
        assert gone["result"] == "failed"

        bed.install("--set", "mode=calm")
        bed.until("matches again", lambda s: s.get("result") == "passed")


def test_without_the_flag_no_baseline_is_looked_at(bed: Bed) -> None:
    bed.install("--set", "mode=calm")
    with controller(bed.kubeconfig) as process:
        bed.apply_baseline()
        end = time.monotonic() + LIMIT_S
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/muster-controller"
        while not bed.admin.get(lease).body.get("spec", {}).get("holderIdentity"):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "never led"
            time.sleep(0.2)
        assert bed.status() == {}
