"""From what the ranks of one node left behind to the report of the node. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.workloads.rank import RankResult
from muster.workloads.report import NodeReport
from muster.workloads.run_spec import RunSpec

TELLING = ("hardware", "numeric", "compute", "transport", "bandwidth", "straggler", "crash", "hang", "timeout")
"""Reasons of ranks, the most telling first: what one rank saw beats what its peers suffered. `harness` comes before
all of them: where the program itself went wrong, nothing was measured."""
HANG_WAITING_FACT = "hang_ranks_waiting"
HANG_ALONE_FACT = "hang_ranks_at_work"
HANG_STEP_FACT = "hang_least_step"
"""What the ranks that did not end were doing: the coordinator compares nodes by it."""
TAIL_CHARACTERS = 200
STILL_AT_WORK = 0.1
"""A rank that got on within the last tenth of its time is slow, and does not hang."""
OWN_FAILURE = 70
"""Exit code of a rank in which Muster itself failed; speaks of no node."""


@dataclass(frozen=True)
class RankEnd:
    """How one rank of the node ended."""

    local_rank: int
    result: RankResult | None = None
    exit_code: int = 0
    """Negative: minus the signal that ended it."""
    overdue: bool = False
    """It had not ended when the time was up, and was killed."""
    progress: Mapping[str, object] = field(default_factory=dict)
    """What it said last about its doing (see `progress`)."""
    idle_s: float = math.inf
    """Time since it last said that it got on, for one that was overdue."""
    tail: str = ""
    unreadable: str = ""


def merge(spec: RunSpec, ends: Sequence[RankEnd]) -> NodeReport:
    """The report of the node. `value` is that of its slowest rank; the most telling rank gives reason and message."""
    results = [_result(spec, end, ends) for end in ends]
    bad = [r for r in results if not r.ok]
    worst = min(bad, key=lambda r: _rank_of_reason(r.reason), default=None)
    values = [r.value for r in results if r.value is not None]
    named = {name for r in bad for name in r.suspects if worst is not None and r.reason == worst.reason}
    first = spec.node_index == 0 and results and ends[0].local_rank == 0
    return NodeReport(
        node=spec.node,
        ok=worst is None,
        value=min(values, default=None) if len(values) == len(results) else None,
        unit=next((r.unit for r in results if r.unit), ""),
        reason="" if worst is None else worst.reason or "crash",
        suspects=tuple(n for n in spec.nodes if n in named),
        message="" if worst is None else worst.message,
        # Sizes are figures of the whole group, equal on all ranks: told once, or wrong values would count twice.
        sizes=results[0].sizes if first else (),
        ranks=[_figures(spec, end, result, len(ends)) for end, result in zip(ends, results, strict=True)],
        transport="+".join(sorted({r.transport for r in results if r.transport})),
        versions={k: v for r in reversed(results) for k, v in sorted(r.versions.items())},
        facts={**_least(results), **_standstill(ends)},
    )


def _rank_of_reason(reason: str) -> int:
    if reason == "harness":
        return -1
    return TELLING.index(reason) if reason in TELLING else len(TELLING)


def _result(spec: RunSpec, end: RankEnd, ends: Sequence[RankEnd]) -> RankResult:
    if end.result is not None:
        return end.result
    who = f"rank {end.local_rank}"
    if end.unreadable:
        return RankResult(ok=False, reason="harness", message=f"{who}: {end.unreadable}")
    if end.overdue:
        died = any(e.result is None and not e.overdue for e in ends)
        return (
            _overdue(spec, end)
            if not died
            else RankResult(ok=False, reason="hang", message=f"{who} still waited when a rank of its node had died")
        )
    how = f"was ended by signal {-end.exit_code}" if end.exit_code < 0 else f"ended with exit code {end.exit_code}"
    said = " ".join(end.tail.split())[-TAIL_CHARACTERS:]
    words = f"{who} {how} and left no result" + (f": {said}" if said else "")
    if end.exit_code == OWN_FAILURE:
        return RankResult(ok=False, reason="harness", message=words)
    # A program that dies speaks of its node: memory, GPU, driver. That is a hint, no verdict.
    return RankResult(ok=False, reason="crash", message=words, suspects=(spec.node,))


def _overdue(spec: RunSpec, end: RankEnd) -> RankResult:
    phase = str(end.progress.get("phase", ""))[:40]
    step = end.progress.get("step", 0)
    doing = f"in phase {phase}, step {step}" if phase else "and never said what it did"
    if end.progress.get("waiting") is True:
        words = f"rank {end.local_rank} still waited for others after {spec.timeout_s:g} s, {doing}"
        return RankResult(ok=False, reason="hang", message=words)
    if end.idle_s < STILL_AT_WORK * spec.timeout_s:
        words = f"rank {end.local_rank} was still at work after {spec.timeout_s:g} s, {doing}"
        return RankResult(ok=False, reason="timeout", message=words)
    # With ranks of other nodes in the run, only the coordinator sees whether this one is the one that all wait for.
    alone = len(spec.nodes) == 1
    words = f"rank {end.local_rank} made no progress within {spec.timeout_s:g} s, {doing}"
    return RankResult(ok=False, reason="hang", message=words, suspects=(spec.node,) if alone else ())


def _figures(spec: RunSpec, end: RankEnd, result: RankResult, count: int) -> Mapping[str, object]:
    return {
        "rank": spec.node_index * count + end.local_rank,
        "node": spec.node,
        "gpu": result.gpu,
        "value": result.value,
        "computeS": result.compute_s,
        "waitS": result.wait_s,
        "message": result.message[:TAIL_CHARACTERS],
    }


def _least(results: Sequence[RankResult]) -> dict[str, float]:
    facts: dict[str, float] = {}
    for result in results:
        for name, value in sorted(result.facts.items()):
            facts[name] = min(value, facts.get(name, value))
    return facts


def _standstill(ends: Sequence[RankEnd]) -> dict[str, float]:
    """Facts about ranks that had to be killed at the deadline; none when all ended."""
    stuck = [e for e in ends if e.overdue and e.progress]
    if not stuck:
        return {}
    waiting = sum(1 for e in stuck if e.progress.get("waiting") is True)
    steps = [s for e in stuck if isinstance(s := e.progress.get("step"), int)]
    return {
        HANG_WAITING_FACT: float(waiting),
        HANG_ALONE_FACT: float(len(stuck) - waiting),
        HANG_STEP_FACT: float(min(steps, default=0)),
    }
