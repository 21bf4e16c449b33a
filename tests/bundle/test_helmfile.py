"""Helmfile bundles: what `helmfile.yaml` says, and what the real Helmfile makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from muster import yamlio
from muster.configure.bundles import build as bundles
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, plan
from muster.configure.render import helmfile as renderer
from muster.configure.render.chart import local_chart
from tests.bundle.shell import Shell, written
from tests.bundle.stand_in import charts, served, small_plan
from tests.configure.cases import NAMES, recipe_of
from tests.controlplane.plugin import RealCluster


def state_of(files: dict[str, str]) -> dict[str, object]:
    found = yamlio.loads(files["helmfile.yaml"], "helmfile.yaml")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_recipe_is_taken_for_a_template(name: str) -> None:
    """Helmfile fills templates in: braces may stand in files of values, which are plain, and in one constant."""
    text = renderer.render(plan(recipe_of(name)))["helmfile.yaml"]
    assert "{{" not in text.replace("{{ if .Event.Error }}failed{{ end }}", "")


def test_every_repository_has_a_name_of_its_own() -> None:
    addresses = [
        "https://a.example/b",
        "https://a.example/b/",
        "oci://a.example/b",
        "https://a.example/B",
        "https://a-example/b",
    ]
    whole = small_plan("https://x.example", "n")
    releases = tuple(
        msgspec.structs.replace(whole.releases[1], name=f"r{at}", repository=address)
        for at, address in enumerate(addresses)
    )
    found = state_of(renderer.render(msgspec.structs.replace(whole, releases=releases)))["repositories"]
    assert isinstance(found, list)
    assert len({r["name"] for r in found}) == len(found) == 4
    assert [r for r in found if r.get("oci")] == [{"name": found[-1]["name"], "url": "a.example/b", "oci": True}]


@pytest.mark.parametrize("name", ["h100-eks-ubuntu-training-kubeflow", "h100-eks-ubuntu-inference-dynamo"])
def test_a_comparison_on_a_fresh_cluster_asks_for_no_kind_that_comes_with_another_release(name: str) -> None:
    """`helmfile apply` compares all releases before it installs the first one, and their CRDs with it."""
    recipe = recipe_of(name)
    needing = {c.name for c in recipe.components if c.needs}
    assert {"kube-prometheus-stack", "nvsentinel"} <= needing
    entries = state_of(renderer.render(plan(recipe)))["releases"]
    assert isinstance(entries, list)
    assert [e["name"] for e in entries if not e.get("disableValidationOnInstall")] == []


def test_crds_are_brought_up_to_date_and_kept() -> None:
    planned = plan(recipe_of("h100-eks-ubuntu-training-slurm"))
    entries = {r["name"]: r for r in state_of(renderer.render(planned))["releases"]}  # type: ignore[attr-defined]
    policies = {release.crds for release in planned.releases if not release.is_local}
    assert policies == set(CrdPolicy)
    for release in planned.releases:
        commands = {(e, h["command"]) for h in entries[release.name].get("hooks", []) for e in h["events"]}
        updates = release.crds is not CrdPolicy.INSTALL and not release.is_local
        assert (("presync", "./crds.sh") in commands) == updates
        assert (("preuninstall", "./keep.sh") in commands) == (release.crds is CrdPolicy.KEEP)


@pytest.fixture
def shell(tmp_path: Path, helmfile: Path, helm: Path) -> Shell:
    assert helm.parent == helmfile.parent
    return Shell(tmp_path, helmfile.parent)


@pytest.mark.parametrize("name", NAMES)
def test_the_real_helmfile_orders_as_planned(name: str, shell: Shell) -> None:
    """`helmfile show-dag`: a release stands in a later group than each that it depends on, with just these edges."""
    planned = plan(recipe_of(name))
    files = renderer.render(planned) | local_chart(planned.releases[0], "charts/stand-in")
    state = state_of(files)
    # Helmfile pulls OCI charts even to show the order; a chart in the bundle stands for all of them.
    state |= {"repositories": [], "releases": [_without_chart(entry) for entry in state["releases"]]}  # type: ignore[attr-defined]
    folder = written(shell.home / "b", files | {"helmfile.yaml": yamlio.dumps(state)})
    names = {f"{r.namespace}/{r.name}": r for r in planned.releases}
    group: dict[str, int] = {}
    edges: dict[str, list[str]] = {}
    for line in shell.ok("helmfile", "show-dag", cwd=folder).splitlines()[1:]:
        number, release, *needs = line.replace(",", " ").split()
        group[release], edges[release] = int(number), needs
    assert sorted(group) == sorted(names)
    for full, release in names.items():
        assert sorted(n.partition("/")[2] for n in edges[full]) == sorted(release.depends_on)
        assert all(group[needed] < group[full] for needed in edges[full])


def _without_chart(entry: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if key != "version"} | {"chart": "./charts/stand-in"}


@pytest.mark.parametrize("kind", ["http", "oci"])
def test_the_real_helmfile_renders_stand_in_charts(
    kind: str, shell: Shell, oci_registry: str, request: pytest.FixtureRequest
) -> None:
    """Charts are found by name in either kind of repository, and values arrive as they are, braces included."""
    archives = {key: data for key, data in charts().items() if key[0] != "late"}
    with served(archives) as http:
        address = http if kind == "http" else f"oci://{oci_registry}/charts"
        if kind == "oci":
            for (name, version), data in archives.items():
                (shell.home / f"{name}-{version}.tgz").write_bytes(data)
                shell.ok("helm", "push", f"{name}-{version}.tgz", address, "--plain-http")
        whole = small_plan(address, "stand-in")
        planned = msgspec.structs.replace(whole, releases=whole.releases[:3])
        files = renderer.render(planned)
        if kind == "oci":
            state = state_of(files)
            # Our registry speaks plain HTTP; a user's does not.
            state["repositories"] = [r | {"plainHttp": True} for r in state["repositories"]]  # type: ignore[attr-defined]
            files["helmfile.yaml"] = yamlio.dumps(state)
        folder = written(shell.home / "b", files)
        listed = json.loads(shell.ok("helmfile", "list", "--output", "json", cwd=folder))
        assert sorted((r["name"], r["namespace"]) for r in listed) == sorted(
            (r.name, r.namespace) for r in planned.releases
        )
        code, output = shell.run("helmfile", "template", "--quiet", "--include-crds", cwd=folder)
        assert code == 0, output
        assert "0 chart(s) failed" in shell.ok("helmfile", "lint", cwd=folder)
    documents = yamlio.loads_all(output[output.index("---") :], "helmfile template")
    told = {
        d["metadata"]["name"]: json.loads(d["data"]["values"]) for d in documents if d and d["kind"] == "ConfigMap"
    }
    assert sorted(told) == ["base", "operator", "shared-crds"]
    assert told["base"] == {"nothing": None, "empty": [], "yes": "no", "123": "1e3", "braces": "{{ x }}"}
    assert {d["metadata"]["name"] for d in documents if d and d["kind"] == "CustomResourceDefinition"} == {
        "widgets.stand-in.example",
        "gizmos.stand-in.example",
    }


@pytest.fixture(scope="module")
def repository() -> Iterator[str]:
    with served({**charts("file"), **charts("file", "two")}) as address:
        yield address


def test_sync_on_a_fresh_cluster_and_removal(
    tmp_path: Path, helmfile: Path, real_cluster: RealCluster, repository: str
) -> None:
    namespace = "helmfile-flow"
    shell = Shell(tmp_path, helmfile.parent, real_cluster.kubeconfig)
    folder = written(tmp_path / "b", renderer.render(small_plan(repository, namespace, "file")))
    sync = str(folder / "sync.sh")
    code, output = shell.run(sync)
    assert (code, output) == (
        1,
        f"preflight.sh: the secret {namespace}/key with the keys user,password is needed; create it and run again\n",
    )
    assert shell.releases(namespace) == {}
    shell.kubectl(
        "create", "secret", "generic", "key", "-n", namespace, "--from-literal=user=u", "--from-literal=password=p"
    )
    code, output = shell.run(sync)
    assert code == 1
    assert output.count("go is missing") >= 5
    assert "sync.sh: it failed 5 times" in output
    assert "objects" not in shell.releases(namespace)
    shell.kubectl("create", "configmap", "go", "-n", namespace)
    assert shell.ok(sync).endswith("All releases are deployed.\n")
    assert set(shell.releases(namespace)) == {"shared-crds", "base", "operator", "late", "objects"}
    before = shell.releases(namespace)
    shell.ok(sync, "--selector", "name=base")
    changed = {name for name, state in shell.releases(namespace).items() if before[name] != state}
    assert changed == {"base"}
    # Helmfile leaves nothing of its own in the bundle.
    assert bundles.verify(folder)[0] > 10

    newer = written(tmp_path / "two", renderer.render(small_plan(repository, namespace, "file", version="2.0.0")))
    shell.ok(str(newer / "sync.sh"))
    for plural in ("filewidgets", "filegizmos"):
        found = json.loads(shell.kubectl("get", "crd", f"{plural}.stand-in.example", "-o", "json"))
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert list(schema["properties"]["spec"]["properties"]) == ["two"]

    code, output = shell.run("helmfile", "destroy", cwd=newer)
    assert code != 0
    assert "shared-crds holds CRDs that others share and stays" in output
    removed = [line.split()[1] for line in output.splitlines() if line.startswith("Deleting ")]
    assert removed == ["objects", "late", "operator", "base"]
    assert list(shell.releases(namespace)) == ["shared-crds"]


def test_the_gate_holds_back_what_follows(
    tmp_path: Path, helmfile: Path, real_cluster: RealCluster, repository: str
) -> None:
    namespace = "helmfile-gate"
    shell = Shell(tmp_path, helmfile.parent, real_cluster.kubeconfig)
    whole = small_plan(repository, namespace, "file")
    gated = msgspec.structs.replace(whole.releases[1], gate=Gate.DEPLOYMENTS_AVAILABLE, timeout_s=3)
    planned = msgspec.structs.replace(whole, releases=(gated, whole.releases[2]), secrets=())
    folder = written(tmp_path / "b", renderer.render(planned))
    shell.kubectl("create", "namespace", namespace)
    shell.kubectl("create", "deployment", "slow", "--image=stand-in.example/x:1", "-n", namespace)
    code, output = shell.run("helmfile", "sync", cwd=folder)
    assert code != 0
    assert f"not every Deployment in {namespace} is available after 3 s" in output
    assert list(shell.releases(namespace)) == ["base"]
    # Where the release itself fails there is nothing to wait for.
    shell.kubectl("delete", "deployment", "slow", "-n", namespace)
    broken = msgspec.structs.replace(gated, chart="late", name="late", timeout_s=120)
    planned = msgspec.structs.replace(planned, releases=(broken,))
    code, output = shell.run("helmfile", "sync", cwd=written(tmp_path / "broken", renderer.render(planned)))
    assert code != 0
    assert "go is missing" in output
    assert "not every Deployment" not in output
