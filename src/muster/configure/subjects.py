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
    """One node, or a cluster and its GPU nodes. A cluster that shows no GPU node yields one that is unknown.

    What a snapshot contradicts itself about is not known.
    """
    values, reasons = _settled(snapshot.readings, snapshot.unknown)
    if isinstance(snapshot, NodeSnapshot):
        return (Subject(f"node {snapshot.node}", values, reasons=reasons),)
    cluster = Subject("cluster", values, is_cluster=True, reasons=reasons)
    nodes = tuple(_nodes(snapshot.nodes))
    if not nodes:
        why = reasons.get("nodes", "the snapshot shows no node with GPUs")
        nodes = (Subject("GPU nodes", {}, reason=why),)
    return (cluster, *nodes)


def _nodes(entries: Iterable[NodeEntry]) -> Iterator[Subject]:
    for entry in entries:
        name = f"node {entry.node}"
        values, reasons = _settled(entry.readings, entry.unknown)
        reported, contradicted = _settled(entry.reported, ())
        # The agent stands on the machine; the Node object is what the kubelet said about it.
        readings = {n: v for n, v in reported.items() if n not in reasons} | values
        if say_gpus(entry.labels) or any(readings.get(count, "0") not in ("0", "") for count in GPU_COUNTS):
            yield Subject(name, readings, labels=entry.labels, reasons=contradicted | reasons)
        elif "gpu.count" in reasons:
            yield Subject(name, {}, reason=f"its GPUs could not be counted: {reasons['gpu.count']}")


def _settled(readings: Iterable[Reading], unknown: Iterable[UnknownReading]) -> tuple[dict[str, str], dict[str, str]]:
    """Values by name, and why others are not known: those that could not be read or that differ from themselves."""
    said: dict[str, set[str]] = {}
    for reading in readings:
        said.setdefault(reading.name, set()).add(reading.value)
    reasons = {n: f"the snapshot says {' and '.join(sorted(v))}" for n, v in said.items() if len(v) > 1}
    reasons |= {entry.name: entry.reason for entry in unknown}
    return {name: next(iter(values)) for name, values in said.items() if name not in reasons}, reasons
