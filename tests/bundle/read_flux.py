"""Reads a Flux bundle back from the objects that Flux applies, by the rules of its controllers."""

from __future__ import annotations

import re
from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy
from tests.bundle.found import Found, manifests_of

_PRUNE = "kustomize.toolkit.fluxcd.io/prune"


def objects(files: dict[str, str]) -> list[dict[str, Any]]:
    """What the Kustomization at the root applies."""
    root = yamlio.loads(files["kustomization.yaml"], "kustomization.yaml")
    return [o for name in root["resources"] for o in yamlio.loads_all(files[name], name) if o is not None]


def read(files: dict[str, str]) -> list[Found]:
    """The releases; a gate between a release and its dependents is read as the gate of the release."""
    applied = objects(files)
    by_kind = {(o["kind"], o["metadata"]["name"]): o for o in applied}
    assert len(by_kind) == len(applied)
    releases = {name: o for (kind, name), o in by_kind.items() if kind == "HelmRelease"}
    gates = {
        name: _gated(files, by_kind, o)
        for name, o in releases.items()
        if "muster.dev/gate" in o["metadata"]["labels"]
    }
    found = []
    for name, release in releases.items():
        if name not in gates:
            after = [needed["name"] for needed in release["spec"].get("dependsOn", [])]
            # Whoever waits for a release with a gate has to wait for the gate as well.
            assert all(gate in after for gate, of in gates.items() if of in after)
            gate = Gate.DEPLOYMENTS_AVAILABLE if name in gates.values() else Gate.RELEASE_READY
            found.append(_release(files, by_kind, release, tuple(n for n in after if n not in gates), gate))
    return found


def _gated(files: dict[str, str], by_kind: dict[tuple[str, str], Any], gate: dict[str, Any]) -> str:
    """The release that the gate stands behind; checks that the gate waits for it and looks at its Deployments."""
    name: str = gate["metadata"]["labels"]["muster.dev/gate"]
    assert [needed["name"] for needed in gate["spec"]["dependsOn"]] == [name]
    job = next(o for o in manifests_of(files, _folder(gate, by_kind)) if o["kind"] == "Job")
    wanted = by_kind[("HelmRelease", name)]["spec"]
    for container in (
        job["spec"]["template"]["spec"]["initContainers"][0],
        *job["spec"]["template"]["spec"]["containers"],
    ):
        assert container["args"][:4] == [
            "wait", "deployment", "--all", f"--namespace={wanted['targetNamespace']}",
        ]  # fmt: skip
    return name


def _folder(release: dict[str, Any], by_kind: dict[tuple[str, str], Any]) -> str:
    """Folder of a chart in the bundle; the folder of the bundle in its repository is cut off."""
    if "chartRef" in release["spec"]:
        reference = release["spec"]["chartRef"]
        assert reference["kind"] == "ExternalArtifact"
        artifact = by_kind[("ArtifactGenerator", reference["name"])]["spec"]["artifacts"][0]
        assert artifact["name"] == reference["name"]
        source = artifact["copy"][0]["from"]
        path = source.removeprefix("@bundle/").removesuffix("/**")
    else:
        path = release["spec"]["chart"]["spec"]["chart"].removeprefix("./")
    return "charts/" + path.rpartition("charts/")[2]


def _release(
    files: dict[str, str],
    by_kind: dict[tuple[str, str], Any],
    release: dict[str, Any],
    after: tuple[str, ...],
    gate: Gate,
) -> Found:
    spec = release["spec"]
    assert spec["targetNamespace"] == spec["storageNamespace"]
    chart = spec.get("chart", {}).get("spec", {})
    local = "chartRef" in spec or chart["sourceRef"]["kind"] == "GitRepository"
    source = {} if local else by_kind[(chart["sourceRef"]["kind"], chart["sourceRef"]["name"])]["spec"]
    if source:
        assert (source.get("type") == "oci") == source["url"].startswith("oci://")
    manifests = manifests_of(files, _folder(release, by_kind)) if local else ()
    # A claim may be bound only by a pod of a later release; nothing else goes unwaited for.
    claims = any(o["kind"] == "PersistentVolumeClaim" for o in manifests)
    for action in (spec["install"], spec["upgrade"]):
        assert action["disableWait"] is action["disableWaitForJobs"] is claims
    timeout = re.fullmatch(r"(\d+)s", spec["timeout"])
    assert timeout
    retries = {action.get("remediation", {}).get("retries") for action in (spec["install"], spec["upgrade"])}
    assert len(retries) == 1
    return Found(
        name=spec["releaseName"],
        namespace=spec["targetNamespace"],
        chart="" if local else chart["chart"],
        repository="" if local else source["url"],
        version="" if local else chart["version"],
        values=_values(by_kind, spec),
        after=after,
        timeout_s=int(timeout[1]),
        # None: tried again without end.
        retries=retries.pop(),
        crds=_policy(release),
        gate=gate,
        manifests=manifests,
    )


def _values(by_kind: dict[tuple[str, str], Any], spec: dict[str, Any]) -> Any:
    assert "values" not in spec
    if not spec.get("valuesFrom"):
        return {}
    (source,) = spec["valuesFrom"]
    return yamlio.loads(by_kind[(source["kind"], source["name"])]["data"][source["valuesKey"]], source["name"])


def _policy(release: dict[str, Any]) -> CrdPolicy:
    spec = release["spec"]
    policies = {spec["install"]["crds"], spec["upgrade"]["crds"]}
    if policies == {"Create"}:
        return CrdPolicy.INSTALL
    assert policies == {"CreateReplace"}
    kept = release["metadata"].get("annotations", {}).get(_PRUNE) == "disabled"
    # The other answer to a failed installation is to uninstall, and that takes the CRDs away.
    survives = all(spec[verb].get("strategy", {}).get("name") == "RetryOnFailure" for verb in ("install", "upgrade"))
    assert kept == survives
    return CrdPolicy.KEEP if kept else CrdPolicy.REPLACE
