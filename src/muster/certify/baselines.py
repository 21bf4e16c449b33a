"""What is usual, learned from numbers of equal nodes: compared as distributions, not only by their middle. Pure.

A node whose GPUs reach the median but spread unlike those of its peers (one slow GPU, two groups of clocks) passes
every comparison of minima that has noise in it. The similarity of two samples is one minus the area between their
empirical distribution functions, as a share of the peers' median: 1 is equal, 0.95 means that on average a value lies
5 % of the median away from where the peers have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

LEAST_SIMILARITY = 0.95
"""Below this a sample is called unlike its peers. Healthy GPUs of one kind lie within 1 to 2 % of each other."""
LEAST_SAMPLE = 4
LEAST_PEERS = 8


@dataclass(frozen=True)
class Baseline:
    """Numbers of passing runs of one shape. `mad`: median absolute deviation."""

    values: tuple[float, ...]
    median: float
    mad: float

    @classmethod
    def learn(cls, values: Sequence[float]) -> Baseline | None:
        """The baseline of `values`; None for fewer than LEAST_PEERS usable ones."""
        usable = sorted(v for v in values if math.isfinite(v) and v > 0)
        if len(usable) < LEAST_PEERS:
            return None
        middle = median(usable)
        return cls(tuple(usable), middle, median([abs(v - middle) for v in usable]))

    def similarity(self, sample: Sequence[float]) -> float | None:
        """How alike `sample` is, at most 1; None for fewer than LEAST_SAMPLE usable values.

        >>> Baseline.learn([100.0] * 8).similarity([100.0, 100.0, 100.0, 80.0])
        0.95
        """
        usable = sorted(v for v in sample if math.isfinite(v) and v > 0)
        if len(usable) < LEAST_SAMPLE:
            return None
        return round(1.0 - _area(usable, self.values) / self.median, 9)


def _area(a: Sequence[float], b: Sequence[float]) -> float:
    """Area between two empirical distribution functions. Both samples sorted."""
    area, i, j = 0.0, 0, 0
    points = sorted({*a, *b})
    for here, there in pairwise(points):
        while i < len(a) and a[i] <= here:
            i += 1
        while j < len(b) and b[j] <= here:
            j += 1
        area += abs(i / len(a) - j / len(b)) * (there - here)
    return area
