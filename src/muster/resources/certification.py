"""`Certification`: a request to prove that nodes and the links between them do the work, and the verdict."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """Every node of the target passed."""
    FAILED = "Failed"
    """Complete, and at least one node or link did not pass."""
    ABORTED = "Aborted"
    """Ended without verdicts that count (deleted target, person, infrastructure)."""


class NodeVerdict(StrEnum):
    PASSED = "Passed"
    FAILED = "Failed"
    UNDETERMINED = "Undetermined"
    UNTESTED = "Untested"


class Outcome(StrEnum):
    """Outcome of one run. INVALID and UNKNOWN are never evidence against a node."""

    PASS = "PASS"  # noqa: S105 - a verdict word
    WARN = "WARN"
    FAIL = "FAIL"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


class Purpose(StrEnum):
    BRINGUP = "bringup"
    REPAIR = "repair"
    STACK = "stack"
    IDLE = "idle"
    MANUAL = "manual"


class Reason(StrEnum):
    """Why a run or a node did not pass; an open vocabulary, see docs/reference/verdicts.md."""

    NONE = ""
    HARDWARE = "hardware"
    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    TRANSPORT = "transport"
    NUMERIC = "numeric"
    STRAGGLER = "straggler"
    TIMEOUT = "timeout"
    HANG = "hang"
    CRASH = "crash"
    SCHEDULING = "scheduling"
    LINK = "link"
    HARNESS = "harness"
    BUDGET = "budget"
    NO_PARTNER = "no-partner"


class CertificationBudget(Model, frozen=True, kw_only=True):
    """Limits of one certification. Exceeding one ends it with `Undetermined`, never with blame."""

    max_rounds: int = 48
    max_runs: int = 5000
    max_wall_minutes: float = 240.0
    max_node_minutes: float = 100000.0
    max_false_blame: float = 0.001
    """Probability that this certification names at least one innocent node or link."""


class CertificationSpec(Model, frozen=True, kw_only=True):
    """Immutable once the certification is running."""

    nodes: tuple[str, ...]
    """Nodes that need a verdict."""
    partners: tuple[str, ...] = ()
    """Proven idle nodes that may be borrowed as partners; they get no verdict."""
    profile: str
    """Name of the test profile (`bringup`, `repair`, `stack`, `idle`)."""
    purpose: Purpose = Purpose.MANUAL
    budget: CertificationBudget = CertificationBudget()


class RunRecord(Model, frozen=True, kw_only=True):
    """One finished run: everything the isolation core needs to continue after a restart."""

    id: str
    round: int
    test: str
    nodes: tuple[str, ...]
    outcome: Outcome
    reason: Reason = Reason.NONE
    value: float | None = None
    """The number that decided (GB/s busbw, TFLOP/s), with `unit` and `floor` (None: no floor known)."""
    unit: str = ""
    floor: float | None = None
    suspects: tuple[str, ...] = ()
    """Nodes that the run itself pointed at (crash, silent rank); a hint to isolation, never a verdict."""
    message: str = ""


class NodeResult(Model, frozen=True, kw_only=True):
    name: str
    verdict: NodeVerdict
    reason: Reason = Reason.NONE
    message: str = ""
    evidence_for: tuple[str, ...] = ()
    """IDs of runs that support the verdict."""
    evidence_against: tuple[str, ...] = ()
    error_bound: float | None = None
    """Upper bound of the probability that a `Failed` verdict is wrong."""
    metrics: dict[str, float] = {}
    """Best numbers reached per test, keyed `test.metric_unit`."""


class LinkResult(Model, frozen=True, kw_only=True):
    """A path between two nodes (or rails, trunks) whose ends are good while it is not."""

    a: str
    b: str
    verdict: NodeVerdict
    reason: Reason = Reason.LINK
    message: str = ""
    evidence: tuple[str, ...] = ()
    error_bound: float | None = None


class Cost(Model, frozen=True, kw_only=True):
    rounds: int = 0
    runs: int = 0
    node_minutes: float = 0.0
    wall_minutes: float = 0.0


class CertificationStatus(Model, frozen=True, kw_only=True):
    phase: Phase = Phase.PENDING
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str = ""
    blocked: str = ""
    """Why nothing runs right now (scheduler's reason, busy nodes), empty when something does."""
    round: int = 0
    current_runs: int = 0
    runs: tuple[RunRecord, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    links: tuple[LinkResult, ...] = ()
    cost: Cost = Cost()
    conditions: tuple[Condition, ...] = ()


class Certification(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Certification"
    metadata: ObjectMeta
    spec: CertificationSpec
    status: CertificationStatus = CertificationStatus()
