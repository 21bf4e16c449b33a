"""Plain Helm: a folder per release, and fixed scripts that read a table. Strictly serial, resumable."""

from __future__ import annotations

from importlib import resources

from muster import yamlio
from muster.configure.plan import Plan, Release
from muster.configure.render.chart import local_chart

COLUMNS = (
    "folder", "name", "namespace", "chart", "repository", "version", "timeout_s", "retries", "gate", "crds",
)  # fmt: skip

_BUILT_IN_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})


def render(plan: Plan) -> dict[str, str]:
    """Files by path inside the bundle."""
    files = {
        "deploy.sh": _script("deploy.sh"),
        "uninstall.sh": _script("uninstall.sh"),
        "releases.tsv": "".join("\t".join(row) + "\n" for row in [COLUMNS, *(_row(plan, r) for r in plan.releases)]),
        "secrets.tsv": "".join(f"{s.namespace}\t{s.name}\t{','.join(s.keys)}\n" for s in plan.secrets),
        "missing.txt": "".join(f"{name}\n" for name in plan.missing),
        "namespaces.yaml": yamlio.dumps_all(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name} | ({"labels": labels} if labels else {}),
            }
            for name, labels in plan.namespaces.items()
            if labels or name not in _BUILT_IN_NAMESPACES
        ),
    }
    for release in plan.releases:
        folder = f"releases/{plan.folder(release)}"
        if release.is_local:
            files |= local_chart(release, folder)
        else:
            files[f"{folder}/values.yaml"] = yamlio.dumps(release.values)
    return files


def chart_reference(release: Release) -> tuple[str, str]:
    """(chart, repository) as `helm upgrade` takes them: an OCI chart is one reference without `--repo`."""
    if release.repository.startswith("oci://"):
        return f"{release.repository.rstrip('/')}/{release.chart}", ""
    return release.chart, release.repository


def _row(plan: Plan, release: Release) -> tuple[str, ...]:
    folder = f"releases/{plan.folder(release)}"
    chart, repository = (folder, "") if release.is_local else chart_reference(release)
    row = (
        folder, release.name, release.namespace, chart, repository, release.version,
        str(release.timeout_s), str(release.retries), release.gate.value, release.crds.value,
    )  # fmt: skip
    # An empty field would vanish: bash treats neighbouring tabs as one.
    return tuple(field or "-" for field in row)


def _script(name: str) -> str:
    return (resources.files("muster.configure.render") / "scripts" / name).read_text(encoding="utf-8")
