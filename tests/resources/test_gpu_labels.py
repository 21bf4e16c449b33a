"""Who says that a node has GPUs, in every spelling that is in use."""

from __future__ import annotations

import pytest

from muster.resources.gpu_labels import say_gpus

NFD = "feature.node.kubernetes.io/"


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        {f"{NFD}pci-10de.present": "true"},
        {f"{NFD}pci-0302_10de.present": "true"},
        {f"{NFD}pci-0300_10de.present": "true"},
        {f"{NFD}pci-0302_10de_2330.present": "true"},
        {f"{NFD}pci-0302_10de_2330_10de_16c1.present": "true"},
        {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        {"kubernetes.azure.com/accelerator": "nvidia"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-h100"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
    ],
)
def test_a_node_with_gpus(labels: dict[str, str]) -> None:
    assert say_gpus({"kubernetes.io/os": "linux", **labels})


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"nvidia.com/gpu.present": "false"},
        {f"{NFD}pci-0200_15b3.present": "true"},
        {f"{NFD}pci-0302_1002.present": "true"},
        {f"{NFD}pci-0302_10de.present": "false"},
        {f"{NFD}pci-0302_10de.sriov.capable": "true"},
        {f"x{NFD}pci-10de.present": "true"},
        {"cloud.google.com/gke-accelerator": "tpu"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"},
    ],
)
def test_a_node_without(labels: dict[str, str]) -> None:
    assert not say_gpus(labels)
