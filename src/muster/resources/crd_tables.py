"""What the models do not say about their CRDs: names, columns, bounds and rules.

Bounds are generous: they keep a mistake or an attack from filling etcd (1.5 MiB per object) and give the API server
the sizes from which it estimates the cost of a rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from muster.resources.base import Condition
from muster.resources.baseline import MAX_LISTED, Baseline, BaselineSpec, BaselineStatus
from muster.resources.certification import (
    Certification,
    CertificationBudget,
    CertificationPart,
    CertificationPartSpec,
    CertificationSpec,
    CertificationStatus,
    LinkResult,
    NodeResult,
    RunRecord,
)
from muster.resources.fault import BURST_LIMIT, Burst, Fault
from muster.resources.fault_policy import (
    Blackout,
    Budget,
    CertificationPolicy,
    Checkpoint,
    Correlation,
    Drain,
    DrainRule,
    DriftPolicy,
    FaultPolicy,
    FaultPolicySpec,
    LadderStep,
    MaintenancePolicy,
    Pattern,
    Rule,
)
from muster.resources.fingerprint import Fingerprint
from muster.resources.maintenance import Maintenance, MaintenanceSpec, MaintenanceStatus
from muster.resources.node_health import (
    EARLIER_LIMIT,
    HISTORY_LIMIT,
    RECENT_LIMIT,
    Decision,
    GpuAssignment,
    Lifecycle,
    NodeHealth,
    Observed,
    PersonHold,
)
from muster.resources.repair import Repair, RepairSpec

MAX_LENGTH = 4096
"""Characters of a string without a bound of its own."""
MAX_ITEMS = 256
"""Entries of a list without a bound of its own."""
MAX_PROPERTIES = 256
MAX_NODES = 20_000
"""Nodes that one certification may name: the largest fleets, well inside etcd's limit."""
NAME_LENGTH = 253
"""Longest name of a Kubernetes object (DNS subdomain)."""


@dataclass(frozen=True)
class Column:
    """A printer column of `kubectl get`; `wide` columns show with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True)
class CelRule:
    """A validation rule in CEL, and the sentence for whoever breaks it."""

    rule: str
    message: str

    def manifest(self) -> dict[str, str]:
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True)
class KindInfo:
    model: type[msgspec.Struct]
    plural: str
    short_name: str
    columns: tuple[Column, ...]

    @property
    def kind(self) -> str:
        return self.model.__name__


AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS: tuple[KindInfo, ...] = (
    KindInfo(
        NodeHealth,
        "nodehealths",
        "nh",
        (
            Column("State", ".status.lifecycle.state"),
            Column("Since", ".status.lifecycle.since", "date"),
            Column("Held", ".status.lifecycle.held", "boolean"),
            Column("Certificate", ".status.lifecycle.certificate.standing"),
            Column("Next", ".status.lifecycle.next"),
            Column("Hold-Reason", ".status.lifecycle.holdReason", wide=True),
            Column("Episode", ".status.lifecycle.episode.id", wide=True),
            Column("Observed", ".status.observed.observedAt", "date", wide=True),
            Column("Boot", ".status.observed.bootId", wide=True),
        ),
    ),
    KindInfo(
        Certification,
        "certifications",
        "mcert",
        (
            Column("Phase", ".status.phase"),
            Column("Profile", ".spec.profile"),
            Column("Purpose", ".spec.purpose"),
            Column("Round", ".status.round", "integer"),
            Column("Blocked", ".status.blocked"),
            AGE,
            Column("Nodes", ".spec.nodes", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
    ),
    KindInfo(
        CertificationPart,
        "certificationparts",
        "mpart",
        (
            Column("Certification", ".spec.certification"),
            Column("Number", ".spec.number", "integer"),
            AGE,
        ),
    ),
    KindInfo(
        Repair,
        "repairs",
        "mrepair",
        (
            Column("Node", ".spec.nodeName"),
            Column("Rung", ".spec.rung"),
            Column("Attempt", ".spec.attempt", "integer"),
            Column("Phase", ".status.phase"),
            Column("Provider", ".spec.provider"),
            AGE,
            Column("Episode", ".spec.episode", wide=True),
            Column("External-ID", ".status.externalId", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
    ),
    KindInfo(
        FaultPolicy,
        "faultpolicies",
        "fpol",
        (
            Column("Priority", ".spec.priority", "integer"),
            Column("Provider", ".spec.repairProvider"),
            Column("Max-Disrupted", ".spec.budget.maxDisrupted"),
            AGE,
        ),
    ),
    KindInfo(
        Maintenance,
        "maintenances",
        "mmaint",
        (
            Column("Phase", ".status.phase"),
            Column("Opens", ".spec.opensAt"),
            Column("Closes", ".spec.closesAt"),
            Column("Emergency", ".spec.emergency", "boolean"),
            AGE,
            Column("Reason", ".spec.reason", wide=True),
            Column("Requested-By", ".spec.requestedBy", wide=True),
        ),
    ),
    KindInfo(
        Baseline,
        "baselines",
        "mbase",
        (
            Column("Result", ".status.result"),
            Column("Failed", ".status.counts.failed", "integer"),
            Column("Unknown", ".status.counts.unknown", "integer"),
            Column("Drifted", ".status.counts.drifted", "integer"),
            Column("Checked", ".status.checkedAt", "date"),
            AGE,
            Column("Recipe", ".status.recipeDigest", wide=True),
        ),
    ),
)

_NAME = {"maxLength": NAME_LENGTH, "minLength": 1}
_POSITIVE = {"minimum": 0, "exclusiveMinimum": True}
_NODES = {
    "maxItems": MAX_NODES,
    "items": {"type": "string", "maxLength": NAME_LENGTH, "minLength": 1},
    "x-kubernetes-list-type": "set",
}
_SELECTOR = {"maxProperties": 32, "x-kubernetes-map-type": "atomic"}
# An absolute number, or a percentage up to 100 %.
_SHARE = {"maxLength": 6, "pattern": "^([0-9]{1,6}|(100|[1-9]?[0-9])%)$"}

BOUNDS: dict[tuple[type[msgspec.Struct], str], dict[str, Any]] = {
    (Condition, "type"): {"maxLength": 316, "minLength": 1},
    (Condition, "reason"): {"maxLength": 1024},
    (Condition, "message"): {"maxLength": 32768},
    (BaselineSpec, "recipe"): {"maxLength": 1_000_000, "minLength": 1},
    (BaselineSpec, "node_selector"): _SELECTOR,
    (BaselineSpec, "confirmed"): {"maxProperties": 32},
    (BaselineSpec, "interval_s"): {**_POSITIVE, "maximum": 86400},
    (BaselineStatus, "assertions"): {"maxItems": MAX_LISTED},
    (BaselineStatus, "drifts"): {"maxItems": MAX_LISTED},
    (CertificationSpec, "nodes"): _NODES,
    (CertificationSpec, "node_selector"): _SELECTOR,
    (CertificationSpec, "tests"): {"maxItems": 64},
    (CertificationSpec, "custom_tests"): {"maxItems": 64},
    (CertificationSpec, "floors"): {"maxProperties": 64},
    (CertificationPartSpec, "certification"): _NAME,
    (CertificationPartSpec, "number"): {"minimum": 0},
    (CertificationPartSpec, "runs"): {"maxItems": 20_000},
    (CertificationPartSpec, "details"): {"maxItems": 20_000},
    (CertificationPartSpec, "nodes"): {"maxItems": MAX_NODES},
    (CertificationSpec, "partners"): _NODES,
    (CertificationSpec, "profile"): _NAME,
    (CertificationBudget, "max_rounds"): {"minimum": 1},
    (CertificationBudget, "max_runs"): {"minimum": 1},
    (CertificationBudget, "max_wall_minutes"): _POSITIVE,
    (CertificationBudget, "max_blocked_minutes"): _POSITIVE,
    (CertificationBudget, "max_node_minutes"): _POSITIVE,
    (CertificationBudget, "max_false_blame"): {**_POSITIVE, "maximum": 1},
    (CertificationStatus, "runs"): {"maxItems": 20_000},
    (CertificationStatus, "nodes"): {"maxItems": MAX_NODES},
    (CertificationStatus, "links"): {"maxItems": MAX_NODES},
    (RunRecord, "nodes"): {"maxItems": MAX_NODES},
    (RunRecord, "suspects"): {"maxItems": MAX_NODES},
    (NodeResult, "evidence_for"): {"maxItems": 20_000},
    (NodeResult, "evidence_against"): {"maxItems": 20_000},
    (LinkResult, "evidence"): {"maxItems": 20_000},
    (Fingerprint, "readings"): {"maxItems": 2048},
    (Observed, "faults"): {"maxItems": 2048},
    (Observed, "recent"): {"maxItems": RECENT_LIMIT},
    (Observed, "notices"): {"maxItems": 64},
    (Observed, "assignments"): {"maxItems": 512},
    (GpuAssignment, "gpus"): {"maxItems": 64},
    (Fault, "bursts"): {"maxItems": BURST_LIMIT},
    (Burst, "details"): {"maxProperties": 16},
    (Lifecycle, "derived"): {"maxItems": 64},
    (Lifecycle, "earlier"): {"maxItems": EARLIER_LIMIT},
    (Lifecycle, "told"): {"maxProperties": 256},
    (MaintenanceSpec, "reason"): {"minLength": 1},
    (MaintenanceSpec, "nodes"): _NODES,
    (MaintenanceSpec, "node_selector"): _SELECTOR,
    (MaintenanceStatus, "handed_back"): {"maxItems": MAX_NODES},
    (MaintenanceStatus, "nodes"): {"maxItems": MAX_NODES},
    (Lifecycle, "history"): {"maxItems": HISTORY_LIMIT},
    (PersonHold, "by"): _NAME,
    (PersonHold, "reason"): {"minLength": 1},
    (Decision, "id"): _NAME,
    (Decision, "by"): _NAME,
    (FaultPolicySpec, "rules"): {"maxItems": 128},
    (FaultPolicySpec, "patterns"): {"maxItems": 64},
    (FaultPolicySpec, "correlations"): {"maxItems": 32},
    (FaultPolicySpec, "providers"): {"maxProperties": 16},
    (Pattern, "name"): {"maxLength": 63, "minLength": 1},
    (Pattern, "within_s"): {"minimum": 1},
    (Pattern, "at_least"): {"minimum": 1},
    (Pattern, "at_least_groups"): {"minimum": 1},
    (Pattern, "at_most"): {"minimum": 0},
    (Pattern, "burst_gap_s"): {"minimum": 0},
    (Pattern, "sticky_gap_s"): {"minimum": 0},
    (Pattern, "details"): {"maxItems": 8},
    (Pattern, "group_by"): {"maxItems": 8},
    (Correlation, "name"): {"maxLength": 63, "minLength": 1},
    (Correlation, "within_s"): {"minimum": 1},
    (Correlation, "at_least"): {"minimum": 2},
    (Correlation, "at_least_share"): _SHARE,
    (Blackout, "name"): {"maxLength": 63, "minLength": 1},
    (Blackout, "start"): {"pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "maxLength": 5},
    (Blackout, "duration_s"): {"minimum": 1, "maximum": 604_800},
    (Blackout, "days"): {"maxItems": 7},
    (Budget, "blackouts"): {"maxItems": 32},
    (Budget, "max_disrupted_per_pool"): _SHARE,
    (Checkpoint, "timeout_s"): {"minimum": 0},
    (DrainRule, "name"): {"maxLength": 63, "minLength": 1},
    (DrainRule, "deadline_s"): {"minimum": 0},
    (DrainRule, "namespaces"): {"maxItems": 64},
    (DrainRule, "pod_selector"): _SELECTOR,
    (Drain, "rules"): {"maxItems": 64},
    (MaintenancePolicy, "lead_s"): {"minimum": 0},
    (MaintenancePolicy, "return_after_s"): {"minimum": 0},
    (FaultPolicySpec, "node_selector"): _SELECTOR,
    (FaultPolicySpec, "agent_silent_s"): {"minimum": 1},
    (Rule, "name"): {"maxLength": 63, "minLength": 1},
    (Rule, "when"): {"minLength": 1},
    (Rule, "grace_s"): {"minimum": 0},
    (Rule, "ladder"): {"maxItems": 16},
    (LadderStep, "attempts"): {"minimum": 1},
    (LadderStep, "timeout_s"): {"minimum": 1},
    (Budget, "max_disrupted"): _SHARE,
    (Budget, "max_disrupted_per_domain"): _SHARE,
    (Budget, "max_new_per_window"): {"minimum": 0},
    (Budget, "window_s"): {"minimum": 1},
    (Drain, "deadline_s"): {"minimum": 0},
    (DriftPolicy, "max_grace_s"): {"minimum": 0},
    (CertificationPolicy, "max_batch"): {"minimum": 1},
    (CertificationPolicy, "batch_wait_s"): {"minimum": 0},
    (CertificationPolicy, "max_attempts"): {"minimum": 1},
    (CertificationPolicy, "require"): {"maxItems": 32},
    (CertificationPolicy, "max_age_s"): {"minimum": 0},
    (RepairSpec, "node_name"): _NAME,
    (RepairSpec, "node_uid"): _NAME,
    (RepairSpec, "episode"): _NAME,
    (RepairSpec, "provider"): _NAME,
    (RepairSpec, "attempt"): {"minimum": 1},
    (RepairSpec, "timeout_s"): {"minimum": 1},
}
"""Bounds of single fields, by model and attribute."""

RULES: dict[type[msgspec.Struct], tuple[CelRule, ...]] = {
    RepairSpec: (
        CelRule(
            "self.nodeName == oldSelf.nodeName && self.nodeUid == oldSelf.nodeUid && self.episode == oldSelf.episode"
            " && self.rung == oldSelf.rung && self.provider == oldSelf.provider && self.attempt == oldSelf.attempt"
            " && self.timeoutS == oldSelf.timeoutS",
            "a repair never changes; create another one",
        ),
        CelRule(
            "(has(self.gpuUuids) ? self.gpuUuids : []) == (has(oldSelf.gpuUuids) ? oldSelf.gpuUuids : [])"
            " && (has(self.reason) ? self.reason : '') == (has(oldSelf.reason) ? oldSelf.reason : '')"
            " && (has(self.bootIdBefore) ? self.bootIdBefore : '')"
            " == (has(oldSelf.bootIdBefore) ? oldSelf.bootIdBefore : '')",
            "a repair never changes; create another one",
        ),
        CelRule(
            "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
            "a repair that was cancelled stays cancelled; create another one",
        ),
    ),
    MaintenanceSpec: (
        CelRule("self.opensAt < self.closesAt", "closesAt must lie after opensAt"),
        CelRule(
            "(has(self.nodes) && size(self.nodes) > 0) || (has(self.nodeSelector) && size(self.nodeSelector) > 0)"
            " || (has(self.domains) && size(self.domains) > 0)",
            "a maintenance needs nodes: names in nodes, labels in nodeSelector, or domains",
        ),
        CelRule(
            "!has(self.emergency) || !self.emergency || !has(self.nodeSelector) || size(self.nodeSelector) == 0",
            "an emergency names its nodes or domains one by one, not by nodeSelector",
        ),
        CelRule(
            "!has(self.emergency) || !self.emergency || (has(self.requestedBy) && self.requestedBy != '')",
            "an emergency needs requestedBy: the budget is asked in that person's name",
        ),
        CelRule(
            "!has(self.deferLimit) || (self.deferLimit >= self.opensAt && self.deferLimit <= self.closesAt)",
            "deferLimit must lie between opensAt and closesAt",
        ),
    ),
    CertificationSpec: (
        CelRule(
            "(has(self.nodes) && size(self.nodes) > 0) || (has(self.nodeSelector) && size(self.nodeSelector) > 0)",
            "a certification needs nodes: names in nodes, or labels in nodeSelector",
        ),
    ),
    CertificationPartSpec: (CelRule("self == oldSelf", "a part of a certification never changes"),),
    FaultPolicySpec: (
        CelRule(
            "!has(self.rules) || self.rules.all(r, self.rules.exists_one(s, s.name == r.name))",
            "two rules have the same name; rules of several policies are merged by name",
        ),
    ),
}
"""Rules on the object of a model."""

ROOT_RULES: dict[type[msgspec.Struct], tuple[CelRule, ...]] = {
    Certification: (
        CelRule(
            "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase == 'Pending'"
            " || self.spec == oldSelf.spec",
            "the spec of a certification cannot change once it is running; create another one",
        ),
    ),
}
"""Rules that look at spec and status together."""
