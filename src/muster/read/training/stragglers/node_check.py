"""Times of a pairwise check of all nodes before the job, as DLRover logs them.

Two nodes share each test, so one round cannot tell a slow node from its partner: over the rounds the least time of a
node counts. A time of 3600 s is the program's mark for a test that did not end.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.stragglers.reader import NUMBER, judge, number
from muster.resources.fault import Hint, Scope, Severity

FAILED_S: Final = 3600.0

_TIMES = re.compile(r"(?:elapsed|check|node)[ _]times?\b[^{]{0,120}\{(?P<pairs>[^}]*)\}?", re.IGNORECASE)
_PAIR = re.compile(rf"['\"]?(?P<node>\d{{1,7}})['\"]?\s*:\s*(?P<time>{NUMBER})")
_OWN = re.compile(
    rf"Network check time of round (?P<round>\d{{1,4}}) is (?P<time>{NUMBER}) and succeed is (?P<ok>True|False)"
)
_END = re.compile(
    r"Fault nodes are:\s*\[(?P<faults>[^\]]{0,4000})\].{0,200}?stragglers are:\s*\[(?P<slow>[^\]]{0,4000})\]",
    re.IGNORECASE,
)
_SLOW = re.compile(r"\bStraggler:\s*\{(?P<pairs>[^}]*)\}")


class NodeCheck:
    """Reads rounds of node times and what the program concluded."""

    marks: ClassVar[tuple[str, ...]] = ("elapsed time", "check time", "stragglers are", "Straggler: {", "node_times")

    def __init__(self) -> None:
        self._rounds: list[dict[int, float | None]] = []
        self._own: dict[int, tuple[float | None, bool]] = {}
        self._faults: set[int] = set()
        self._named: set[int] = set()
        self._ended = False

    def feed(self, line: Line) -> bool:
        text = line.text
        if match := _OWN.search(text):
            self._own[int(match["round"])] = (number(match["time"]), match["ok"] == "True")
            return True
        if match := _END.search(text):
            self._ended = True
            self._faults |= _numbers(match["faults"])
            self._named |= _numbers(match["slow"])
            return True
        if match := _SLOW.search(text):
            self._named |= {int(m["node"]) for m in _PAIR.finditer(match["pairs"])}
            return True
        if (match := _TIMES.search(text)) and line.ended:
            found = {int(m["node"]): number(m["time"]) for m in _PAIR.finditer(match["pairs"])}
            if found and len(self._rounds) < 1000:
                self._rounds.append(found)
            return bool(found)
        return False

    def finish(self, context: Context) -> Finding | None:  # noqa: ARG002 - the interface of a reader
        if not (self._rounds or self._own or self._ended or self._named):
            return None
        values: dict[str, Value] = {}
        verdicts: list[Verdict] = []
        slow: tuple[int, ...] = ()
        if self._rounds:
            slow = self._compare(values, verdicts)
        if self._own:
            values["check_time"] = Value({r: t for r, (t, _) in sorted(self._own.items())}, "s")
            values["check_succeeded"] = Value(any(ok for _, ok in self._own.values()))
        if self._ended or self._named:
            values["reported_stragglers"] = Value(sorted(self._named))
            values["reported_fault_nodes"] = Value(sorted(self._faults))
        text = "The check did not end on this node."
        verdicts += [Verdict(f"node {node}", Result.FAIL, "node-check", text) for node in sorted(self._faults)]
        if not verdicts:
            text = "The times of the other nodes are not in this log."
            verdicts.append(Verdict("peer-comparison", Result.UNKNOWN, "no-peers", text))
        fields: dict[str, Any] = {"nodes": list(slow), "confidence": "low"}
        incidents = (Incident("straggler", slow, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields),) if slow else ()
        return Finding(values, tuple(verdicts), incidents, _next(slow, self._faults))

    def _compare(self, values: dict[str, Value], verdicts: list[Verdict]) -> tuple[int, ...]:
        best: dict[int, float | None] = {}
        for times in self._rounds:
            for node, time in times.items():
                known = best.get(node)
                best[node] = time if known is None else known if time is None else min(known, time)
        failed = {node for node, time in best.items() if time is not None and time >= FAILED_S}
        self._faults |= failed
        values["rounds"] = Value(len(self._rounds))
        values["node_time"] = Value(dict(sorted(best.items())), "s")
        compared = {node: time for node, time in best.items() if node not in failed}
        verdict, slow = judge("peer-comparison", compared)
        if slow and len(self._rounds) < 2:
            text = "One round does not tell a slow node from its partner."
            verdict, slow = Verdict("peer-comparison", Result.UNKNOWN, "one-round", text), ()
        verdicts.append(verdict)
        values["stragglers"] = Value(list(slow))
        return slow


def _numbers(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d{1,7}", text)}


def _next(slow: tuple[int, ...], faults: set[int]) -> str:
    if faults:
        return f"Run the node tests on node {', '.join(map(str, sorted(faults)[:8]))}: the check did not end there."
    if slow:
        return f"Run the node tests on node {', '.join(map(str, slow[:8]))}: slow with every partner."
    return ""
