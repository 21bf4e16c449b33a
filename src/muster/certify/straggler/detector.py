"""Which ranks of a synchronous job are slow, step by step, with a stated probability of a false alarm. Pure.

In synchronous training every rank shows the same step time; the slow one is the one that waits least. So ranks are
compared by a phase that contains no waiting (compute), or by step minus wait. Per step each rank's time is divided
by the median of its peers, which takes out whatever all ranks share (longer sequences, checkpoints). What remains is
y = ratio - 1 - tolerance, cut to CLIP standard deviations so that one hiccup is one hiccup. The deviation comes
from the median absolute deviation over the peers, so slow ranks do not hide each other.

Evidence against a rank is a likelihood ratio, averaged over a few slowdowns: slow by d against not slow. For a rank
whose y has a mean of at most zero it is an e-process: the probability that it ever reaches x is at most 1/x (Ville's
inequality), however long one looks. With a limit of ranks/false_alarm, the probability that any healthy rank of the
job is ever named is at most `false_alarm`, whatever the number of ranks.

Limits. A normal spread is assumed within the cut; a rank that is healthy and yet slower than the tolerance for good
(the lottery of silicon) is slow by this definition. Up to a quarter of the peers may be slow together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution -> its standard deviation."""


class Outcome(StrEnum):
    NONE = "none"
    """Nobody is slow beyond the limit (yet)."""
    FOUND = "found"
    UNIDENTIFIABLE = "unidentifiable"
    """The phases that were measured contain waiting: victims look like culprits."""
    TOO_FEW = "too-few"
    """Fewer peers than can be compared."""


@dataclass(frozen=True)
class Settings:
    """`tolerance`: slowdown that is never called slow. Healthy GPUs of one kind differ by about a percent."""

    tolerance: float = 0.01
    false_alarm: float = 0.001
    """Probability that a job with healthy ranks only has any rank named, over all its steps."""
    clip_sigmas: float = 3.0
    least_sigma: float = 0.002
    """Spread that is assumed at least, as a share of the median: few peers may look alike by chance."""
    sigma_margin: float = 1.1
    """The spread is estimated from the same steps; it is taken a little larger than seen."""
    least_peers: int = 4
    effects: tuple[float, ...] = (0.5, 1.0, 2.0, 3.0)
    """Slowdowns beyond the tolerance that are weighed, in standard deviations."""


USUAL = Settings()


@dataclass(frozen=True)
class Slow:
    """A slow rank. `slowdown`: mean time over the median of its peers, minus one."""

    rank: int
    slowdown: float
    evidence: float
    """Natural logarithm of the likelihood ratio."""
    since_step: int
    """Step, counted from 1, at which the evidence reached the limit."""


@dataclass(frozen=True)
class Finding:
    outcome: Outcome
    slow: tuple[Slow, ...] = ()
    """Slowest first."""
    ranks: int = 0
    steps: int = 0
    sigma: float = 0.0
    """Spread of one healthy rank and step, as a share of the median."""
    false_alarm: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Detector:
    """State after some steps of one group of peers (same role, same hardware). `ranks` in a fixed order."""

    ranks: tuple[int, ...]
    settings: Settings = USUAL
    steps: int = 0
    scores: tuple[tuple[float, ...], ...] = ()
    """Per effect, the log likelihood ratio of each rank."""
    ratios: tuple[float, ...] = ()
    """Per rank, the sum of its ratios."""
    variance: float = 0.0
    """Sum of the variances of the steps."""
    since: tuple[int, ...] = ()
    """Per rank, the step at which it was named; 0: not yet."""

    @property
    def limit(self) -> float:
        """Log likelihood ratio from which on a rank is named."""
        return math.log(max(1, len(self.ranks)) / self.settings.false_alarm)

    def after(self, times: Sequence[float]) -> Detector:
        """The state after one more step. `times`: seconds without waiting, one per rank, in the order of `ranks`.

        Raises ValueError for another number of times. A step with a time that is no positive number is left out:
        a missing measurement speaks neither for nor against anybody.
        """
        if len(times) != len(self.ranks):
            raise ValueError(f"{len(times)} times for {len(self.ranks)} ranks")
        if len(times) < self.settings.least_peers or not all(math.isfinite(t) and t > 0 for t in times):
            return self
        middle = median(times)
        ratios = [t / middle for t in times]
        seen = MAD_TO_SIGMA * median([abs(r - 1.0) for r in ratios]) * self.settings.sigma_margin
        variance = self.variance + max(seen, self.settings.least_sigma) ** 2
        steps = self.steps + 1
        sigma = math.sqrt(variance / steps)
        clip = self.settings.clip_sigmas
        shift = 1.0 + self.settings.tolerance
        zs = [min(clip, max(-clip, (r - shift) / sigma)) for r in ratios]
        before = self.scores or tuple((0.0,) * len(times) for _ in self.settings.effects)
        scores = tuple(
            tuple(s + d * (z - d / 2.0) for s, z in zip(row, zs, strict=True))
            for d, row in zip(self.settings.effects, before, strict=True)
        )
        known = self.since or (0,) * len(times)
        state = replace(
            self,
            steps=steps,
            scores=scores,
            ratios=tuple(a + b for a, b in zip(self.ratios or (0.0,) * len(times), ratios, strict=True)),
            variance=variance,
        )
        # Only a rank with a large term can have a large mean of terms.
        highest = [max(row[i] for row in scores) for i in range(len(times))]
        since = tuple(
            k or (steps if high >= state.limit and state.evidence(i) >= state.limit else 0)
            for i, (k, high) in enumerate(zip(known, highest, strict=True))
        )
        return replace(state, since=since)

    def evidence(self, index: int) -> float:
        """Natural logarithm of the likelihood ratio of the rank at `index`, slow : not slow."""
        if not self.scores:
            return 0.0
        terms = [row[index] for row in self.scores]
        top = max(terms)
        return top + math.log(sum(math.exp(t - top) for t in terms) / len(terms))

    def finding(self) -> Finding:
        """What the steps so far say."""
        sigma = math.sqrt(self.variance / self.steps) if self.steps else 0.0
        if len(self.ranks) < self.settings.least_peers:
            words = (
                f"{len(self.ranks)} rank(s) have no statistical weight; at least {self.settings.least_peers} needed"
            )
            return Finding(Outcome.TOO_FEW, ranks=len(self.ranks), steps=self.steps, message=words)
        named = [
            Slow(rank, self.ratios[i] / self.steps - 1.0, self.evidence(i), self.since[i])
            for i, rank in enumerate(self.ranks)
            if self.since and self.since[i]
        ]
        named.sort(key=lambda s: (-s.slowdown, s.rank))
        outcome = Outcome.FOUND if named else Outcome.NONE
        return Finding(
            outcome,
            tuple(named),
            len(self.ranks),
            self.steps,
            sigma,
            self.settings.false_alarm,
        )


def detect(
    compute_s: Mapping[int, Sequence[float]],
    step_s: Mapping[int, Sequence[float]] | None = None,
    settings: Settings = USUAL,
) -> Finding:
    """Look at whole series of one group of peers. `compute_s`: per rank, the time of each step without waiting.

    `step_s`, where known, tells whether the phase really is without waiting: a phase that takes all of the step on
    every rank is one in which ranks wait for each other. Series are cut to the shortest.
    """
    ranks = tuple(sorted(compute_s))
    if len(ranks) >= settings.least_peers and step_s is not None and _holds_waiting(compute_s, step_s):
        words = "the measured phase takes the whole step on every rank, so it contains waiting"
        return Finding(Outcome.UNIDENTIFIABLE, ranks=len(ranks), message=words)
    state = Detector(ranks, settings)
    for times in zip(*(compute_s[r] for r in ranks), strict=False):
        state = state.after(times)
    return state.finding()


WAITING_SHARE = 0.98
"""A phase that fills this share of the step on every rank leaves no room for anybody's waiting."""


def _holds_waiting(compute_s: Mapping[int, Sequence[float]], step_s: Mapping[int, Sequence[float]]) -> bool:
    shares = []
    for rank, series in compute_s.items():
        whole, mine = sum(step_s.get(rank, ())), sum(series)
        if whole <= 0 or not math.isfinite(whole + mine):
            return False
        shares.append(mine / whole)
    # One slow rank alone may fill its step; that all do means that they wait inside the phase.
    return min(shares) >= WAITING_SHARE
