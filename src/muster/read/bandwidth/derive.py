"""What a table says between its lines: the collective, the number of ranks, the limit of the wire.

Factors from `doc/PERFORMANCE.md` of nccl-tests: busbw = algbw * factor(n), n the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from muster.read.bandwidth.expectation import Expectation
from muster.read.bandwidth.table import Half, Row, Table

MAX_RANKS = 1_000_000


class Factor(Enum):
    """How busbw follows from algbw."""

    TWICE = "2(n-1)/n"
    ONCE = "(n-1)/n"
    SAME = "1"

    def at(self, ranks: int) -> float:
        match self:
            case Factor.TWICE:
                return 2 * (ranks - 1) / ranks
            case Factor.ONCE:
                return (ranks - 1) / ranks
            case Factor.SAME:
                return 1.0

    def ranks(self, ratio: float) -> float:
        """Number of ranks (not whole) with this ratio of busbw to algbw; infinite beyond the limit."""
        top = 2.0 if self is Factor.TWICE else 1.0
        return top / (top - ratio) if ratio < top else math.inf


FACTORS = {
    "all_reduce": Factor.TWICE,
    "all_gather": Factor.ONCE,
    "reduce_scatter": Factor.ONCE,
    "alltoall": Factor.ONCE,
    "alltoallv": Factor.ONCE,
    "gather": Factor.ONCE,
    "scatter": Factor.ONCE,
    "hypercube": Factor.ONCE,
    "sendrecv": Factor.SAME,
    "broadcast": Factor.SAME,
    "reduce": Factor.SAME,
}
_CROSSES_ONCE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""On a ring each node sends the bus bandwidth over its NICs."""
_BESIDE_THE_NICS = ("mnnvl", "nvlink")
"""Transports between nodes for which the NICs are no limit."""
_TREE_CAPABLE = "all_reduce"
_OTHER_NAMES = {"all_to_all": "alltoall", "a2a": "alltoall", "allreduce": "all_reduce", "allgather": "all_gather"}


@dataclass(frozen=True)
class Derived:
    """What is known of a run beyond its figures. `factor`: measured ratio where the ranks are not certain."""

    collective: str | None
    ranks: int | None
    factor: float | None
    nodes: int | None
    wire_gb_s: float | None
    """Bus bandwidth that the NICs of a node allow; None on one node, or where it does not follow."""


def collective_of(table: Table, told: Expectation) -> str | None:
    """From the program's name, else from the context, else from the ratio of the rows."""
    for name in (table.program, told.collective):
        if name:
            plain = name.strip().lower().replace("-", "_").removesuffix("_mpi").removesuffix("_perf")
            plain = _OTHER_NAMES.get(plain, plain)
            if plain in FACTORS:
                return plain
    ratio = _ratio(table.rows)
    return "all_reduce" if ratio is not None and ratio[1] > 1.02 else None


def derive(table: Table, told: Expectation, nodes: int | None = None) -> Derived:
    """`nodes` overrides what the context and the list of ranks say."""
    collective = collective_of(table, told)
    per_node = told.gpus_per_node
    planned = nodes or told.nodes
    hints = [len(table.ranks), planned * per_node if planned and per_node else 0, told.world_size or 0]
    ranks, factor = ranks_of(table.rows, collective, hints)
    # A list of ranks may be cut; it tells the nodes only when it is as long as the figures say.
    listed = len(table.hosts) if ranks is not None and ranks == len(table.ranks) else None
    nodes = nodes or listed or told.nodes or len(table.hosts) or None
    return Derived(collective, ranks, factor, nodes, _wire(collective, ranks, nodes, told))


def ranks_of(
    rows: Sequence[Row], collective: str | None, hints: Sequence[int] = ()
) -> tuple[int | None, float | None]:
    """(number of ranks, factor). Rounding leaves a range; a hint counts when it lies within, else the range must hold
    one whole number."""
    ratio = _ratio(rows)
    kind = FACTORS.get(collective or "")
    if ratio is None and _alone(rows):
        return 1, 0.0
    if ratio is None or kind is None:
        return None, ratio[1] if ratio else None
    low, best, high = ratio
    if kind is Factor.SAME:
        return next((hint for hint in hints if hint), None), best
    least, most = kind.ranks(low), kind.ranks(high)
    for hint in hints:
        if hint and least <= hint <= most:
            return hint, kind.at(hint)
    first = max(1, math.ceil(least)) if math.isfinite(least) else 0
    if not first or first > MAX_RANKS or first > most or first + 1 <= most:
        return None, best
    return first, kind.at(first)


def _alone(rows: Sequence[Row]) -> bool:
    """Data was copied, and no bus bandwidth came of it: the factor of one rank is 0, that of two at least 0.5."""
    halves = [half for row in rows for half in row.halves]
    copied = any(half.algbw.value > 4 * half.busbw.resolution for half in halves if half.finite)
    return copied and all(half.finite and half.busbw.value == 0 for half in halves)


def tree_capable(collective: str | None) -> bool:
    """The library has an algorithm for this collective whose bus bandwidth on two nodes can pass the wire."""
    return collective == _TREE_CAPABLE


def _halves(rows: Sequence[Row]) -> list[Half]:
    return [
        half for row in rows for half in row.halves if half.finite and half.algbw.value > 0 and half.busbw.value > 0
    ]


def _ratio(rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """(least, best, most) ratio of busbw to algbw that all rows allow within the rounding of their last digits."""
    halves = _halves(rows)
    if not halves:
        return None
    best = max(halves, key=lambda half: half.algbw.value / half.algbw.resolution)
    ranges = [_range(half) for half in halves if half.algbw.value > half.algbw.resolution]
    if not ranges:
        return None
    low, high = max(least for least, _ in ranges), min(most for _, most in ranges)
    if low > high:  # a row that was not made by this arithmetic; the most exact one counts
        low, high = _range(best)
    return low, best.busbw.value / best.algbw.value, high


def _range(half: Half) -> tuple[float, float]:
    """Least and most ratio of the numbers that were rounded to the printed ones."""
    algbw, busbw = half.algbw, half.busbw
    least = (busbw.value - busbw.resolution) / (algbw.value + algbw.resolution)
    return least, (busbw.value + busbw.resolution) / (algbw.value - algbw.resolution)


def _wire(collective: str | None, ranks: int | None, nodes: int | None, told: Expectation) -> float | None:
    """What the NICs of a node allow.

    alltoall: busbw counts the traffic of one rank, of which (n-g)/(n-1) leaves its node of g ranks. sendrecv: one
    rank of a node sends to the next node, over the NICs that are near it; how many these are is known only where a
    node has one.
    """
    wire = told.node_wire_gb_s if told.transport not in _BESIDE_THE_NICS else None
    if wire is None or nodes is None or nodes < 2:
        return None
    if collective in _CROSSES_ONCE or (collective == "sendrecv" and told.nics_per_node == 1):
        return wire
    if collective in ("alltoall", "alltoallv") and ranks and ranks > nodes and ranks % nodes == 0:
        per_node = ranks // nodes
        return wire / per_node * (ranks - 1) / (ranks - per_node)
    return None
