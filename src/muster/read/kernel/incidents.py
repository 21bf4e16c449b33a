"""Faults with one root: bursts of several codes on one GPU, switch errors with their GPUs, refused NVLink accesses.

That one event caused another is an inference from order and time, so incidents carry `confidence: low`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.faults import catalogue
from muster.read.kernel.aggregate import Burst, Collector, Tracked
from muster.read.moment import Basis, Moment, half_up
from muster.read.report import SEVERITY_RANK, Incident, entity_plain, span, worst
from muster.resources.fault import Hint, Scope, Severity

CHAIN_GAP_S = 60.0
REFUSED_GAP_S = 10.0
CHAIN_GAP_LINES = 8
"""Where no line has a time: findings that may stand between two of one chain."""
REFUSED_ACCESS = 137
CONTAINED = 94
_FOLLOWERS = (45, 154)
"""Codes that only ever follow another one."""
_OF_THE_WORKLOAD = (109,)
"""Fatal codes that a faulty kernel of the application brings about as well."""


@dataclass(slots=True)
class Event:
    """One burst of one fault. `taken`: part of an incident already."""

    tracked: Tracked
    burst: Burst
    taken: bool = field(default=False)

    def after(self, end: Moment | None, end_line: int) -> float | None:
        """Seconds after `end` (0 for neighbours in a log without times); None: not comparable."""
        if self.burst.start is None and end is None:
            return 0.0 if 0 <= self.burst.start_line - end_line <= CHAIN_GAP_LINES else None
        return self.burst.start.since(end) if self.burst.start is not None else None


def find(collector: Collector) -> tuple[Incident, ...]:
    """All incidents, in the order of their first event. Marks each fault with the code that it follows."""
    events = [
        Event(tracked, burst) for tracked in collector.listed() if not tracked.cleared for burst in tracked.bursts
    ]
    events.sort(key=lambda event: event.burst.order)
    found = [*_refused(events), *_switches(events), *_victims(events), *_same_gpu(events)]
    merged: dict[tuple[Any, ...], tuple[int, Incident, int]] = {}
    for order, key, incident in found:
        before = merged.get(key)
        merged[key] = (before[0], before[1], before[2] + 1) if before else (order, incident, 1)
    result = []
    for _, incident, times in sorted(merged.values(), key=lambda item: item[0]):
        fields = {**incident.fields, "occurrences": times} if times > 1 else incident.fields
        result.append(
            Incident(incident.root, incident.members, incident.severity, incident.scope, incident.hint, fields)
        )
    return tuple(result)


_Found = tuple[int, tuple[Any, ...], Incident]


def _clusters(events: Iterable[Event], gap_s: float) -> list[list[Event]]:
    """Events in time order, split where a pause is longer than `gap_s` or times cannot be compared."""
    ordered = sorted((event for event in events if not event.taken), key=_when)
    clusters: list[list[Event]] = []
    end: Moment | None = None
    end_line = 0
    for event in ordered:
        delay = event.after(end, end_line) if clusters else None
        if delay is None or delay > gap_s:
            clusters.append([])
            end, end_line = event.burst.end, event.burst.end_line
        clusters[-1].append(event)
        later = event.burst.end.since(end) if event.burst.end is not None else None
        if later is None or later > 0:
            end = event.burst.end
        end_line = max(end_line, event.burst.end_line)
    return clusters


def _when(event: Event) -> tuple[str, int, float]:
    """Sorting key; dates without a year keep the order of their lines, as December may come before January."""
    start = event.burst.start
    if start is None:
        return ("", 0, 0.0)
    return (start.basis.value, start.era, 0.0 if start.basis is Basis.YEARLESS else start.seconds)


def _refused(events: Sequence[Event]) -> list[_Found]:
    """Refused NVLink accesses (137) over GPUs and nodes, and the containment (94) that follows them."""
    found = []
    for cluster in _clusters((e for e in events if e.tracked.code in (REFUSED_ACCESS, CONTAINED)), REFUSED_GAP_S):
        roots = [e for e in cluster if e.tracked.code == REFUSED_ACCESS]
        if not roots or cluster[0].tracked.code != REFUSED_ACCESS:
            continue
        places = {(e.tracked.host, e.tracked.gpu) for e in roots}
        if len(places) < 2 and len({e.tracked.code for e in cluster}) < 2:
            continue
        fields: dict[str, Any] = {
            "gpus_with_root": len(places),
            "nodes": sorted({e.tracked.host for e in cluster if e.tracked.host}) or None,
            "owner": "workload",
            "watch_for_recurrence": True,
        }
        incident = _incident(cluster, roots[0], fields)
        found.append(
            (
                roots[0].burst.order,
                (REFUSED_ACCESS, id(roots[0])),
                Incident(incident.root, incident.members, incident.severity, Scope.APPLICATION, Hint.RESTART_APP,
                         incident.fields),
            )
        )  # fmt: skip
    return found


def _switches(events: Sequence[Event]) -> list[_Found]:
    """A switch error and the GPUs that report a broken link or torn-down channels within a minute."""
    found = []
    for switch in events:
        if switch.taken or switch.tracked.detection.check != "sxid" or switch.tracked.severity is Severity.INFO:
            continue
        near = [
            e
            for e in events
            if not e.taken
            and e.tracked.code in (45, 74)
            and e.tracked.host == switch.tracked.host
            and _near(switch, e)
        ]
        if near:
            switch.tracked.details["confirmed_by"] = sorted({int(str(e.tracked.code)) for e in near})
            incident = _incident([switch, *near], switch, {"confirmed": True})
            found.append((switch.burst.order, (switch.tracked.code, id(switch.tracked)), incident))
    return found


def _near(one: Event, other: Event) -> bool:
    if one.burst.start is None and other.burst.start is None:
        return abs(one.burst.start_line - other.burst.start_line) <= CHAIN_GAP_LINES
    if one.burst.start is None or other.burst.start is None:
        return False
    delay = other.burst.start.since(one.burst.start)
    return delay is not None and abs(delay) <= CHAIN_GAP_S


def _victims(events: Sequence[Event]) -> list[_Found]:
    """NVLink errors whose registers name the other side, together with the error that is the cause."""
    found = []
    nvlink = [e for e in events if e.tracked.code == 74 and not e.taken]
    for primary in nvlink:
        if primary.taken or primary.tracked.details.get("role") != "primary":
            continue
        near = [
            e
            for e in nvlink
            if not e.taken and e.tracked.details.get("role") == "secondary" and _near(primary, e)
            and e.tracked.gpu != primary.tracked.gpu
        ]  # fmt: skip
        if near:
            incident = _incident([primary, *near], primary, {})
            found.append((primary.burst.order, (74, id(primary.tracked)), incident))
    return found


def _same_gpu(events: Sequence[Event]) -> list[_Found]:
    """Several codes, or one code on several links, of one GPU without a minute's pause between them."""
    by_gpu: dict[tuple[str | None, str], list[Event]] = {}
    for event in events:
        if not event.taken and event.tracked.gpu is not None:
            by_gpu.setdefault((event.tracked.host, event.tracked.gpu), []).append(event)
    found = []
    for gpu, own in by_gpu.items():
        for cluster in _clusters(own, CHAIN_GAP_S):
            root = next((e for e in cluster if e.tracked.code not in _FOLLOWERS), None)
            codes = {e.tracked.code for e in cluster}
            numbers = [e.tracked.detection.entity.link for e in cluster]
            links = sorted({number for number in numbers if number is not None and number >= 0})
            if root is None or (len(codes) < 2 and len(links) < 2):
                continue
            fields: dict[str, Any] = {"entity": _entity(root.tracked)}
            if len(links) > 1:
                fields["links"] = links
            if _of_the_workload(root, cluster):
                fields["owner"] = "workload"
            incident = _incident(cluster, root, fields)
            found.append((root.burst.order, (*gpu, incident.root, incident.members), incident))
    return found


def _of_the_workload(root: Event, cluster: Sequence[Event]) -> bool:
    code = root.tracked.code
    if not isinstance(code, int) or catalogue.xid(code).category != "application":
        return False
    fatal = [e.tracked.code for e in cluster if e.tracked.severity is Severity.FATAL]
    return all(code in _OF_THE_WORKLOAD for code in fatal)


def _entity(tracked: Tracked) -> dict[str, Any]:
    entity = tracked.detection.entity
    plain = entity_plain(entity, {}, tracked.host)
    plain["kind"] = "gpu"
    plain.pop("link", None)
    return plain


def _incident(cluster: Sequence[Event], root: Event, fields: dict[str, Any]) -> Incident:
    """Build the incident of `cluster`, mark its events as taken and its faults with what they follow."""
    members: list[int | str] = []
    for event in [root, *cluster]:
        event.taken = True
        code = event.tracked.code
        if code is not None and code not in members:
            members.append(code)
    _follow(cluster)
    heaviest = max(cluster, key=lambda e: SEVERITY_RANK[e.tracked.severity])
    severity = heaviest.tracked.severity
    hint = worst([e.tracked.detection.hint for e in cluster if e.tracked.severity is severity])
    hint = worst([hint, *(e.tracked.detection.hint for e in cluster if e.tracked.code == 154)])
    first, last = _ends(cluster)
    whole = last.since(first) if last is not None else None
    return Incident(
        root=root.tracked.code if root.tracked.code is not None else root.tracked.detection.check,
        members=tuple(members),
        severity=severity,
        scope=heaviest.tracked.detection.scope,
        hint=hint,
        fields={
            "worst": heaviest.tracked.code,
            **fields,
            **span(first, last),
            "window_s": half_up(whole) if whole is not None else None,
            "confidence": "low",
        },
    )


def _ends(cluster: Sequence[Event]) -> tuple[Moment | None, Moment | None]:
    first, last = cluster[0].burst.start, cluster[0].burst.end
    for event in cluster:
        start, end = event.burst.start, event.burst.end
        if start is not None and first is not None and (start.since(first) or 0) < 0:
            first = start
        if end is not None and last is not None and (end.since(last) or 0) > 0:
            last = end
    return first, last


def _follow(cluster: Sequence[Event]) -> None:
    """Every later fault of a chain names the code before it; followers name what they clean up after."""
    before: Event | None = None
    for event in cluster:
        if before is not None and before.tracked is not event.tracked and event.tracked.follows is None:
            if event.tracked.code == before.tracked.code:
                continue
            event.tracked.follows = before.tracked.code
            event.tracked.details["follows"] = before.tracked.code
            delay = event.burst.start.since(before.burst.end) if event.burst.start is not None else None
            if delay is not None and delay >= 0:
                event.tracked.details["delay_s"] = delay
        if before is None or event.tracked.code not in _FOLLOWERS:
            before = event
