"""A Flux bundle under Flux's own controllers, from the push to Git to the removal. Without nodes, no pod runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.bundles.build import Deployer
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.recipe import ManifestFile
from muster.configure.render.gate import gate_name
from muster.configure.render.removal import removal_page
from tests.bundle.flux_bed import Bed, condition_of, flux_bed
from tests.bundle.stand_in import CONFIG, NEEDS_GO, REPEATED, chart, charts, crd, served, small_plan
from tests.bundle.test_uninstall_real import typed
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.plugin import ABSENT

HOSTILE: dict[str, Any] = {
    "nothing": None, "deep": {"n": None, "list": [None, {}, [], ""]}, "empty": [], "none": {}, "yes": "no",
    "null": "~", "123": "1e3", "number": 0.5, "big": 2**40, "{{ x }}": "${HOME} $(x) {{ .Values.y }}",
    "lines": "a\n--- \nb\n",
}  # fmt: skip
WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec: {containers: [{name: one, image: "stand-in.example/one:{{ .Values.tag }}"}]}
"""
PARTS = "fluxparts.stand-in.example"


@pytest.fixture(scope="module")
def repository() -> Iterator[str]:
    # CRDs among the templates, as some charts have them: Helm removes these with the release.
    part = yamlio.dumps(crd("fluxparts", "FluxPart"))
    own = {
        ("workload", "1.0.0"): chart("workload", "1.0.0", {"templates/workload.yaml": WORKLOAD}),
        ("config", "1.0.0"): chart("config", "1.0.0", {"templates/config.yaml": CONFIG}),
        ("late", "1.0.0"): chart("late", "1.0.0", {"templates/config.yaml": CONFIG, "templates/go.yaml": NEEDS_GO}),
        ("twice", "1.0.0"): chart("twice", "1.0.0", {"templates/config.yaml": REPEATED}),
        ("parts", "1.0.0"): chart("parts", "1.0.0", {"templates/crd.yaml": part, "templates/w.yaml": WORKLOAD}),
    }
    with served({**charts("flux"), **charts("flux", "two"), **own}) as address:
        yield address


@pytest.fixture(scope="module")
def whole_bed(
    tmp_path_factory: pytest.TempPathFactory,
    helm: Path,
    flux_controllers: dict[str, Path],
    deployer_crds: list[Path],
    control_plane: ControlPlane,
) -> Iterator[Bed]:
    """Always in a cluster of our own: two sets of controllers would fight over one namespace."""
    if not control_plane.controllers:
        pytest.skip(f"{ABSENT}the controller manager is not there, and nobody else makes pods")
    home = tmp_path_factory.mktemp("flux-real")
    with flux_bed(home, helm.parent, flux_controllers, deployer_crds, control_plane.kubeconfig_file()) as bed:
        yield bed


@pytest.fixture
def bed(whole_bed: Bed) -> Iterator[Bed]:
    """With nothing deployed, before and after."""
    yield whole_bed
    whole_bed.clear()


def of(whole: Plan, **changes: dict[str, Any]) -> Plan:
    """`whole` with fields of some releases changed."""
    releases = tuple(msgspec.structs.replace(r, **changes.get(r.name.replace("-", "_"), {})) for r in whole.releases)
    return msgspec.structs.replace(whole, releases=releases)


def planned(namespace: str, *releases: Release) -> Plan:
    return Plan(releases=releases, namespaces={namespace: {}}, recipe_digest="sha256:0")


def release(name: str, namespace: str, repository: str, *needs: str, **fields: Any) -> Release:
    source = {"repository": repository, "version": "1.0.0"} if "chart" in fields else {}
    fields = {"level": 0, "timeout_s": 30, "retries": 5, **source, **fields}
    return Release(name=name, component=name, role="main", namespace=namespace, depends_on=needs, **fields)  # type: ignore[arg-type]


def config_of(name: str, text: str) -> tuple[ManifestFile, ...]:
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
    return (ManifestFile(name="config.yaml", objects=[found]),)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(microsecond=0)


def started_after(bed: Bed, dependent: str, needed: str) -> bool:
    """Whether the present revision of `dependent` was started when `needed` had become ready (in whole seconds)."""
    ready = next(c for c in bed.release(needed)["status"]["conditions"] if c["type"] == "Ready")
    last = bed.release(dependent)["status"]["history"][0]["lastDeployed"]
    return moment(last) >= moment(ready["lastTransitionTime"])


def schema_field(bed: Bed, plural: str) -> list[str]:
    found = bed.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.stand-in.example").ok()
    return list(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def test_from_a_push_to_the_removal(bed: Bed, repository: str) -> None:
    namespace = "flux-flow"
    first = of(small_plan(repository, namespace, "flux"), base={"values": HOSTILE}, late={"retries": 100})
    bed.push("flow", first)

    # `late` fails until somebody mends the cluster, is tried again all the time, and holds back what depends on it.
    bed.ready("shared-crds", "base", "operator")
    bed.until(lambda: bed.release("late").get("status", {}).get("failures", 0) >= 2, "late is tried again")
    assert "go is missing" in bed.condition("late")[2]
    assert bed.condition("objects")[:2] == ("False", "DependencyNotReady")
    done = {"shared-crds": "1 deployed", "base": "1 deployed", "operator": "1 deployed"}
    assert {name: r for name, r in bed.shell.releases(namespace).items() if name != "late"} == done
    assert bed.shell.kubectl("get", "fluxwidgets", "-n", namespace, "-o", "name") == ""
    assert bed.values("base", namespace) == HOSTILE
    bed.shell.kubectl("create", "configmap", "go", "-n", namespace)
    bed.ready("late", "objects")
    assert {name: bed.shell.releases(namespace)[name] for name in done} == done
    assert bed.shell.releases(namespace)["objects"] == "1 deployed"
    widget = json.loads(bed.shell.kubectl("get", "fluxwidgets", "yes", "-n", namespace, "-o", "json"))
    assert widget["metadata"]["annotations"]["null"] == "{{ .Values.no }}"
    for one in first.releases:
        assert all(started_after(bed, one.name, needed) for needed in one.depends_on), one.name

    # New versions with other CRDs, one changed value: those releases are upgraded and no other.
    before = bed.shell.releases(namespace)
    second = of(
        small_plan(repository, namespace, "flux", version="2.0.0"),
        base={"values": {**HOSTILE, "nothing": {}, "added": None}}, late={"retries": 100},
    )  # fmt: skip
    bed.push("flow", second)
    bed.until(lambda: bed.release("operator")["spec"]["chart"]["spec"]["version"] == "2.0.0", "applied")
    bed.ready(*(one.name for one in second.releases))
    changed = dict.fromkeys(("shared-crds", "base", "operator"), "2 deployed")
    assert bed.shell.releases(namespace) == before | changed
    assert bed.values("base", namespace) == second.releases[1].values
    assert started_after(bed, "operator", "base")
    assert (schema_field(bed, "fluxwidgets"), schema_field(bed, "fluxgizmos")) == (["two"], ["two"])

    # What leaves the recipe is removed; shared CRDs and the release that holds them stay.
    bed.push("flow", msgspec.structs.replace(second, releases=second.releases[1:2]))
    bed.until(lambda: list(bed.shell.releases(namespace)) == ["base", "shared-crds"], "two releases are left")
    bed.until(lambda: not bed.release("operator"), "operator is removed")
    assert bed.release("shared-crds")
    assert schema_field(bed, "fluxwidgets") == ["two"]


def test_an_upgrade_waits_for_the_upgrade_of_what_it_depends_on(bed: Bed, repository: str) -> None:
    """Dependents whose names come first: Flux applies them before it applies what they depend on."""
    namespace = "flux-order"

    def whole(tag: str) -> Plan:
        return planned(
            namespace,
            release("zebra", namespace, repository, chart="workload", values={"tag": tag}),
            release("between", namespace, repository, "zebra", chart="config"),
            release("aardvark", namespace, repository, "between", chart="config", values={"tag": tag}),
            release("bundled", namespace, repository, "zebra", manifests=config_of("bundled", tag)),
        )

    bed.push("order", whole("one"))
    bed.ready("zebra", "between", "aardvark", "bundled", pods=(namespace, "app=zebra"))
    generations = {name: bed.generation(name) for name in ("aardvark", "bundled")}

    bed.push("order", whole("two"))
    for name, generation in generations.items():
        bed.until(lambda: bed.generation(name) > generation, f"{name} is applied")  # noqa: B023 - called in this turn
    bed.until(lambda: bed.condition("zebra")[0] == "Unknown", "zebra is being upgraded")
    # Flux has seen the dependents, and looks once more; the new Deployment is not available.
    bed.looked_again("aardvark", "bundled")
    for name in generations:
        assert bed.condition(name)[1] == "DependencyNotReady", name
    assert bed.condition("zebra")[0] == "Unknown"
    assert bed.shell.releases(namespace) == {
        "aardvark": "1 deployed", "between": "1 deployed", "bundled": "1 deployed", "zebra": "2 pending-upgrade",
    }  # fmt: skip
    assert bed.values("aardvark", namespace) == {"tag": "one"}
    bed.ready("zebra", "between", "aardvark", "bundled", pods=(namespace, "app=zebra"))
    assert bed.shell.releases(namespace) == {
        "aardvark": "2 deployed", "between": "1 deployed", "bundled": "2 deployed", "zebra": "2 deployed",
    }  # fmt: skip
    assert started_after(bed, "aardvark", "zebra")
    assert started_after(bed, "bundled", "zebra")


def test_what_follows_a_failure(bed: Bed, repository: str) -> None:
    """An installation is removed, an upgrade rolled back, and tried again. Shared CRDs are never removed."""
    namespace = "flux-failures"

    def whole(tag: str) -> Plan:
        return planned(
            namespace,
            release("rolled", namespace, repository, chart="workload", timeout_s=5, values={"tag": tag}),
            release("thing", namespace, repository, chart="workload", timeout_s=2, retries=1),
            release("parts", namespace, repository, chart="parts", crds=CrdPolicy.KEEP, timeout_s=2),
            release("after", namespace, repository, "thing", chart="config"),
            release("twice", namespace, repository, chart="twice"),
        )

    bed.push("failures", whole("one"), quick_retries=True)
    bed.ready("rolled", pods=(namespace, "app=rolled"))
    bed.push("failures", whole("two"), quick_retries=True)
    bed.until(lambda: bed.condition("rolled", "Released")[1] == "UpgradeFailed", "the upgrade fails")
    # Helm would take the last of two equal keys; Flux puts labels on what a chart renders, and reads it strictly.
    bed.until(lambda: 'mapping key "a" already defined' in bed.condition("twice")[2], "twice is refused")
    bed.until(lambda: bed.condition("thing", "Stalled")[:2] == ("True", "RetriesExceeded"), "thing has no try left")
    assert bed.release("thing")["status"]["installFailures"] == 2
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{PARTS}"
    held = bed.api.get(definition).ok()["metadata"]["uid"]
    bed.until(lambda: bed.condition("parts", "Released")[1] == "UpgradeFailed", "parts is tried again")
    assert bed.condition("after")[:2] == ("False", "DependencyNotReady")
    assert "after" not in bed.shell.releases(namespace)
    history = json.loads(bed.shell.ok("helm", "history", "rolled", "-n", namespace, "-o", "json"))
    assert [(h["status"], h["description"]) for h in history][2:3] == [("deployed", "Rollback to 1")]

    # The cluster is mended. One goes on by itself, the other when it is told.
    bed.ready("parts", pods=(namespace, "app=parts"))
    assert bed.api.get(definition).ok()["metadata"]["uid"] == held
    bed.start_again("thing")
    bed.ready("thing", "after", pods=(namespace, "app=thing"))


def test_the_gate_and_the_removal_page(bed: Bed, repository: str) -> None:
    namespace = "flux-gate"
    whole = planned(
        namespace,
        release("kinds", namespace, repository, chart="config", gate=Gate.DEPLOYMENTS_AVAILABLE),
        release("follower", namespace, repository, "kinds", chart="config"),
    )
    bed.push("gate", whole)
    bed.ready("kinds")
    gate = gate_name(whole.releases[0])
    bed.until(lambda: bed.pods(namespace, f"job-name={gate}"), "the Job of the gate has a pod")
    bed.until(lambda: bed.condition("follower")[1] == "DependencyNotReady", "follower waits")
    assert "follower" not in bed.shell.releases(namespace)
    bed.until(lambda: bed.pods_done(namespace, f"job-name={gate}"), "the Job ends well")
    bed.ready(gate, "follower")
    assert started_after(bed, "follower", gate)
    assert bed.shell.releases(namespace)[gate] == "1 deployed"

    for command in typed(removal_page(whole, Deployer.FLUX)):
        bed.shell.ok("bash", "-c", command)
    assert bed.shell.releases(namespace) == {}
    assert not any(bed.release(name) for name in ("kinds", gate, "follower"))
    assert condition_of(bed.kustomization(), "Ready")[0] == "True"
