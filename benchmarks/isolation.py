"""Fault isolation against a known truth: who is named, who is wronged, in how many rounds, at what cost.

    python benchmarks/isolation.py            # minutes on one core
    python benchmarks/isolation.py --quick    # under a minute

Every figure is seeded and repeatable. Columns:

- rounds, max: rounds until the end, median and most
- single: rounds until the nodes that never passed a pair are exactly the bad ones, most (without noise that is the
  answer; blame comes later, when the allowed error is reached)
- search: rounds from the first failed group run to the test of single links, most
- runs, node-min: median cost
- exact: trials in which exactly the faults were named; blamed: trials in which something innocent was named;
  missed: faults that were not named
- xbound: runs over ceil(log2(sum over i<=d of C(n, i))), the least number of yes-no runs that could do

Exit status 1 when a goal is missed.

The reference is bisection, modelled on 72 nodes in four racks: one bad node in 7 rounds with 18 innocents recorded, a
node that fails half of its runs named in 2.7 % of trials, 126 of 153 single bad links in a rack missed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from muster.certify import catalogue
from muster.certify.isolate import IsolationState
from muster.certify.isolation.evidence import pair_of
from muster.certify.isolation.plan import Cell, Member, Plan, Role
from muster.certify.truth import SlowNodes, Truth, carry_out, compare
from muster.resources.certification import CertificationBudget, NodeVerdict

FALSE_BLAME_GOAL = 0.001
PAIRS = ("pair",)
GROUPS = ("pair", "all-to-all")
EVERYTHING = ("host", "gpu-burn", "nvlink-loopback", "pair", "all-to-all", "all-reduce")


def name(index: int) -> str:
    return f"node-{index:04d}"


def fleet(
    n: int, tests: Sequence[str], *, seed: int, matchings: int = 1, weakest: float = 0.8, rounds: int = 100
) -> Plan:
    """A plan over n equal nodes, eight to a domain."""
    members = tuple(Member(name=name(i), domain=f"domain-{i // 8:03d}") for i in range(n))
    return Plan(
        seed=seed,
        tests=tuple(catalogue.tests()[t] for t in tests),
        matchings=matchings,
        weakest_rate=weakest,
        budget=CertificationBudget(max_rounds=rounds, max_runs=10**6, max_wall_minutes=1e6, max_node_minutes=1e9),
        cells=(Cell(product="NVIDIA-H100-80GB-HBM3", gpus=8, targets=members),),
    )


@dataclass
class Trial:
    exact: bool
    blamed: bool
    bad: int
    named: int
    rounds: int
    single: int
    search: int
    met: bool
    runs: int
    node_minutes: float


@dataclass
class Row:
    """Trials of one scenario."""

    label: str
    n: int
    noise: float
    trials: list[Trial] = field(default_factory=list)
    bound: int = 0

    def share(self, count: float) -> float:
        return count / max(1, len(self.trials))

    @property
    def exact(self) -> float:
        return self.share(sum(t.exact for t in self.trials))

    @property
    def blamed(self) -> int:
        return sum(t.blamed for t in self.trials)

    @property
    def named(self) -> float:
        return sum(t.named for t in self.trials) / max(1, sum(t.bad for t in self.trials))

    def line(self) -> str:
        rounds = [t.rounds for t in self.trials]
        runs = median(t.runs for t in self.trials)
        ratio = f"{runs / self.bound:6.1f}" if self.bound else "     -"
        single = max(t.single for t in self.trials)
        search = max(t.search for t in self.trials)
        missed = f"{1 - self.named:7.2%}" if any(t.bad for t in self.trials) else "      -"
        return (
            f"{self.label:<26}{self.n:>5}{self.noise:>7.1%}{len(self.trials):>7}"
            f"{median(rounds):>7.0f}{max(rounds):>5}{single or '-':>7}{search or '-':>7}{runs:>7.0f}"
            f"{median(t.node_minutes for t in self.trials):>9.0f}"
            f"{self.exact:>9.2%}{self.share(self.blamed):>8.2%}{missed}{ratio}"
        )


HEADER = (
    f"{'faults':<26}{'n':>5}{'noise':>7}{'trials':>7}{'rounds':>7}{'max':>5}{'single':>7}{'search':>7}{'runs':>7}"
    f"{'node-min':>9}{'exact':>9}{'blamed':>8}{'missed':>7}{'xbound':>6}"
)


def run_trial(plan: Plan, truth: Truth, slow: SlowNodes | None = None) -> Trial:
    """One certification against the truth."""
    bad = truth.bad_nodes | (frozenset(slow.factors) if slow is not None else frozenset())
    seen: list[IsolationState] = []
    verdicts, _ = carry_out(plan, slow.answer if slow is not None else truth.answer, watch=seen.append)
    single = 0
    for number, state in enumerate(seen, 1):
        screening = state.cells[0].screening
        passed = screening.pairs.passes
        never = frozenset(n for n in screening.pairs.mates if not passed.get(n))
        if not single and bad and never == bad:
            single = number
    first, last = _search_rounds(seen)
    search = last - first + 1 if first and last else 0
    if slow is not None:
        failed = {v.name for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED}
        exact, blamed, named = failed == bad, bool(failed - bad), len(failed & bad)
    else:
        found = compare(truth, verdicts)
        exact, blamed = found.exact, bool(found.innocent or found.innocent_links)
        named = len(found.named) + len(found.named_links)
    return Trial(
        exact=exact,
        blamed=blamed,
        bad=len(bad) + len(truth.bad_links),
        named=named,
        rounds=verdicts.cost.rounds,
        single=single,
        search=search,
        met=_bad_met(bad, seen),
        runs=verdicts.cost.runs,
        node_minutes=verdicts.cost.node_minutes,
    )


def _search_rounds(seen: Sequence[IsolationState]) -> tuple[int, int]:
    """First failed group run, and the first round in which a pair was run as the candidate for a bad link."""
    first = last = 0
    for state in seen:
        if state.pending is None:
            continue
        for run in state.pending.runs:
            if run.role is Role.CONFIRM and not first:
                first = run.round
            if run.role is Role.CANDIDATE and not last:
                last = run.round
    return first, last


def _bad_met(bad: frozenset[str], seen: Sequence[IsolationState]) -> bool:
    """Whether two bad nodes were paired in the first round: neither is then a proven partner for the other."""
    return any(r.round == 1 and len(bad.intersection(r.nodes)) > 1 for r in seen[0].records)


def information_bound(n: int, d: int) -> int:
    return math.ceil(math.log2(sum(math.comb(n, i) for i in range(d + 1)))) if d else 0


Make = Callable[[random.Random, int], tuple[Plan, Truth, SlowNodes | None]]


@dataclass(frozen=True)
class Scenario:
    label: str
    n: int
    noise: float
    trials: int
    make: Make
    bound: int = 0
    by_chance: bool = False
    """Noise, flaky nodes or scattered numbers: an innocent may be blamed by chance."""
    goal: Callable[[Row], str] = lambda row: ""  # noqa: ARG005
    """The goal that was missed in words, or nothing."""


def always_bad(n: int, d: int, trials: int, noise: float = 0.0) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        bad = dict.fromkeys((name(i) for i in rng.sample(range(n), d)), 1.0)
        return fleet(n, PAIRS, seed=seed), Truth(seed=seed, nodes=bad, noise=noise), None

    def goal(row: Row) -> str:
        if noise:
            return ""
        if row.exact < 1:
            return "exact verdicts"
        if any(t.single > 2 for t in row.trials):
            return "singled out in 2 rounds"
        late = [t for t in row.trials if t.rounds > 3 + t.met]
        return "named in 3 rounds (4 where two bad nodes met)" if late else ""

    return Scenario(f"always bad: {d}", n, noise, trials, make, information_bound(n, d), noise > 0, goal)


def flaky(n: int, rate: float, least: float, trials: int, noise: float) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        plan = fleet(n, PAIRS, seed=seed, matchings=12, weakest=0.3)
        return plan, Truth(seed=seed, nodes={name(rng.randrange(n)): rate}, noise=noise), None

    def goal(row: Row) -> str:
        # One trial in the way of a share that few trials cannot tell from the goal is no miss.
        allowed = (1 - least) * len(row.trials) + 2 * math.sqrt((1 - least) * len(row.trials))
        return f"named {least:.1%}" if sum(t.named == 0 for t in row.trials) > allowed else ""

    return Scenario(f"flaky {rate:.0%}", n, noise, trials, make, information_bound(n, 1), True, goal)


def single_link(n: int, trials: int) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        a, b = rng.sample(range(n), 2)
        return fleet(n, GROUPS, seed=seed), Truth(seed=seed, links={pair_of(name(a), name(b)): 1.0}), None

    def goal(row: Row) -> str:
        if row.exact < 1:
            return "every single bad link named"
        most = max(t.search for t in row.trials)
        limit = 2 * math.ceil(math.log2(n))
        return f"singled out in {limit} rounds (took {most})" if most > limit else ""

    bound = math.ceil(math.log2(math.comb(n, 2) + 1))
    return Scenario("single link", n, 0.0, trials, make, bound, goal=goal)


def mixed(label: str, n: int, trials: int, plant: Callable[[random.Random], Truth], noise: float = 0.0) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        truth = plant(rng)
        planted = Truth(seed, truth.nodes, truth.tests, truth.links, truth.scale, noise)
        return fleet(n, GROUPS, seed=seed, matchings=2, weakest=0.5), planted, None

    return Scenario(label, n, noise, trials, make, by_chance=noise > 0 or "3 nodes" in label)


def slow(n: int, factor: float, trials: int, least: float) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, SlowNodes]:
        plan = fleet(n, ("gpu-burn", "pair"), seed=seed, weakest=0.5)
        return plan, Truth(), SlowNodes(seed, {name(rng.randrange(n)): factor})

    def goal(row: Row) -> str:
        return f"named {least:.0%}" if row.named < least else ""

    return Scenario(f"slow {1 - factor:.0%}", n, 0.0, trials, make, information_bound(n, 1), True, goal)


def plant_link_and_node(n: int) -> Callable[[random.Random], Truth]:
    def plant(rng: random.Random) -> Truth:
        a, b, c = rng.sample(range(n), 3)
        return Truth(nodes={name(c): 1.0}, links={pair_of(name(a), name(b)): 1.0})

    return plant


def plant_scale(n: int, least: int) -> Callable[[random.Random], Truth]:
    return lambda rng: Truth(scale={name(rng.randrange(n)): least})


def plant_links(n: int, count: int) -> Callable[[random.Random], Truth]:
    def plant(rng: random.Random) -> Truth:
        pairs = [rng.sample(range(n), 2) for _ in range(count)]
        return Truth(links={pair_of(name(a), name(b)): 1.0 for a, b in pairs})

    return plant


def plant_mixture(n: int) -> Callable[[random.Random], Truth]:
    def plant(rng: random.Random) -> Truth:
        a, b, c, d, e = rng.sample(range(n), 5)
        return Truth(nodes={name(c): 1.0, name(d): 0.8, name(e): 1.0}, links={pair_of(name(a), name(b)): 1.0})

    return plant


def scenarios(quick: bool) -> Iterator[Scenario]:
    """What is measured, cheap things first."""
    many = 1 if quick else 5
    for n in (8, 32, 128, 1024) if quick else (8, 16, 32, 64, 128, 256, 512, 1024):
        for d in sorted({0, 1, 2, 4, 8, n // 4}):
            if d <= n // 4:
                yield always_bad(n, d, 3 * many if n > 256 else 10 * many)
    for noise in (0.005, 0.01):
        yield always_bad(72, 0, 30 * many, noise)
        yield always_bad(72, 4, 20 * many, noise)
        yield always_bad(1024, 0, 3 * many, noise)
    for n in (8, 32, 72, 1024):
        yield single_link(n, (5 if n == 1024 else 20) * many)
    for noise in (0.0, 0.005, 0.01):
        yield flaky(72, 0.5, 0.995, 25 * many, noise)
        yield flaky(72, 0.3, 0.90, 20 * many, noise)
    if not quick:
        yield flaky(1024, 0.5, 0.995, 20, 0.005)
        yield flaky(1024, 0.3, 0.90, 20, 0.005)
    for n in (16, 72):
        yield mixed("link and node", n, 10 * many, plant_link_and_node(n))
        yield mixed("link and node", n, 10 * many, plant_link_and_node(n), 0.005)
        yield mixed("node bad at size >= 4", n, 10 * many, plant_scale(n, 4))
        yield mixed(f"node bad at size >= {n // 2}", n, 10 * many, plant_scale(n, n // 2))
        yield mixed("2 links", n, 10 * many, plant_links(n, 2))
        yield mixed("3 nodes and a link", n, 10 * many, plant_mixture(n))
    yield slow(64, 0.8, 10 * many, 1.0)
    yield slow(512, 0.9, 3 * many, 0.98)
    yield slow(512, 0.95, 3 * many, 0.0)


def measure(scenario: Scenario) -> Row:
    row = Row(scenario.label, scenario.n, scenario.noise, bound=scenario.bound)
    for trial in range(scenario.trials):
        rng = random.Random(f"{scenario.label}/{scenario.n}/{scenario.noise}/{trial}")
        row.trials.append(run_trial(*scenario.make(rng, trial)))
    return row


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer fleets and trials")
    options = parser.parse_args(argv)
    started = time.perf_counter()
    print(HEADER)
    missed: list[str] = []
    trials = blamed = chances = 0
    for scenario in scenarios(options.quick):
        row = measure(scenario)
        print(row.line(), flush=True)
        trials += len(row.trials)
        blamed += row.blamed
        chances += len(row.trials) if scenario.by_chance else 0
        why = scenario.goal(row)
        if why:
            missed.append(f"{row.label}, n = {row.n}, noise {row.noise:.1%}: {why}")
    # Only trials in which chance plays a part count: without it an innocent is never named, or something is broken.
    # So many false blames are within reach of the goal by chance (two standard deviations of a Poisson count).
    allowed = FALSE_BLAME_GOAL * chances + 2 * math.sqrt(FALSE_BLAME_GOAL * chances)
    if blamed > allowed:
        missed.append(f"false blame in {blamed} of {chances} trials with chance in them, goal {FALSE_BLAME_GOAL:.1%}")
    for line in missed:
        print(f"MISSED  {line}")
    verdict = f"{len(missed)} goal(s) missed" if missed else "all goals met"
    took = time.perf_counter() - started
    print(f"isolation: {trials} trials, false blame in {blamed} of {chances} with chance, {verdict}, {took:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
