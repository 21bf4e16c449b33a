"""Slim projections of Kubernetes objects, decoded straight from their JSON: what the watch caches keep."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.operate.checkpoint import ASKED_ANNOTATION, CHECKPOINT_ANNOTATION, DONE_ANNOTATION
from muster.operate.model import CertificationView, PodView, TestRequest, label_digests
from muster.resources.base import (
    CERTIFICATION_LABEL,
    CORDON_ANNOTATION,
    GPU_PRESENT_LABEL,
    GPU_RESOURCE,
    HEALTH_CONDITION,
    REQUESTS_ANNOTATION,
    TEST_DIGESTS_ANNOTATION,
    ObjectMeta,
)
from muster.resources.certification import (
    CertificationSpec,
    CertificationStatus,
    NodeResult,
    Outcome,
    Phase,
    RunRecord,
)
from muster.resources.fault_policy import FaultPolicy
from muster.resources.fingerprint import Reading, ReadingClass
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import (
    CertifiedTest,
    Lifecycle,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Observed,
)
from muster.resources.repair import Repair

log = logging.getLogger(__name__)

GPU_PREFIX = "nvidia.com/"
"""Whole GPUs, shared ones and MIG slices are all extended resources of this prefix."""


GPU_ANNOTATIONS = ("muster.dev/gpus", "dgxc.nvidia.com/devices")
"""Annotations that name the GPUs of a pod: UUIDs in a list or in JSON, as device plugins and metadata agents write
them."""
MAX_GPU_TEXT = 8192
_GPU_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    """Null where whoever wrote the condition named no time."""


class _NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[_Condition, ...] = ()
    capacity: dict[str, str | int] = {}
    node_info: _NodeInfo = _NodeInfo()


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[dict[str, str], ...] = ()


class _Node(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


@dataclass(frozen=True)
class NodeRecord:
    """What is kept of a Node."""

    name: str
    uid: str
    labels: Mapping[str, str]
    cordoned_by: str
    unschedulable: bool
    taints: tuple[Mapping[str, str], ...]
    ready: bool
    boot_id: str
    gpus: bool
    """Whether it has GPUs at all: others are none of Muster's business."""
    condition: Mapping[str, Any] | None


_node_decoder = msgspec.json.Decoder(_Node, strict=False)


def node_record(raw: bytes) -> NodeRecord:
    node = _node_decoder.decode(raw)
    ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "Unknown")
    own = next((c for c in node.status.conditions if c.type == HEALTH_CONDITION), None)
    labels = node.metadata.labels
    return NodeRecord(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=labels,
        cordoned_by=node.metadata.annotations.get(CORDON_ANNOTATION, ""),
        unschedulable=node.spec.unschedulable,
        taints=node.spec.taints,
        ready=ready == "True",
        boot_id=node.status.node_info.boot_id,
        gpus=labels.get(GPU_PRESENT_LABEL) == "true" or str(node.status.capacity.get(GPU_RESOURCE, 0)) != "0",
        condition=msgspec.to_builtins(own) if own is not None else None,
    )


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    resource_claims: tuple[msgspec.Raw, ...] = ()


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = "Pending"


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    controller: bool = False


class _PodMeta(ObjectMeta, frozen=True, kw_only=True):
    owner_references: tuple[_Owner, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_pod_decoder = msgspec.json.Decoder(_Pod, strict=False)


def pod_view(raw: bytes) -> PodView | None:
    """The pod, or None when it holds no GPUs and tests nothing. A pod with resource claims counts as holding one."""
    pod = _pod_decoder.decode(raw)
    gpus = sum(_gpus(c.resources) for c in pod.spec.containers) or (1 if pod.spec.resource_claims else 0)
    certification = pod.metadata.labels.get(CERTIFICATION_LABEL, "")
    if gpus == 0 and not certification:
        return None
    owners = pod.metadata.owner_references
    owner = next((o for o in owners if o.controller), owners[0] if owners else _Owner())
    return PodView(
        name=pod.metadata.name,
        # Interned: tens of thousands of pods share a few words.
        namespace=sys.intern(pod.metadata.namespace),
        uid=pod.metadata.uid,
        node=sys.intern(pod.spec.node_name),
        gpus=gpus,
        owner_kind=sys.intern(owner.kind),
        phase=sys.intern(pod.status.phase),
        created=pod.metadata.creation_timestamp,
        deleting=pod.metadata.deletion_timestamp is not None,
        certification=certification,
        labels=label_digests(pod.metadata.labels),
        checkpoint=pod.metadata.annotations.get(CHECKPOINT_ANNOTATION, "") == "true",
        checkpoint_asked=pod.metadata.annotations.get(ASKED_ANNOTATION, "")[:64],
        checkpoint_done=pod.metadata.annotations.get(DONE_ANNOTATION, "")[:64],
        gpu_uuids=gpus_of_annotations(pod.metadata.annotations),
    )


def gpus_of_annotations(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """UUIDs of the GPUs that annotations say a pod holds, sorted; empty where none says, or one names MIG devices."""
    for name in GPU_ANNOTATIONS:
        text = annotations.get(name, "")[:MAX_GPU_TEXT]
        if text and "MIG-" not in text:
            found = tuple(sorted(set(_GPU_UUID.findall(text))))
            if found:
                return found
    return ()


def _gpus(resources: _Resources) -> int:
    wanted = {**resources.requests, **resources.limits}
    counts = [str(v) for k, v in wanted.items() if k.startswith(GPU_PREFIX)]
    return sum(int(c) for c in counts if c.isascii() and c.isdigit())


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: datetime | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


_lease_decoder = msgspec.json.Decoder(_Lease, strict=False)


def lease_renewed(raw: bytes) -> datetime | None:
    """When the Lease was renewed last."""
    return _lease_decoder.decode(raw).spec.renew_time


@dataclass(frozen=True)
class CertificationRecord:
    """What is kept of a Certification: who is in it, and the verdict of each node once it ended."""

    name: str
    created: datetime | None
    spec: CertificationSpec
    phase: Phase
    requests: Mapping[str, TestRequest] = field(default_factory=dict)
    results: Mapping[str, NodeResult] = field(default_factory=dict)
    tests: Mapping[str, tuple[CertifiedTest, ...]] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    """Tests that were to be run -> digest of the definition."""
    message: str = ""

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)

    def view(self, node: str) -> CertificationView:
        """The certification as `node` sees it. A node without a result was not tested."""
        result = self.results.get(node, NodeResult(name=node, verdict=CertificationView.verdict))
        return CertificationView(
            name=self.name,
            profile=self.spec.profile,
            purpose=self.spec.purpose,
            phase=self.phase,
            request=self.requests.get(node),
            verdict=result.verdict,
            reason=result.reason,
            message=result.message or self.message,
            tests=self.tests.get(node, ()),
            asked=self.asked,
            recipe_digest=self.spec.recipe_digest,
        )


class _Phase(msgspec.Struct, frozen=True):
    phase: Phase = Phase.PENDING


class _RunningCertification(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: CertificationSpec
    status: _Phase = _Phase()


class _EndedCertification(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: CertificationStatus = CertificationStatus()


_running_decoder = msgspec.json.Decoder(_RunningCertification, strict=False)
_ended_decoder = msgspec.json.Decoder(_EndedCertification, strict=False)


def certification_record(raw: bytes) -> CertificationRecord:
    """Decode a Certification. The runs are only read once it ended: until then they say nothing that counts."""
    running = _running_decoder.decode(raw)
    meta = running.metadata
    record = CertificationRecord(
        name=meta.name,
        created=meta.creation_timestamp,
        spec=running.spec,
        phase=running.status.phase,
        requests=read_requests(meta.annotations.get(REQUESTS_ANNOTATION, "")),
    )
    if not record.ended:
        return record
    status = _ended_decoder.decode(raw).status
    results = {r.name: r for r in status.nodes}
    digests = _digests(meta.annotations.get(TEST_DIGESTS_ANNOTATION, ""))
    return CertificationRecord(
        name=record.name,
        created=record.created,
        spec=record.spec,
        phase=record.phase,
        requests=record.requests,
        results=results,
        tests={name: _passed_tests(result, status.runs, digests) for name, result in results.items()},
        asked=digests,
        message=status.message,
    )


def _passed_tests(
    result: NodeResult, runs: Sequence[RunRecord], digests: Mapping[str, str]
) -> tuple[CertifiedTest, ...]:
    """The tests that the node took part in and that passed, with the numbers it reached, sorted by name."""
    # Older certifications tell it only by their runs.
    seen = {r.test for r in runs if result.name in r.nodes and r.outcome in (Outcome.PASS, Outcome.WARN)}
    names = result.tests or tuple(sorted(seen))
    return tuple(
        CertifiedTest(
            name=name,
            digest=digests.get(name, ""),
            metrics={k: v for k, v in sorted(result.metrics.items()) if k.startswith(f"{name}.")},
        )
        for name in names
    )


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    episode: str
    since: datetime
    fingerprint: str
    boot_id: str


_requests_decoder = msgspec.json.Decoder(dict[str, _Request], strict=False)
_digests_decoder = msgspec.json.Decoder(dict[str, str])


def read_requests(text: str) -> dict[str, TestRequest]:
    """What `write_requests` wrote. Text that is something else asks for nothing: its verdicts move no node."""
    try:
        found = _requests_decoder.decode(text.encode()) if text else {}
    except msgspec.MsgspecError:
        return {}
    return {name: TestRequest(r.episode, r.since, r.fingerprint, r.boot_id) for name, r in found.items()}


def write_requests(requests: Sequence[tuple[str, TestRequest]]) -> str:
    return json.dumps(
        {
            node: {
                "episode": r.episode,
                "since": r.since.isoformat(),
                "fingerprint": r.fingerprint,
                "bootId": r.boot_id,
            }
            for node, r in sorted(requests, key=lambda pair: pair[0])
        },
        separators=(",", ":"),
    )


class _HealthStatus(msgspec.Struct, frozen=True):
    observed: msgspec.Raw = msgspec.Raw()
    lifecycle: Lifecycle | None = None


class _Health(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: _HealthStatus = _HealthStatus()


_health_decoder = msgspec.json.Decoder(_Health, strict=False)
_observed_decoder = msgspec.json.Decoder(Observed | None, strict=False)


def node_health(raw: bytes) -> NodeHealth:
    """Decode a NodeHealth. Raises msgspec.MsgspecError.

    What the agent says counts as not said when it cannot be read: an agent must not take its node out of the hands of
    the controller and of people by nonsense. A schema lets more times pass (year 0) than can be understood.
    """
    found = _health_decoder.decode(raw)
    try:
        observed = _observed_decoder.decode(found.status.observed) if bytes(found.status.observed) else None
    except (msgspec.MsgspecError, ValueError) as error:
        log.warning("what the agent of %s says cannot be read: %s", found.metadata.name, str(error)[:300])
        observed = None
    status = _shared(NodeHealthStatus(observed=observed, lifecycle=found.status.lifecycle))
    return NodeHealth(metadata=found.metadata, spec=found.spec, status=status)


_MAX_SHARED = 50_000
_readings: dict[Reading, Reading] = {}
"""Readings that nodes have in common (of the stack, of settings): thousands of nodes bear the same few hundred."""


def _shared(status: NodeHealthStatus) -> NodeHealthStatus:
    """The same values in half of the memory: readings are two thirds of a NodeHealth, and most are there already.

    A certificate tells the readings that the agent sees, until something changes.
    """
    seen, life = status.observed, status.lifecycle
    if seen is None:
        return status
    if len(_readings) > _MAX_SHARED:
        _readings.clear()
    kept = tuple(
        _readings.setdefault(r, r) if r.reading_class is not ReadingClass.IDENTITY else r
        for r in seen.fingerprint.readings
    )
    seen = replace(seen, fingerprint=replace(seen.fingerprint, readings=kept))
    if life is not None and life.certificate is not None and life.certificate.fingerprint == seen.fingerprint:
        life = replace(life, certificate=replace(life.certificate, fingerprint=seen.fingerprint))
    return replace(status, observed=seen, lifecycle=life)


def node_health_of(obj: Mapping[str, Any]) -> NodeHealth:
    """The same from plain JSON values."""
    return node_health(msgspec.json.encode(obj))


def _digests(text: str) -> dict[str, str]:
    try:
        return _digests_decoder.decode(text.encode()) if text else {}
    except msgspec.MsgspecError:
        return {}


repair: msgspec.json.Decoder[Repair] = msgspec.json.Decoder(Repair, strict=False)
maintenance: msgspec.json.Decoder[Maintenance] = msgspec.json.Decoder(Maintenance, strict=False)
fault_policy: msgspec.json.Decoder[FaultPolicy] = msgspec.json.Decoder(FaultPolicy, strict=False)
