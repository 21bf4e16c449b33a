"""From findings to faults: repeated findings of one entity collapse, in bounded memory per fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster.read.kernel.finding import Code, Detection, Finding
from muster.read.moment import Moment
from muster.read.report import HINT_RANK, SEVERITY_RANK, Evidence
from muster.resources.fault import Entity, EntityKind, Severity

MAX_FAULTS = 4096
MAX_NUMBERS = 20
MAX_TEXTS = 4
MAX_DISTINCT = 1024
MAX_LISTED = 64
BURST_GAP_S = 60.0
MAX_BURSTS = 64

_COLLECTED = {
    "pid": "pids",
    "process": "processes",
    "channel": "channels",
    "address": "addresses",
    "function": "functions",
    "unit_of_gpu": "units_of_gpu",
}
"""Details that differ from line to line, and the name of their list."""


class Burst:
    """Sightings without a longer pause, in time and in lines."""

    __slots__ = ("count", "end", "end_line", "order", "start", "start_line")

    def __init__(self, moment: Moment | None, order: int) -> None:
        self.start = self.end = moment
        self.start_line = self.end_line = order
        self.order = order
        self.count = 1


class Tracked:
    """One fault while its findings are collected."""

    def __init__(self, finding: Finding, order: int) -> None:
        detection = finding.detection
        self.detection = detection
        self.host = finding.host
        self.order = order
        self.count = 0
        self.companions = 0
        self.first = finding.first
        self.last = finding.last
        self.details: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        self.listed: dict[str, list[Any]] = {}
        self.distinct: dict[str, set[Any]] = {}
        self.cut_pids: list[str] = []
        self.bursts: list[Burst] = []
        self.boot_ids: list[str] = []
        self.cleared = False
        self.follows: Code = None
        self._merged: dict[int, Detection] = {}
        """Detections that bring nothing new; a storm repeats the same few (kept, so that their ids stay theirs)."""
        self._evidence: dict[str, tuple[list[int], list[str], list[int]]] = {}

    @property
    def code(self) -> Code:
        return self.detection.code

    @property
    def severity(self) -> Severity:
        return self.detection.severity or Severity.INFO

    @property
    def gpu(self) -> str | None:
        """The address (or UUID) of the GPU that this is about, None for other entities."""
        if self.detection.entity.kind not in (EntityKind.GPU, EntityKind.NVLINK):
            return None
        return self.detection.entity.pci or self.detection.entity.uuid

    def add(self, finding: Finding, file: str, order: int) -> None:
        detection = finding.detection
        if detection.companion:
            self.companions += 1
        else:
            self.count += detection.count
            self._burst(finding, order)
        self.cleared = False
        self._times(finding)
        if id(detection) not in self._merged:
            self._merge(detection)
            if len(self._merged) < MAX_LISTED:
                self._merged[id(detection)] = detection
        elif "function" in self.listed and detection.details.get("function") is not None:
            self._collect(detection)
        self._note(file, finding)
        if finding.boot_id and finding.boot_id not in self.boot_ids and len(self.boot_ids) < 16:
            self.boot_ids.append(finding.boot_id)

    def absorb(self, other: Tracked, count: bool = False) -> None:
        """Take over the evidence and details of a fault that means the same; `count`: and its sightings."""
        if count:
            self.count += other.count
        for file, (numbers, texts, total) in other._evidence.items():
            mine = self._evidence.setdefault(file, ([], [], [0]))
            mine[0][:] = sorted({*mine[0], *numbers})[:MAX_NUMBERS]
            mine[1].extend(text for text in texts[: max(0, MAX_TEXTS - len(mine[1]))])
            mine[2][0] += total[0]
        for name, value in {**other.details}.items():
            if self.details.get(name) is None:
                self.details[name] = value
        for name, value in other.about.items():
            if self.about.get(name) is None:
                self.about[name] = value
        if self.first is None or (other.first and (other.first.since(self.first) or 0) < 0):
            self.first = other.first or self.first
        if self.last is None or (other.last and (other.last.since(self.last) or 0) > 0):
            self.last = other.last or self.last
        self.order = min(self.order, other.order)

    def evidence(self) -> tuple[Evidence, ...]:
        return tuple(
            Evidence(file, tuple(numbers), tuple(texts), total[0])
            for file, (numbers, texts, total) in self._evidence.items()
        )

    def distinct_pids(self) -> int:
        """Different processes; a cut number counts if no whole one begins with it."""
        pids = self.distinct.get("pid", set())
        cut = [pid for pid in self.cut_pids if not any(str(known).startswith(pid) for known in pids)]
        return len(pids) + len(set(cut))

    def _times(self, finding: Finding) -> None:
        earlier = finding.first is not None and (finding.first.since(self.first) or 0) < 0
        if self.first is None or (earlier and len(self.boot_ids) < 2):
            self.first = finding.first
        if finding.last is not None and (self.last is None or (finding.last.since(self.last) or 0) >= 0):
            self.last = finding.last

    def _merge(self, detection: Detection) -> None:
        mine = self.detection
        rank = (SEVERITY_RANK[detection.severity or Severity.INFO], HINT_RANK[detection.hint])
        if rank > (SEVERITY_RANK[self.severity], HINT_RANK[mine.hint]):
            self.detection = mine.changed(severity=detection.severity, hint=detection.hint, scope=detection.scope)
        if mine.entity.uuid is None and detection.entity.uuid is not None:
            self.detection = self.detection.changed(entity=detection.entity)
        for name, value in detection.details.items():
            if self.details.get(name) is None:
                self.details[name] = value
        for name, value in detection.about.items():
            if self.about.get(name) is None:
                self.about[name] = value
        self._collect(detection)

    def _collect(self, detection: Detection) -> None:
        details = dict(detection.details)
        if details.get("gpc") is not None:
            details["unit_of_gpu"] = f"{details['gpc']}/{details['tpc']}/{details['sm']}"
        if details.pop("pid_cut", False) and details.get("pid") is not None:
            if len(self.cut_pids) < MAX_LISTED:
                self.cut_pids.append(str(details["pid"]))
            details["pid"] = None
            self.details.pop("pid_cut", None)
            if self.details.get("pid") == detection.details["pid"] and not self.distinct.get("pid"):
                self.details["pid"] = None
        for name in _COLLECTED:
            value = details.get(name)
            if value is None:
                continue
            seen = self.distinct.setdefault(name, set())
            listed = self.listed.setdefault(name, [])
            if (value not in seen or name == "function") and len(listed) < MAX_LISTED:
                listed.append(value)
            if len(seen) < MAX_DISTINCT:
                seen.add(value)

    def _burst(self, finding: Finding, order: int) -> None:
        last = self.bursts[-1] if self.bursts else None
        if last is not None:
            gap = finding.first.since(last.end) if finding.first is not None else None
            near = gap is not None and 0 <= gap <= BURST_GAP_S
            if near or (finding.first is None and last.end is None):
                last.end, last.end_line = finding.last, order
                last.count += 1
                return
        if len(self.bursts) >= MAX_BURSTS:
            self.bursts.pop(MAX_BURSTS // 2)
        burst = Burst(finding.first, order)
        burst.end = finding.last
        self.bursts.append(burst)

    def _note(self, file: str, finding: Finding) -> None:
        numbers, texts, total = self._evidence.setdefault(file, ([], [], [0]))
        for number, text in finding.lines:
            total[0] += 1
            if len(numbers) < MAX_NUMBERS:
                numbers.append(number)
            if len(texts) < MAX_TEXTS:
                texts.append(text)


def listed_name(name: str) -> str:
    return _COLLECTED[name]


class Collector:
    """All faults and notes of an input."""

    def __init__(self) -> None:
        self.faults: dict[tuple[Any, ...], Tracked] = {}
        self.notes: list[Finding] = []
        self.not_listed = 0
        """Findings of further faults beyond MAX_FAULTS."""
        self.findings = 0
        self.lines_used = 0
        self.xid_lines = 0
        self._order = 0

    def add(self, finding: Finding, file: str) -> None:
        self._order += 1
        self.findings += 1
        self.lines_used += len(finding.lines)
        detection = finding.detection
        if detection.check in ("xid", "nvlink5") and not detection.companion:
            self.xid_lines += 1
        self._clear(finding)
        if detection.severity is None:
            if len(self.notes) < MAX_FAULTS:
                self.notes.append(finding)
            return
        key = _key(finding)
        tracked = self.faults.get(key)
        if tracked is None:
            if len(self.faults) >= MAX_FAULTS:
                self.not_listed += 1
                return
            tracked = self.faults[key] = Tracked(finding, self._order)
        tracked.add(finding, file, self._order)

    def listed(self) -> Iterator[Tracked]:
        """The faults in the order of their first line."""
        return iter(sorted(self.faults.values(), key=lambda tracked: tracked.order))

    def remove(self, tracked: Tracked) -> None:
        self.faults = {key: value for key, value in self.faults.items() if value is not tracked}

    def _clear(self, finding: Finding) -> None:
        device = finding.detection.entity.pci
        for check, code in finding.detection.clears:
            for tracked in self.faults.values():
                same = tracked.detection.entity.pci == device and tracked.host == finding.host
                if same and tracked.detection.check == check and str(tracked.code) == code:
                    tracked.cleared = True


def _key(finding: Finding) -> tuple[Any, ...]:
    detection = finding.detection
    about = tuple(detection.about.get(name) for name in ("module", "minor", "interface", "fabric_id", "physical_id"))
    return (finding.host, detection.check, detection.code, identity(detection.entity), about, detection.group)


def identity(entity: Entity) -> tuple[Any, ...]:
    """What makes an entity the same one within a log: its address where there is one, else its names."""
    where = entity.pci or entity.uuid or entity.device or entity.name
    return (entity.kind, where, entity.link, entity.port)
