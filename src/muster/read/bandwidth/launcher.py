"""What launchers and log collectors put in front of every line of a program: job, rank, stream, task, pod, time.

[1,0]<stdout>:text                 mpirun --tag-output; job 1, rank 0
[prterun-host-1@1,0]<stdout>: text  the same from Open MPI 5
0: text                            srun --label; task 0
[default3]:text   [rank3]:text      torchrun
[pod/name/container] text          kubectl logs --prefix
worker-1  | text                   docker compose
2025-01-31T10:00:00.123456789Z text kubectl logs --timestamps
Jan 31 10:00:00 text                ts (moreutils)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_LINE_CHARS = 4096
"""Longer lines are no lines of a table; what follows is not looked at."""
_MAX_LAYERS = 4
_WINDOW = 400

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_TIME = re.compile(
    r"\s{0,8}\[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?\]?(?:[ :\t]|$)"
)
_CRI = re.compile(r"(?P<stream>stdout|stderr) [FP] ")
_MPIRUN = re.compile(
    r"\s{0,8}\[(?:[^\[\]@]{1,200}@)?(?P<job>\d{1,9}),(?P<rank>\d{1,9})\](?:\[[^\]]{0,200}\])?"
    r"<(?P<stream>std[a-z]{2,4})>:? ?"
)
_TASK = re.compile(r"\s{0,8}(?P<task>\d{1,6}):(?: |$)")
_TORCHRUN = re.compile(r"\s{0,8}\[(?P<tag>(?:default|rank|worker|trainer)?)(?P<rank>\d{1,6})\]: ?")
_POD = re.compile(r"\s{0,8}\[(?P<pod>(?:pod/)?[a-z0-9][a-z0-9./-]{1,300})\] ?")
_RAY = re.compile(r"\s{0,8}\((?P<worker>[A-Za-z][^()]{0,160})\) ?")
_COMPOSE = re.compile(r"(?P<service>[A-Za-z0-9][A-Za-z0-9_.-]{0,100}) {0,60}\| ?")
_SYSLOG = re.compile(
    r"[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} (?P<host>[A-Za-z0-9_.-]{1,200}) "
    r"(?P<program>[^\s:\[\]]{1,100})(?:\[\d{1,9}\])?: "
)
_STAMP = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?: |$)")


@dataclass(frozen=True)
class Prefixed:
    """One line without what stood in front. `tags` says who wrote it; times are taken off and forgotten."""

    text: str
    tags: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def stream(self) -> str:
        """Equal for lines of one writer."""
        return "|".join(f"{name}={self.tags[name]}" for name in sorted(self.tags) if name != "stream")


def _mpirun(match: re.Match[str]) -> dict[str, int | str]:
    return {"job": int(match["job"]), "rank": int(match["rank"]), "stream": match["stream"]}


_Layer = tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, int | str]]]
_LAYERS: Mapping[str, tuple[_Layer, ...]] = {
    "[": (
        (_TIME, lambda _: {}),
        (_MPIRUN, _mpirun),
        (_TORCHRUN, lambda m: {"rank": int(m["rank"])}),
        (_POD, lambda m: {"pod": m["pod"].removeprefix("pod/")}),
    ),
    "(": ((_RAY, lambda m: {"worker": m["worker"]}),),
    "0": ((_TIME, lambda _: {}), (_TASK, lambda m: {"task": int(m["task"])})),
    "a": (
        (_CRI, lambda m: {"stream": m["stream"]}),
        (_SYSLOG, lambda m: {"host": m["host"]}),
        (_STAMP, lambda _: {}),
        (_COMPOSE, lambda m: {"service": m["service"]}),
    ),
}
"""By the first character that is no space: `0` for a digit, `a` for a letter."""


def strip(line: str) -> Prefixed:
    """Take the prefixes off one line, several layers of them where they are nested."""
    line = line[:MAX_LINE_CHARS].rstrip("\r\n")
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    tags: dict[str, int | str] = {}
    for _ in range(_MAX_LAYERS):
        head = line[:_WINDOW]
        first = head.lstrip()[:1]
        for pattern, read in _LAYERS.get("0" if first.isdigit() else "a" if first.isalpha() else first, ()):
            match = pattern.match(head)
            if match is not None and match.end():
                tags |= read(match)
                line = line[match.end() :]
                break
        else:
            break
    return Prefixed(line, tags)
