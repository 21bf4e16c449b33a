"""The format `nccl-ras`: what an answer of NCCL's state query allows to conclude, alone and beside a later one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.read.collectives import ras_json
from muster.read.collectives.faults import Kind, Sightings, process
from muster.read.collectives.lines import lines_of
from muster.read.collectives.ras_state import Counts, Member, Peer, Section, Snapshot
from muster.read.collectives.ras_text import TextReader
from muster.read.collectives.reading import Reading
from muster.read.report import Report, Result, Value, Verdict
from muster.read.source import Context, Input, text_lines
from muster.read.tables.source import content
from muster.resources.fault import Hint, Scope, Severity

KIND = "nccl-ras"
MAX_SHOWN = 256
_TEXT_MARKS = ("Job summary", "Group     Comms", "# in group  per comm", "Communicators... (")
_SECTION = re.compile(r"^\s{0,8}#\d{1,9}-\d{1,9} \([0-9a-f]{8,16}\) [A-Z]{4,12}\s*$", re.M)
_JSON_MARKS = ('"communicators"', '"collective_counts"', '"missing_ranks"', '"communicators_count"')

SILENT = Kind(
    "process-not-responding",
    "A process did not answer the state query",
    Severity.WARNING,
    Scope.JOB,
    Hint.INSPECT,
    "Query again; if the process stays silent, look at its log and take a stack dump.",
    confidence="low",
)
DEAD = Kind(
    "process-dead",
    "A process cannot be reached any more",
    Severity.FATAL,
    Scope.JOB,
    Hint.RESTART_APP,
    "Find out why this process or its node went away, then restart the job.",
)
ERROR = Kind(
    "communicator-error",
    "Ranks of a communicator reported an error",
    Severity.FATAL,
    Scope.JOB,
    Hint.INSPECT,
    "Read the NCCL warnings of the named ranks.",
)


def score(sample: bytes) -> float:
    """1 for an answer of the state query, as text or as JSON."""
    text = "\n".join(text_lines(sample, 2000))
    if sum(mark in text for mark in _TEXT_MARKS) >= 2:
        return 1.0
    if text.lstrip("OK\n\r ").startswith("{") and sum(mark in text for mark in _JSON_MARKS) >= 2:
        return 1.0
    return 0.9 if _SECTION.search(text) else 0.0


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read answers, oldest first. Raises BadInputError for a JSON answer that is too large."""
    reading = Reading(context)
    snapshots: list[Snapshot] = []
    for item in inputs:
        if "".join(text_lines(item.sample, 20)).lstrip("OK ").startswith("{"):
            snapshots += ras_json.snapshots(item.name, content(item))
            continue
        reader = TextReader()
        for line in lines_of(item):
            if not reader.take(item.name, line):
                reading.take(item.name, line)
        snapshots += reader.snapshots
    for snapshot in snapshots:
        snapshot.check()
    return _report(reading, snapshots, tuple(item.name for item in inputs))


def _report(reading: Reading, snapshots: Sequence[Snapshot], files: tuple[str, ...]) -> Report:
    beside = reading.report(files, KIND)
    now = snapshots[-1] if snapshots else Snapshot(files[0])
    seen = Sightings()
    _note(seen, now)
    change = compare(snapshots)
    truncated = sum(s.truncated for s in snapshots) + beside.values["truncated_lines"].value
    values = {name: value for name, value in beside.values.items() if name != "nccl_lines"}
    values |= _values(now, change) | {"truncated_lines": Value(truncated)}
    partial = bool(truncated or now.timeouts or any(s.discarded for s in now.sections))
    values["evidence"] = Value("PARTIAL" if partial else "COMPLETE")
    others = [verdict for verdict in beside.verdicts if verdict.reason != "no-evidence" or verdict.of != "job"]
    verdicts = list(others)
    if not any(verdict.of == "job" for verdict in others):
        verdicts.insert(0, _verdict(now, change, partial))
    if change is not None and change.suspects and not any(v.of == "suspect-rank" for v in verdicts):
        shown = ", ".join(str(rank) for rank in change.suspects[:16])
        verdicts.append(
            Verdict("suspect-rank", Result.WARN, "rank-behind", f"Rank {shown} stands still behind others.")
        )
    return replace(
        beside,
        truncated=bool(truncated),
        faults=(*(s.fault() for s in seen.all()), *beside.faults),
        verdicts=tuple(verdicts),
        values=values,
        next=_next(verdicts, beside),
    )


@dataclass(frozen=True)
class Change:
    """Two answers beside each other. `stuck` and `moving` name (communicator, collective)."""

    stuck: tuple[tuple[str, str], ...]
    moving: tuple[tuple[str, str], ...]
    suspects: tuple[int, ...]
    """Ranks behind in what is stuck."""
    uneven: bool
    """Ranks differ in something that is stuck."""


def compare(snapshots: Sequence[Snapshot]) -> Change | None:
    """What moved between the first and the last answer; None when there is one answer, or nothing in common."""
    if len(snapshots) < 2:
        return None
    first, last = snapshots[0].launched(), snapshots[-1].launched()
    common = sorted(key for key in first if key in last)
    if not common:
        return None
    stuck = [key for key in common if first[key][0] == last[key][0] and last[key][1] > 0]
    moving = [key for key in common if first[key][0] != last[key][0]]
    # An idle collective beside a moving one of the same communicator is no hang.
    alive = {digest for digest, _ in moving}
    stuck = [key for key in stuck if key[0] not in alive]
    uneven = [key for key in stuck if last[key][0] != last[key][1]]
    suspects = sorted(
        {
            member.rank
            for section in snapshots[-1].kept()
            for counts in section.counts
            if (section.hash, counts.op) in uneven
            for member in counts.members
            if member.count is not None and member.count < max(counts.ranks)
        }
    )
    return Change(tuple(stuck), tuple(moving), tuple(suspects), bool(uneven))


def _note(seen: Sightings, now: Snapshot) -> None:
    dead = {(peer.node, peer.pid) for peer in now.dead}
    silent = [peer for peer in now.missing if (peer.node, peer.pid) not in dead]
    for kind, peers in ((DEAD, now.dead), (SILENT, silent)):
        for peer in peers:

            def process_of(peer: Peer = peer) -> tuple[dict[str, Any], dict[str, Any]]:
                return process(peer.node, peer.pid), {"gpus": list(peer.gpus)}

            sighted = seen.see((peer.node, peer.pid), kind, process_of, 0)
            if sighted is not None:
                sighted.add(now.file, peer.line, peer.text or f"Process {peer.pid} on node {peer.node}", None)
    for section in now.kept():
        if section.error != "ERROR":
            continue

        def make(section: Section = section) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"kind": "job", "communicator": section.id}, {"errors": dict(section.errors)}

        sighted = seen.see((section.id,), ERROR, make, section.line)
        if sighted is not None:
            sighted.add(now.file, section.line, section.text, None)
            for member in section.members[:MAX_SHOWN]:
                sighted.listing("ranks", member.rank)


def _values(now: Snapshot, change: Change | None) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if now.version is not None:
        values["nccl_version"] = Value(now.version)
    if now.job is not None:
        values["job"] = Value(now.job)
    if now.rows:
        values["groups"] = Value(len(now.rows))
    communicators = _communicators(now)
    if communicators:
        values["communicator"] = Value(communicators[0])
        if len(communicators) > 1:
            values["communicators"] = Value(communicators[:MAX_SHOWN])
    if now.missing:
        values["missing_process"] = Value(_single([peer.plain() for peer in now.missing[:MAX_SHOWN]]))
    if now.dead:
        values["dead_process"] = Value(_single([peer.plain() for peer in now.dead[:MAX_SHOWN]]))
    if now.timeouts:
        values["query_timeouts"] = Value(now.timeouts)
    values |= _section_values(now) | _count_values(now)
    if change is not None:
        values["snapshots_compared"] = Value(2)
        values["stuck"] = Value([{"hash": digest, "op": op} for digest, op in change.stuck[:MAX_SHOWN]])
        values["moving"] = Value([{"hash": digest, "op": op} for digest, op in change.moving[:MAX_SHOWN]])
        if change.suspects:
            values["suspect_ranks"] = Value(list(change.suspects[:MAX_SHOWN]), more={"confidence": "low"})
    elif any(section.error == "MISMATCH" for section in now.kept()):
        values["next_action"] = Value("resample")
    return values


def _communicators(now: Snapshot) -> list[dict[str, Any]]:
    """Communicators that are spoken of by name; without any, the groups of the summary."""
    by_group = {row.group: row for row in now.rows}
    named: dict[str, dict[str, Any]] = {}
    for section in now.kept():
        row = by_group.get(section.group) if section.group is not None else None
        named.setdefault(
            section.id,
            {
                "id": section.id,
                "hash": section.hash,
                "ranks": row.ranks if row else None,
                "status": row.status if row else None,
                "error": row.error if row else section.error,
            },
        )
    if named:
        return list(named.values())
    return [
        {"id": f"#{row.group}", "hash": row.hash, "ranks": row.ranks, "status": row.status, "error": row.error}
        for row in now.rows
    ]


def _section_values(now: Snapshot) -> dict[str, Value]:
    values: dict[str, Value] = {}
    incomplete = [section for section in now.kept() if section.error == "INCOMPLETE"]
    kept = [{"id": s.id, **member.plain()} for s in incomplete for member in s.members][:MAX_SHOWN]
    if kept:
        values["section_kept"] = Value(_single(kept))
    if incomplete:
        values["missing_ranks"] = Value(sum(section.missing or 0 for section in incomplete))
    discarded = [{"id": s.id, "reason": s.discarded} for s in now.sections if s.discarded is not None][:MAX_SHOWN]
    if discarded:
        values["section_discarded"] = Value(_single(discarded))
    return values


def _count_values(now: Snapshot) -> dict[str, Value]:
    told = [(section, counts) for section in now.kept() for counts in section.counts if counts.ranks]
    if not told:
        return {}
    section, counts = told[0]
    values = {"op": Value(counts.op), "op_counts": Value(dict(sorted(counts.ranks.items())))}
    listed = counts.members or section.members
    values["listed_ranks"] = Value([member.plain() for member in listed[:MAX_SHOWN]])
    values["listed_ranks_are"] = Value(_stand(counts, listed))
    top = max(counts.ranks)
    values["behind"] = Value(sum(ranks for count, ranks in counts.ranks.items() if count < top))
    behind = [m.rank for m in counts.members if m.count is not None and m.count < top]
    if behind:
        values["behind_ranks"] = Value(behind[:MAX_SHOWN])
    values["spread"] = Value(top - min(counts.ranks))
    if len(told) > 1:
        values["mismatches"] = Value(
            [
                {"id": s.id, "hash": s.hash, "op": c.op, "op_counts": dict(sorted(c.ranks.items()))}
                for s, c in told[:MAX_SHOWN]
            ]
        )
    return values


def _stand(counts: Counts, listed: Sequence[Member]) -> str | None:
    """Where the listed ranks stand: the tool lists the smaller set, which may be the ones in front."""
    top, own = max(counts.ranks), {member.count for member in listed if member.count is not None}
    if not own:
        return None
    if own == {top}:
        return "ahead"
    return "mixed" if top in own else "behind"


def _single(found: list[dict[str, Any]]) -> Any:
    return found[0] if len(found) == 1 else found


def _verdict(now: Snapshot, change: Change | None, partial: bool) -> Verdict:
    errors = {section.error for section in now.kept()}
    if now.dead:
        return Verdict("job", Result.FAIL, "process-dead", "The query itself cannot reach a process any more.")
    if "ERROR" in errors:
        return Verdict("job", Result.FAIL, "communicator-error")
    if partial or not now.told:
        message = "The answer breaks off, or holds what cannot be; query again before anybody acts on it."
        return Verdict("job", Result.UNKNOWN, "partial-evidence", message)
    if change is not None and change.stuck and change.uneven:
        message = "The same operation was the last one in both answers, and ranks differ."
        return Verdict("job", Result.FAIL, "no-progress", message)
    if change is not None and change.stuck and not change.moving:
        return Verdict(
            "job", Result.WARN, "no-progress", "Nothing moved between the answers: a pause, or a hang of all."
        )
    if now.missing_count:
        return Verdict("job", Result.WARN, "process-not-responding", "A process did not answer; query again.")
    if change is not None and change.moving:
        return Verdict("job", Result.PASS, "progressing", "Operations were launched between the answers.")
    if "MISMATCH" in errors or any("MISMATCH" in row.error for row in now.rows):
        message = (
            "Ranks differ in one answer, which is normal in a running job; a second one tells whether they move."
        )
        return Verdict("job", Result.UNKNOWN, "one-snapshot", message)
    message = "All ranks answer and agree. A job that hangs as a whole looks the same; a second answer tells."
    return Verdict("job", Result.UNKNOWN, "one-snapshot", message)


def _next(verdicts: Sequence[Verdict], beside: Report) -> str:
    job = next((verdict for verdict in verdicts if verdict.of == "job"), None)
    match job.reason if job else "":
        case "one-snapshot" | "partial-evidence" | "process-not-responding":
            return "Query the state again after some seconds and give both answers."
        case "no-progress":
            return "Take stack dumps of the ranks that stand behind, then restart the job."
        case "process-dead":
            return DEAD.next
        case "communicator-error":
            return ERROR.next
        case _:
            return beside.next
