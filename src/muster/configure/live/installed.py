"""Installed releases, as Helm's records, Argo CD's Applications and Flux's HelmReleases tell of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster import yamlio
from muster.configure.live.helm_release import HelmRelease
from muster.configure.live.kinds import Condition, Meta, condition
from muster.configure.live.manifest import owned_objects
from muster.configure.live.state import Installed, OwnedObject, Via
from muster.errors import BadInputError
from muster.resources.base import Model

MAX_NOTE = 300
MAX_KEPT_MANIFEST = 256 * 1024
"""Characters; manifests of the bundle's own charts are far below, others need not be kept."""


BEING_DELETED = "being deleted"


def _held_by(metadata: Meta) -> str:
    """What keeps an object that is being deleted."""
    return f"its finalizers are {', '.join(metadata.finalizers)}" if metadata.finalizers else ""


def from_helm(release: HelmRelease) -> Installed:
    """A release from Helm's record. `deployed` is None for a state that Helm does not know."""
    deployed: bool | None = release.status == "deployed"
    if release.status == "unknown":
        deployed = None
    return Installed(
        via=Via.HELM,
        name=release.name,
        namespace=release.namespace,
        deployed=deployed,
        state=release.status,
        chart=release.chart,
        chart_version=release.chart_version,
        values=release.values,
        owned=owned_objects(release.manifest, release.crds),
        manifest=release.manifest if len(release.manifest) <= MAX_KEPT_MANIFEST else "",
        note="" if deployed else release.description[:MAX_NOTE],
    )


# Argo CD


class _Word(Model, frozen=True, kw_only=True):
    status: str = ""
    message: str = ""


class _ArgoHelm(Model, frozen=True, kw_only=True):
    release_name: str = ""
    values: str = ""
    values_object: dict[str, Any] | None = None


class _ArgoSource(Model, frozen=True, kw_only=True):
    repo_url: str = msgspec.field(name="repoURL", default="")
    chart: str = ""
    path: str = ""
    target_revision: str = ""
    helm: _ArgoHelm | None = None


class _ArgoDestination(Model, frozen=True, kw_only=True):
    namespace: str = ""


class _ArgoSpec(Model, frozen=True, kw_only=True):
    source: _ArgoSource | None = None
    sources: tuple[_ArgoSource, ...] | None = None
    destination: _ArgoDestination = _ArgoDestination()


class _ArgoSync(Model, frozen=True, kw_only=True):
    status: str = ""
    revision: str = ""


class _ArgoOperation(Model, frozen=True, kw_only=True):
    phase: str = ""
    message: str = ""


class _ArgoResource(Model, frozen=True, kw_only=True):
    group: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    status: str = ""


class _ArgoStatus(Model, frozen=True, kw_only=True):
    sync: _ArgoSync = _ArgoSync()
    health: _Word = _Word()
    operation_state: _ArgoOperation = _ArgoOperation()
    resources: tuple[_ArgoResource, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class ArgoApplication(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: _ArgoSpec = _ArgoSpec()
    status: _ArgoStatus = _ArgoStatus()


def from_argo(application: ArgoApplication) -> Installed | None:
    """A release from an `Application`; None for one that is no Helm release (the parent of the others, say)."""
    spec, status = application.spec, application.status
    sources = [spec.source] if spec.source is not None else list(spec.sources or ())
    source = next((s for s in sources if s.chart or s.helm is not None), None)
    if source is None:
        return None
    helm = source.helm or _ArgoHelm()
    chart, version, address = _argo_chart(source, status.sync.revision)
    deployed, state, note = _argo_state(status)
    if application.metadata.deletion_timestamp is not None:
        deployed, state, note = False, BEING_DELETED, _held_by(application.metadata)
    return Installed(
        via=Via.ARGOCD,
        name=helm.release_name or application.metadata.name,
        namespace=spec.destination.namespace,
        deployed=deployed,
        state=state,
        chart=chart,
        chart_version=version,
        source=address,
        values=_argo_values(helm),
        owned=_argo_objects(status.resources),
        note=note[:MAX_NOTE],
    )


def _argo_chart(source: _ArgoSource, synced: str) -> tuple[str, str, str]:
    """(chart, version, repository); empty for a chart in Git, of which only the commit is known."""
    if source.chart:
        # What was synced tells more than what is wanted; for charts in some registries it is a digest.
        version = synced if synced[:1].isdigit() or synced[:1] == "v" else ""
        return (
            source.chart,
            version if not _is_commit(synced) and version else source.target_revision,
            source.repo_url,
        )
    if source.repo_url.startswith("oci://") and source.path in ("", "."):
        # A chart fetched as a plain artifact; a tag cannot hold the plus sign of a version.
        address, _, chart = source.repo_url.rpartition("/")
        return chart, source.target_revision.replace("_", "+"), address
    return "", "", ""


def _is_commit(revision: str) -> bool:
    return len(revision) == 40 and all(c in "0123456789abcdef" for c in revision)


def _argo_state(status: _ArgoStatus) -> tuple[bool | None, str, str]:
    health, sync, operation = status.health.status, status.sync.status, status.operation_state
    state = f"{health or 'no health yet'}, {sync or 'not compared yet'}"
    complaint = next((c.message for c in status.conditions or () if c.type.endswith("Error")), "")
    if operation.phase in ("Failed", "Error"):
        return False, f"{state}, sync {operation.phase}", operation.message
    if sync == "OutOfSync":
        differing = [r for r in status.resources or () if r.status == "OutOfSync"]
        named = ", ".join(f"{r.kind} {r.namespace}/{r.name}" for r in differing[:3])
        return False, state, f"{len(differing)} objects differ: {named}" if differing else complaint
    if health in ("Degraded", "Missing", "Progressing", "Suspended"):
        return False, state, status.health.message or complaint
    if health == "Healthy" and sync == "Synced":
        return True, state, ""
    return None, state, complaint


def _argo_values(helm: _ArgoHelm) -> Mapping[str, Any] | None:
    if helm.values_object is not None:
        return helm.values_object
    try:
        found = yamlio.loads(helm.values, "the values of the Application") if helm.values else {}
    except BadInputError:
        return None
    return found if isinstance(found, dict) else {} if found is None else None


def _argo_objects(resources: tuple[_ArgoResource, ...] | None) -> tuple[OwnedObject, ...] | None:
    if resources is None:
        return None
    return tuple(OwnedObject(r.group, r.kind, r.namespace, r.name) for r in resources)


# Flux


class _FluxSourceRef(Model, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _FluxChartSpec(Model, frozen=True, kw_only=True):
    chart: str = ""
    version: str = ""
    source_ref: _FluxSourceRef = _FluxSourceRef()


class _FluxChart(Model, frozen=True, kw_only=True):
    spec: _FluxChartSpec = _FluxChartSpec()


class _FluxSpec(Model, frozen=True, kw_only=True):
    release_name: str = ""
    target_namespace: str = ""
    suspend: bool = False
    chart: _FluxChart | None = None


class _FluxRevision(Model, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    chart_name: str = ""
    chart_version: str = ""
    version: int = 0


class _FluxStatus(Model, frozen=True, kw_only=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    history: tuple[_FluxRevision, ...] | None = None


class FluxRelease(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: _FluxSpec = _FluxSpec()
    status: _FluxStatus = _FluxStatus()


class _FluxRepositorySpec(Model, frozen=True, kw_only=True):
    url: str = ""


class FluxRepository(Model, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    spec: _FluxRepositorySpec = _FluxRepositorySpec()


def from_flux(release: FluxRelease, repositories: Mapping[tuple[str, str], str]) -> Installed:
    """A release from a `HelmRelease`; `repositories` are addresses by (namespace, name) of the HelmRepository."""
    spec, status, metadata = release.spec, release.status, release.metadata
    ready = condition(status.conditions, "Ready")
    deployed: bool | None = None
    state = "not reconciled yet"
    if ready is not None and status.observed_generation >= metadata.generation:
        deployed = {"True": True, "False": False}.get(ready.status)
        state = ready.reason or f"Ready {ready.status}"
    if spec.suspend:
        state = f"{state}, suspended"
    note = ready.message if ready is not None and not deployed else ""
    if metadata.deletion_timestamp is not None:
        deployed, state, note = False, BEING_DELETED, _held_by(metadata)
    newest = max(status.history or (), key=lambda h: h.version, default=None)
    # A HelmRelease with `chartRef` (a chart of the bundle's own source) has no chart here.
    chart = spec.chart.spec if spec.chart is not None else _FluxChartSpec()
    referred = (chart.source_ref.namespace or metadata.namespace, chart.source_ref.name)
    prefix = f"{spec.target_namespace}-" if spec.target_namespace else ""
    return Installed(
        via=Via.FLUX,
        name=spec.release_name or f"{prefix}{metadata.name}",
        namespace=spec.target_namespace or metadata.namespace,
        deployed=deployed,
        state=state,
        chart=newest.chart_name if newest is not None else "",
        chart_version=newest.chart_version if newest is not None else "",
        source=repositories.get(referred, "") if chart.source_ref.kind == "HelmRepository" else "",
        note=note[:MAX_NOTE],
    )
