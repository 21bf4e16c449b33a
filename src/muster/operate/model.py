"""What the node controller's core sees and says: views of the world, intents, decisions. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from muster.operate.budget import Member, Usage
from muster.resources.certification import NodeVerdict, Phase, Purpose, Reason
from muster.resources.node_health import CertifiedTest, Lifecycle, NodeHealthSpec, Observed, Transition
from muster.resources.repair import Repair
from muster.resources.topology import domain_of, pool_of

FINISHED_PHASES = ("Succeeded", "Failed")


class BlockerKind(StrEnum):
    """What a node waits for, as written in `Lifecycle.blockers`."""

    AGENT = "agent"
    BATCH = "batch"
    BUDGET = "budget"
    CERTIFICATION = "certification"
    FAULT = "fault"
    NODE = "node"
    PERSON = "person"
    POD = "pod"
    REPAIR = "repair"
    WAVE = "wave"


@dataclass(frozen=True)
class PodView:
    """A pod that holds GPUs, or a test pod of a certification."""

    name: str
    namespace: str
    uid: str
    node: str
    gpus: int = 0
    owner_kind: str = ""
    phase: str = "Running"
    created: datetime | None = None
    deleting: bool = False
    certification: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_work(self) -> bool:
        """Whether it is unfinished production work on GPUs: no test pod, no DaemonSet, no mirror pod."""
        return (
            self.gpus > 0
            and not self.certification
            and self.owner_kind not in ("DaemonSet", "Node")
            and self.phase not in FINISHED_PHASES
        )


@dataclass(frozen=True)
class Refusal:
    """The API server refused to evict a pod because a PodDisruptionBudget forbids it now."""

    pod_uid: str
    message: str


@dataclass(frozen=True)
class TestRequest:
    """For which moment of a node's life a certification was asked for; results count for no other."""

    __test__ = False  # not a test class, whatever its name says

    episode: str
    since: datetime
    """When the node entered the state from which it asked."""
    fingerprint: str
    """Digest over the classes that count, see `certificates.counted_digest`."""
    boot_id: str


@dataclass(frozen=True)
class CertificationView:
    """One certification as one node sees it."""

    name: str
    profile: str
    purpose: Purpose
    phase: Phase
    request: TestRequest | None = None
    """None: not asked for by the controller; its verdicts do not move the node."""
    verdict: NodeVerdict = NodeVerdict.UNTESTED
    reason: Reason = Reason.NONE
    message: str = ""
    tests: tuple[CertifiedTest, ...] = ()
    recipe_digest: str = ""

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)


@dataclass(frozen=True)
class NodeView:
    """One node, joined from everything known about it."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    boot_id: str = ""
    """Boot ID that the kubelet reports."""
    unschedulable: bool = False
    cordoned_by: str = ""
    """Value of the cordon annotation: the episode for which Muster cordoned it."""
    spec: NodeHealthSpec = field(default_factory=NodeHealthSpec)
    observed: Observed | None = None
    lifecycle: Lifecycle | None = None
    agent_seen: datetime | None = None
    """Last heartbeat of the node's agent."""
    pods: tuple[PodView, ...] = ()
    certifications: tuple[CertificationView, ...] = ()
    """Those that name the node, oldest first."""
    repairs: tuple[Repair, ...] = ()
    """Repairs of the node's present episode."""
    refusals: tuple[Refusal, ...] = ()

    @property
    def member(self) -> Member:
        return Member(self.name, domain_of(self.labels), pool_of(self.labels))

    @property
    def work(self) -> tuple[PodView, ...]:
        """Production work on the node, sorted by key."""
        return tuple(sorted((p for p in self.pods if p.is_work), key=lambda p: p.key))


@dataclass(frozen=True)
class WavePlan:
    """Whose turn it is to be held for recertification."""

    turn: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    """Node -> why it is not its turn."""
    halted: Mapping[str, str] = field(default_factory=dict)
    """Change -> why its roll-out is halted."""
    recheck_at: datetime | None = None


@dataclass(frozen=True)
class FleetView:
    """What one decision needs to know about the other nodes."""

    usage: Usage
    wave: WavePlan = WavePlan()
    batch_waits: Mapping[str, str] = field(default_factory=dict)
    """Node -> why its certification has not been asked for yet."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of every member, to find the group that a budget covers."""


@dataclass(frozen=True)
class EvictPod:
    """Ask for the eviction of `pod`; PodDisruptionBudgets are respected."""

    pod: PodView
    episode: str


@dataclass(frozen=True)
class DeletePod:
    """Delete `pod` although a PodDisruptionBudget protects it: the deadline is over and the policy says so."""

    pod: PodView
    episode: str


@dataclass(frozen=True)
class CreateRepair:
    """Create `repair` unless an object of its name exists."""

    repair: Repair


Intent = EvictPod | DeletePod | CreateRepair


@dataclass(frozen=True)
class Note:
    """Something to record as a Kubernetes Event about the node."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True)
class Decision:
    """What is to be written and done. Deciding again without a change of the world gives an equal lifecycle."""

    lifecycle: Lifecycle
    intents: tuple[Intent, ...] = ()
    notes: tuple[Note, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """New entries of the history, oldest first."""
    recheck_at: datetime | None = None
    """When time alone may change the decision; None: only an event can."""
