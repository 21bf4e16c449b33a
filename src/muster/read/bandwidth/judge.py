"""The verdict on one run of nccl-tests: can it be used, are the values right, is it fast enough for its network."""

from __future__ import annotations

from dataclasses import dataclass

from muster.read.bandwidth.derive import Derived, tree_capable
from muster.read.bandwidth.expectation import RING, Expectation
from muster.read.bandwidth.table import Row, Table
from muster.read.report import Result, Verdict

USUAL_SHARE = 0.8
"""Share of the wire that a healthy fabric reaches at large sizes where no floor is told: reports of healthy rings lie
between 0.8 (EFA, 100 Gb/s adapters) and 0.98 (InfiniBand)."""
POOR_SHARE = 0.7
"""Below this no healthy fabric was seen; between the two the verdict is WARN."""
ABOVE_WIRE = 1.02
"""A bus bandwidth beyond this share of the wire was not carried by the wire alone."""
LARGE_BYTES = 2**20
"""From this size on a bandwidth of 0.00 is no rounding."""
_MISUSE = ("invalid usage", "invalid argument", "invalid number of gpus", "not implemented")


@dataclass(frozen=True)
class Run:
    """One table with all that is known beside it."""

    label: str
    """What the verdict is of: `run`, `run all_gather_perf`, `2 nodes`."""
    file: str
    table: Table
    told: Expectation
    derived: Derived
    needs_summary: bool = True
    """False for tables that were put together from several runs."""
    pinned_word: str = "algorithm-not-pinned"

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth at the largest size, of the slower half, in GB/s."""
        largest = self.table.largest
        return largest.slower_busbw if largest is not None else None

    @property
    def exceeds_wire(self) -> bool | None:
        """None where the wire's limit is not known."""
        largest, wire = self.table.largest, self.derived.wire_gb_s
        if largest is None or wire is None:
            return None
        return any(half.busbw.value > ABOVE_WIRE * wire for half in largest.halves)


def judge(run: Run) -> Verdict:
    """The verdict on the run as a whole."""
    spoilt = _spoilt(run)
    if spoilt is not None:
        return spoilt
    right, fast = correctness(run), bandwidth(run)
    if fast.result is Result.PASS and right.result is not Result.PASS and run.needs_summary:
        return Verdict(run.label, Result.WARN, "values-not-checked", "The program did not check the values it moved.")
    return Verdict(run.label, fast.result, fast.reason, fast.message, fast.more)


def correctness(run: Run) -> Verdict:
    """Were the values right that arrived?"""
    of = _part("correctness", run)
    table = run.table
    if table.wrong or table.out_of_bounds_failed:
        return Verdict(of, Result.FAIL, "numeric-corruption", _corruption(table))
    if table.failures or not table.complete:
        return Verdict(of, Result.UNKNOWN, "no-summary-line" if not table.failures else "run-died")
    if not table.checked:
        return Verdict(of, Result.UNKNOWN, "values-not-checked")
    return Verdict(of, Result.PASS, "no-wrong-values")


def bandwidth(run: Run) -> Verdict:
    """Is the largest size fast enough? UNKNOWN where the run cannot be used or nothing says what it must reach."""
    of = _part("bandwidth", run)
    spoilt = _spoilt(run)
    if spoilt is not None:
        return Verdict(of, Result.UNKNOWN, spoilt.reason)
    told, wire, busbw = run.told, run.derived.wire_gb_s, run.busbw
    if busbw is None:
        return Verdict(of, Result.UNKNOWN, "no-rows")
    if run.table.avg_failed:
        return Verdict(of, Result.FAIL, "bandwidth", "The program found its average below the least it was told.")
    if run.exceeds_wire:
        return _above_wire(of, run, busbw)
    floor = told.floor_gb_s or (wire * told.floor_share_of_wire if wire and told.floor_share_of_wire else None)
    if floor is None and wire is None:
        message = f"{busbw:g} GB/s; nothing says what this machine must reach. Give floor_gb_s, or nodes and NICs."
        return Verdict(of, Result.UNKNOWN, "no-floor", message)
    least = floor if floor is not None else POOR_SHARE * (wire or 0.0)
    if busbw < least:
        return Verdict(of, Result.FAIL, "bandwidth", f"{busbw:g} GB/s, floor {least:g} GB/s.")
    if wire and run.derived.nodes == 2 and tree_capable(run.derived.collective) and told.algo != RING:
        return _not_pinned(of, run, busbw)
    if floor is None and wire and busbw < USUAL_SHARE * wire:
        return Verdict(of, Result.WARN, "bandwidth-low", f"{busbw:g} of {wire:g} GB/s, usual is {USUAL_SHARE:.0%}.")
    return Verdict(
        of, Result.PASS, "bandwidth", f"{busbw:g} GB/s, floor {floor or USUAL_SHARE * (wire or 0.0):g} GB/s."
    )


def _spoilt(run: Run) -> Verdict | None:
    """Why the figures say nothing about speed; None when they can be used."""
    table, of = run.table, run.label
    if table.failures:
        return _died(run)
    if table.wrong or table.out_of_bounds_failed:
        return Verdict(of, Result.FAIL, "numeric-corruption", _corruption(table))
    if run.needs_summary and table.malformed:
        lines = ", ".join(map(str, table.malformed[:4]))
        return Verdict(of, Result.INVALID, "malformed-row", f"Rows that cannot be read: line {lines}.")
    if run.needs_summary and not table.complete:
        return Verdict(
            of, Result.INVALID, "no-summary-line", "The output ends before the summary: the run did not finish."
        )
    if not table.rows:
        return Verdict(of, Result.INVALID, "no-rows", "There is no row of figures.")
    if not all(half.finite and half.busbw.value >= 0 for row in table.rows for half in row.halves):
        return Verdict(of, Result.INVALID, "not-a-number", "A time or a bandwidth is no number.")
    if not any(row.size for row in table.rows):
        return Verdict(of, Result.INVALID, "zero-size", "Every message has size 0; nothing was moved.")
    if any(_stuck_at_zero(row) for row in table.rows):
        return Verdict(of, Result.INVALID, "zero-bandwidth", "A large message has bandwidth 0: nothing was measured.")
    expected, ranks = run.told.expected_ranks, run.derived.ranks
    if ranks == 1:
        return Verdict(of, Result.INVALID, "one-rank", "One rank took part: no link was used.")
    if expected and ranks and expected != ranks and run.derived.collective:
        message = f"{ranks} ranks took part, {expected} were expected."
        return Verdict(of, Result.INVALID, "wrong-rank-count", message)
    nodes = run.derived.nodes
    if run.told.nodes and nodes and nodes != run.told.nodes:
        message = f"The ranks ran on {nodes} nodes, {run.told.nodes} were expected."
        return Verdict(of, Result.INVALID, "wrong-node-count", message)
    return None


def _stuck_at_zero(row: Row) -> bool:
    return row.size >= LARGE_BYTES and any(half.busbw.value == 0 and half.algbw.value == 0 for half in row.halves)


def _died(run: Run) -> Verdict:
    first = run.table.failures[0]
    told = f"{first.host or 'A rank'}: {first.error or 'failure'} ({first.where})."
    if any(word in failure.error.lower() for failure in run.table.failures for word in _MISUSE):
        return Verdict(run.label, Result.INVALID, "harness", told)
    return Verdict(run.label, Result.FAIL, "crash", told)


def _corruption(table: Table) -> str:
    if table.wrong:
        return f"{table.wrong} values arrived wrong."
    return f"{table.out_of_bounds} values out of bounds."


def _above_wire(of: str, run: Run, busbw: float) -> Verdict:
    algo = run.told.algo
    if algo is None and tree_capable(run.derived.collective):
        return _not_pinned(of, run, busbw)
    reason = "above-wire" if algo in (None, RING) else "algorithm-not-limited-by-wire"
    message = (
        f"{busbw:g} GB/s is more than the {run.derived.wire_gb_s:g} GB/s of the NICs: something else carried it."
    )
    return Verdict(of, Result.INVALID, reason, message, {"comparable_to": "none"})


def _not_pinned(of: str, run: Run, busbw: float) -> Verdict:
    """On two nodes a tree passes the NICs' rate where the links inside the nodes are faster."""
    above = run.exceeds_wire
    reason = run.pinned_word if above else "algorithm-not-pinned"
    how = "more than" if above else "within"
    message = (
        f"{busbw:g} GB/s is {how} the {run.derived.wire_gb_s:g} GB/s of the NICs, but the algorithm was not pinned"
        " to a ring: a degraded NIC may hide behind a tree. Run again with NCCL_ALGO=Ring."
    )
    return Verdict(of, Result.INVALID, reason, message, {"comparable_to": "none"})


def _part(name: str, run: Run) -> str:
    suffix = run.label.removeprefix("run").strip()
    return f"{name} {suffix}".strip()
