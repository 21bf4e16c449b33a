"""What a maintenance means for a node: no eviction before its time, emergencies stay in their scope, all ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.operate.maintenance import NodeMaintenance, deferral_of, maintenance_of
from muster.operate.maintenance.announced import MAX_WINDOW_S, OVERSTAY_S
from muster.operate.maintenance.node import all_of
from muster.operate.maintenance.scope import concerns, problems
from muster.resources.base import ObjectMeta
from muster.resources.fault_policy import Disposition, MaintenancePolicy
from muster.resources.maintenance import Maintenance, MaintenanceSpec, MaintenanceStatus
from muster.resources.node_health import Decision, Notice, NoticeKind, NoticeStatus, Verb

T0 = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
DRAIN = MaintenancePolicy(lead_s=1800, disposition=Disposition.DRAIN, return_after_s=900)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


@dataclass(frozen=True)
class Node:
    name: str = "n1"
    labels: dict[str, str] = field(default_factory=dict)


def declared(name: str = "fw", handed_back: tuple[str, ...] = (), **spec: object) -> Maintenance:
    fields: dict[str, object] = {"reason": "firmware", "nodes": ("n1",), "opens_at": at(10), "closes_at": at(14)}
    return Maintenance(
        metadata=ObjectMeta(name=name, creation_timestamp=at(0)),
        spec=MaintenanceSpec(**(fields | spec)),  # type: ignore[arg-type]
        status=MaintenanceStatus(handed_back=handed_back),
    )


def notice(**fields: object) -> Notice:
    base = Notice(
        id="e1",
        source="aws",
        kind=NoticeKind.REBOOT,
        status=NoticeStatus.SCHEDULED,
        not_before=at(10),
        ends_at=at(12),
    )
    return replace(base, **fields)


def due(
    *maintenances: Maintenance,
    now: float,
    notices: tuple[Notice, ...] = (),
    deferred: float | None = None,
    idle: bool = False,
    out: float | None = None,
    node: Node = Node(),
    policy: MaintenancePolicy = DRAIN,
) -> NodeMaintenance | None:
    return maintenance_of(
        node,
        maintenances,
        notices,
        policy,
        at(deferred) if deferred is not None else None,
        at(now),
        idle=idle,
        out_since=at(out) if out is not None else None,
    )


def wants(found: NodeMaintenance | None) -> str:
    """hold, drain, over, or waits."""
    if found is None:
        return "none"
    if found.over:
        return "over"
    return "drain" if found.drain else "hold" if found.hold else "waits"


# Declared


@pytest.mark.requirement("v2.4/OFM01")
def test_nothing_happens_before_the_window_and_work_leaves_inside_it() -> None:
    assert wants(due(declared(), now=9.99)) == "waits"
    assert wants(due(declared(), now=10)) == "drain"
    assert wants(due(declared(), now=13.9)) == "drain"
    found = due(declared(), now=9)
    assert found is not None
    assert found.may_evict_from == at(10)
    assert found.recheck_at == at(9.5)
    assert "firmware" in found.message
    assert "2026-03-01 18:00 UTC" in found.message


def test_an_idle_node_is_held_within_the_lead_and_no_earlier() -> None:
    assert wants(due(declared(), now=9.4, idle=True)) == "waits"
    assert wants(due(declared(), now=9.6, idle=True)) == "hold"
    assert wants(due(declared(), now=9.6, idle=False)) == "waits"


def test_a_deferral_moves_the_opening_up_to_its_limit() -> None:
    assert wants(due(declared(), now=11, deferred=12)) == "waits"
    assert wants(due(declared(), now=12, deferred=12)) == "drain"
    limited = declared(defer_limit=at(11))
    assert wants(due(limited, now=11, deferred=13)) == "drain"
    found = due(declared(), now=11, deferred=12)
    assert found is not None
    assert found.deferred_until == found.may_evict_from == at(12)


def test_a_deferral_calls_back_nothing_that_was_handed_over() -> None:
    found = due(declared(), now=11, deferred=13, out=10)
    assert found is not None
    assert found.hold
    assert found.at_work
    assert found.deferred_until is None


def test_a_node_whose_turn_never_came_is_left_alone_after_the_close() -> None:
    found = due(declared(), now=14)
    assert wants(found) == "over"
    assert found is not None
    assert "nothing begins any more" in found.message
    assert not found.overrun


def test_an_overrun_keeps_the_node_until_it_is_handed_back() -> None:
    found = due(declared(), now=20, out=10)
    assert found is not None
    assert (found.hold, found.drain, found.overrun, found.at_work) == (True, False, True, True)
    assert wants(due(declared(handed_back=("n1",)), now=20, out=10)) == "over"


def test_a_forgotten_window_of_last_year_claims_no_node_that_is_out_for_another() -> None:
    old = declared("old", opens_at=at(-9000), closes_at=at(-8990))
    found = due(old, declared(), now=11, out=10)
    assert found is not None
    assert found.names == ("fw",)
    assert not found.overrun
    assert wants(due(old, declared(handed_back=("*",)), now=11, out=10)) == "over"


@pytest.mark.parametrize("names", [("n1",), ("*",), ("n0", "n1")])
def test_handed_back_by_name_or_for_all(names: tuple[str, ...]) -> None:
    found = due(declared(handed_back=names), now=11, out=10)
    assert found is not None
    assert found.over
    assert found.handed_back


def test_handed_back_for_another_node_means_nothing() -> None:
    assert wants(due(declared(handed_back=("n2",)), now=11, out=10)) == "drain"


def test_cancelled_and_ended_early() -> None:
    found = due(declared(cancelled=True), now=11, out=10)
    assert found is not None
    assert found.over
    assert not found.hold
    assert "cancelled" in found.message
    assert due(now=11) is None


@pytest.mark.requirement("v2.4/OFM04")
def test_an_emergency_begins_when_declared_and_hears_no_deferral() -> None:
    urgent = declared(emergency=True, requested_by="ana")
    found = due(urgent, now=1, deferred=13)
    assert found is not None
    assert (found.hold, found.drain, found.emergency, found.requested_by) == (True, True, True, "ana")
    assert found.may_evict_from == at(0)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"emergency": True}, "requestedBy"),
        ({"emergency": True, "requested_by": "ana", "node_selector": {"a": "b"}}, "nodeSelector"),
        ({"closes_at": at(10)}, "closesAt"),
        ({"nodes": ()}, "spec.nodes"),
        ({"defer_limit": at(15)}, "deferLimit"),
        ({"reason": "  "}, "spec.reason"),
    ],
)
def test_what_cannot_be_carried_out_does_nothing_and_says_why(spec: dict[str, Any], word: str) -> None:
    maintenance = declared(**spec)
    assert any(word in sentence for sentence in problems(maintenance.spec))
    assert due(maintenance, now=11) is None


def test_scope_by_name_selector_and_domain_and_never_by_emptiness() -> None:
    label = "topology.muster.dev/domain"
    by_domain = declared(nodes=(), domains=("rack7",)).spec
    assert concerns(by_domain, Node("x", {label: "rack7"}))
    assert not concerns(by_domain, Node("x", {label: "rack8"}))
    assert not concerns(declared(nodes=(), domains=("",)).spec, Node("x"))
    by_label = declared(nodes=(), node_selector={"pool": "a", "gen": "2"}).spec
    assert concerns(by_label, Node("x", {"pool": "a", "gen": "2"}))
    assert not concerns(by_label, Node("x", {"pool": "a"}))


def test_times_without_a_zone_are_utc() -> None:
    naive = declared(opens_at=datetime(2026, 3, 1, 18), closes_at=datetime(2026, 3, 1, 22))  # noqa: DTZ001
    assert wants(due(naive, now=9.9)) == "waits"
    assert wants(due(naive, now=10)) == "drain"


def test_several_join() -> None:
    power = declared("power", opens_at=at(9), closes_at=at(12), reason="power")
    found = due(declared(), power, now=11)
    assert found is not None
    assert (found.name, found.names) == ("power", ("fw", "power"))
    assert (found.opens_at, found.closes_at) == (at(9), at(14))
    back = due(declared(), declared("power", ("n1",), opens_at=at(9), closes_at=at(12)), now=11, out=9)
    assert back is not None
    assert back.names == ("fw",)
    assert back.hold


def test_a_later_one_is_not_joined_to_the_one_that_is_due() -> None:
    found = due(declared(), declared("next-month", opens_at=at(700), closes_at=at(704)), now=11)
    assert found is not None
    assert (found.names, found.closes_at) == (("fw",), at(14))


# Announced


def test_a_notice_is_only_told_unless_the_policy_says_more() -> None:
    found = due(now=11, notices=(notice(),), policy=MaintenancePolicy())
    assert found is not None
    assert (found.hold, found.drain, found.at_work) == (False, False, True)
    assert due(now=11, notices=(notice(),), policy=MaintenancePolicy(disposition=Disposition.OBSERVE)) is None


def test_a_notice_takes_the_node_out_in_time_and_lets_it_back_when_quiet() -> None:
    plan = (notice(),)
    assert wants(due(now=9.4, notices=plan)) == "waits"
    assert wants(due(now=9.5, notices=plan)) == "drain"
    hold = MaintenancePolicy(disposition=Disposition.HOLD)
    assert wants(due(now=9.5, notices=plan, policy=hold)) == "hold"
    done = (notice(status=NoticeStatus.COMPLETED, ends_at=at(11)),)
    assert wants(due(now=11.1, notices=done, out=9.5)) == "hold"
    assert wants(due(now=11.25, notices=done, out=9.5)) == "over"
    assert wants(due(now=11.1, notices=done)) == "waits"


def test_a_cancelled_notice_releases_at_once() -> None:
    found = due(now=10.5, notices=(notice(status=NoticeStatus.CANCELLED),), out=9.5)
    assert wants(found) == "over"
    assert found is not None
    assert "cancelled" in found.message


def test_work_that_begins_unannounced_counts_at_once() -> None:
    found = due(now=1, notices=(notice(status=NoticeStatus.STARTED, emergency=True),))
    assert found is not None
    assert (found.drain, found.at_work, found.emergency) == (True, True, True)


def test_a_notice_that_nobody_ends_holds_nobody_for_ever() -> None:
    for status in (NoticeStatus.SCHEDULED, NoticeStatus.STARTED):
        plan = (notice(status=status),)
        last = 12 + 0.25 + OVERSTAY_S / 3600
        assert wants(due(now=last - 0.01, notices=plan, out=9.5)) == "drain"
        found = due(now=last, notices=plan, out=9.5)
        assert wants(found) == "over"
        assert found is not None
        assert "no longer" in found.message
    forever = (notice(ends_at=datetime(9999, 12, 31, tzinfo=UTC)),)
    assert wants(due(now=10 + MAX_WINDOW_S / 3600 + 0.25 + OVERSTAY_S / 3600, notices=forever)) == "over"


def test_a_notice_that_nobody_ends_blocks_repairs_only_inside_its_window() -> None:
    told = MaintenancePolicy()
    at_work = [
        found.at_work
        for hour in (9.9, 10, 12.2, 12.25, 20)
        if (found := due(now=hour, notices=(notice(),), policy=told)) is not None
    ]
    assert at_work == [False, True, True, False, False]


def test_a_notice_without_any_time_is_shown_only() -> None:
    found = due(now=1, notices=(notice(not_before=None, ends_at=None),))
    assert found is not None
    assert wants(found) == "waits"
    assert found.recheck_at is None


def test_the_owner_does_not_wait_longer_for_a_deferral_than_until_its_start() -> None:
    assert wants(due(now=9.8, notices=(notice(),), deferred=13)) == "waits"
    assert wants(due(now=10, notices=(notice(),), deferred=13)) == "drain"
    assert wants(due(now=9.8, notices=(notice(emergency=True),), deferred=13)) == "drain"


# Deferrals


def asked(
    until: float | None, *maintenances: Maintenance, now: float = 5, out: float | None = None
) -> tuple[datetime | None, str]:
    decision = Decision(id="1", verb=Verb.DEFER, by="ben", until=at(until) if until is not None else None)
    since = at(out) if out is not None else None
    answer = deferral_of(Node(), maintenances, (), DRAIN, decision, at(now), out_since=since)
    return answer.until, answer.message


def test_deferrals_are_granted_shortened_or_refused() -> None:
    assert asked(12, declared())[0] == at(12)
    until, message = asked(20, declared(defer_limit=at(13)))
    assert until == at(13)
    assert "not possible" in message
    assert asked(20, declared())[0] == at(14)
    for refused, word in (
        (asked(None, declared()), "--until"),
        (asked(4, declared()), "passed"),
        (asked(12), "no maintenance"),
        (asked(12, declared(emergency=True, requested_by="ana")), "emergency"),
        (asked(12, declared(), now=11, out=10), "handed over"),
        (asked(12, declared(handed_back=("*",))), "no maintenance"),
    ):
        assert refused[0] is None
        assert word in refused[1]


# Properties

hours = st.integers(min_value=-50, max_value=50).map(float)
specs = st.fixed_dictionaries(
    {
        "opens_at": hours.map(at),
        "closes_at": hours.map(at),
        "emergency": st.booleans(),
        "cancelled": st.booleans(),
        "requested_by": st.sampled_from(["", "ana"]),
        "nodes": st.sampled_from([(), ("n1",), ("n2",), ("n1", "n2")]),
        "defer_limit": st.none() | hours.map(at),
    }
)
declarations = st.builds(
    lambda spec, back, name: declared(name, back, **spec),
    specs,
    st.sampled_from([(), ("n1",), ("*",)]),
    st.sampled_from(["a", "b", "c"]),
)
announced = st.builds(
    lambda s, nb, e, em, k: notice(status=s, not_before=nb, ends_at=e, emergency=em, id=k),
    st.sampled_from(list(NoticeStatus)),
    st.none() | hours.map(at),
    st.none() | hours.map(at),
    st.booleans(),
    st.sampled_from(["e1", "e2"]),
)
policies = st.builds(
    lambda d, lead: MaintenancePolicy(disposition=d, lead_s=lead),
    st.sampled_from(list(Disposition)),
    st.integers(0, 10**9),
)
moments = st.none() | hours


@given(st.lists(declarations, max_size=4), moments, hours, st.booleans(), moments)
@pytest.mark.requirement("v2.4/OFM02")
def test_no_edit_evicts_before_its_time(
    edits: list[Maintenance], deferred: float | None, now: float, idle: bool, out: float | None
) -> None:
    """Each state of an object that is edited in any order stands for itself: none of them drains early."""
    for state in edits:
        found = due(state, now=now, deferred=deferred, idle=idle, out=out)
        if found is None or not found.drain:
            continue
        spec = state.spec
        assert found.may_evict_from <= at(now) < spec.closes_at
        assert not spec.cancelled
        if spec.emergency:
            assert spec.requested_by
            continue
        assert at(now) >= spec.opens_at
        started = out is not None and at(out) < spec.closes_at
        if deferred is not None and not started:
            assert at(now) >= min(at(deferred), spec.defer_limit or spec.closes_at)


@given(
    st.lists(declarations, max_size=4),
    st.lists(announced, max_size=3),
    policies,
    moments,
    hours,
    st.booleans(),
    moments,
)
def test_the_result_is_a_function_of_state_whatever_the_order(
    maintenances: list[Maintenance],
    notices: list[Notice],
    policy: MaintenancePolicy,
    deferred: float | None,
    now: float,
    idle: bool,
    out: float | None,
) -> None:
    kept = list({m.metadata.name: m for m in maintenances}.values())
    told = list({n.id: n for n in notices}.values())

    def ask(ms: list[Maintenance], ns: list[Notice]) -> NodeMaintenance | None:
        return due(*ms, now=now, notices=tuple(ns), deferred=deferred, idle=idle, out=out, policy=policy)

    found = ask(kept, told)
    assert ask(kept[::-1], told[::-1]) == found
    if found is not None:
        assert not (found.drain and not found.hold)
        assert not (found.over and (found.hold or found.drain))
        assert found.recheck_at is None or found.recheck_at > at(now)
        assert not found.drain or found.may_evict_from <= at(now)


@given(st.lists(declarations, min_size=1, max_size=4), hours, moments)
def test_nothing_changes_between_now_and_the_next_look(
    maintenances: list[Maintenance], now: float, out: float | None
) -> None:
    kept = list({m.metadata.name: m for m in maintenances}.values())
    found = due(*kept, now=now, out=out)
    if found is None:
        return
    later = (found.recheck_at - T0).total_seconds() / 3600 - 0.001 if found.recheck_at is not None else now + 1000
    if later > now:
        again = due(*kept, now=later, out=out)
        assert again is not None
        assert (wants(again), again.message) == (wants(found), found.message)


@given(declarations, hours, hours)
def test_an_emergency_touches_only_who_it_names(emergency: Maintenance, now: float, deferred: float) -> None:
    urgent = replace(emergency, spec=replace(emergency.spec, emergency=True, requested_by="ana"))
    other = Node("n9", {"topology.muster.dev/domain": "d"})
    plan = declared("plan", nodes=("n9",))
    alone = due(plan, now=now, node=other, deferred=deferred)
    assert due(plan, urgent, now=now, node=other, deferred=deferred) == alone


@given(st.lists(announced, max_size=3), policies, hours)
def test_every_notice_ends_some_day(notices: list[Notice], policy: MaintenancePolicy, out: float) -> None:
    found = all_of(Node(), (), notices, policy, None, at(10**5), out_since=at(out))
    assert all(not m.hold and not m.drain for m in found)
