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


class CertifiedTest(Model, frozen=True, kw_only=True):
    """A test that was passed, and the numbers reached."""

    name: str
    digest: str
    metrics: dict[str, float] = {}


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
    """Empty while open; then `proved`, `failed`, `timeout`, `recertification-failed`, `recurred`."""
    at: datetime


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


class Lifecycle(Model, frozen=True, kw_only=True):
    """What the controller decided about the node, and why."""

    state: State
    since: datetime
    held: bool = False
    """True when the hold taint must be on the node: the projection is rebuilt from this."""
    hold_reason: str = ""
    cordon: bool = False
    episode: Episode | None = None
    certificate: Certificate | None = None
    certification: str = ""
    """Name of the Certification that the node waits for or runs in."""
    profile: str = ""
    """Test profile that the node must pass next, empty when none."""
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
