"""What the node controller's core sees and says: views of the world, intents, decisions. Values only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from muster.operate.budget import Member, Usage
from muster.operate.correlation.model import NOTHING, Correlations
from muster.operate.coverage import NO_STANDARD, Standard
from muster.resources.certification import NodeVerdict, Phase, Purpose, Reason
from muster.resources.maintenance import Maintenance
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
    CORRELATION = "correlation"
    FAULT = "fault"
    MAINTENANCE = "maintenance"
    NODE = "node"
    PERSON = "person"
    POD = "pod"
    REPAIR = "repair"
    WAVE = "wave"


LABEL_DIGEST_BYTES = 8


@lru_cache(maxsize=65536)
def label_digest(key: str, value: str) -> bytes:
    """What is kept of one label: enough to tell whether a pod has it, of one size however long the label is."""
    return hashlib.blake2b(f"{key}\n{value}".encode(), digest_size=LABEL_DIGEST_BYTES).digest()


def label_digests(labels: Mapping[str, str]) -> bytes:
    """The digests of all labels, sorted, one behind the other: tens of thousands of pods are kept in memory."""
    return b"".join(sorted(label_digest(key, value) for key, value in labels.items()))


@dataclass(frozen=True, slots=True)
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
    labels: bytes = b""
    """See `label_digests`."""
    checkpoint: bool = False
    """It can save its state when asked."""
    checkpoint_asked: str = ""
    """Episode for which it was asked to save its state."""
    checkpoint_done: str = ""
    """Episode for which it says that it has saved its state."""
    gpu_uuids: tuple[str, ...] = ()
    """GPUs that an annotation says it holds, sorted; empty: none says."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def carries(self, selector: Mapping[str, str]) -> bool:
        """Whether the pod has every label of `selector`."""
        have = {self.labels[i : i + LABEL_DIGEST_BYTES] for i in range(0, len(self.labels), LABEL_DIGEST_BYTES)}
        return all(label_digest(key, value) in have for key, value in selector.items())

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
    since: datetime | None = None
    """When it was refused first."""

    @property
    def budget(self) -> str:
        """Name of the PodDisruptionBudget, where the API server told it."""
        found = _BUDGET_NAME.search(self.message)
        return found.group(1) if found else ""


_BUDGET_NAME = re.compile(r"[Dd]isruption budget ([a-z0-9][a-z0-9.-]{0,252}) (?:needs|is still|does not allow)")


class SavePhase(StrEnum):
    """What the webhook of a checkpoint said about the pods it was told of."""

    SAVING = "saving"
    SAVED = "saved"
    FAILED = "failed"


@dataclass(frozen=True)
class CheckpointAnswer:
    """The last answer of the webhook about one pod in one episode."""

    pod_uid: str
    episode: str
    phase: SavePhase
    message: str = ""


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
    asked: Mapping[str, str] = field(default_factory=dict)
    """Tests that it set out to run -> digest, once it ended."""
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
    hold_taint: bool = False
    """It bears the hold, from whomever: no work came to it in the ordinary way."""
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
    stray_repairs: tuple[Repair, ...] = ()
    """Unfinished repairs of the node that belong to other episodes, or to an earlier node of its name."""
    refusals: tuple[Refusal, ...] = ()
    checkpoints: tuple[CheckpointAnswer, ...] = ()
    maintenances: tuple[Maintenance, ...] = ()
    """Planned maintenance that names the node, its labels or its domain; the ended too."""
    claimed_gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UID of a pod -> GPUs that its ResourceClaims gave it."""

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
    correlations: Correlations = NOTHING
    """Findings that many nodes have at once; automation holds back for them."""
    compared_at: datetime | None = None
    """When the findings of all nodes were compared last; None: they are compared as they come."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Kind of finding (`xid/79`) -> nodes that have it open."""
    standard: Standard = NO_STANDARD
    """What certificates are measured against."""
    demand: bool = False
    """Pods wait for GPUs: nobody is held to renew a certificate that is good."""


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
class AskCheckpoint:
    """Ask `pod` by annotation to save its state before it leaves."""

    pod: PodView
    episode: str


@dataclass(frozen=True)
class CallCheckpoint:
    """Tell the webhook at `url` which pods must save their state. The answer comes back as `CheckpointAnswer`s."""

    url: str
    node: str
    pods: tuple[PodView, ...]
    episode: str
    deadline: datetime
    """Nobody waits for the answer after that."""


@dataclass(frozen=True)
class CreateRepair:
    """Create `repair` unless an object of its name exists."""

    repair: Repair


@dataclass(frozen=True)
class CancelRepair:
    """Set `spec.cancel` of the repair: nobody wants it any more. A provider that has begun goes on."""

    name: str
    uid: str
    episode: str
    reason: str


Intent = EvictPod | DeletePod | AskCheckpoint | CallCheckpoint | CreateRepair | CancelRepair


NOTE_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "Adopted": "The node was at work when Muster saw it first; it works on and is certified when it is idle.",
        "AutomationHeldBack": "The same finding on many nodes: rules lead no further until a person has looked.",
        "CertificationFailed": "A certification named the node Failed.",
        "CertificationInconclusive": "A certification ended without a verdict about the node.",
        "DecisionObeyed": "A person's decision was carried out.",
        "DeferNotPossible": "A person asked for a deferral that cannot be given.",
        "DrainOverdue": "Work has not left the node within the drain's deadline.",
        "DrainStarted": "Work begins to leave the node.",
        "GaveWay": "The renewal of a good certificate waits: the node is wanted for work.",
        "Grace": "The certificate does not fit any more; the node works on until its turn.",
        "GraceEnded": "What had put the certificate in doubt was undone.",
        "HandedOver": "The node is free of work and in the hands of whoever maintains it.",
        "Held": "The node was taken out of service.",
        "HoldStands": "A release does not lift a hold that stands in the spec.",
        "HoldWaits": "The node should be held and the budget has no room.",
        "InService": "The node was certified and takes work.",
        "MaintenanceEnded": "Planned maintenance of the node is over; it is recertified.",
        "MaintenanceHeld": "The node was taken out of service for planned maintenance.",
        "NodeReplaced": "Another node joined under the name.",
        "NothingToApprove": "A person approved and nothing waited for it.",
        "NothingToRelease": "A person released a node that is not held.",
        "NothingToRetire": "A person retired a node that is out of service.",
        "NothingToRetry": "A person asked for another try and nothing is to be tried.",
        "Recurred": "A finding came back after a proved repair; the ladder goes on behind it.",
        "ReleaseWaits": "A release waits for a repair that has begun.",
        "RepairCancelled": "A repair that had not begun was called back.",
        "RepairFailed": "A repair failed or had no effect.",
        "RepairProved": "The effect of a repair was seen on the node.",
        "RepairStarted": "A repair was asked for.",
        "TicketOpened": "The ladder is spent; a person must decide.",
        "UncordonedByPerson": "A person lifted the cordon that Muster had placed.",
        "WholeNodeDrained": "Which pods hold the GPU at fault is unknown, so all of them leave.",
        "WorkBeforeHold": "Work was on a new node before it could be held.",
    }
)
"""Reasons of the Kubernetes Events about nodes, for alerts and documentation. They do not change their meaning."""


@dataclass(frozen=True)
class Note:
    """Something to record as a Kubernetes Event about the node. `reason` is a key of NOTE_REASONS."""

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
