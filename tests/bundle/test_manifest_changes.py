"""`bundle diff`: objects in manifests that change; Kubernetes refuses some of these changes."""

from __future__ import annotations

from typing import Any

import pytest

from muster.configure.recipe import ManifestFile
from muster.configure.upgrade.compare import UpgradeVerdict
from tests.bundle.test_upgrade import change, removal

SAFE, CARE, BLOCKED = UpgradeVerdict.SAFE, UpgradeVerdict.NEEDS_CARE, UpgradeVerdict.BLOCKED


def files(kind: str, **content: Any) -> dict[str, Any]:
    version, _, name = kind.rpartition("/")
    item = {"apiVersion": version or "v1", "kind": name, "metadata": {"name": "x"}, **content}
    return {"post_manifests": (ManifestFile(name="a.yaml", objects=[item]),)}


def size(text: str) -> dict[str, Any]:
    return {"resources": {"requests": {"storage": text}}}


@pytest.mark.parametrize(
    ("kind", "old", "new", "verdict", "text"),
    [
        ("PersistentVolumeClaim", {"spec": size("10Gi")}, {"spec": size("5Gi")}, BLOCKED, "cannot shrink"),
        ("PersistentVolumeClaim", {"spec": size("5Gi")}, {"spec": size("10Gi")}, CARE, "grows"),
        ("PersistentVolumeClaim", {"spec": size("1Gi")}, {"spec": size("1024Mi")}, SAFE, "changed"),
        (
            "PersistentVolumeClaim",
            {"spec": {"storageClassName": "a"}},
            {"spec": {"storageClassName": "b"}},
            BLOCKED,
            "spec.storageClassName cannot be changed in place",
        ),
        ("apps/v1/StatefulSet", {"spec": {"serviceName": "a"}}, {"spec": {"serviceName": "b"}}, BLOCKED, "in place"),
        ("apps/v1/StatefulSet", {"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, SAFE, "StatefulSet.apps x"),
        ("apps/v1/Deployment", {"spec": {"selector": {}}}, {"spec": {"selector": {"a": "b"}}}, BLOCKED, "selector"),
        ("batch/v1/Job", {"spec": {"template": {}}}, {"spec": {"template": {"a": 1}}}, BLOCKED, "template"),
        ("storage.k8s.io/v1/StorageClass", {"provisioner": "a"}, {"provisioner": "b"}, BLOCKED, "provisioner"),
        (
            "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
            {"roleRef": {"name": "a"}},
            {"roleRef": {"name": "b"}},
            BLOCKED,
            "roleRef",
        ),
        ("nodewright.nvidia.com/v1alpha1/NodeWright", {"spec": {}}, {"spec": {"a": 1}}, CARE, "changes nodes"),
        ("nvidia.com/v1/ClusterPolicy", {"spec": {}}, {"spec": {"a": 1}}, CARE, "changes nodes"),
        ("ConfigMap", {"data": {"a": "b"}}, {"data": {"a": "c"}}, SAFE, "objects changed: ConfigMap x"),
        ("ConfigMap", {"immutable": True, "data": {}}, {"immutable": True, "data": {"a": "b"}}, BLOCKED, "data"),
    ],
)
def test_one_object(kind: str, old: dict[str, Any], new: dict[str, Any], verdict: UpgradeVerdict, text: str) -> None:
    found = change(files(kind, **old), files(kind, **new))
    assert found[0] is verdict, found
    assert text in found[1]
    assert change(files(kind, **old), files(kind, **old)) == (SAFE, "")


def test_a_hook_is_made_anew_each_time() -> None:
    hook = {"metadata": {"name": "x", "annotations": {"helm.sh/hook": "post-install"}}}
    old, new = (files("batch/v1/Job", spec={"template": {"a": a}}, **hook) for a in (1, 2))
    assert change(old, new)[0] is SAFE


@pytest.mark.parametrize("kind", ["k8s.mariadb.com/v1alpha1/MariaDB", "psmdb.percona.com/v1/PerconaServerMongoDB"])
def test_a_database_that_goes_takes_its_data_along(kind: str) -> None:
    other = files("ConfigMap")
    both = {"post_manifests": (files(kind)["post_manifests"][0], *other["post_manifests"])}
    verdict, text = change(both, other)
    assert verdict is BLOCKED
    assert "no longer hold" in text


def test_a_component_that_goes_with_a_claim_in_its_manifests_is_blocked() -> None:
    verdict, text = removal(**files("PersistentVolumeClaim"))
    assert verdict is BLOCKED
    assert "PersistentVolumeClaim x" in text
    assert removal(**files("ConfigMap"))[0] is CARE
