"""`NodeHealth`: the truth about one node. Cluster-scoped; its name is the node's name.

Written by three parties that never touch each other's part: people write `spec`, the agent `status.observed`, the
controller `status.lifecycle`. Node taints, labels, conditions, events and metrics are projections of it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Model, ObjectMeta
from muster.resources.fault import Fault
from muster.resources.fingerprint import Fingerprint


class State(StrEnum):
    """Where a node stands in its lifecycle."""

    UNCERTIFIED = "Uncertified"
    CERTIFYING = "Certifying"
    IN_SERVICE = "InService"
    QUARANTINED = "Quarantined"
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    OUT_OF_SERVICE = "OutOfService"


class Verb(StrEnum):
    """A person's decision about a node."""

    RELEASE = "release"
    APPROVE = "approve"
    DEFER = "defer"
    """Put planned maintenance of this node off until `Decision.until`."""
    RETRY = "retry"
    RETIRE = "retire"


class PersonHold(Model, frozen=True, kw_only=True):
    """A person keeps the node out of service until this field is removed."""

    by: str
    reason: str
    at: datetime | None = None


class Decision(Model, frozen=True, kw_only=True):
    """A person's one-shot decision; the controller acts once per `id` and acknowledges it in the lifecycle."""

    id: str
    verb: Verb
    by: str
    at: datetime | None = None
    reason: str = ""
    until: datetime | None = None
    """Verb `defer`: planned maintenance does not begin before this time."""


class NodeHealthSpec(Model, frozen=True, kw_only=True):
    hold: PersonHold | None = None
    decision: Decision | None = None
    paused: bool = False
    """While true the controller starts nothing new on this node; it still observes and explains."""


class MonitorState(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"


class MonitorStatus(Model, frozen=True, kw_only=True):
    name: str
    state: MonitorState
    message: str = ""


class Gpu(Model, frozen=True, kw_only=True):
    """One GPU as the agent sees it."""

    index: int
    uuid: str
    pci: str
    product: str = ""


class PastFault(Model, frozen=True, kw_only=True):
    """A fault that closed, kept for patterns over history."""

    fault: Fault
    closed_at: datetime
    closed_by: str
    """`healthy-reading`, `clean-after-boot`, `clean-after-reset`, `gpu-gone` or `taken-back`."""


RECENT_LIMIT = 48
"""Closed faults that an agent keeps, those of the last RECENT_DAYS days."""
RECENT_DAYS = 7


class NoticeStatus(StrEnum):
    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class NoticeKind(StrEnum):
    """What the owner of the machine is going to do with it."""

    REBOOT = "reboot"
    STOP = "stop"
    TERMINATE = "terminate"
    MIGRATE = "migrate"
    NETWORK = "network"
    POWER = "power"
    FREEZE = "freeze"
    OTHER = "other"


class Notice(Model, frozen=True, kw_only=True):
    """Maintenance of the machine that its owner (a cloud, a data centre) announced to the node."""

    id: str
    """The owner's identifier of the event; one event keeps it from announcement to end."""
    source: str
    """`aws`, `gcp`, `azure`, `oci`, `file`, `webhook` or the name of a plugin."""
    kind: NoticeKind
    status: NoticeStatus
    not_before: datetime | None = None
    """When it may begin; None: not told, or at any moment."""
    ends_at: datetime | None = None
    emergency: bool = False
    """The owner gives minutes of notice."""
    message: str = ""


class GpuAssignment(Model, frozen=True, kw_only=True):
    """Which GPUs a pod holds, as the kubelet of the node knows it."""

    pod_uid: str
    pod: str = ""
    """`namespace/name`."""
    gpus: tuple[str, ...]
    """UUIDs, sorted. A MIG device counts as its GPU."""


class Observed(Model, frozen=True, kw_only=True):
    """What the agent of the node sees."""

    observed_at: datetime
    """When the content last changed (the Lease is the heartbeat)."""
    node_uid: str
    boot_id: str
    booted_at: datetime | None = None
    agent_version: str = ""
    fingerprint: Fingerprint
    gpus: tuple[Gpu, ...] = ()
    faults: tuple[Fault, ...] = ()
    """Open faults, sorted by key."""
    monitors: tuple[MonitorStatus, ...] = ()
    recent: tuple[PastFault, ...] = ()
    """Faults that closed lately, oldest first, at most RECENT_LIMIT."""
    notices: tuple[Notice, ...] = ()
    """Announced maintenance, sorted by source and id."""
    assignments: tuple[GpuAssignment, ...] | None = None
    """Pods that hold GPUs, sorted by UID; None: the node does not tell."""


class CertifiedTest(Model, frozen=True, kw_only=True):
    """A test that was passed, and the numbers reached."""

    name: str
    digest: str
    metrics: dict[str, float] = {}
    carried_from: str = ""
    """Name of the earlier Certification that proved it; empty: the one that the certificate names."""


class Standing(StrEnum):
    """What a certificate is worth now."""

    VALID = "Valid"
    GRACE = "Grace"
    """The stack changed under it; the node works on until its wave's turn comes within the budget."""
    VOID = "Void"


class Certificate(Model, frozen=True, kw_only=True):
    """Proof that this node, with this fingerprint, passed these tests."""

    node_uid: str
    fingerprint: Fingerprint
    recipe_digest: str = ""
    profile: str
    tests: tuple[CertifiedTest, ...]
    certification: str
    issued_at: datetime
    expires_at: datetime | None = None
    lacks: tuple[str, ...] = ()
    """Tests (`name@digest`) that were required and could not be proven when it was issued: shown, not tried again by
    itself."""
    adopted: bool = False
    """True: no test stands behind it; the node was at work when Muster saw it first (`certification.adopt`)."""
    standing: Standing = Standing.VALID
    voided_at: datetime | None = None
    voided_because: str = ""


class CauseKind(StrEnum):
    """Why an episode was opened or a step taken; the ledger is broken down by it."""

    NEW_NODE = "new-node"
    FAULT = "fault"
    CERTIFICATION = "certification"
    DRIFT = "drift"
    PERSON = "person"
    REPAIR = "repair"
    AGENT_SILENT = "agent-silent"
    AGE = "age"
    MAINTENANCE = "maintenance"


class Cause(Model, frozen=True, kw_only=True):
    """`name` is the fault key, the changed reading, the person, ...; `message` is one sentence for people."""

    kind: CauseKind
    name: str = ""
    message: str = ""


class RungAttempt(Model, frozen=True, kw_only=True):
    """One attempt on the repair ladder inside an episode."""

    rung: str
    attempt: int
    repair: str
    """Name of the `Repair` resource."""
    outcome: str = ""
    """Empty while open; then `proved`, `failed`, `timeout`, `recertification-failed`, `recurred`, `cancelled`."""
    at: datetime
    cause: str = ""
    """Key of the fault that it is for, or `certification`: what recurs is told by it."""
    boot_id_before: str = ""
    """Boot ID of the node when the attempt began."""
    seen_at: datetime | None = None
    """When its `Repair` was seen. Once it was, a missing object is never created again: the work may have begun."""


class Episode(Model, frozen=True, kw_only=True):
    """One way out of service and back. Every step that it causes carries its `id`."""

    id: str
    cause: Cause
    opened_at: datetime
    attempts: tuple[RungAttempt, ...] = ()
    ticket: str = ""


class Transition(Model, frozen=True, kw_only=True):
    """One entry of the bounded history: the node entered `state` at `at`."""

    state: State
    at: datetime
    episode: str = ""
    cause: Cause


class Blocker(Model, frozen=True, kw_only=True):
    """What the node waits for: a budget, a pod, a person, a partner."""

    kind: str
    message: str
    since: datetime


EARLIER_LIMIT = 16


class AgentSeen(Model, frozen=True, kw_only=True):
    """The agent of the node as the controller knows it."""

    version: str
    before: str = ""
    """The version before it; empty: none known."""
    since: datetime


class Lifecycle(Model, frozen=True, kw_only=True):
    """What the controller decided about the node, and why."""

    state: State
    since: datetime
    held: bool = False
    """True when the hold taint must be on the node: the projection is rebuilt from this."""
    hold_reason: str = ""
    cordon: bool = False
    no_execute: bool = False
    """The hold taint is there with the effect NoExecute too."""
    drain_pods: int = 0
    """Pods that were to leave when the drain began; progress is told against it."""
    episode: Episode | None = None
    certificate: Certificate | None = None
    certification: str = ""
    """Name of the Certification that the node waits for or runs in."""
    profile: str = ""
    """Test profile that the node must pass next, empty when none."""
    derived: tuple[Fault, ...] = ()
    """Faults that patterns over history conclude (source `pattern`), by key; they are judged like any other."""
    earlier: tuple[RungAttempt, ...] = ()
    """Attempts of ended episodes, oldest first, at most EARLIER_LIMIT: a finding that recurs goes on with the next
    rung."""
    agent: AgentSeen | None = None
    told: dict[str, datetime] = {}
    """Key of each open fatal fault -> when the controller saw it first, whatever the time of the log line."""
    deferred_until: datetime | None = None
    """A person put planned maintenance of the node off until then."""
    blockers: tuple[Blocker, ...] = ()
    next: str = ""
    """One sentence: what happens next and who can change it."""
    decision_seen: str = ""
    history: tuple[Transition, ...] = ()
    """Oldest first, at most HISTORY_LIMIT entries."""


HISTORY_LIMIT = 64


class NodeHealthStatus(Model, frozen=True, kw_only=True):
    observed: Observed | None = None
    lifecycle: Lifecycle | None = None


class NodeHealth(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "NodeHealth"
    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
