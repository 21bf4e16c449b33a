"""From resources to ledger records: which pods count as work, what a node's history says. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from muster.operate.ledger import Interval, NodeRecord, RungTime
from muster.resources.base import CERTIFICATION_LABEL, GPU_RESOURCE
from muster.resources.node_health import NodeHealth, Transition
from muster.resources.repair import Repair


class _Times(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _ContainerState(msgspec.Struct):
    running: _Times | None = None
    terminated: _Times | None = None


class _ContainerStatus(msgspec.Struct):
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Resources(msgspec.Struct):
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}


class _Container(msgspec.Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    owner_references: tuple[_Owner, ...] = ()


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class PodUse(msgspec.Struct, frozen=True):
    """What one pod says about the use of its node.

    `counts` is True for a pod of a user that asks for a GPU and is bound to a node. `started` and `finished` are None
    where the kubelet has not told. `job` is what the pod belongs to, as `namespace/name`.
    """

    uid: str
    node: str
    counts: bool
    running: bool = False
    ended: bool = False
    started: datetime | None = None
    finished: datetime | None = None
    job: str = ""


JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels by which operators of training jobs mark their pods; the first that is there counts. A JobSet makes Jobs, so
its own label comes before theirs."""

_pods = msgspec.json.Decoder(_Pod)


def pod_use(raw: bytes) -> PodUse:
    """Read one pod's JSON. Test pods of a certification are no user's work. Raises msgspec.MsgspecError."""
    pod = _pods.decode(raw)
    meta, status = pod.metadata, pod.status
    is_test = CERTIFICATION_LABEL in meta.labels
    counts = bool(pod.spec.node_name) and not is_test and any(_asks_for_gpu(c.resources) for c in pod.spec.containers)
    uid = meta.uid or f"{meta.namespace}/{meta.name}"
    if not counts:
        return PodUse(uid=uid, node=pod.spec.node_name, counts=False)
    states = [s.state for s in status.container_statuses]
    times = [t for s in states for t in (s.running, s.terminated) if t is not None]
    starts = [t.started_at for t in times if t.started_at is not None]
    ends = [t.finished_at for t in times if t.finished_at is not None]
    ended = status.phase in ("Succeeded", "Failed")
    return PodUse(
        uid=uid,
        node=pod.spec.node_name,
        counts=True,
        running=status.phase == "Running",
        ended=ended,
        started=min(starts, default=status.start_time),
        finished=max(ends, default=None) if ended else None,
        job=_job_of(meta),
    )


def _job_of(meta: _Meta) -> str:
    """The job of a pod: by label, else the controller that owns it, else the pod itself."""
    name = next((meta.labels[label] for label in JOB_LABELS if meta.labels.get(label)), "")
    owner = next((o.name for o in meta.owner_references if o.controller), "")
    return f"{meta.namespace}/{name or owner or meta.name}"


def _asks_for_gpu(resources: _Resources) -> bool:
    asked = resources.limits.get(GPU_RESOURCE, resources.requests.get(GPU_RESOURCE, 0))
    return str(asked) not in ("", "0")


def intervals_of(uses: Iterable[PodUse]) -> dict[str, list[Interval]]:
    """Busy intervals per node from pods that still exist; a pod without a known start says nothing."""
    found: dict[str, list[Interval]] = {}
    for use in uses:
        if not use.counts or use.started is None or not (use.running or use.ended):
            continue
        if use.ended and use.finished is None:
            continue
        found.setdefault(use.node, []).append(Interval(use.started, use.finished))
    return found


def rung_times(repairs: Iterable[Repair]) -> dict[str, list[RungTime]]:
    """Per node when which rung was ordered."""
    found: dict[str, list[RungTime]] = {}
    for repair in sorted(repairs, key=lambda r: r.metadata.name):
        ordered = repair.metadata.creation_timestamp or repair.status.started_at
        if ordered is not None:
            found.setdefault(repair.spec.node_name, []).append(RungTime(ordered, repair.spec.rung.value))
    return found


def history_of(health: NodeHealth) -> tuple[Transition, ...]:
    life = health.status.lifecycle
    return life.history if life is not None else ()


def present_from(health: NodeHealth, transitions: Sequence[Transition], otherwise: datetime) -> datetime:
    """Since when the node exists as far as Muster knows: its NodeHealth, or the first transition if that is older."""
    known = [t.at for t in transitions]
    if health.metadata.creation_timestamp is not None:
        known.append(health.metadata.creation_timestamp)
    return min(known, default=otherwise)


def snapshot_records(
    healths: Iterable[NodeHealth],
    uses: Iterable[PodUse],
    repairs: Iterable[Repair],
    pools: dict[str, str],
    now: datetime,
) -> tuple[NodeRecord, ...]:
    """Records from what the cluster holds at `now`.

    Pods that were deleted before are not known, so time in service without a pod counts as unknown, never as idle.
    """
    busy = intervals_of(uses)
    rungs = rung_times(repairs)
    return tuple(
        NodeRecord(
            name=name,
            present=Interval(present_from(health, history_of(health), now)),
            transitions=history_of(health),
            busy=tuple(busy.get(name, ())),
            watched=(),
            rungs=tuple(rungs.get(name, ())),
            pool=pools.get(name, "default"),
        )
        for name, health in sorted((h.metadata.name, h) for h in healths)
    )
