"""The status of a Baseline: unknown is never a match, the lists are bounded, conditions keep their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from muster.controller.baseline_report import Comparison, compared, news, not_compared
from muster.resources.base import ConditionStatus
from muster.resources.baseline import (
    CHECKED,
    MATCHES,
    MAX_LISTED,
    Assertion,
    AssertionResult,
    BaselineStatus,
    Drift,
    DriftClass,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
NEVER = BaselineStatus()
RESULTS = list(AssertionResult)


def assertion(result: AssertionResult, at: int = 0) -> Assertion:
    return Assertion(name=f"nfd/Deployment/nfd/master-{at}", result=result, message=f"{result} {at}")


def drift(at: int = 0) -> Drift:
    return Drift(drift_class=DriftClass.VERSION, component="nfd", path=f"version-{at}", expected="1", found="2")


def condition(status: BaselineStatus, kind: str) -> ConditionStatus:
    return next(c.status for c in status.conditions if c.type == kind)


@given(st.lists(st.sampled_from(RESULTS), max_size=12), st.integers(0, 3))
def test_the_result(results: list[AssertionResult], drifted: int) -> None:
    found = Comparison("sha256:x", tuple(map(assertion, results)), tuple(map(drift, range(drifted))))
    status = compared(found, 4, NOW, NEVER)
    if AssertionResult.FAILED in results or drifted:
        wanted, matches = AssertionResult.FAILED, ConditionStatus.FALSE
    elif AssertionResult.UNKNOWN in results or not results:
        wanted, matches = AssertionResult.UNKNOWN, ConditionStatus.UNKNOWN
    else:
        wanted, matches = AssertionResult.PASSED, ConditionStatus.TRUE
    assert status.result is wanted
    assert condition(status, MATCHES) is matches
    assert condition(status, CHECKED) is ConditionStatus.TRUE
    counts = status.counts
    assert counts is not None
    assert (counts.passed, counts.failed, counts.unknown, counts.drifted) == (
        results.count(AssertionResult.PASSED),
        results.count(AssertionResult.FAILED),
        results.count(AssertionResult.UNKNOWN),
        drifted,
    )
    assert status.observed_generation == 4


def test_lists_are_bounded_and_the_worst_comes_first() -> None:
    many = [assertion(AssertionResult.UNKNOWN, at) for at in range(MAX_LISTED)]
    bad = assertion(AssertionResult.FAILED, 7)
    status = compared(
        Comparison("", (*many, bad, assertion(AssertionResult.PASSED)), tuple(map(drift, range(MAX_LISTED + 5)))),
        1,
        NOW,
        NEVER,
    )
    assert len(status.assertions) == MAX_LISTED
    assert status.assertions[0] == bad
    assert all(a.result is not AssertionResult.PASSED for a in status.assertions)
    assert len(status.drifts) == MAX_LISTED
    assert status.counts is not None
    assert status.counts.drifted == MAX_LISTED + 5


def test_conditions_keep_the_time_of_their_last_change() -> None:
    good = Comparison("", (assertion(AssertionResult.PASSED),), ())
    first = compared(good, 1, NOW, NEVER)
    second = compared(good, 1, LATER, first)
    assert [c.last_transition_time for c in second.conditions] == [NOW, NOW]
    assert news(first, second) is None
    third = compared(Comparison("", (), (drift(),)), 1, LATER, second)
    assert {c.type: c.last_transition_time for c in third.conditions} == {CHECKED: NOW, MATCHES: LATER}
    told = news(second, third)
    assert told is not None
    assert (told.type, told.reason) == (MATCHES, "Drifted")
    assert "nfd: version-0" in told.message


def test_a_comparison_that_was_not_possible_forgets_nothing_and_knows_nothing() -> None:
    before = compared(Comparison("sha256:x", (), (drift(),)), 1, NOW, NEVER)
    after = not_compared("NotReadable", "no answer", 2, LATER, before)
    assert after.result is AssertionResult.UNKNOWN
    assert (after.drifts, after.checked_at) == (before.drifts, NOW)
    assert condition(after, CHECKED) is ConditionStatus.FALSE
    assert condition(after, MATCHES) is ConditionStatus.UNKNOWN
    told = news(before, after)
    assert told is not None
    assert (told.reason, told.message) == ("NotReadable", "no answer")
