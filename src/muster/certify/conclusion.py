"""What a certification comes to: progress by test, what nodes passed, and the end in one paragraph. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from muster.certify.details import run_detail
from muster.certify.isolation.plan import WITHDRAWN, Plan, PlannedRun, Verdicts
from muster.certify.measure import RankEnd
from muster.certify.report.words import link_title
from muster.resources.certification import (
    FaultAt,
    NodeResult,
    NodeVerdict,
    Outcome,
    RunDetail,
    RunRecord,
    TestProgress,
)

SHOWN = 8
SHORT_EVIDENCE = 4
"""Run IDs kept of each verdict when there are too many verdicts for the full lists."""


def progress(records: Sequence[RunRecord]) -> tuple[TestProgress, ...]:
    """How the runs of each test ended so far, by name of the test."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        if record.test != WITHDRAWN:
            counts.setdefault(record.test, Counter())[_ENDS[record.outcome]] += 1
    return tuple(
        TestProgress(test=test, runs=sum(ends.values()), **{name: ends[name] for name in sorted(ends)})
        for test, ends in sorted(counts.items())
    )


_ENDS = {
    Outcome.PASS: "passed",
    Outcome.WARN: "passed",
    Outcome.FAIL: "failed",
    Outcome.INVALID: "unusable",
    Outcome.UNKNOWN: "unusable",
}


def details_of(runs: Sequence[PlannedRun], ends: Mapping[str, Sequence[RankEnd]]) -> tuple[RunDetail, ...]:
    """What the runs of a round measured, those that say something, in their order."""
    found = (run_detail(run.id, [e.detail for e in ends.get(run.id, ()) if e.detail is not None]) for run in runs)
    return tuple(detail for detail in found if detail is not None)


def passed_tests(records: Sequence[RunRecord], plan: Plan) -> dict[str, tuple[str, ...]]:
    """By node, the tests of which it took part in a run that passed.

    Variants are left out: who is asked for one depends on what failed, so a certificate cannot rest on it.
    """
    variants = frozenset(test.name for test in plan.tests if test.variant_of)
    found: dict[str, set[str]] = {}
    for record in records:
        if record.outcome in (Outcome.PASS, Outcome.WARN) and record.test not in variants:
            for node in record.nodes:
                found.setdefault(node, set()).add(record.test)
    return {node: tuple(sorted(tests)) for node, tests in found.items()}


def shortened(result: NodeResult) -> NodeResult:
    """The verdict with fewer run IDs, for certifications whose verdicts would not fit into one object."""
    return msgspec.structs.replace(
        result,
        evidence_for=result.evidence_for[-SHORT_EVIDENCE:],
        evidence_against=result.evidence_against[-SHORT_EVIDENCE:],
    )


def summary(nodes: Sequence[NodeResult], verdicts: Verdicts) -> str:
    """The end in one paragraph: counts, bad nodes and links, and what was not resolved."""
    counts = Counter(r.verdict for r in nodes)
    parts = [", ".join(f"{counts[v]} {v.value}" for v in NodeVerdict if counts[v]) + f" of {len(nodes)} node(s)."]
    for verdict in (NodeVerdict.FAILED, NodeVerdict.UNDETERMINED, NodeVerdict.UNTESTED):
        named = [r.name for r in nodes if r.verdict is verdict]
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        parts += [f"{verdict.value}: {', '.join(named[:SHOWN])}{more}."] if named else []
    for at, what in _PATHS.items():
        bad = [link_title(link) for link in verdicts.links if link.verdict is NodeVerdict.FAILED and link.at is at]
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        parts += [f"{what}: {', '.join(bad[:SHOWN])}{more}."] if bad else []
    return " ".join((*parts, *verdicts.unresolved, *verdicts.notes))


_PATHS = {
    FaultAt.LINK: "Bad links",
    FaultAt.RAIL: "Bad rails",
    FaultAt.TRUNK: "Bad trunks",
    FaultAt.DOMAIN: "Bad domains",
}
