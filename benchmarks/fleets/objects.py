"""Objects of a made-up fleet, as agents, kubelets and the controller would have written them.

Every node has eight GPUs, a full fingerprint and a certificate that was written here, because to certify thousands of
machines is not what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from muster.agent.picture import Picture
from muster.agent.sources import NodeReadings
from muster.kube.api import LEASES, NODE_HEALTHS, Object
from muster.operate.policy import FULL_AUTOMATION, with_provider
from muster.resources.base import SYSTEM_NAMESPACE, agent_lease, to_object
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import Budget, FaultPolicy
from muster.resources.node_health import (
    AgentSeen,
    Cause,
    CauseKind,
    Certificate,
    CertifiedTest,
    Gpu,
    Lifecycle,
    MonitorState,
    MonitorStatus,
    Observed,
    State,
    Transition,
)
from muster.sim.agent_sources import readings_of
from muster.sim.nodes import micro_time, node_object
from muster.sim.world import PRODUCT_NAME, NodeTruth, World

MONITORS = ("assignments", "gpu", "host-clock", "host-filesystems", "inventory", "kernel-log", "network", "state")
SEED = 1


def world_of(nodes: int) -> World:
    """So many machines, 64 to a rack."""
    return World(seed=SEED, nodes=nodes, domains=max(1, nodes // 64), started=datetime.now(UTC), driver="580.95.05")


def node_of(truth: NodeTruth) -> Object:
    """The Node that a kubelet would register."""
    return node_object(truth, SEED, datetime.now(UTC))


def observed_of(truth: NodeTruth, uid: str, faults: Sequence[Fault] = ()) -> Observed:
    """What the agent of a node would publish."""
    now = datetime.now(UTC)
    readings = NodeReadings(
        node_uid=uid,
        boot_id=truth.boot_id,
        booted_at=truth.booted_at,
        readings=readings_of(truth),
        gpus=tuple(Gpu(index=g.index, uuid=g.uuid, pci=g.pci, product=PRODUCT_NAME) for g in truth.gpus),
    )
    statuses = tuple(MonitorStatus(name=name, state=MonitorState.OK) for name in MONITORS)
    composed = Picture(readings, None, now).compose(uid, "0", statuses, now)
    return replace(composed, faults=tuple(faults))


def fault_on(truth: NodeTruth, code: str, severity: Severity, hint: Hint, count: int = 1) -> Fault:
    """A finding of the kernel log about the node's first GPU."""
    now, gpu = datetime.now(UTC), truth.gpus[0]
    return Fault(
        source="kernel-log",
        check="xid",
        code=code,
        entity=Entity(kind=EntityKind.GPU, uuid=gpu.uuid, pci=gpu.pci, index=gpu.index),
        severity=severity,
        scope=Scope.GPU,
        hint=hint,
        message=f"XID {code} in a made-up log",
        count=count,
        first_seen=now,
        last_seen=now,
    )


def fallen_off(truth: NodeTruth) -> Fault:
    """XID 79: the GPU is gone, the node has to go too."""
    return fault_on(truth, "79", Severity.FATAL, Hint.REBOOT)


def in_service(observed: Observed) -> Lifecycle:
    """The lifecycle of a node that holds a certificate for what it is."""
    now = datetime.now(UTC)
    certificate = Certificate(
        node_uid=observed.node_uid,
        fingerprint=observed.fingerprint,
        profile="bringup",
        tests=(CertifiedTest(name="written-by-the-benchmark", digest="none"),),
        certification="written-by-the-benchmark",
        issued_at=now,
    )
    cause = Cause(kind=CauseKind.NEW_NODE, message="Put in service by the benchmark.")
    history = (Transition(state=State.IN_SERVICE, at=now, cause=cause),)
    return Lifecycle(
        state=State.IN_SERVICE,
        since=now,
        certificate=certificate,
        agent=AgentSeen(version=observed.agent_version, since=now - timedelta(days=1)),
        next="Takes work.",
        history=history,
    )


def health_named(name: str) -> Object:
    return {"apiVersion": NODE_HEALTHS.api_version, "kind": NODE_HEALTHS.kind, "metadata": {"name": name}}


def status_of(name: str, field: str, value: Observed | Lifecycle) -> Object:
    """A patch of one half of the status, `observed` or `lifecycle`."""
    return {**health_named(name), "status": {field: to_object(value)}}


def lease_of(name: str) -> Object:
    """A heartbeat of the node's agent, good for two hours."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": agent_lease(name), "namespace": SYSTEM_NAMESPACE},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 7200, "renewTime": micro_time(datetime.now(UTC))},
    }


def open_policy() -> FaultPolicy:
    """All automation on, and a budget that lets all nodes go at once: no figure is made of waiting for it.

    Correlations are off: the same finding on many nodes is not held by default, and to hold them is what is measured.
    """
    budget = Budget(max_disrupted="100%", max_disrupted_per_domain="100%", max_new_per_window=10**6)
    policy = with_provider(FULL_AUTOMATION, "nobody")
    off = tuple(replace(correlation, enabled=False) for correlation in policy.spec.correlations)
    return replace(policy, spec=replace(policy.spec, budget=budget, correlations=off, agent_silent_s=86_400))
