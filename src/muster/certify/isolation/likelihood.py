"""How much a series of passes and failures says about one suspect.

Two explanations compete. Good: a run fails spuriously, with a small probability that is known per run. Bad: it fails
with rate q, unknown. The evidence is the likelihood ratio, averaged over a few rates q (a mixture). Such a ratio
is an e-process: for a good suspect the probability that it ever reaches x is at most 1/x, however long one looks and
whenever one stops (Ville's inequality). So a threshold of (candidates / allowed error) bounds the probability of
blaming any innocent candidate, and no correction for repeated looks is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ALWAYS = 0.999
"""Rate of a deterministic fault; not 1, so that one odd pass does not rule it out for ever."""

SPURIOUS_PRIOR = (1.5, 150.0)
"""Spurious failures and runs counted before any run: a rate of 1 %, worth 150 runs."""

CLEARED = 0.1
"""A suspect whose ratio fell to this is no suspect any more: ten times less likely to be bad than at the start."""


@dataclass(frozen=True)
class Grid:
    """Failure rates that a bad suspect may have, with prior weights that sum to one."""

    rates: tuple[float, ...]
    weights: tuple[float, ...]


def grid_for(weakest_rate: float) -> Grid:
    """Rates from a deterministic fault down to `weakest_rate` (between 0 and 1)."""
    lower = [rate for rate in (0.8, 0.5, 0.3, 0.1) if rate >= weakest_rate - 1e-9]
    if not lower:
        return Grid((ALWAYS,), (1.0,))
    weights = (0.6, *(0.4 / len(lower) for _ in lower))
    return Grid((ALWAYS, *lower), weights)


def fail_factor(rate: float, innocent_fail: float) -> float:
    """Likelihood ratio of one failed run. `innocent_fail`: probability that it fails although the suspect is good."""
    return (1.0 - (1.0 - innocent_fail) * (1.0 - rate)) / innocent_fail


def mixture(grid: Grid, factors: Sequence[float]) -> float:
    """The ratio averaged over the rates of `grid`; `factors` is aligned with it."""
    return sum(w * f for w, f in zip(grid.weights, factors, strict=True))


def evidence(grid: Grid, fails: int, passes: int, innocent_fail: float) -> float:
    """Likelihood ratio bad : good after `fails` failures and `passes` passes, `innocent_fail` the same for all."""
    return mixture(
        grid, [_capped(fail_factor(q, innocent_fail) ** min(fails, 40)) * (1.0 - q) ** passes for q in grid.rates]
    )


def cause_probability(grid: Grid, prior: float, factors: Sequence[float]) -> float:
    """Probability that the suspect makes the next run fail: the posterior of being bad, times its rate."""
    weighted = [w * f for w, f in zip(grid.weights, factors, strict=True)]
    bad = prior * sum(weighted)
    return prior * sum(v * q for v, q in zip(weighted, grid.rates, strict=True)) / (1.0 - prior + bad)


def spurious_rate(fails: float, runs: float) -> float:
    """Estimate of the spurious failure rate; `fails` may be fractional (responsibilities)."""
    return (SPURIOUS_PRIOR[0] + fails) / (SPURIOUS_PRIOR[1] + runs)


def _capped(value: float) -> float:
    return min(value, 1e120) if math.isfinite(value) else 1e120
