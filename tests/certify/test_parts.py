"""What outgrows a certification: how it is split, and who may write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify import catalogue, parts
from muster.certify.conclusion import passed_tests
from muster.certify.details import RANKS_LIMIT, NodeDetail, run_detail
from muster.certify.durable import SupersededError
from muster.certify.isolation.plan import Plan
from muster.certify.parts import PartMissingError, PartStore, split
from muster.kube.api import CERTIFICATION_PARTS, CERTIFICATIONS
from muster.resources.base import to_object
from muster.resources.certification import Outcome, RankFigures, RunDetail, RunRecord, SizeFigures
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, names


def record(number: int) -> RunRecord:
    return RunRecord(id=f"r01-{number:03d}", round=1, test="pair", nodes=("a", "b"), outcome=Outcome.PASS)


def detail(number: int, ranks: int = 2) -> RunDetail:
    return RunDetail(run=f"r01-{number:03d}", ranks=tuple(RankFigures(rank=r, node="a") for r in range(ranks)))


@given(st.integers(0, 40), st.lists(st.integers(0, 30), max_size=12), st.integers(300, 5000))
def test_parts_hold_everything_in_order_and_within_the_limit(runs: int, ranks: list[int], limit: int) -> None:
    records = [record(i) for i in range(runs)]
    details = [detail(i, count) for i, count in enumerate(ranks)]
    found = split(records, details, limit)
    assert [r for part, _ in found for r in part] == records
    assert [d.run for _, part in found for d in part] == [d.run for d in details]
    for part_runs, part_details in found:
        assert part_runs or part_details
        assert sum(len(str(to_object(x))) for x in (*part_runs, *part_details)) < 2 * limit + 1000


def test_a_detail_that_is_too_large_loses_its_ranks_and_nothing_else() -> None:
    large = RunDetail(run="r", transport="NET/IB", ranks=tuple(RankFigures(rank=r, node="n") for r in range(500)))
    ((_, (kept,)),) = split((), (large,), 1000)
    assert (kept.run, kept.transport, kept.ranks) == ("r", "NET/IB", ())


def test_a_run_is_as_slow_as_its_slowest_node_and_wrong_values_add_up() -> None:
    nodes = [
        NodeDetail(
            sizes=(SizeFigures(size_bytes=1024, time_us=time, busbw_gb_per_s=bandwidth, wrong=wrong),),
            transport=transport,
            versions={"nccl": version},
            facts={"steps_per_s": steps, "odd": float("nan")},
        )
        for time, bandwidth, wrong, transport, version, steps in (
            (10.0, 5.0, 1, "NET/IB", "2.27.7", 4.0),
            (12.0, 4.0, 2, "NET/Socket", "2.27.6", 3.0),
        )
    ]
    found = run_detail("r", nodes)
    assert found is not None
    (row,) = found.sizes
    assert (row.time_us, row.busbw_gb_per_s, row.wrong) == (12.0, 4.0, 3)
    assert found.transport == "NET/IB+NET/Socket"
    assert found.versions == {"nccl": "2.27.7 and 2.27.6"}
    assert found.facts == {"steps_per_s": 3.0}
    assert run_detail("r", [NodeDetail()]) is None


def test_of_too_many_ranks_those_that_stand_out_are_kept() -> None:
    ranks = [RankFigures(rank=r, node="n", compute_s=1.0) for r in range(RANKS_LIMIT + 500)]
    ranks[1500] = RankFigures(rank=1500, node="n", compute_s=9.0)
    found = run_detail("r", [NodeDetail(ranks=tuple(ranks))])
    assert found is not None
    assert len(found.ranks) == RANKS_LIMIT
    assert 1500 in {r.rank for r in found.ranks}


async def bed_with(clock: VirtualClock) -> tuple[Bed, PartStore]:
    b = Bed(clock, names(2), Faults())
    await b.install()
    await b.certify("c", names(2))
    uid = (await b.certification("c")).metadata.uid
    return b, PartStore(b.api, clock, "c", uid)


def test_a_part_that_no_status_counts_is_replaced() -> None:
    async def story(clock: VirtualClock) -> list[str]:
        _, store = await bed_with(clock)
        await store.add(0, (record(1),), ())
        assert await store.add(0, (record(1),), ()) == 1
        await store.add(0, (record(2),), ())
        return [run.id for part in await store.read(1) for run in part.spec.runs]

    assert run_virtual(story) == ["r01-002"]


def test_a_part_that_the_status_counts_is_left_alone_by_a_controller_that_was_replaced() -> None:
    async def story(clock: VirtualClock) -> list[str]:
        b, store = await bed_with(clock)
        await store.add(0, (record(1),), ())
        body = await b.api.get(CERTIFICATIONS, "c")
        body["status"] = {**body.get("status", {}), "parts": 1}
        await b.api.replace(CERTIFICATIONS, body, subresource="status")
        with pytest.raises(SupersededError):
            await store.add(0, (record(2),), ())
        return [run.id for part in await store.read(1) for run in part.spec.runs]

    assert run_virtual(story) == ["r01-001"]


def test_a_part_that_is_gone_is_said_by_name() -> None:
    async def story(clock: VirtualClock) -> str:
        b, store = await bed_with(clock)
        await store.add(0, (record(1),), ())
        await b.api.delete(CERTIFICATION_PARTS, parts.part_name("c", 0))
        with pytest.raises(PartMissingError) as raised:
            await store.read(1)
        return str(raised.value)

    assert "c-0" in run_virtual(story)


def test_a_certificate_never_rests_on_a_variant() -> None:
    chosen = [catalogue.tests()[name] for name in ("pair", "pair-net")]
    plan = Plan(tests=tuple(chosen), cells=())
    runs = [
        RunRecord(id=f"r01-{i}", round=1, test=test, nodes=("a", "b"), outcome=outcome)
        for i, (test, outcome) in enumerate(
            [("pair", Outcome.WARN), ("pair-net", Outcome.PASS), ("all-reduce", Outcome.FAIL)]
        )
    ]
    assert passed_tests(runs, plan) == {"a": ("pair",), "b": ("pair",)}
