"""Helmfile: one plain `helmfile.yaml` in which every release needs exactly the releases that it depends on.

Helmfile starts a release when all that it needs are synced, and it syncs with `--wait`. What Helm does not do itself
is done by fixed scripts that hooks call: bringing CRDs up to date, waiting behind charts that return early.
"""

from __future__ import annotations

from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.render.chart import awaits_objects, local_chart, repository_alias
from muster.configure.render.helm import chart_reference, preconditions, script

CRDS_LABEL = "crds"
# Helmfile runs the hook after a failure too, and fills in templates in its arguments.
_FAILED = "{{ if .Event.Error }}failed{{ end }}"


def render(plan: Plan) -> dict[str, str]:
    """Files by path inside the bundle."""
    files = {name: script(name) for name in ("sync.sh", "preflight.sh", "gate.sh", "crds.sh", "keep.sh")}
    files |= preconditions(plan)
    files["helmfile.yaml"] = yamlio.dumps(
        {
            "helmDefaults": _DEFAULTS,
            "repositories": _repositories(plan),
            "releases": [_release(plan, release) for release in plan.releases],
        }
    )
    for release in plan.releases:
        folder = plan.folder(release)
        if release.is_local:
            files |= local_chart(release, f"charts/{folder}")
        else:
            files[f"values/{folder}.yaml"] = yamlio.dumps(release.values)
    return files


_DEFAULTS: dict[str, Any] = {
    "wait": True,
    "waitForJobs": True,
    "createNamespace": True,
    "historyMax": 10,
    # Helm 4 applies on the server; a field that somebody else has set would stop an upgrade otherwise.
    "serverSide": "true",
    "forceConflicts": True,
    "atomic": False,
    "deleteWait": True,
}


def _repositories(plan: Plan) -> list[dict[str, Any]]:
    found = []
    for address in sorted({release.repository.rstrip("/") for release in plan.releases if not release.is_local}):
        oci = {"oci": True} if address.startswith("oci://") else {}
        found.append({"name": repository_alias(address), "url": address.removeprefix("oci://"), **oci})
    return found


def _release(plan: Plan, release: Release) -> dict[str, Any]:
    folder = plan.folder(release)
    by_name = {r.name: r for r in plan.releases}
    entry: dict[str, Any] = {"name": release.name, "namespace": release.namespace}
    if release.is_local:
        entry["chart"] = f"./charts/{folder}"
    else:
        entry["chart"] = f"{repository_alias(release.repository)}/{release.chart}"
        entry["version"] = release.version
        entry["values"] = [f"values/{folder}.yaml"]
    if release.depends_on:
        entry["needs"] = [f"{by_name[needed].namespace}/{needed}" for needed in release.depends_on]
    entry["timeout"] = release.timeout_s
    entry["deleteTimeout"] = release.timeout_s
    if not awaits_objects(release):
        entry |= {"wait": False, "waitForJobs": False}
    entry["labels"] = {"component": release.component, CRDS_LABEL: release.crds.value}
    # `helmfile diff` and `helmfile apply` look at every release before the first one brings its kinds.
    entry["disableValidationOnInstall"] = True
    if hooks := _hooks(release):
        entry["hooks"] = hooks
    return entry


def _hooks(release: Release) -> list[dict[str, Any]]:
    hooks = []
    if not release.depends_on:
        # Before the first level only; everything else needs a release of that level.
        hooks.append(_hook("presync", "preflight.sh"))
    if release.crds is not CrdPolicy.INSTALL and not release.is_local:
        chart, repository = chart_reference(release)
        hooks.append(_hook("presync", "crds.sh", chart, release.version, *([repository] if repository else [])))
    if release.gate is Gate.DEPLOYMENTS_AVAILABLE:
        hooks.append(_hook("postsync", "gate.sh", release.namespace, str(release.timeout_s), _FAILED))
    if release.crds is CrdPolicy.KEEP:
        hooks.append(_hook("preuninstall", "keep.sh", release.name))
    return hooks


def _hook(event: str, program: str, *arguments: str) -> dict[str, Any]:
    return {"events": [event], "showlogs": True, "command": f"./{program}", "args": list(arguments)}
