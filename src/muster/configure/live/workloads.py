"""Deployments, StatefulSets, DaemonSets and Jobs: is each as it should be? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from muster.configure.live.check import WELL, Verdict, failed, unknown
from muster.configure.live.coverage import repels_when_held, selects, untolerated, why_none
from muster.configure.live.kinds import LiveNode, Workload, WorkloadKind, condition
from muster.configure.live.state import LiveState, OwnedObject
from muster.resources.base import HOLD_TAINT

MIG_SELECTOR = "nvidia.com/gpu.deploy.mig-manager"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"
ON_REQUEST = frozenset(
    {
        "nvidia.com/mps.capable",
        *(
            f"nvidia.com/gpu.deploy.{operand}"
            for operand in (
                "cc-manager",
                "kata-manager",
                "sandbox-device-plugin",
                "sandbox-validator",
                "vfio-manager",
                "vgpu-device-manager",
                "vgpu-manager",
            )
        ),
    }
)
"""Labels of nodes that somebody chose for sharing or virtual machines. The GPU Operator makes these DaemonSets also
where there is no such node, so running nowhere is no failure."""
_OS_LABEL = "kubernetes.io/os"
_NAMED = 3


@dataclass(frozen=True)
class Expectation:
    """What the release and its component say of a workload.

    `owned` is the release's own entry, where it has one. `gpu_nodes` are those that the component is meant for, and
    `covers_gpus` says that its DaemonSets must reach all of them that they select, and `prepares_nodes` that the hold
    of a node must not keep them off. `by_label`: only a label tells that the release owns it, so what the release
    says of it is not known.
    """

    owned: OwnedObject | None = None
    gpu_nodes: tuple[LiveNode, ...] = ()
    covers_gpus: bool = False
    prepares_nodes: bool = False
    by_label: bool = False


def verdict(kind: WorkloadKind, workload: Workload, live: LiveState, expected: Expectation) -> Verdict:
    """Whether the workload is as it should be."""
    if workload.metadata.deletion_timestamp is not None:
        return failed("it is being deleted")
    match kind:
        case WorkloadKind.DEPLOYMENT | WorkloadKind.STATEFUL_SET:
            return _replicated(kind, workload, expected)
        case WorkloadKind.DAEMON_SET:
            return _daemon_set(workload, live, expected)
        case WorkloadKind.JOB:
            return _job(workload)
        case _:
            assert_never(kind)


def _unseen(workload: Workload) -> Verdict | None:
    """The status is of an older version of the object, and says nothing of the present one."""
    seen = workload.status.observed_generation
    if seen is None or seen < workload.metadata.generation:
        return failed("its controller has not taken up the newest version yet")
    return None


def _replicated(kind: WorkloadKind, workload: Workload, expected: Expectation) -> Verdict:
    wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
    status = workload.status
    if wanted == 0:
        return _scaled_down(expected)
    if unseen := _unseen(workload):
        return unseen
    progressing = condition(status.conditions, "Progressing")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return failed(f"its rollout does not get on ({progressing.message or progressing.reason})")
    on_delete = workload.spec.update_strategy is not None and workload.spec.update_strategy.type == "OnDelete"
    if status.updated_replicas < wanted and not (kind is WorkloadKind.STATEFUL_SET and on_delete):
        return failed(f"{status.updated_replicas} of {wanted} replicas have the newest version")
    if status.replicas > wanted:
        return failed(f"{status.replicas - wanted} replicas of an older version are still there")
    ready = status.available_replicas if kind is WorkloadKind.DEPLOYMENT else status.ready_replicas
    if ready < wanted:
        word = "available" if kind is WorkloadKind.DEPLOYMENT else "ready"
        return failed(f"{ready} of {wanted} replicas are {word}{_complaint(workload)}")
    return WELL


def _scaled_down(expected: Expectation) -> Verdict:
    if expected.by_label:
        return unknown("it is scaled to 0, and what the release says of that is not known")
    # An operator's own workloads have as many replicas as the operator wants.
    meant = expected.owned.replicas if expected.owned is not None else 0
    return failed(f"it is scaled to 0, and the release says {meant}") if meant else WELL


def _complaint(workload: Workload) -> str:
    for kind in ("ReplicaFailure", "Available"):
        found = condition(workload.status.conditions, kind)
        if found is not None and found.message and (found.status == "True") == (kind == "ReplicaFailure"):
            return f" ({found.message})"
    return ""


def _daemon_set(workload: Workload, live: LiveState, expected: Expectation) -> Verdict:
    if unseen := _unseen(workload):
        return unseen
    status, placement = workload.status, workload.spec.template.spec
    if expected.prepares_nodes:
        held = [n for n in expected.gpu_nodes if selects(placement, n) and repels_when_held(placement, n)]
        if held:
            return failed(
                f"it never comes to {len(held)} held GPU nodes ({_names(held)}), which it prepares, because it does "
                f"not tolerate the taint {HOLD_TAINT}"
            )
    if status.desired_number_scheduled == 0:
        return _nowhere(workload, live, expected)
    wanted = status.desired_number_scheduled
    # Pods on nodes that are down or held by Muster are the trouble of these nodes, as long as others run.
    excused = sum(1 for node in live.nodes if not node.in_service and selects(placement, node))
    aside = f" ({excused} nodes out of service left aside)" if excused else ""
    if status.number_ready == 0 or status.number_ready < wanted - excused:
        return failed(f"{status.number_ready} of {wanted} pods are ready{aside}")
    if status.updated_number_scheduled < wanted - excused:
        on_delete = workload.spec.update_strategy is not None and workload.spec.update_strategy.type == "OnDelete"
        hint = "; it updates a pod when that is deleted" if on_delete else ""
        return failed(f"{status.updated_number_scheduled} of {wanted} pods have the newest version{aside}{hint}")
    if not expected.covers_gpus:
        return WELL
    if live.why_unread("nodes"):
        return unknown(f"whether it covers the GPU nodes cannot be told: {live.why_unread('nodes')}")
    kept_off = [n for n in expected.gpu_nodes if selects(placement, n) and untolerated(placement, n)]
    if kept_off:
        taints = sorted({str(t) for node in kept_off for t in untolerated(placement, node)})
        return failed(
            f"it does not run on {len(kept_off)} GPU nodes that it selects ({_names(kept_off)}), because it does not "
            f"tolerate the taint {', '.join(taints[:_NAMED])}"
        )
    return WELL


def _nowhere(workload: Workload, live: LiveState, expected: Expectation) -> Verdict:
    """No node at all is to run it. On a cluster with GPU nodes that is a failure that looks like success."""
    placement = workload.spec.template.spec
    if (placement.node_selector or {}).get(_OS_LABEL) == "windows":
        return WELL
    if reason := live.why_unread("nodes"):
        return unknown(f"no node is to run it, and whether there are GPU nodes cannot be told: {reason}")
    gpu_nodes = expected.gpu_nodes
    if not gpu_nodes:
        return unknown("no node is to run it, and the cluster has no node with GPUs yet")
    selector = placement.node_selector or {}
    divisible = [node for node in gpu_nodes if node.labels.get(MIG_CAPABLE_LABEL) != "false"]
    if (MIG_SELECTOR in selector and not divisible) or not ON_REQUEST.isdisjoint(selector):
        return WELL
    return failed(
        f"no node is to run it, although the cluster has {len(gpu_nodes)} GPU nodes: "
        f"{why_none(placement, live.nodes)}"
    )


def _job(workload: Workload) -> Verdict:
    complete = condition(workload.status.conditions, "Complete")
    if complete is not None and complete.status == "True":
        return WELL
    broken = condition(workload.status.conditions, "Failed")
    if broken is not None and broken.status == "True":
        return failed(f"it failed ({broken.reason}: {broken.message})")
    if workload.spec.suspend:
        return unknown("it is suspended, so it never ran to its end")
    return failed(f"it is not complete yet ({workload.status.active} pods active, {workload.status.failed} failed)")


def _names(nodes: Sequence[LiveNode]) -> str:
    names = sorted(node.name for node in nodes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
