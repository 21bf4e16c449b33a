"""Chart addresses: a chart is found over HTTP and in an OCI registry alike, by its name and exact version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from muster import yamlio
from muster.configure.plan import Plan, Release
from muster.configure.render import helm as renderer
from muster.configure.render import helmfile as helmfile_renderer
from muster.configure.render.helm import COLUMNS
from tests.bundle.shell import Shell, written
from tests.bundle.stand_in import REPEATED, chart, crd, served, small_plan

VERSIONS = ["1.2.3", "v26.7.0", "1.0.0-rc.1"]


@contextmanager
def address(kind: str, shell: Shell, registry: str, same_name: bool) -> Iterator[str]:
    """A repository that holds `base` in every version; the registry's path may end with the name of the chart."""
    files = {"templates/c.yaml": REPEATED, "crds/w.yaml": yamlio.dumps(crd("widgets", "Widget"))}
    archives = {("base", version): chart("base", version, files) for version in VERSIONS}
    if kind == "http":
        with served(archives) as url:
            yield url + "/" if same_name else url
        return
    url = f"oci://{registry}/charts/base" if same_name else f"oci://{registry}/charts"
    for (name, version), data in archives.items():
        (shell.home / f"{name}-{version}.tgz").write_bytes(data)
        shell.ok("helm", "push", f"{name}-{version}.tgz", url, "--plain-http")
    yield url


def plan_of(url: str, version: str) -> Plan:
    whole = small_plan(url, "n")
    base: Release = msgspec.structs.replace(whole.releases[1], version=version)
    return msgspec.structs.replace(whole, releases=(base,), secrets=())


@pytest.fixture
def shell(tmp_path: Path, helm: Path) -> Shell:
    return Shell(tmp_path, helm.parent)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("same_name", [False, True])
@pytest.mark.parametrize("kind", ["http", "oci"])
def test_helm_and_helmfile_find_the_chart(
    kind: str, same_name: bool, version: str, shell: Shell, helmfile: Path, oci_registry: str
) -> None:
    plain = ["--plain-http"] if kind == "oci" else []
    with address(kind, shell, oci_registry, same_name) as url:
        planned = plan_of(url, version)
        line = renderer.render(planned)["releases.tsv"].splitlines()[1]
        row = dict(zip(COLUMNS, line.split("\t"), strict=True))
        source = [] if row["repository"] == "-" else ["--repo", row["repository"]]
        pinned = [row["chart"], "--version", row["version"], *source, *plain]
        assert "widgets.stand-in.example" in shell.ok("helm", "show", "crds", *pinned)
        by_helm = shell.ok("helm", "template", "base", *pinned)
        state = yamlio.loads(render_state(planned), "helmfile.yaml")
        for repository in state["repositories"]:
            repository["plainHttp"] = kind == "oci"
        folder = written(
            shell.home / "b",
            {"helmfile.yaml": yamlio.dumps(state), "values/001-base.yaml": yamlio.dumps({"a": None})},
        )
        assert helmfile.name == "helmfile"
        code, by_helmfile = shell.run("helmfile", "template", "--quiet", cwd=folder)
        assert code == 0, by_helmfile
    assert "labels: {a: '1', a: '2'}" in by_helm
    config = by_helmfile[by_helmfile.index("kind: ConfigMap") :]
    assert json.loads(json.loads(config.partition("values: ")[2].splitlines()[0])) == {"a": None}


def render_state(planned: Plan) -> str:
    return helmfile_renderer.render(planned)["helmfile.yaml"]
