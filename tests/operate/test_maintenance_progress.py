"""The status of a Maintenance, its records for export, and whether its time leaves the availability sum."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.operate.maintenance.availability import exclusion
from muster.operate.maintenance.progress import MAX_LISTED, NewsKind, Progress, SeenNode, progress_of
from muster.operate.maintenance.records import Category, records
from muster.resources.base import ObjectMeta
from muster.resources.maintenance import Maintenance, MaintenancePhase, MaintenanceSpec, NodeProgress
from muster.resources.node_health import (
    Cause,
    CauseKind,
    Lifecycle,
    NodeHealth,
    NodeHealthStatus,
    Notice,
    NoticeKind,
    NoticeStatus,
    Observed,
    State,
    Transition,
)
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung
from tests.operate.worlds import readings

T0 = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def declared(**spec: Any) -> Maintenance:
    fields: dict[str, Any] = {
        "reason": "firmware",
        "requested_by": "ana",
        "nodes": ("n1", "n2"),
        "opens_at": at(10),
        "closes_at": at(14),
    }
    return Maintenance(
        metadata=ObjectMeta(name="fw", creation_timestamp=at(0)), spec=MaintenanceSpec(**(fields | spec))
    )


def works(name: str) -> SeenNode:
    return SeenNode(name=name, state=State.IN_SERVICE)


def ready(name: str) -> SeenNode:
    return SeenNode(name=name, state=State.QUARANTINED, handed_over=True)


def draining(name: str) -> SeenNode:
    return SeenNode(name=name, state=State.DRAINING, draining=True, waits_for="2 pods left.")


def certifying(name: str) -> SeenNode:
    return SeenNode(name=name, state=State.CERTIFYING, waits_for="Runs its tests.")


class Story:
    """One Maintenance through time; the status of each step is the start of the next."""

    def __init__(self, maintenance: Maintenance) -> None:
        self.now = maintenance

    def step(self, hours: float, *nodes: SeenNode) -> Progress:
        found = progress_of(self.now, nodes, at(hours))
        self.now = replace(self.now, status=found.status)
        again = progress_of(self.now, nodes, at(hours))
        assert again.status == found.status
        assert again.news == ()
        return found

    def hand_back(self, *names: str) -> None:
        self.now = replace(self.now, status=replace(self.now.status, handed_back=names))

    def spec(self, **fields: Any) -> None:
        self.now = replace(self.now, spec=replace(self.now.spec, **fields))


def kinds(found: Progress) -> list[str]:
    return [news.kind.value for news in found.news]


def shown(found: Progress) -> dict[str, str]:
    return {n.name: n.progress.value for n in found.status.nodes}


def condition(found: Progress, kind: str) -> tuple[str, str]:
    one = next(c for c in found.status.conditions if c.type == kind)
    return one.status.value, one.reason


@pytest.mark.requirement("companion/BFX05")
def test_from_announcement_to_the_end() -> None:
    story = Story(declared())
    first = story.step(1, works("n1"), works("n2"))
    assert (first.status.phase, kinds(first)) == (MaintenancePhase.ANNOUNCED, ["announced"])
    assert condition(first, "Announced") == ("True", "InTime")
    assert first.recheck_at == at(10)
    opened = story.step(10, works("n1"), works("n2"))
    assert (opened.status.phase, kinds(opened)) == (MaintenancePhase.WAITING, ["opened"])
    assert opened.status.opened_at == at(10)
    leaving = story.step(10.5, draining("n1"), works("n2"))
    assert shown(leaving) == {"n1": "draining", "n2": "planned"}
    assert leaving.status.nodes[0].message == "2 pods left."
    free = story.step(11, ready("n1"), works("n2"))
    assert (free.status.phase, kinds(free)) == (MaintenancePhase.HANDED_OVER, ["node-ready"])
    assert free.news[0].nodes == ("n1",)
    story.hand_back("n1")
    mixed = story.step(12, certifying("n1"), ready("n2"))
    assert shown(mixed) == {"n1": "handed-back", "n2": "ready"}
    story.hand_back("n1", "n2")
    back = story.step(12.5, works("n1"), certifying("n2"))
    assert (back.status.phase, shown(back)) == (MaintenancePhase.RETURNING, {"n1": "returned", "n2": "handed-back"})
    done = story.step(13, works("n1"), works("n2"))
    assert (done.status.phase, done.status.closed_at) == (MaintenancePhase.COMPLETED, at(13))
    assert kinds(done) == ["completed"]
    assert condition(done, "Overrun") == ("False", "InTime")
    later = story.step(13.5, SeenNode(name="n1", state=State.QUARANTINED), works("n2"))
    assert (later.status.phase, kinds(later)) == (MaintenancePhase.COMPLETED, [])


@pytest.mark.requirement("v2.4/OFM03")
def test_an_overrun_is_told_once_and_remembered() -> None:
    story = Story(declared(nodes=("n1",)))
    story.step(11, ready("n1"))
    late = story.step(14, ready("n1"))
    assert (late.status.phase, kinds(late)) == (MaintenancePhase.OVERRUN, ["overrun"])
    assert late.news[0].warning
    assert condition(late, "Overrun") == ("True", "NotReturned")
    assert kinds(story.step(20, ready("n1"))) == []
    story.hand_back("*")
    assert story.step(21, certifying("n1")).status.phase is MaintenancePhase.OVERRUN
    done = story.step(22, works("n1"))
    assert (done.status.phase, kinds(done)) == (MaintenancePhase.COMPLETED, ["completed"])
    assert condition(done, "Overrun") == ("True", "ReturnedLate")


def test_handed_back_in_time_but_failing_its_tests_is_an_overrun() -> None:
    story = Story(declared(nodes=("n1",)))
    story.step(11, ready("n1"))
    story.hand_back("n1")
    story.step(13, certifying("n1"))
    assert story.step(14, certifying("n1")).status.phase is MaintenancePhase.OVERRUN


def test_a_node_whose_turn_never_came_is_named_and_no_overrun() -> None:
    story = Story(declared())
    story.step(11, ready("n1"), works("n2"))
    story.hand_back("n1")
    done = story.step(14, works("n1"), works("n2"))
    assert done.status.phase is MaintenancePhase.COMPLETED
    assert condition(done, "Complete") == ("False", "NotReached")
    assert done.news[0].nodes == ("n2",)


def test_a_node_that_is_out_for_a_fault_is_no_overrun_of_the_maintenance() -> None:
    story = Story(declared(nodes=("n1",)))
    faulty = SeenNode(name="n1", state=State.QUARANTINED, waits_for="xid/79")
    story.step(11, faulty)
    assert story.step(14, faulty).status.phase is MaintenancePhase.COMPLETED


def test_a_node_that_is_gone_while_the_work_goes_on_is_expected() -> None:
    story = Story(declared(nodes=(), node_selector={"a": "b"}))
    story.step(11, SeenNode(name="n1", labels={"a": "b"}, state=State.QUARANTINED, handed_over=True))
    assert shown(story.step(12)) == {"n1": "ready"}
    assert shown(story.step(14)) == {"n1": "overrun"}
    story.hand_back("*")
    assert story.step(15).status.phase is MaintenancePhase.COMPLETED


def test_a_deferred_node_and_a_node_that_does_not_exist() -> None:
    story = Story(declared(defer_limit=at(12)))
    put_off = SeenNode(name="n1", state=State.IN_SERVICE, deferred_until=at(13))
    found = story.step(11, put_off)
    assert shown(found) == {"n1": "deferred", "n2": "planned"}
    assert "no node of this name" in found.status.nodes[1].message
    assert shown(story.step(12, put_off)) == {"n1": "planned", "n2": "planned"}


def test_cancelled_and_invalid() -> None:
    story = Story(declared(nodes=("n1",)))
    story.step(11, ready("n1"))
    story.spec(cancelled=True)
    found = story.step(12, certifying("n1"))
    assert (found.status.phase, kinds(found)) == (MaintenancePhase.CANCELLED, ["cancelled"])
    assert shown(found) == {"n1": "handed-back"}
    assert shown(story.step(20, works("n1"))) == {"n1": "returned"}
    wrong = Story(declared(emergency=True, requested_by=""))
    bad = wrong.step(1, works("n1"))
    assert (bad.status.phase, kinds(bad)) == (MaintenancePhase.INVALID, ["invalid"])
    assert "requestedBy" in bad.news[0].message
    assert condition(bad, "Valid") == ("False", "CannotBeCarriedOut")
    wrong.spec(requested_by="ana")
    assert kinds(wrong.step(2, works("n1"))) == ["announced", "opened"]


def test_a_window_that_is_extended_opens_no_second_time() -> None:
    story = Story(declared(nodes=("n1",)))
    story.step(11, ready("n1"))
    story.step(14, ready("n1"))
    story.spec(closes_at=at(20))
    found = story.step(15, ready("n1"))
    assert (found.status.phase, found.status.opened_at) == (MaintenancePhase.HANDED_OVER, at(10))
    assert found.status.closed_at is None


@pytest.mark.requirement("companion/BFX05")
def test_declared_too_late_is_told_as_such() -> None:
    story = Story(declared(opens_at=at(-1)))
    assert condition(story.step(0.1, works("n1")), "Announced") == ("True", "Late")


def test_a_large_one_is_cut_to_those_that_matter() -> None:
    names = [f"n{n:05}" for n in range(MAX_LISTED + 500)]
    maintenance = declared(nodes=tuple(names))
    seen = [ready(name) if number % 100 == 99 else works(name) for number, name in enumerate(names)]
    found = progress_of(maintenance, seen, at(11))
    listed = [n.name for n in found.status.nodes]
    assert len(listed) == MAX_LISTED
    assert listed == sorted(listed)
    assert sum(n.progress is NodeProgress.READY for n in found.status.nodes) == 25
    assert "2500 nodes" in found.status.conditions[0].message


states = st.sampled_from([works, ready, draining, certifying])
steps = st.lists(
    st.tuples(st.integers(0, 3), states, states, st.sampled_from([(), ("n1",), ("*",)]), st.booleans()), max_size=12
)


@given(steps)
def test_any_story_tells_each_thing_once_and_ends_consistent(walk: list[Any]) -> None:
    story, hours = Story(declared()), 8.0
    told: list[tuple[NewsKind, tuple[str, ...]]] = []
    for ahead, one, other, back, cancel in walk:
        hours += ahead
        story.hand_back(*back)
        if cancel and ahead == 3:
            story.spec(cancelled=True)
        found = story.step(hours, one("n1"), other("n2"))
        told += [(news.kind, news.nodes) for news in found.news]
        status = found.status
        ended = status.phase in (MaintenancePhase.COMPLETED, MaintenancePhase.CANCELLED)
        assert (status.closed_at is not None) == ended
        assert (status.phase is MaintenancePhase.OVERRUN) <= (hours >= 14)
        assert found.recheck_at is None or found.recheck_at > at(hours)
    for kind in (NewsKind.ANNOUNCED, NewsKind.OPENED, NewsKind.CANCELLED):
        assert sum(k is kind for k, _ in told) <= 1


# Records


def repair(**status: Any) -> Repair:
    spec = RepairSpec(
        node_name="n1",
        node_uid="u1",
        episode="e",
        rung=Rung.REBOOT,
        provider="x",
        reason="XID 79",
        boot_id_before="b",
    )
    return Repair(metadata=ObjectMeta(name="r1", creation_timestamp=at(1)), spec=spec, status=RepairStatus(**status))


def health(*notices: Notice, history: tuple[Transition, ...] = ()) -> NodeHealth:
    observed = Observed(observed_at=at(0), node_uid="u2", boot_id="b", fingerprint=readings(), notices=notices)
    life = Lifecycle(state=State.IN_SERVICE, since=at(0), history=history)
    return NodeHealth(metadata=ObjectMeta(name="n1"), status=NodeHealthStatus(observed=observed, lifecycle=life))


@pytest.mark.requirement("v2.4/BFX02")
def test_records_have_their_ten_fields_and_survive_the_node() -> None:
    done = repair(phase=RepairPhase.DONE, started_at=at(2), finished_at=at(1.5), external_id="INC-7")
    (one,) = records((), [done], (), account="acme")
    assert one.opened is not None
    assert one.updated is not None
    assert one.closed is not None
    assert one.opened <= one.updated <= one.closed
    assert (one.hardware_id, one.category, one.fault_text) == ("u1", Category.REPAIR, "XID 79")
    assert (one.action_class, one.account, one.ticket_id, one.handover) == ("reboot", "acme", "INC-7", at(2))
    (named,) = records((), [done], [], account="acme", hardware={"n1": "SN-42"})
    assert named.hardware_id == "SN-42"


@pytest.mark.requirement("v2.4/OFM03")
def test_records_of_maintenance_and_of_notices() -> None:
    story = Story(declared(nodes=("n1",)))
    story.step(11, ready("n1"))
    (open_one,) = records([story.now], (), (), account="")
    assert (open_one.closed, open_one.handover) == (None, at(11))
    story.hand_back("*")
    story.step(13, works("n1"))
    step = Transition(state=State.QUARANTINED, at=at(11), cause=Cause(kind=CauseKind.MAINTENANCE))
    retired = Notice(
        id="e", source="aws", kind=NoticeKind.TERMINATE, status=NoticeStatus.SCHEDULED, not_before=at(50)
    )
    found = records([story.now], (), [health(retired, history=(step,))], account="")
    assert [(r.ticket_id, r.category.value) for r in found] == [
        ("aws/e", "retirement"),
        ("fw", "planned-maintenance"),
    ]
    assert (found[0].handover, found[0].closed) == (at(50), None)
    assert (found[1].opened, found[1].closed, found[1].handover) == (at(0), at(13), at(11))


# Availability


def finished(**spec: Any) -> Maintenance:
    story = Story(declared(**({"nodes": ("n1",), "opens_at": at(400), "closes_at": at(404)} | spec)))
    story.step(401, ready("n1"))
    story.hand_back("n1")
    story.step(403, works("n1"))
    return story.now


@pytest.mark.requirement("v2.4/OSL01")
def test_time_leaves_the_availability_sum_only_if_all_five_hold() -> None:
    assert exclusion(finished(), "n1").excluded
    assert exclusion(finished(opens_at=at(300)), "n1").failed == ("not announced in time",)
    assert "outside the scope" in exclusion(finished(), "n2").failed
    assert exclusion(finished(closes_at=at(402)), "n1").failed[-1] == "finished after the stated close"
    never = declared(nodes=("n1",), opens_at=at(400), closes_at=at(404))
    assert "not finished with validation" in exclusion(never, "n1").failed
    assert "not declared" in exclusion(declared(reason=" "), "n1").failed
