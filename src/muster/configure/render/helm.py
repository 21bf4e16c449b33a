"""Plain Helm: a folder per release, and fixed scripts that read a table. Strictly serial, resumable."""

from __future__ import annotations

from pathlib import Path

from muster import yamlio
from muster.configure.plan import Plan, Release
from muster.configure.render.chart import awaits_objects, local_chart
from muster.configure.render.namespaces import namespace_objects

COLUMNS = (
    "folder", "name", "namespace", "chart", "repository", "version", "timeout_s", "retries", "gate", "crds",
    "provides", "wait",
)  # fmt: skip


def render(plan: Plan) -> dict[str, str]:
    """Files by path inside the bundle."""
    files = {name: script(name) for name in ("deploy.sh", "preflight.sh", "uninstall.sh", "gate.sh", "crds.sh")}
    files |= preconditions(plan)
    files["releases.tsv"] = "".join(
        "\t".join(row) + "\n" for row in [COLUMNS, *(_row(plan, release) for release in plan.releases)]
    )
    for release in plan.releases:
        folder = f"releases/{plan.folder(release)}"
        if release.is_local:
            files |= local_chart(release, folder)
        else:
            files[f"{folder}/values.yaml"] = yamlio.dumps(release.values)
    return files


def preconditions(plan: Plan) -> dict[str, str]:
    """What has to be there before the first release, for the scripts that check it."""
    return {
        "secrets.tsv": "".join(f"{s.namespace}\t{s.name}\t{','.join(s.keys)}\n" for s in plan.secrets),
        "missing.txt": "".join(f"{name}\n" for name in plan.missing),
        "namespaces.txt": "".join(f"{name}\n" for name in plan.namespaces),
        "namespaces.yaml": yamlio.dumps_all(namespace_objects(plan)),
    }


def chart_reference(release: Release) -> tuple[str, str]:
    """(chart, repository) as `helm upgrade` takes them: an OCI chart is one reference without `--repo`."""
    if release.repository.startswith("oci://"):
        return f"{release.repository.rstrip('/')}/{release.chart}", ""
    return release.chart, release.repository.rstrip("/")


def _row(plan: Plan, release: Release) -> tuple[str, ...]:
    folder = f"releases/{plan.folder(release)}"
    chart, repository = (folder, "") if release.is_local else chart_reference(release)
    row = (
        folder, release.name, release.namespace, chart, repository, release.version, str(release.timeout_s),
        str(release.retries), release.gate.value, release.crds.value,
        ",".join(release.provides), "objects" if awaits_objects(release) else "nothing",
    )  # fmt: skip
    # An empty field would vanish: bash treats neighbouring tabs as one.
    return tuple(field or "-" for field in row)


def script(name: str) -> str:
    """A script of the package; the same bytes in every bundle."""
    return (Path(__file__).parent / "scripts" / name).read_text(encoding="utf-8")
