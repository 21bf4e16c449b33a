"""Reads a Helmfile bundle back from `helmfile.yaml`, by the rules of Helmfile."""

from __future__ import annotations

import re
from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy
from tests.bundle.found import Found, manifests_of


def read(files: dict[str, str]) -> list[Found]:
    """The releases. What one `needs` is synced, its hooks included, before it starts."""
    state = yamlio.loads(files["helmfile.yaml"], "helmfile.yaml")
    assert state["helmDefaults"]["wait"] is True
    assert state["helmDefaults"]["waitForJobs"] is True
    repositories = {r["name"]: ("oci://" if r.get("oci") else "") + r["url"] for r in state["repositories"]}
    assert len(repositories) == len(state["repositories"])
    tries = re.search(r"^tries=(\d+)$", files["sync.sh"], re.MULTILINE)
    assert tries
    return [_release(files, entry, repositories, int(tries[1])) for entry in state["releases"]]


def _release(files: dict[str, str], entry: dict[str, Any], repositories: dict[str, str], tries: int) -> Found:
    local = entry["chart"].startswith("./")
    folder = entry["chart"].removeprefix("./")
    alias, _, chart = entry["chart"].partition("/")
    values = f"{folder}/values.yaml" if local else entry["values"][0]
    hooks = {(event, hook["command"]): hook for hook in entry.get("hooks", []) for event in hook["events"]}
    gate = hooks.get(("postsync", "./gate.sh"))
    assert gate is None or gate["args"][:2] == [entry["namespace"], str(entry["timeout"])]
    manifests = manifests_of(files, folder) if local else ()
    # A claim may be bound only by a pod of a later release; nothing else goes unwaited for.
    claims = any(o["kind"] == "PersistentVolumeClaim" for o in manifests)
    assert entry.get("wait", True) is entry.get("waitForJobs", True) is not claims
    return Found(
        name=entry["name"],
        namespace=entry["namespace"],
        chart="" if local else chart,
        repository="" if local else repositories[alias],
        version=entry.get("version", ""),
        values=yamlio.loads(files[values], values),
        after=tuple(needed.rpartition("/")[2] for needed in entry.get("needs", [])),
        timeout_s=entry["timeout"],
        retries=tries,
        crds=_policy(entry, hooks, local),
        gate=Gate.RELEASE_READY if gate is None else Gate.DEPLOYMENTS_AVAILABLE,
        manifests=manifests,
    )


def _policy(entry: dict[str, Any], hooks: dict[tuple[str, str], Any], local: bool) -> CrdPolicy:
    if ("preuninstall", "./keep.sh") in hooks:
        return CrdPolicy.KEEP
    if local:
        # CRDs of a chart in the bundle lie among its templates: Helm brings them up to date without being told.
        return CrdPolicy(entry["labels"]["crds"])
    return CrdPolicy.REPLACE if ("presync", "./crds.sh") in hooks else CrdPolicy.INSTALL
