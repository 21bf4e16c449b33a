"""Which nodes a template selects: the rules of the scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.configure.live.coverage import selects, untolerated, why_none
from muster.configure.live.kinds import LiveNode, PodPlacement


def node(labels: dict[str, str], *taints: dict[str, str], name: str = "n") -> LiveNode:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}, LiveNode)


def placement(*terms: dict[str, Any], **fields: Any) -> PodPlacement:
    body = dict(fields)
    if terms:
        required = {"nodeSelectorTerms": list(terms)}
        body["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return msgspec.convert(body, PodPlacement)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "labels", "expected"),
    [
        ([expression("a", "In", "1", "2")], {"a": "2"}, True),
        ([expression("a", "In", "1", "2")], {"a": "3"}, False),
        ([expression("a", "In", "1")], {}, False),
        ([expression("a", "NotIn", "1")], {}, True),
        ([expression("a", "NotIn", "1")], {"a": "1"}, False),
        ([expression("a", "Exists")], {"a": ""}, True),
        ([expression("a", "DoesNotExist")], {"a": ""}, False),
        ([expression("a", "Gt", "5")], {"a": "6"}, True),
        ([expression("a", "Gt", "5")], {"a": "5"}, False),
        ([expression("a", "Lt", "5")], {"a": "x"}, False),
        ([expression("a", "Unheard", "5")], {"a": "5"}, False),
        ([expression("a", "Exists"), expression("b", "Exists")], {"b": ""}, True),
        ([{}], {"a": ""}, False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}], {}, True),
    ],
)
def test_required_affinity(terms: list[dict[str, Any]], labels: dict[str, str], expected: bool) -> None:
    assert selects(placement(*terms), node(labels)) is expected


def test_the_selector_and_the_affinity_must_both_hold() -> None:
    both = placement(expression("a", "Exists"), nodeSelector={"b": "1"})
    assert selects(both, node({"a": "", "b": "1"}))
    assert not selects(both, node({"a": ""}))
    assert not selects(both, node({"b": "1"}))


@pytest.mark.parametrize(
    ("toleration", "kept_off"),
    [
        ({"operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "k", "value": "v"}, False),
        ({"key": "k", "operator": "Equal", "value": "w"}, True),
        ({"key": "other", "operator": "Exists"}, True),
        ({}, True),
    ],
)
def test_taints_and_tolerations(toleration: dict[str, str], kept_off: bool) -> None:
    tainted = node({}, {"key": "k", "value": "v", "effect": "NoSchedule"})
    assert bool(untolerated(placement(tolerations=[toleration]), tainted)) is kept_off


def test_a_preference_keeps_nothing_off() -> None:
    assert untolerated(placement(), node({}, {"key": "k", "effect": "PreferNoSchedule"})) == ()


def test_the_reason_names_what_excludes() -> None:
    nodes = [node({"a": "1"}, {"key": "k", "effect": "NoSchedule"}), node({"b": "1"})]
    assert why_none(placement(nodeSelector={"c": "1"}), nodes) == "its node selector c=1 matches no node"
    assert "as a whole" in why_none(placement(nodeSelector={"a": "1", "b": "1"}), nodes)
    assert "k:NoSchedule" in why_none(placement(nodeSelector={"a": "1"}), nodes)
    assert "affinity" in why_none(placement(expression("z", "Exists")), nodes)
    assert "not placed it" in why_none(placement(nodeSelector={"b": "1"}), nodes)
