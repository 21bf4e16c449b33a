"""Lines of a log in bounded memory, and the prefixes that launchers, collectors and NCCL put before a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from muster.read.moment import Moment, calendar
from muster.read.source import MAX_LINE_BYTES, Input

LINE_LIMIT = 8192
"""Characters of a line that are looked at; the longest known message has about 1,500."""
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_WHOLE_ENDINGS = (".", ")", "!", '"', "'", "]", "}", ";", ">")


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1. `cut`: the file ends within this line."""

    number: int
    text: str
    cut: bool = False


def lines_of(item: Input) -> Iterator[Line]:
    """All lines of an input. A line without its end is marked as cut; whether it lost text is another question."""
    return numbered(item.chunks())


def numbered(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Lines out of chunks. What is beyond MAX_LINE_BYTES of a line is dropped."""
    rest = b""
    number = 0
    skipping = False
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        if skipping and len(pieces) == 1:
            continue
        if not skipping:
            pieces[0] = rest + pieces[0]
        for piece in pieces[:-1]:
            if skipping:
                skipping = False
                continue
            number += 1
            yield Line(number, _text(piece))
        rest = pieces[-1]
        if len(rest) > MAX_LINE_BYTES:
            number += 1
            yield Line(number, _text(rest))
            rest, skipping = b"", True
    if rest and not skipping:
        yield Line(number + 1, _text(rest), cut=True)


def _text(data: bytes) -> str:
    text = data[: LINE_LIMIT * 2].decode("utf-8", "replace").rstrip("\r\n").removeprefix("\ufeff")[:LINE_LIMIT]
    return _COLOUR.sub("", text) if "\x1b" in text else text


def lost_text(line: Line) -> bool:
    """True for the last line of a file when it breaks off: no line end, and no end of a sentence either."""
    text = line.text.rstrip()
    return line.cut and bool(text) and not text.endswith(_WHOLE_ENDINGS)


# The last thing before the message of a process is the host, its process and thread, and the number of its GPU.
_NCCL = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_][\w.-]{0,252}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) )?"
    r"\[(?P<gpu>-?\d{1,4})\] (?:\d{1,12}\.\d{1,9} )?"
    r"(?:(?P<file>[\w./+-]{1,120}):(?P<line>\d{1,6}) (?:\((?P<func>\w{1,100})\) )?)?"
    r"NCCL (?P<level>INFO|WARN|ERROR|TRACE|ABORT)\b ?"
)
_BARE = re.compile(r"(?:(?P<file>[\w./+-]{1,120}):(?P<line>\d{1,6}) )?NCCL (?P<level>WARN|ERROR)\b ?")
_HEAD_LIMIT = 600
"""Prefix and header of a NCCL line are shorter than this."""
_TRIES = 3
"""How many mentions of NCCL in a line are tried: a prefix may name it too."""
_DATE = re.compile(
    r"(?P<year>20\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T_](?P<clock>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_MPI_RANK = re.compile(r"\[\d{1,9},(\d{1,7})\](?:<std(?:out|err)>)?:")
_TORCH_RANK = re.compile(r"\[(?:default|rank)(\d{1,7})\]:")
_SRUN_RANK = re.compile(r"\s{0,6}(\d{1,7}): ")


@dataclass(frozen=True, slots=True)
class NcclLine:
    """One line of NCCL without its prefix. What the line does not tell is None."""

    level: str
    message: str
    host: str | None = None
    pid: int | None = None
    tid: int | None = None
    gpu: int | None = None
    file: str | None = None
    func: str | None = None
    moment: Moment | None = None
    rank: int | None = None
    """Rank as the launcher's prefix tells it."""


def nccl_line(text: str) -> NcclLine | None:
    """The line as NCCL wrote it, behind whatever prefix; None when it is none of NCCL's."""
    at = text.find("NCCL ")
    plain = _NCCL.match(text) if at >= 0 else None
    if plain is not None and plain.end() > at:
        return _nccl_line(text, text[: plain.end()], 0, plain)
    for _ in range(_TRIES):
        if at < 0:
            return None
        head = text[max(0, at - _HEAD_LIMIT) : at + 12]
        found = _last(_NCCL, head) or _last(_BARE, head)
        if found is not None:
            return _nccl_line(text, head, max(0, at - _HEAD_LIMIT), found)
        at = text.find("NCCL ", at + 5)
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def _nccl_line(text: str, head: str, offset: int, found: re.Match[str]) -> NcclLine:
    start = offset + found.end()
    prefix = head[: found.start()]
    parts = found.groupdict()
    return NcclLine(
        level=parts["level"],
        message=text[start:].rstrip(),
        host=parts.get("host"),
        pid=_number(parts.get("pid")),
        tid=_number(parts.get("tid")),
        gpu=_number(parts.get("gpu")),
        file=parts.get("file"),
        func=parts.get("func"),
        moment=moment_in(prefix),
        rank=rank_in(prefix),
    )


def moment_in(prefix: str) -> Moment | None:
    """The last date and time in a prefix: the one nearest to the message is the program's own."""
    found = _last(_DATE, prefix[-_HEAD_LIMIT:])
    if found is None:
        return None
    return calendar(
        int(found["year"]), int(found["month"]), int(found["day"]), found["clock"], found["fraction"], found["zone"]
    )


def rank_in(prefix: str) -> int | None:
    """The rank that mpirun (`[1,5]<stdout>:`), torchrun (`[rank5]:`) or srun (`5: `) put before a line."""
    for pattern in (_TORCH_RANK, _MPI_RANK):
        if found := pattern.search(prefix):
            return int(found[1])
    found = _SRUN_RANK.match(prefix)
    return int(found[1]) if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def joined(items: Sequence[Input]) -> Iterator[tuple[str, Line]]:
    """(file, line) of several inputs one after the other."""
    for item in items:
        for line in lines_of(item):
            yield item.name, line
