"""Tables of the ranks that waited longest for their data (`slowest ranks by data_time`).

In a synchronous job data time and step time of a rank add up to the same total everywhere: who loads data long shows
a short step, and everyone else waits in the step. So the step time blames nobody, and a rank is a culprit only when
its data time is a real share of the whole step and far above the median.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.stragglers.reader import MAX_ROWS, NUMBER, context_count, number
from muster.resources.fault import Hint, Scope, Severity

LEAST_SHARE: Final = 0.05
"""Of the step: below it data loading costs nobody anything."""
LEAST_RATIO: Final = 10.0
"""To the median data time: a rank that waits as long as everyone is not the culprit."""

_STEP = re.compile(
    rf"\[?step\s+(?P<step>\d{{1,12}})\]?:?\s+step_time(?:_med)?\s*[=:]\s*(?P<time>{NUMBER})\s*s?"
    rf"(?:.*?dt_med\s*[=:]\s*(?P<med>{NUMBER}))?(?:.*?dt_max\s*[=:]\s*(?P<max>{NUMBER}))?",
    re.IGNORECASE,
)
_TITLE = re.compile(rf"slowest ranks by data_time(?:.*?step_time_med\s*=\s*(?P<time>{NUMBER}))?", re.IGNORECASE)
_HEADER = re.compile(r"\s*rank\s+data_time\s+step_time\b", re.IGNORECASE)
_ROW = re.compile(rf"\s*(?P<rank>\d{{1,7}})\s+(?P<data>{NUMBER})\s+(?P<step>{NUMBER})\s*$", re.IGNORECASE)


@dataclass
class _Step:
    step: int
    step_time: float | None
    median: float | None
    rows: dict[int, tuple[float | None, float | None]] = field(default_factory=dict)

    def culprits(self) -> list[int]:
        usual = self.median if self.median is not None else 0.0
        found = []
        for rank, (data, own) in sorted(self.rows.items()):
            total = self.step_time or ((data or 0.0) + (own or 0.0))
            if data is not None and data >= LEAST_SHARE * total and data >= LEAST_RATIO * usual and data > 0:
                found.append(rank)
        return found

    def stalled(self) -> bool:
        """True when data loading held the step up, on some ranks or on all of them."""
        usual = self.median or 0.0
        return bool(self.culprits()) or (self.step_time is not None and usual >= LEAST_SHARE * self.step_time > 0)


class DataLoading:
    """Reads per-step tables of data time and step time."""

    marks: ClassVar[tuple[str, ...]] = ("step_time=", "data_time")

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._in_table = False
        self._rows = 0

    def feed(self, line: Line) -> bool:
        text = line.text
        if match := _STEP.search(text):
            self._steps.append(_Step(int(match["step"]), number(match["time"]), number(match["med"])))
            self._in_table = False
            return True
        if _TITLE.search(text):
            self._in_table = bool(self._steps)
            return True
        if not self._in_table:
            return False
        if _HEADER.match(text):
            return True
        if (match := _ROW.match(text)) and self._rows < MAX_ROWS and line.ended:
            self._rows += 1
            self._steps[-1].rows[int(match["rank"])] = (number(match["data"]), number(match["step"]))
            return True
        return False

    def finish(self, context: Context) -> Finding | None:
        steps = [step for step in self._steps if step.rows]
        if not steps:
            return None
        culprits = {step.step: step.culprits() for step in steps}
        stalled = [step for step in steps if step.stalled()]
        nodes = _nodes(culprits, context)
        twice = _same_twice(culprits, nodes)
        values = _values(steps, culprits, nodes, twice, context)
        if not stalled:
            return Finding(values, (_healthy(steps),))
        everyone = any(not culprits[step.step] for step in stalled)
        suspect = "node" if twice else "shared-storage" if everyone or len(stalled) > 1 else "unknown"
        incident = Incident(
            root="data-loading",
            members=tuple(sorted({rank for ranks in culprits.values() for rank in ranks})),
            severity=Severity.WARNING,
            scope=Scope.JOB,
            hint=Hint.INSPECT,
            fields={"suspect": suspect, "confidence": "low"},
        )
        verdict = Verdict("job", Result.WARN, "data-stall", "Ranks waited for data while all others waited for them.")
        return Finding(values, (verdict,), (incident,), _next(suspect))


def _healthy(steps: list[_Step]) -> Verdict:
    if any(data is None for step in steps for data, _ in step.rows.values()):
        return Verdict("job", Result.UNKNOWN, "not-a-number", "A data time is no number.")
    return Verdict("job", Result.PASS, "no-data-stall")


def _nodes(culprits: Mapping[int, list[int]], context: Context) -> dict[int, list[int]] | None:
    per_node = context_count(context, "ranks_per_node", "gpus_per_node")
    if per_node is None:
        return None
    return {step: sorted({rank // per_node for rank in ranks}) for step, ranks in culprits.items()}


def _same_twice(culprits: Mapping[int, list[int]], nodes: Mapping[int, list[int]] | None) -> bool:
    """True when a rank (or a node, where the layout is told) held up more than one step."""
    seen: set[int] = set()
    for step in culprits:
        group = set((nodes or culprits)[step])
        if group & seen:
            return True
        seen |= group
    return False


def _values(
    steps: list[_Step],
    culprits: dict[int, list[int]],
    nodes: dict[int, list[int]] | None,
    twice: bool,
    context: Context,
) -> dict[str, Value]:
    world = context_count(context, "world_size", "ranks")
    causes = {step.step: "data-loading" if step.stalled() else "none" for step in steps}
    values = {
        "steps": Value([step.step for step in steps]),
        "step_time": Value({step.step: step.step_time for step in steps}, "s"),
        "culprits": Value(culprits),
        "cause": Value(causes),
        "same_group_twice": Value(twice),
        "nodes_held": Value(0),
    }
    if world is not None:
        waiting = {s: world - len(ranks) if ranks else 0 for s, ranks in culprits.items()}
        values["waiting_ranks"] = Value(waiting)
    if nodes is not None:
        values["culprit_nodes"] = Value(nodes, None, {"derived_from": "rank // ranks_per_node"})
    return values


def _next(suspect: str) -> str:
    if suspect == "node":
        return "Look at the data path of the node whose ranks waited in more than one step; no GPU is at fault."
    if suspect == "shared-storage":
        return "Look at the storage that feeds the job: other ranks waited in other steps. No node has to be held."
    return "Look at the data loading of the ranks named; one step does not tell a node from the storage."
