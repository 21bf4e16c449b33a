"""What runs measured beyond the number that decided: merged from what their nodes say. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from muster.resources.certification import RankFigures, RunDetail, SizeFigures

SIZES_LIMIT = 128
"""Lines of a sweep that are kept: 8 B to 32 GiB by factors of two are 33, in and out of place."""
RANKS_LIMIT = 2048
"""Ranks that are kept of one run; of more, those furthest from the middle."""
FACTS_LIMIT = 64


@dataclass(frozen=True)
class NodeDetail:
    """What one node of a run measured."""

    sizes: tuple[SizeFigures, ...] = ()
    ranks: tuple[RankFigures, ...] = ()
    transport: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None


def run_detail(run: str, nodes: Sequence[NodeDetail]) -> RunDetail | None:
    """What the nodes of run `run` measured together; None when they say nothing.

    A collective is as slow as its slowest node: of each size the lowest bandwidth and the longest time count, and
    wrong values add up. Facts are the lowest of all nodes.
    """
    if not any(n.sizes or n.ranks or n.transport or n.versions or n.facts for n in nodes):
        return None
    versions: dict[str, str] = {}
    facts: dict[str, float] = {}
    for node in nodes:
        for name, version in sorted(node.versions.items()):
            # Nodes that differ are shown with both: a run over two versions of a library explains a lot.
            known = versions.get(name)
            versions[name] = version if known in (None, version) else f"{known} and {version}"[:120]
        for name, value in sorted(node.facts.items()):
            if math.isfinite(value):
                facts[name] = min(value, facts.get(name, value))
    begins = [n.started_at for n in nodes if n.started_at is not None]
    ends = [n.ended_at for n in nodes if n.ended_at is not None]
    return RunDetail(
        run=run,
        sizes=_sizes([n.sizes for n in nodes]),
        ranks=_ranks([r for n in nodes for r in n.ranks]),
        transport=transport_of(nodes),
        versions=dict(sorted(versions.items())[:FACTS_LIMIT]),
        facts=dict(sorted(facts.items())[:FACTS_LIMIT]),
        started_at=min(begins, default=None),
        ended_at=max(ends, default=None),
    )


def transport_of(nodes: Sequence[NodeDetail]) -> str:
    """The transport between nodes that every node speaks of, several joined by a plus sign; empty when none tells."""
    return "+".join(sorted({n.transport for n in nodes if n.transport}))


def _sizes(tables: Sequence[Sequence[SizeFigures]]) -> tuple[SizeFigures, ...]:
    rows: dict[tuple[int, str], SizeFigures] = {}
    for table in tables:
        for row in table:
            key = (row.size_bytes, row.placement)
            known = rows.get(key)
            rows[key] = row if known is None else _slower(known, row)
    return tuple(rows[key] for key in sorted(rows)[:SIZES_LIMIT])


def _slower(a: SizeFigures, b: SizeFigures) -> SizeFigures:
    return SizeFigures(
        size_bytes=a.size_bytes,
        placement=a.placement,
        time_us=max(_known(a.time_us, b.time_us), default=None),
        algbw_gb_per_s=min(_known(a.algbw_gb_per_s, b.algbw_gb_per_s), default=None),
        busbw_gb_per_s=min(_known(a.busbw_gb_per_s, b.busbw_gb_per_s), default=None),
        wrong=None if a.wrong is None and b.wrong is None else (a.wrong or 0) + (b.wrong or 0),
    )


def _known(*values: float | None) -> list[float]:
    return [v for v in values if v is not None]


def _ranks(ranks: Sequence[RankFigures]) -> tuple[RankFigures, ...]:
    ordered = sorted(ranks, key=lambda r: (r.rank, r.node))
    if len(ordered) <= RANKS_LIMIT:
        return tuple(ordered)
    # Whoever stands out is at one end of the order by compute time or value.
    ends = sorted(ordered, key=lambda r: (r.compute_s or 0.0, -(r.value or 0.0), r.rank))
    half = RANKS_LIMIT // 2
    kept = {id(r) for r in (*ends[:half], *ends[-half:])}
    return tuple(r for r in ordered if id(r) in kept)
