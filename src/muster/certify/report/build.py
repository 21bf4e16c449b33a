"""From a certification and its parts to what its report says, whatever the format. Pure."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import msgspec

from muster import __version__
from muster.certify import catalogue
from muster.certify.isolate import expected_cost
from muster.certify.isolation.plan import WITHDRAWN, Plan
from muster.certify.report import figures
from muster.certify.report.live import so_far
from muster.certify.report.model import (
    CostView,
    Counts,
    LinkView,
    Matrix,
    NodeView,
    Provenance,
    ReportModel,
    Requested,
    RunView,
    TestView,
    VersionView,
)
from muster.certify.report.words import link_title, verdict_sentence
from muster.errors import BadInputError
from muster.resources.base import PLAN_ANNOTATION, TEST_DIGESTS_ANNOTATION
from muster.resources.certification import (
    Certification,
    CertificationPart,
    Cost,
    LinkResult,
    NodeResult,
    NodeVerdict,
    Outcome,
    Phase,
    RunDetail,
    RunRecord,
)

_GOOD = (Outcome.PASS, Outcome.WARN)
_ORDER = {NodeVerdict.FAILED: 0, NodeVerdict.UNDETERMINED: 1, NodeVerdict.UNTESTED: 2, NodeVerdict.PASSED: 3}


@dataclass(frozen=True)
class Collected:
    """A certification put together again from its object and its parts."""

    runs: tuple[RunRecord, ...]
    details: tuple[RunDetail, ...]
    nodes: tuple[NodeResult, ...]
    plan: Plan | None
    digests: Mapping[str, str]
    parts: int
    problems: tuple[str, ...]


def build(certification: Certification, parts: Sequence[CertificationPart] = ()) -> ReportModel:
    """The report; of a running certification the verdicts so far.

    What cannot be read or is missing is named in `problems`, and then nothing counts as passed.
    """
    got = collect(certification, parts)
    if certification.status.phase is Phase.RUNNING and not got.nodes:
        certification, got = _provisional(certification, got)
    status = certification.status
    by_id = {run.id: run for run in got.runs}
    domains, products = _where(got.plan)
    nodes = sorted(got.nodes, key=lambda n: (_ORDER[n.verdict], n.name))
    passed = (
        status.phase is Phase.SUCCEEDED
        and not got.problems
        and bool(nodes)
        and all(n.verdict is NodeVerdict.PASSED for n in nodes)
        and all(link.verdict is NodeVerdict.PASSED for link in status.links)
    )
    return ReportModel(
        name=certification.metadata.name,
        phase=status.phase.value,
        passed=passed,
        verdict=verdict_sentence(certification, nodes, got.problems),
        message=status.message,
        blocked=status.blocked,
        started_at=status.started_at,
        finished_at=status.finished_at,
        problems=got.problems,
        requested=_requested(certification, got),
        counts=_counts(nodes),
        nodes=tuple(_node(n, domains, products) for n in nodes),
        links=tuple(_link(link) for link in status.links),
        tests=_tests(certification, got),
        runs=tuple(_run(run) for run in got.runs),
        matrices=_matrices(got, domains),
        curves=figures.curves(by_id, got.details),
        stragglers=figures.stragglers(by_id, got.details),
        waterfalls=figures.goodput(by_id, got.details),
        cost=_cost(certification, got.plan),
        versions=_versions(got.details),
        provenance=Provenance(
            uid=certification.metadata.uid,
            generation=certification.metadata.generation,
            muster=__version__,
            plan_seed=got.plan.seed if got.plan is not None else None,
            plan_digest=_digest(certification.metadata.annotations.get(PLAN_ANNOTATION, "")),
            parts_expected=status.parts,
            parts_read=got.parts,
        ),
    )


def collect(certification: Certification, parts: Sequence[CertificationPart]) -> Collected:
    """Runs, details and verdicts in their order; parts of other certifications and uncounted ones are left aside."""
    name, status = certification.metadata.name, certification.status
    problems: list[str] = []
    mine: dict[int, CertificationPart] = {}
    for part in parts:
        if part.spec.certification == name and 0 <= part.spec.number < status.parts:
            if part.spec.number in mine and mine[part.spec.number].spec != part.spec:
                problems.append(f"There are two different parts number {part.spec.number}; the first is used.")
            mine.setdefault(part.spec.number, part)
    missing = [number for number in range(status.parts) if number not in mine]
    if missing:
        shown = ", ".join(map(str, missing[:8]))
        problems.append(
            f"{len(missing)} of {status.parts} parts are missing (number {shown}): runs, numbers and verdicts in "
            "them are not in this report."
        )
    ordered = [mine[number].spec for number in sorted(mine)]
    plan, trouble = _plan(certification)
    problems += trouble
    runs = tuple(run for spec in ordered for run in spec.runs) + status.runs
    known = {run.id for run in runs}
    lost = sorted({i for n in status.nodes for i in (*n.evidence_for, *n.evidence_against) if i not in known})
    if lost and not missing:
        problems.append(f"{len(lost)} runs that verdicts cite are not recorded ({', '.join(lost[:3])}).")
    return Collected(
        runs=runs,
        details=tuple(detail for spec in ordered for detail in spec.details),
        nodes=tuple(node for spec in ordered for node in spec.nodes) + status.nodes,
        plan=plan,
        digests=_digests(certification),
        parts=len(mine),
        problems=tuple(problems),
    )


def _provisional(certification: Certification, got: Collected) -> tuple[Certification, Collected]:
    """The certification with what its runs say so far in place of the verdicts that it does not have yet."""
    found = so_far(got.plan, got.runs)
    status = msgspec.structs.replace(certification.status, links=found.links)
    return msgspec.structs.replace(certification, status=status), replace(got, nodes=found.nodes)


def _plan(certification: Certification) -> tuple[Plan | None, list[str]]:
    text = certification.metadata.annotations.get(PLAN_ANNOTATION, "")
    if not text:
        begun = certification.status.phase not in (Phase.PENDING, Phase.ABORTED)
        return None, [f"The annotation {PLAN_ANNOTATION} is missing: what was planned is not known."] if begun else []
    try:
        return msgspec.json.decode(text, type=Plan), []
    except (msgspec.MsgspecError, RecursionError):
        return None, [f"The annotation {PLAN_ANNOTATION} cannot be read: what was planned is not known."]


def _digests(certification: Certification) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(
            certification.metadata.annotations.get(TEST_DIGESTS_ANNOTATION, "{}"), type=dict[str, str]
        )
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _where(plan: Plan | None) -> tuple[dict[str, str], dict[str, str]]:
    """Domain and product of every node that the plan knows."""
    domains: dict[str, str] = {}
    products: dict[str, str] = {}
    for cell in plan.cells if plan is not None else ():
        for member in (*cell.targets, *cell.partners):
            domains[member.name] = member.domain
            products[member.name] = cell.product
    return domains, products


def _requested(certification: Certification, got: Collected) -> Requested:
    spec = certification.spec
    targets = len(got.nodes)
    if not targets and got.plan is not None:
        targets = sum(len(cell.targets) for cell in got.plan.cells) + len(got.plan.untested)
    return Requested(
        profile=spec.profile,
        purpose=spec.purpose.value,
        nodes=len(spec.nodes),
        node_selector=spec.node_selector,
        partners=len(spec.partners),
        targets=targets,
        tests=_asked(certification, got.plan),
        expected_transport=spec.expected_transport,
        floors=spec.floors,
        max_false_blame=spec.budget.max_false_blame,
    )


def _asked(certification: Certification, plan: Plan | None) -> tuple[str, ...]:
    if plan is not None:
        return tuple(test.name for test in plan.tests)
    try:
        return tuple(test.name for test in catalogue.tests_for(certification.spec))
    except BadInputError:
        return certification.spec.tests


def _counts(nodes: Sequence[NodeResult]) -> Counts:
    seen = Counter(n.verdict for n in nodes)
    return Counts(
        passed=seen[NodeVerdict.PASSED],
        failed=seen[NodeVerdict.FAILED],
        undetermined=seen[NodeVerdict.UNDETERMINED],
        untested=seen[NodeVerdict.UNTESTED],
    )


def _node(result: NodeResult, domains: Mapping[str, str], products: Mapping[str, str]) -> NodeView:
    return NodeView(
        name=result.name,
        verdict=result.verdict.value,
        reason=result.reason.value,
        layer=result.layer.value,
        message=result.message,
        domain=domains.get(result.name, ""),
        product=products.get(result.name, ""),
        error_bound=result.error_bound,
        evidence_for=result.evidence_for,
        evidence_against=result.evidence_against,
        metrics={key: value for key, value in result.metrics.items() if math.isfinite(value)},
    )


def _link(link: LinkResult) -> LinkView:
    return LinkView(
        title=link_title(link),
        at=link.at.value,
        a=link.a,
        b=link.b,
        rail=link.rail,
        layer=link.layer.value,
        verdict=link.verdict.value,
        reason=link.reason.value,
        message=link.message,
        error_bound=link.error_bound,
        evidence=link.evidence,
    )


def _run(run: RunRecord) -> RunView:
    return RunView(
        id=run.id,
        round=run.round,
        test=run.test,
        variant=run.variant,
        nodes=run.nodes,
        outcome=run.outcome.value,
        reason=run.reason.value,
        value=_number(run.value),
        unit=run.unit,
        floor=_number(run.floor),
        suspects=run.suspects,
        transport=run.transport,
        message=run.message,
    )


def _tests(certification: Certification, got: Collected) -> tuple[TestView, ...]:
    """The tests that were asked for, in their order, then others that ran, then those that were left out."""
    known = dict(catalogue.tests()) | ({t.name: t for t in got.plan.tests} if got.plan is not None else {})
    ran: dict[str, list[RunRecord]] = {}
    for run in got.runs:
        if run.test != WITHDRAWN:
            ran.setdefault(run.test, []).append(run)
    # A variant only follows a failure: where nothing failed, it was not left out.
    asked = [n for n in _asked(certification, got.plan) if n in ran or n not in known or not known[n].variant_of]
    names = dict.fromkeys((*asked, *ran))
    views = [_test(name, ran.get(name, []), known, got.digests) for name in names]
    try:
        skipped = catalogue.left_out(certification.spec)
    except BadInputError:
        skipped = ()
    for name, why in skipped:
        if name not in names:
            test = known[name]
            views.append(TestView(name=name, scope=test.scope, description=test.description, left_out=why))
    return tuple(views)


def _test(
    name: str,
    runs: Sequence[RunRecord],
    known: Mapping[str, catalogue.CatalogueTest],
    digests: Mapping[str, str],
) -> TestView:
    test = known.get(name)
    good = [v for run in runs if (v := _number(run.value)) is not None and run.outcome in (*_GOOD, Outcome.FAIL)]
    floors = [floor for run in runs if (floor := _number(run.floor)) is not None]
    return TestView(
        name=name,
        scope=test.scope.value if test is not None else "",
        description=test.description if test is not None else "",
        digest=digests.get(name, ""),
        runs=len(runs),
        passed=sum(run.outcome in _GOOD for run in runs),
        failed=sum(run.outcome is Outcome.FAIL for run in runs),
        unusable=sum(run.outcome in (Outcome.INVALID, Outcome.UNKNOWN) for run in runs),
        unit=next((run.unit for run in runs if run.unit), test.unit if test is not None else ""),
        least=min(good, default=None),
        median=median(good) if good else None,
        most=max(good, default=None),
        floor=min(floors, default=None),
        nodes_per_run=tuple(sorted({len(run.nodes) for run in runs})),
        transports=tuple(sorted({run.transport for run in runs if run.transport})),
    )


def _matrices(got: Collected, domains: Mapping[str, str]) -> tuple[Matrix, ...]:
    units = {run.test: run.unit for run in got.runs if len(run.nodes) == 2 and run.unit}
    names = dict.fromkeys(run.test for run in got.runs if len(run.nodes) == 2)
    group = {test.name for test in (got.plan.tests if got.plan else ()) if test.scope is catalogue.Scope.GROUP}
    found = (figures.matrix(n, units.get(n, ""), got.runs, domains) for n in names if n not in group)
    return tuple(m for m in found if m is not None)


def _cost(certification: Certification, plan: Plan | None) -> CostView:
    spent, limit = certification.status.cost, certification.spec.budget
    expected = _expected(plan)
    return CostView(
        expected_rounds=expected.rounds if expected else None,
        expected_runs=expected.runs if expected else None,
        expected_node_minutes=expected.node_minutes if expected else None,
        expected_wall_minutes=expected.wall_minutes if expected else None,
        limit_rounds=limit.max_rounds,
        limit_runs=limit.max_runs,
        limit_node_minutes=limit.max_node_minutes,
        limit_wall_minutes=limit.max_wall_minutes,
        limit_blocked_minutes=limit.max_blocked_minutes,
        spent_rounds=spent.rounds,
        spent_runs=spent.runs,
        spent_node_minutes=spent.node_minutes,
        spent_wall_minutes=spent.wall_minutes,
        spent_blocked_minutes=certification.status.blocked_minutes,
    )


def expected_runs(plan: Plan | None) -> int | None:
    """Runs when nothing fails; None when the plan is not known."""
    expected = _expected(plan)
    return expected.runs if expected is not None else None


def _expected(plan: Plan | None) -> Cost | None:
    try:
        return expected_cost(plan) if plan is not None else None
    except (LookupError, ValueError, StopIteration, ArithmeticError):
        return None  # a plan that somebody edited; its cost is not known


def _number(value: float | None) -> float | None:
    """NaN and infinity are no measurements."""
    return value if value is not None and math.isfinite(value) else None


def _versions(details: Sequence[RunDetail]) -> tuple[VersionView, ...]:
    seen: dict[str, Counter[str]] = {}
    for detail in details:
        for name, version in detail.versions.items():
            seen.setdefault(name, Counter())[version] += 1
    return tuple(VersionView(name=name, versions=dict(sorted(seen[name].items()))) for name in sorted(seen))


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest() if text else ""
