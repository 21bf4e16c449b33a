"""Performance scores per rank as NVIDIA's resiliency extension prints them (`GPU relative performance:`).

A relative score compares a rank with the fastest, an individual one with its own past; 1 is best. The customary limit
of both is 0.75 in NeMo's recipes and 0.7 in the extension itself; the stricter is used here.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.peers import MIN_PEERS, Peers
from muster.read.training.stragglers.reader import MAX_RANKS, NUMBER, look_at, number
from muster.resources.fault import Hint, Scope, Severity

CUSTOMARY_LIMIT: Final = 0.75

_TITLE = re.compile(r"GPU (?P<which>relative|individual) performance:", re.IGNORECASE)
_PART = re.compile(r"(?:Worst|Best) performing \d+/(?P<ranks>\d{1,7}) ranks", re.IGNORECASE)
_ROW = re.compile(
    rf"Rank=(?P<rank>\d{{1,7}})\s+Node=(?P<node>\S{{1,253}})\s+Score=(?P<score>{NUMBER})", re.IGNORECASE
)
_SUMMARY = re.compile(
    r"gpu_(?P<which>relative|individual)_perf/(?P<what>min|median|max)'?\"?\s*[:=]\s*", re.IGNORECASE
)
_NUMBER = re.compile(NUMBER, re.IGNORECASE)
_MAPPING = re.compile(
    r"\bGPUs?[ _](?P<which>relative|individual)[ _]perf(?:ormance)?(?:[ _]scores)?['\"]?\s*[:=]\s*"
    r"\{(?P<pairs>[^{}]*)(?P<end>\}?)",
    re.IGNORECASE,
)
_PAIR = re.compile(rf"['\"]?(?P<rank>\d{{1,7}})['\"]?\s*:\s*(?P<score>{NUMBER})", re.IGNORECASE)
_WARNING = re.compile(
    r"STRAGGLER DETECTION WARNING:.*?(?P<kind>relative|dropped).*?Affected ranks:(?P<ranks>.{0,2000})"
)


class Scores:
    """Reads score reports; the last one of each kind counts."""

    marks: ClassVar[tuple[str, ...]] = (
        "GPU relative performance:",
        "GPU individual performance:",
        "_perf/",
        " perf: {",
        "_perf_scores",
        "STRAGGLER DETECTION",
    )

    def __init__(self) -> None:
        self._scores: dict[str, dict[int, float | None]] = {}
        self._summary: dict[str, dict[str, float | None]] = {}
        self._total: dict[str, int] = {}
        self._nodes: dict[int, str] = {}
        self._warned: set[int] = set()
        self._which = ""
        self._reports = 0

    def feed(self, line: Line) -> bool:
        text = line.text
        if match := _TITLE.search(text):
            self._which = match["which"].lower()
            self._scores[self._which] = {}
            self._total.pop(self._which, None)
            self._reports += self._which == "relative"
            return True
        if (match := _MAPPING.search(text)) and self._mapping(match):
            return True
        if "Score=" in text and self._which and line.ended and (match := _ROW.search(text)):
            rank = int(match["rank"])
            if rank < MAX_RANKS:
                self._scores[self._which][rank] = number(match["score"])
                self._nodes[rank] = match["node"]
            return True
        if self._which and (match := _PART.search(text)):
            self._total[self._which] = int(match["ranks"])
            return True
        if "_perf/" in text:
            return self._summarise(text)
        if match := _WARNING.search(text):
            self._warned |= {int(n) for n in re.findall(r"(?<![\w.])\d{1,7}(?![\w.])", match["ranks"])}
            return True
        return False

    def _mapping(self, match: re.Match[str]) -> bool:
        """All scores of one kind on one line, as the report object of the extension prints them."""
        pairs = {int(m["rank"]): number(m["score"]) for m in _PAIR.finditer(match["pairs"])}
        if not pairs or not match["end"]:
            return False
        which = match["which"].lower()
        self._reports += which == "relative"
        self._scores[which] = {rank: score for rank, score in pairs.items() if rank < MAX_RANKS}
        self._total.pop(which, None)
        return True

    def _summarise(self, text: str) -> bool:
        found = False
        for match in _SUMMARY.finditer(text):
            if (value := _NUMBER.match(text, match.end())) is not None:
                self._summary.setdefault(match["which"].lower(), {})[match["what"].lower()] = number(value[0])
                found = True
        return found

    def finish(self, context: Context) -> Finding | None:  # noqa: ARG002 - the interface of a reader
        if not any(self._scores.values()) and not self._summary:
            return None
        verdicts: list[Verdict] = []
        slow: tuple[int, ...] = ()
        if "relative" in self._scores or "relative" in self._summary:
            verdict, slow = self._peers()
            verdicts.append(verdict)
        own: tuple[int, ...] = ()
        if "individual" in self._scores or "individual" in self._summary:
            verdict, own = self._history()
            verdicts.append(verdict)
        named = tuple(sorted({*slow, *own}))
        values = self._values()
        values["stragglers"] = Value(list(named))
        incidents: tuple[Incident, ...] = ()
        if named:
            fields: dict[str, Any] = {"ranks": list(named), "confidence": "low"}
            incidents = (Incident("straggler", named, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields),)
        return Finding(values, tuple(verdicts), incidents, look_at(named, self._nodes))

    def _values(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        counts = [*self._total.values(), *(len(scores) for scores in self._scores.values())]
        if any(counts):
            values["ranks"] = Value(max(counts))
        for which, scores in self._scores.items():
            values[f"{which}_score"] = Value(dict(sorted(scores.items())))
        for which in sorted({*self._scores, *self._summary}):
            told = self._summary.get(which, {})
            scored = [s for s in self._scores.get(which, {}).values() if s is not None]
            for what, fallback in (("min", min), ("max", max)):
                if what in told:
                    values[f"{which}_{what}"] = Value(told[what])
                elif scored:
                    values[f"{which}_{what}"] = Value(fallback(scored))
            if told.get("median") is not None:
                values[f"{which}_median"] = Value(told["median"])
        told = self._summary.get("relative", {})
        if told.get("median") is not None and told.get("min") is not None:
            values["median_equals_min"] = Value(told["median"] == told["min"])
        if self._warned:
            values["reported_stragglers"] = Value(sorted(self._warned))
        return values

    def _unusable(self, of: str, which: str) -> Verdict | None:
        scores = self._scores.get(which, {})
        if any(score is None for score in scores.values()) or any(
            value is None for value in self._summary.get(which, {}).values()
        ):
            return Verdict(of, Result.UNKNOWN, "not-a-number", "A score that is no number is a missing measurement.")
        if not scores:
            return Verdict(of, Result.UNKNOWN, "no-scores", "The report holds no score of a rank.")
        return None

    def _peers(self) -> tuple[Verdict, tuple[int, ...]]:
        of = "peer-comparison"
        scores = self._scores.get("relative", {})
        known = {rank: score for rank, score in scores.items() if score is not None}
        total = self._total.get("relative", len(scores))
        unusable = self._unusable(of, "relative")
        if total < MIN_PEERS and unusable is None:
            text = f"Comparing fewer than {MIN_PEERS} ranks says nothing."
            return Verdict(of, Result.UNKNOWN, "insufficient-peers", text, {"min_peers": MIN_PEERS}), ()
        below = {rank for rank, score in known.items() if score < CUSTOMARY_LIMIT and total >= MIN_PEERS}
        # The worst and the best of many are no sample: their median and spread are not those of the ranks.
        apart = Peers({r: -s for r, s in known.items()}).slow() if len(known) == total >= MIN_PEERS else ()
        slow = tuple(sorted({*below, *apart}))
        if slow:
            text = f"Below {CUSTOMARY_LIMIT} or far below the other ranks: {', '.join(map(str, slow[:8]))}."
            return Verdict(of, Result.WARN, "straggler", text), slow
        if unusable is not None:
            return unusable, ()
        return Verdict(
            of, Result.PASS, "no-straggler", f"No score is below {CUSTOMARY_LIMIT} or far from the rest."
        ), ()

    def _history(self) -> tuple[Verdict, tuple[int, ...]]:
        of = "own-history"
        scores = self._scores.get("individual", {})
        slow = tuple(sorted(rank for rank, s in scores.items() if s is not None and s < CUSTOMARY_LIMIT))
        if slow:
            text = f"Slower than their own past: rank {', '.join(map(str, slow[:8]))}."
            return Verdict(of, Result.WARN, "slower-than-before", text), slow
        unusable = self._unusable(of, "individual")
        if unusable is not None:
            return unusable, ()
        return Verdict(of, Result.PASS, "as-before", f"No score is below {CUSTOMARY_LIMIT}."), ()
