"""What one line of torch's NCCL watchdog, heartbeat monitor, store or barrier says (torch 1.13 to 2.9)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.read.collectives.lines import rank_in
from muster.read.moment import Moment, calendar

RANK_LIMIT = 10_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as a line names it. Sequence numbers count per group."""

    id: int | None
    guid: int | str | None = None
    name: str | None = None

    def plain(self) -> dict[str, int | str | None]:
        plain = {"id": self.id, "guid": self.guid, "name": self.name}
        return {name: value for name, value in plain.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Source:
    """Who wrote a line. `rank` is the global one where the launcher tells it, else the rank in the group."""

    rank: int | None
    group_rank: int | None
    group: Group | None
    moment: Moment | None
    clock: str | None
    day: str | None


@dataclass(frozen=True, slots=True)
class Timeout:
    """A collective that did not end in time. `seq` None: the line is cut before it."""

    source: Source
    seq: int | None
    op: str | None
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None
    ran_ms: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Last enqueued and last completed work of a rank in a group; `at` is the work that failed, where told."""

    source: Source
    at: int | None
    enqueued: int | None
    completed: int | None
    told_by: int | None = None
    """Rank whose timeout made this one report, where the line names it."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """The watchdog of a rank made no progress itself. `seconds` None: not told."""

    source: Source
    seconds: int | None


@dataclass(frozen=True, slots=True)
class Absent:
    """Ranks that somebody else's line names as not having come. `how`: `barrier`, `never-joined`, `behind`."""

    source: Source
    ranks: tuple[int, ...]
    how: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The watchdog ended its process because of another error: `what` is `nccl`, `cuda`, `store` or `mismatch`."""

    source: Source
    what: str
    text: str


Said = Timeout | Progress | Stuck | Absent | Ended

MARKS = (
    "ProcessGroup",
    "Watchdog caught",
    "watchdog",
    "monitoredBarrier",
    "TCPStore",
    "lagging ranks",
    "didn't join collective",
    "didn't finish collective",
    "mismatch between collectives",
    "eartbeat monitor",
)

_STAMP = re.compile(
    r"\[(?P<level>[EWIFC])(?P<day>\d{3,4})? ?(?:(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?: +\d{1,10})? ?(?P<file>[\w./]{1,80}):\d{1,6}\]"
)
_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>\d{1,9})(?: PG GUID (?P<guid>[\w:-]{1,64}))?(?: ?\((?P<name>[^()\[\]]{1,80})\))?"
    r" Rank (?P<rank>\d{1,7})\]"
)
_RANK = re.compile(r"\[?Rank (?P<rank>\d{1,7})\]")
_WORK = re.compile(r"Watchdog caught collective operation timeout")
_FIELD = {
    "seq": re.compile(r"SeqNum=(\d{1,18})(?=[,)])"),
    "op": re.compile(r"OpType=([A-Za-z_]{1,40})(?=[,)])"),
    "numel_in": re.compile(r"(?:NumelIn|TensorShape=\[[\d, ]{0,200}\], NumelIn)=(\d{1,18})(?=[,)])"),
    "numel_out": re.compile(r"NumelOut=(\d{1,18})(?=[,)])"),
    "timeout_ms": re.compile(r"Timeout\(ms\)=(\d{1,15})(?=[,)])"),
    "ran_ms": re.compile(r"ran for (\d{1,15}) milliseconds"),
}
_AT = re.compile(r"(?:at work(?: sequence id)?|at NCCL work):? ?(\d{1,18})(?=\D)", re.I)
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: ?(-?\d{1,18})(?=\D)", re.I)
_COMPLETED = re.compile(r"last completed (?:NCCL )?work: ?(-?\d{1,18})\b", re.I)
_SIGNAL = re.compile(r"dump signal due to a collective timeout from {1,4}rank {1,4}(\d{1,7})\b")
_STARTED = re.compile(r"NCCL watchdog thread started|destroy_process_group\(\) was not called")
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds")
_STUCK_OLD = ("Heartbeat monitor timed out", "detected no heartbeat of its watchdog")
_BARRIER = re.compile(r"Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,4096}) failed to pass monitoredBarrier")
_LAGGING = re.compile(r"ranks \[(?P<ranks>[\d, ]{1,8000})\] are the lagging ranks")
_NOT_JOINED = re.compile(
    r"\[(?P<ranks>[\d, ]{1,8000})\] (?P<how>finished collective #\d{1,18}, but didn't join"
    r"|joined but didn't finish) collective"
)
_THREAD_ENDED = re.compile(r"watchdog thread terminated with exception: (?P<text>.{1,300})")
_STORE = ("should dump", "TCPStore", "Broken pipe")
_STORE_GONE = (
    "Broken pipe",
    "Connection reset by peer",
    "Connection was likely closed",
    "server has shut down",
    "recvValue failed",
    "failed to recv",
    "Connection refused",
)


def said(text: str) -> Said | None:
    """What a line says, None when it is of no interest here."""
    if not any(mark in text for mark in MARKS):
        return None
    source = _source(text)
    if _WORK.search(text):
        fields = {name: pattern.search(text) for name, pattern in _FIELD.items()}
        numbers = {name: int(f[1]) if f else None for name, f in fields.items() if name != "op"}
        op = fields["op"]
        return Timeout(source, op=op[1] if op else None, **numbers)
    if found := _STUCK.search(text):
        return Stuck(source, int(found["seconds"]))
    if any(words in text for words in _STUCK_OLD):
        return Stuck(source, None)
    if found := _BARRIER.search(text):
        return Absent(source, ranks_of(found["ranks"]), "barrier")
    if found := _LAGGING.search(text):
        return Absent(source, ranks_of(found["ranks"]), "never-joined")
    if (found := _NOT_JOINED.search(text)) and found["how"].startswith("finished"):
        return Absent(source, ranks_of(found["ranks"]), "behind")
    if "mismatch between collectives" in text:
        return Ended(source, "mismatch", text[-300:])
    if any(words in text for words in _STORE) and any(words in text for words in _STORE_GONE):
        return Ended(source, "store", "the store is gone")
    if (enqueued := _ENQUEUED.search(text)) or _AT.search(text):
        at, completed = _AT.search(text), _COMPLETED.search(text)
        return Progress(
            source,
            int(at[1]) if at else None,
            int(enqueued[1]) if enqueued else None,
            int(completed[1]) if completed else None,
            int(signal[1]) if (signal := _SIGNAL.search(text)) else None,
        )
    if found := _THREAD_ENDED.search(text):
        what = "cuda" if "CUDA error" in found["text"] else "nccl"
        return Ended(source, what, found["text"])
    return None


def harmless(text: str) -> bool:
    """A line that the process group writes while nothing is wrong."""
    return "ProcessGroupNCCL" in text and _STARTED.search(text) is not None


def ranks_of(text: str) -> tuple[int, ...]:
    """Numbers of a list such as `3, 5`."""
    return tuple(sorted({int(part) for part in text.replace(" ", "").split(",") if part.isdecimal()}))


def _source(text: str) -> Source:
    stamp, group = _STAMP.search(text), _GROUP.search(text)
    own = group or _RANK.search(text)
    group_rank = int(own["rank"]) if own else None
    head = text[: stamp.start()] if stamp else text[: own.start() if own else 80]
    outer = rank_in(head)
    moment, clock, day = _stamp(stamp)
    return Source(
        rank=outer if outer is not None else group_rank,
        group_rank=group_rank,
        group=_group(group) if group else None,
        moment=moment,
        clock=clock,
        day=day,
    )


def _group(found: re.Match[str]) -> Group:
    guid: str | None = found["guid"]
    return Group(int(found["id"]), int(guid) if guid is not None and guid.isdecimal() else guid, found["name"])


def _stamp(found: re.Match[str] | None) -> tuple[Moment | None, str | None, str | None]:
    """(moment, time of day, `MM-DD`) of a stamp such as `E419 10:53:25.421`: month * 100 + day, without a year."""
    if found is None or found["clock"] is None:
        return None, None, None
    clock = found["clock"] + (f".{found['fraction']}" if found["fraction"] else "")
    if found["day"] is None:
        return None, clock, None
    month, day = divmod(int(found["day"]), 100)
    moment = calendar(None, month, day, found["clock"], found["fraction"])
    return moment, clock, f"{month:02d}-{day:02d}" if moment is not None else None
