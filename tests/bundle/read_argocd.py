"""Reads back what Argo CD would make of a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy
from tests.bundle.found import Found, manifests_of

WAVE = "argocd.argoproj.io/sync-wave"
HEALTH = "resource.customizations.health.argoproj.io_Application"


def read(files: dict[str, str]) -> list[Found]:
    """Releases of an `argocd` bundle."""
    parent = yamlio.loads(files["app-of-apps.yaml"], "app-of-apps.yaml")
    assert parent["spec"]["source"]["path"].endswith("applications")
    folder = parent["spec"]["source"]["path"].removesuffix("applications")
    names = sorted(name for name in files if name.startswith("applications/"))
    documents = [yamlio.loads(files[name], name) for name in names]
    return releases_of(documents, files, folder)


def releases_of(documents: Sequence[Any], files: Mapping[str, str], folder: str) -> list[Found]:
    """Releases from Applications. `folder` is where the bundle lies in its repository, "" or ending in a slash."""
    names = [d["metadata"]["name"] for d in documents]
    assert len(names) == len(set(names)), "one Application would overwrite another"
    rule = yamlio.loads(files["argocd-cm.yaml"], "argocd-cm.yaml")
    # Without the rule the health of an Application is not assessed, and all waves start at once.
    waits = "muster.dev/component" in rule["data"].get(HEALTH, "")
    waves = {d["metadata"]["name"]: int(d["metadata"]["annotations"][WAVE]) for d in documents}
    gates = {d["metadata"]["name"]: d for d in documents if _is_gate(d, files, folder)}
    found = []
    for document in documents:
        name = document["metadata"]["name"]
        if name in gates:
            continue
        spec, source = document["spec"], document["spec"]["source"]
        assert waits
        assert document["metadata"]["labels"]["muster.dev/component"]
        assert spec["syncPolicy"]["automated"]["selfHeal"] is True
        gate = next((g for g in gates if g == f"{name}-gate" and waves[g] > waves[name]), None)
        chart, repository, version, path = _chart(source, folder)
        manifests = manifests_of(files, path) if path else ()
        # A claim may be bound only by a pod of a later release; nothing else goes unwaited for.
        claims = any(o["kind"] == "PersistentVolumeClaim" for o in manifests)
        assert (document["metadata"]["annotations"].get("muster.dev/awaits") == "nothing") is claims
        found.append(
            Found(
                name=source["helm"]["releaseName"],
                namespace=spec["destination"]["namespace"],
                chart=chart,
                repository=repository,
                version=version,
                values=yamlio.loads(source["helm"]["values"], name),
                after=tuple(sorted(n for n in waves if waves[n] < waves[name] and n not in gates)),
                timeout_s=int(document["metadata"]["annotations"]["muster.dev/timeout-s"]),
                retries=spec["syncPolicy"]["retry"]["limit"],
                crds=_crds(document),
                gate=Gate.DEPLOYMENTS_AVAILABLE if gate else Gate.RELEASE_READY,
                manifests=manifests,
            )
        )
        if gate:
            later = [w for n, w in waves.items() if n not in gates and w > waves[name]]
            assert all(w > waves[gate] for w in later), "something starts beside the gate"
    return found


def _chart(source: dict[str, Any], folder: str) -> tuple[str, str, str, str]:
    """(chart, repository, version, folder in the bundle)."""
    address = source["repoURL"]
    if "chart" in source:
        assert not address.startswith("oci://"), "Argo CD wants OCI chart repositories without the scheme"
        repository = address if "://" in address else f"oci://{address}"
        return source["chart"], repository, source["targetRevision"], ""
    if source["path"] == ".":
        repository, _, chart = address.rpartition("/")
        return chart, repository, source["targetRevision"], ""
    assert source["path"].startswith(folder)
    return "", "", "", source["path"].removeprefix(folder)


def _is_gate(document: Any, files: Mapping[str, str], folder: str) -> bool:
    """Whether the Application holds a Job that waits for every Deployment of its namespace."""
    path = document["spec"]["source"].get("path", ".")
    if path == ".":
        return False
    jobs = [o for o in manifests_of(files, path.removeprefix(folder)) if o["kind"] == "Job"]
    namespace = document["spec"]["destination"]["namespace"]
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        wanted = {"wait", "deployment", "--all", f"--namespace={namespace}", "--for=condition=Available"}
        if any(wanted <= set(c.get("args", ())) for c in pod["containers"]):
            # A hook alone would leave the Application Synced, and nothing would ever run it.
            assert "helm.sh/hook" not in job["metadata"].get("annotations", {})
            return True
    return False


def _crds(document: Any) -> CrdPolicy:
    spec = document["spec"]
    assert "ServerSideApply=true" in spec["syncPolicy"]["syncOptions"], "large CRDs do not fit into client-side apply"
    assert not spec["source"]["helm"].get("skipCrds")
    kept = "finalizers" not in document["metadata"] and spec["syncPolicy"]["automated"]["prune"] is False
    return CrdPolicy.KEEP if kept else CrdPolicy.REPLACE
