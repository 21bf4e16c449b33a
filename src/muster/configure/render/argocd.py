"""Argo CD: an app of apps with sync waves, and the health rule without which waves do not wait.

Since 1.8 Argo CD does not assess the health of `Application` objects, so a parent would start all waves at once. The
bundle carries a health customisation that must be merged into the ConfigMap `argocd-cm` before the parent is applied.
"""

from __future__ import annotations

from typing import Any

from muster import yamlio
from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.render.chart import local_chart
from muster.configure.render.repository import Repository

NAMESPACE = "argocd"
PARENT = "muster-bundle"
# An Application is ready once its present source has been synced and its objects are healthy. Health alone is not
# enough: before the first sync an Application has no objects, and after an upgrade its old objects are still healthy.
# A source that changes nothing is never synced again, so a comparison that found no difference counts as well.
_HEALTH = """\
local state = obj.status or {}
local operation = state.operationState or {}
local result = operation.syncResult or {}
local sync = state.sync or {}
local health = state.health or {}
local function present(found)
  local wanted = obj.spec.source or {}
  found = found or {}
  for _, key in ipairs({ "repoURL", "chart", "path", "targetRevision" }) do
    if (wanted[key] or "") ~= (found[key] or "") then
      return false
    end
  end
  return ((wanted.helm or {}).values or "") == ((found.helm or {}).values or "")
end
local failed = operation.phase == "Failed" or operation.phase == "Error"
if failed and (result.source == nil or present(result.source)) then
  return { status = "Degraded", message = operation.message or "sync failed" }
end
if operation.phase ~= "Succeeded" then
  return { status = "Progressing", message = "waiting for a successful sync" }
end
local compared = sync.status == "Synced" and present((sync.comparedTo or {}).source)
if not compared and not present(result.source) then
  return { status = "Progressing", message = "waiting for the sync of the present version" }
end
return { status = health.status or "Progressing", message = health.message or "" }
"""


def render(plan: Plan, repository: Repository) -> dict[str, str]:
    """Files by path inside the bundle."""
    files = {
        "app-of-apps.yaml": yamlio.dumps(_parent(repository)),
        "argocd-cm.yaml": yamlio.dumps(_health_rule()),
    }
    for release in plan.releases:
        folder = plan.folder(release)
        files[f"applications/{folder}.yaml"] = yamlio.dumps(application(plan, release, repository))
        if release.is_local:
            files |= local_chart(release, f"charts/{folder}")
    return files


def _parent(repository: Repository) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": PARENT,
            "namespace": NAMESPACE,
            "finalizers": ["resources-finalizer.argocd.argoproj.io"],
        },
        "spec": {
            "project": "default",
            "source": {
                "repoURL": repository.url,
                "targetRevision": repository.revision,
                "path": repository.inside("applications"),
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": NAMESPACE},
            "syncPolicy": {"automated": {"prune": True, "selfHeal": True}, "retry": _retry(5)},
        },
    }


def _health_rule() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"},
        },
        "data": {"resource.customizations.health.argoproj.io_Application": _HEALTH},
    }


def _retry(limit: int) -> dict[str, Any]:
    return {"limit": limit, "backoff": {"duration": "5s", "factor": 2, "maxDuration": "2m"}}


def application(plan: Plan, release: Release, repository: Repository) -> dict[str, Any]:
    """The `Application` of one release. Its wave is the level of the release, so every edge crosses waves."""
    keeps = release.crds is CrdPolicy.KEEP
    metadata: dict[str, Any] = {
        "name": release.name,
        "namespace": NAMESPACE,
        "annotations": {"argocd.argoproj.io/sync-wave": str(release.level)},
        "labels": {"muster.dev/component": release.component},
    }
    if not keeps:
        # Without the finalizer, removing the Application leaves the CRDs and the objects of their kinds.
        metadata["finalizers"] = ["resources-finalizer.argocd.argoproj.io"]
    options = ["CreateNamespace=true", "ServerSideApply=true"]
    if release.self_referencing or release.is_local:
        options.append("SkipDryRunOnMissingResource=true")
    sync: dict[str, Any] = {
        "automated": {"prune": not keeps, "selfHeal": True},
        "syncOptions": options,
        "retry": _retry(release.retries),
    }
    if labels := plan.namespaces[release.namespace]:
        sync["managedNamespaceMetadata"] = {"labels": labels}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": metadata,
        "spec": {
            "project": "default",
            "source": _source(plan, release, repository),
            "destination": {"server": "https://kubernetes.default.svc", "namespace": release.namespace},
            "syncPolicy": sync,
        },
    }


def _source(plan: Plan, release: Release, repository: Repository) -> dict[str, Any]:
    # Values are text, not an object: an API server may drop nulls from objects, and a null is a value here.
    helm = {"releaseName": release.name, "values": yamlio.dumps(release.values)}
    if release.is_local:
        path = repository.inside(f"charts/{plan.folder(release)}")
        return {"repoURL": repository.url, "targetRevision": repository.revision, "path": path, "helm": helm}
    return {
        # Argo CD wants OCI registries without the scheme.
        "repoURL": release.repository.removeprefix("oci://").rstrip("/"),
        "chart": release.chart,
        "targetRevision": release.version,
        "helm": helm | {"skipCrds": False},
    }
