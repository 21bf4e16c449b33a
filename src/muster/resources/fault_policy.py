"""`FaultPolicy`: ordered rules from fault to disposition and ladder, the budgets, drain, drift and test settings.

Policies select node groups by label. Several policies that match a node merge: rules by name, other sections whole,
the policy with the higher `priority` wins.
"""

from __future__ import annotations

from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta
from muster.resources.fault import Hint, Scope, Severity
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
    provider: str = ""
    """Who carries out this rung; empty: `providers` of the policy, then its `repairProvider`."""


class DrainScope(StrEnum):
    """Whose pods leave a node for a fault."""

    AUTO = "auto"
    """Those that hold the GPU at fault, where fault and first rung concern one GPU; else all."""
    GPU = "gpu"
    NODE = "node"


class Rule(Model, frozen=True, kw_only=True):
    """The first rule whose `when` is true decides."""

    name: str
    when: str
    """CEL over `fault`, `node` and `history` (docs/reference/policy.md); must yield a bool."""
    disposition: Disposition
    ladder: tuple[LadderStep, ...] = ()
    grace_s: int = 0
    """The fault must have been open this long before the disposition applies."""
    scope: DrainScope = DrainScope.AUTO
    """Whose pods leave, and whether a repair may work on one GPU while others of the node go on."""
    no_execute: bool = False
    """The hold taint is `NoExecute`: pods that do not tolerate it are evicted by Kubernetes at once, without budgets
    of their own (PodDisruptionBudgets do not apply). For faults under which work must not go on."""
    cordon: bool = False
    """Cordon the node as well, for schedulers that look at nothing else."""


class GroupBy(StrEnum):
    """By what a pattern sorts what it counts; it counts each group by itself."""

    NODE = "node"
    ENTITY = "entity"
    """GPU, NIC, link: the entity key of the fault."""
    GPU = "gpu"
    """The GPU alone, whatever link or unit of it."""
    CODE = "code"
    DETAIL = "detail"
    """The details named in `details`, for example `gpc` and `tpc`."""


class PatternOver(StrEnum):
    """What a pattern counts."""

    BURSTS = "bursts"
    """Bursts of faults, open and closed; sightings closer than `burstGapS` are one."""
    REPAIRS = "repairs"
    """Repair attempts of the node (`when` sees no fault then; leave it empty)."""


class Pattern(Model, frozen=True, kw_only=True):
    """A rule over history. While it holds, the node has one more fault (source and check `pattern`, code `name`),
    which the rules judge like any other. A proved repair, or a person's release, is the boundary of its history."""

    name: str
    description: str = ""
    over: PatternOver = PatternOver.BURSTS
    when: str = "true"
    """CEL over `fault`, `node` and `details` (map of text): which bursts count."""
    within_s: int = 86400
    at_least: int = 2
    at_least_groups: int = 1
    """So many different groups must reach `atLeast` together (with 2: the same finding on different GPUs)."""
    at_most: int = 0
    """With a value: not more than so many (a finding that came alone); 0: no upper bound."""
    group_by: tuple[GroupBy, ...] = (GroupBy.ENTITY, GroupBy.CODE)
    details: tuple[str, ...] = ()
    burst_gap_s: int = 180
    sticky_gap_s: int = 0
    """Gap for codes that the catalogue calls sticky; 0: `burstGapS`."""
    unless: str = ""
    """CEL over `other` (map: check/code -> count of open faults besides those counted) and `node`: then it does not
    hold. Example: `size(other) > 0`."""
    enabled: bool = True
    severity: Severity = Severity.WARNING
    scope: Scope = Scope.GPU
    hint: Hint = Hint.INSPECT
    message: str = ""


class CorrelateOver(StrEnum):
    """Among which nodes a finding is compared."""

    DOMAIN = "domain"
    POOL = "pool"
    CLUSTER = "cluster"


class Correlation(Model, frozen=True, kw_only=True):
    """The same finding on many nodes within a short time speaks of something they share. While one holds, rules lead
    no node of the group beyond `disposition` for that finding; a person is told, and what changed before is named."""

    name: str
    over: CorrelateOver = CorrelateOver.DOMAIN
    when: str = "fault.severity == 'fatal'"
    """CEL over `fault` and `node`."""
    within_s: int = 600
    at_least: int = 3
    """Nodes."""
    at_least_share: str = "10%"
    """And at least this share of the group."""
    disposition: Disposition = Disposition.CONDITION
    enabled: bool = True


class Blackout(Model, frozen=True, kw_only=True):
    """A recurring time in which no new disruption starts (recoveries and releases go on)."""

    name: str
    days: tuple[str, ...] = ()
    """`mon` to `sun`; empty: every day. The day on which it begins."""
    start: str
    """`HH:MM` in `timezone`."""
    duration_s: int
    timezone: str = "UTC"


class Budget(Model, frozen=True, kw_only=True):
    """How much may be out of service at once for reasons that Muster may choose the time of.

    `max_disrupted*` take an absolute number (`"6"`) or a percentage (`"10%"`, rounded up, at least one).
    """

    max_disrupted: str = "10%"
    max_disrupted_per_domain: str = "50%"
    max_disrupted_per_pool: str = "100%"
    max_new_per_window: int = 50
    window_s: int = 3600
    require_approval: bool = False
    blackouts: tuple[Blackout, ...] = ()


class DrainMode(StrEnum):
    EVICT = "evict"
    WAIT_FOR_COMPLETION = "wait-for-completion"
    DEADLINE = "deadline"
    """Wait for completion until the deadline, then evict."""


class Checkpoint(Model, frozen=True, kw_only=True):
    """Before work is evicted it may save its state. Nothing waits longer than `timeoutS` for it."""

    annotate: bool = True
    """Ask pods that carry `muster.dev/checkpoint: "true"` by the annotation `muster.dev/checkpoint-asked: <episode>`;
    they (or their operator) answer with `muster.dev/checkpoint-done: <episode>`."""
    webhook: str = ""
    """URL that is told by POST which pods must save. 200 or 204: they did; 202: not yet, it is asked again."""
    timeout_s: int = 300


class DrainRule(Model, frozen=True, kw_only=True):
    """How some pods are drained: the first rule that matches a pod decides, without one the section itself."""

    name: str
    namespaces: tuple[str, ...] = ()
    """Names, `*` and `?` as in file names; empty: all."""
    pod_selector: dict[str, str] = {}
    mode: DrainMode
    deadline_s: int = 3600
    force_after_deadline: bool = False
    checkpoint: Checkpoint | None = None


class Drain(Model, frozen=True, kw_only=True):
    mode: DrainMode = DrainMode.EVICT
    deadline_s: int = 3600
    """Mode `deadline`: how long to wait before evicting. Mode `evict`: how long a PodDisruptionBudget may block."""
    force_after_deadline: bool = False
    """Delete what a PodDisruptionBudget still protects after the deadline."""
    checkpoint: Checkpoint | None = None
    rules: tuple[DrainRule, ...] = ()


class MaintenancePolicy(Model, frozen=True, kw_only=True):
    """What follows from maintenance that the owner of a machine announces to the node itself."""

    lead_s: int = 1800
    """The node is held and drained so long before the announced start."""
    disposition: Disposition = Disposition.CONDITION
    """`condition` tells people; `hold` and `drain` also take the node out in time, inside the budget."""
    return_after_s: int = 900
    """The node must be back and quiet for so long after the announced end before it is recertified."""


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
    baseline: DriftAction = DriftAction.REPORT
    """A node was certified under another recipe than its Baseline names: `report` or `roll`."""
    coverage: DriftAction = DriftAction.REPORT
    """A certificate does not cover every required test in its present definition: `report` or `roll`."""
    max_grace_s: int = 7 * 24 * 3600


class CertificationPolicy(Model, frozen=True, kw_only=True):
    max_batch: int = 64
    batch_wait_s: int = 120
    max_attempts: int = 3
    """Certifications that may end Undetermined for one node before a person is asked."""
    require: tuple[str, ...] = ()
    """Tests that every certificate must cover beside those of the bring-up profile."""
    max_age_s: int = 0
    """A certificate expires at most so long after its issue; 0: never. Idle nodes are recertified before that, from
    three quarters of the age on."""
    age_action: DriftAction = DriftAction.ROLL
    """What follows for a node that was never idle until its certificate expired and `drift.maxGraceS` passed: `roll`
    gives it a turn inside the budget though it has work, `hold` holds it whatever the budget says. `report`: an
    expired certificate is shown, and nothing follows."""
    adopt: bool = False
    """A node that has work when Muster sees it first works on under grace and is certified when it is idle; without
    this it is held. For the day on which Muster is installed in a cluster at work."""


AGENT_SILENT_S = 300
NOBODY = "none"
"""Name of a provider that carries out nothing."""


class FaultPolicySpec(Model, frozen=True, kw_only=True):
    priority: int = 0
    node_selector: dict[str, str] = {}
    rules: tuple[Rule, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    repair_provider: str = ""
    """Name of the provider that carries out repairs; empty: repairs are off, a person is asked. `none` switches them
    off whatever weaker policies say."""
    providers: dict[str, str] = {}
    """Rung -> provider, where rungs are carried out by different ones."""
    budget: Budget | None = None
    drain: Drain | None = None
    maintenance: MaintenancePolicy | None = None
    drift: DriftPolicy | None = None
    certification: CertificationPolicy | None = None
    agent_silent_s: int | None = None
    """After so long without a heartbeat an agent is silent. None: as a weaker policy says, at last AGENT_SILENT_S."""


class FaultPolicyStatus(Model, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class FaultPolicy(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "FaultPolicy"
    metadata: ObjectMeta
    spec: FaultPolicySpec
    status: FaultPolicyStatus = FaultPolicyStatus()
