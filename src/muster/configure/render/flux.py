"""Flux: a HelmRelease per release, each waiting for exactly the releases that it depends on.

A HelmRelease is ready when the objects of its chart are; for charts that return early, a gate stands between it and
its dependents (`gate`). Values travel as text in a ConfigMap, because a client-side apply drops nulls from objects
and a null is a value here. The name of the ConfigMap holds a hash of the text: a changed value is deployed at once.

Flux applies HelmReleases one by one, by name, and looks at each as it comes. On an upgrade a dependent may therefore
find what it depends on ready still in the old revision. So each edge names the content that it waits for, and charts
in the bundle lie in folders named after their content: nothing of a new revision starts before the edges say so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from muster import yamlio
from muster.configure.plan import CrdPolicy, Plan, Release
from muster.configure.render.chart import VERSION, awaits_objects, local_chart, repository_alias
from muster.configure.render.gate import LABEL, gate_chart, gate_name, gated
from muster.configure.render.namespaces import namespace_objects
from muster.configure.render.repository import DEFAULT_REVISION, UNSET_REPOSITORY, Repository
from muster.errors import BadInputError

NAMESPACE = "flux-system"
BUNDLE = "muster-bundle"
"""Name of the source and of the Kustomization that stand for the bundle."""
GIT_KEY = "muster-bundle-git"
"""Name of the Secret with the key for a repository that is read over SSH."""
PLACE_LABEL = "muster.dev/place"
"""Place in the order, for removal in reverse."""
CRDS_LABEL = "muster.dev/crds"
CONTENT_LABEL = "muster.dev/content"
"""Hash over a release and all that it depends on."""

_KEEP = {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCP = re.compile(r"([A-Za-z0-9._-]+)@([A-Za-z0-9.-]+):(\S+)", re.ASCII)
_INTERVAL = "10m"
_UNSET_BRANCH = "main"


def render(plan: Plan, repository: Repository) -> dict[str, str]:
    """Files by path inside the bundle. Raises BadInputError when `repository` is given without a revision."""
    files: dict[str, str] = {"namespaces.yaml": yamlio.dumps_all(namespace_objects(plan, _KEEP))}
    for name, source in _sources(plan).items():
        files[f"sources/{name}.yaml"] = yamlio.dumps(source)
    gates = {release.name: release for release in gated(plan)}
    contents: dict[str, str] = {}
    for at, release in enumerate(plan.releases, start=1):
        folder, place = plan.folder(release), f"{at:03d}"
        after = _after(release.depends_on, gates)
        if release.is_local:
            chart = _inside(local_chart, release, release.name, repository, files)
        else:
            chart = _fetched(release)
        objects = _release(release, release.name, _edges(after, contents), chart, place)
        files[f"releases/{folder}.yaml"] = _told(objects, contents)
        if release.name in gates:
            chart = _inside(gate_chart, release, gate_name(release), repository, files)
            objects = _gate(release, _edges([release.name], contents), chart, place)
            files[f"releases/{folder}-gate.yaml"] = _told(objects, contents)
    files["kustomization.yaml"] = yamlio.dumps(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": sorted(name for name in files if not name.startswith("charts/")),
        }
    )
    files["flux-bundle.yaml"] = yamlio.dumps_all([_bundle_source(repository), _kustomization(repository)])
    return files


def _sources(plan: Plan) -> dict[str, dict[str, Any]]:
    kept = {release.repository.rstrip("/") for release in plan.releases if release.crds is CrdPolicy.KEEP}
    sources: dict[str, dict[str, Any]] = {}
    for address in sorted({release.repository.rstrip("/") for release in plan.releases if not release.is_local}):
        metadata: dict[str, Any] = {"name": repository_alias(address), "namespace": NAMESPACE}
        if address in kept:
            metadata["annotations"] = _KEEP
        kind = {"type": "oci"} if address.startswith("oci://") else {}
        sources[repository_alias(address)] = {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "HelmRepository",
            "metadata": metadata,
            "spec": {**kind, "url": address, "interval": "1h"},
        }
    return sources


def _after(needed: tuple[str, ...], gates: dict[str, Release]) -> list[str]:
    """What a release waits for: the releases that it depends on, each with its gate."""
    return [name for needs in needed for name in ((needs, gate_name(gates[needs])) if needs in gates else (needs,))]


def _fetched(release: Release) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The fields of a HelmRelease that name a chart from a repository."""
    source = {"kind": "HelmRepository", "name": repository_alias(release.repository)}
    spec = {"chart": release.chart, "version": release.version, "interval": "1h", "sourceRef": source}
    return {"chart": {"spec": spec}}, []


def _edges(after: list[str], contents: dict[str, str]) -> list[dict[str, Any]]:
    """Each name with the state in which it must be: this content, seen by its controller, and ready."""
    return [
        {
            "name": name,
            "readyExpr": f'dep.metadata.labels["{CONTENT_LABEL}"] == "{contents[name]}" && '
            "dep.status.observedGeneration == dep.metadata.generation && has(dep.status.conditions) && "
            'dep.status.conditions.exists(c, c.type == "Ready" && c.status == "True")',
        }
        for name in after
    ]


def _told(objects: list[dict[str, Any]], contents: dict[str, str]) -> str:
    """The text of a release; its HelmRelease, the last object, gets the label that its dependents wait for.

    The hash covers the edges, which hold the hashes of what the release depends on. It leaves labels out: the place
    of a release changes with its neighbours.
    """
    metadata = objects[-1]["metadata"]
    specs = [{key: value for key, value in o.items() if key != "metadata"} for o in objects]
    content = hashlib.sha256(yamlio.dumps_all(specs).encode()).hexdigest()[:16]
    contents[metadata["name"]] = content
    metadata["labels"] = {**metadata["labels"], CONTENT_LABEL: content}
    return yamlio.dumps_all(objects)


def _inside(
    chart: Callable[[Release, str, str], dict[str, str]],
    release: Release,
    name: str,
    repository: Repository,
    files: dict[str, str],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Put a chart into the bundle. The fields that name it, and the object that cuts it out of an OCI artifact.

    Version and folder follow from the content. Flux upgrades to another version only. And it takes charts from the
    newest revision of the repository, before the HelmReleases of that revision are there: under a path of the old
    revision it must find nothing new.
    """
    plain = chart(release, "chart", VERSION)
    digest = hashlib.sha256(yamlio.dumps(dict(sorted(plain.items()))).encode()).hexdigest()[:12]
    version, at = f"{VERSION}+{digest}", f"charts/{name}-{digest}"
    files |= chart(release, at, version)
    path = repository.inside(at)
    if not repository.is_oci:
        # For a folder in Git the version selects nothing; it tells people which one it is.
        spec = {"chart": f"./{path}", "version": version, "interval": _INTERVAL}
        return {"chart": {"spec": spec | {"sourceRef": {"kind": "GitRepository", "name": BUNDLE}}}}, []
    # A HelmRelease takes no chart from a folder of an OCI artifact; the generator makes an artifact of the folder.
    artifact = f"{name}-{digest}"
    generator = {
        "apiVersion": "source.extensions.fluxcd.io/v1beta1",
        "kind": "ArtifactGenerator",
        "metadata": {"name": artifact, "namespace": NAMESPACE},
        "spec": {
            "sources": [{"alias": "bundle", "kind": "OCIRepository", "name": BUNDLE}],
            "artifacts": [
                {"name": artifact, "copy": [{"from": f"@bundle/{path}/**", "to": f"@artifact/{name}/"}]},
            ],
        },
    }
    return {"chartRef": {"kind": "ExternalArtifact", "name": artifact}}, [generator]


def _release(
    release: Release,
    name: str,
    after: list[dict[str, Any]],
    chart: tuple[dict[str, Any], list[dict[str, Any]]],
    place: str,
) -> list[dict[str, Any]]:
    """The HelmRelease, and before it what it refers to."""
    keeps = release.crds is CrdPolicy.KEEP
    source, objects = chart
    annotations: dict[str, Any] = {"annotations": _KEEP} if keeps else {}
    values: dict[str, Any] = {}
    if release.values:
        text = yamlio.dumps(release.values)
        config_map = f"{name}-values-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        values = {"valuesFrom": [{"kind": "ConfigMap", "name": config_map, "valuesKey": "values.yaml"}]}
        metadata = {"name": config_map, "namespace": NAMESPACE, **annotations}
        objects = [
            *objects,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"values.yaml": text}},
        ]
    labels = {"muster.dev/component": release.component, PLACE_LABEL: place, CRDS_LABEL: release.crds.value}
    return [
        *objects,
        {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, **annotations},
            "spec": {
                **_common(release, name, after),
                **source,
                "install": _action(release, "install"),
                "upgrade": _action(release, "upgrade"),
                "uninstall": {"keepHistory": False, "timeout": f"{release.timeout_s}s"},
                **values,
            },
        },
    ]


def _gate(
    release: Release, after: list[dict[str, Any]], chart: tuple[dict[str, Any], list[dict[str, Any]]], place: str
) -> list[dict[str, Any]]:
    name = gate_name(release)
    source, objects = chart
    retries = {"remediation": {"retries": release.retries}, "disableTakeOwnership": True}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {LABEL: release.name, PLACE_LABEL: place}}
    return [
        *objects,
        {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": metadata,
            "spec": {
                **_common(release, name, after),
                **source,
                # A change of the release's version or values changes these, so that the gate runs again after it.
                "values": {"after": _fingerprint(release)},
                "install": retries,
                "upgrade": retries,
                "uninstall": {"keepHistory": False},
            },
        },
    ]


def _fingerprint(release: Release) -> str:
    told = yamlio.dumps([release.repository, release.chart, release.version, release.values])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _common(release: Release, name: str, after: list[dict[str, Any]]) -> dict[str, Any]:
    depends: dict[str, Any] = {"dependsOn": after} if after else {}
    return {
        "releaseName": name,
        "targetNamespace": release.namespace,
        # Where Helm keeps its record, so that `helm list --namespace` shows the release as with every deployer.
        "storageNamespace": release.namespace,
        **depends,
        "interval": _INTERVAL,
        "timeout": f"{release.timeout_s}s",
    }


def _action(release: Release, verb: str) -> dict[str, Any]:
    """How an installation or upgrade goes: CRDs, waiting, what follows a failure."""
    fields: dict[str, Any] = {
        "crds": "Create" if release.crds is CrdPolicy.INSTALL else "CreateReplace",
        "disableWait": not awaits_objects(release),
        "disableWaitForJobs": not awaits_objects(release),
        # As with the other deployers, objects of somebody else are never taken over in silence.
        "disableTakeOwnership": True,
    }
    if release.crds is CrdPolicy.KEEP:
        # The usual answer to a failed installation is to remove it, and its CRDs with every object of their kinds.
        return fields | {"strategy": {"name": "RetryOnFailure", "retryInterval": "1m"}}
    if verb == "install":
        return fields | {"remediation": {"retries": release.retries, "remediateLastFailure": False}}
    return fields | {
        "remediation": {"retries": release.retries, "remediateLastFailure": False, "strategy": "rollback"}
    }


def _bundle_source(repository: Repository) -> dict[str, Any]:
    metadata = {"name": BUNDLE, "namespace": NAMESPACE}
    if repository.revision == DEFAULT_REVISION and repository.url != UNSET_REPOSITORY:
        raise BadInputError(
            "Flux follows no HEAD; give --revision with a branch, refs/tags/NAME or a commit "
            "(for oci://, a tag or sha256:DIGEST)."
        )
    if repository.is_oci:
        which = "digest" if repository.revision.startswith("sha256:") else "tag"
        return {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "OCIRepository",
            "metadata": metadata,
            "spec": {"url": repository.url, "interval": "1m", "ref": {which: repository.revision}},
        }
    url = repository.url
    if found := _SCP.fullmatch(url):
        url = f"ssh://{found[1]}@{found[2]}/{found[3]}"
    secret = {"secretRef": {"name": GIT_KEY}} if url.startswith("ssh://") else {}
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": metadata,
        "spec": {"url": url, "interval": "1m", "ref": _git_reference(repository.revision), **secret},
    }


def _git_reference(revision: str) -> dict[str, str]:
    if _COMMIT.fullmatch(revision):
        return {"commit": revision}
    if revision.startswith("refs/"):
        return {"name": revision}
    return {"branch": _UNSET_BRANCH if revision == DEFAULT_REVISION else revision}


def _kustomization(repository: Repository) -> dict[str, Any]:
    kind = "OCIRepository" if repository.is_oci else "GitRepository"
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": BUNDLE, "namespace": NAMESPACE},
        "spec": {
            "interval": _INTERVAL,
            "retryInterval": "1m",
            "timeout": "5m",
            "path": f"./{repository.inside('')}".rstrip("/") or "./",
            "prune": True,
            # The HelmReleases do the waiting. A Kustomization that waits takes no new revision until its time is up.
            "wait": False,
            "sourceRef": {"kind": kind, "name": BUNDLE},
        },
    }
