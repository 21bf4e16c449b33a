"""What a report says, whatever the format. `report.schema.json` is the JSON Schema of `ReportModel`."""

from __future__ import annotations

from datetime import datetime

import msgspec

SCHEMA_VERSION = "muster.dev/report/v1"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the parts of a report. Every field is written, so that a reader never guesses what is missing."""


class Requested(Section, frozen=True, kw_only=True):
    """What was asked for, as distinct from what was done."""

    profile: str
    purpose: str
    nodes: int
    """Nodes named in the spec; those of a selector are counted in `targets` only."""
    node_selector: dict[str, str] = {}
    partners: int = 0
    targets: int = 0
    """Nodes that get a verdict."""
    tests: tuple[str, ...] = ()
    expected_transport: str = ""
    floors: dict[str, float] = {}
    max_false_blame: float = 0.0


class RunView(Section, frozen=True, kw_only=True):
    """One run, with the number that decided."""

    id: str
    round: int
    test: str
    variant: str = ""
    nodes: tuple[str, ...]
    outcome: str
    reason: str = ""
    value: float | None = None
    unit: str = ""
    floor: float | None = None
    suspects: tuple[str, ...] = ()
    transport: str = ""
    message: str = ""


class NodeView(Section, frozen=True, kw_only=True):
    """The verdict on a node. Evidence is for and against the verdict; the runs are in `runs` of the report."""

    name: str
    verdict: str
    reason: str = ""
    layer: str = ""
    message: str = ""
    domain: str = ""
    product: str = ""
    error_bound: float | None = None
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    metrics: dict[str, float] = {}


class LinkView(Section, frozen=True, kw_only=True):
    """A path, rail, trunk or domain that is at fault while the nodes behind it are good."""

    title: str
    at: str
    a: str
    b: str = ""
    rail: int | None = None
    layer: str = ""
    verdict: str
    reason: str = ""
    message: str = ""
    error_bound: float | None = None
    evidence: tuple[str, ...] = ()


class TestView(Section, frozen=True, kw_only=True):
    """One test over all its runs. Numbers are those of runs that ended with one."""

    __test__ = False

    name: str
    scope: str = ""
    description: str = ""
    digest: str = ""
    runs: int = 0
    passed: int = 0
    failed: int = 0
    unusable: int = 0
    left_out: str = ""
    """Why it was not run at all; empty when it was to run."""
    unit: str = ""
    least: float | None = None
    median: float | None = None
    most: float | None = None
    floor: float | None = None
    nodes_per_run: tuple[int, ...] = ()
    transports: tuple[str, ...] = ()


class CurvePoint(Section, frozen=True, kw_only=True):
    size_bytes: int
    median_gb_per_s: float
    least_gb_per_s: float
    most_gb_per_s: float
    runs: int
    wrong: int = 0


class Curve(Section, frozen=True, kw_only=True):
    """Bus bandwidth by message size, over all runs of one shape."""

    test: str
    variant: str = ""
    nodes: int
    """Nodes of each run."""
    placement: str = "out"
    floor: float | None = None
    points: tuple[CurvePoint, ...]


class MatrixCell(Section, frozen=True, kw_only=True):
    row: int
    column: int
    passed: int = 0
    failed: int = 0
    unusable: int = 0
    ratio: float | None = None
    """The median of its numbers over the median of the whole matrix."""


class Matrix(Section, frozen=True, kw_only=True):
    """Pair runs as a half matrix. Large fleets are shown by domain, or by blocks of neighbours."""

    test: str
    labels: tuple[str, ...]
    unit: str = ""
    median: float | None = None
    grouped_by: str = "node"
    """`node`, `domain` or `block`."""
    cells: tuple[MatrixCell, ...]


class Straggler(Section, frozen=True, kw_only=True):
    """A rank that computes longer than its peers, in the run where it stands out most."""

    run: str
    test: str
    rank: int
    node: str
    gpu: int | None = None
    compute_s: float
    wait_s: float | None = None
    median_s: float
    """Of all ranks of the run."""
    ratio: float


class Bar(Section, frozen=True, kw_only=True):
    label: str
    seconds: float
    productive: bool = False


class Waterfall(Section, frozen=True, kw_only=True):
    """Where time went: the bars add up to `total_seconds`."""

    title: str
    total_seconds: float
    bars: tuple[Bar, ...]


class CostView(Section, frozen=True, kw_only=True):
    """What it was to cost when nothing fails, what it may cost at most, what it did cost. None: not known."""

    expected_rounds: int | None = None
    expected_runs: int | None = None
    expected_node_minutes: float | None = None
    expected_wall_minutes: float | None = None
    limit_rounds: int
    limit_runs: int
    limit_node_minutes: float
    limit_wall_minutes: float
    limit_blocked_minutes: float
    spent_rounds: int
    spent_runs: int
    spent_node_minutes: float
    spent_wall_minutes: float
    spent_blocked_minutes: float
    """In a queue, unscheduled or starting: no part of the wall minutes."""


class VersionView(Section, frozen=True, kw_only=True):
    name: str
    versions: dict[str, int]
    """Version -> runs that had it. More than one is worth a look."""


class Provenance(Section, frozen=True, kw_only=True):
    uid: str = ""
    generation: int = 0
    muster: str = ""
    plan_seed: int | None = None
    plan_digest: str = ""
    parts_expected: int = 0
    parts_read: int = 0


class Counts(Section, frozen=True, kw_only=True):
    passed: int = 0
    failed: int = 0
    undetermined: int = 0
    untested: int = 0


class ReportModel(Section, frozen=True, kw_only=True):
    schema: str = SCHEMA_VERSION
    name: str
    phase: str
    passed: bool
    """True only for a certification that ended with every node passed and nothing missing from this report."""
    verdict: str
    """The verdict in one sentence."""
    message: str = ""
    blocked: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    problems: tuple[str, ...] = ()
    """What this report could not read or does not hold."""
    requested: Requested
    counts: Counts
    nodes: tuple[NodeView, ...] = ()
    links: tuple[LinkView, ...] = ()
    tests: tuple[TestView, ...] = ()
    runs: tuple[RunView, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    curves: tuple[Curve, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    waterfalls: tuple[Waterfall, ...] = ()
    cost: CostView
    versions: tuple[VersionView, ...] = ()
    provenance: Provenance

    def node(self, name: str) -> NodeView | None:
        """The verdict on one node; None when the report has none."""
        return next((n for n in self.nodes if n.name == name), None)
