"""`FaultPolicy`: ordered rules from fault to disposition and ladder, the budgets, drain, drift and test settings.

Policies select node groups by label. Several policies that match a node merge: rules by name, other sections whole,
the policy with the higher `priority` wins.
"""

from __future__ import annotations

from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta
from muster.resources.repair import Rung


class Disposition(StrEnum):
    """What a rule does with a fault, mildest first."""

    IGNORE = "ignore"
    OBSERVE = "observe"
    CONDITION = "condition"
    HOLD = "hold"
    DRAIN = "drain"
    REPAIR = "repair"


class LadderStep(Model, frozen=True, kw_only=True):
    rung: Rung
    attempts: int = 1
    timeout_s: int = 1800


class Rule(Model, frozen=True, kw_only=True):
    """The first rule whose `when` is true decides."""

    name: str
    when: str
    """CEL over `fault` and `node` (docs/reference/policy.md); must yield a bool."""
    disposition: Disposition
    ladder: tuple[LadderStep, ...] = ()
    grace_s: int = 0
    """The fault must have been open this long before the disposition applies."""


class Budget(Model, frozen=True, kw_only=True):
    """How much may be out of service at once for reasons that Muster may choose the time of.

    `max_disrupted*` take an absolute number (`"6"`) or a percentage (`"10%"`, rounded up, at least one).
    """

    max_disrupted: str = "10%"
    max_disrupted_per_domain: str = "50%"
    max_new_per_window: int = 50
    window_s: int = 3600
    require_approval: bool = False


class DrainMode(StrEnum):
    EVICT = "evict"
    WAIT_FOR_COMPLETION = "wait-for-completion"
    DEADLINE = "deadline"
    """Wait for completion until the deadline, then evict."""


class Drain(Model, frozen=True, kw_only=True):
    mode: DrainMode = DrainMode.EVICT
    deadline_s: int = 3600
    """Mode `deadline`: how long to wait before evicting. Mode `evict`: how long a PodDisruptionBudget may block."""
    force_after_deadline: bool = False
    """Delete what a PodDisruptionBudget still protects after the deadline."""


class DriftAction(StrEnum):
    HOLD = "hold"
    """Hold at once and recertify."""
    ROLL = "roll"
    """Keep serving under grace, then hold in waves inside the budget and recertify."""
    REPORT = "report"


class DriftPolicy(Model, frozen=True, kw_only=True):
    identity: DriftAction = DriftAction.HOLD
    stack: DriftAction = DriftAction.ROLL
    config: DriftAction = DriftAction.REPORT
    max_grace_s: int = 7 * 24 * 3600


class CertificationPolicy(Model, frozen=True, kw_only=True):
    max_batch: int = 64
    batch_wait_s: int = 120
    max_attempts: int = 3
    """Certifications that may end Undetermined for one node before a person is asked."""


class FaultPolicySpec(Model, frozen=True, kw_only=True):
    priority: int = 0
    node_selector: dict[str, str] = {}
    rules: tuple[Rule, ...] = ()
    repair_provider: str = ""
    """Name of the provider that carries out repairs; empty: repairs are off, a person is asked."""
    budget: Budget | None = None
    drain: Drain | None = None
    drift: DriftPolicy | None = None
    certification: CertificationPolicy | None = None
    agent_silent_s: int = 300


class FaultPolicyStatus(Model, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class FaultPolicy(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "FaultPolicy"
    metadata: ObjectMeta
    spec: FaultPolicySpec
    status: FaultPolicyStatus = FaultPolicyStatus()
