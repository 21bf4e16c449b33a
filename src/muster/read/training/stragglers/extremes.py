"""Megatron's detector: one line with the least and the largest of each metric and the rank that showed it
(`MnRtt/Rnk`).

Extremes of many ranks always show somebody, so one line blames nobody. What counts is the same rank at the bottom of
the estimated throughput again and again, by more than jitter.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import ClassVar, Final

from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.peers import LEAST_SLOWDOWN
from muster.read.training.stragglers.reader import MAX_ROWS, NUMBER, look_at, number
from muster.resources.fault import Hint, Scope, Severity

LEAST_REPORTS: Final = 5
LEAST_SHARE: Final = 0.8
"""Of the reports in which the same rank is the slowest. By chance, five of five: once in 10,000 for ten ranks."""
DATA_SHARE: Final = 0.5
"""Of the round trip: a batch that takes longer to load than this holds the step up."""

IMPOSSIBLE_TFLOPS: Final = 40_000.0
"""Above every GPU: the largest rate of a part sold in 2026 (FP4, sparse) is half of it."""
LEAST_GROWTH: Final = 2.0
"""From the first report to the last, while rising in each: a sum that is never reset, and no rate."""

_METRIC = re.compile(
    rf"(?P<which>Mn|Mx)(?P<name>D?Rtt|Pwr|Tmp|Utl|Clk|Etpt)/Rnk:\s*(?P<value>{NUMBER})\s*(?P<unit>ms|mW|W|C|%|MHz|TF)?/(?P<rank>\d{{1,7}})"
)
_LIST = re.compile(
    r"\^{2,}\s*(?P<which>Bottom|Top)\s+\d+ Ranks with (?:lowest|highest)\s+Etpt\s*\(TF\):(?P<pairs>.*)$"
)
_PAIR = re.compile(rf"(?P<value>{NUMBER})(?:TF)?/(?P<rank>\d{{1,7}})")
_NAMES = {
    "Rtt": ("round_trip", "ms"),
    "DRtt": ("data_time", "ms"),
    # The detector prints milliwatts with a W behind them.
    "Pwr": ("power", "mW"),
    "Tmp": ("temperature", "C"),
    "Utl": ("utilisation", "%"),
    "Clk": ("clock", "MHz"),
    "Etpt": ("throughput", "TFLOP/s"),
}

_Pair = tuple[float | None, int]


class Extremes:
    """Reads lines of least and largest; the values are those of the last line, persistence is over all."""

    marks: ClassVar[tuple[str, ...]] = ("Rtt/Rnk", "Etpt")

    def __init__(self) -> None:
        self._last: dict[str, _Pair] = {}
        self._slowest: Counter[int] = Counter()
        self._data: Counter[int] = Counter()
        self._rates: list[float] = []
        self._reports = 0
        self._lists: dict[str, dict[int, float | None]] = {}

    def feed(self, line: Line) -> bool:
        if "/Rnk:" in line.text:
            found = {
                f"{m['which']}{m['name']}": (number(m["value"]), int(m["rank"])) for m in _METRIC.finditer(line.text)
            }
            if found and self._reports < MAX_ROWS:
                self._take(found)
            return bool(found)
        if match := _LIST.search(line.text):
            pairs = {int(m["rank"]): number(m["value"]) for m in _PAIR.finditer(match["pairs"])}
            self._lists[match["which"].lower()] = pairs
            return True
        return False

    def _take(self, found: dict[str, _Pair]) -> None:
        self._reports += 1
        self._last = found
        least, most = found.get("MnEtpt"), found.get("MxEtpt")
        self._rates += [most[0]] if most and most[0] is not None else []
        if least and most and least[0] is not None and most[0] and least[0] <= (1 - LEAST_SLOWDOWN) * most[0]:
            self._slowest[least[1]] += 1
        data, whole = found.get("MxDRtt"), found.get("MnRtt")
        if data and whole and data[0] is not None and whole[0] and data[0] >= DATA_SHARE * whole[0]:
            self._data[data[1]] += 1

    def finish(self, context: Context) -> Finding | None:  # noqa: ARG002 - the interface of a reader
        if not self._reports:
            return None
        values = self._values()
        persistent = (
            ()
            if self._unusable()
            else tuple(
                rank
                for rank, times in sorted(self._slowest.items())
                if self._reports >= LEAST_REPORTS and times >= LEAST_SHARE * self._reports
            )
        )
        values["stragglers"] = Value(list(persistent))
        verdicts = [self._verdict(persistent)]
        incidents: list[Incident] = []
        advice = look_at(persistent, {})
        if self._unusable():
            advice = (
                "Throw away the throughput figures: their counter is not reset. Compare round trip times instead."
            )
        if persistent:
            fields = {"ranks": list(persistent), "confidence": "low"}
            incidents.append(Incident("straggler", persistent, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields))
        if self._data:
            ranks = tuple(sorted(self._data))
            verdicts.append(Verdict("job", Result.WARN, "data-stall", "A batch took long to load on one rank."))
            fields = {"suspect": "unknown", "confidence": "low", "ranks": list(ranks)}
            incidents.append(Incident("data-loading", ranks, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields))
            advice = f"{advice} Look at the data loading of rank {', '.join(map(str, ranks[:8]))}.".strip()
        return Finding(values, tuple(verdicts), tuple(incidents), advice)

    def _unusable(self) -> bool:
        """True when the throughput cannot be one."""
        rates = self._rates
        rising = len(rates) >= LEAST_REPORTS and all(a < b for a, b in pairwise(rates))
        return bool(rates) and (max(rates) > IMPOSSIBLE_TFLOPS or (rising and rates[-1] >= LEAST_GROWTH * rates[0]))

    def _verdict(self, persistent: tuple[int, ...]) -> Verdict:
        if any(value is None for value, _ in self._last.values()):
            return Verdict("peer-comparison", Result.UNKNOWN, "not-a-number", "A metric is no number.")
        if self._unusable():
            text = "The throughput is above that of any GPU, or grows from report to report: a sum and no rate."
            return Verdict("peer-comparison", Result.INVALID, "impossible-throughput", text)
        if persistent:
            text = f"Slowest in most of {self._reports} reports, by more than {LEAST_SLOWDOWN:.0%}."
            return Verdict("peer-comparison", Result.WARN, "straggler", text)
        if self._reports >= LEAST_REPORTS:
            return Verdict("peer-comparison", Result.PASS, "no-straggler", "No rank is the slowest again and again.")
        text = f"Least and largest of many ranks always show somebody; {LEAST_REPORTS} reports are needed."
        return Verdict("peer-comparison", Result.UNKNOWN, "extremes-only", text)

    def _values(self) -> dict[str, Value]:
        values = {"reports": Value(self._reports)}
        for key, (value, rank) in self._last.items():
            name, unit = _NAMES[key[2:]]
            values[f"{name}_{'min' if key.startswith('Mn') else 'max'}"] = Value(value, unit, {"rank": rank})
        for which, pairs in sorted(self._lists.items()):
            values[f"{which}_ranks"] = Value(dict(sorted(pairs.items())), "TFLOP/s")
        return values
