"""What changes in objects of manifests mean: those that go, and fields that Kubernetes does not change in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from muster.configure.plan import Release
from muster.configure.upgrade.storage import same_quantity, shrinks
from muster.configure.upgrade.verdicts import Reason, blocked, care, safe
from muster.configure.values import Path, get, same

_FIXED: Final[Mapping[str, tuple[Path, ...]]] = {
    "ClusterRoleBinding.rbac.authorization.k8s.io": (("roleRef",),),
    "DaemonSet.apps": (("spec", "selector"),),
    "Deployment.apps": (("spec", "selector"),),
    "Job.batch": (("spec", "template"), ("spec", "selector"), ("spec", "completionMode")),
    "PersistentVolumeClaim": tuple(
        ("spec", key)
        for key in ("storageClassName", "accessModes", "volumeMode", "selector", "volumeName", "dataSource")
    ),
    "RoleBinding.rbac.authorization.k8s.io": (("roleRef",),),
    "StatefulSet.apps": tuple(
        ("spec", key) for key in ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy")
    ),
    "StorageClass.storage.k8s.io": (
        ("provisioner",),
        ("parameters",),
        ("reclaimPolicy",),
        ("volumeBindingMode",),
    ),
}
"""Kind -> fields that the API server refuses to change."""
_HOLDING_DATA: Final = frozenset(
    {
        "MariaDB.k8s.mariadb.com",
        "Namespace",
        "PerconaServerMongoDB.psmdb.percona.com",
        "PersistentVolume",
        "PersistentVolumeClaim",
    }
)
_CHANGES_NODES: Final = frozenset(
    {
        "ClusterPolicy.nvidia.com",
        "NicClusterPolicy.mellanox.com",
        "NodeWright.nodewright.nvidia.com",
        "NVIDIADriver.nvidia.com",
        "Skyhook.skyhook.nvidia.com",
    }
)
"""Kinds whose operator brings nodes into line with them: it drains them, restarts them or replaces drivers."""
_SIZE: Final = ("spec", "resources", "requests", "storage")
_SHOWN = 6


def manifest_changes(before: Iterable[Release], after: Iterable[Release]) -> Iterator[Reason]:
    """Reasons about objects that go or change between the releases of a component."""
    old, new = _objects(before), _objects(after)
    lost = sorted(old.keys() - new.keys())
    risky = [
        name for name in lost if _kind(old[name]) in _HOLDING_DATA or name.startswith("CustomResourceDefinition.")
    ]
    if risky:
        yield blocked(
            f"the manifests no longer hold {_some(risky)}", "save what is in them, or keep them in the manifests"
        )
    if rest := [name for name in lost if name not in risky]:
        yield care(f"the manifests no longer hold {_some(rest)}", "make sure that nobody uses these objects")
    harmless: list[str] = []
    for name in sorted(old.keys() & new.keys()):
        if same(old[name], new[name]):
            continue
        found = list(_changes(name, old[name], new[name]))
        yield from found
        if not found:
            harmless.append(name)
    if harmless:
        yield safe(f"objects changed: {_some(harmless)}")


def _changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    annotations = get(new, ("metadata", "annotations"))
    if isinstance(annotations, Mapping) and "helm.sh/hook" in annotations:
        return  # made anew at each deployment
    kind = _kind(new)
    fixed = _FIXED.get(kind, ())
    if kind in ("ConfigMap", "Secret") and old.get("immutable") is True:
        fixed = (("data",), ("binaryData",), ("stringData",), ("immutable",))
    changed = [path for path in fixed if not same(get(old, path), get(new, path))]
    if changed:
        fields = ", ".join(".".join(path) for path in changed)
        yield blocked(
            f"{name}: {fields} cannot be changed in place",
            "keep the old value, or save what depends on the object and delete it before deploying",
        )
    if kind in _CHANGES_NODES and not same(old.get("spec"), new.get("spec")):
        yield care(
            f"{name} changes: its operator changes nodes, and work on them may end",
            "deploy while the nodes are drained, or node by node",
        )
    earlier, later = get(old, _SIZE), get(new, _SIZE)
    if kind == "PersistentVolumeClaim" and earlier != later and not same_quantity(earlier, later):
        if shrinks(earlier, later):
            yield blocked(f"{name}: {earlier} -> {later}; a volume cannot shrink", "keep the size")
        else:
            yield care(f"{name} grows: {earlier} -> {later}", "make sure that its storage class allows that")


def _objects(releases: Iterable[Release]) -> dict[str, Mapping[str, Any]]:
    return {_identity(o): o for release in releases for file in release.manifests for o in file.objects or ()}


def _kind(item: Mapping[str, Any]) -> str:
    group = str(item.get("apiVersion", "")).rpartition("/")[0]
    return f"{item.get('kind', '?')}.{group}" if group else str(item.get("kind", "?"))


def _identity(item: Mapping[str, Any]) -> str:
    """`ConfigMap namespace/name` for an object: what Kubernetes tells objects apart by."""
    metadata = item.get("metadata")
    found = metadata if isinstance(metadata, Mapping) else {}
    name = str(found.get("name") or found.get("generateName") or "?")
    return f"{_kind(item)} {found['namespace']}/{name}" if found.get("namespace") else f"{_kind(item)} {name}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
