"""Comparison of ranks that did the same work: robust z and a limit that keeps the false-positive rate.

z = 0.6745 (x - median) / MAD (Iglewicz and Hoaglin, 1993). The largest z of healthy ranks depends on how many there
are, so the limit does too: LIMITS holds the 99 % quantile of the largest one-sided z of n normal samples (40,000
draws each up to 64 ranks, 10,000 to 512, 3,000 above). So one report in a hundred of a healthy job names somebody,
whatever its size; jitter with heavier tails names more, which is why a slowdown must also be worth naming
(LEAST_SLOWDOWN).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, median
from typing import Final

MIN_PEERS: Final = 4
"""Below four values the median and its spread say nothing about one of them."""
FALSE_POSITIVE_RATE: Final = 0.01
"""Share of reports of a healthy job (normal jitter) that name at least one rank."""
LEAST_SLOWDOWN: Final = 0.05
"""A rank is named when it is at least this share slower than the median, however narrow the others lie."""
LEAST_SPREAD: Final = 0.005
"""Floor of the MAD as a share of the median: ranks that agree to a tenth of a percent would make any jitter an
outlier."""

LIMITS: Final = (
    (4, 13.4),
    (5, 13.4),
    (6, 8.6),
    (7, 8.6),
    (8, 6.6),
    (10, 5.9),
    (12, 5.5),
    (16, 5.0),
    (24, 4.55),
    (32, 4.34),
    (64, 4.13),
    (128, 4.10),
    (256, 4.13),
    (512, 4.25),
    (1024, 4.33),
    (4096, 4.62),
)


def limit(ranks: int) -> float:
    """The robust z above which one of `ranks` peers stands out. Raises ValueError below MIN_PEERS."""
    if ranks < MIN_PEERS:
        raise ValueError(f"{ranks} peers are too few")
    if ranks >= LIMITS[-1][0]:
        return max(LIMITS[-1][1], 1.01 * NormalDist().inv_cdf(1 - FALSE_POSITIVE_RATE / ranks))
    for (low, at_low), (high, at_high) in pairwise(LIMITS):
        if low <= ranks < high:
            share = (math.log(ranks) - math.log(low)) / (math.log(high) - math.log(low))
            return at_low + share * (at_high - at_low)
    raise AssertionError("the table covers every count")  # pragma: no cover


@dataclass(frozen=True)
class Peers:
    """Finite values per rank; larger is slower."""

    values: Mapping[int, float]

    @property
    def median(self) -> float:
        return median(self.values.values())

    @property
    def mad(self) -> float:
        """Median distance from the median, as measured (without a floor)."""
        centre = self.median
        return median(abs(x - centre) for x in self.values.values())

    def z(self, rank: int) -> float:
        """Robust z of a rank, positive for a slow one."""
        centre = self.median
        distance = self.values[rank] - centre
        spread = max(self.mad, LEAST_SPREAD * abs(centre))
        if spread == 0:
            return 0.0 if distance == 0 else math.copysign(math.inf, distance)
        return 0.6745 * distance / spread

    def slowest(self) -> int:
        """The rank with the largest value; of equals the lowest number."""
        return min(self.values, key=lambda rank: (-self.values[rank], rank))

    def slow(self) -> tuple[int, ...]:
        """Ranks that stand out as slow, sorted. Empty with fewer than MIN_PEERS."""
        if len(self.values) < MIN_PEERS:
            return ()
        centre, bound = self.median, limit(len(self.values))
        return tuple(
            sorted(
                rank
                for rank, x in self.values.items()
                if self.z(rank) > bound and x - centre >= LEAST_SLOWDOWN * abs(centre)
            )
        )
