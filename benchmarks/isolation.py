"""Fault isolation against a known truth: who is named, who is wronged, in how many rounds, at what cost.

    python benchmarks/isolation.py            # minutes on one core
    python benchmarks/isolation.py --quick    # under 40 seconds
    python benchmarks/isolation.py --long     # many seeds, for the rare: false blame and flaky nodes; an hour

Every figure is seeded and repeatable. Columns:

- rounds, max: rounds until the end, median and most
- single: rounds until the nodes that never passed a pair are exactly the bad ones, most (without noise that is the
  answer; blame comes later, when the allowed error is reached)
- search: rounds from the first failed group run to the test of single links, most
- runs, node-min: median cost
- exact: trials in which exactly the faults were named; blamed: trials in which something innocent was named;
  missed: faults that were not named
- xbound: runs over ceil(log2(sum over i<=d of C(n, i))), the least number of yes-no runs that could do
- bisection: the reference (isolation_reference.py) on the same faults: median jobs and rounds, share of the
  trials in which it names exactly the bad nodes (and, for links and shared parts, says that some path is bad), median
  number of innocent nodes that its record calls failed

Exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from isolation_reference import diagnose
from muster.certify import catalogue
from muster.certify.isolate import IsolationState
from muster.certify.isolation.plan import Cell, Member, Plan, Role
from muster.certify.isolation.tallies import pair_of
from muster.certify.truth import SlowNodes, Truth, carry_out, compare
from muster.resources.certification import CertificationBudget, NodeVerdict

FALSE_BLAME_GOAL = 0.001
PAIRS = ("pair",)
GROUPS = ("pair", "all-to-all")
LAYERS = ("pair", "pair-net", "pair-rail", "all-to-all")
PER_DOMAIN = 8


def name(index: int) -> str:
    return f"node-{index:04d}"


def domain(index: int) -> str:
    return f"domain-{index // PER_DOMAIN:03d}"


def fleet(
    n: int, tests: Sequence[str], *, seed: int, matchings: int = 1, weakest: float = 0.8, rounds: int = 100
) -> Plan:
    """A plan over n equal nodes, eight to a domain."""
    members = tuple(Member(name=name(i), domain=domain(i)) for i in range(n))
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
    reference: tuple[int, int, bool, int] | None


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
        ratio = f"{runs / self.bound:7.1f}" if self.bound else "      -"
        single = max(t.single for t in self.trials)
        search = max(t.search for t in self.trials)
        missed = f"{1 - self.named:8.2%}" if any(t.bad for t in self.trials) else "       -"
        return (
            f"{self.label:<25}{self.n:>5}{self.noise:>6.1%}{len(self.trials):>7}"
            f"{median(rounds):>7.0f}{max(rounds):>4}{single or '-':>7}{search or '-':>7}{runs:>6.0f}"
            f"{median(t.node_minutes for t in self.trials):>9.0f}"
            f"{self.exact:>9.2%}{self.share(self.blamed):>8.2%}{missed}{ratio}{self._reference()}"
        )

    def _reference(self) -> str:
        found = [t.reference for t in self.trials if t.reference is not None]
        if not found:
            return ""
        jobs, rounds, innocents = (median(r[i] for r in found) for i in (0, 1, 3))
        exact = sum(r[2] for r in found) / len(found)
        return f"   {jobs:>5.0f}{rounds:>4.0f}{exact:>6.0%}{innocents:>6.0f}"


HEADER = (
    f"{'faults':<25}{'n':>5}{'noise':>6}{'trials':>7}{'rounds':>7}{'max':>4}{'single':>7}{'search':>7}{'runs':>6}"
    f"{'node-min':>9}{'exact':>9}{'blamed':>8}{'missed':>8}{'xbound':>7}   bisection: jobs, rounds, exact, innocents"
)


def run_trial(plan: Plan, truth: Truth, slow: SlowNodes | None = None) -> Trial:
    """One certification against the truth, and the reference on the same."""
    bad = truth.bad_nodes | (frozenset(slow.factors) if slow is not None else frozenset())
    seen: list[IsolationState] = []
    verdicts, _ = carry_out(plan, slow.answer if slow is not None else truth.answer, watch=seen.append)
    if slow is not None:
        failed = {v.name for v in verdicts.nodes if v.verdict is NodeVerdict.FAILED}
        exact, blamed, named = failed == bad, bool(failed - bad), len(failed & bad)
    else:
        found = compare(truth, verdicts)
        exact, blamed = found.exact, found.blamed
        named = len(found.named) + len(found.named_links) + len(found.named_shared)
    return Trial(
        exact=exact,
        blamed=blamed,
        bad=len(bad) + len(truth.bad_links) + len(truth.bad_shared),
        named=named,
        rounds=verdicts.cost.rounds,
        single=_singled_out(bad, seen),
        search=_search_rounds(seen),
        met=_bad_met(bad, seen),
        runs=verdicts.cost.runs,
        node_minutes=verdicts.cost.node_minutes,
        reference=_reference(plan, truth, bad) if slow is None else None,
    )


def _reference(plan: Plan, truth: Truth, bad: frozenset[str]) -> tuple[int, int, bool, int]:
    """(jobs, rounds, whether exactly the bad nodes are named, innocents recorded) of bisection."""
    domains: dict[str, list[str]] = {}
    for member in plan.cells[0].targets:
        domains.setdefault(member.domain, []).append(member.name)
    found = diagnose(truth, list(domains.values()))
    beyond = bool(truth.bad_links or truth.bad_shared) and not found.paths
    return found.jobs, found.rounds, set(found.confirmed) == bad and not beyond, len(found.recorded - bad)


def _singled_out(bad: frozenset[str], seen: Sequence[IsolationState]) -> int:
    """The round after which the nodes that never passed a pair are exactly the bad ones; 0 when there is none."""
    for number, state in enumerate(seen, 1):
        pairs = state.cells[0].screening.pairs
        if bad and frozenset(n for n in pairs.mates if not pairs.passes.get(n)) == bad:
            return number
    return 0


def _search_rounds(seen: Sequence[IsolationState]) -> int:
    """Rounds from the first failed group run to the first pair that is run as the candidate for a bad link."""
    first = last = 0
    for state in seen:
        for run in state.pending.runs if state.pending is not None else ():
            if run.role is Role.CONFIRM and not first:
                first = run.round
            if run.role is Role.CANDIDATE and not last:
                last = run.round
    return last - first + 1 if first and last else 0


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


def exactly(row: Row) -> str:
    return "" if row.exact == 1 else "exact verdicts"


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


def flaky(n: int, rate: float, least: float, trials: int, noise: float, matchings: int = 12) -> Scenario:
    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        plan = fleet(n, PAIRS, seed=seed, matchings=matchings, weakest=min(0.3, rate))
        return plan, Truth(seed=seed, nodes={name(rng.randrange(n)): rate}, noise=noise), None

    def goal(row: Row) -> str:
        # One trial in the way of a share that few trials cannot tell from the goal is no miss.
        allowed = (1 - least) * len(row.trials) + 2 * math.sqrt((1 - least) * len(row.trials))
        return f"named {least:.1%}" if least and sum(t.named == 0 for t in row.trials) > allowed else ""

    label = f"flaky {rate:.0%}" + (f", {matchings} matchings" if matchings != 12 else "")
    return Scenario(label, n, noise, trials, make, information_bound(n, 1), True, goal)


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


Plant = Callable[[random.Random, int], Truth]


def planted(
    label: str,
    n: int,
    trials: int,
    plant: Plant,
    noise: float = 0.0,
    *,
    tests: Sequence[str] = GROUPS,
    goal: bool = True,
) -> Scenario:
    """Faults of other kinds. Without noise the goal is that all are named."""

    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, None]:
        where = {name(i): domain(i) for i in range(n)}
        truth = replace(plant(rng, n), seed=seed, noise=noise, domains=where)
        return fleet(n, tests, seed=seed, matchings=2, weakest=0.5), truth, None

    chance = noise > 0 or not goal
    return Scenario(label, n, noise, trials, make, by_chance=chance, goal=exactly if not chance else lambda _row: "")


def slow(n: int, factor: float, trials: int, least: float, lasting: float = 0.0) -> Scenario:
    spread = 0.01

    def make(rng: random.Random, seed: int) -> tuple[Plan, Truth, SlowNodes]:
        plan = fleet(n, ("gpu-burn", "pair"), seed=seed, weakest=0.5)
        return plan, Truth(), SlowNodes(seed, {name(rng.randrange(n)): factor}, spread, lasting)

    def goal(row: Row) -> str:
        return f"named {least:.0%}" if row.named < least else ""

    label = f"slow {1 - factor:.0%}" + (f", nodes differ {lasting:.1%}" if lasting else "")
    return Scenario(label, n, 0.0, trials, make, information_bound(n, 1), True, goal)


def two_domains(rng: random.Random, n: int) -> tuple[str, str]:
    a, b = rng.sample(range(n // PER_DOMAIN), 2)
    return pair_of(domain(a * PER_DOMAIN), domain(b * PER_DOMAIN))


def plant_link_and_node(rng: random.Random, n: int) -> Truth:
    a, b, c = rng.sample(range(n), 3)
    return Truth(nodes={name(c): 1.0}, links={pair_of(name(a), name(b)): 1.0})


def plant_scale(least: int) -> Plant:
    return lambda rng, n: Truth(scale={name(rng.randrange(n)): least})


def plant_links(rng: random.Random, n: int) -> Truth:
    pairs = [rng.sample(range(n), 2) for _ in range(2)]
    return Truth(links={pair_of(name(a), name(b)): 1.0 for a, b in pairs})


def plant_mixture(rng: random.Random, n: int) -> Truth:
    a, b, c, d, e = rng.sample(range(n), 5)
    return Truth(nodes={name(c): 1.0, name(d): 0.8, name(e): 1.0}, links={pair_of(name(a), name(b)): 1.0})


def plant_trunk_and_nodes(rng: random.Random, n: int) -> Truth:
    a, b, c = rng.sample(range(n), 3)
    return Truth(trunks={two_domains(rng, n): 1.0}, nodes={name(a): 1.0, name(b): 1.0}, nvlink={name(c): 1.0})


def plant_rack_and_nodes(rng: random.Random, n: int) -> Truth:
    rack, other = two_domains(rng, n)
    inside = [i for i in range(n) if domain(i) == other]
    return Truth(racks={rack: 1.0}, nodes=dict.fromkeys((name(i) for i in rng.sample(inside, 2)), 1.0))


def kinds() -> dict[str, tuple[Plant, Sequence[str]]]:
    """Faults beyond nodes that are always bad, by label, with the tests of the plan."""

    def one(rng: random.Random, n: int) -> str:
        return name(rng.randrange(n))

    return {
        "NVLink of a node": (lambda rng, n: Truth(nvlink={one(rng, n): 1.0}), LAYERS),
        "network of a node": (lambda rng, n: Truth(network={one(rng, n): 1.0}), LAYERS),
        "one NIC of a node": (lambda rng, n: Truth(rails={(one(rng, n), rng.randrange(8)): 1.0}), LAYERS),
        "a rail for everybody": (lambda rng, _n: Truth(rail_switches={rng.randrange(8): 1.0}), LAYERS),
        "trunk": (lambda rng, n: Truth(trunks={two_domains(rng, n): 1.0}), GROUPS),
        "way out of a domain": (lambda rng, n: Truth(uplinks={two_domains(rng, n)[0]: 1.0}), GROUPS),
        "rack": (lambda rng, n: Truth(racks={two_domains(rng, n)[0]: 1.0}), GROUPS),
        "link and node": (plant_link_and_node, GROUPS),
        "2 links": (plant_links, GROUPS),
        "trunk and 3 nodes": (plant_trunk_and_nodes, LAYERS),
        "rack and 2 nodes": (plant_rack_and_nodes, GROUPS),
    }


def scenarios(quick: bool, long: int) -> Iterator[Scenario]:
    """What is measured, cheap things first. `long`: trials of each rare case, 0 for the usual few."""
    many = 1 if quick else 4
    for n in (8, 32, 128, 1024) if quick else (8, 16, 32, 64, 128, 256, 512, 1024):
        for d in sorted({0, 1, 2, 4, 8, n // 4}):
            if d <= n // 4:
                yield always_bad(n, d, (2 if n > 256 else 5) * many)
    for noise in (0.005, 0.01):
        yield always_bad(72, 0, 20 * many, noise)
        yield always_bad(72, 4, 10 * many, noise)
        yield always_bad(1024, 0, 2 * many, noise)
    for n in (8, 32, 72, 1024):
        yield single_link(n, (2 if n == 1024 else 6) * many)
    repeats = long or 8 * many
    for noise in (0.0, 0.005, 0.01):
        yield flaky(72, 0.5, 0.995, repeats, noise)
        yield flaky(72, 0.3, 0.90, repeats, noise)
    yield flaky(72, 0.1, 0.0, repeats, 0.005)
    yield flaky(72, 0.5, 0.99, repeats, 0.005, matchings=8)
    if not quick:
        yield flaky(1024, 0.5, 0.995, long // 5 or 10, 0.005)
        yield flaky(1024, 0.3, 0.90, long // 5 or 10, 0.005)
    for n in (24, 72) if quick else (24, 72, 256):
        for label, (plant, tests) in kinds().items():
            yield planted(label, n, 3 * many, plant, tests=tests)
        for least in sorted({4, n // 2}):
            yield planted(f"node bad at size >= {least}", n, 3 * many, plant_scale(least))
        yield planted("3 nodes (1 flaky), 1 link", n, 3 * many, plant_mixture, goal=False)
    for label, (plant, tests) in kinds().items():
        for noise in (0.005,) if quick else (0.005, 0.01):
            yield planted(label, 72, long // 5 or 2 * many, plant, noise, tests=tests)
    yield slow(64, 0.8, 10 * many, 1.0)
    yield slow(512, 0.95, long // 5 or 3 * many, 0.98)
    if not quick:
        yield slow(512, 0.9, 10, 0.98)
        yield slow(512, 0.95, 10, 0.0, 0.01)


TRIALS_PER_SEED = 1_000_000
"""Seeds of trials do not overlap between two values of --seed."""


def measure(scenario: Scenario, seed: int) -> Row:
    row = Row(scenario.label, scenario.n, scenario.noise, bound=scenario.bound)
    for trial in range(seed * TRIALS_PER_SEED, seed * TRIALS_PER_SEED + scenario.trials):
        rng = random.Random(f"{scenario.label}/{scenario.n}/{scenario.noise}/{trial}")
        row.trials.append(run_trial(*scenario.make(rng, trial)))
    return row


def upper_bound(count: int, trials: int, confidence: float = 0.95) -> float:
    """Largest share of which so few of the trials would still be seen once in 20 (one-sided Clopper-Pearson)."""
    if count >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        below = sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(count + 1))
        low, high = (share, high) if below > 1 - confidence else (low, share)
    return high


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="fewer fleets and trials")
    how.add_argument("--long", action="store_true", help="many trials of what is rare")
    parser.add_argument("--trials", type=int, default=1000, metavar="N", help="trials of each rare case in --long")
    parser.add_argument("--seed", type=int, default=0, help="other fleets, faults and chances (default 0)")
    parser.add_argument("--only", default="", metavar="WORD", help="only faults whose label holds WORD")
    options = parser.parse_args(argv)
    if options.seed < 0:
        parser.error("--seed must not be negative")
    started = time.perf_counter()
    print(HEADER)
    missed: list[str] = []
    trials = blamed = chances = 0
    for scenario in scenarios(options.quick, options.trials if options.long else 0):
        if options.only not in scenario.label:
            continue
        row = measure(scenario, options.seed)
        print(row.line(), flush=True)
        trials += len(row.trials)
        where = f"{row.label}, n = {row.n}, noise {row.noise:.1%}"
        if scenario.by_chance:
            blamed += row.blamed
            chances += len(row.trials)
        elif row.blamed:
            # Without chance an innocent is never named, or something is broken.
            missed.append(f"{where}: blame without any chance in it")
        why = scenario.goal(row)
        if why:
            missed.append(f"{where}: {why}")
    # So many false blames are within reach of the goal by chance (two standard deviations of a Poisson count).
    allowed = FALSE_BLAME_GOAL * chances + 2 * math.sqrt(FALSE_BLAME_GOAL * chances)
    if blamed > allowed:
        missed.append(f"false blame in {blamed} of {chances} trials with chance in them, goal {FALSE_BLAME_GOAL:.1%}")
    for line in missed:
        print(f"MISSED  {line}")
    verdict = f"{len(missed)} goal(s) missed" if missed else "all goals met"
    took = time.perf_counter() - started
    bound = f"at most {upper_bound(blamed, chances):.2%} at 95 % confidence" if chances else "none had chance in it"
    print(
        f"isolation: seed {options.seed}, {trials} trials, false blame in {blamed} of {chances} with chance "
        f"({bound}), {verdict}, {took:.0f} s"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
