"""Clusters and nodes out of snapshots, as far as the constraints of a recipe ask about them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from muster.configure.satisfaction import Subject
from muster.configure.snapshot.model import ClusterSnapshot, NodeEntry
from muster.inventory.record import NodeSnapshot, UnknownReading
from muster.resources.fingerprint import Reading
from muster.resources.gpu_labels import say_gpus

GPU_COUNTS: Final = ("capacity.nvidia.com/gpu", "gpu.count")
"""Readings that count GPUs: the node's capacity, and what the agent found."""


def subjects_of(snapshot: NodeSnapshot | ClusterSnapshot) -> tuple[Subject, ...]:
    """One node, or a cluster and its GPU nodes. A cluster that shows no GPU node yields one that is unknown."""
    if isinstance(snapshot, NodeSnapshot):
        name = f"node {snapshot.node}"
        return (Subject(name, _values(snapshot.readings), reasons=_reasons(snapshot.unknown)),)
    reasons = _reasons(snapshot.unknown)
    cluster = Subject("cluster", _values(snapshot.readings), is_cluster=True, reasons=reasons)
    nodes = tuple(_nodes(snapshot.nodes))
    if not nodes:
        why = reasons.get("nodes", "the snapshot shows no node with GPUs")
        nodes = (Subject("GPU nodes", {}, reason=why),)
    return (cluster, *nodes)


def _nodes(entries: Iterable[NodeEntry]) -> Iterator[Subject]:
    for entry in entries:
        # The agent stands on the machine; the Node object is what the kubelet said about it.
        readings = _values(entry.reported) | _values(entry.readings)
        if say_gpus(entry.labels) or any(readings.get(name, "0") not in ("0", "") for name in GPU_COUNTS):
            reasons = _reasons(entry.unknown)
            yield Subject(f"node {entry.node}", readings, labels=entry.labels, reasons=reasons)


def _values(readings: Iterable[Reading]) -> dict[str, str]:
    return {reading.name: reading.value for reading in readings}


def _reasons(unknown: Iterable[UnknownReading]) -> dict[str, str]:
    return {entry.name: entry.reason for entry in unknown}
