"""Slow ranks of one run, from their mean times without waiting. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from muster.resources.certification import RankFigures

LEAST_RANKS = 4
"""Of fewer ranks nobody can say which one is unusual."""
MOST_SLOW = 0.25
"""When more than this share looks slow, the peers are no measure: two kinds of nodes, or a wrong setting."""


def slow_ranks(
    ranks: Sequence[RankFigures], limit_of: Callable[[Sequence[float], int], tuple[float, float]]
) -> tuple[tuple[RankFigures, float], ...]:
    """Ranks that compute slower than their peers, with the slowdown (0.2: takes 20 % longer), slowest first.

    `limit_of`: (rates, how many are compared) -> (median, least rate that is not slow).
    """
    measured = [r for r in ranks if r.compute_s is not None and math.isfinite(r.compute_s) and r.compute_s > 0]
    if len(measured) < LEAST_RANKS:
        return ()
    rates = [1.0 / (r.compute_s or math.inf) for r in measured]
    middle, least = limit_of(rates, len(rates))
    slow = [(r, middle / rate - 1.0) for r, rate in zip(measured, rates, strict=True) if rate < least]
    if len(slow) > MOST_SLOW * len(measured):
        return ()
    return tuple(sorted(slow, key=lambda pair: (-pair[1], pair[0].rank)))
