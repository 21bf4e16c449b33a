"""Where a node sits, read from its labels."""

from __future__ import annotations

from collections.abc import Mapping

DOMAIN_LABELS = (
    "nvidia.com/gpu.clique",
    "topology.muster.dev/domain",
    "network.topology.nvidia.com/accelerator",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/block",
)
"""Labels that name the failure domain of a node (NVLink domain, rack, block), in order of preference."""

POOL_LABELS = (
    "topology.muster.dev/pool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)


def domain_of(labels: Mapping[str, str]) -> str | None:
    """The failure domain of a node, or None when no label tells."""
    return next((labels[name] for name in DOMAIN_LABELS if labels.get(name)), None)


def pool_of(labels: Mapping[str, str]) -> str:
    """The pool of a node; nodes without a pool label share the pool `default`."""
    return next((labels[name] for name in POOL_LABELS if labels.get(name)), "default")
