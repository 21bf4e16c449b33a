"""Failure summaries of torchrun: which process ended first, on which host, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.read.moment import Moment, calendar

MAX_FAILURES = 4096
_KEY = re.compile(r"^\s{1,12}(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,12}: (?P<value>.{1,400})$")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = re.compile(r"(?P<code>-?\d{1,5})(?: \(pid: (?P<pid>\d{1,10})\))?")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[_ T](\d\d:\d\d:\d\d)")
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
CONSEQUENCES = (-6, -15)
"""SIGABRT: a watchdog ends its own process. SIGTERM: the launcher ends the others. Both come after a cause."""


@dataclass
class Failure:
    """One process of a summary. `first`: the launcher of its node saw it end before the others."""

    first: bool
    line: int
    file: str
    text: str
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    exitcode: int | None = None
    pid: int | None = None
    moment: Moment | None = None

    def plain(self) -> dict[str, int | str | None]:
        signal = SIGNALS.get(-self.exitcode) if self.exitcode is not None and self.exitcode < 0 else None
        plain: dict[str, int | str | None] = {
            "rank": self.rank,
            "local_rank": self.local_rank,
            "host": self.host,
            "exitcode": self.exitcode,
            "pid": self.pid,
            "signal": signal,
            "time": self.moment.text if self.moment else None,
        }
        return {name: value for name, value in plain.items() if value is not None}


class Summaries:
    """Reads failure summaries, line by line."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self._first: bool | None = None
        self._open = False

    def take(self, file: str, number: int, text: str) -> bool:
        """True when the line belongs to a summary."""
        at = text.find("Root Cause (first observed failure)")
        if at >= 0:
            self._first, self._open = True, False
            return True
        if text.rstrip().endswith("Failures:"):
            self._first, self._open = False, False
            return True
        if self._first is None:
            return False
        body = text[text.rfind("]:") + 2 :] if "]:" in text and not text.rstrip().endswith("]:") else text
        if re.search(r"\[\d{1,5}\]:\s*$", text):
            self._open = len(self.failures) < MAX_FAILURES
            if self._open:
                self.failures.append(Failure(self._first, number, file, text))
            return True
        found = _KEY.match(body if body.startswith(" ") else f" {body}")
        if found is None:
            if text.strip("=- \t") and "FAILED" not in text and "NO_OTHER_FAILURES" not in text:
                self._first, self._open = None, False
                return False
            return True
        if self._open:
            self._field(found["key"], found["value"].strip())
        return True

    def _field(self, key: str, value: str) -> None:
        failure = self.failures[-1]
        match key:
            case "host":
                failure.host = value[:255]
            case "rank" if found := _RANK.match(value):
                failure.rank, failure.local_rank = int(found["rank"]), int(found["local"])
            case "exitcode" if found := _EXIT.match(value):
                failure.exitcode = int(found["code"])
                failure.pid = int(found["pid"]) if found["pid"] else None
            case "time" if found := _TIME.match(value):
                failure.moment = calendar(int(found[1]), int(found[2]), int(found[3]), found[4])
            case _:
                pass

    def first_to_end(self) -> Failure | None:
        """The failure that came first in the job; None when several nodes tell of one and times do not decide."""
        firsts = [f for f in self.failures if f.first and f.exitcode not in CONSEQUENCES]
        if len(firsts) < 2:
            return firsts[0] if firsts else None
        timed = [f for f in firsts if f.moment is not None]
        if len(timed) < len(firsts):
            return None
        order = sorted(timed, key=lambda f: f.moment.seconds if f.moment else 0.0)
        return order[0] if (order[0].moment != order[1].moment) else None
