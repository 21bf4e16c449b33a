"""A round from the coordinator's side: who is blamed for what, and that nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.isolation.plan import Cell, Member, Plan
from muster.certify.measure import HowEnded, RankEnd, Surroundings, judge_round
from muster.certify.runners.rounds import (
    LOST_AFTER_S,
    OVERDUE_AFTER_S,
    PEER_GRACE_S,
    START_LIMIT_S,
    START_SPREAD_S,
    Launch,
    carry_out,
)
from muster.certify.runners.worker_link import HowRunEnded
from muster.resources.certification import Outcome, Reason, RunRecord
from muster.sim.virtual import VirtualClock, run_virtual
from tests.workers.fake_link import PAIR, FakeLink, FakeWorker, addresses, ended, planned, reported, work

NODES = ("a", "b", "c", "d")
RUNS = (planned(0, "a", "b"), planned(1, "c", "d"))
LAUNCH = Launch(device="cpu")
Ends = Mapping[str, tuple[RankEnd, ...]]


def fleet(**changes: FakeWorker) -> dict[str, FakeWorker]:
    return {n: changes.get(n, FakeWorker(n)) for n in NODES}


def played(
    workers: Mapping[str, FakeWorker], story: Callable[[VirtualClock, FakeLink], Coroutine[object, object, Ends]]
) -> tuple[Ends, FakeLink, float]:
    """The ends of a story, the link, and the seconds that it took."""
    links: list[FakeLink] = []

    async def main(clock: VirtualClock) -> Ends:
        links.append(FakeLink(clock, workers))
        return await story(clock, links[0])

    ends = run_virtual(main)
    return ends, links[0], links[0].clock.elapsed_s


def carried_out(
    workers: Mapping[str, FakeWorker],
    *,
    minutes: float = 60.0,
    alive: Callable[[str], bool] = lambda _: True,
    known: tuple[str, ...] = NODES,
) -> tuple[Ends, FakeLink, float]:
    """The ends of one round, the link, and the seconds that it took."""

    async def main(clock: VirtualClock, link: FakeLink) -> Ends:
        return await carry_out(clock, link, addresses(known), work(clock, *RUNS, minutes=minutes), LAUNCH, alive)

    return played(workers, main)


def records(ends: Ends) -> dict[str, RunRecord]:
    plan = Plan(tests=(PAIR,), floors={"pair": 50.0}, cells=(Cell(targets=tuple(Member(name=n) for n in NODES)),))
    return {r.id: r for r in judge_round(plan, RUNS, ends, Surroundings())}


def test_a_healthy_round_passes_and_takes_as_long_as_its_runs() -> None:
    ends, link, seconds = carried_out(fleet())
    assert [r.outcome for r in records(ends).values()] == [Outcome.PASS, Outcome.PASS]
    assert seconds < 7.0
    assert link.running() == []


def test_the_report_of_each_node_arrives_with_its_details() -> None:
    figures = {
        "sizes": ({"sizeBytes": 1024, "busbwGbPerS": 3.5, "wrong": 0},),
        "transport": "IB",
        "facts": {"x_s": 1.0},
    }
    ends, _, _ = carried_out(fleet(a=FakeWorker("a", outcome=reported("a", **figures))))
    detail = ends["r01-000"][0].detail
    assert detail is not None
    assert (detail.sizes[0].size_bytes, detail.sizes[0].busbw_gb_per_s, detail.transport) == (1024, 3.5, "IB")
    assert detail.started_at is not None
    assert detail.ended_at is not None
    assert (detail.ended_at - detail.started_at).total_seconds() == pytest.approx(5.0, abs=1.0)


def test_a_program_that_dies_points_at_its_node_and_the_peer_is_stopped() -> None:
    workers = fleet(a=FakeWorker("a", run_s=1e6), b=FakeWorker("b", outcome=ended(HowRunEnded.CRASHED, "signal 11")))
    ends, link, seconds = carried_out(workers)
    record = records(ends)["r01-000"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.FAIL, Reason.CRASH, ("b",))
    assert records(ends)["r01-001"].outcome is Outcome.PASS
    assert link.running() == []
    assert seconds < PEER_GRACE_S + 10.0


def test_a_worker_that_dies_is_a_crash_of_its_node() -> None:
    ends, link, _ = carried_out(fleet(a=FakeWorker("a", run_s=300.0), b=FakeWorker("b", run_s=300.0, dies_at=3.0)))
    record = records(ends)["r01-000"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.FAIL, Reason.CRASH, ("b",))
    assert "started again" in ends["r01-000"][1].message
    assert link.running() == []


def test_a_worker_that_dies_with_its_node_is_no_evidence() -> None:
    workers = fleet(b=FakeWorker("b", run_s=50.0, dies_at=3.0))
    ends, _, _ = carried_out(workers, alive=lambda n: n != "b")
    record = records(ends)["r01-000"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.UNKNOWN, Reason.HARNESS, ("b",))


def test_a_node_that_is_gone_is_not_waited_for() -> None:
    workers = fleet(a=FakeWorker("a", run_s=1e6), b=FakeWorker("b", run_s=1e6, unreachable_from=2.0))
    ends, link, seconds = carried_out(workers, alive=lambda n: n != "b")
    assert [e.how for e in ends["r01-000"]] == [HowEnded.MUTE, HowEnded.DISTURBED]
    assert records(ends)["r01-000"].outcome is Outcome.UNKNOWN
    assert seconds < PEER_GRACE_S + 20.0
    assert ("a", "r01-000") not in link.running()


def test_a_worker_out_of_reach_for_a_while_is_waited_for() -> None:
    workers = fleet(b=FakeWorker("b", unreachable_from=2.0, unreachable_until=2.0 + LOST_AFTER_S / 2))
    ends, _, _ = carried_out(workers)
    assert records(ends)["r01-000"].outcome is Outcome.PASS


MISSED = {
    "a": reported("a", ok=False, reason="timeout", message="the group did not form", suspects=("b",)),
    "b": reported("b", ok=False, reason="crash", message="nobody is there"),
}


def test_ranks_that_began_far_apart_and_missed_each_other_are_no_evidence() -> None:
    late = 2 * START_SPREAD_S
    workers = fleet(
        a=FakeWorker("a", run_s=30.0, outcome=MISSED["a"]),
        b=FakeWorker("b", outcome=MISSED["b"], unreachable_from=0.0, unreachable_until=late),
    )
    record = records(carried_out(workers)[0])["r01-000"]
    assert (record.outcome, record.reason) == (Outcome.UNKNOWN, Reason.HARNESS)
    assert "did not begin together" in record.message


def test_ranks_that_began_far_apart_and_met_all_the_same_pass() -> None:
    workers = fleet(b=FakeWorker("b", unreachable_from=0.0, unreachable_until=2 * START_SPREAD_S))
    assert records(carried_out(workers)[0])["r01-000"].outcome is Outcome.PASS


@pytest.mark.parametrize("reason", ["numeric", "hardware"])
def test_what_does_not_come_of_beginning_apart_stays_evidence(reason: str) -> None:
    outcome = reported("b", ok=False, reason=reason, message="bad", suspects=("b",))
    workers = fleet(b=FakeWorker("b", outcome=outcome, unreachable_from=0.0, unreachable_until=2 * START_SPREAD_S))
    record = records(carried_out(workers)[0])["r01-000"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.FAIL, Reason(reason), ("b",))


def test_a_run_that_a_killed_coordinator_had_begun_on_one_node_only_blames_nobody() -> None:
    workers = fleet(a=FakeWorker("a", run_s=30.0, outcome=MISSED["a"]), b=FakeWorker("b", outcome=MISSED["b"]))

    async def main(clock: VirtualClock, link: FakeLink) -> Ends:
        todo, known = work(clock, *RUNS), addresses(NODES)
        await link.start(known["a"], LAUNCH.spec(todo, RUNS[0], PAIR, 0, known))
        await clock.sleep(25.0)
        return await carry_out(clock, link, known, todo, LAUNCH, lambda _: True)

    assert records(played(workers, main)[0])["r01-000"].outcome is Outcome.UNKNOWN


def test_a_worker_out_of_reach_for_long_is_evidence_of_nothing() -> None:
    ends, _, _ = carried_out(fleet(b=FakeWorker("b", run_s=50.0, unreachable_from=2.0)))
    record = records(ends)["r01-000"]
    assert (record.outcome, record.reason) == (Outcome.UNKNOWN, Reason.HARNESS)
    assert ends["r01-000"][1].how is HowEnded.OVERDUE


def test_a_worker_that_cannot_be_reached_at_the_start_makes_its_run_invalid() -> None:
    ends, link, seconds = carried_out(fleet(d=FakeWorker("d", unreachable_from=0.0)))
    record = records(ends)["r01-001"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.INVALID, Reason.SCHEDULING, ("d",))
    assert [e.how for e in ends["r01-001"]] == [HowEnded.MUTE, HowEnded.REFUSED]
    assert link.running() == []
    assert seconds < START_LIMIT_S + 20.0


def test_a_node_without_a_worker_makes_its_run_invalid_and_starts_nothing() -> None:
    workers = fleet()
    ends, _, _ = carried_out(workers, known=("a", "b", "c"))
    assert records(ends)["r01-001"].outcome is Outcome.INVALID
    assert workers["c"].starts == 0


def test_a_refusal_is_told_in_the_words_of_the_worker() -> None:
    ends, _, _ = carried_out(fleet(a=FakeWorker("a", refuses="the clocks differ by 900 s")))
    assert "900 s" in ends["r01-000"][0].message
    assert records(ends)["r01-000"].outcome is Outcome.INVALID


def test_an_answer_that_is_lost_does_not_start_a_run_twice() -> None:
    workers = fleet(a=FakeWorker("a", lose_answers=3))
    ends, _, _ = carried_out(workers)
    assert records(ends)["r01-000"].outcome is Outcome.PASS
    assert workers["a"].starts == 1


def test_what_is_left_of_another_round_is_stopped_first() -> None:
    workers = fleet()

    async def main(clock: VirtualClock, link: FakeLink) -> Ends:
        old = planned(7, "a", "c")
        workers["a"].run_s = 1e6
        spec = LAUNCH.spec(work(clock, old), old, PAIR, 0, addresses(NODES))
        await link.start(addresses(NODES)["a"], spec)
        workers["a"].run_s = 5.0
        return await carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)

    ends, link, _ = played(workers, main)
    assert records(ends)["r01-000"].outcome is Outcome.PASS
    assert link.running() == []


def test_a_run_that_never_ends_is_given_up_after_its_deadline_and_stopped() -> None:
    ends, link, seconds = carried_out(fleet(a=FakeWorker("a", run_s=1e6), b=FakeWorker("b", run_s=1e6)))
    assert {e.how for e in ends["r01-000"]} == {HowEnded.OVERDUE}
    assert records(ends)["r01-000"].outcome is Outcome.UNKNOWN
    assert link.running() == []
    assert seconds < PAIR.deadline_s + OVERDUE_AFTER_S + 20.0


def test_the_time_of_the_certification_ends_everything() -> None:
    ends, link, seconds = carried_out(fleet(a=FakeWorker("a", run_s=1e6), b=FakeWorker("b", run_s=1e6)), minutes=0.5)
    assert "time of the certification" in ends["r01-000"][0].message
    assert link.running() == []
    assert seconds < 45.0


def test_a_hang_names_the_node_that_all_others_waited_for() -> None:
    hung = {"hang_ranks_at_work": 1.0, "hang_ranks_waiting": 0.0, "hang_least_step": 3.0}
    silent = reported("b", ok=False, reason="hang", message="no progress", facts=hung)
    waiting = reported("a", ok=False, reason="hang", message="timed out")
    ends, _, _ = carried_out(fleet(a=FakeWorker("a", outcome=waiting), b=FakeWorker("b", outcome=silent)))
    record = records(ends)["r01-000"]
    assert (record.outcome, record.reason, record.suspects) == (Outcome.FAIL, Reason.HANG, ("b",))


def test_a_hang_in_which_nobody_was_seen_waiting_names_nobody() -> None:
    facts = {"hang_ranks_at_work": 1.0, "hang_ranks_waiting": 0.0, "hang_least_step": 3.0}
    outcomes = {n: reported(n, ok=False, reason="hang", message="stuck", facts=facts) for n in ("a", "b")}
    ends, _, _ = carried_out(fleet(**{n: FakeWorker(n, outcome=o) for n, o in outcomes.items()}))
    record = records(ends)["r01-000"]
    assert (record.outcome, record.suspects) == (Outcome.FAIL, ())


@pytest.mark.parametrize("seconds", [0.01, 0.06, 0.11, 0.3, 1.0, 3.0, 4.9, 5.06, 5.2, 6.0])
def test_a_coordinator_that_is_killed_is_continued_by_the_next(seconds: float) -> None:
    """Cancelled at any moment, nothing is stopped; the next one adopts what runs and comes to the same ends."""
    workers = fleet(b=FakeWorker("b", outcome=reported("b", ok=False, reason="numeric", message="2 wrong")))

    async def main(clock: VirtualClock, link: FakeLink) -> Ends:
        task = asyncio.ensure_future(
            carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)
        )
        await clock.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)

    found = records(played(workers, main)[0])
    assert [r.outcome for r in found.values()] == [Outcome.FAIL, Outcome.PASS]
    assert found["r01-000"].reason is Reason.NUMERIC
    assert [w.starts for w in workers.values()] == [1, 1, 1, 1]


def test_a_coordinator_killed_at_any_of_its_requests_is_continued_by_the_next() -> None:
    bad = reported("b", ok=False, reason="numeric", message="2 wrong")
    _, whole, _ = carried_out(fleet(b=FakeWorker("b", outcome=bad)))
    assert whole.requests > 8
    for number in range(1, whole.requests + 1):
        workers = fleet(b=FakeWorker("b", outcome=bad))

        async def main(clock: VirtualClock, link: FakeLink, number: int = number) -> Ends:
            going = asyncio.ensure_future(
                carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)
            )
            link.at_request = lambda n: going.cancel() if n == number else None
            await asyncio.gather(going, return_exceptions=True)
            assert going.cancelled()
            return await carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)

        ends, _, _ = played(workers, main)
        assert [r.outcome for r in records(ends).values()] == [Outcome.FAIL, Outcome.PASS], number
        assert [w.starts for w in workers.values()] == [1, 1, 1, 1]


_TROUBLE = st.fixed_dictionaries(
    {
        "run_s": st.floats(0.1, 200.0),
        "unreachable_from": st.floats(0.0, 100.0) | st.just(float("inf")),
        "length": st.floats(0.0, 200.0),
        "dies_at": st.floats(0.0, 100.0) | st.just(float("inf")),
        "lose_answers": st.integers(0, 3),
    }
)


@settings(max_examples=60, deadline=None)
@given(trouble=st.dictionaries(st.sampled_from(NODES), _TROUBLE, max_size=4), cancel_s=st.floats(0.0, 100.0))
def test_whatever_happens_every_node_gets_an_end_and_no_healthy_pair_is_blamed(
    trouble: dict[str, dict[str, float]], cancel_s: float
) -> None:
    workers = {}
    for node in NODES:
        t = trouble.get(node)
        if t is None:
            workers[node] = FakeWorker(node)
            continue
        start = t["unreachable_from"]
        workers[node] = FakeWorker(
            node,
            run_s=t["run_s"],
            unreachable_from=start,
            unreachable_until=start + t["length"],
            dies_at=t["dies_at"],
            lose_answers=int(t["lose_answers"]),
        )

    async def main(clock: VirtualClock, link: FakeLink) -> Ends:
        first = asyncio.ensure_future(
            carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)
        )
        await clock.sleep(cancel_s)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return await carry_out(clock, link, addresses(NODES), work(clock, *RUNS), LAUNCH, lambda _: True)

    ends, link, now = played(workers, main)
    assert {run: tuple(e.node for e in found) for run, found in ends.items()} == {r.id: r.nodes for r in RUNS}
    for run in RUNS:
        record = records(ends)[run.id]
        if not set(run.nodes) & set(trouble):
            assert record.outcome is Outcome.PASS
        if record.outcome is Outcome.FAIL:
            assert record.suspects
            assert all(n in trouble for n in record.suspects)
    # Only what could not be told to stop may still go on; it is stopped when its node is used again.
    assert all(workers[node].unreachable_from < now for node, _ in link.running())
