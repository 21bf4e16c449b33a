"""Node time cut by anything closes, and so does the time of jobs, whatever their logs say."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.goodput_breakdown import By, breakdown
from muster.operate.jobs import JobWork, job_times, waits
from muster.operate.ledger import Interval, NodeRecord, TimeClass, build, merged, microseconds
from muster.read.training.interval_log import Interval as Part
from muster.read.training.interval_log import IntervalLog, Kind, interval_log
from tests.operate.test_ledger import RECORDS, at, intervals, moments, story

MINUTE_US = 60_000_000


@given(st.lists(RECORDS, max_size=4, unique_by=lambda r: r.name), moments(), moments(), st.sampled_from(list(By)))
def test_the_rows_are_all_node_time(records: list[NodeRecord], one: datetime, other: datetime, by: By) -> None:
    ledger = build(records, min(one, other), max(one, other))
    rows = breakdown(ledger, by)
    assert sum(row.time_us for row in rows) == ledger.total_us
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert sum(row.classes.values()) == row.time_us
        assert 0 <= row.lost_us <= row.time_us
    assert [row.lost_us for row in rows] == sorted((row.lost_us for row in rows), reverse=True)


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        (By.CAUSE, {"in service", "faults", "bring-up of new nodes"}),
        (By.FAULT, {"in service", "xid/79/gpu/0", "bring-up of new nodes"}),
        (By.RUNG, {"in service", "no repair", "reboot", "reset-gpu"}),
        (By.NODE, {"n1"}),
    ],
)
def test_what_rows_are_called(by: By, keys: set[str]) -> None:
    assert {row.key for row in breakdown(build([story()], at(0), at(200)), by)} == keys


@st.composite
def logs(draw: st.DrawFn) -> IntervalLog:
    lengths = draw(st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(list(Kind))), min_size=1, max_size=8))
    parts, cursor = [], draw(st.integers(-(10**9), 10**9))
    for length, kind in lengths:
        parts.append(Part(cursor, cursor + length, kind))
        cursor += length
    return interval_log(parts)


WORK = st.builds(JobWork, st.sampled_from(["a", "b"]), st.sampled_from(["n1", "n2"]), intervals())


@given(st.lists(WORK, max_size=8), logs(), moments(), moments())
def test_the_parts_of_a_job_are_its_node_time(
    work: list[JobWork], log: IntervalLog, one: datetime, other: datetime
) -> None:
    start, end = min(one, other), max(one, other)
    for job in job_times(work, {"a": log}, start, end):
        assert sum(job.parts_us.values()) + job.unread_us == job.node_us > 0
        assert job.unread_us >= 0
        assert 0 < job.running_us <= job.wall_us <= microseconds(end) - microseconds(start)
        assert 0 < job.ettr_at_most <= 1
        assert job.node_us <= job.nodes * job.running_us
        assert (job.figures is None) == (job.job != "a")
        assert job.job == "a" or not job.parts_us


def test_a_log_begins_with_the_first_pod_and_says_what_node_time_went_to() -> None:
    work = [JobWork("t/j", node, Interval(at(10), at(70))) for node in ("n1", "n2")]
    work.append(JobWork("t/j", "n3", Interval(at(40), at(70))))
    minutes = [(10, Kind.STARTUP), (40, Kind.PRODUCTIVE), (5, Kind.CHECKPOINT)]
    parts, cursor = [], 0
    for length, kind in minutes:
        parts.append(Part(cursor, cursor + length * MINUTE_US, kind))
        cursor += length * MINUTE_US
    (job,) = job_times(work, {"t/j": interval_log(parts)}, at(0), at(60))
    assert {kind.value: length // MINUTE_US for kind, length in job.parts_us.items()} == {
        "startup": 20,
        "productive": 2 * 40 + 20,
    }
    assert (job.nodes, job.node_us // MINUTE_US, job.unread_us) == (3, 120, 0)
    (whole,) = job_times(work, {"t/j": interval_log(parts)}, at(0), at(100))
    assert whole.parts_us[Kind.CHECKPOINT] == 3 * 5 * MINUTE_US
    assert whole.unread_us == 3 * 5 * MINUTE_US, "the log ends before the pods"


def test_an_interruption_is_when_no_pod_ran() -> None:
    work = [JobWork("j", "n1", Interval(at(0), at(20))), JobWork("j", "n2", Interval(at(10), at(30)))]
    work += [JobWork("j", "n1", Interval(at(40), None))]
    (job,) = job_times(work, {}, at(0), at(60))
    assert (job.interruptions, job.running_us // MINUTE_US, job.wall_us // MINUTE_US) == (1, 50, 60)
    assert job.ettr_at_most == 50 / 60


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["budget", "pod"]), intervals()), max_size=8)
)
def test_waits_count_no_moment_twice(found: list[tuple[str, str, Interval]]) -> None:
    rows = waits(found, at(-1), at(1))
    for row in rows:
        assert timedelta() < row.longest <= timedelta(minutes=2)
        assert row.node_us <= row.nodes * 2 * MINUTE_US
        mine = [i for _, kind, i in found if kind == row.kind]
        assert merged(mine)


def test_the_budget_is_among_what_nodes_waited_for() -> None:
    found = [("n1", "budget", Interval(at(0), at(30))), ("n2", "budget", Interval(at(10)))]
    (row,) = waits(found, at(0), at(60))
    assert (row.kind, row.nodes, row.node_us // MINUTE_US, row.longest) == ("budget", 2, 80, timedelta(minutes=50))


def test_classes_are_named_once() -> None:
    rows = breakdown(build([story()], at(0), at(200)), By.CLASS)
    assert {row.key for row in rows} <= {name.value for name in TimeClass}
