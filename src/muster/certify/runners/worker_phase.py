"""How far the worker of a node is, as Jobs and pods tell: one phase, one clock for each, one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from muster.certify.runners.pod_object import Condition, Metadata, Pod
from muster.resources.base import CERTIFICATION_LABEL, WORKERS_LABEL

TEXT_LIMIT = 300
_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")
_CREATING = ("ContainerCreating", "PodInitializing", "")


class Phase(Enum):
    """Where a worker stands. Each phase has a clock of its own (`Limits`)."""

    ABSENT = "absent"
    """Its Job, or the Job's pods, are not there (yet): a quota, an admission policy, a busy controller manager."""
    QUEUED = "queued"
    """The queue has not let it in: limited by the budget of the certification alone (`maxBlockedMinutes`)."""
    SCHEDULING = "scheduling"
    PULLING = "pulling"
    """An image does not come."""
    STARTING = "starting"
    UP = "up"
    LOST = "lost"
    """It ended more often than it is started again, or its Job is over: it does not come back."""


@dataclass(frozen=True)
class Limits:
    """Seconds in one phase after which a worker is no longer waited for."""

    absent_s: float = 300.0
    scheduling_s: float = 1800.0
    pulling_s: float = 600.0
    """An image that fails to come. One that merely takes long counts as starting."""
    starting_s: float = 1800.0

    def of(self, phase: Phase) -> float | None:
        """The limit of `phase`; None where only the certification's budget limits it."""
        match phase:
            case Phase.ABSENT:
                return self.absent_s
            case Phase.SCHEDULING:
                return self.scheduling_s
            case Phase.PULLING:
                return self.pulling_s
            case Phase.STARTING:
                return self.starting_s
            case Phase.LOST:
                return 0.0
            case Phase.QUEUED | Phase.UP:
                return None


@dataclass(frozen=True)
class Standing:
    """The phase of a node's worker, why in words, and its pod where there is one."""

    phase: Phase
    words: str = ""
    pod: WorkerPod | None = None


@dataclass(frozen=True)
class WorkerJob:
    """What is kept of a Job."""

    name: str
    uid: str
    certification: str
    owner_uid: str
    common: str
    deleting: bool = False
    suspended: bool = False
    volcano: bool = False
    failed_indexes: str = ""
    token_digest: str = ""
    """Which token its workers know; empty when it does not say."""
    over: str = ""
    """Why the Job is over; empty while it is not."""


@dataclass(frozen=True)
class WorkerPod:
    """What is kept of a worker's pod."""

    name: str
    uid: str
    certification: str
    common: str
    job_uid: str
    node: str = ""
    index: int = -1
    ip: str = ""
    ready: bool = False
    deleting: bool = False
    ended: bool = False
    disturbed: bool = False
    """Somebody else ended it, or is about to."""
    phase: Phase = Phase.STARTING
    words: str = ""


# Reading


class _PodInJob(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""


class _Template(msgspec.Struct, frozen=True):
    spec: _PodInJob = _PodInJob()


class _JobSpec(msgspec.Struct, frozen=True):
    suspend: bool = False
    template: _Template = _Template()


class _JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    failed_indexes: str = ""
    conditions: tuple[Condition, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


_job_decoder = msgspec.json.Decoder(_Job, strict=False)
_pod_decoder = msgspec.json.Decoder(Pod, strict=False)
TOKEN_ANNOTATION = "muster.dev/token-digest"  # noqa: S105 - a name
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def project_job(raw: bytes) -> WorkerJob:
    """Project a Job. Raises msgspec.MsgspecError."""
    found = _job_decoder.decode(raw)
    meta = found.metadata
    over = next((c for c in found.status.conditions if c.type in ("Failed", "Complete") and c.status == "True"), None)
    return WorkerJob(
        name=meta.name,
        uid=meta.uid,
        certification=meta.labels.get(CERTIFICATION_LABEL, ""),
        owner_uid=next((o.uid for o in meta.owner_references if o.kind == "Certification"), ""),
        common=meta.labels.get(WORKERS_LABEL, ""),
        deleting=meta.deletion_timestamp is not None,
        suspended=found.spec.suspend,
        volcano=found.spec.template.spec.scheduler_name == "volcano",
        failed_indexes=found.status.failed_indexes[:TEXT_LIMIT],
        token_digest=meta.annotations.get(TOKEN_ANNOTATION, ""),
        over=_said(over.reason, over.message) or over.type if over is not None else "",
    )


def project_pod(raw: bytes) -> WorkerPod:
    """Project a worker's pod. Raises msgspec.MsgspecError."""
    found = _pod_decoder.decode(raw)
    meta, status = found.metadata, found.status
    index = meta.annotations.get(INDEX_ANNOTATION, "")
    ended = status.phase in ("Succeeded", "Failed")
    phase, words = _phase_of(found)
    return WorkerPod(
        name=meta.name,
        uid=meta.uid,
        certification=meta.labels.get(CERTIFICATION_LABEL, ""),
        common=meta.labels.get(WORKERS_LABEL, ""),
        job_uid=next((o.uid for o in meta.owner_references if o.kind == "Job"), ""),
        node=found.spec.node_name,
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 7 else -1,
        ip=status.pod_ip,
        ready=phase is Phase.UP,
        deleting=meta.deletion_timestamp is not None,
        ended=ended,
        disturbed=meta.deletion_timestamp is not None
        or any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions),
        phase=phase,
        words=words,
    )


def _phase_of(pod: Pod) -> tuple[Phase, str]:
    status = pod.status
    states = [*status.init_container_statuses, *status.container_statuses]
    if status.phase in ("Succeeded", "Failed"):
        ended = next(
            (c.state.terminated for c in states if c.state.terminated and c.state.terminated.exit_code), None
        )
        said = _said(status.reason, status.message)
        if not said and ended is not None:
            said = _said(f"exit code {ended.exit_code}", ended.message)
        return Phase.LOST, said or "it ended"
    scheduled = next((c for c in status.conditions if c.type == "PodScheduled"), None)
    if not pod.spec.node_name:
        if scheduled is not None and scheduled.reason == "SchedulingGated":
            return Phase.QUEUED, _said(scheduled.reason, scheduled.message)
        said = _said(scheduled.reason, scheduled.message) if scheduled is not None else ""
        return Phase.SCHEDULING, said or "the scheduler has not said anything about it"
    waiting = [c.state.waiting for c in states if c.state.waiting is not None]
    pull = next((w for w in waiting if w.reason in _PULL_REASONS), None)
    if pull is not None:
        return Phase.PULLING, _said(pull.reason, pull.message)
    if status.phase == "Running" and status.pod_ip and status.container_statuses:
        if all(c.ready for c in status.container_statuses):
            return Phase.UP, ""
        return Phase.STARTING, "the worker does not listen yet"
    told = next((w for w in waiting if w.reason not in _CREATING or w.message), None)
    return Phase.STARTING, _said(told.reason, told.message) if told is not None else "its containers are created"


def _said(reason: str, message: str) -> str:
    words = " ".join(f"{reason}: {message}".split()) if reason and message else reason or message
    return " ".join(words.split())[:TEXT_LIMIT].rstrip(".")


# Judging


def standings(
    nodes: Sequence[str], jobs: Mapping[str, WorkerJob], pods: Sequence[WorkerPod], job_of: Mapping[str, str]
) -> dict[str, Standing]:
    """How far the worker of each of `nodes` is. `job_of`: node -> name of its Job; `jobs` and `pods` are ours."""
    found: dict[str, Standing] = {}
    uid_of = {job.uid: job.name for job in jobs.values()}
    live = sorted((p for p in pods if not p.ended and p.job_uid in uid_of), key=lambda p: (p.deleting, p.name))
    dead = sorted((p for p in pods if p.ended and p.job_uid in uid_of), key=lambda p: p.name)
    placed: dict[str, WorkerPod] = {}
    for pod in live:
        if pod.node:
            placed.setdefault(pod.node, pod)
    for node in nodes:
        job = jobs.get(job_of.get(node, ""))
        mine = placed.get(node)
        if job is None or job.deleting:
            found[node] = Standing(Phase.ABSENT, "the Job of its worker is not there")
        elif job.over:
            found[node] = Standing(Phase.LOST, f"the Job {job.name} is over ({job.over})")
        elif mine is not None and mine.deleting:
            found[node] = Standing(Phase.STARTING, f"the pod {mine.name} is being deleted", mine)
        elif mine is not None:
            found[node] = Standing(mine.phase, mine.words, mine)
        elif job.suspended:
            found[node] = Standing(Phase.QUEUED, f"the Job {job.name} is suspended by its queue")
        else:
            found[node] = _unplaced(
                job, [p for p in live if not p.node and uid_of[p.job_uid] == job.name], node, dead
            )
    return found


def _unplaced(job: WorkerJob, waiting: Sequence[WorkerPod], node: str, dead: Sequence[WorkerPod]) -> Standing:
    """No worker is on the node, and its Job goes on."""
    pod = next((p for p in waiting if not p.deleting), None)
    if pod is not None:
        return Standing(pod.phase, pod.words, None)
    last = next((p for p in reversed(dead) if p.node == node and p.job_uid == job.uid), None)
    if last is not None and str(last.index) in _indexes(job.failed_indexes):
        return Standing(Phase.LOST, f"its worker ended again and again ({last.words})")
    if last is not None:
        return Standing(Phase.STARTING, f"its worker ended ({last.words}) and is started again")
    return Standing(Phase.ABSENT, f"the Job {job.name} has no pod for it")


def _indexes(text: str) -> frozenset[str]:
    """The indexes in `1,3-5`, as Jobs write them; bounded."""
    found: list[str] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isascii() and first.isdigit() and len(first) < 7:
            end = int(last) if last.isascii() and last.isdigit() and len(last) < 7 else int(first)
            found += [str(i) for i in range(int(first), min(end, int(first) + 10_000) + 1)]
    return frozenset(found)
