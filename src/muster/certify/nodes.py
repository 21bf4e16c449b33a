"""What the certification knows about nodes: slim projections, and whether a node is still the one that started."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster.resources.base import (
    CORDON_ANNOTATION,
    GPU_PRODUCT_LABEL,
    GPU_RESOURCE,
    HOLD_TAINT,
    ObjectMeta,
)
from muster.resources.fingerprint import ReadingClass, class_digest
from muster.resources.node_health import NodeHealth, Standing
from muster.resources.topology import domain_of

CLIQUE_LABEL = "nvidia.com/gpu.clique"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
PLATFORMS = {"aws": "aws", "gce": "gcp", "azure": "azure", "oci": "oci", "ocid1": "oci"}
"""Scheme of `spec.providerID` -> platform, as the cloud providers' controllers write it."""

UNKNOWN = "-"
"""Part of an identity that nobody reported. It is equal to everything: what is not known did not change."""


@dataclass(frozen=True)
class NodeFacts:
    """What is kept of a Node."""

    name: str
    uid: str = ""
    boot_id: str = ""
    ready: bool = True
    product: str = ""
    platform: str = ""
    instance_type: str = ""
    domain: str = ""
    clique: str = ""
    """NVLink domain, empty when the node is in none or no label tells."""
    gpus: int = 0
    """Whole GPUs that the node offers now (allocatable)."""
    cordoned: bool = False
    """A person made it unschedulable; what Muster cordons itself does not count."""
    held_for: str = ""
    """Why Muster holds it (value of the hold taint); empty when it does not."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HealthFacts:
    """What is kept of a NodeHealth."""

    node_uid: str = ""
    boot_id: str = ""
    fingerprint: str = ""
    stack: str = ""
    """Digest of the readings of class stack: equals are comparable."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the valid certificate, by `test.metric_unit`, if it was issued for the stack of now."""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[_Condition, ...] = ()
    allocatable: dict[str, str | int] = {}
    node_info: _NodeInfo = _NodeInfo()


class _Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(name="providerID", default="")
    unschedulable: bool = False
    taints: tuple[_Taint, ...] = ()


class _Node(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_node_decoder = msgspec.json.Decoder(_Node, strict=False)
_health_decoder = msgspec.json.Decoder(NodeHealth, strict=False)


def node_facts(raw: bytes) -> NodeFacts:
    """Project a Node. Raises msgspec.MsgspecError."""
    node = _node_decoder.decode(raw)
    labels = node.metadata.labels
    offered = str(node.status.allocatable.get(GPU_RESOURCE, 0))
    scheme = node.spec.provider_id.partition(":")[0].partition(".")[0]
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot_id=node.status.node_info.boot_id,
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
        product=labels.get(GPU_PRODUCT_LABEL, ""),
        platform=PLATFORMS.get(scheme, ""),
        instance_type=labels.get(INSTANCE_TYPE_LABEL, ""),
        domain=domain_of(labels) or "",
        clique=labels.get(CLIQUE_LABEL, ""),
        gpus=_count(offered),
        cordoned=node.spec.unschedulable and CORDON_ANNOTATION not in node.metadata.annotations,
        held_for=next((t.value for t in node.spec.taints if t.key == HOLD_TAINT), ""),
        # Thousands of nodes bear the same few labels: one copy of each text is kept.
        labels={sys.intern(key): sys.intern(value) for key, value in labels.items()},
    )


def health_facts(raw: bytes) -> HealthFacts:
    """Project a NodeHealth. Raises msgspec.MsgspecError."""
    status = _health_decoder.decode(raw).status
    observed = status.observed
    if observed is None:
        return HealthFacts()
    stack = class_digest(observed.fingerprint.readings, (ReadingClass.STACK,))
    certificate = status.lifecycle.certificate if status.lifecycle else None
    metrics: dict[str, float] = {}
    if (
        certificate is not None
        and certificate.standing is Standing.VALID
        and certificate.node_uid == observed.node_uid
        and (
            # Mostly nothing has changed, and to see that costs a tenth of a digest.
            certificate.fingerprint.readings == observed.fingerprint.readings
            or class_digest(certificate.fingerprint.readings, (ReadingClass.STACK,)) == stack
        )
    ):
        for test in certificate.tests:
            metrics.update(test.metrics)
    return HealthFacts(
        node_uid=observed.node_uid,
        boot_id=observed.boot_id,
        fingerprint=observed.fingerprint.digest,
        stack=stack,
        metrics=metrics,
    )


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def identity(node: NodeFacts, health: HealthFacts | None) -> str:
    """Digests of UID, boot ID and fingerprint, joined: equal as long as nothing changed."""
    mine = health if health is not None and health.node_uid == node.uid else HealthFacts()
    return ".".join(_short(part) for part in (node.uid, node.boot_id or mine.boot_id, mine.fingerprint))


_CHANGES = ("was replaced by another node of that name", "rebooted", "changed its fingerprint")


def change_since(before: str, node: NodeFacts | None, health: HealthFacts | None) -> str:
    """What happened to the node since `identity` gave `before`, as the rest of a sentence; empty when nothing did."""
    if node is None:
        return "vanished from the cluster"
    now = identity(node, health)
    for old, new, what in zip(before.split("."), now.split("."), _CHANGES, strict=False):
        if UNKNOWN not in (old, new) and old != new:
            return what
    return ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else UNKNOWN
