"""The waterfall closes, and returns are counted from the transitions."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from muster.operate.goodput import recovery, waterfall
from muster.operate.ledger import Interval, NodeRecord, TimeClass, build
from muster.resources.node_health import CauseKind, State
from tests.operate.test_ledger import RECORDS, at, moments, step, story


@given(st.lists(RECORDS, max_size=4, unique_by=lambda r: r.name), moments(), moments())
def test_total_minus_losses_is_busy_exactly(records: list[NodeRecord], one: object, other: object) -> None:
    fall = waterfall(build(records, min(one, other), max(one, other)))
    assert fall.total_us - sum(s.time_us for s in fall.losses) == fall.busy_us
    for loss in fall.losses:
        assert sum(p.time_us for p in loss.parts) == loss.time_us > 0
        assert all(0 <= p.busy_us <= p.time_us for p in loss.parts)
    assert 0 <= fall.share <= 1


def test_the_waterfall_names_causes_and_rungs() -> None:
    fall = waterfall(build([story()], at(0), at(200)))
    assert [(s.label, s.time_us // 60_000_000) for s in fall.losses] == [
        ("bring-up of new nodes", 30),
        ("faults", 40),
        ("in service, no GPU pod", 20),
    ]
    repairing = [(p.rung, p.time_us // 60_000_000) for p in fall.losses[1].parts if p.rung]
    assert repairing == [("reboot", 10), ("reset-gpu", 5)]
    assert fall.share == 110 / 200


def test_times_to_return() -> None:
    record = story()
    found = recovery([record], build([record], at(0), at(200)))
    assert len(found.returns) == 1
    assert found.mean_time_to_return == found.median_time_to_return == timedelta(minutes=40)
    assert found.mean_time_to_validated_return == timedelta(minutes=20)
    assert found.mean_time_between_faults == timedelta(minutes=130)
    assert found.open_episodes == 0


def test_an_episode_without_end_is_open_and_has_no_time() -> None:
    record = NodeRecord(
        name="n2",
        present=Interval(at(0)),
        transitions=(
            step(0, State.IN_SERVICE, CauseKind.CERTIFICATION),
            step(10, State.OUT_OF_SERVICE, CauseKind.FAULT, "e9"),
        ),
    )
    ledger = build([record], at(0), at(60))
    found = recovery([record], ledger)
    assert (found.open_episodes, found.returns, found.mean_time_to_return) == (1, (), None)
    assert ledger.by_class()[TimeClass.OUT_OF_SERVICE] == 50 * 60_000_000


def test_an_empty_window_has_no_goodput() -> None:
    assert waterfall(build([], at(0), at(0))).share == 0.0
