"""Output of `kubectl drain`, and of controllers that evict pods in the same words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from muster.read.fabric_ports.lines import Line

_POD = r"\"?(?:pods?/)?\"?(?P<pod>[a-z0-9][a-z0-9./-]{0,300})\"?"
_EVICTING = re.compile(rf"[Ee]victing pod:? {_POD}")
_ERROR = re.compile(
    rf"error when (?:evicting|deleting) pods?[ /]{_POD}(?: -n \"?(?P<namespace>[a-z0-9-]{{1,80}})\"?)?"
    r"(?: \(will retry after (?P<retry>\d{1,6}(?:\.\d{1,3})?)(?P<unit>ms|s|m)\))?:? ?(?P<why>.{0,600})"
)
_WAITING = re.compile(
    rf"error when waiting for pod {_POD}(?: in namespace \"?(?P<namespace>[a-z0-9-]{{1,80}})\"?)? (?:to"
    rf" terminate|terminating): (?P<why>.{{0,300}})"
)
_GONE = re.compile(r"pod[/ ]\"?(?P<pod>[a-z0-9][a-z0-9./-]{0,300})\"? (?:evicted|deleted)\b")
_DONE = re.compile(
    r"node[/ ]\"?(?P<node>[A-Za-z0-9.-]{1,200})\"? (?P<what>drained|evicted|already cordoned|cordoned|uncordoned)\b"
)
_UNABLE = re.compile(r"error: unable to drain node \"(?P<node>[^\"]{1,200})\"(?: due to error: ?(?P<why>.{0,2000}))?")
_CANNOT = re.compile(
    r"cannot delete (?P<what>[^:\[]{3,160}?)(?: \(use (?P<flag>--[a-z-]{3,40})[^)]{0,80}\))?: "
    r"(?P<pods>[a-z0-9][a-z0-9./-]{0,300}(?:, (?!cannot |continuing |aborting )[a-z0-9][a-z0-9./-]{0,300}){0,50})"
)
_REQUEST = re.compile(
    r"/namespaces/(?P<namespace>[a-z0-9-]{1,80})/pods/(?P<pod>[a-z0-9.-]{1,253})/eviction\S{0,60} (?:.{0,20} )?429\b"
)
"""A request of `-v=6` and more. 429 is the API server's answer when a budget forbids the eviction now."""
_TIMEOUT = re.compile(r"global timeout reached: ?(?P<after>[0-9hms.]{1,20})")
_HTTP = re.compile(r"429 Too Many Requests|\"reason\": ?\"TooManyRequests\"|TooManyRequests")
_BUDGET = re.compile(
    r"disruption budget ([a-z0-9.-]{1,200}) needs (\d{1,6}) healthy pods and has (\d{1,6}) currently"
)


class Blocker(StrEnum):
    BUDGET = "pod-disruption-budget"
    CLAIMED_BY_SEVERAL = "several-disruption-budgets"
    FORBIDDEN = "forbidden"
    TERMINATING = "namespace-terminating"
    WEBHOOK = "admission-webhook"
    THROTTLED = "too-many-requests"
    SLOW_END = "pod-does-not-end"
    OTHER = "other"


_CAUSES: tuple[tuple[Blocker, re.Pattern[str]], ...] = (
    (Blocker.CLAIMED_BY_SEVERAL, re.compile(r"more than one PodDisruptionBudget", re.IGNORECASE)),
    (Blocker.BUDGET, re.compile(r"disruption budget", re.IGNORECASE)),
    (Blocker.TERMINATING, re.compile(r"because it is being terminated|is being terminated", re.IGNORECASE)),
    (Blocker.FORBIDDEN, re.compile(r"forbidden", re.IGNORECASE)),
    (Blocker.WEBHOOK, re.compile(r"admission webhook", re.IGNORECASE)),
    (Blocker.THROTTLED, _HTTP),
)


@dataclass
class Blocked:
    """A pod that an eviction did not move."""

    pod: str
    blocker: Blocker
    attempts: int = 0
    retry_after_s: float | None = None
    budget: str | None = None
    why: str = ""
    lines: list[int] = field(default_factory=list)


@dataclass
class Drain:
    """One drain, as far as the text goes."""

    node: str | None = None
    blocked: dict[str, Blocked] = field(default_factory=dict)
    evicting: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    done: bool = False
    timed_out_after: str | None = None
    unable: bool = False
    refused: list[tuple[str, str | None, str, int]] = field(default_factory=list)
    """(what is refused, the flag that allows it, pods, line)."""
    last_line: int = 0

    @property
    def seen(self) -> bool:
        return bool(self.blocked or self.evicting or self.gone or self.done or self.unable or self.refused)


def cause_of(why: str) -> Blocker:
    return next((cause for cause, pattern in _CAUSES if pattern.search(why)), Blocker.OTHER)


def parse(lines: Sequence[Line]) -> Drain:
    """Read the drain. A pod that is evicted in the end does not block any more."""
    found = Drain()
    for line in lines:
        if _line(line, found):
            found.last_line = line.number
    return found


def _line(line: Line, found: Drain) -> bool:
    text = line.text.strip()[:4000]
    if match := _UNABLE.search(text):
        found.node, found.unable = match["node"], True
        _timeout(text, found)
        _refusals(line, match["why"] or "", found)
    elif (match := _ERROR.search(text)) and not text.startswith("There are pending"):
        _error(line, match, found)
    elif match := _REQUEST.search(text):
        _blocked(found, match, Blocker.BUDGET, line)
    elif match := _WAITING.search(text):
        _blocked(found, match, Blocker.SLOW_END, line).why = match["why"]
        _timeout(text, found)
    elif match := _GONE.search(text):
        found.gone.append(match["pod"])
        for key in [key for key, entry in found.blocked.items() if _same(entry.pod, match["pod"])]:
            del found.blocked[key]
    elif match := _DONE.search(text):
        found.node = match["node"]
        found.done = found.done or match["what"] in ("drained", "evicted")
    elif "cannot delete " in text and _CANNOT.search(text):
        _refusals(line, text, found)
    elif match := _EVICTING.search(text):
        found.evicting.append(match["pod"])
    else:
        _timeout(text, found)
        return False
    return True


def _timeout(text: str, found: Drain) -> None:
    if match := _TIMEOUT.search(text):
        found.timed_out_after = match["after"]


def _refusals(line: Line, text: str, found: Drain) -> None:
    for match in _CANNOT.finditer(text):
        if len(found.refused) < 100:
            found.refused.append((match["what"].strip(), match["flag"], match["pods"].strip(), line.number))


def _error(line: Line, match: re.Match[str], found: Drain) -> None:
    why = match["why"]
    if not why and match["retry"] is None:
        return
    _timeout(why, found)
    entry = _blocked(found, match, cause_of(why), line)
    if _TIMEOUT.search(why) is None:
        entry.why = why
    if match["retry"]:
        seconds = float(match["retry"]) * {"ms": 0.001, "s": 1, "m": 60}[match["unit"]]
        entry.retry_after_s = int(seconds) if seconds == int(seconds) else seconds
    if budget := _BUDGET.search(why):
        entry.budget = budget[1]


def _blocked(found: Drain, match: re.Match[str], cause: Blocker, line: Line) -> Blocked:
    pod = match["pod"].strip("/")
    namespace = match["namespace"]
    label = f"{namespace}/{pod}" if namespace and "/" not in pod else pod
    key = next((key for key in found.blocked if _same(key, label)), label)
    entry = found.blocked.get(key)
    if entry is None:
        entry = found.blocked[key] = Blocked(label, cause)
    if "/" in label:
        entry.pod = label
    if cause is not Blocker.OTHER:
        entry.blocker = cause
    entry.attempts += 1
    entry.lines.append(line.number)
    return entry


def _same(one: str, other: str) -> bool:
    """Equal pods; either may lack its namespace."""
    if "/" in one and "/" in other:
        return one == other
    return one.rpartition("/")[2] == other.rpartition("/")[2]
