"""The custom resources that the chart lets a comparison read are those of the catalogue."""

from __future__ import annotations

from pathlib import Path

from muster.configure.catalogue import load
from muster.controller.baseline_rights import kinds, page

FILE = Path(__file__).parents[2] / "deploy/chart/files/baseline-kinds.yaml"


def test_the_file_is_fresh() -> None:
    command = f"python -m muster.controller.baseline_rights {FILE.relative_to(FILE.parents[3])}"
    assert FILE.read_text(encoding="utf-8") == page(load()), f"stale: {command}"


def test_every_health_rule_may_be_looked_at() -> None:
    found = kinds(load())
    rules = [rule for component in load().components.values() for rule in component.health]
    assert rules
    for rule in rules:
        group = rule.api_version.rpartition("/")[0]
        assert group, f"{rule.kind} is built in: add it to deploy/chart/templates/rbac-baselines.yaml"
        assert rule.plural in found[group]
