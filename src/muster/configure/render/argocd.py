"""Argo CD: an app of apps with sync waves, and the health rule without which waves do not wait.

Since 1.8 Argo CD does not assess the health of `Application` objects, so a parent would start all waves at once. The
bundle carries a health customisation that must be merged into the ConfigMap `argocd-cm` before the parent is applied.
Argo CD has no timeout for one Application either; the rule reads it from an annotation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster import yamlio
from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.recipe import ManifestFile
from muster.configure.render.chart import awaits_objects, local_chart
from muster.configure.render.gate import gate_name, gate_objects, gated
from muster.configure.render.repository import Repository
from muster.errors import BadInputError

NAMESPACE = "argocd"
PARENT = "muster-bundle"
HEALTH_KEY = "resource.customizations.health.argoproj.io_Application"
WAVE = "argocd.argoproj.io/sync-wave"
TIMEOUT = "muster.dev/timeout-s"
"""Seconds after which the health rule calls an Application Degraded that is not ready."""
AWAITS = "muster.dev/awaits"
"""`nothing`: the health rule is content once the objects are applied."""
FINALIZER = "resources-finalizer.argocd.argoproj.io"
IN_CLUSTER = "https://kubernetes.default.svc"
_FOREVER = -1
_GATE_TIMEOUT_S = 60
"""What the Job of a gate gets beyond the timeout of its release, to be scheduled and to pull its image."""


def render(plan: Plan, repository: Repository) -> dict[str, str]:
    """Files by path inside the bundle. Raises BadInputError when a release has a name that is taken."""
    files = {
        "app-of-apps.yaml": yamlio.dumps(
            parent(
                {
                    "repoURL": repository.url,
                    "targetRevision": repository.revision,
                    "path": repository.inside("applications"),
                }
            )
        ),
        "argocd-cm.yaml": yamlio.dumps(health_rule()),
    }
    for name, application in applications(plan, repository, "charts"):
        files[f"applications/{name}.yaml"] = yamlio.dumps(application)
    return files | charts(plan, "charts")


def parent(source: dict[str, Any]) -> dict[str, Any]:
    """The Application that holds all others. It retries for ever, each time with the newest revision.

    Otherwise one release that is Degraded for longer than the retries last would stop the deployment for good, and a
    correction in the repository would not be seen while a sync is waiting.
    """
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": PARENT, "namespace": NAMESPACE, "finalizers": [FINALIZER]},
        "spec": {
            "project": "default",
            "source": source,
            "destination": {"server": IN_CLUSTER, "namespace": NAMESPACE},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "retry": _retry(_FOREVER) | {"refresh": True},
            },
        },
    }


def health_rule(namespace: str = NAMESPACE) -> dict[str, Any]:
    """The patch to merge into Argo CD's ConfigMap. An empty namespace fits every installation."""
    rule = (Path(__file__).parent / "argocd_health.lua").read_text(encoding="utf-8")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            **({"namespace": namespace} if namespace else {}),
            "labels": {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"},
        },
        "data": {HEALTH_KEY: rule},
    }


def applications(plan: Plan, repository: Repository, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of a file, Application) of every release, and of the gates between them, in the order of the plan.

    `folder` holds the charts of the bundle. Raises BadInputError when a release has a name that is taken.
    """
    gates = gated(plan)
    for release in plan.releases:
        if release.name == PARENT:
            raise BadInputError(
                f"The release {PARENT!r} has the name of the Application that holds all others; rename the component."
            )
        yield plan.folder(release), application(plan, release, repository, folder)
        if release in gates:
            yield f"{plan.folder(release)}-gate", _gate(plan, release, repository, folder)


def charts(plan: Plan, folder: str) -> dict[str, str]:
    """The charts that the bundle holds itself, by path."""
    files: dict[str, str] = {}
    for release in plan.releases:
        if release.is_local:
            files |= local_chart(release, f"{folder}/{_chart_folder(release)}")
    for release in gated(plan):
        gate = _gate_release(release)
        files |= local_chart(gate, f"{folder}/{_chart_folder(gate)}")
    return files


def _retry(limit: int) -> dict[str, Any]:
    return {"limit": limit, "backoff": {"duration": "5s", "factor": 2, "maxDuration": "2m"}}


def application(plan: Plan, release: Release, repository: Repository, folder: str) -> dict[str, Any]:
    """The `Application` of one release. Its wave is twice its level, so every edge crosses waves and gates fit in."""
    keeps = release.crds is CrdPolicy.KEEP
    metadata: dict[str, Any] = {
        "name": release.name,
        "namespace": NAMESPACE,
        "annotations": {
            WAVE: str(2 * release.level),
            TIMEOUT: str(release.timeout_s),
            # What the API server would make of an object is compared, not the text of the chart: defaults and
            # webhooks do not show as differences.
            "argocd.argoproj.io/compare-options": "ServerSideDiff=true",
        },
        "labels": {"muster.dev/component": release.component},
    }
    if not awaits_objects(release):
        metadata["annotations"][AWAITS] = "nothing"
    if not keeps:
        # Without the finalizer, removing the Application leaves the CRDs and the objects of their kinds.
        metadata["finalizers"] = [FINALIZER]
    # Server-side apply also brings CRDs up to date that are too large for a last-applied annotation.
    options = ["CreateNamespace=true", "ServerSideApply=true"]
    if release.self_referencing or release.is_local:
        options.append("SkipDryRunOnMissingResource=true")
    sync: dict[str, Any] = {
        "automated": {"prune": not keeps, "selfHeal": True},
        "syncOptions": options,
        "retry": _retry(release.retries),
    }
    if labels := plan.namespaces.get(release.namespace):
        sync["managedNamespaceMetadata"] = {"labels": labels}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": metadata,
        "spec": {
            "project": "default",
            "source": _source(release, repository, folder),
            "destination": {"server": IN_CLUSTER, "namespace": release.namespace},
            "syncPolicy": sync,
        },
    }


def _source(release: Release, repository: Repository, folder: str) -> dict[str, Any]:
    # Values are text, not an object: a null is a value here, and in a merge patch of an object it means removal.
    helm = {"releaseName": release.name, "values": yamlio.dumps(release.values)}
    if release.is_local:
        path = repository.inside(f"{folder}/{_chart_folder(release)}")
        return {"repoURL": repository.url, "path": path, "targetRevision": repository.revision, "helm": helm}
    address = release.repository.rstrip("/")
    if not address.startswith("oci://"):
        return {"repoURL": address, "chart": release.chart, "targetRevision": release.version, "helm": helm}
    bare = address.removeprefix("oci://")
    if bare[:1].isdigit():
        # Argo CD takes an address without a scheme as a registry, but cannot parse one that starts with a digit and
        # has a port, so such a chart is fetched as a plain artifact. A tag cannot hold a plus sign.
        tag = release.version.replace("+", "_")
        return {"repoURL": f"{address}/{release.chart}", "path": ".", "targetRevision": tag, "helm": helm}
    return {"repoURL": bare, "chart": release.chart, "targetRevision": release.version, "helm": helm}


def _chart_folder(release: Release) -> str:
    """Name and digest of the content.

    The address of a chart in the bundle says nothing about its revision. With the digest in it, an Application that
    was compared with its present source has been compared with the present content.
    """
    content = "".join(f"{name}\n{text}\n" for name, text in sorted(local_chart(release, "").items()))
    return f"{release.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _gate(plan: Plan, release: Release, repository: Repository, folder: str) -> dict[str, Any]:
    """An Application that is healthy once every Deployment of the namespace is available.

    The health of an Application speaks of the objects in its chart only, and the chart at hand leaves it to an
    operator to create others.
    """
    found = application(plan, _gate_release(release), repository, folder)
    found["metadata"]["annotations"][WAVE] = str(2 * release.level + 1)
    return found


def _gate_release(release: Release) -> Release:
    """A release of the gate's objects. Its Job is named after what it waits for, so that an upgrade waits again."""
    objects = gate_objects(release)
    seen = hashlib.sha256(yamlio.dumps([release.version, release.values, objects]).encode()).hexdigest()[:8]
    for found in objects:
        if found["kind"] == "Job":
            found["metadata"]["name"] += f"-{seen}"
    return Release(
        name=gate_name(release),
        component=release.component,
        role=release.role,
        namespace=release.namespace,
        level=release.level,
        depends_on=(release.name,),
        timeout_s=release.timeout_s + _GATE_TIMEOUT_S,
        retries=release.retries,
        manifests=(ManifestFile(name="gate.yaml", objects=objects),),
    )
