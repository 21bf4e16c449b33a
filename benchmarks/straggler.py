"""Slow ranks planted in simulated training steps: who is named, who is wronged, after how many steps.

    python benchmarks/straggler.py            # some minutes on one core
    python benchmarks/straggler.py --quick    # under half a minute

Every figure is simulated, seeded and repeatable. A step of a healthy rank spreads by 1 % (standard deviation), ranks
differ for good by 0.3 %, all ranks share 10 % of variation per step. `tails`: one step in a hundred of a rank takes
a hiccup drawn from a Pareto distribution (shape 1.5, 5 % at least). Columns:

- named, missed: planted ranks; wronged: healthy ranks that were named; precision and recall over all trials
- delay: steps until the last culprit of a trial was named, median; bound: ln(ranks / false alarm) / (d^2 / 2), the
  least mean delay of any test with this false alarm rate for a normal spread (d: the slowdown beyond the tolerance
  in standard deviations)
- sniff: precision and recall of the rule "more than one standard deviation and more than 10 % above the mean" on the
  means of the same steps

Published, for comparison: Minder precision 0.904, recall 0.883; Holmes accuracy 0.972; Greyhound above 0.99.
Exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median, pstdev

from muster.certify.straggler.detector import USUAL, Detector

SIGMA = 0.01
LOTTERY = 0.003
GOAL = 0.98


@dataclass
class Row:
    """Trials of one scenario."""

    ranks: int
    culprits: int
    slow: float
    tails: bool
    steps: int
    trials: int = 0
    named: int = 0
    wronged: int = 0
    missed: int = 0
    alarms: int = 0
    delays: list[int] = field(default_factory=list)
    sniff_named: int = 0
    sniff_wronged: int = 0

    @property
    def precision(self) -> float:
        return self.named / (self.named + self.wronged) if self.named + self.wronged else math.nan

    @property
    def recall(self) -> float:
        return self.named / (self.named + self.missed) if self.named + self.missed else math.nan

    @property
    def bound(self) -> float:
        effect = (self.slow - USUAL.tolerance) / SIGMA
        return math.log(self.ranks / USUAL.false_alarm) / (effect**2 / 2) if effect > 0 else math.nan

    def line(self) -> str:
        planted = self.named + self.missed
        sniffed = self.sniff_named + self.sniff_wronged
        sniff = f"{self.sniff_named / sniffed if sniffed else math.nan:6.3f}"
        recall = f"{self.sniff_named / planted if planted else math.nan:6.3f}"
        delay = f"{median(self.delays):6.0f}" if self.delays else "     -"
        return (
            f"{self.ranks:>6}{self.culprits:>9}{self.slow:>6.0%}{'tails' if self.tails else '-':>7}{self.steps:>6}"
            f"{self.trials:>7}{self.named:>7}{self.missed:>7}{self.wronged:>8}{self.precision:>10.3f}{self.recall:>7.3f}"
            f"{delay:>7}{self.bound:>7.1f}{sniff:>9}{recall:>7}"
        )


HEADER = (
    f"{'ranks':>6}{'culprits':>9}{'slow':>6}{'tails':>7}{'steps':>6}{'trials':>7}{'named':>7}{'missed':>7}"
    f"{'wronged':>8}{'precision':>10}{'recall':>7}{'delay':>7}{'bound':>7}{'sniff p':>9}{'r':>7}"
)


def run_trial(row: Row, seed: int) -> None:
    """One job of `row.steps` steps."""
    rng = random.Random(f"{row.ranks}/{row.culprits}/{row.slow}/{row.tails}/{seed}")
    bad = frozenset(rng.sample(range(row.ranks), row.culprits))
    base = [(1.0 + rng.gauss(0.0, LOTTERY)) * (1.0 + row.slow if i in bad else 1.0) for i in range(row.ranks)]
    detector = Detector(tuple(range(row.ranks)))
    sums = [0.0] * row.ranks
    for _ in range(row.steps):
        common = 1.0 + 0.1 * rng.random()
        times = []
        for i in range(row.ranks):
            jitter = 1.0 + rng.gauss(0.0, SIGMA)
            if row.tails and rng.random() < 0.01:
                jitter += 0.05 * rng.paretovariate(1.5)
            times.append(common * base[i] * jitter)
            sums[i] += times[i]
        detector = detector.after(times)
    named = {slow.rank: slow.since_step for slow in detector.finding().slow}
    row.trials += 1
    row.named += len(named.keys() & bad)
    row.missed += len(bad - named.keys())
    row.wronged += len(named.keys() - bad)
    row.alarms += bool(named.keys() - bad)
    if bad and bad <= named.keys():
        row.delays.append(max(named[i] for i in bad))
    middle, spread = mean(sums), pstdev(sums)
    sniffed = {i for i, total in enumerate(sums) if total > middle + spread and total > 1.1 * middle}
    row.sniff_named += len(sniffed & bad)
    row.sniff_wronged += len(sniffed - bad)


def rows(quick: bool) -> list[tuple[Row, int]]:
    """(row, trials)."""
    sizes = (8, 512) if quick else (8, 64, 512, 4096)
    found: list[tuple[Row, int]] = []
    for ranks in sizes:
        many = {8: 60, 64: 40, 512: 10, 4096: 3}[ranks]
        for tails in (False, True):
            found.append((Row(ranks, 0, 0.0, tails, 60), 3 * many // (3 if quick else 1)))
            for slow in (0.02, 0.05, 0.2):
                steps = 200 if slow == 0.02 and not quick else 60
                found += [
                    (Row(ranks, culprits, slow, tails, steps), max(2, many // (5 if quick else 1)))
                    for culprits in (1, 8)
                    if culprits <= ranks // 4
                ]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and trials")
    options = parser.parse_args(argv)
    started = time.perf_counter()
    print(HEADER)
    missed: list[str] = []
    jobs = alarms = 0
    for row, trials in rows(options.quick):
        for seed in range(trials):
            run_trial(row, seed)
        print(row.line(), flush=True)
        jobs += row.trials
        alarms += row.alarms
        if row.slow >= 0.05 and min(row.precision, row.recall) < GOAL:
            missed.append(
                f"{row.slow:.0%} slow among {row.ranks}: precision {row.precision:.3f}, recall {row.recall:.3f}"
            )
    allowed = USUAL.false_alarm * jobs + 2 * math.sqrt(USUAL.false_alarm * jobs)
    if alarms > allowed:
        missed.append(f"{alarms} of {jobs} jobs named a healthy rank, goal {USUAL.false_alarm:.1%}")
    for line in missed:
        print(f"MISSED  {line}")
    verdict = f"{len(missed)} goal(s) missed" if missed else "all goals met"
    took = time.perf_counter() - started
    print(f"straggler: {jobs} simulated jobs, {alarms} with a healthy rank named, {verdict}, {took:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
