"""What the readers of straggler reports share: their interface, numbers, and the verdict on one set of peers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from muster.read.report import Result, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.peers import FALSE_POSITIVE_RATE, MIN_PEERS, Peers, limit

MAX_RANKS: Final = 1_048_576
MAX_ROWS: Final = 2_000_000
STAGE_KEYS: Final = ("pipeline_stages", "pipeline_parallel_size", "pipeline_model_parallel_size")
WAITING: Final = "phase-contains-waiting"
_ORDER: Final = {Result.FAIL: 0, Result.WARN: 1, Result.INVALID: 2, Result.UNKNOWN: 3, Result.PASS: 4}
NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf(?:inity)?"

_DATA = re.compile(r"data(?![-_ ]?parallel)|input|\bload|_load|batch[-_ ]?gen|fetch|h2d", re.IGNORECASE)
_ONLY_WAITING = re.compile(
    r"all[-_ ]?(?:reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|allto|coll|comm(?!it)|sync|barrier|wait|nccl"
    r"|p2p|send|recv",
    re.IGNORECASE,
)
_WAITING = re.compile(
    r"backward|bwd|step[-_ ]?time|iter(?:ation)?(?:[-_ ]?time)?$|^step$|total|elapsed|^train$|pipeline",
    re.IGNORECASE,
)
_UNITS = re.compile(r"[-_ (\[]+(?:ms|us|s|sec|seconds)[)\]]?$", re.IGNORECASE)


class Phase(StrEnum):
    """What the time of a rank in a phase consists of."""

    OWN = "own"
    """Work of the rank alone."""
    DATA = "data"
    """Work of the rank alone as well: getting its batch."""
    MIXED = "mixed"
    """Work and waiting for peers: a backward pass that overlaps its all-reduce, a whole step."""
    WAITING = "waiting"
    """A collective or a barrier: the rank that comes last waits least."""


class Reader(Protocol):
    """Reads one layout of straggler reports."""

    marks: ClassVar[tuple[str, ...]]

    def feed(self, line: Line) -> bool:
        """Take a line; True when it belongs to a report."""
        ...

    def finish(self, context: Context) -> Finding | None:
        """What the reports say; None when there was none."""
        ...


def number(text: str | None) -> float | None:
    """A finite number, or None."""
    try:
        found = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def shown(value: float, digits: int = 6) -> float | None:
    """A figure for the report; None when it has no finite value (a spread of zero, an overflow)."""
    return round(value, digits) if math.isfinite(value) else None


def phase_of(name: str) -> Phase:
    """The phase that a column or section of this name holds."""
    name = _UNITS.sub("", name)
    if _DATA.search(name):
        return Phase.DATA
    if _WAITING.search(name) and not _ONLY_WAITING.search(name):
        return Phase.MIXED
    return Phase.WAITING if _ONLY_WAITING.search(name) else Phase.OWN


def contains_waiting(phase: str) -> bool:
    """True for a phase in which a rank waits for its peers: its time says nothing about the rank itself."""
    return phase_of(phase) in (Phase.MIXED, Phase.WAITING)


def context_count(context: Context, *keys: str) -> int | None:
    """A positive whole number told beside the log, under the first of `keys` that is there."""
    for key in keys:
        value = context.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def judge(
    of: str,
    values: Mapping[int, float | None],
    *,
    phase: Phase = Phase.OWN,
    complete: bool = True,
    rate: bool = False,
) -> tuple[Verdict, tuple[int, ...]]:
    """The verdict on one comparison, and the ranks that stand out as slow. None marks a value that is no number.

    `rate`: the larger value is the better one. A phase that mixes work and waiting passes nobody: with a barrier in
    it the slow rank shows the same time as its victims. One of pure waiting passes when nobody waits far less.
    """
    usable = {rank: -value if rate else value for rank, value in values.items() if value is not None}
    if len(usable) < len(values):
        return Verdict(of, Result.UNKNOWN, "not-a-number", "A value that is no number is a missing measurement."), ()
    if len(usable) < MIN_PEERS:
        text = f"Comparing fewer than {MIN_PEERS} ranks says nothing."
        return Verdict(of, Result.UNKNOWN, "insufficient-peers", text, {"min_peers": MIN_PEERS}), ()
    slow = Peers(usable).slow()
    if phase is Phase.MIXED or (phase is Phase.WAITING and (slow or least_waiting(usable))):
        text = "The phase contains waiting for peers; who is slow cannot be told from it."
        return Verdict(of, Result.UNKNOWN, WAITING, text), ()
    if slow:
        names = ", ".join(str(rank) for rank in slow[:8])
        text = (
            f"Robust z above {limit(len(usable)):.1f}, which {FALSE_POSITIVE_RATE:.0%} of healthy reports of"
            f" {len(usable)} ranks exceed: rank {names}."
        )
        return Verdict(of, Result.WARN, "straggler", text), slow
    if not complete:
        return Verdict(of, Result.UNKNOWN, "incomplete", "Not every rank is listed."), ()
    return Verdict(of, Result.PASS, "no-straggler"), ()


def stages_of(ranks: Iterable[int], context: Context) -> list[list[int]]:
    """The ranks by pipeline stage, in the usual order of ranks (stages outermost); one stage where the context tells
    none, or tells a number that does not fit."""
    listed = sorted(ranks)
    stages = context_count(context, *STAGE_KEYS)
    world = context_count(context, "world_size") or (listed[-1] + 1 if listed else 0)
    if stages is None or stages == 1 or world % stages or (listed and listed[-1] >= world):
        return [listed]
    size = world // stages
    parts = [[rank for rank in listed if rank // size == stage] for stage in range(stages)]
    return [part for part in parts if part]


def judge_stages(
    of: str,
    values: Mapping[int, float | None],
    context: Context,
    *,
    phase: Phase = Phase.OWN,
    complete: bool = True,
    rate: bool = False,
) -> tuple[Verdict, tuple[int, ...]]:
    """As `judge`, with each rank among those of its pipeline stage: other stages do other work."""
    judged = [
        judge(of, {rank: values[rank] for rank in part}, phase=phase, complete=complete, rate=rate)
        for part in stages_of(values, context)
    ]
    if not judged:
        return judge(of, values, phase=phase, complete=complete, rate=rate)
    slow = tuple(sorted(rank for _, ranks in judged for rank in ranks))
    return overall(of, [(phase, verdict) for verdict, _ in judged]), slow


def least_waiting(times: Mapping[int, float | None]) -> tuple[int, ...]:
    """Ranks that wait far less than the others, sorted."""
    # Turned round: the least wait is the largest value.
    return Peers({rank: -time for rank, time in times.items() if time is not None}).slow()


def overall(of: str, judged: Sequence[tuple[Phase, Verdict]]) -> Verdict:
    """The worst of the verdicts on several phases; a slow rank in one phase is slow.

    That a phase mixes work and waiting is no obstacle where another one, of pure waiting, shows that all ranks come
    to it at the same time.
    """
    met = any(phase is Phase.WAITING and verdict.result is Result.PASS for phase, verdict in judged)
    counted = [v for phase, v in judged if not (met and phase is Phase.MIXED and v.reason == WAITING)]
    worst = min(counted, key=lambda verdict: _ORDER[verdict.result])
    return Verdict(of, worst.result, worst.reason, worst.message, worst.more)


def look_at(ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    """What to do about ranks that stand out; empty when there are none."""
    if not ranks:
        return ""
    named = [f"{rank} ({nodes[rank]})" if nodes.get(rank) else str(rank) for rank in ranks[:8]]
    return f"Look at rank {', '.join(named)}: slower than its peers; act when it stays so in the next reports."
