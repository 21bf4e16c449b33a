"""Notices that stand, end and vanish; what an agent remembers of them over a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.agent.maintenance.standing import ENDED, KEEP_ENDED_S, MAX_TRACKED, Standing, follow, keep, restore, told
from muster.resources.node_health import Notice, NoticeKind, NoticeStatus

T0 = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def notice(name: str = "a", **fields: object) -> Notice:
    base = Notice(id=name, source="aws", kind=NoticeKind.REBOOT, status=NoticeStatus.SCHEDULED, not_before=T0 + HOUR)
    return replace(base, **fields)


def only(standing: tuple[Standing, ...]) -> Notice:
    (one,) = standing
    return one.notice


def test_one_that_vanishes_before_its_time_is_cancelled_and_after_it_completed() -> None:
    before = follow((), [notice(ends_at=T0 + 3 * HOUR)], T0)
    assert only(follow(before, [], T0 + HOUR / 2)).status is NoticeStatus.CANCELLED
    late = only(follow(before, [], T0 + 2 * HOUR))
    assert (late.status, late.ends_at) == (NoticeStatus.COMPLETED, T0 + 2 * HOUR)
    begun = follow(before, [notice(status=NoticeStatus.STARTED)], T0 + HOUR / 4)
    assert only(follow(begun, [], T0 + HOUR / 2)).status is NoticeStatus.COMPLETED


def test_one_without_a_time_that_vanishes_is_cancelled() -> None:
    before = follow((), [notice(not_before=None)], T0)
    assert only(before).not_before is None
    assert only(follow(before, [], T0 + 9 * HOUR)).status is NoticeStatus.CANCELLED


def test_one_that_comes_back_stands_again() -> None:
    before = follow((), [notice()], T0)
    gone = follow(before, [], T0 + HOUR / 2)
    back = follow(gone, [notice(not_before=T0 + 5 * HOUR)], T0 + HOUR)
    assert only(back).status is NoticeStatus.SCHEDULED
    assert back[0].first_seen == T0
    assert back[0].ended_at is None


def test_ended_ones_are_told_for_a_while_and_then_forgotten() -> None:
    gone = follow(follow((), [notice()], T0), [], T0)
    last = T0 + timedelta(seconds=KEEP_ENDED_S)
    assert len(told(gone, last - HOUR).notices) == 1
    assert told(gone, last).notices == ()
    assert follow(gone, [], last) == ()


def test_one_that_stays_listed_as_ended_does_not_end_again_and_again() -> None:
    listed = [notice(status=NoticeStatus.COMPLETED)]
    standing: tuple[Standing, ...] = ()
    for hours in range(0, 100, 10):
        standing = follow(standing, listed, T0 + hours * HOUR)
        assert standing[0].ended_at == T0
        assert len(told(standing, T0 + hours * HOUR).notices) == (1 if hours < 24 else 0)


def test_an_event_that_was_moved_is_the_same_event() -> None:
    before = follow((), [notice()], T0)
    moved = follow(before, [notice(not_before=T0 + 9 * HOUR)], T0 + 2 * HOUR)
    assert only(moved).not_before == T0 + 9 * HOUR
    assert only(moved).status is NoticeStatus.SCHEDULED


def test_a_restart_forgets_nothing_and_foreign_text_is_nothing() -> None:
    standing = follow((), [notice(), notice("b", status=NoticeStatus.STARTED, not_before=None)], T0)
    assert restore(keep(standing)) == standing
    for other in ("", "{", "[1]", '[{"notice": 3}]', "\ud800"):
        assert restore(other) == ()


names = st.sampled_from(["a", "b", "c", "d"])
moments = st.none() | st.integers(-5, 30).map(lambda h: T0 + h * HOUR)
notices = st.builds(
    lambda n, s, b, e: notice(n, status=s, not_before=b, ends_at=e),
    names,
    st.sampled_from(list(NoticeStatus)),
    moments,
    moments,
)


@given(st.lists(st.lists(notices, max_size=5), max_size=8))
def test_answers_in_any_order_lead_to_the_same_and_never_end_what_is_named(answers: list[list[Notice]]) -> None:
    one: tuple[Standing, ...] = ()
    other: tuple[Standing, ...] = ()
    for step, answer in enumerate(answers):
        unique = list({n.id: n for n in answer}.values())
        now = T0 + step * HOUR
        one = follow(one, unique, now)
        other = restore(keep(follow(other, unique[::-1], now)))
        assert one == other
        live = {n.id for n in unique if n.status not in ENDED}
        assert {s.notice.id for s in one if s.ended_at is None} == live
        assert all((s.ended_at is None) == (s.notice.status not in ENDED) for s in one)
        assert all(s.notice.not_before is not None for s in one if s.notice.status is NoticeStatus.STARTED)


def test_the_memory_is_bounded_and_keeps_the_soonest() -> None:
    many = [notice(f"n{n:04}", not_before=T0 + n * HOUR) for n in range(MAX_TRACKED + 50)]
    standing = follow((), many[::-1], T0)
    assert len(standing) == MAX_TRACKED
    assert standing[0].notice.id == "n0000"
    found = told(standing, T0)
    assert (len(found.notices), found.left_out) == (64, MAX_TRACKED - 64)
