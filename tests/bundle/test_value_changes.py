"""`bundle diff`: changes of single values that lose data, end work or hurt later are never called safe."""

from __future__ import annotations

from typing import Any

import pytest

from muster.configure.catalogue import Storage
from muster.configure.upgrade.compare import UpgradeVerdict
from muster.configure.values import parse_path, put
from tests.bundle.made_up import component, recipe_with
from tests.bundle.test_upgrade import between, claim, with_criteria

SAFE, CARE, BLOCKED = UpgradeVerdict.SAFE, UpgradeVerdict.NEEDS_CARE, UpgradeVerdict.BLOCKED
UNSET = object()
STORE = Storage(class_paths=("prometheus.spec.claim.storageClassName",))


def values_of(settings: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"prometheus": {"spec": {"claim": {"size": "50Gi"}}}}
    for path, value in settings.items():
        put(values, parse_path(path), value)
    return values


def verdict_of(name: str, old: dict[str, Any], new: dict[str, Any], storage: Storage = STORE) -> tuple[str, str]:
    before, after = (
        recipe_with(component(name, values=values_of(settings), storage=storage)) for settings in (old, new)
    )
    (found,) = between(before, after).components
    return found.verdict, "\n".join(r.what for r in found.reasons)


@pytest.mark.parametrize(
    ("name", "path", "old", "new", "verdict"),
    [
        ("a", "spec.retention", "10d", "1h", BLOCKED),
        ("a", "spec.retention", "1h30m", "2h", SAFE),
        ("a", "spec.retention", "a while", "1h", CARE),
        ("a", "spec.retention", UNSET, "30d", CARE),
        ("a", "spec.retentionSize", "50GB", "1GB", BLOCKED),
        ("a", "spec.retentionSize", "50GB", "1TB", SAFE),
        ("a", "crds.enabled", True, False, BLOCKED),
        ("a", "crds.enabled", UNSET, False, BLOCKED),
        ("a", "crds.enabled", True, UNSET, BLOCKED),
        ("a", "installCRDs", True, False, BLOCKED),
        ("a", "crds.enabled", False, True, CARE),
        ("a", "crds.keep", True, False, CARE),
        ("a", "crds.keep", False, True, SAFE),
        ("a", "operator.cleanupCRD", UNSET, True, CARE),
        ("a", "operator.cleanupCRD", True, False, SAFE),
        ("a", "prometheus.enabled", UNSET, False, BLOCKED),
        ("a", "grafana.enabled", UNSET, False, CARE),
        ("a", "grafana.enabled", UNSET, True, SAFE),
        ("a", "grafana.enabled", False, UNSET, SAFE),
        ("a", "grafana.persistence.enabled", True, False, BLOCKED),
        ("a", "grafana.persistence.enabled", False, True, CARE),
        ("a", "grafana.persistence.size", "5Gi", "1Gi", BLOCKED),
        ("a", "grafana.persistence.size", "5Gi", "9Gi", CARE),
        ("a", "grafana.persistence.existingClaim", "x", "y", CARE),
        ("a", "alert.volumeClaimTemplate.spec.accessModes", ["ReadWriteOnce"], UNSET, BLOCKED),
        ("a", "spec.storageSpec.emptyDir", None, UNSET, SAFE),
        ("a", "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain", "Delete", CARE),
        ("a", "spec.replicas", 2, 0, CARE),
        ("a", "spec.replicas", 2, 3, SAFE),
        ("gpu-operator", "migManager.config.default", "all-disabled", "all-1g.5gb", CARE),
        ("gpu-operator", "sandboxWorkloads.enabled", UNSET, True, CARE),
        ("gpu-operator", "nfd.enabled", False, True, CARE),
        ("gpu-operator", "driver.version", "1", "2", CARE),
        ("gpu-operator", "driver.upgradePolicy.maxParallelUpgrades", 1, 2, SAFE),
        ("nvsentinel", "global.dryRun", True, False, CARE),
        ("other", "global.dryRun", True, False, SAFE),
    ],
)
def test_one_value(name: str, path: str, old: Any, new: Any, verdict: UpgradeVerdict) -> None:
    before, after = ({} if value is UNSET else {path: value} for value in (old, new))
    found = verdict_of(name, before, after)
    assert found[0] is verdict, found
    assert path.rpartition(".")[2] in found[1]


def test_crds_that_are_kept_stay_when_the_chart_drops_them() -> None:
    kept = {"crds.keep": True}
    found = verdict_of("a", {"crds.enabled": True, **kept}, {"crds.enabled": False, **kept})
    assert found[0] is CARE
    assert "stay as they are" in found[1]
    assert verdict_of("a", {"crds.enabled": True, **kept}, {"crds.enabled": False, "crds.keep": False})[0] is BLOCKED


def test_storage_classes_of_a_provisioner() -> None:
    old: dict[str, Any] = {"storageClasses": [{"name": "gp3"}]}
    new: dict[str, Any] = {"storageClasses": []}
    assert verdict_of("a", old, new, Storage(provides=True))[0] is CARE
    assert verdict_of("a", old, new, Storage())[0] is SAFE


def test_the_same_size_in_another_unit_is_no_change() -> None:
    old, new = (recipe_with(component("a", **claim(size=size))) for size in ("5Gi", "5120Mi"))
    (found,) = between(old, new).components
    assert found.verdict is SAFE


def test_a_service_that_was_not_stated_before_is_no_other_service() -> None:
    found = between(with_criteria(accelerator="h100"), with_criteria(accelerator="h100", service="eks"))
    assert found.verdict is CARE
    assert between(with_criteria(service="eks"), with_criteria(service="gke")).verdict is BLOCKED
