"""The chart's role for Baselines on a real API server: enough for a comparison of everything, and nothing unused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure import lock
from muster.configure.catalogue import load
from muster.configure.recipe import Recipe
from muster.controller.baseline_rights import kinds
from tests.bundle.stand_in import chart
from tests.contract.server import server_of
from tests.controlplane import audit
from tests.controlplane.audit import Right
from tests.controlplane.binaries import BinariesMissingError, find
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.plugin import ABSENT
from tests.live.bed import component, recipe_of, workload
from tests.real.rights import CONTROLLER, Rights

pytestmark = [pytest.mark.real_api, pytest.mark.timeout(600)]

BASELINES = "/apis/muster.dev/v1alpha1/baselines"
SPACE = "everything"
LIMIT_S = 120.0
DEPLOYERS = (
    "applications.argoproj.io",
    "helmreleases.helm.toolkit.fluxcd.io",
    "helmrepositories.source.toolkit.fluxcd.io",
)
CUSTOM = ("nvidia.com", "clusterpolicies", "ClusterPolicy")
ANYTHING = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One of our own: the chart's admission policies hold for the whole cluster."""
    try:
        made = ControlPlane(find(), tmp_path / "control-plane")
    except BinariesMissingError as error:
        pytest.skip(f"{ABSENT}{error}")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def definition() -> dict[str, Any]:
    group, plural, kind = CUSTOM
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    version = {"name": "v1", "served": True, "storage": True, "schema": ANYTHING}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def webhook(kind: str) -> dict[str, Any]:
    client = {"service": {"name": "hook", "namespace": SPACE}}
    rule = {"apiGroups": ["x.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}
    hook = {
        "name": "a.hook.example",
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    group = "admissionregistration.k8s.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "hook"}, "webhooks": [hook]}


def objects() -> list[dict[str, Any]]:
    """One object of each kind that a comparison looks at."""
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    service = {"group": "x.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    found = [
        *(workload(kind, kind.lower(), SPACE) for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job")),
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim_spec},
        webhook("ValidatingWebhookConfiguration"),
        webhook("MutatingWebhookConfiguration"),
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1.x.example"},
            "spec": {**service, "service": {"name": "hook", "namespace": SPACE}, "insecureSkipTLSVerify": True},
        },
        {"apiVersion": f"{CUSTOM[0]}/v1", "kind": CUSTOM[2], "metadata": {"name": "policy"}, "spec": {}},
    ]
    for each in found:
        each["metadata"].pop("namespace", None)
    return found


class Bed:
    def __init__(self, plane: ControlPlane, helm: Path, crds: list[Path], folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.rights = Rights(plane)
        self.rights.install({"baselines": {"enabled": True}})
        self.admin = server_of("real", plane.kubeconfig_file()).admin
        self._define(crds)
        self.recipe: Recipe = recipe_of(component("everything", SPACE, version="1.0.0"))
        archive = folder / "everything-1.0.0.tgz"
        archive.write_bytes(
            chart(
                "everything",
                "1.0.0",
                {"templates/all.yaml": yamlio.dumps_all(objects()), "crds/policies.yaml": yamlio.dumps(definition())},
            )
        )
        command = [str(helm), "install", "everything", str(archive), "--namespace", SPACE, "--create-namespace"]
        done = subprocess.run(
            [*command, "--kubeconfig", str(plane.kubeconfig_file())],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _define(self, files: list[Path]) -> None:
        for file in files:
            for crd in yamlio.loads_all(file.read_bytes(), str(file)):
                if isinstance(crd, dict) and crd["metadata"]["name"] in DEPLOYERS:
                    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
                    self.admin.apply(path, crd, manager="test")
        body = {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "elsewhere"},
            "spec": {
                "interval": "1h",
                "chart": {"spec": {"chart": "x", "sourceRef": {"kind": "HelmRepository", "name": "r"}}},
            },
        }
        path = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/default/helmreleases"
        until("Flux is served", lambda: self.admin.create(path, body).status == 201)

    def compare(self) -> dict[str, Any]:
        """The status after two comparisons by the controller with the rights of its service account."""
        spec = {"recipe": lock.write(self.recipe), "intervalS": 1}
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Baseline", "metadata": {"name": "all"}, "spec": spec}
        self.admin.create(BASELINES, body).ok()
        kubeconfig = self.plane.kubeconfig_file("controller", self.rights.controller())
        seen: list[str] = []

        def twice() -> bool:
            at = self.status().get("checkedAt")
            if at and at not in seen:
                seen.append(at)
            return len(seen) > 1

        with controller(kubeconfig, self.folder):
            until("compared twice", twice, self.status)
        return self.status()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"{BASELINES}/all").body.get("status", {})
        return found


def until(what: str, true: Callable[[], bool], show: Callable[[], object] = str) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"never {what}: {json.dumps(show())[:2000]}"
        time.sleep(0.2)


@contextmanager
def controller(kubeconfig: Path, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "muster.cli.main", "controller", "run", "--baselines"]
    with (folder / "controller.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)], stderr=log, env={**os.environ, "KUBECONFIG": ""}
        )
        try:
            yield
            assert process.poll() is None, (folder / "controller.log").read_text()
        finally:
            process.terminate()
            process.wait(timeout=30)


def test_a_comparison_of_everything_needs_every_right_and_no_other(
    plane: ControlPlane, helm: Path, deployer_crds: list[Path], tmp_path: Path
) -> None:
    bed = Bed(plane, helm, deployer_crds, tmp_path)
    status = bed.compare()
    # Everything could be read: nothing is unknown for want of a right.
    told = json.dumps(status)
    assert "RBAC" not in told
    names = {a["name"] for a in status["assertions"] if a["result"] == "failed"}
    for kind in ("Deployment", "StatefulSet", "PersistentVolumeClaim", "Job"):
        assert f"everything/{kind}/{SPACE}/{'data' if kind.endswith('Claim') else kind.lower()}" in names
    assert {"everything/APIService/v1.x.example", "everything/MutatingWebhookConfiguration/hook"} <= names

    requests = bed.rights.requests(CONTROLLER)
    assert audit.refused(requests) == []
    (role,) = (
        o for o in bed.rights.objects if (o["kind"], o["metadata"]["name"]) == ("ClusterRole", "muster-baselines")
    )
    others = {Right(group, plural, "list") for group, plurals in kinds(load()).items() for plural in plurals} - {
        Right(CUSTOM[0], CUSTOM[1], "list")
    }
    unused = [right for right in audit.unused(role["rules"], requests) if right not in others]
    assert unused == []
    # The other way round: of the custom kinds, the one that is owned was read.
    assert Right(CUSTOM[0], CUSTOM[1], "list") in {r.right for r in requests}
    # Nothing but the status of the Baseline is written beside what the controller writes anyway.
    written = {r.right for r in audit.writes(requests) if r.right.group == "muster.dev"}
    assert Right("muster.dev", "baselines/status", "patch") in written
    assert {right.resource for right in written} <= {"baselines/status"}
