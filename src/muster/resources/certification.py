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


class GangScheduler(StrEnum):
    KUEUE = "kueue"
    KAI = "kai"
    VOLCANO = "volcano"


class Toleration(Model, frozen=True, kw_only=True):
    """As in a pod's spec."""

    key: str = ""
    operator: str = "Exists"
    value: str = ""
    effect: str = ""


class FaultAt(StrEnum):
    """What a `LinkResult` names: the path between two nodes, or something that many paths share."""

    LINK = "link"
    """`a` and `b` are nodes."""
    RAIL = "rail"
    """One NIC (`rail`) of node `a`, or with an empty `a` one rail switch; `b` is empty."""
    TRUNK = "trunk"
    """`a` and `b` are failure domains; every path between them is concerned, none inside them."""
    DOMAIN = "domain"
    """`a` is a failure domain whose nodes all fail with others; `b` is empty. Its nodes are not blamed one by one."""


class Layer(StrEnum):
    """What part of a node or path carries the traffic that fails."""

    UNKNOWN = ""
    HOST = "host"
    GPU = "gpu"
    NVLINK = "nvlink"
    """NVLink inside a node or across an NVLink domain; the network works."""
    NETWORK = "network"
    """NICs, cables, switches; NVLink works."""


class Gang(Model, frozen=True, kw_only=True):
    """How the pods of a certification are queued: all at once, by a scheduler that can."""

    scheduler: GangScheduler
    queue: str
    """LocalQueue of Kueue, queue of KAI or Volcano."""


class Pods(Model, frozen=True, kw_only=True):
    """What the test pods of a certification ask the cluster for, beside the GPUs of their nodes."""

    image: str = ""
    """Image with PyTorch in which the programs run; empty: the controller's default."""
    image_pull_secrets: tuple[str, ...] = ()
    nic_resource: str = ""
    """Extended resource of the NICs (`rdma/ib`, `vpc.amazonaws.com/efa`); empty: none is asked for."""
    nics: int = 0
    gpu_claim_template: str = ""
    """ResourceClaimTemplate for the GPUs (DRA) in the system namespace; empty: the plugin's `nvidia.com/gpu`."""
    nic_claim_template: str = ""
    host_network: bool = False
    env: dict[str, str] = {}
    """Environment of the programs (`NCCL_IB_HCA`, `FI_PROVIDER`). What the user sets wins."""
    tolerations: tuple[Toleration, ...] = ()
    """Beside those for held and cordoned nodes and for GPU taints."""
    storage_claim: str = ""
    """PersistentVolumeClaim for the storage test; empty: the test is not run."""
    gang: Gang | None = None


class CertificationBudget(Model, frozen=True, kw_only=True):
    """Limits of one certification. Exceeding one ends it with `Undetermined`, never with blame."""

    max_rounds: int = 48
    max_runs: int = 20_000
    max_wall_minutes: float = 240.0
    """Without the time in which nothing could run (`max_blocked_minutes`)."""
    max_blocked_minutes: float = 1440.0
    """How long nothing may run because workers are queued, not scheduled or not started yet: a clock of its own."""
    max_node_minutes: float = 100000.0
    max_false_blame: float = 0.001
    """Probability that this certification names at least one innocent node or link."""


class CustomTest(Model, frozen=True, kw_only=True):
    """A test of the user's own: a command in an image that leaves a report behind (docs/how-to/write-a-test.md)."""

    name: str
    scope: str = "node"
    """`node`, `pair` or `group`."""
    image: str = ""
    command: tuple[str, ...]
    duration_s: int = 60
    deadline_s: int = 300
    metric: str = ""
    unit: str = ""
    parser: str = ""
    """Format of the output of a test with an image (`nccl-tests`, `dcgm-diag`: kinds of `muster read`). Without one
    the last line of the output is a report."""


class ProfileTests(Model, frozen=True, kw_only=True):
    """What a test profile asks for and what passing it proves."""

    tests: tuple[str, ...]
    """All of them, variants that only follow a failure too."""
    proves: dict[str, str]
    """Test -> digest of its definition: those that a certificate can rest on."""


class CertificationSpec(Model, frozen=True, kw_only=True):
    """Immutable once the certification is running."""

    nodes: tuple[str, ...] = ()
    """Nodes that need a verdict."""
    node_selector: dict[str, str] = {}
    """Labels of further nodes that need a verdict, looked up when the certification starts."""
    partners: tuple[str, ...] = ()
    """Proven idle nodes that may be borrowed as partners; they get no verdict."""
    profile: str
    """Name of the test profile (`bringup`, `repair`, `stack`, `idle`)."""
    tests: tuple[str, ...] = ()
    """Tests to run instead of those of the profile."""
    custom_tests: tuple[CustomTest, ...] = ()
    """Tests of the user's own; `tests` may name them."""
    expected_transport: str = ""
    """Transport that collectives must use between nodes (`EFA`, `IB`, `RoCE`, `MNNVL`); another one fails by name."""
    floors: dict[str, float] = {}
    """Least values that replace the shipped floors, by test, in the unit of the test."""
    recipe_digest: str = ""
    """Digest of the recipe that the Baseline of the nodes named when this was asked for; certificates tell it on."""
    purpose: Purpose = Purpose.MANUAL
    budget: CertificationBudget = CertificationBudget()
    pods: Pods = Pods()


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
    transport: str = ""
    """Transport that the collective library really used between nodes, as its log says; empty when it does not."""
    variant: str = ""
    """What of the test was run, for example `rail=3`; empty for the whole."""


class SizeFigures(Model, frozen=True, kw_only=True):
    """One line of a bandwidth sweep. None: not measured."""

    size_bytes: int
    placement: str = "out"
    """`out` of place or `in` place."""
    time_us: float | None = None
    algbw_gb_per_s: float | None = None
    busbw_gb_per_s: float | None = None
    wrong: int | None = None
    """Wrong values; None when the program does not check."""


class RankFigures(Model, frozen=True, kw_only=True):
    """What one rank measured."""

    rank: int
    node: str
    gpu: int | None = None
    value: float | None = None
    """In the unit of the test."""
    compute_s: float | None = None
    """Mean time per step in phases that contain no waiting for peers."""
    wait_s: float | None = None
    """Mean time per step in collectives. Who waits least is the slow one."""
    message: str = ""


class RunDetail(Model, frozen=True, kw_only=True):
    """What a run measured beyond the number that decided."""

    run: str
    sizes: tuple[SizeFigures, ...] = ()
    ranks: tuple[RankFigures, ...] = ()
    transport: str = ""
    versions: dict[str, str] = {}
    """`torch`, `nccl`, `cuda`, `driver`."""
    facts: dict[str, float] = {}
    """Further numbers, keyed with their unit (`steps_per_s`, `latency_us`, `startup_s`, `goodput_ratio`)."""
    started_at: datetime | None = None
    ended_at: datetime | None = None


class NodeResult(Model, frozen=True, kw_only=True):
    name: str
    verdict: NodeVerdict
    reason: Reason = Reason.NONE
    layer: Layer = Layer.UNKNOWN
    message: str = ""
    evidence_for: tuple[str, ...] = ()
    """IDs of runs that support the verdict."""
    evidence_against: tuple[str, ...] = ()
    error_bound: float | None = None
    """Upper bound of the probability that a `Failed` verdict is wrong."""
    metrics: dict[str, float] = {}
    """Best numbers reached per test, keyed `test.metric_unit`."""
    tests: tuple[str, ...] = ()
    """Tests of which the node took part in a run that passed, sorted."""


class LinkResult(Model, frozen=True, kw_only=True):
    """A path between two nodes (or rails, trunks) whose ends are good while it is not."""

    a: str
    b: str = ""
    at: FaultAt = FaultAt.LINK
    rail: int | None = None
    layer: Layer = Layer.UNKNOWN
    verdict: NodeVerdict
    reason: Reason = Reason.LINK
    message: str = ""
    evidence: tuple[str, ...] = ()
    error_bound: float | None = None


class TestProgress(Model, frozen=True, kw_only=True):
    """How far one test is."""

    __test__ = False

    test: str
    runs: int = 0
    passed: int = 0
    failed: int = 0
    unusable: int = 0


class Cost(Model, frozen=True, kw_only=True):
    rounds: int = 0
    runs: int = 0
    node_minutes: float = 0.0
    wall_minutes: float = 0.0
    """Without the time in which nothing could run (`CertificationStatus.blocked_minutes`)."""


class CertificationStatus(Model, frozen=True, kw_only=True):
    phase: Phase = Phase.PENDING
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str = ""
    blocked: str = ""
    """Why nothing runs right now (scheduler's reason, busy nodes), empty when something does."""
    blocked_since: datetime | None = None
    """Since when nothing runs because workers are queued, not scheduled or not started yet; None while runs go on."""
    blocked_minutes: float = 0.0
    """Time that has passed so before `blocked_since`. No part of `max_wall_minutes`."""
    round: int = 0
    current_runs: int = 0
    runs: tuple[RunRecord, ...] = ()
    nodes: tuple[NodeResult, ...] = ()
    links: tuple[LinkResult, ...] = ()
    cost: Cost = Cost()
    conditions: tuple[Condition, ...] = ()
    parts: int = 0
    """`CertificationPart` objects that hold what does not fit here, named `<name>-<number>` from 0 on."""
    tests: tuple[TestProgress, ...] = ()


class CertificationPartSpec(Model, frozen=True, kw_only=True):
    certification: str
    number: int
    runs: tuple[RunRecord, ...] = ()
    """Runs that are no longer in the status."""
    details: tuple[RunDetail, ...] = ()
    nodes: tuple[NodeResult, ...] = ()


class CertificationPart(Model, frozen=True, kw_only=True):
    """A chunk of a certification that outgrows one object: runs with what they measured, or verdicts.

    Written before the status that counts it, and never changed. Concatenated in the order of their numbers, parts
    give the runs (and nodes) that precede those in the status of the certification.
    """

    api_version: str = API_VERSION
    kind: str = "CertificationPart"
    metadata: ObjectMeta
    spec: CertificationPartSpec


class Certification(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Certification"
    metadata: ObjectMeta
    spec: CertificationSpec
    status: CertificationStatus = CertificationStatus()
