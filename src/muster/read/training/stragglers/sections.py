"""Reports of the time of each rank in each section.

Two layouts: `=== Straggler Report at Step N ===`, and Megatron's timers of all ranks (`times across ranks (ms):`),
whose step is that of the iteration line before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar, Final

from muster.read.report import Incident, Result, Value, Verdict
from muster.read.source import Context
from muster.read.training.finding import Finding
from muster.read.training.lines import Line
from muster.read.training.peers import MIN_PEERS, Peers
from muster.read.training.stragglers.reader import (
    MAX_ROWS,
    NUMBER,
    STAGE_KEYS,
    Phase,
    context_count,
    judge_stages,
    look_at,
    number,
    overall,
    phase_of,
    shown,
)
from muster.resources.fault import Hint, Scope, Severity

MAX_REPORTS: Final = 10_000
MAX_STAGES: Final = 32

_TITLE = re.compile(r"=+\s*straggler report at step\s+(?P<step>\d{1,12})\s*=+", re.IGNORECASE)
_TIMERS = re.compile(r"^\s*times across ranks \(ms\):")
_ITERATION = re.compile(r"\biteration\s+(?P<step>\d{1,12})\s*/")
_GROUP = re.compile(r"\s*(?P<name>section (?:timings|scores)|gpu performance scores)\b(?P<rest>.*)$", re.IGNORECASE)
_NAMED = re.compile(r"detected stragglers\s*:\s*\[?(?P<ranks>[\d,\s]*)\]?", re.IGNORECASE)
_RANK = re.compile(
    rf"\s*-?\s*rank\s+(?P<rank>\d{{1,7}})\s*(?:\((?P<node>[^)]{{1,253}})\))?\s*:\s*(?P<value>{NUMBER})\s*(?P<unit>ms|us|s)?\b",
    re.IGNORECASE,
)
_SECTION = re.compile(r"\s+(?P<name>[A-Za-z_][\w./ -]{0,100}?)\s*:\s*(?P<stats>.*)$")
_STAT = re.compile(
    rf"(?P<name>min|max|avg|slowdown)\s*[:=]\s*(?P<value>{NUMBER})\s*(?P<unit>ms|us|s)?", re.IGNORECASE
)
_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}


@dataclass
class _Section:
    name: str
    times: dict[int, float | None] = field(default_factory=dict)
    stats: dict[str, float] = field(default_factory=dict)

    def complete(self) -> bool:
        """False when the largest value told in the summary is of a rank that is not listed."""
        known = [x for x in self.times.values() if x is not None]
        largest = self.stats.get("max")
        return not known or largest is None or max(known) >= largest * 0.999 - 0.005


@dataclass
class _Report:
    step: int | None
    sections: dict[str, _Section] = field(default_factory=dict)
    gpu: dict[int, float | None] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    timers: bool = False
    """Megatron's timers, whose ranks may belong to several pipeline stages."""


class Sections:
    """Reads per-section reports; the values are those of the last one, persistence is over all."""

    marks: ClassVar[tuple[str, ...]] = ("raggler Report", "raggler report", "times across ranks (ms)", "iteration ")

    def __init__(self) -> None:
        self._reports: list[_Report] = []
        self._section: _Section | None = None
        self._gpu = False
        self._unit = "ms"
        self._rows = 0
        self._iteration: int | None = None

    def feed(self, line: Line) -> bool:
        text = line.text
        if "iteration" in text and (match := _ITERATION.search(text)):
            self._iteration, self._section = int(match["step"]), None
            return False
        match = _TITLE.search(text)
        if match or _TIMERS.match(text):
            if len(self._reports) < MAX_REPORTS:
                step = int(match["step"]) if match else self._iteration
                self._reports.append(_Report(step, timers=match is None))
            self._section, self._gpu, self._unit = None, False, "ms"
            return True
        if not self._reports:
            return False
        report = self._reports[-1]
        if match := _NAMED.search(text):
            report.named |= {int(n) for n in match["ranks"].replace(",", " ").split()}
            return True
        if match := _GROUP.match(text):
            self._gpu = match["name"].lower().startswith("gpu")
            self._unit = "s" if "scores" in match["name"].lower() and not self._gpu else "ms"
            self._section = None
            return True
        if match := _RANK.match(text):
            return self._rank(report, match, line)
        return self._heading(report, text)

    def _rank(self, report: _Report, match: re.Match[str], line: Line) -> bool:
        value = number(match["value"])
        rank = int(match["rank"])
        if not line.ended and match["unit"] is None:
            return True
        self._rows += 1
        if self._rows > MAX_ROWS:
            return True
        if match["node"]:
            report.nodes[rank] = match["node"]
        if self._gpu:
            report.gpu[rank] = value
        elif self._section is not None:
            unit = (match["unit"] or self._unit).lower()
            self._section.times[rank] = None if value is None else shown(value * _MS[unit], 9)
        return True

    def _heading(self, report: _Report, text: str) -> bool:
        match = _SECTION.match(text)
        if match is None or self._gpu:
            return False
        stats = {
            m["name"].lower(): value * (1.0 if m["name"].lower() == "slowdown" else _MS[(m["unit"] or "ms").lower()])
            for m in _STAT.finditer(text)
            if (value := number(m["value"])) is not None
        }
        if match["name"].lower() in ("min", "max", "avg") and self._section is not None:
            self._section.stats |= stats
            return True
        if match["stats"] and not stats:
            return False
        self._section = report.sections.setdefault(match["name"], _Section(match["name"], stats=stats))
        return True

    def finish(self, context: Context) -> Finding | None:
        reports = [r for r in self._reports if any(s.times or s.stats for s in r.sections.values())]
        if not reports:
            return None
        last = reports[-1]
        judged = [_judge(report, context) for report in reports]
        verdicts, slow = judged[-1]
        values = _values(last)
        values["stragglers"] = Value(list(slow))
        if len(reports) > 1:
            seen = sorted({rank for _, ranks in judged for rank in ranks})
            values["reports"] = Value(len(reports))
            values["reports_slow_in"] = Value({r: sum(r in ranks for _, ranks in judged) for r in seen})
        if last.named:
            values["reported_stragglers"] = Value(sorted(last.named))
        incidents: tuple[Incident, ...] = ()
        if slow:
            fields: dict[str, Any] = {"ranks": list(slow), "confidence": "low"}
            incidents = (Incident("straggler", slow, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields),)
        return Finding(values, verdicts, incidents, look_at(slow, last.nodes))


def _judge(report: _Report, context: Context) -> tuple[tuple[Verdict, ...], tuple[int, ...]]:
    """The verdict on each section, and on the step as a whole: slow in one section is slow."""
    sections = [s for s in report.sections.values() if s.times or s.stats]
    judged: list[tuple[Phase, Verdict]] = []
    slow: list[int] = []
    for section in sections:
        of = "step" if len(sections) == 1 else f"section {section.name}"
        if not section.times:
            text = "The times of the ranks are not listed."
            judged.append((Phase.OWN, Verdict(of, Result.UNKNOWN, "incomplete", text)))
            continue
        phase = phase_of(section.name)
        verdict, ranks = judge_stages(of, section.times, context, phase=phase, complete=section.complete())
        if ranks and report.timers and _like_a_stage(ranks, section.times, context):
            text = "These ranks may be the first or last pipeline stage; tell pipeline_stages in the context."
            verdict, ranks = Verdict(of, Result.UNKNOWN, "roles-may-differ", text, {"ranks": list(ranks)}), ()
        judged.append((phase, verdict))
        slow += ranks
    verdicts = [verdict for _, verdict in judged]
    if len(sections) > 1:
        verdicts.append(overall("step", judged))
    return tuple(verdicts), tuple(sorted(set(slow)))


def _like_a_stage(ranks: Sequence[int], times: Mapping[int, float | None], context: Context) -> bool:
    """True when the slow ranks are just the first or the last of equal blocks: those embed, or reckon the loss."""
    size, world = len(ranks), len(times)
    if context_count(context, *STAGE_KEYS) is not None or size < 2 or world % size or world // size > MAX_STAGES:
        return False
    return list(ranks) in (list(range(size)), list(range(world - size, world)))


def _values(report: _Report) -> dict[str, Value]:
    sections = [s for s in report.sections.values() if s.times]
    sections = sections or [s for s in report.sections.values() if s.stats]
    alone = len(sections) == 1

    def of_all(figures: list[Any]) -> Any:
        return figures[0] if alone else {s.name: x for s, x in zip(sections, figures, strict=True)}

    known = [{r: x for r, x in s.times.items() if x is not None} for s in sections]
    values = {
        "section": Value(sections[0].name if alone else [s.name for s in sections]),
        "ranks": Value(max(len(s.times) for s in sections)),
        "time": Value(of_all([dict(sorted(s.times.items())) for s in sections]), "ms"),
        "median": Value(of_all([shown(median(k.values())) if k else None for k in known]), "ms"),
        "mad": Value(of_all([shown(Peers(k).mad) if k else None for k in known]), "ms"),
        "slowdown_max_over_min": Value(of_all([_slowdown(s, k) for s, k in zip(sections, known, strict=True)])),
    }
    if report.step is not None:
        values["step"] = Value(report.step)
    compared = [(Peers(k), s) for k, s in zip(known, sections, strict=True) if len(k) >= MIN_PEERS]
    if compared:
        peers, section = max(compared, key=lambda pair: pair[0].z(pair[0].slowest()))
        rank = peers.slowest()
        more: dict[str, Any] = {"rank": rank} | ({} if alone else {"section": section.name})
        values["robust_z_max"] = Value(shown(peers.z(rank), 4), None, more)
    if report.gpu:
        values["gpu_score"] = Value(dict(sorted(report.gpu.items())))
    return values


def _slowdown(section: _Section, known: dict[int, float]) -> float | None:
    """As printed, else from the times."""
    if "slowdown" in section.stats:
        return section.stats["slowdown"]
    least = min(known.values(), default=0.0)
    return shown(max(known.values()) / least, 2) if least > 0 else None
