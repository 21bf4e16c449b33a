"""Flux bundles: what the objects say, and whether a real API server with Flux's CRDs takes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, Plan, plan
from muster.configure.recipe import ManifestFile
from muster.configure.render import flux
from muster.configure.render.chart import repository_alias
from muster.configure.render.gate import gate_name
from muster.configure.render.repository import UNSET_REPOSITORY, Repository
from muster.errors import BadInputError
from tests.bundle import read_flux
from tests.bundle.shell import Shell, written
from tests.bundle.stand_in import small_plan
from tests.configure.cases import NAMES, recipe_of
from tests.controlplane.plugin import RealCluster

GIT = Repository("https://git.example.com/gpu/bundle.git", "main", "clusters/one")
OCI = Repository("oci://registry.example.com/gpu/bundle", "sha256:" + "a" * 64)


def releases_of(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o for o in read_flux.objects(files) if o["kind"] == "HelmRelease"}


def folder_of(files: dict[str, str], name: str) -> str:
    """The folder of a chart in the bundle; its name ends with a hash."""
    (found,) = {path.rpartition("/")[0] for path in files if re.match(f"charts/{name}-[0-9a-f]{{12}}/Chart", path)}
    return found


def gated_plan() -> Plan:
    """`base` returns early; `operator` and `late` depend on it."""
    whole = small_plan("https://charts.example.com", "n")
    gated = msgspec.structs.replace(whole.releases[1], gate=Gate.DEPLOYMENTS_AVAILABLE)
    return msgspec.structs.replace(whole, releases=(whole.releases[0], gated, *whole.releases[2:]))


def test_the_gate_stands_between_a_release_and_its_dependents() -> None:
    files = flux.render(gated_plan(), GIT)
    found = releases_of(files)
    edges = {name: [d["name"] for d in o["spec"].get("dependsOn", [])] for name, o in found.items()}
    assert edges == {
        "shared-crds": [],
        "base": [],
        "base-gate": ["base"],
        "operator": ["base", "base-gate"],
        "late": ["base", "base-gate", "operator"],
        "objects": ["late", "shared-crds"],
    }
    folder = folder_of(files, "base-gate")
    assert found["base-gate"]["spec"]["chart"]["spec"]["chart"] == f"./clusters/one/{folder}"
    job = yamlio.loads_all(files[f"{folder}/manifests/01-gate.yaml"], "gate")[-1]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"


def test_the_gate_runs_again_when_its_release_changes() -> None:
    def fingerprint(planned: Plan) -> str:
        value = releases_of(flux.render(planned, GIT))["base-gate"]["spec"]["values"]["after"]
        assert isinstance(value, str)
        return value

    whole = gated_plan()
    base = whole.releases[1]
    for changed in ({"version": "1.0.1"}, {"values": {**base.values, "nothing": 0}}):
        other = msgspec.structs.replace(base, **changed)
        assert fingerprint(whole) != fingerprint(
            msgspec.structs.replace(whole, releases=(whole.releases[0], other, *whole.releases[2:]))
        )
    assert fingerprint(whole) == fingerprint(gated_plan())


def test_a_gate_never_takes_the_name_of_a_release() -> None:
    whole = gated_plan()
    taken = msgspec.structs.replace(whole.releases[0], name="base-gate", depends_on=())
    with pytest.raises(BadInputError, match="'base-gate', which is taken"):
        flux.render(msgspec.structs.replace(whole, releases=(*whole.releases, taken)), GIT)
    long = msgspec.structs.replace(whole.releases[1], name="x" * 50)
    with pytest.raises(BadInputError, match="longer than 53"):
        flux.render(msgspec.structs.replace(whole, releases=(long,)), GIT)


@pytest.mark.parametrize("name", NAMES)
def test_crds_waiting_retries_and_removal(name: str) -> None:
    planned = plan(recipe_of(name))
    found = releases_of(flux.render(planned, GIT))
    for release in planned.releases:
        spec, annotations = found[release.name]["spec"], found[release.name]["metadata"].get("annotations", {})
        for verb in ("install", "upgrade"):
            assert spec[verb]["crds"] == ("Create" if release.crds is CrdPolicy.INSTALL else "CreateReplace")
            assert spec[verb]["disableTakeOwnership"] is True
            if release.crds is CrdPolicy.KEEP:
                # Remediation would uninstall the CRDs, and with them every object of their kinds.
                assert "remediation" not in spec[verb]
                assert spec[verb]["strategy"]["name"] == "RetryOnFailure"
            else:
                assert spec[verb]["remediation"]["retries"] == release.retries > 0
        assert spec["timeout"] == f"{release.timeout_s}s"
        assert (annotations == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}) == (release.crds is CrdPolicy.KEEP)


def test_what_a_kept_release_needs_is_kept_as_well() -> None:
    whole = small_plan("https://charts.example.com", "n")
    kept = msgspec.structs.replace(whole.releases[0], values={"a": 1})
    objects = read_flux.objects(
        flux.render(msgspec.structs.replace(whole, releases=(kept, *whole.releases[1:])), GIT)
    )
    spared = {
        (o["kind"], o["metadata"]["name"])
        for o in objects
        if o["metadata"].get("annotations", {}).get("kustomize.toolkit.fluxcd.io/prune") == "disabled"
    }
    values = next(o["spec"]["valuesFrom"][0]["name"] for o in objects if o["metadata"]["name"] == "shared-crds")
    assert spared == {
        ("Namespace", "n"),
        ("HelmRepository", repository_alias("https://charts.example.com")),
        ("ConfigMap", values),
        ("HelmRelease", "shared-crds"),
    }


@pytest.mark.parametrize(
    ("address", "chart_repository", "kind"),
    [
        ("https://charts.example.com/a/", "https://charts.example.com/a", None),
        ("oci://ghcr.io/kai-scheduler/kai-scheduler", "oci://ghcr.io/kai-scheduler/kai-scheduler", "oci"),
        ("oci://registry.example.com:5000/x", "oci://registry.example.com:5000/x", "oci"),
    ],
)
@pytest.mark.parametrize("repository", [GIT, OCI], ids=["git", "oci"])
def test_addresses_of_charts(address: str, chart_repository: str, kind: str | None, repository: Repository) -> None:
    """The chart's name stands in the release alone, never at the end of the repository's address."""
    whole = small_plan(address, "n")
    files = flux.render(whole, repository)
    sources = [o for o in read_flux.objects(files) if o["kind"] == "HelmRepository"]
    assert [(s["spec"]["url"], s["spec"].get("type")) for s in sources] == [(chart_repository, kind)]
    base = releases_of(files)["base"]["spec"]["chart"]["spec"]
    assert (base["chart"], base["version"]) == ("base", "1.0.0")
    assert base["sourceRef"] == {"kind": "HelmRepository", "name": sources[0]["metadata"]["name"]}


def test_charts_of_a_bundle_in_a_registry() -> None:
    """A HelmRelease takes no chart from a folder of an OCI artifact, so each folder becomes an artifact."""
    files = flux.render(small_plan("https://charts.example.com", "n"), OCI)
    objects = read_flux.objects(files)
    generator = next(o for o in objects if o["kind"] == "ArtifactGenerator")
    release = next(o for o in objects if o["kind"] == "HelmRelease" and o["metadata"]["name"] == "objects")
    name = release["spec"]["chartRef"]["name"]
    assert release["spec"]["chartRef"] == {"kind": "ExternalArtifact", "name": name}
    assert "chart" not in release["spec"]
    folder = folder_of(files, "objects")
    assert generator["spec"]["artifacts"] == [
        {"name": name, "copy": [{"from": f"@bundle/{folder}/**", "to": "@artifact/objects/"}]}
    ]


@pytest.mark.parametrize("repository", [GIT, OCI], ids=["git", "oci"])
def test_a_changed_manifest_changes_the_release(repository: Repository) -> None:
    """Flux upgrades to other versions only, and finds nothing new under the path that an older HelmRelease names."""

    def chart_of(planned: Plan) -> tuple[Any, Any]:
        files = flux.render(planned, repository)
        spec = releases_of(files)["objects"]["spec"]
        folder = folder_of(files, "objects")
        version = yamlio.loads(files[f"{folder}/Chart.yaml"], "Chart.yaml")["version"]
        if not repository.is_oci:
            assert spec["chart"]["spec"]["version"] == version
            assert "reconcileStrategy" not in spec["chart"]["spec"]
        return spec.get("chartRef") or spec["chart"], version

    whole = small_plan("https://charts.example.com", "n")
    other = msgspec.structs.replace(whole.releases[-1], manifests=(ManifestFile(name="w.yaml", objects=[]),))
    before, after = chart_of(whole), chart_of(msgspec.structs.replace(whole, releases=(*whole.releases[:-1], other)))
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert chart_of(small_plan("https://charts.example.com", "n")) == before


def contents_of(planned: Plan) -> dict[str, str]:
    """What each HelmRelease is labelled with, having checked that every edge asks for just that."""
    found = releases_of(flux.render(planned, GIT))
    labels = {name: str(o["metadata"]["labels"][flux.CONTENT_LABEL]) for name, o in found.items()}
    for release in found.values():
        for edge in release["spec"].get("dependsOn", ()):
            asked = edge["readyExpr"].split(" && ")[0]
            assert asked == f'dep.metadata.labels["muster.dev/content"] == "{labels[edge["name"]]}"'
    return labels


def test_edges_ask_for_the_content_that_they_mean() -> None:
    """A change of a release changes what all that depend on it wait for, and nothing else."""
    whole = gated_plan()
    other = msgspec.structs.replace(whole.releases[2], version="1.0.1")
    before = contents_of(whole)
    after = contents_of(msgspec.structs.replace(whole, releases=(*whole.releases[:2], other, *whole.releases[3:])))
    assert {name for name in before if before[name] != after[name]} == {"operator", "late", "objects"}


def test_a_new_neighbour_changes_no_other_release() -> None:
    """Places in the order move, contents do not: nothing is upgraded and no gate runs again."""
    whole = gated_plan()
    new = msgspec.structs.replace(whole.releases[0], name="new")
    found = contents_of(msgspec.structs.replace(whole, releases=(new, *whole.releases)))
    assert {name: content for name, content in found.items() if name != "new"} == contents_of(whole)


_SSH = {"secretRef": {"name": "muster-bundle-git"}}
_G = "https://g.example/x.git"


@pytest.mark.parametrize(
    ("url", "revision", "kind", "spec"),
    [
        (_G, "main", "GitRepository", {"url": _G, "ref": {"branch": "main"}}),
        ("git@g.example:a/b.git", "a" * 40, "GitRepository",
         {"url": "ssh://git@g.example/a/b.git", "ref": {"commit": "a" * 40}, **_SSH}),
        ("ssh://git@g.example:22/b.git", "refs/tags/v1", "GitRepository",
         {"url": "ssh://git@g.example:22/b.git", "ref": {"name": "refs/tags/v1"}, **_SSH}),
        ("oci://r.example/b", "v1", "OCIRepository", {"url": "oci://r.example/b", "ref": {"tag": "v1"}}),
        (OCI.url, OCI.revision, "OCIRepository", {"url": OCI.url, "ref": {"digest": OCI.revision}}),
        (UNSET_REPOSITORY, "HEAD", "GitRepository", {"url": UNSET_REPOSITORY, "ref": {"branch": "main"}}),
    ],
)  # fmt: skip
def test_where_the_bundle_lies(url: str, revision: str, kind: str, spec: dict[str, Any]) -> None:
    files = flux.render(small_plan("https://charts.example.com", "n"), Repository(url, revision, "a/b"))
    source, kustomization = yamlio.loads_all(files["flux-bundle.yaml"], "flux-bundle.yaml")
    assert source["kind"] == kind
    assert {key: value for key, value in source["spec"].items() if key != "interval"} == spec
    assert kustomization["spec"]["sourceRef"] == {"kind": kind, "name": source["metadata"]["name"]}
    assert kustomization["spec"]["path"] == "./a/b"
    assert "flux-bundle.yaml" not in yamlio.loads(files["kustomization.yaml"], "k")["resources"]


@pytest.mark.parametrize("url", [GIT.url, OCI.url])
def test_flux_follows_no_head(url: str) -> None:
    with pytest.raises(BadInputError, match="give --revision"):
        flux.render(small_plan("https://charts.example.com", "n"), Repository(url))


def test_a_changed_value_changes_the_release() -> None:
    """Flux looks again at once when the HelmRelease changes, not when a ConfigMap does."""
    whole = small_plan("https://charts.example.com", "n")
    other = msgspec.structs.replace(whole.releases[1], values={"a": None})
    files = flux.render(whole, GIT)
    changed = flux.render(
        msgspec.structs.replace(whole, releases=(whole.releases[0], other, *whole.releases[2:])), GIT
    )
    before, after = (releases_of(f)["base"]["spec"]["valuesFrom"] for f in (files, changed))
    assert before != after
    assert "valuesFrom" not in releases_of(files)["operator"]["spec"]


@pytest.fixture(scope="module")
def flux_shell(
    tmp_path_factory: pytest.TempPathFactory, helm: Path, real_cluster: RealCluster, deployer_crds: list[Path]
) -> Shell:
    """A real API server with Flux's CRDs."""
    shell = Shell(tmp_path_factory.mktemp("flux"), helm.parent, real_cluster.kubeconfig)
    crds = [file for file in deployer_crds if "toolkit.fluxcd.io" in file.name]
    names = []
    for file in crds:
        shell.kubectl("apply", "--server-side", "-f", str(file))
        names.append("crd/" + yamlio.loads_all(file.read_text(), file.name)[-1]["metadata"]["name"])
    shell.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    code, output = shell.run("kubectl", "create", "namespace", flux.NAMESPACE)
    assert code == 0 or "AlreadyExists" in output, output
    return shell


@pytest.mark.parametrize("name", NAMES[::8])
def test_a_real_api_server_takes_every_object(name: str, flux_shell: Shell) -> None:
    """Built by kustomize as Flux does it, every field known to the real schemas."""
    files = flux.render(plan(recipe_of(name)), GIT)
    folder = written(flux_shell.home / name, files)
    built = flux_shell.kubectl("kustomize", str(folder))
    assert len(yamlio.loads_all(built, "kustomize")) == len(read_flux.objects(files))
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--field-manager=muster-test")
    told = flux_shell.kubectl(*arguments, "-f", "-", text=built)
    assert told.count("helmrelease.helm.toolkit.fluxcd.io/") == len(releases_of(files))
    told = flux_shell.kubectl(*arguments, "-f", str(folder / "flux-bundle.yaml"))
    assert told.count("serverside-applied") == 2


def test_values_survive_kustomize_and_the_api_server(flux_shell: Shell) -> None:
    """Nulls, empty lists and hostile keys arrive as they left, by server-side and by client-side apply."""
    values = {"nothing": None, "deep": {"n": None, "list": [None, {}]}, "empty": [], "yes": "no", "null": "~",
              "123": "1e3", "{{ x }}": "${HOME}", "lines": "a\n--- \nb\n", "big": 12345678901234567890}  # fmt: skip
    whole = small_plan("https://charts.example.com", "flux-values")
    base = msgspec.structs.replace(whole.releases[1], values=values)
    files = flux.render(msgspec.structs.replace(whole, releases=(base,)), GIT)
    folder = written(flux_shell.home / "values", files)
    for how in (["--server-side", "--force-conflicts"], []):
        flux_shell.kubectl("apply", *how, "-f", "-", text=flux_shell.kubectl("kustomize", str(folder)))
        release = json.loads(flux_shell.kubectl("get", "helmrelease", "base", "-n", flux.NAMESPACE, "-o", "json"))
        (source,) = release["spec"]["valuesFrom"]
        held = json.loads(flux_shell.kubectl("get", "configmap", source["name"], "-n", flux.NAMESPACE, "-o", "json"))
        assert yamlio.loads(held["data"][source["valuesKey"]], "values") == values
        flux_shell.kubectl("delete", "-k", str(folder), "--wait=false")


def test_the_real_helm_and_api_server_take_the_gate(flux_shell: Shell) -> None:
    planned = gated_plan()
    base = msgspec.structs.replace(planned.releases[1], namespace="default", timeout_s=4)
    files = flux.render(msgspec.structs.replace(planned, releases=(base,), namespaces={"default": {}}), GIT)
    folder = written(flux_shell.home / "gate", files)
    chart = str(folder / folder_of(files, gate_name(base)))
    assert "0 chart(s) failed" in flux_shell.ok("helm", "lint", chart)
    rendered = flux_shell.ok("helm", "template", gate_name(base), chart, "--namespace", "default")
    told = flux_shell.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=rendered
    )
    assert told.count("serverside-applied") == 4
    # No node runs the Job here, so the release fails at its deadline and what waits for it does not start.
    code, output = flux_shell.run(
        "helm", "install", gate_name(base), chart, "--namespace", "default", "--timeout", "6s", "--wait"
    )
    assert code == 1, output
    assert flux_shell.releases("default")[gate_name(base)].endswith("failed")
    # What the Job's containers do, done here: no Deployment is no answer, and a watch that ends is a pause.
    job = yamlio.loads_all(rendered, "gate")[-1]["spec"]["template"]["spec"]
    look, pause = (c["args"] for c in job["initContainers"])
    assert flux_shell.run("kubectl", *look)[0] != 0
    assert flux_shell.run("kubectl", *(a.replace("=30s", "=1s") for a in pause)) == (0, "")
    flux_shell.ok("helm", "uninstall", gate_name(base), "--namespace", "default", "--no-hooks")
