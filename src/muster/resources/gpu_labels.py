"""Whether the labels of a node say that it has NVIDIA GPUs. Pure.

Several say so at different times: the cloud when it makes the node, Node Feature Discovery when it has looked at the
PCI bus, the GPU Operator when its stack runs. A node of which only an earlier one speaks is a GPU node without its
stack, which is what people must hear of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from muster.resources.base import GPU_PRESENT_LABEL

CLOUD_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "kubernetes.azure.com/accelerator",
)
"""Labels of GKE, EKS, Karpenter and AKS (their manuals); the value begins with `nvidia` on a node with its GPUs."""
_PCI = re.compile(
    r"feature\.node\.kubernetes\.io/pci-(?:03[0-9a-f]{2}_)?10de(?:_[0-9a-f]{1,8}){0,3}\.present", re.ASCII
)
"""Node Feature Discovery names vendor 10de alone, or class and vendor (its default), and more where it is told to."""


def say_gpus(labels: Mapping[str, str]) -> bool:
    """Whether any label says that the node has NVIDIA GPUs."""
    if labels.get(GPU_PRESENT_LABEL) == "true":
        return True
    if any(labels.get(key, "").lower().startswith("nvidia") for key in CLOUD_LABELS):
        return True
    return any(value == "true" and _PCI.fullmatch(key) for key, value in labels.items())
