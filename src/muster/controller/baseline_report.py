"""What a comparison of the cluster with its baseline comes to: the status, and what people are told. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.resources.base import Condition, ConditionStatus
from muster.resources.baseline import (
    CHECKED,
    MATCHES,
    MAX_LISTED,
    Assertion,
    AssertionResult,
    BaselineCounts,
    BaselineStatus,
    Drift,
)

NAMED = 3
"""So many findings are named in a message; the status lists the others."""
MAX_MESSAGE = 1000


@dataclass(frozen=True)
class Comparison:
    """What one comparison found."""

    recipe_digest: str
    assertions: tuple[Assertion, ...]
    drifts: tuple[Drift, ...]


def compared(found: Comparison, generation: int, now: datetime, before: BaselineStatus) -> BaselineStatus:
    """The status after a comparison. Unknown assertions never make a match; a failure outweighs them."""
    results = Counter(a.result for a in found.assertions)
    counts = BaselineCounts(
        passed=results[AssertionResult.PASSED],
        failed=results[AssertionResult.FAILED],
        unknown=results[AssertionResult.UNKNOWN],
        drifted=len(found.drifts),
    )
    result = _result(counts)
    matches, reason = {
        AssertionResult.PASSED: (ConditionStatus.TRUE, "Matches"),
        AssertionResult.FAILED: (ConditionStatus.FALSE, "Drifted" if counts.drifted else "AssertionsFailed"),
        AssertionResult.UNKNOWN: (ConditionStatus.UNKNOWN, "NotAllKnown"),
    }[result]
    return BaselineStatus(
        observed_generation=generation,
        recipe_digest=found.recipe_digest,
        checked_at=now,
        result=result,
        counts=counts,
        assertions=tuple(_worst_first(found.assertions)[:MAX_LISTED]),
        drifts=found.drifts[:MAX_LISTED],
        conditions=(
            _condition(CHECKED, ConditionStatus.TRUE, "Compared", "", now, before),
            _condition(MATCHES, matches, reason, _summary(found, counts), now, before),
        ),
    )


def not_compared(reason: str, message: str, generation: int, now: datetime, before: BaselineStatus) -> BaselineStatus:
    """The status when the cluster could not be compared: nothing is known now; what was found last stays shown."""
    return BaselineStatus(
        observed_generation=generation,
        recipe_digest=before.recipe_digest,
        checked_at=before.checked_at,
        result=AssertionResult.UNKNOWN,
        counts=before.counts,
        assertions=before.assertions,
        drifts=before.drifts,
        conditions=(
            _condition(CHECKED, ConditionStatus.FALSE, reason, message[:MAX_MESSAGE], now, before),
            _condition(MATCHES, ConditionStatus.UNKNOWN, "NotCompared", "", now, before),
        ),
    )


def news(before: BaselineStatus, after: BaselineStatus) -> Condition | None:
    """The condition that people should hear of now: the first whose status or reason changed."""
    known = {c.type: (c.status, c.reason) for c in before.conditions}
    changed = [c for c in after.conditions if known.get(c.type) != (c.status, c.reason)]
    # "Compared" alone is no news; whether it matches is.
    return next((c for c in changed if (c.type, c.status) != (CHECKED, ConditionStatus.TRUE)), None)


def _result(counts: BaselineCounts) -> AssertionResult:
    if counts.failed or counts.drifted:
        return AssertionResult.FAILED
    return AssertionResult.UNKNOWN if counts.unknown or not counts.passed else AssertionResult.PASSED


def _worst_first(assertions: Sequence[Assertion]) -> list[Assertion]:
    rank = {AssertionResult.FAILED: 0, AssertionResult.UNKNOWN: 1, AssertionResult.PASSED: 2}
    kept = [a for a in assertions if a.result is not AssertionResult.PASSED]
    return sorted(kept, key=lambda a: (rank[a.result], a.name))


def _summary(found: Comparison, counts: BaselineCounts) -> str:
    said = f"{counts.passed} passed, {counts.failed} failed, {counts.unknown} unknown, {counts.drifted} drifted"
    named = [f"{d.component or d.node}: {d.path}" for d in found.drifts[:NAMED]]
    named += [a.message or a.name for a in _worst_first(found.assertions)[: NAMED - len(named)]]
    return (f"{said}; {'; '.join(named)}" if named else said)[:MAX_MESSAGE]


def _condition(
    kind: str, status: ConditionStatus, reason: str, message: str, now: datetime, before: BaselineStatus
) -> Condition:
    last = next((c for c in before.conditions if c.type == kind), None)
    since = last.last_transition_time if last is not None and last.status is status else now
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)
