"""From a Node object to what a provider may know of it. Pure."""

from __future__ import annotations

import msgspec

from muster.operate.providers.provider import NodeFactsForRepair
from muster.resources.base import Model, ObjectMeta


class _Spec(Model, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(name="providerID", default="")


class _NodeInfo(Model, frozen=True, kw_only=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _Condition(Model, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""


class _Status(Model, frozen=True, kw_only=True):
    node_info: _NodeInfo = _NodeInfo()
    conditions: tuple[_Condition, ...] = ()


class _Node(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def node_facts(node: dict[str, object]) -> NodeFactsForRepair:
    """What the Node says. Raises msgspec.ValidationError for something that is no Node."""
    found = msgspec.convert(node, _Node, strict=False)
    ready = any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)
    return NodeFactsForRepair(
        name=found.metadata.name,
        uid=found.metadata.uid,
        provider_id=found.spec.provider_id,
        boot_id=found.status.node_info.boot_id,
        ready=ready,
        labels=found.metadata.labels,
        annotations=found.metadata.annotations,
    )


def absent(name: str) -> NodeFactsForRepair:
    """There is no Node of that name."""
    return NodeFactsForRepair(name=name, present=False)
