"""Who keeps a process group waiting: ranks that say nothing, or stand behind, while most of the group waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.read.collectives.watchdog_lines import Progress, Timeout

MAX_RANKS = 65_536
_EVEN = ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
"""Operations to which every rank of a group brings the same number of elements."""


@dataclass(frozen=True)
class Suspicion:
    """Which ranks a group waits for. `reason` says why there are none when `ranks` is empty."""

    ranks: tuple[int, ...]
    reason: str
    message: str = ""


def suspects(timeouts: Sequence[Timeout], progress: Sequence[Progress], world: int | None, named: bool) -> Suspicion:
    """Who keeps one process group waiting.

    `timeouts` and `progress` are of one group, `world` is the number of its members (None: unknown). `named`: the
    lines name the group; sequence numbers of unnamed groups are compared only when they are all equal. A rank is
    suspected when it stays silent, or stands behind, while more than half of the group waits for it.
    """
    at: dict[int, int] = {}
    for timeout in timeouts:
        rank = timeout.source.rank
        if rank is not None and timeout.seq is not None:
            at[rank] = min(at.get(rank, timeout.seq), timeout.seq)
    if not at:
        return Suspicion((), "no-evidence")
    if not named and len(set(at.values())) > 1:
        return Suspicion((), "seqnum-not-comparable", "The lines do not name their process groups.")
    if world is not None and any(rank >= world for rank in at):
        return Suspicion(
            (), "world-size-contradicted", f"Ranks beyond {world - 1} report, so the told size is wrong."
        )
    highest = max(at.values())
    ops = {t.op for t in timeouts if t.seq == highest and t.op is not None}
    if len(ops) > 1:
        return Suspicion((), "collective-mismatch", f"At number {highest} the ranks are in {', '.join(sorted(ops))}.")
    sizes = {t.numel_in for t in timeouts if t.seq == highest and t.op in _EVEN and t.numel_in is not None}
    if named and len(sizes) > 1:
        shown = ", ".join(map(str, sorted(sizes)))
        return Suspicion((), "collective-mismatch", f"At number {highest} the ranks bring {shown} elements.")
    reached = dict(at)
    for item in progress:
        rank = item.source.rank
        if rank is not None and rank not in at and item.enqueued is not None:
            reached[rank] = max(reached.get(rank, -1), item.enqueued)
    behind = sorted(rank for rank, seq in reached.items() if seq < highest)
    silent = sorted(set(range(world)) - set(reached)) if world is not None and world <= MAX_RANKS else []
    waiting = len(reached) - len(behind)
    size = world if world is not None else len(reached)
    found = tuple(sorted([*behind, *silent]))
    if not found:
        if world is None:
            return Suspicion((), "group-members-unknown", "How many ranks belong to the group is not told.")
        return Suspicion((), "all-ranks-waiting", "Every rank waits in the same collective.")
    if 2 * waiting <= size:
        return Suspicion((), "too-few-reports", f"Only {waiting} of {size} ranks say that they wait.")
    reason = "silent-rank" if not behind else "rank-behind"
    return Suspicion(found, reason, f"{waiting} of {size} ranks wait at number {highest}.")
