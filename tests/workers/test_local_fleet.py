"""Real workers on this machine with faults acted out for real: the culprit is named, and nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.certify.local_fleet import (
    FAULTS,
    Calibration,
    LocalOutcome,
    LocalRound,
    calibrate,
    carry_on,
    certify_locally,
    injections,
    local_tests,
    make_local_plan,
    node_names,
)
from muster.certify.runners.local import LocalRunner, Place
from muster.clock import SystemClock
from muster.resources.certification import CertificationBudget, NodeVerdict, Outcome, Reason, RunRecord
from tests.torch_python import torch_python
from tests.workers.bed import gone, processes_with

pytestmark = [pytest.mark.full, pytest.mark.timeout(900), pytest.mark.xdist_group("local-fleet")]

CLOCK = SystemClock()
NAMES = node_names(4)
TESTS = local_tests(("pair", "all-to-all"))
NODE_TESTS = local_tests(("gpu-burn", "pair"))


@dataclass
class Fleet:
    """Four workers that stay up while the tests of this module use them, one certification after the other."""

    loop: asyncio.AbstractEventLoop
    runner: LocalRunner
    calibration: Calibration
    certifications: int = 0

    def play(self, story: Callable[[], Awaitable[LocalOutcome]]) -> LocalOutcome:
        async def main() -> LocalOutcome:
            return await story()

        return self.loop.run_until_complete(main())

    def begin(self, inject: Mapping[int, str]) -> None:
        self.certifications += 1
        self.runner.begin(f"c{self.certifications}-", injections(NAMES, inject))

    def certify(self, inject: Mapping[int, str], *, seed: int = 0, local: bool = False) -> LocalOutcome:
        self.begin(inject)
        plan = self.plan(seed, local=local)
        return self.play(lambda: carry_on(CLOCK, self.runner, plan, self.calibration))

    def plan(self, seed: int = 0, *, local: bool = False, matchings: int = 1):  # type: ignore[no-untyped-def]  # a Plan
        tests = NODE_TESTS if local else TESTS
        return make_local_plan(NAMES, tests, self.calibration, CertificationBudget(), seed=seed, matchings=matchings)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        loop = runner.get_loop()
        local = LocalRunner(CLOCK, dict.fromkeys(NAMES, Place()), python=torch_python(), folder=Path(folder))
        loop.run_until_complete(local.__aenter__())
        try:
            tests = (*NODE_TESTS, TESTS[1])
            yield Fleet(loop, local, loop.run_until_complete(calibrate(CLOCK, local, NAMES, tests)))
        finally:
            loop.run_until_complete(local.aclose())


def failed(outcome: LocalOutcome) -> dict[str, Reason]:
    return {v.name: v.reason for v in outcome.verdicts.nodes if v.verdict is NodeVerdict.FAILED}


def explained(outcome: LocalOutcome, limit: int = 12) -> str:
    """What the runs that did not pass said, for the reader of a failure."""
    return "\n".join(f"{r.id} {r.nodes} {r.outcome} {r.message}" for r in outcome.records if r.outcome != "PASS")[
        : limit * 200
    ]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_healthy_workers_all_pass(fleet: Fleet, seed: int) -> None:
    outcome = fleet.certify({}, seed=seed)
    assert failed(outcome) == {}, explained(outcome)
    assert {v.verdict for v in outcome.verdicts.nodes} == {NodeVerdict.PASSED}, explained(outcome)
    assert outcome.verdicts.links == ()
    assert {s.placement for d in outcome.details for s in d.sizes} >= {"in"}


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        ("exit", {Reason.CRASH}),
        ("corrupt", {Reason.NUMERIC}),
        ("slow-send", {Reason.BANDWIDTH}),
    ],
)
def test_the_culprit_is_named_by_pairs_and_nobody_else(
    fleet: Fleet, culprit: int, fault: str, reasons: set[Reason]
) -> None:
    outcome = fleet.certify({culprit: fault}, seed=culprit)
    found = failed(outcome)
    assert set(found) == {NAMES[culprit]}, explained(outcome)
    assert found[NAMES[culprit]] in reasons
    assert all(v.verdict is NodeVerdict.PASSED for v in outcome.verdicts.nodes if v.name != NAMES[culprit])
    assert outcome.verdicts.links == ()


def test_a_worker_that_hangs_is_named_and_its_partners_are_not(fleet: Fleet) -> None:
    outcome = fleet.certify({3: "hang"})
    assert failed(outcome) == {NAMES[3]: Reason.HANG}, explained(outcome)


def test_a_slow_machine_is_named_by_its_own_test(fleet: Fleet) -> None:
    outcome = fleet.certify({1: "sleep"}, local=True)
    assert failed(outcome) == {NAMES[1]: Reason.COMPUTE}, explained(outcome)


def test_two_culprits_with_different_faults_are_both_named(fleet: Fleet) -> None:
    outcome = fleet.certify({0: "corrupt", 2: "exit"}, local=True)
    assert failed(outcome) == {NAMES[0]: Reason.NUMERIC, NAMES[2]: Reason.CRASH}, explained(outcome)


@pytest.mark.parametrize("after_s", [0.05, 0.4, 1.3])
def test_a_coordinator_that_is_killed_is_continued_to_the_same_verdicts(fleet: Fleet, after_s: float) -> None:
    fleet.begin({1: "corrupt"})
    plan, seen = fleet.plan(5), list[RunRecord]()

    def keep(done: LocalRound) -> None:
        seen.extend(done.records)

    async def killed_and_continued() -> LocalOutcome:
        first = asyncio.ensure_future(carry_on(CLOCK, fleet.runner, plan, fleet.calibration, on_round=keep))
        await asyncio.sleep(after_s)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return await carry_on(CLOCK, fleet.runner, plan, fleet.calibration, records=tuple(seen))

    outcome = fleet.play(killed_and_continued)
    assert failed(outcome) == {NAMES[1]: Reason.NUMERIC}, explained(outcome)


def test_a_worker_that_is_killed_in_a_run_is_a_crash_comes_back_and_is_not_condemned(fleet: Fleet) -> None:
    """Once is no proof: the run fails by its name, and the node passes when it is asked again."""
    fleet.begin({})
    plan, victim = fleet.plan(6), NAMES[2]
    before = fleet.runner.pids[victim]

    async def story() -> LocalOutcome:
        going = asyncio.ensure_future(carry_on(CLOCK, fleet.runner, plan, fleet.calibration))
        while "running" not in (await fleet.runner.state(victim)).runs.values():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        os.kill(fleet.runner.pids[victim], signal.SIGKILL)
        return await going

    outcome = fleet.play(story)
    crashes = [r for r in outcome.records if r.outcome is Outcome.FAIL]
    assert {r.reason for r in crashes} == {Reason.CRASH}, explained(outcome)
    assert all(r.suspects == (victim,) for r in crashes)
    assert failed(outcome) == {}
    assert fleet.runner.pids[victim] != before


@pytest.mark.timeout(600)
def test_eight_workers_and_three_culprits_from_the_front_door() -> None:
    rounds: list[LocalRound] = []
    outcome = asyncio.run(
        certify_locally(
            8, inject={1: "corrupt", 5: "exit", 6: "sleep"}, on_round=rounds.append, python=torch_python(), seed=3
        )
    )
    culprits = {"local-1": Reason.NUMERIC, "local-5": Reason.CRASH, "local-6": Reason.COMPUTE}
    assert failed(outcome) == culprits, explained(outcome)
    assert [r.number for r in rounds] == list(range(1, len(rounds) + 1))
    assert _workers_left() == []


def test_workers_of_a_killed_coordinator_end_with_it(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from muster.certify.local_fleet import certify_locally\n"
        "python = pathlib.Path(sys.argv[1])\n"
        "asyncio.run(certify_locally(2, ('pair',), on_round=lambda _: print('round', flush=True), python=python))\n"
    )
    command = [sys.executable, "-c", program, str(torch_python())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"round\n"
        assert processes_with(str(tmp_path)) != []
        process.kill()
    assert asyncio.run(gone(str(tmp_path)))


def _workers_left() -> Sequence[int]:
    """Processes of workers that no runner of this test process holds any more."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"muster.workloads" in words and b"local-5" in words and str(os.getpid()).encode() in words:
                found.append(int(entry.name))
    return found


def test_every_fault_has_a_name_that_a_worker_knows() -> None:
    assert sorted(FAULTS) == ["corrupt", "exit", "hang", "sleep", "slow-send"]
