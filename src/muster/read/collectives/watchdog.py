"""The format `torch-watchdog`: who timed out, who stayed silent, and what may be concluded from sequence numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.errors import BadInputError
from muster.read.collectives import elastic
from muster.read.collectives.faults import Kind, Sightings, process
from muster.read.collectives.lines import Line
from muster.read.collectives.silence import MAX_RANKS, Suspicion, suspects
from muster.read.collectives.watchdog_kinds import (
    BARRIER,
    CUDA_ERROR,
    DESYNC,
    HOST_HANG,
    MISMATCH,
    NCCL_ERROR,
    PROCESS_EXIT,
    STORE_GONE,
    TIMEOUT,
)
from muster.read.collectives.watchdog_lines import (
    MARKS,
    Absent,
    Ended,
    Group,
    Progress,
    Said,
    Source,
    Stuck,
    Timeout,
    harmless,
    said,
)
from muster.read.collectives.watchdog_values import by_rank, one, progress_values, timeout_values
from muster.read.report import Incident, Result, Value, Verdict, span
from muster.read.source import text_lines

KIND = "torch-watchdog"
STALE_S = 5.0
"""A watchdog that stuck later than this before the first reported timeout is stuck in the clean-up after it."""


def score(sample: bytes) -> float:
    """1 for errors of the watchdog or a failure summary of torchrun, less for lines of a healthy one."""
    lines = text_lines(sample)
    if any(any(mark in text for mark in MARKS) and said(text[:8192]) is not None for text in lines):
        return 1.0
    if any("Root Cause (first observed failure)" in text for text in lines):
        return 0.9
    return 0.35 if any(harmless(text[:8192]) for text in lines) else 0.0


def silent_ranks(lines: Iterable[str], world_size: int) -> tuple[int, ...]:
    """Ranks that the watchdog output of a job shows as silent or behind in the group of all ranks; empty: undecided.

    >>> text = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
    >>> silent_ranks([text.format(rank) for rank in (0, 1, 3)], 4)
    (2,)
    """
    watchdog = Watchdog({"world_size": world_size})
    for number, text in enumerate(lines, start=1):
        watchdog.take("log", Line(number, text[:8192]), number)
    return watchdog.suspicion().ranks


class Watchdog:
    """The watchdog lines of one report while they are read."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self.world = _world(context)
        self.timeouts: dict[tuple[int | None, int | None, str | None], Timeout] = {}
        self.progress: list[Progress] = []
        self.signalled: dict[int, Source] = {}
        """Ranks that timed out as others tell -> the first who told it."""
        self.stuck: dict[int | None, Stuck] = {}
        self.absent: list[Absent] = []
        self.summaries = elastic.Summaries()
        self.seen = Sightings()
        self.groups: dict[tuple[int | None, int | None], Group] = {}
        """(rank, sequence number) -> group, from lines that tell both."""
        self.stamps: list[Source] = []
        self.mismatch = False

    def take(self, file: str, line: Line, order: int) -> bool:
        """Read one line. True when it was a line of the watchdog, the store or the launcher."""
        text = line.text
        if self.summaries.take(file, line.number, text):
            return True
        found = said(text) if any(mark in text for mark in MARKS) else None
        if found is None:
            return False
        again = self._again(found)
        self._keep(found)
        kind = _kind_of(found)
        if kind is not None and not again:
            sighted = self.seen.see((), kind, lambda: ({"kind": "job"}, {}), order)
            if sighted is not None:
                sighted.add(file, line.number, text, found.source.moment)
                rank = found.told_by if isinstance(found, Progress) else found.source.rank
                if rank is not None:
                    sighted.listing("ranks", rank)
                if isinstance(found, Ended) and found.what in ("cuda", "nccl"):
                    sighted.details.setdefault("message", found.text[:200])
        return True

    def _again(self, found: Said) -> bool:
        """Whether the same news of the same rank was read before: torch repeats it while it ends the process."""
        if isinstance(found, Timeout):
            told = found.source.rank in self.signalled
            return told or (found.source.rank, found.seq, found.op) in self.timeouts
        if isinstance(found, Progress):
            reported = {t.source.rank for t in self.timeouts.values()}
            return found.told_by in reported or found.told_by in self.signalled
        return isinstance(found, Stuck) and found.source.rank in self.stuck

    def _keep(self, found: Said) -> None:
        source = found.source
        if len(self.timeouts) + len(self.progress) > MAX_RANKS * 2:
            return
        match found:
            case Timeout():
                key = (source.rank, found.seq, found.op)
                if key not in self.timeouts:
                    self.timeouts[key] = found
                    self.stamps.append(source)
                if source.group is not None:
                    self.groups[(source.rank, found.seq)] = source.group
            case Progress():
                self.progress.append(found)
                if found.told_by is not None and found.told_by not in self.signalled:
                    self.signalled[found.told_by] = source
                    self.stamps.append(source)
                if source.group is not None and found.at is not None:
                    self.groups[(source.rank, found.at)] = source.group
            case Stuck():
                before = self.stuck.get(source.rank)
                if before is None:
                    self.stamps.append(source)
                if before is None or before.seconds is None:
                    self.stuck[source.rank] = found
            case Absent():
                self.absent.append(found)
                self.stamps.append(source)
            case Ended():
                self.mismatch |= found.what == "mismatch"

    @property
    def told(self) -> bool:
        """Whether anything was found."""
        return bool(
            self.timeouts
            or self.signalled
            or self.stuck
            or self.absent
            or self.summaries.failures
            or self.seen.by_key
        )

    def _by_group(self) -> dict[Group | None, tuple[list[Timeout], list[Progress]]]:
        named = list(dict.fromkeys(self.groups.values()))
        # A job with one group needs no name on every line.
        only = named[0] if len(named) == 1 else None
        groups: dict[Group | None, tuple[list[Timeout], list[Progress]]] = {}
        for (rank, seq, _), timeout in self.timeouts.items():
            group = timeout.source.group or self.groups.get((rank, seq)) or only
            groups.setdefault(group, ([], []))[0].append(timeout)
        for item in self.progress:
            group = item.source.group or only
            if group in groups:
                groups[group][1].append(item)
        return groups

    def suspicion(self) -> Suspicion:
        """Whom the job waits for, over all groups."""
        named = sorted({rank for item in self.absent for rank in item.ranks})
        if named:
            how = "barrier-not-reached" if any(a.how == "barrier" for a in self.absent) else "named-by-desync-report"
            return Suspicion(tuple(named), how, "Another rank's line names them.")
        if self.mismatch:
            return Suspicion((), "collective-mismatch")
        groups = self._by_group()
        if not groups:
            return Suspicion((), "no-evidence")
        found = [
            suspects(timeouts, progress, self._members(group, len(groups)), group is not None)
            for group, (timeouts, progress) in groups.items()
        ]
        decided = [item for item in found if item.ranks]
        if decided:
            ranks = sorted({rank for item in decided for rank in item.ranks})
            elsewhere = {t.source.rank for t in self.timeouts.values()} if len(groups) > 1 else set()
            ranks = [rank for rank in ranks if rank not in elsewhere]
            if not ranks:
                return Suspicion((), "waits-in-another-group", "Whoever is missing in one group waits in another.")
            return Suspicion(tuple(ranks), decided[0].reason, decided[0].message)
        order = ("collective-mismatch", "seqnum-not-comparable")
        return min(found, key=lambda s: order.index(s.reason) if s.reason in order else len(order))

    def _members(self, group: Group | None, groups: int) -> int | None:
        """The size of a group: that of the job for the group of all ranks."""
        everyone = group is None or group.name == "default_pg" or (group.id == 0 and group.guid in (None, 0))
        return self.world if everyone and (group is not None or groups == 1) else None

    def values(self, last_step: int | None) -> dict[str, Value]:
        """Readings under the names of the vocabulary."""
        values: dict[str, Value] = {}
        if not self.told:
            return values
        timeouts = list(self.timeouts.values())
        values["timeouts"] = Value(len(timeouts))
        values["collective"] = Value(one(t.op for t in timeouts) if timeouts else None)
        groups = list(
            dict.fromkeys([*self.groups.values(), *(s.source.group for s in self.stuck.values() if s.source.group)])
        )
        plain = [group.plain() for group in groups]
        values["process_group"] = Value(None if not plain else plain[0] if len(plain) == 1 else plain)
        if timeouts:
            values |= timeout_values(timeouts, last_step)
        values |= progress_values(self.progress)
        stuck = [item.seconds for item in self.stuck.values() if item.seconds is not None]
        if stuck:
            values["stuck_for"] = Value(
                stuck[0] if len(set(stuck)) == 1 else by_rank(self.stuck.values(), "seconds"), "s"
            )
        clocks = [source.clock for source in self.stamps if source.clock is not None]
        days = list(dict.fromkeys(source.day for source in self.stamps if source.day is not None))
        if clocks:
            values["time"] = Value(clocks[:256])
        if days:
            values["date"] = Value(days[0] if len(days) == 1 else days, more={"year": None})
        return values | self._suspect_values()

    def _suspect_values(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        found = self.suspicion()
        if found.ranks:
            values["suspect_ranks"] = Value(list(found.ranks), more={"confidence": "low"})
            if found.reason == "silent-rank":
                values["silent_ranks"] = Value(list(found.ranks))
        first = self.summaries.first_to_end()
        if first is not None:
            values["root_failure"] = Value(first.plain())
        if self.summaries.failures:
            values["failed_processes"] = Value(len(self.summaries.failures))
        victims = self.seen.of(STORE_GONE.code)
        if victims:
            values["store_victims"] = Value(sorted(victims[0].listed.get("ranks", [])))
        return values

    def note_exits(self) -> None:
        """Record the process that ended first as a fault."""
        first = self.summaries.first_to_end()
        if first is None:
            return
        details = {name: value for name, value in first.plain().items() if name not in ("host", "pid", "time")}
        sighted = self.seen.see(
            (), PROCESS_EXIT, lambda: (process(first.host, first.pid, rank=first.rank), details), first.line
        )
        if sighted is not None and not sighted.count:
            sighted.add(first.file, first.line, first.text, first.moment)

    def incidents(self) -> list[Incident]:
        """One incident for the hang of a job."""
        timeouts = list(self.timeouts.values())
        stuck = list(self.stuck.values())
        ranks = [t.source.rank for t in timeouts] + [s.source.rank for s in stuck] + [*self.signalled]
        waiting = sorted({rank for rank in ranks if rank is not None})
        if (timeouts or self.signalled) and (not stuck or not self._stuck_first()):
            members = [TIMEOUT.code] + ([HOST_HANG.code] if stuck else [])
            return [_incident(TIMEOUT, members, waiting, self.stamps, {"lost_time_class": "stall"})]
        if stuck:
            own = sorted({s.source.rank for s in stuck if s.source.rank is not None})
            members = [HOST_HANG.code] + ([TIMEOUT.code] if timeouts or self.signalled else [])
            return [_incident(HOST_HANG, members, own, self.stamps, {"lost_time_class": "stall"})]
        if self.absent:
            absent = sorted({rank for item in self.absent for rank in item.ranks})
            kind = self._absence()
            return [_incident(kind, [kind.code], absent, self.stamps, {"lost_time_class": "stall"})]
        return []

    def _absence(self) -> Kind:
        return BARRIER if any(item.how == "barrier" for item in self.absent) else DESYNC

    def _stuck_first(self) -> bool:
        """Whether a watchdog stuck before the first timeout was reported, as far as the stamps tell."""
        reported = [t.source.moment for t in self.timeouts.values() if t.source.moment is not None]
        for item in self.stuck.values():
            at = item.source.moment
            if at is None or not reported or item.seconds is None:
                continue
            first = min(reported, key=lambda m: m.seconds)
            since = at.since(first)
            if since is not None and since - item.seconds < -STALE_S:
                return True
        return False

    def verdicts(self) -> list[Verdict]:
        """On the suspected rank; network and nodes are unknown where only the host's side is told."""
        found = self.suspicion()
        verdicts: list[Verdict] = []
        if found.ranks:
            shown = ", ".join(str(rank) for rank in found.ranks[:16])
            message = f"Rank {shown}: {found.message}"
            verdicts.append(Verdict("suspect-rank", Result.WARN, found.reason, message))
        elif self.timeouts or self.signalled:
            verdicts.append(Verdict("suspect-rank", Result.UNKNOWN, found.reason, found.message))
        first = self.summaries.first_to_end()
        if first is not None:
            message = (
                f"Rank {first.rank} on {first.host or 'an unknown host'} ended first with exit code {first.exitcode}."
            )
            verdicts.append(Verdict("first-to-end", Result.WARN, "process-exit", message))
        timed_out = bool(self.timeouts or self.signalled)
        if timed_out or self.absent:
            verdicts.append(Verdict("job", Result.FAIL, TIMEOUT.code if timed_out else self._absence().code))
        elif self.stuck:
            verdicts.append(Verdict("job", Result.FAIL, "host-hang"))
        if timed_out or self.stuck or self.absent:
            verdicts.append(Verdict("network", Result.UNKNOWN, "no-evidence"))
            verdicts.append(Verdict("nodes", Result.UNKNOWN, "no-evidence"))
        elif not verdicts and self.told:
            verdicts.append(Verdict("job", Result.UNKNOWN, "no-cause-told"))
        return verdicts


def _world(context: Mapping[str, Any]) -> int | None:
    for name in ("world_size", "ranks"):
        value = context.get(name)
        if value is not None and not isinstance(value, list):
            if type(value) is not int or not 0 < value <= 10_000_000:
                raise BadInputError(f"{name} in the context must be a whole number of ranks, not {value!r:.40}.")
            return value
    nodes, per_node = context.get("nodes"), context.get("ranks_per_node")
    count = len(nodes) if isinstance(nodes, list) else nodes
    if type(count) is int and type(per_node) is int and 0 < count * per_node <= 10_000_000:
        return count * per_node
    return None


def _kind_of(found: Said) -> Kind | None:
    match found:
        case Timeout():
            return TIMEOUT
        case Stuck():
            return HOST_HANG
        case Absent(how=how):
            return BARRIER if how == "barrier" else DESYNC
        case Ended(what="mismatch"):
            return MISMATCH
        case Ended(what="store"):
            return STORE_GONE
        case Ended(what="cuda"):
            return CUDA_ERROR
        case Ended():
            return NCCL_ERROR
        case Progress(told_by=told_by):
            return TIMEOUT if told_by is not None else None


def _incident(
    kind: Kind, members: Sequence[str], ranks: Sequence[int], stamps: Sequence[Source], more: Mapping[str, Any]
) -> Incident:
    moments = sorted((s.moment for s in stamps if s.moment is not None), key=lambda m: m.seconds)
    times = span(moments[0], moments[-1]) if moments else span(None, None)
    return Incident(
        root=kind.code,
        members=tuple(members),
        severity=kind.severity,
        scope=kind.scope,
        hint=kind.hint,
        fields={"ranks": list(ranks), **times, **more, "confidence": "low"},
    )
