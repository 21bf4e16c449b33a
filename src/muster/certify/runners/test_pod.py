"""A test pod: the object that is created for one rank of a run, and what its status says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from muster import __version__
from muster.certify.catalogue import CatalogueTest
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import HowEnded, RankEnd, parse_report
from muster.certify.runners import Owner
from muster.certify.runners.pod_object import ContainerState, Pod, PodStatus
from muster.certify.runners.program_pods import end_of_program, program_spec
from muster.kube.api import Object
from muster.resources.base import (
    API_VERSION,
    CERTIFICATION_LABEL,
    GPU_RESOURCE,
    HOLD_TAINT,
    RUN_LABEL,
    RUN_SPEC_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from muster.resources.certification import Pods

DEFAULT_IMAGE = f"muster-tests:{__version__}"
STOP_S = 10
"""Grace period: a test program has nothing to save."""
TEXT_LIMIT = 300

_REFUSALS = ("UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "InvalidNodeInfo", "AdmissionFailed")
"""Reasons with which a kubelet refuses a pod before its containers start; besides `OutOf<resource>`."""
_DISTURBANCES = (
    "Evicted",
    "NodeShutdown",
    "NodeLost",
    "Terminated",
    "Shutdown",
    "Preempting",
    "DeletionByTaintManager",
)
"""Reasons of pods that somebody ended for another cause than the program in them."""


def pod_name(certification: str, run: str, rank: int) -> str:
    """The same for the same rank, so that creating it twice is a no-op."""
    return f"{certification}-{run}-{rank}"


def build(
    owner: Owner, run: PlannedRun, rank: int, test: CatalogueTest, gpus: int, image: str, pods: Pods | None = None
) -> Object:
    """The pod for one rank. It takes every GPU of its node and stays although the node is held or cordoned.

    `image` holds the programs; a test with a command brings its own. Raises BadInputError for `pods` that tolerate
    everything.
    """
    spec = {"run": run.id, "test": run.test, "nodes": list(run.nodes), "rank": rank}
    if run.variant:
        spec["variant"] = run.variant
    annotation = {"fieldRef": {"fieldPath": f"metadata.annotations['{RUN_SPEC_ANNOTATION}']"}}
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(owner.name, run.id, rank),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {CERTIFICATION_LABEL: owner.name, RUN_LABEL: run.id},
            "annotations": {RUN_SPEC_ANNOTATION: msgspec.json.encode(spec).decode()},
            "ownerReferences": [
                {"apiVersion": API_VERSION, "kind": "Certification", "name": owner.name, "uid": owner.uid}
            ],
        },
        "spec": {
            "nodeName": run.nodes[rank],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": test.deadline_s,
            "terminationGracePeriodSeconds": STOP_S,
            "automountServiceAccountToken": False,
            "tolerations": [
                {"key": HOLD_TAINT, "operator": "Exists"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                {"key": GPU_RESOURCE, "operator": "Exists"},
            ],
            "containers": [
                {
                    "name": "test",
                    "image": image,
                    "env": [{"name": "MUSTER_RUN_SPEC", "valueFrom": annotation}],
                    "resources": {"limits": {GPU_RESOURCE: str(gpus)}, "requests": {GPU_RESOURCE: str(gpus)}},
                    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - NCCL's shared memory
                }
            ],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
    }
    if test.command:
        body["spec"] |= program_spec(test, run.nodes, rank, pods or Pods(), gpus)
    return body


# Reading


@dataclass(frozen=True)
class TestPod:
    """What is kept of a test pod. `trouble`: why it does not start, as far as the cluster says."""

    __test__ = False

    name: str
    uid: str
    certification: str
    owner_uid: str
    run: str
    node: str
    phase: str
    deleting: bool
    created: datetime | None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    report: str = ""
    trouble: str = ""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def started(self) -> bool:
        """Its program runs, or ran."""
        return self.phase == "Running" or self.exit_code is not None


_decoder = msgspec.json.Decoder(Pod, strict=False)


def project(raw: bytes) -> TestPod:
    """Decode a test pod. Raises msgspec.MsgspecError."""
    pod = _decoder.decode(raw)
    meta, status = pod.metadata, pod.status
    states = [c.state for c in status.container_statuses]
    terminated = next((s.terminated for s in states if s.terminated is not None), None)
    return TestPod(
        name=meta.name,
        uid=meta.uid,
        certification=meta.labels.get(CERTIFICATION_LABEL, ""),
        owner_uid=next((o.uid for o in meta.owner_references if o.kind == "Certification"), ""),
        run=meta.labels.get(RUN_LABEL, ""),
        node=pod.spec.node_name,
        phase=status.phase,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        reason=status.reason[:TEXT_LIMIT],
        message=status.message[:TEXT_LIMIT],
        exit_code=terminated.exit_code if terminated is not None else None,
        report=terminated.message if terminated is not None else "",
        trouble=_trouble(status, states)[:TEXT_LIMIT] if status.phase == "Pending" else "",
    )


def _trouble(status: PodStatus, states: list[ContainerState]) -> str:
    waiting = next((s.waiting for s in states if s.waiting is not None and s.waiting.message), None)
    if waiting is not None:
        return f"{waiting.reason}: {waiting.message}"
    unscheduled = next((c for c in status.conditions if c.type == "PodScheduled" and c.status == "False"), None)
    if unscheduled is not None:
        return f"{unscheduled.reason}: {unscheduled.message}"
    return status.message


def end_of(pod: TestPod, test: CatalogueTest | None = None) -> RankEnd | None:
    """How the rank ended; None while it has not. `test` is needed where the pod ran a command of its own."""
    if pod.deleting:
        return RankEnd(pod.node, HowEnded.DISTURBED, message=f"somebody deleted the pod {pod.name}")
    if not pod.ended:
        return None
    if pod.reason in _REFUSALS or pod.reason.startswith("OutOf"):
        return RankEnd(pod.node, HowEnded.REFUSED, message=pod.message or pod.reason)
    if pod.reason in _DISTURBANCES:
        return RankEnd(pod.node, HowEnded.DISTURBED, message=f"{pod.reason}: {pod.message}")
    # A program that said what it found before it was stopped is believed.
    report = parse_report(pod.report) if pod.report else None
    if report is not None:
        return RankEnd(pod.node, HowEnded.REPORTED, report)
    if pod.reason == "DeadlineExceeded":
        return RankEnd(pod.node, HowEnded.TIMEOUT, message="stopped at the deadline of the test")
    if test is not None and test.command and pod.exit_code is not None:
        return end_of_program(pod.node, test, pod.exit_code, pod.report)
    if pod.phase == "Succeeded":
        return RankEnd(pod.node, HowEnded.MUTE)
    said = f": {pod.report[:100]}" if pod.report else ""
    return RankEnd(pod.node, HowEnded.CRASHED, message=f"the test program ended with exit code {pod.exit_code}{said}")
