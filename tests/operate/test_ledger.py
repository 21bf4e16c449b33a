"""The ledger closes: every microsecond of every node has one class, whatever was recorded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.ledger import Interval, NodeRecord, RungTime, TimeClass, build, merged, microseconds
from muster.resources.node_health import Cause, CauseKind, State, Transition

T0 = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def step(minutes: float, state: State, kind: CauseKind, episode: str = "", name: str = "") -> Transition:
    return Transition(state=state, at=at(minutes), episode=episode, cause=Cause(kind=kind, name=name))


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(-5_000_000, 5_000_000).map(lambda us: T0 + timedelta(microseconds=us))


def intervals() -> st.SearchStrategy[Interval]:
    return st.builds(Interval, moments(), st.one_of(st.none(), moments()))


TRANSITIONS = st.builds(
    Transition,
    state=st.sampled_from(list(State)),
    at=moments(),
    episode=st.sampled_from(["", "e1", "e2"]),
    cause=st.builds(Cause, kind=st.sampled_from(list(CauseKind))),
)
RECORDS = st.builds(
    NodeRecord,
    name=st.sampled_from(["a", "b", "c"]),
    present=intervals(),
    transitions=st.lists(TRANSITIONS, max_size=8).map(tuple),
    busy=st.lists(intervals(), max_size=6).map(tuple),
    watched=st.one_of(st.none(), st.lists(intervals(), max_size=3).map(tuple)),
    rungs=st.lists(st.builds(RungTime, moments(), st.sampled_from(["reboot", "replace"])), max_size=3).map(tuple),
)


@given(st.lists(RECORDS, max_size=4, unique_by=lambda r: r.name), moments(), moments())
@pytest.mark.requirement("v2.4/OCA03", "v2.4/OCA05")
def test_the_sums_close_exactly(records: list[NodeRecord], one: datetime, other: datetime) -> None:
    start, end = min(one, other), max(one, other)
    ledger = build(records, start, end)
    for record in records:
        begin = max(microseconds(start), microseconds(record.present.start))
        until = microseconds(end)
        if record.present.end is not None:
            until = min(until, microseconds(record.present.end))
        mine = [s for s in ledger.spans if s.node == record.name]
        assert sum(s.length_us for s in mine) == max(0, until - begin)
        if mine:
            assert (mine[0].start_us, mine[-1].end_us) == (begin, until)
        for before, after in pairwise(mine):
            assert before.end_us == after.start_us
    assert sum(ledger.by_class().values()) == ledger.total_us


@given(st.lists(RECORDS, max_size=3, unique_by=lambda r: r.name), st.randoms(use_true_random=False))
@pytest.mark.requirement("v2.4/OSL02")
def test_the_order_of_what_was_recorded_does_not_matter(records: list[NodeRecord], rng: object) -> None:
    shuffled = [
        replace(
            r,
            busy=tuple(reversed(r.busy)),
            watched=tuple(reversed(r.watched)) if r.watched is not None else None,
            rungs=tuple(reversed(r.rungs)),
        )
        for r in reversed(records)
    ]
    distinct_rungs = all(len({x.at for x in r.rungs}) == len(r.rungs) for r in records)
    if distinct_rungs:
        assert build(records, at(-1), at(1)) == build(shuffled, at(-1), at(1))


@given(st.lists(intervals(), max_size=8))
def test_merging_keeps_the_covered_time_and_leaves_no_overlap(items: list[Interval]) -> None:
    result = merged(items)
    for before, after in pairwise(result):
        assert before.end is not None
        assert before.end < after.start
    probe = T0
    covered = any(i.start <= probe and (i.end is None or probe < i.end) for i in items)
    assert any(i.start <= probe and (i.end is None or probe < i.end) for i in result) == covered


def story() -> NodeRecord:
    return NodeRecord(
        name="n1",
        present=Interval(at(0)),
        transitions=(
            step(0, State.UNCERTIFIED, CauseKind.NEW_NODE, "e0"),
            step(10, State.CERTIFYING, CauseKind.CERTIFICATION, "e0"),
            step(30, State.IN_SERVICE, CauseKind.CERTIFICATION, "e0"),
            step(100, State.QUARANTINED, CauseKind.FAULT, "e1", "xid/79/gpu/0"),
            step(101, State.DRAINING, CauseKind.FAULT, "e1"),
            step(105, State.REPAIRING, CauseKind.REPAIR, "e1"),
            step(120, State.UNCERTIFIED, CauseKind.REPAIR, "e1"),
            step(122, State.CERTIFYING, CauseKind.CERTIFICATION, "e1"),
            step(140, State.IN_SERVICE, CauseKind.CERTIFICATION, "e1"),
        ),
        busy=(Interval(at(40), at(90)), Interval(at(80), at(103)), Interval(at(150))),
        rungs=(RungTime(at(105), "reset-gpu"), RungTime(at(110), "reboot")),
    )


def test_a_story_is_told_by_class_cause_and_rung() -> None:
    ledger = build([story()], at(0), at(200))
    minutes = {k: v // 60_000_000 for k, v in ledger.by_class().items()}
    assert minutes == {
        TimeClass.BUSY: 60 + 50,
        TimeClass.IDLE: 10 + 10,
        TimeClass.HELD: 10 + 2,
        TimeClass.CERTIFYING: 20 + 18,
        TimeClass.QUARANTINED: 1,
        TimeClass.DRAINING: 4,
        TimeClass.REPAIRING: 15,
        TimeClass.OUT_OF_SERVICE: 0,
        TimeClass.UNKNOWN: 0,
    }
    by_cause = ledger.sums(lambda s: s.cause)
    assert by_cause[CauseKind.NEW_NODE] == 30 * 60_000_000
    assert by_cause[CauseKind.FAULT] == 40 * 60_000_000
    by_rung = ledger.sums(lambda s: s.rung)
    assert (by_rung["reset-gpu"], by_rung["reboot"]) == (5 * 60_000_000, 10 * 60_000_000)


def test_a_planned_test_that_went_wrong_is_booked_on_what_went_wrong() -> None:
    record = NodeRecord(
        name="n1",
        present=Interval(at(0)),
        transitions=(
            step(0, State.IN_SERVICE, CauseKind.CERTIFICATION),
            step(10, State.UNCERTIFIED, CauseKind.DRIFT, "e1"),
            step(12, State.CERTIFYING, CauseKind.CERTIFICATION, "e1"),
            step(20, State.QUARANTINED, CauseKind.CERTIFICATION, "e1"),
            step(25, State.REPAIRING, CauseKind.REPAIR, "e1"),
        ),
    )
    by_cause = build([record], at(0), at(40)).sums(lambda s: s.cause)
    assert by_cause[CauseKind.DRIFT] == 10 * 60_000_000
    assert by_cause[CauseKind.CERTIFICATION] == 20 * 60_000_000


def test_work_that_goes_on_while_draining_stays_visible() -> None:
    draining = [s for s in build([story()], at(0), at(200)).spans if s.time_class is TimeClass.DRAINING]
    assert [(s.busy, s.length_us // 60_000_000) for s in draining] == [(True, 2), (False, 2)]


def test_time_that_nobody_watched_is_unknown_and_not_idle() -> None:
    record = NodeRecord(
        name="n1",
        present=Interval(at(0)),
        transitions=(step(10, State.IN_SERVICE, CauseKind.CERTIFICATION),),
        busy=(Interval(at(20), at(30)),),
        watched=(Interval(at(50)),),
    )
    sums = build([record], at(0), at(60)).by_class()
    assert sums[TimeClass.UNKNOWN] == (10 + 10 + 20) * 60_000_000
    assert sums[TimeClass.BUSY] == sums[TimeClass.IDLE] == 10 * 60_000_000


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before"):
        build([], at(1), at(0))
