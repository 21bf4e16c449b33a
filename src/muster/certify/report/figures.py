"""The figures of a report as values: pair matrix, bandwidth by size, slow ranks, where time went. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TypeGuard

from muster.certify.goodput import run_intervals
from muster.certify.report.model import Bar, Curve, CurvePoint, Matrix, MatrixCell, Straggler, Waterfall
from muster.read.training.interval_log import SECOND_US
from muster.resources.certification import Outcome, RankFigures, RunDetail, RunRecord

MATRIX_SIDE = 64
"""Rows of a matrix; a larger fleet is shown by domain or by blocks."""
CURVES = 24
STRAGGLERS = 20
LEAST_PEERS = 4
"""With fewer ranks nobody can be told apart from his peers."""
EXCESS = 1.05
"""A rank within 5 % of the median is not listed. It is a list to look at, not a verdict."""
PROGRESS_FACTS = ("productive_s", "goodput_ratio", "steps")
"""A run that tells none of these makes no progress that could be counted: a bandwidth test."""
_GOOD = (Outcome.PASS, Outcome.WARN)


def matrix(test: str, unit: str, runs: Sequence[RunRecord], domains: Mapping[str, str]) -> Matrix | None:
    """The pair runs of `test`, or None without any. `domains`: node -> failure domain, empty when not known."""
    pairs = [r for r in runs if r.test == test and len(r.nodes) == 2]
    if not pairs:
        return None
    names = sorted({n for r in pairs for n in r.nodes}, key=lambda n: (domains.get(n, ""), n))
    labels, place, grouped_by = _axis(names, domains)
    found: dict[tuple[int, int], list[RunRecord]] = {}
    for run in pairs:
        a, b = sorted(place[n] for n in run.nodes)
        found.setdefault((a, b), []).append(run)
    numbers = [r.value for r in pairs if _finite(r.value)]
    middle = median(numbers) if numbers else None
    cells = tuple(_cell(at, found[at], middle) for at in sorted(found))
    return Matrix(test=test, labels=labels, unit=unit, median=middle, grouped_by=grouped_by, cells=cells)


def _axis(names: Sequence[str], domains: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, int], str]:
    if len(names) <= MATRIX_SIDE:
        return tuple(names), {n: i for i, n in enumerate(names)}, "node"
    groups = sorted({domains.get(n, "") for n in names})
    if 1 < len(groups) <= MATRIX_SIDE:
        labels = tuple(g or "(no domain)" for g in groups)
        return labels, {n: groups.index(domains.get(n, "")) for n in names}, "domain"
    size = -(-len(names) // MATRIX_SIDE)
    blocks = [names[i : i + size] for i in range(0, len(names), size)]
    labels = tuple(f"{block[0]} to {block[-1]}" if len(block) > 1 else block[0] for block in blocks)
    return labels, {n: i // size for i, n in enumerate(names)}, "block"


def _cell(at: tuple[int, int], runs: Sequence[RunRecord], middle: float | None) -> MatrixCell:
    numbers = [r.value for r in runs if _finite(r.value)]
    return MatrixCell(
        row=at[0],
        column=at[1],
        passed=sum(r.outcome in _GOOD for r in runs),
        failed=sum(r.outcome is Outcome.FAIL for r in runs),
        unusable=sum(r.outcome in (Outcome.INVALID, Outcome.UNKNOWN) for r in runs),
        ratio=round(median(numbers) / middle, 4) if numbers and middle else None,
    )


def curves(runs: Mapping[str, RunRecord], details: Iterable[RunDetail]) -> tuple[Curve, ...]:
    """Bandwidth by size for each shape of run (test, variant, nodes, placement); of many shapes the most measured."""
    sizes: dict[tuple[str, str, int, str], dict[int, list[tuple[float, int]]]] = {}
    floors: dict[tuple[str, str, int], float] = {}
    for detail in details:
        run = runs.get(detail.run)
        if run is None or run.outcome not in (*_GOOD, Outcome.FAIL):
            continue
        if run.floor is not None:
            floors[run.test, run.variant, len(run.nodes)] = run.floor
        for line in detail.sizes:
            # A busbw of zero is how some programs say that they did not measure.
            if _finite(line.busbw_gb_per_s) and line.busbw_gb_per_s > 0 and line.size_bytes > 0:
                key = (run.test, run.variant, len(run.nodes), line.placement)
                lines = sizes.setdefault(key, {}).setdefault(line.size_bytes, [])
                lines.append((line.busbw_gb_per_s, line.wrong or 0))
    ranked = sorted(sizes, key=lambda k: (-sum(map(len, sizes[k].values())), k))[:CURVES]
    return tuple(
        Curve(
            test=key[0],
            variant=key[1],
            nodes=key[2],
            placement=key[3],
            floor=floors.get(key[:3]),
            points=tuple(_point(size, sizes[key][size]) for size in sorted(sizes[key])),
        )
        for key in sorted(ranked)
    )


def _point(size: int, lines: Sequence[tuple[float, int]]) -> CurvePoint:
    values = [value for value, _ in lines]
    return CurvePoint(
        size_bytes=size,
        median_gb_per_s=round(median(values), 4),
        least_gb_per_s=round(min(values), 4),
        most_gb_per_s=round(max(values), 4),
        runs=len(lines),
        wrong=sum(wrong for _, wrong in lines),
    )


def stragglers(runs: Mapping[str, RunRecord], details: Iterable[RunDetail]) -> tuple[Straggler, ...]:
    """Ranks that compute longer than their peers, the slowest first; each node once."""
    worst: dict[str, Straggler] = {}
    for detail in details:
        run = runs.get(detail.run)
        timed = [(r, r.compute_s) for r in detail.ranks if _finite(r.compute_s) and r.compute_s > 0]
        if run is None or len(timed) < LEAST_PEERS:
            continue
        middle = median(seconds for _, seconds in timed)
        for rank, seconds in timed:
            ratio = seconds / middle
            if ratio > EXCESS and (rank.node not in worst or ratio > worst[rank.node].ratio):
                worst[rank.node] = _straggler(run, rank, seconds, middle)
    return tuple(sorted(worst.values(), key=lambda s: (-s.ratio, s.node)))[:STRAGGLERS]


def _straggler(run: RunRecord, rank: RankFigures, seconds: float, middle: float) -> Straggler:
    return Straggler(
        run=run.id,
        test=run.test,
        rank=rank.rank,
        node=rank.node,
        gpu=rank.gpu,
        compute_s=seconds,
        wait_s=rank.wait_s if _finite(rank.wait_s) else None,
        median_s=middle,
        ratio=round(seconds / middle, 4),
    )


def goodput(runs: Mapping[str, RunRecord], details: Iterable[RunDetail]) -> tuple[Waterfall, ...]:
    """Where the time of each test went that tells the parts of its time, summed over its runs."""
    sums: dict[str, dict[str, float]] = {}
    for detail in details:
        run = runs.get(detail.run)
        if run is None:
            continue
        log = run_intervals(detail) if detail.facts else None
        if log is None or not any(fact in detail.facts for fact in PROGRESS_FACTS):
            continue
        for kind, us in log.parts_us().items():
            parts = sums.setdefault(run.test, {})
            parts[kind.value] = parts.get(kind.value, 0.0) + us / SECOND_US
    found = []
    for test, parts in sorted(sums.items()):
        lost = sorted((k for k in parts if k != "productive"), key=lambda k: (-parts[k], k))
        bars = [Bar(label=f"lost: {k.replace('_', ' ')}", seconds=round(parts[k], 3)) for k in lost if parts[k] > 0]
        useful = Bar(label="productive", seconds=round(parts.get("productive", 0.0), 3), productive=True)
        total = sum(bar.seconds for bar in (*bars, useful))
        if total > 0:
            found.append(Waterfall(title=f"Goodput of {test}", total_seconds=round(total, 3), bars=(*bars, useful)))
    return tuple(found)


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
