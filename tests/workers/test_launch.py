"""How runs are described to workers, and what stands for a whole machine when there is only one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.certify import catalogue
from muster.certify.details import NodeDetail
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.local_fleet import (
    COMPUTE_NOISE_S,
    LOCAL_PARAMS,
    MARGIN,
    Calibration,
    injections,
    local_tests,
    node_names,
    parse_injection,
)
from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners import Owner, Work
from muster.certify.runners.rounds import Launch
from muster.certify.runners.worker_link import WorkerAddress
from muster.errors import BadInputError
from muster.resources.certification import Pods, RankFigures
from muster.workloads.run_spec import RunSpec
from tests.workers.fake_link import PAIR

UNTIL = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(hours=1)


def planned(number: int, round_: int, *nodes: str, variant: str = "") -> PlannedRun:
    return PlannedRun(f"r{round_:02d}-{number:03d}", round_, "pair", nodes, Role.SCREEN, 0, variant)


def described(launch: Launch, run: PlannedRun, index: int = 0, *, host: str = "10.0.0.1", **pods: object) -> RunSpec:
    work = Work(Owner("c", "u"), (run,), {"pair": PAIR}, dict.fromkeys(run.nodes, 8), UNTIL, Pods(**pods))  # type: ignore[arg-type]  # fields by name
    workers = {n: WorkerAddress(n, host, 7470, "t" * 32) for n in run.nodes}
    return launch.spec(work, run, PAIR, index, workers)


def test_the_first_node_is_where_the_ranks_meet() -> None:
    a, b = (described(Launch(), planned(3, 1, "n1", "n2"), i) for i in (0, 1))
    assert (a.node, b.node, a.rendezvous, a.rendezvous == b.rendezvous) == ("n1", "n2", "10.0.0.1:29540", True)
    assert (a.ranks_per_node, a.world_size, a.timeout_s) == (8, 16, float(PAIR.deadline_s))
    assert described(Launch(), planned(0, 1, "n1", "n2"), host="fd00::1").rendezvous.startswith("[fd00::1]:")
    assert described(Launch(), planned(0, 1, "n1")).rendezvous == ""
    assert described(Launch(device="cpu"), planned(0, 1, "n1")).ranks_per_node == 1


def test_what_is_nearer_to_the_user_wins_in_the_environment() -> None:
    run = planned(0, 1, "n1", "n2")
    assert described(Launch(), run, env={"NCCL_DEBUG": "WARN"}).env["NCCL_DEBUG"] == "WARN"
    assert described(Launch(env={"X": "2"}), run, env={"X": "1"}).env["X"] == "2"


def test_one_rail_is_one_parameter() -> None:
    assert described(Launch(), planned(0, 1, "n1", "n2", variant="rail=3")).params["rails"] == [3]
    assert "rails" not in described(Launch(), planned(0, 1, "n1", "n2", variant="net")).params


def test_a_fault_reaches_its_node_alone() -> None:
    launch = Launch(inject={"n2": {"hang_at": 1}})
    run = planned(0, 1, "n1", "n2")
    assert [dict(described(launch, run, i).inject) for i in (0, 1)] == [{}, {"hang_at": 1}]


@given(st.integers(1, 99), st.sets(st.integers(0, 399), min_size=2, max_size=50))
def test_runs_of_a_round_never_share_a_port(round_: int, numbers: set[int]) -> None:
    launch = Launch(first_port=20_000, ports=400)
    ports = [described(launch, planned(n, round_, "a", "b")).rendezvous for n in sorted(numbers)]
    assert len(set(ports)) == len(ports)
    assert all(20_000 <= int(p.rpartition(":")[2]) < 20_400 for p in ports)


def test_every_description_is_one_that_workers_take() -> None:
    for name, test in catalogue.tests().items():
        if not test.program:
            continue
        run = planned(0, 1, "n1", "n2")
        work = Work(Owner("c", "u"), (run,), {name: test}, {"n1": 8, "n2": 8}, UNTIL)
        workers = {n: WorkerAddress(n, "h", 1, "t") for n in run.nodes}
        spec = Launch(prefix="c1-").spec(work, replace(run, test=name), test, 1, workers)
        assert RunSpec.from_json(spec.to_json()) == spec
        assert spec.run == "c1-r01-000"


# One machine for all nodes


def end(value: float | None, *, ok: bool = True, compute_s: float | None = None) -> RankEnd:
    report = Report("n", ok=ok, value=value, unit="GB/s")
    detail = NodeDetail(ranks=(RankFigures(rank=0, node="n", compute_s=compute_s),))
    return RankEnd("n", HowEnded.REPORTED, report, detail=detail)


CALIBRATION = Calibration({"pair": 8.0}, {"pair": 12.0}, {"pair": 0.001})


@given(st.floats(0.001, 1000.0))
def test_numbers_within_the_noise_are_alike_and_others_stay(value: float) -> None:
    found = CALIBRATION.cleared("pair", end(value)).report
    assert found is not None
    assert found.value == (8.0 if value >= 8.0 / MARGIN else value)
    assert (found.value or 0.0) >= CALIBRATION.floors["pair"] or value < CALIBRATION.floors["pair"]


def test_only_a_rank_that_computes_far_longer_keeps_its_time() -> None:
    def seen(compute_s: float) -> float | None:
        detail = CALIBRATION.cleared("pair", end(9.0, compute_s=compute_s)).detail
        return detail.ranks[0].compute_s if detail is not None else None

    assert seen(COMPUTE_NOISE_S) == 0.001
    assert seen(2 * COMPUTE_NOISE_S) == 2 * COMPUTE_NOISE_S


def test_a_failure_is_left_as_it_is() -> None:
    failed = end(9.0, ok=False)
    assert CALIBRATION.cleared("pair", failed) is failed
    assert CALIBRATION.cleared("train", end(9.0)).report == end(9.0).report


def test_local_tests_are_those_of_the_catalogue_in_another_size() -> None:
    for test in local_tests(tuple(LOCAL_PARAMS)):
        original = catalogue.tests()[test.name]
        assert (test.program, test.scope, test.unit) == (original.program, original.scope, original.unit)
        assert test.deadline_s < original.deadline_s


@pytest.mark.parametrize(
    "act",
    [
        lambda: node_names(1),
        lambda: node_names(65),
        lambda: local_tests(()),
        lambda: local_tests(("dcgm-diag",)),
        lambda: parse_injection("node=3"),
        lambda: parse_injection("node=x,fault=exit"),
        lambda: parse_injection("node=1,fault=fire"),
        lambda: parse_injection("node=1,fault=exit,more=1"),
        lambda: injections(("a", "b"), {2: "exit"}),
        lambda: injections(("a", "b"), {0: "fire"}),
    ],
)
def test_input_that_cannot_be_used_is_refused_in_a_sentence(act) -> None:  # type: ignore[no-untyped-def]  # a lambda
    with pytest.raises(BadInputError, match=r"\.$"):
        act()


def test_a_fault_is_read_from_words() -> None:
    assert parse_injection("node=3,fault=exit") == (3, "exit")
    assert injections(node_names(4), {3: "exit"}) == {"local-3": {"exit_at": 1}}
