"""Takes the prefix off a log line: who wrote it, when, on which host. Every line is framed by itself.

Known: dmesg (seconds since boot, `-T`, ISO, `-x`, `-r`, caller IDs), records of /dev/kmsg, journalctl (JSON, short,
short-iso, short-precise, short-monotonic, short-unix, short-full), syslog (RFC 3164 and 5424), Fabric Manager. Of an
unknown prefix the message is found by its first words, and the time stays unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from muster.read.moment import MONTHS, Moment, boot, calendar, unix

_MONTH = "(?:" + "|".join(MONTHS) + ")"
_CLOCK = r"\d\d:\d\d:\d\d"
_TAG = r"(?P<tag>[A-Za-z_(][^\s:\[\]]{0,63}?)(?:\[(?P<pid>\d+)\])?: ?"

_CALLER = r"(?: ?\[\s*[TC]\d+\])?"
_UPTIME = re.compile(rf"\[?\s*(?P<s>\d{{1,12}}\.\d{{1,9}})(?: <\s*[\d.]+>)?\]{_CALLER}\s?")
_CTIME = re.compile(
    rf"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) +(?P<month>{_MONTH}) +(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK})"
    rf"(?:\.(?P<fraction>\d+))? (?P<year>\d{{4}})\]{_CALLER} ?"
)
_BRACKET_BEFORE_DRIVER = re.compile(r"\[[^\]]{0,60}\]:? ?(?=NVRM: |nvidia-nvswitch)")
"""A prefix of another logger's making; what the driver says must not get lost behind it."""
_RELATIVE = re.compile(rf"\[(?:\s*\+\d{{1,12}}\.\d{{1,9}}|{_MONTH} ?\d{{1,2}} \d\d:\d\d)\]{_CALLER} ?")
"""`dmesg --reltime`: a distance to the line before, or a time without seconds. Neither is a time to reckon with."""
_FABRIC = re.compile(
    rf"\[?(?P<month>{_MONTH}) +(?P<day>\d{{1,2}}) (?P<year>\d{{4}}) (?P<clock>{_CLOCK})\] +"
    r"\[(?P<level>[A-Z]+)\](?: +\[tid \d+\])? ?"
)
_ISO = re.compile(
    rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>{_CLOCK})"
    r"(?:[.,](?P<fraction>\d{1,9}))?(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d))? +"
)
_SYSLOG = re.compile(
    rf"(?P<month>{_MONTH}) +(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?(?P<clock>{_CLOCK})(?:\.(?P<fraction>\d+))? "
    rf"(?P<host>[^\s:]+) {_TAG}"
)
_KMSG = re.compile(r"(?P<priority>\d{1,6}),(?P<seq>\d{1,20}),(?P<us>\d{1,20}),(?P<flags>[^;]{0,200});")
_UNIX = re.compile(rf"(?P<s>\d{{9,11}}\.\d{{3,9}}) (?P<host>[^\s:]+) {_TAG}")
_RFC5424 = re.compile(
    rf"<\d{{1,3}}>1 (?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<clock>{_CLOCK})(?:\.(?P<fraction>\d{{1,9}}))?"
    r"(?P<zone>Z|[+-]\d\d:\d\d) (?P<host>\S+) (?P<tag>\S+) \S+ \S+ (?:-|\[[^\]]*\]) ?"
)
_PRIORITY = re.compile(r"<\d{1,3}>")
_DECODED_LEVEL = re.compile(r"(?:kern|user|daemon|syslog|auth)\s*:(?P<level>[a-z]+)\s*: ")
_ZONE_NAME = re.compile(r"(?:[A-Z]{2,5}|[+-]\d\d) +(?=\S+ [\w(])")
"""A zone that `journalctl -o short-full` names by letters: which offset it means is not told."""
_CONTAINER = re.compile(r"(?:stdout|stderr) [FP] ")
"""Stream and full/partial mark of a container runtime, behind its time."""
_COLLECTED = re.compile(
    rf"\d{{4}}-\d\d-\d\dT{_CLOCK}(?:\.\d{{1,9}})?(?:Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP] )?"
)
"""Put before a line by what collected it (a container runtime, `kubectl logs --timestamps`): the time of reading."""
_COLOUR = re.compile(r"(?:\x1b|#033)\[[0-9;]{0,20}[A-Za-z]")
_HOST_KERNEL = re.compile(r"(?P<host>[^\s:\[]+) kernel: ?")
_HOST_TAG = re.compile(rf"(?P<host>[^\s:\[]+) {_TAG}")
_KMSG_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_ANCHOR = re.compile(
    r"(?:\[\s*(?P<s>\d{1,12}\.\d{1,9})\] )?(?<![\w-])"
    r"(?=NVRM: |nvidia-nvswitch\d*: SXid|mlx5_core[ :]|EXT4-fs |XFS \(|Kernel panic - not syncing"
    r"|EDAC MC\d|mce: \[Hardware Error\]|pcieport [0-9a-f]{4}:|NETDEV WATCHDOG: |detected NVSwitch )"
)


_HEADLESS = re.compile(r"(?<![A-Za-z])Xid \(PCI:")
"""An XID line whose beginning is cut off."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line without its prefix."""

    message: str
    moment: Moment | None = None
    framed: bool = False
    """The prefix was recognised, so the message begins where it says."""
    tag: str | None = None
    """Program that wrote it (`kernel`, `nv-fabricmanager`); None: not told, most likely the kernel."""
    host: str | None = None
    boot_id: str | None = None
    level: str | None = None
    seq: int | None = None
    """Sequence number of a /dev/kmsg record."""
    continues: bool = False
    """A fragment that continues the record before it."""

    @property
    def kernel(self) -> bool:
        return self.tag is None or self.tag == "kernel"


def plain(line: str) -> str:
    """The line without terminal colours and without a byte order mark."""
    if "\x1b" in line or "#033" in line:
        line = _COLOUR.sub("", line)
    return line.removeprefix("\ufeff")


def frame(line: str) -> Frame:
    """Frame one line (no line end). Never fails: a line that is not understood comes back as it is."""
    found = _collected(plain(line))
    own = _FABRIC.match(found.message) if found.message[:1] == "[" else None
    if own is None:
        return found
    # The Fabric Manager writes its own prefix; the journal, syslog or a container runtime put theirs before it.
    inner = _frame(found.message)
    return replace(
        found, message=inner.message, moment=found.moment or inner.moment, tag=inner.tag, level=inner.level
    )


def _collected(line: str) -> Frame:
    outer = _COLLECTED.match(line) if line[:2] == "20" else None
    if outer is not None:
        inner = _frame(line[outer.end() :])
        if inner.framed:
            return inner if inner.moment is not None else replace(inner, moment=_frame(line).moment)
    return _frame(line)


def _frame(line: str) -> Frame:
    first = line[:1]
    if first == "{":
        journal = _journal(line)
        if journal is not None:
            return journal
    if first == "<":
        syslog = _RFC5424.match(line)
        dated = _dated(syslog, line[syslog.end() :]) if syslog is not None else None
        if dated is not None:
            return dated
        line = _PRIORITY.sub("", line, count=1)
        first = line[:1]
    stripped = line.lstrip()
    for pattern, build in _BUILDERS.get(first, _BUILDERS_OTHER):
        match = pattern.match(stripped)
        if match is not None:
            found = build(match, stripped[match.end() :])
            if found is not None:
                return found
    return _unframed(line)


def _unframed(line: str) -> Frame:
    anchor = _ANCHOR.search(line[:400])
    if anchor is not None and (anchor.start() > 0 or anchor["s"]):
        moment = boot(float(anchor["s"])) if anchor["s"] else None
        return Frame(line[anchor.end() :], moment=moment)
    headless = None if anchor is not None else _HEADLESS.search(line[:400])
    if headless is not None:
        return Frame("NVRM: " + line[headless.start() :])
    return Frame(line.strip())


def _uptime(match: re.Match[str], rest: str) -> Frame:
    host = _HOST_KERNEL.match(rest)
    if host is not None:
        return Frame(rest[host.end() :], boot(float(match["s"])), True, "kernel", host["host"])
    return Frame(rest, boot(float(match["s"])), framed=True)


def _relative(match: re.Match[str], rest: str) -> Frame:  # noqa: ARG001 - the signature of a builder
    return Frame(rest, framed=True)


def _dated(match: re.Match[str], rest: str) -> Frame | None:
    """A line that begins with a date; dmesg writes the message right after it, syslog a host and a tag first."""
    groups = match.groupdict()
    month = MONTHS[groups["month"]] if groups["month"] in MONTHS else int(groups["month"])
    year = int(groups["year"]) if groups.get("year") else None
    moment = calendar(year, month, int(groups["day"]), groups["clock"], groups.get("fraction"), groups.get("zone"))
    if moment is None:
        return None
    host, tag = groups.get("host"), groups.get("tag")
    if match.re is _ISO:
        if not match[0][0].isdigit() and groups["zone"] is None:
            name = _ZONE_NAME.match(rest)
            rest = rest[name.end() :] if name else rest
        if container := _CONTAINER.match(rest):
            return Frame(rest[container.end() :], moment, framed=True)
        named = _HOST_KERNEL.match(rest) or _HOST_TAG.match(rest)
        if named is not None and (named.re is _HOST_KERNEL or named["pid"]):
            host, tag = named["host"], named["tag"] if named.re is _HOST_TAG else "kernel"
            rest = rest[named.end() :]
    if tag == "kernel":
        inner = _UPTIME.match(rest) or _BRACKET_BEFORE_DRIVER.match(rest)
        rest = rest[inner.end() :] if inner else rest
    level = groups.get("level")
    return Frame(rest, moment, True, tag or ("nv-fabricmanager" if level else None), host, level=level)


def _record(match: re.Match[str], rest: str) -> Frame:
    message = _KMSG_ESCAPE.sub(lambda m: chr(int(m[1], 16)), rest) if "\\x" in rest else rest
    flags = match["flags"].split(",")[0]
    return Frame(
        message,
        boot(int(match["us"]) / 1e6),
        framed=True,
        seq=int(match["seq"]),
        continues=flags in ("c", "+"),
    )


def _unix(match: re.Match[str], rest: str) -> Frame:
    return Frame(rest, unix(float(match["s"])), True, match["tag"], match["host"])


def _levelled(match: re.Match[str], rest: str) -> Frame:
    for pattern, build in (*_BRACKET, (_ISO, _dated)):
        inner = pattern.match(rest)
        found = build(inner, rest[inner.end() :]) if inner else None
        if found is not None:
            return Frame(found.message, found.moment, True, found.tag, found.host, level=match["level"])
    return Frame(rest, framed=True, level=match["level"])


def _journal(line: str) -> Frame | None:
    """A record of `journalctl -o json`; MESSAGE may be text, a list of bytes, or a list of several messages."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    message = _journal_text(record.get("MESSAGE"))
    if message is None:
        return None
    stamp = str(record.get("__REALTIME_TIMESTAMP", ""))
    transport = record.get("_TRANSPORT")
    tag = record.get("SYSLOG_IDENTIFIER")
    tag = "kernel" if transport == "kernel" else str(tag) if tag else None if transport is None else str(transport)
    return Frame(
        message,
        unix(int(stamp) / 1e6) if stamp.isascii() and stamp.isdigit() and len(stamp) <= 17 else None,
        framed=True,
        tag=tag,
        host=_text_or_none(record.get("_HOSTNAME")),
        boot_id=_text_or_none(record.get("_BOOT_ID")),
    )


def _journal_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, list):
        return "\n".join(text for text in map(_journal_text, value) if text is not None) or None
    return None


def _text_or_none(value: Any) -> str | None:
    return value[:255] if isinstance(value, str) and value else None


_Builder = Callable[[re.Match[str], str], Frame | None]
_BRACKET: tuple[tuple[re.Pattern[str], _Builder], ...] = (
    (_UPTIME, _uptime),
    (_CTIME, _dated),
    (_FABRIC, _dated),
    (_RELATIVE, _relative),
)
_DIGIT: tuple[tuple[re.Pattern[str], _Builder], ...] = (
    (_KMSG, _record),
    (_ISO, _dated),
    (_UNIX, _unix),
    (_UPTIME, _uptime),
)
_LETTER: tuple[tuple[re.Pattern[str], _Builder], ...] = (
    (_SYSLOG, _dated),
    (_DECODED_LEVEL, _levelled),
    (_CTIME, _dated),
    (_ISO, _dated),
    (_FABRIC, _dated),
)
_BUILDERS: dict[str, tuple[tuple[re.Pattern[str], _Builder], ...]] = {
    "[": _BRACKET,
    **dict.fromkeys("0123456789", _DIGIT),
    **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", _LETTER),
    **dict.fromkeys("kudsa", ((_DECODED_LEVEL, _levelled),)),
}
_BUILDERS_OTHER: tuple[tuple[re.Pattern[str], _Builder], ...] = ((_UPTIME, _uptime),)
