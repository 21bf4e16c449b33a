"""Slow nodes that single numbers cannot tell from scatter: tests are repeated until the mean says which it is.

The number of a node test is compared with the median over the cell. A deficit is the share by which it lies below.
Two explanations compete: the node is healthy, and its true deficit is at most `healthy`; or it is slow, and its
deficit is `slow` or more. Each further number multiplies the likelihood ratio of the two (a sequential test on
numbers), so the bound on false blame holds whenever one stops.

Healthy nodes differ among each other, and repeating a number does not make that smaller. How much of the scatter
comes anew with each run is learned from a few nodes that are repeated too; what stays with a node widens `healthy`.
If all of it stays, a deficit within it cannot be told from the make of the node, and nobody is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, fmean, median

LEAST_SLOW = 0.05
"""Deficits below 5 % are no fault: healthy nodes of one kind differ by 1 to 2 %."""
SLOW_SIGMAS = 4.0
"""Where numbers scatter more, only deficits of so many standard deviations are looked for."""
LEAST_NODES = 8
"""Fewer nodes have no scatter that could be estimated."""
USUAL_SIGMA = 0.015
USUAL_WEIGHT = 8
"""The scatter that few nodes are assumed to have, and how many nodes that assumption weighs."""
LEAST_SIGMA = 0.002
MAD_TO_SIGMA = 1.4826
CONTROLS = 8
CONTROL_SHARE = 8
CONTROL_NUMBERS = 3
"""When somebody is suspected, 8 nodes, and in larger cells one in 8, are measured so often, suspected or not."""
CLEARED = 0.02
MOST_NUMBERS = 24
"""Numbers after which a node that is neither slow nor healthy enough is left in peace: it lies under 5 %."""


@dataclass(frozen=True)
class Slowness:
    """Numbers of one test over the nodes of a cell: per node in the order of rounds.

    `false_blame` is the probability that any innocent node is named that this test may use up.
    """

    numbers: Mapping[str, Sequence[float]]
    false_blame: float

    @cached_property
    def middle(self) -> float:
        return median(values[0] for values in self.numbers.values())

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of single numbers over the nodes, as a share, robust against slow nodes."""
        firsts = [values[0] / self.middle for values in self.numbers.values()]
        seen = MAD_TO_SIGMA * median([abs(v - 1.0) for v in firsts])
        weight = USUAL_WEIGHT / (USUAL_WEIGHT + len(firsts))
        return max(LEAST_SIGMA, math.sqrt(weight * USUAL_SIGMA**2 + (1.0 - weight) * seen**2))

    @cached_property
    def slow(self) -> float:
        return max(LEAST_SLOW, SLOW_SIGMAS * self.sigma)

    @cached_property
    def controls(self) -> tuple[str, ...]:
        """Nodes whose repeats tell how much of the scatter is chance: spread over the names, whatever they say."""
        names = sorted(self.numbers)
        count = max(CONTROLS, len(names) // CONTROL_SHARE)
        step = max(1, len(names) // count)
        return tuple(names[::step][:count])

    @cached_property
    def settled(self) -> bool:
        """Whether the spread of repeats is known: most of the controls were measured often enough."""
        return 4 * self.repeats[1] >= 3 * (CONTROL_NUMBERS - 1) * len(self.controls)

    @cached_property
    def repeats(self) -> tuple[float, int]:
        """(standard deviation of repeats on one node as a share, degrees of freedom), from the controls."""
        squares, freedom = 0.0, 0
        for name in self.controls:
            values = [v / self.middle for v in self.numbers[name][:CONTROL_NUMBERS]]
            squares += sum((v - fmean(values)) ** 2 for v in values)
            freedom += len(values) - 1
        return (math.sqrt(squares / freedom) if freedom else 0.0), freedom

    @cached_property
    def lasting(self) -> float:
        """Standard deviation of what stays with a node, at most; all of the scatter while repeats are not known."""
        spread, freedom = self.repeats
        if not self.settled:
            return self.sigma
        # The repeats may scatter less than they happened to: 95 % bound of a chi-square, normal approximation.
        least = spread**2 / (1.0 + 1.645 * math.sqrt(2.0 / freedom))
        return math.sqrt(max(0.0, self.sigma**2 - least))

    @cached_property
    def healthy(self) -> float:
        """Largest deficit that a healthy node of this cell may have."""
        z = NormalDist().inv_cdf(1.0 - self.false_blame / len(self.numbers))
        return max(self.slow / 2.0, z * self.lasting)

    def deficit(self, node: str) -> float:
        """Share by which the mean of the node lies below the median of the cell."""
        return 1.0 - fmean(self.numbers[node]) / self.middle

    def ratio(self, node: str) -> float:
        """Likelihood ratio slow : healthy of all numbers of the node; 0 where nothing can be said."""
        if not self._known(node):
            return 0.0
        return self._ratio(node, self.healthy, max(self.slow, self.healthy + self.slow / 2.0))

    def open(self, node: str) -> bool:
        """Whether another number of the node is wanted. The limit for blame is the caller's."""
        if not self._known(node) or len(self.numbers[node]) >= MOST_NUMBERS:
            return False
        if self._ratio(node, self.slow / 2.0, self.slow) <= CLEARED:
            return False
        return not self.settled or self.ratio(node) > CLEARED

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Nodes that are measured again: those in doubt, and the controls while their repeats are not known."""
        doubtful = frozenset(name for name in self.numbers if self.open(name))
        if not doubtful or self.settled:
            return doubtful
        return doubtful | {name for name in self.controls if len(self.numbers[name]) < CONTROL_NUMBERS}

    def _known(self, node: str) -> bool:
        return node in self.numbers and len(self.numbers) >= LEAST_NODES

    def _ratio(self, node: str, healthy: float, slow: float) -> float:
        between = (healthy + slow) / 2.0
        excess = sum(1.0 - v / self.middle - between for v in self.numbers[node])
        return math.exp(max(-600.0, min(270.0, excess * (slow - healthy) / self.sigma**2)))
