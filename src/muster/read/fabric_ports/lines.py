"""Lines of tool output without what collectors put in front: tags, colours, the host of `pdsh` and `clush`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from muster.errors import BadInputError
from muster.read.bandwidth.launcher import strip
from muster.read.moment import MONTHS, Moment, calendar
from muster.read.terminal import PROMPT

MAX_LINES = 400_000
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}): ?(?=.)")
_PROMPT = re.compile(rf"(?:{PROMPT}|[#$%>])\s{{1,4}}(?=[A-Za-z/(.])")
_DATE = re.compile(
    r"(?:[A-Z][a-z]{2},? )(?P<mon>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d{2}:\d{2}:\d{2})(?: [AP]M)?"
    r"(?: (?P<zone>[A-Z]{3,4}))? (?P<year>\d{4})"
)
_ISO = re.compile(
    r"(?P<y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})[T ](?P<clock>\d{2}:\d{2}:\d{2})(?:[.,](?P<part>\d{1,9}))?"
    r"(?: ?(?P<zone>Z|UTC|[+-]\d{2}:?\d{2}))?"
)


@dataclass(frozen=True, slots=True)
class Line:
    """`text` keeps its indent. `host` is the prefix of a collector. `command` is what was typed, at a prompt."""

    number: int
    text: str
    host: str | None = None
    command: str = ""


def lines_of(text: str) -> list[Line]:
    """All lines of a text. Raises BadInputError when there are more than any tool prints."""
    raw = text.split("\n")
    if len(raw) > MAX_LINES:
        raise BadInputError(f"The text has more than {MAX_LINES} lines; give the output of one machine.")
    plain = [_plain(line).replace("\xa0", " ") for line in raw]
    hosts = _hosts(plain)
    found = []
    for number, line in enumerate(plain, start=1):
        host = None
        if hosts and (match := _HOST.match(line)) and match[1] in hosts:
            host, line = match[1], line[match.end() :]
        prompt = _PROMPT.match(line)
        found.append(Line(number, line, host, line[prompt.end() :].strip() if prompt else ""))
    return found


def _plain(line: str) -> str:
    """The line without prefixes; a line that is nothing but a time stays: it dates what follows."""
    text = strip(line).text
    return text if text.strip() else line[:100]


def _hosts(lines: Sequence[str]) -> frozenset[str]:
    """Names in front of nearly every line, each many times over: hosts."""
    filled = [line for line in lines if line.strip()]
    names = Counter(match[1] for line in filled if (match := _HOST.match(line)))
    often = {name for name, count in names.items() if count >= 4}
    covered = sum(names[name] for name in often)
    return frozenset(often) if often and covered >= 0.9 * len(filled) else frozenset()


def moment_of(text: str) -> Moment | None:
    """The date that a line holds: output of `date`, or ISO 8601."""
    head = text[:200]
    if match := _ISO.search(head):
        return calendar(
            int(match["y"]), int(match["m"]), int(match["d"]), match["clock"], match["part"], match["zone"]
        )
    if (match := _DATE.search(head)) and match["mon"] in MONTHS:
        zone = match["zone"] if match["zone"] in ("UTC", "GMT") else None
        return calendar(int(match["year"]), MONTHS[match["mon"]], int(match["day"]), match["clock"], None, zone)
    return None


def integer(text: str) -> int | None:
    """A count in decimal or hexadecimal, with thousands separators and bracketed notes; None for other text."""
    word = text.strip().split(" ")[0].strip("[](),").replace(",", "").replace("_", "")
    if not word or len(word) > 40:
        return None
    try:
        return int(word, 16) if word.lower().startswith("0x") else int(word)
    except ValueError:
        return None


def decimal(text: str) -> float | None:
    """The first number of a text; None where there is none."""
    match = re.match(r"\s{0,8}([+-]?\d{1,18}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,3})?)", text[:80])
    return float(match[1]) if match else None


def key(name: str) -> str:
    """`Physical state` -> `physical_state`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:80]
