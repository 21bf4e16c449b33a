"""A certification of worker processes on this machine: the whole path from isolation to PyTorch, without a cluster.

It is for learning, for developing tests, and for proving that a planted fault is found and nobody else is blamed.
The processes share a few cores, so their numbers scatter far more than those of real nodes. How far is measured
first (`calibrate`): a number within `MARGIN` of the slowest healthy one counts as healthy, what lies below is slow.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import msgspec

from muster.certify import catalogue
from muster.certify.catalogue import CatalogueTest, Scope
from muster.certify.details import run_detail
from muster.certify.isolate import IsolationState, next_round, observe, replay
from muster.certify.isolation.plan import Cell, Member, Plan, PlannedRun, Role, Round, Verdicts
from muster.certify.measure import RankEnd, Surroundings, judge_round
from muster.certify.runners import Owner, Work
from muster.certify.runners.local import LocalRunner, Place
from muster.clock import Clock, SystemClock
from muster.errors import BadInputError, NotSatisfiedError
from muster.resources.certification import CertificationBudget, RunDetail, RunRecord

WORKERS_LIMIT = 64
DEADLINE_S = 15
OP_TIMEOUT_S = 6.0
"""One operation may take this long: what hangs is found within seconds, and two crowded cores still get there."""
MARGIN = 4.0
"""A number is slow when it is under a quarter of the slowest healthy one. With eight workers on two cores healthy
numbers differ by up to a factor of two; the faults to act out cost a factor of ten and more."""
COMPUTE_NOISE_S = 0.03
"""A rank that computes no longer than this per step is never slow: on crowded cores it loses its core for as long."""
CALIBRATIONS = 3
"""Healthy runs of each test and size beforehand."""

_SWEEP = {"min_bytes": 65_536, "max_bytes": 262_144, "factor": 4, "iterations": 10, "warmup": 1, "size_s": 0.3}
_GROUP = {**_SWEEP, "statistic": "min", "op_timeout_s": OP_TIMEOUT_S}
LOCAL_PARAMS: Mapping[str, Mapping[str, object]] = {
    "gpu-burn": {"duration_s": 0.3, "size": 128},
    "pair": {**_GROUP, "collective": "all-reduce"},
    "all-to-all": {**_GROUP, "collective": "all-to-all"},
    "all-reduce": {**_GROUP, "collective": "all-reduce"},
    "all-gather": {**_GROUP, "collective": "all-gather"},
    "reduce-scatter": {**_GROUP, "collective": "reduce-scatter"},
    "train": {"steps": 10, "warmup_steps": 2, "width": 64, "batch": 16, "op_timeout_s": OP_TIMEOUT_S},
}
"""Tests of the catalogue that run here, in sizes for processes that share a few cores."""
LOCAL_TESTS = ("gpu-burn", "pair", "all-to-all")
"""What is run when nothing else is asked for."""

FAULTS: Mapping[str, Mapping[str, object]] = {
    "exit": {"exit_at": 1},
    "hang": {"hang_at": 1},
    "corrupt": {"corrupt": True},
    "sleep": {"sleep_s": 0.1},
    "slow-send": {"send_s_per_mib": 0.5},
}
"""Faults that a worker can act out, by name."""

OWNER = Owner("local", "local")


@dataclass(frozen=True)
class Calibration:
    """What healthy runs of this machine reached, by test."""

    least: Mapping[str, float] = field(default_factory=dict)
    """The least number seen."""
    greatest: Mapping[str, float] = field(default_factory=dict)
    """The greatest number seen."""
    compute_s: Mapping[str, float] = field(default_factory=dict)
    """The longest mean time that a rank computed per step."""

    @property
    def floors(self) -> dict[str, float]:
        """Test -> the number under which a run is slow."""
        return {name: value / MARGIN for name, value in self.least.items()}

    def cleared(self, test: str, end: RankEnd) -> RankEnd:
        """The end with what is within the noise of this machine put on one healthy number.

        Numbers of one round, and ranks of one run, are compared with each other too, with a margin for nodes that
        have a machine of their own; what scatters here says nothing.
        """
        report, healthy = end.report, self.least.get(test)
        if report is None or not report.ok:
            return end
        if report.value is not None and healthy is not None and report.value >= healthy / MARGIN:
            end = replace(end, report=msgspec.structs.replace(report, value=healthy))
        usual_s = self.compute_s.get(test)
        if end.detail is None or usual_s is None:
            return end
        limit_s = max(MARGIN * usual_s, COMPUTE_NOISE_S)
        ranks = tuple(
            r if r.compute_s is None or r.compute_s > limit_s else msgspec.structs.replace(r, compute_s=usual_s)
            for r in end.detail.ranks
        )
        return replace(end, detail=replace(end.detail, ranks=ranks))


@dataclass(frozen=True)
class LocalRound:
    """What `on_round` is told after each round."""

    number: int
    records: tuple[RunRecord, ...]
    wall_s: float


@dataclass(frozen=True)
class LocalOutcome:
    """A finished local certification."""

    plan: Plan
    records: tuple[RunRecord, ...]
    details: tuple[RunDetail, ...]
    verdicts: Verdicts
    wall_s: float
    """From the first round to the verdicts."""
    startup_s: float = 0.0
    """Until all workers were ready."""
    calibration: Calibration = field(default_factory=Calibration)


OnRound = Callable[[LocalRound], None]


def node_names(workers: int) -> tuple[str, ...]:
    """Names of the local nodes. Raises BadInputError."""
    if not 2 <= workers <= WORKERS_LIMIT:
        raise BadInputError(f"A local certification takes 2 to {WORKERS_LIMIT} workers, not {workers}.")
    return tuple(f"local-{i}" for i in range(workers))


def local_tests(names: Sequence[str]) -> tuple[CatalogueTest, ...]:
    """Tests of the catalogue in sizes for this machine. Raises BadInputError."""
    unknown = [n for n in names if n not in LOCAL_PARAMS]
    if unknown or not names:
        raise BadInputError(
            f"The test '{unknown[0] if unknown else ''}' does not run locally; use some of {', '.join(LOCAL_PARAMS)}."
        )
    return tuple(
        msgspec.structs.replace(
            catalogue.tests()[name],
            params=dict(LOCAL_PARAMS[name]),
            env={},
            needs=(),
            duration_s=2,
            deadline_s=DEADLINE_S,
        )
        for name in dict.fromkeys(names)
    )


def parse_injection(text: str) -> tuple[int, str]:
    """`node=3,fault=exit` -> (3, "exit"). Raises BadInputError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    number = parts.get("node", "")
    if set(parts) != {"node", "fault"} or not (number.isascii() and number.isdigit()) or parts["fault"] not in FAULTS:
        raise BadInputError(
            f"'{text[:60]}' is no fault; write node=NUMBER,fault=WORD, with one of {', '.join(FAULTS)}."
        )
    return int(number), parts["fault"]


def injections(names: Sequence[str], inject: Mapping[int, str]) -> dict[str, Mapping[str, object]]:
    """Node -> what its worker acts out. Raises BadInputError."""
    for number, fault in inject.items():
        if not 0 <= number < len(names) or fault not in FAULTS:
            raise BadInputError(
                f"There is no node {number} for the fault '{fault}'; nodes are 0 to {len(names) - 1}, "
                f"faults {', '.join(FAULTS)}."
            )
    return {names[number]: FAULTS[fault] for number, fault in sorted(inject.items())}


def make_local_plan(
    names: Sequence[str],
    tests: Sequence[CatalogueTest],
    calibration: Calibration,
    budget: CertificationBudget,
    *,
    seed: int = 0,
    matchings: int = 1,
) -> Plan:
    """The plan over the local nodes, which are all alike."""
    return Plan(
        seed=seed,
        tests=tuple(tests),
        matchings=matchings,
        budget=budget,
        floors=calibration.floors,
        cells=(Cell(targets=tuple(Member(name=n) for n in names)),),
    )


async def certify_locally(
    workers: int = 8,
    tests: Sequence[str] = LOCAL_TESTS,
    inject: Mapping[int, str] | None = None,
    on_round: OnRound | None = None,
    python: Path | None = None,
    budget: CertificationBudget | None = None,
    seed: int = 0,
    *,
    matchings: int = 1,
    clock: Clock | None = None,
) -> LocalOutcome:
    """Certify `workers` processes of this machine with `tests`; `inject`: number of a node -> fault that it acts out.

    `python` runs the workers (default: this one) and needs PyTorch. Raises BadInputError for input that cannot be
    used, NotSatisfiedError where PyTorch is missing, UnreachableError when workers do not start.
    """
    names, chosen = node_names(workers), local_tests(tests)
    faults = injections(names, inject or {})
    if python is None and importlib.util.find_spec("torch") is None:
        raise NotSatisfiedError(
            "PyTorch is not installed here; install it with: pip install 'muster-gpu[workloads]'."
        )
    timer = clock or SystemClock()
    with tempfile.TemporaryDirectory(prefix="muster-local-") as folder:
        begun = timer.now()
        places = dict.fromkeys(names, Place())
        async with LocalRunner(timer, places, python=python or Path(sys.executable), folder=Path(folder)) as runner:
            await _require_torch(runner, names[0])
            startup_s = (timer.now() - begun).total_seconds()
            calibration = await calibrate(timer, runner, names, chosen)
            runner.begin("", faults)
            plan = make_local_plan(
                names, chosen, calibration, budget or CertificationBudget(), seed=seed, matchings=matchings
            )
            outcome = await carry_on(timer, runner, plan, calibration, on_round=on_round)
    return replace(outcome, startup_s=startup_s)


async def _require_torch(runner: LocalRunner, node: str) -> None:
    torch = (await runner.state(node)).versions.get("torch", "")
    if not torch or torch.startswith("cannot"):
        raise NotSatisfiedError(
            "The Python of the workers has no PyTorch that can be imported; "
            "install it with: pip install 'muster-gpu[workloads]'."
        )


async def calibrate(
    clock: Clock, runner: LocalRunner, names: Sequence[str], tests: Sequence[CatalogueTest]
) -> Calibration:
    """Run every test with nothing injected, as crowded as it will be: what healthy numbers are on this machine now.

    Raises NotSatisfiedError when a healthy run does not end well.
    """
    values: dict[str, list[float]] = {}
    compute_s: dict[str, float] = {}
    for k in range(CALIBRATIONS):
        for j, test in enumerate(tests):
            runs = tuple(_calibration_runs(f"calibrate-{k}-{j}", test, names))
            work = Work(OWNER, runs, {test.name: test}, {}, clock.now() + timedelta(seconds=10 * DEADLINE_S))
            ends = await runner.carry_out(work, _quiet)
            for end in (e for run in runs for e in ends[run.id]):
                if end.report is None or not end.report.ok:
                    said = end.report.message if end.report is not None else end.message
                    raise NotSatisfiedError(f"The healthy run of {test.name} on {end.node} failed: {said}.")
                values.setdefault(test.name, []).extend(_known([end.report.value]))
                ranks = end.detail.ranks if end.detail is not None else ()
                seen = [*_known(r.compute_s for r in ranks), *_known([compute_s.get(test.name)])]
                compute_s.update({test.name: max(seen)} if seen else {})
    found = {name: numbers for name, numbers in values.items() if numbers}
    least = {name: min(numbers) for name, numbers in found.items()}
    return Calibration(least, {name: max(numbers) for name, numbers in found.items()}, compute_s)


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [n for n in numbers if n is not None]


def _calibration_runs(prefix: str, test: CatalogueTest, names: Sequence[str]) -> Sequence[PlannedRun]:
    size = {Scope.NODE: 1, Scope.PAIR: 2, Scope.GROUP: len(names)}[test.scope]
    groups = [tuple(names[i : i + size]) for i in range(0, len(names) - size + 1, size)]
    return [PlannedRun(f"{prefix}-{i}", 0, test.name, nodes, Role.CONTROL, 0) for i, nodes in enumerate(groups)]


async def carry_on(
    clock: Clock,
    runner: LocalRunner,
    plan: Plan,
    calibration: Calibration,
    *,
    records: Sequence[RunRecord] = (),
    on_round: OnRound | None = None,
) -> LocalOutcome:
    """Go on from `records` (none: from the beginning) to the verdicts, on workers that are there.

    Cancelled in the middle of a round, it leaves the runs going; called again with the records so far it adopts them.
    """
    begun = clock.now()
    until = begun + timedelta(minutes=plan.budget.max_wall_minutes)
    state: IsolationState = replay(plan, records)
    tests = {t.name: t for t in plan.tests}
    details: list[RunDetail] = []
    while True:
        if clock.now() >= until and state.pending is not None:
            spent = f"{plan.budget.max_wall_minutes:g} minutes have passed, which is all the budget allows"
            state = replace(state, pending=None, spent=spent)
        step = next_round(state)
        if isinstance(step, Verdicts):
            break
        started = clock.now()
        await runner.clean(OWNER, frozenset(r.id for r in step.runs), _quiet)
        raw = await runner.carry_out(Work(OWNER, step.runs, tests, {}, until), _quiet)
        ends = {r.id: tuple(calibration.cleared(r.test, e) for e in raw[r.id]) for r in step.runs}
        judged = judge_round(plan, step.runs, ends, Surroundings(passed=state.records))
        details += _details(step, raw)
        state = observe(state, judged)
        if on_round is not None:
            on_round(LocalRound(step.number, tuple(judged), (clock.now() - started).total_seconds()))
    wall_s = (clock.now() - begun).total_seconds()
    return LocalOutcome(plan, state.records, tuple(details), step, wall_s, calibration=calibration)


def _details(step: Round, ends: Mapping[str, Sequence[RankEnd]]) -> list[RunDetail]:
    found = (run_detail(r.id, [e.detail for e in ends[r.id] if e.detail is not None]) for r in step.runs)
    return [detail for detail in found if detail is not None]


async def _quiet(_: str) -> None:
    return
