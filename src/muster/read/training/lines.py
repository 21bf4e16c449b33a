"""Lines of a training log without what launchers and loggers put before them.

Known: torchrun (`[rank0]:`, `[default0]:`), mpirun (`[1,0]<stdout>:`), srun (`0: `), kubectl and container runtimes
(times, `stdout F`, `[pod/name/container]`), Ray (`(worker pid=1)`), logger names, colours, and times in several
layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from muster.read.moment import MONTHS, Moment, calendar, daytime
from muster.read.source import Input

MAX_LINE: Final = 4096
"""Characters of a line that are looked at; a step line has a few hundred."""
MAX_PREFIXES: Final = 8

_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_MONTH = "(?:" + "|".join(MONTHS) + ")"

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_SOURCE = re.compile(
    r"\[(?P<source>(?:rank|default|Rank )?\d{1,7})\]:\s?"
    r"|\[\d{1,9},(?P<mpi>\d{1,7})\](?:<std(?:out|err|diag)>|\[[^\]]{1,80}\])?:\s?"
    r"|(?P<srun>\d{1,7}):\s"
    r"|\[(?P<pod>pod/[^\]\s]{1,250})\]\s?"
    r"|\((?P<ray>[A-Za-z][\w.]{0,60} pid=\d+[^)]{0,80})\)\s?"
)
_TIME = re.compile(
    rf"\[?(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_CLOCK}{_ZONE}\]?:?\s?(?:- )?"
    rf"|\[NeMo [A-Z] (?P<nyear>\d{{4}})-(?P<nmonth>\d\d)-(?P<nday>\d\d) (?P<nclock>\d\d:\d\d:\d\d) [^\]]{{0,80}}\]\s?"
    r"|(?P<gyear>\d{4})?[IWEF](?P<gmonth>\d\d)(?P<gday>\d\d) (?P<gclock>\d\d:\d\d:\d\d)\.(?P<gfraction>\d{1,9})"
    r"\s+\d+ [^\]\s]{1,80}\]\s?"
    r"|(?P<mmonth>\d\d)/(?P<mday>\d\d) (?P<mclock>\d\d:\d\d:\d\d)\s?(?:- )?"
    rf"|(?P<smonth>{_MONTH}) +(?P<sday>\d{{1,2}}) (?P<sclock>\d\d:\d\d:\d\d)\s"
    r"(?:[\w.-]{1,80} [\w./-]{1,40}(?:\[\d+\])?:\s)?"
    r"|\[(?P<dclock>\d\d:\d\d:\d\d)\]\s?"
)
_LOGGER = re.compile(
    r"(?:stdout|stderr) [FP] "
    r"|\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\]?(?::[\w.]{1,80}:|:\s|\s-\s|\s)"
    r"|\[[\w./-]{1,60}\.py:\d+(?::\w{1,60})?\]\s"
    r"|\[titan\]\s?"
    r"|-?\s?[\w.]{1,60} - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
)
_RANK = re.compile(r"(?:rank|Rank )?(\d{1,7})\Z")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one file. `outer` is the first time before the text, `inner` the last; the same where there is
    one."""

    number: int
    text: str
    source: str = ""
    """Tag of the process that wrote it (`rank0`, `default3`, `pod/...`); empty when not told."""
    rank: int | None = None
    outer: Moment | None = None
    inner: Moment | None = None
    ended: bool = True
    """False for a last line without a line end: it may be cut."""


def parse_line(raw: str, number: int = 1, ended: bool = True) -> Line:
    """The line without its prefixes; the indentation behind them stays."""
    text = _ANSI.sub("", raw[: MAX_LINE + 1000])[:MAX_LINE].rstrip("\r\n")
    source, rank = "", None
    outer: Moment | None = None
    inner: Moment | None = None
    for _ in range(MAX_PREFIXES):
        stripped = text.lstrip(" ")
        indent = len(text) - len(stripped)
        if indent <= 1 and (match := _TIME.match(stripped)):
            moment = _moment(match)
            if moment is not None:
                outer, inner = outer or moment, moment
            text = stripped[match.end() :]
        elif (match := _SOURCE.match(text)) or (indent and (match := _SOURCE.match(stripped)) and match["srun"]):
            source = next(part for part in match.groups() if part is not None)
            found = _RANK.match(match["mpi"] or match["srun"] or match["source"] or "")
            rank = int(found[1]) if found else None
            text = (text if match.string is text else stripped)[match.end() :]
        elif match := _LOGGER.match(text):
            text = text[match.end() :]
        else:
            break
    return Line(number, text, source, rank, outer, inner, ended)


def _moment(match: re.Match[str]) -> Moment | None:
    part = match.groupdict()
    if part["clock"]:
        zone = part["zone"]
        return calendar(
            int(part["year"]), int(part["month"]), int(part["day"]), part["clock"], part["fraction"], zone
        )
    if part["nclock"]:
        return calendar(int(part["nyear"]), int(part["nmonth"]), int(part["nday"]), part["nclock"])
    if part["gclock"]:
        return calendar(None, int(part["gmonth"]), int(part["gday"]), part["gclock"], part["gfraction"])
    if part["mclock"]:
        return calendar(None, int(part["mmonth"]), int(part["mday"]), part["mclock"])
    if part["sclock"]:
        return calendar(None, MONTHS[part["smonth"]], int(part["sday"]), part["sclock"])
    hours, minutes, seconds = (int(x) for x in part["dclock"].split(":"))
    return daytime(part["dclock"]) if hours < 24 and minutes < 60 and seconds < 62 else None


def lines_of(item: Input) -> Iterator[Line]:
    """The lines of one input, in bounded memory. Progress bars (`\\r`) are lines of their own."""
    for number, (raw, ended) in enumerate(_split(item.chunks()), start=1):
        text = raw[: 4 * MAX_LINE].decode("utf-8", "replace")
        yield parse_line(text, number, ended)


def sample_lines(sample: bytes) -> list[Line]:
    """The lines of a sample; the last one may be cut."""
    text = sample.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return [parse_line(part, n) for n, part in enumerate(re.split(r"[\r\n]+", text), start=1)]


def _split(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    rest = b""
    for chunk in chunks:
        parts = re.split(rb"\r\n|\n|\r", rest + chunk)
        # A \r at the end of a chunk may be half of \r\n; the empty line that follows is harmless.
        rest = parts.pop()
        yield from ((part, True) for part in parts if part.strip())
        if len(rest) > 1024 * 1024:
            rest = rest[: 4 * MAX_LINE]
    if rest.strip():
        yield rest, False
