"""Blackouts against a clock that is walked minute by minute, and the limit of a pool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.operate.blackouts import DAYS, blackout_until
from muster.operate.budget import Grant, Member, Usage, Wait, may_disrupt
from muster.resources.fault_policy import Blackout, Budget

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
# Around the changes of the clocks in Europe and America, and a week without any.
WEEKS = (
    datetime(2026, 3, 26, tzinfo=UTC),
    datetime(2026, 3, 6, tzinfo=UTC),
    datetime(2026, 10, 23, tzinfo=UTC),
    datetime(2026, 10, 30, tzinfo=UTC),
    datetime(2026, 6, 1, tzinfo=UTC),
)


def walked(blackout: Blackout, first: datetime, minutes: int) -> dict[datetime, bool]:
    """Whether the blackout is on at each minute: it starts where a clock on the wall shows its start for the first
    time on one of its days, and where the clocks skip that time, by the clock that was not put forward."""
    zone = ZoneInfo(blackout.timezone)
    begin = first - timedelta(days=9)
    starts: list[datetime] = []
    seen: set[str] = set()
    at = begin
    last_offset = at.astimezone(zone).utcoffset()
    while at < first + timedelta(minutes=minutes):
        local = at.astimezone(zone)
        offset = local.utcoffset()
        assert offset is not None
        assert last_offset is not None
        shown = [local.replace(tzinfo=None)]
        if offset > last_offset:
            skipped = int((offset - last_offset).total_seconds() // 60)
            shown = [shown[0] - timedelta(minutes=m) for m in range(skipped, -1, -1)]
        for place, wall in enumerate(shown):
            day = f"{wall:%Y-%m-%d}"
            on_its_day = not blackout.days or DAYS[wall.weekday()] in blackout.days
            if f"{wall:%H:%M}" == blackout.start and day not in seen and on_its_day:
                seen.add(day)
                # The time that was skipped comes as long after the change as it lies behind it on the wall.
                starts.append(at + timedelta(minutes=place if place < len(shown) - 1 else 0))
        last_offset = offset
        at += timedelta(minutes=1)
    length = timedelta(seconds=blackout.duration_s)
    moments = [first + timedelta(minutes=m) for m in range(minutes)]
    return {m: any(s <= m < s + length for s in starts) for m in moments}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(WEEKS),
    st.integers(0, 23),
    st.sampled_from((0, 15, 30, 45)),
    st.integers(1, 50),
    st.lists(st.sampled_from(DAYS), unique=True, max_size=4),
)
def test_it_is_on_exactly_when_a_clock_on_the_wall_says_so(
    zone: str, first: datetime, hour: int, minute: int, hours: int, days: list[str]
) -> None:
    blackout = Blackout(
        name="b", days=tuple(days), start=f"{hour:02}:{minute:02}", duration_s=hours * 3600, timezone=zone
    )
    expected = walked(blackout, first, 5 * 24 * 60)
    for moment in list(expected)[:: 7 if hours > 2 else 3]:
        assert (blackout_until([blackout], moment) is not None) is expected[moment], moment


@given(st.integers(0, 525_000), st.integers(1, 80))
def test_at_the_end_that_it_names_this_occurrence_is_over(minutes: int, hours: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    blackout = Blackout(name="b", start="22:30", duration_s=hours * 3600, timezone="Europe/Berlin")
    found = blackout_until([blackout], now)
    if found is None:
        return
    _, end = found
    assert now < end <= now + timedelta(hours=hours)


def test_the_night_crosses_midnight_and_belongs_to_the_day_on_which_it_begins() -> None:
    night = Blackout(name="night", days=("fri",), start="22:00", duration_s=8 * 3600, timezone="Europe/Berlin")
    saturday = datetime(2026, 1, 10, 3, 0, tzinfo=UTC)  # 04:00 in Berlin
    assert blackout_until([night], saturday) == ("night", datetime(2026, 1, 10, 5, 0, tzinfo=UTC))
    assert blackout_until([night], saturday + timedelta(days=1)) is None


@pytest.mark.parametrize(
    ("field", "value"), [("start", "25:00"), ("start", "noon"), ("timezone", "Mars/Olympus"), ("days", ("today",))]
)
def test_what_cannot_be_read_is_refused_by_name(field: str, value: object) -> None:
    wrong = {"name": "b", "start": "01:00", "duration_s": 3600} | {field: value}
    with pytest.raises(BadInputError, match="Blackout b"):
        blackout_until([Blackout(**wrong)], datetime(2026, 1, 5, tzinfo=UTC))  # type: ignore[arg-type]


def usage(out: int, pool: str = "a") -> Usage:
    members = tuple(Member(f"{p}{i}", f"d{i}", p) for p in ("a", "b") for i in range(10))
    found = Usage(members)
    for i in range(out):
        found = found.taking(next(m for m in members if m.name == f"{pool}{i}"), datetime(2026, 1, 1, tzinfo=UTC))
    return found


@pytest.mark.requirement("v2.4/OIE05", "v2.4/OCR02")
def test_no_disruption_starts_in_a_blackout_unless_a_person_approved_it() -> None:
    budget = Budget(blackouts=(Blackout(name="release", start="08:00", duration_s=3600),))
    now = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
    member = usage(0).members[0]
    waits = may_disrupt(member, usage(0), budget, now)
    assert isinstance(waits, Wait)
    assert "Blackout release" in waits.reason
    assert waits.retry_at == datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    assert may_disrupt(member, usage(0), budget, waits.retry_at) == Grant()
    assert may_disrupt(member, usage(0), budget, now, approved=True) == Grant()


@given(st.integers(0, 10), st.sampled_from(("1", "30%", "0", "100%")))
def test_a_pool_has_a_limit_of_its_own_which_no_approval_lifts(out: int, amount: str) -> None:
    budget = Budget(max_disrupted="100%", max_disrupted_per_domain="100%", max_disrupted_per_pool=amount)
    limit = {"1": 1, "30%": 3, "0": 0, "100%": 10}[amount]
    now = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
    in_pool = Member("new", "d77", "a")
    known = Usage((*usage(out).members,), usage(out).disruptions)
    for approved in (False, True):
        answer = may_disrupt(in_pool, known, budget, now, approved=approved)
        assert isinstance(answer, Grant) is (out < limit)
    other = may_disrupt(Member("other", "d78", "b"), known, budget, now)
    assert isinstance(other, Grant) is (limit > 0)
