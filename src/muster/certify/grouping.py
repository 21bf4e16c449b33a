"""From nodes to cells: which nodes can be tested together, along which topology, and which cannot be tested at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.certify.isolation.plan import Cell, Member, UntestedNode
from muster.resources.base import CORDON_ANNOTATION, GPU_PRODUCT_LABEL
from muster.resources.certification import Reason
from muster.resources.topology import domain_of

PLATFORMS = {"aws": "aws", "gce": "gcp", "azure": "azure", "oci": "oci", "ocid1": "oci"}
"""Platform by the scheme of `Node.spec.providerID`."""


@dataclass(frozen=True)
class NodeFacts:
    """What grouping needs to know about a node."""

    name: str
    uid: str
    boot_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    gpus: int = 0
    """Allocatable GPUs."""
    ready: bool = True
    unschedulable: bool = False
    cordoned_by_muster: bool = False
    fingerprint: str = ""
    """Digest over the identity and stack readings of the agent, empty when there is no agent."""

    @property
    def product(self) -> str:
        return self.labels.get(GPU_PRODUCT_LABEL, "")

    @property
    def identity(self) -> str:
        """Changes when the node is replaced, reboots, or its hardware or stack changes."""
        parts = "\n".join((self.uid, self.boot_id, self.fingerprint))
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


def platform_of(provider_id: str) -> str:
    """`aws`, `gcp`, `azure`, `oci`, or empty when the provider ID tells none of them."""
    return PLATFORMS.get(provider_id.partition(":")[0].partition(".")[0], "")


def why_untested(name: str, facts: NodeFacts | None) -> UntestedNode | None:
    """Why a node cannot take part, or None."""
    if facts is None:
        return UntestedNode(name=name, reason=Reason.SCHEDULING, message="There is no node with this name.")
    if not facts.ready:
        return UntestedNode(name=name, reason=Reason.SCHEDULING, message="The node is not Ready.")
    if facts.unschedulable and not facts.cordoned_by_muster:
        message = f"A person cordoned the node (no annotation {CORDON_ANNOTATION})."
        return UntestedNode(name=name, reason=Reason.SCHEDULING, message=message)
    if facts.gpus < 1:
        return UntestedNode(name=name, reason=Reason.HARDWARE, message="The node offers no GPU.")
    return None


def cells_of(
    targets: Sequence[str], partners: Sequence[str], facts: Mapping[str, NodeFacts]
) -> tuple[tuple[Cell, ...], tuple[UntestedNode, ...]]:
    """Cells of equal architecture (product and GPU count), and the targets that cannot be tested.

    A partner that cannot take part is left out. Cells and their members are sorted, members along the topology.
    """
    untested = []
    by_kind: dict[tuple[str, int], tuple[list[NodeFacts], list[NodeFacts]]] = {}
    for borrowed, names in ((False, targets), (True, partners)):
        for name in sorted(set(names) - (set(targets) if borrowed else set())):
            known = facts.get(name)
            reason = why_untested(name, known)
            if known is None or reason is not None:
                if reason is not None and not borrowed:
                    untested.append(reason)
                continue
            by_kind.setdefault((known.product, known.gpus), ([], []))[borrowed].append(known)
    cells = tuple(
        Cell(
            product=product,
            platform=_one([platform_of(n.provider_id) for n in (*mine, *lent)]),
            gpus=gpus,
            targets=_members(mine),
            partners=_members(lent),
        )
        for (product, gpus), (mine, lent) in sorted(by_kind.items())
        if mine
    )
    return cells, tuple(sorted(untested, key=lambda u: u.name))


def _members(nodes: Sequence[NodeFacts]) -> tuple[Member, ...]:
    members = [Member(name=n.name, domain=domain_of(n.labels) or "", identity=n.identity) for n in nodes]
    return tuple(sorted(members, key=lambda m: (m.domain, m.name)))


def _one(platforms: Sequence[str]) -> str:
    """The platform that all share, or none: a floor of one platform must not judge another."""
    return platforms[0] if platforms and all(p == platforms[0] for p in platforms) else ""
