"""Patterns over the history of a node: grouping, windows, boundaries, and when time alone changes the answer."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.patterns.derive import derive
from muster.operate.patterns.history import History, history_of
from muster.operate.policy import EffectivePolicy
from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import GroupBy, Pattern, PatternOver
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import HISTORY_LIMIT, Cause, CauseKind, Lifecycle, Observed, State, Transition
from tests.operate.histories import (
    GPU0,
    GPU1,
    LINK,
    NOW,
    ago,
    burst,
    closed,
    fault,
    past,
    repair_began,
    repair_proved,
)


def pattern(**fields: object) -> Pattern:
    return Pattern(**{"name": "p", "hint": Hint.INSPECT, **fields})  # type: ignore[arg-type]


def run(
    one: Pattern, history: History, now: datetime = NOW, before: tuple[Fault, ...] = ()
) -> tuple[tuple[Fault, ...], datetime | None]:
    return derive(EffectivePolicy(patterns=(one,)), history, "n1", {}, before, now)


def test_bursts_within_the_window_count_and_older_ones_do_not() -> None:
    two = past(fault("48", burst(ago(23)), burst(ago(1))))
    (derived,), recheck = run(pattern(), two)
    assert (derived.source, derived.check, derived.code, derived.count) == ("pattern", "pattern", "p", 2)
    assert derived.entity == GPU0
    assert recheck == ago(23) + timedelta(days=1)
    assert run(pattern(), past(fault("48", burst(ago(25)), burst(ago(1)))))[0] == ()


def test_a_fault_that_keeps_no_bursts_is_one_from_first_to_last_sighting() -> None:
    long = with_fields(fault("48"), first_seen=ago(30), last_seen=ago(1), count=900)
    assert run(pattern(at_least=1), past(long))[0][0].count == 1


def test_sightings_closer_than_the_gap_are_one_burst() -> None:
    near = past(fault("48", burst(ago(minutes=10), lasts_s=60), burst(ago(minutes=7))))
    assert run(pattern(burst_gap_s=120), near)[0] == ()
    assert len(run(pattern(burst_gap_s=119), near)[0]) == 1


@pytest.mark.parametrize(("code", "bursts"), [("79", 1), ("48", 3)])
def test_sticky_codes_merge_over_hours(code: str, bursts: int) -> None:
    seen = past(fault(code, burst(ago(5)), burst(ago(3)), burst(ago(1))))
    (derived,), _ = run(pattern(at_least=1, sticky_gap_s=3 * 3600), seen)
    assert derived.count == bursts


def test_closed_faults_count_like_open_ones() -> None:
    history = History(open=(fault("48", burst(ago(1))),), past=(closed(fault("48", burst(ago(4))), ago(3)),))
    assert run(pattern(), history)[0][0].count == 2


@pytest.mark.parametrize(
    ("group_by", "found"),
    [((GroupBy.ENTITY,), 0), ((GroupBy.NODE,), 1), ((GroupBy.CODE,), 1), ((GroupBy.GPU, GroupBy.CODE), 0)],
)
def test_groups_are_counted_by_themselves(group_by: tuple[GroupBy, ...], found: int) -> None:
    spread = past(fault("48", burst(ago(5))), fault("48", burst(ago(2)), entity=GPU1))
    assert len(run(pattern(group_by=group_by), spread)[0]) == found


def test_a_link_belongs_to_its_gpu() -> None:
    mixed = past(fault("48", burst(ago(5))), fault("74", burst(ago(2)), entity=LINK))
    (derived,), _ = run(pattern(group_by=(GroupBy.GPU,)), mixed)
    assert (derived.entity.kind, derived.entity.uuid) == (EntityKind.GPU, "GPU-0")
    nic = past(fault("x", burst(ago(5)), burst(ago(2)), entity=Entity(kind=EntityKind.NIC, device="mlx5_0")))
    assert run(pattern(group_by=(GroupBy.GPU,)), nic)[0] == ()


def test_unknown_details_are_no_place() -> None:
    by_place = pattern(group_by=(GroupBy.GPU, GroupBy.DETAIL), details=("gpc", "tpc"))
    told = past(fault("13", burst(ago(5), gpc="1", tpc="2"), burst(ago(2), gpc="1", tpc="2")))
    untold = past(fault("13", burst(ago(5), gpc="1"), burst(ago(2), gpc="1")))
    assert len(run(by_place, told)[0]) == 1
    assert run(by_place, untold)[0] == ()


def test_several_groups_must_reach_it_together() -> None:
    both = pattern(at_least=1, at_least_groups=2, group_by=(GroupBy.GPU,))
    assert run(both, past(fault("31", burst(ago(2)))))[0] == ()
    (derived,), _ = run(both, past(fault("31", burst(ago(2))), fault("31", burst(ago(1)), entity=GPU1)))
    assert (derived.entity.kind, derived.count) == (EntityKind.NODE, 2)


def test_a_finding_becomes_solo_when_the_older_one_leaves() -> None:
    solo = pattern(at_least=1, at_most=1, group_by=(GroupBy.GPU,))
    pair = past(fault("48", burst(ago(23)), burst(ago(1))))
    found, recheck = run(solo, pair)
    assert found == ()
    assert recheck == ago(23) + timedelta(days=1)
    assert len(run(solo, pair, recheck)[0]) == 1


def test_unless_another_error_is_open() -> None:
    lonely = pattern(at_least=1, when="fault.code == '74'", unless="size(other) > 0")
    assert len(run(lonely, past(fault("74", burst(ago(1)))))[0]) == 1
    assert run(lonely, past(fault("74", burst(ago(1))), fault("48", burst(ago(1)))))[0] == ()
    closed_one = History(open=(fault("74", burst(ago(1))),), past=(closed(fault("48", burst(ago(2))), ago(1)),))
    assert len(run(lonely, closed_one)[0]) == 1


def test_derived_faults_feed_no_pattern() -> None:
    own = fault("p", burst(ago(3)), burst(ago(2)), check="pattern", source="pattern")
    assert run(pattern(), past(own))[0] == ()
    assert run(pattern(), History(past=(closed(own, NOW),)))[0] == ()
    lonely = pattern(at_least=1, unless="size(other) > 0")
    assert len(run(lonely, past(own, fault("48", burst(ago(1)))))[0]) == 1


def test_a_proved_repair_begins_the_history_anew() -> None:
    seen = past(fault("48", burst(ago(5)), burst(ago(2))))
    assert len(run(pattern(), seen)[0]) == 1
    assert run(pattern(), replace(seen, boundary=ago(3)))[0] == ()


def test_repairs_are_counted_until_a_person_releases() -> None:
    often = pattern(over=PatternOver.REPAIRS, within_s=7 * 86400, at_least=3, group_by=(GroupBy.NODE,))
    history = History(transitions=tuple(repair_began(ago(h)) for h in (70, 40, 10)), boundary=ago(9))
    (derived,), recheck = run(often, history)
    assert (derived.entity.kind, derived.count) == (EntityKind.NODE, 3)
    assert recheck == ago(70) + timedelta(days=7)
    assert run(often, replace(history, released=ago(30)))[0] == ()


def test_the_first_sighting_of_a_derived_fault_stays() -> None:
    seen = past(fault("48", burst(ago(23)), burst(ago(2)), burst(ago(1))))
    (first,), recheck = run(pattern(), seen)
    assert recheck is not None
    (moved,), _ = run(pattern(), seen, recheck)
    (kept,), _ = run(pattern(), seen, recheck, before=(first,))
    assert moved.first_seen > first.first_seen
    assert kept.first_seen == first.first_seen
    assert kept.count == 2


def test_a_first_sighting_from_before_the_repair_does_not_stay() -> None:
    seen = past(fault("48", burst(ago(3)), burst(ago(2))))
    old = with_fields(run(pattern(), seen)[0][0], first_seen=ago(20))
    (fresh,), _ = run(pattern(), replace(seen, boundary=ago(10)), before=(old,))
    assert fresh.first_seen == ago(2)


def test_recurrence_after_a_repair_is_told_from_a_new_trouble() -> None:
    again = pattern(at_least=1, when="repair.same_kind && repair.age_s <= 86400")
    old = closed(fault("79", burst(ago(8))), ago(6))
    history = History(open=(fault("79", burst(ago(1))),), past=(old,), boundary=ago(6), repaired=ago(6))
    assert len(run(again, history)[0]) == 1
    assert run(again, replace(history, open=(fault("48", burst(ago(1))),)))[0] == ()
    assert run(again, replace(history, boundary=None, repaired=None))[0] == ()


def test_an_expression_that_fails_counts_nothing_and_an_unless_that_fails_holds_back() -> None:
    seen = past(fault("48", burst(ago(3)), burst(ago(2))))
    assert run(pattern(when="details['gpc'] == '1'"), seen)[0] == ()
    assert run(pattern(unless="other['xid/1'] > 0"), seen)[0] == ()


def test_a_pattern_that_is_off_says_nothing() -> None:
    assert run(pattern(enabled=False), past(fault("48", burst(ago(3)), burst(ago(2))))) == ((), None)


def test_the_history_of_a_lifecycle_knows_repairs_and_releases() -> None:
    release = Transition(
        state=State.UNCERTIFIED, at=ago(1), episode="e2", cause=Cause(kind=CauseKind.PERSON, name="release")
    )
    life = Lifecycle(
        state=State.UNCERTIFIED,
        since=NOW,
        history=(repair_began(ago(5)), repair_proved(ago(4)), repair_began(ago(3)), release),
    )
    seen = Observed(
        observed_at=NOW,
        node_uid="u",
        boot_id="b",
        fingerprint=fingerprint([]),
        faults=(fault("48", burst(ago(1))),),
        recent=(closed(fault("79", burst(ago(8))), ago(6)),),
    )
    history = history_of(seen, life)
    assert (history.repaired, history.released, history.boundary) == (ago(4), ago(1), ago(1))
    assert history.repairs() == (ago(5), ago(3))
    assert [f.code for f in history.faults()] == ["48", "79"]
    assert history_of(None, None) == History()


def test_a_persons_word_during_a_repair_is_no_repair() -> None:
    word = Transition(
        state=State.REPAIRING, at=ago(4), episode="e1", cause=Cause(kind=CauseKind.PERSON, name="uncordon")
    )
    assert History(transitions=(repair_began(ago(5)), word, word)).repairs() == (ago(5),)


def test_a_history_that_was_cut_brings_no_old_evidence_back() -> None:
    """The last proved repair went out of the history; bursts before it must not count again."""
    flapping = tuple(
        Transition(
            state=(State.CERTIFYING, State.UNCERTIFIED)[n % 2],
            at=ago(minutes=200 - n),
            episode="e9",
            cause=Cause(kind=CauseKind.CERTIFICATION, name="inconclusive"),
        )
        for n in range(HISTORY_LIMIT)
    )
    seen = Observed(
        observed_at=NOW,
        node_uid="u",
        boot_id="b",
        fingerprint=fingerprint([]),
        recent=(closed(fault("48", burst(ago(8)), burst(ago(7)), burst(ago(6))), ago(6)),),
    )
    life = Lifecycle(state=State.UNCERTIFIED, since=NOW, history=(repair_proved(ago(5)), *flapping))
    assert run(pattern(), history_of(seen, life))[0] == ()
    cut = with_fields(life, history=flapping)
    assert run(pattern(), history_of(seen, cut))[0] == ()
    # Evidence since then counts as ever, and so does that of a history that is whole.
    assert (
        len(
            run(pattern(), history_of(with_fields(seen, faults=(fault("48", burst(ago(2)), burst(ago(1))),)), cut))[0]
        )
        == 1
    )
    assert len(run(pattern(), history_of(seen, with_fields(life, history=flapping[:9])))[0]) == 1


@pytest.mark.parametrize("years", [0.001, 1, 73])
def test_evidence_from_the_future_waits_for_its_time(years: float) -> None:
    """A clock that was wrong must not keep a node out for years, nor outlast a repair."""
    later = NOW + timedelta(days=365 * years)
    seen = past(fault("48", burst(later), burst(later + timedelta(hours=1))))
    found, recheck = run(pattern(), seen)
    assert found == ()
    assert recheck is not None
    assert NOW < recheck <= later


def test_a_last_sighting_from_the_future_does_not_keep_old_evidence_alive() -> None:
    for_ever = Burst(at=ago(30), until=NOW + timedelta(days=9999), count=9)
    found, recheck = run(pattern(at_least=1), past(with_fields(fault("48"), bursts=(for_ever,))))
    assert found == ()
    assert recheck is not None
    fresh = past(with_fields(fault("48"), bursts=(with_fields(for_ever, at=ago(3)),)))
    assert len(run(pattern(at_least=1), fresh)[0]) == 1
    assert run(pattern(at_least=1), replace(fresh, boundary=ago(2)))[0] == ()


# Properties

MINUTES = st.integers(0, 3 * 24 * 60)
BURSTS = st.builds(
    lambda m, lasts, gpc: burst(ago(minutes=m), lasts_s=lasts, **({"gpc": gpc} if gpc else {})),
    MINUTES,
    st.integers(0, 600),
    st.sampled_from(["", "0", "1"]),
)
FAULTS = st.builds(
    lambda code, entity, bursts, severity: fault(
        code, *sorted(bursts, key=lambda b: b.at), entity=entity, severity=severity
    ),
    st.sampled_from(["31", "48", "74", "79"]),
    st.sampled_from([GPU0, GPU1, LINK]),
    st.lists(BURSTS, min_size=1, max_size=4),
    st.sampled_from([Severity.FATAL, Severity.WARNING]),
)
HISTORIES = st.builds(
    lambda opened, gone, boundary: History(
        open=tuple({f.key(): f for f in opened}.values()),
        past=tuple(closed(f, f.last_seen) for f in gone),
        boundary=ago(minutes=boundary) if boundary is not None else None,
        repaired=ago(minutes=boundary) if boundary is not None else None,
    ),
    st.lists(FAULTS, max_size=3),
    st.lists(FAULTS, max_size=4),
    st.none() | MINUTES,
)
PATTERNS = st.builds(
    pattern,
    when=st.sampled_from(["true", "fault.code == '74'", "fault.severity == 'fatal'"]),
    within_s=st.sampled_from([3600, 86400]),
    at_least=st.integers(1, 3),
    at_least_groups=st.integers(1, 2),
    at_most=st.sampled_from([0, 0, 3]),
    group_by=st.sampled_from([(GroupBy.ENTITY, GroupBy.CODE), (GroupBy.GPU,), (GroupBy.NODE,), (GroupBy.CODE,)]),
    burst_gap_s=st.sampled_from([0, 180, 3600]),
    sticky_gap_s=st.sampled_from([0, 10800]),
    unless=st.sampled_from(["", "size(other) > 0"]),
)


@given(PATTERNS, HISTORIES, st.randoms(use_true_random=False))
def test_the_order_of_the_evidence_does_not_matter(one: Pattern, history: History, rng: random.Random) -> None:
    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    shuffled = replace(
        history,
        open=mixed(tuple(with_fields(f, bursts=mixed(f.bursts)) for f in history.open)),
        past=mixed(history.past),
    )
    assert run(one, shuffled) == run(one, history)


@settings(max_examples=200)
@given(PATTERNS, HISTORIES, st.floats(0.001, 0.999))
def test_nothing_changes_before_the_recheck(one: Pattern, history: History, share: float) -> None:
    found, recheck = run(one, history)
    if recheck is None:
        assert run(one, history, NOW + timedelta(days=40)) == (found, None)
        return
    assert recheck > NOW
    assert run(one, history, NOW + (recheck - NOW) * share)[0] == found


@given(PATTERNS, HISTORIES)
def test_time_alone_ends_every_derived_fault(one: Pattern, history: History) -> None:
    now, found, steps = NOW, (), 0
    found, recheck = run(one, history, now)
    while recheck is not None:
        now, steps = recheck, steps + 1
        found, recheck = run(one, history, now, before=found)
        assert steps < 100
    assert found == ()


@given(PATTERNS, HISTORIES, FAULTS)
def test_more_evidence_concludes_no_less(one: Pattern, history: History, more: Fault) -> None:
    open_ended = with_fields(one, at_most=0, unless="", burst_gap_s=0, sticky_gap_s=0)
    before = {f.key() for f in run(open_ended, history)[0]}
    grown = replace(history, past=(*history.past, closed(more, more.last_seen)))
    assert before <= {f.key() for f in run(open_ended, grown)[0]}


@given(PATTERNS, HISTORIES)
def test_deciding_again_gives_the_same(one: Pattern, history: History) -> None:
    found, _ = run(one, history)
    assert run(one, history, before=found)[0] == found
    assert [f.key() for f in found] == sorted({f.key() for f in found})


def test_scope_and_severity_are_those_of_the_pattern() -> None:
    one = pattern(severity=Severity.FATAL, scope=Scope.LINK, hint=Hint.REPLACE, message="Bad link")
    (derived,), _ = run(one, past(fault("48", burst(ago(3)), burst(ago(2)))))
    assert (derived.severity, derived.scope, derived.hint) == (Severity.FATAL, Scope.LINK, Hint.REPLACE)
    assert derived.message == "Bad link (xid 48: 2 times since 2026-01-08 09:00:00 UTC, 60 min apart on average)."
