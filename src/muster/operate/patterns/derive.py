"""From the history of one node to the faults that its patterns conclude. Pure.

    faults, recheck_at = derive(policy, history_of(observed, life), name, labels, life.derived, now)

The result depends on the evidence and on `now` alone; until `recheck_at` time changes nothing. A derived fault goes
when its evidence grows too old, or when the node was repaired with proof or released by a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from muster.faults import catalogue
from muster.moments import after
from muster.operate.patterns.history import DERIVED, History, bursts_of, is_derived
from muster.operate.policy import EffectivePolicy
from muster.operate.rules import (
    Slots,
    Values,
    Vocabulary,
    answer,
    burst_values,
    compile_rule,
    device_of,
    fault_values,
    holds,
    unless_values,
)
from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import GroupBy, Pattern, PatternOver

MESSAGE_LIMIT = 300
CLOCKS_DIFFER = timedelta(hours=1)
"""What is further ahead than that was seen by a clock that was wrong; it counts when its time has come."""
NODE = Entity(kind=EntityKind.NODE)


@dataclass(frozen=True)
class Evidence:
    """One burst that counts, after sightings that lie close together became one."""

    fault: Fault
    at: datetime
    until: datetime


@dataclass(frozen=True)
class _Candidate:
    fault: Fault
    burst: Burst
    values: Values


@dataclass(frozen=True)
class _Group:
    entity: Entity
    evidence: tuple[Evidence, ...]


def derive(
    policy: EffectivePolicy,
    history: History,
    node_name: str,
    labels: Mapping[str, str],
    before: Sequence[Fault],
    now: datetime,
) -> tuple[tuple[Fault, ...], datetime | None]:
    """The faults that the patterns of `policy` conclude, sorted by key, and when time alone may change that.

    `before` are those of the last decision; what is concluded again keeps its `first_seen`.
    """
    known = {f.key(): f for f in before}
    candidates, rechecks = _candidates(history, node_name, labels, now)
    if not candidates and not history.transitions:
        return (), min(rechecks, default=None)  # most nodes, most of the time
    found: dict[str, Fault] = {}
    for pattern in policy.patterns:
        if not pattern.enabled:
            continue
        groups, changes_at = _groups(pattern, history, candidates, now)
        rechecks.extend(changes_at)
        for fault in _conclude(pattern, groups, history, node_name, labels, now):
            key = fault.key()
            kept = known.get(key)
            if kept is not None and (history.boundary is None or kept.first_seen > history.boundary):
                fault = replace(fault, first_seen=kept.first_seen)
            found[key] = fault
    return tuple(found[key] for key in sorted(found)), min(rechecks, default=None)


def _groups(
    pattern: Pattern, history: History, candidates: Sequence[_Candidate], now: datetime
) -> tuple[tuple[_Group, ...], list[datetime]]:
    """What counts now, sorted into groups, and when each piece stops to count."""
    if pattern.over is PatternOver.REPAIRS:
        sorted_out = {"": _repairs(history)} if history.transitions else {}
    else:
        sorted_out = _bursts(pattern, candidates)
    if not sorted_out:
        return (), []  # most patterns, for most findings
    groups: list[_Group] = []
    ends: list[datetime] = []
    for key in sorted(sorted_out):
        counted = tuple(e for e in sorted_out[key] if after(e.until, pattern.within_s) > now)
        if counted:
            groups.append(_Group(_entity(pattern, counted), counted))
            ends.extend(after(e.until, pattern.within_s) for e in counted)
    return tuple(groups), ends


def _repairs(history: History) -> list[Evidence]:
    return [
        Evidence(_repair(at), at, at) for at in history.repairs() if history.released is None or at > history.released
    ]


def _candidates(
    history: History, node_name: str, labels: Mapping[str, str], now: datetime
) -> tuple[tuple[_Candidate, ...], list[datetime]]:
    """Every burst after the boundary, with what patterns see of it; and when one from the future will count."""
    found: list[_Candidate] = []
    to_come: list[datetime] = []
    latest = now + CLOCKS_DIFFER
    for fault in history.faults():
        known, shared = fault_values(fault), Slots()
        for burst in bursts_of(fault):
            if max(burst.at, burst.until) > latest:
                to_come.append((burst.at if burst.at > latest else burst.until) - CLOCKS_DIFFER)
                if burst.at > latest:
                    continue
                burst = replace(burst, until=burst.at)
            if history.boundary is not None and burst.until <= history.boundary:
                continue
            age_s, same = _since_repair(history, fault, burst)
            found.append(_Candidate(fault, burst, burst_values(known, burst, node_name, labels, age_s, same, shared)))
    return tuple(found), to_come


def _bursts(pattern: Pattern, candidates: Sequence[_Candidate]) -> dict[str, list[Evidence]]:
    """Bursts for which `when` is true, by group, each group's in order of time."""
    raw: dict[tuple[str, str], list[_Candidate]] = {}
    program = compile_rule(pattern.when, Vocabulary.PATTERN)
    asked: Fault | None = None
    counts = False
    for candidate in candidates:
        if program.of_burst or candidate.fault is not asked:
            asked = candidate.fault
            counts = answer(program, candidate.values) is True
        if counts:
            group = _group_key(pattern, candidate.fault, candidate.burst)
            if group is not None:
                raw.setdefault((group, candidate.fault.key()), []).append(candidate)
    if not raw:
        return {}
    groups: dict[str, list[Evidence]] = {}
    for (group, _), found in sorted(raw.items(), key=lambda item: item[0]):
        groups.setdefault(group, []).extend(_merged(pattern, found))
    for evidence in groups.values():
        evidence.sort(key=_order)
    return groups


def _since_repair(history: History, fault: Fault, burst: Burst) -> tuple[int, bool]:
    """Seconds from the last proved repair to the burst (-1 without one), and whether that was seen before it too."""
    repaired = history.repaired
    if repaired is None or burst.at < repaired:
        return -1, False
    return int((burst.at - repaired).total_seconds()), _seen_before(history, fault, repaired)


def _seen_before(history: History, fault: Fault, moment: datetime) -> bool:
    """Whether the same finding was seen on the same device before `moment`."""
    kind = (fault.check, fault.code, device_of(fault.entity))
    return any(
        (other.check, other.code, device_of(other.entity)) == kind and any(b.at <= moment for b in bursts_of(other))
        for other in history.faults()
    )


def _merged(pattern: Pattern, found: Sequence[_Candidate]) -> list[Evidence]:
    """Bursts of one fault that lie closer together than the pattern's gap are one."""
    gap = timedelta(seconds=_gap_s(pattern, found[0].fault))
    merged: list[Evidence] = []
    for candidate in sorted(found, key=lambda c: (c.burst.at, c.burst.until, c.fault.message)):
        fault, burst = candidate.fault, candidate.burst
        last = merged[-1] if merged else None
        if last is not None and burst.at - last.until <= gap:
            merged[-1] = Evidence(last.fault, last.at, max(last.until, burst.until))
        else:
            merged.append(Evidence(fault, burst.at, max(burst.at, burst.until)))
    return merged


def _gap_s(pattern: Pattern, fault: Fault) -> int:
    if pattern.sticky_gap_s and fault.check == "xid" and fault.code.isascii() and fault.code.isdigit():
        return pattern.sticky_gap_s if catalogue.xid(int(fault.code)).sticky else pattern.burst_gap_s
    return pattern.burst_gap_s


def _group_key(pattern: Pattern, fault: Fault, burst: Burst) -> str | None:
    """The group of a burst; None when it lacks what the pattern sorts by: unknown places are not one place."""
    parts: list[str] = []
    for by in pattern.group_by:
        match by:
            case GroupBy.NODE:
                parts.append("node")
            case GroupBy.ENTITY:
                parts.append(fault.entity.key())
            case GroupBy.GPU:
                if fault.entity.kind not in (EntityKind.GPU, EntityKind.NVLINK):
                    return None
                parts.append(device_of(fault.entity))
            case GroupBy.CODE:
                parts.append(f"{fault.check}/{fault.code}")
            case GroupBy.DETAIL:
                values = [burst.details.get(name, "") for name in pattern.details]
                if not all(values):
                    return None
                parts.extend(values)
            case _:
                assert_never(by)
    return "\n".join(parts)


def _entity(pattern: Pattern, evidence: Sequence[Evidence]) -> Entity:
    """The entity of a derived fault: what its evidence has in common."""
    latest = max(evidence, key=_order).fault.entity
    if pattern.over is PatternOver.REPAIRS or pattern.at_least_groups > 1:
        return NODE
    if GroupBy.ENTITY in pattern.group_by:
        return latest
    if GroupBy.GPU in pattern.group_by:
        return Entity(kind=EntityKind.GPU, name=latest.name, uuid=latest.uuid, pci=latest.pci, index=latest.index)
    return NODE


def _conclude(
    pattern: Pattern,
    groups: Sequence[_Group],
    history: History,
    node_name: str,
    labels: Mapping[str, str],
    now: datetime,
) -> list[Fault]:
    most = pattern.at_most or None
    reached = [g for g in groups if len(g.evidence) >= pattern.at_least and (most is None or len(g.evidence) <= most)]
    if not reached or len(reached) < pattern.at_least_groups:
        return []
    if pattern.at_least_groups > 1:
        reached = [_Group(NODE, tuple(sorted((e for g in reached for e in g.evidence), key=_order)))]
    by_entity: dict[str, list[_Group]] = {}
    for group in reached:
        if not _excused(pattern, group, history, node_name, labels):
            by_entity.setdefault(group.entity.key(), []).append(group)
    return [_derived(pattern, by_entity[key], now) for key in sorted(by_entity)]


def _excused(pattern: Pattern, group: _Group, history: History, node_name: str, labels: Mapping[str, str]) -> bool:
    if not pattern.unless:
        return False
    counted = {e.fault.key() for e in group.evidence}
    other: dict[str, int] = {}
    for fault in history.open:
        if fault.key() not in counted and not is_derived(fault):
            kind = f"{fault.check}/{fault.code}"
            other[kind] = other.get(kind, 0) + 1
    # What cannot be told keeps the pattern back: unknown never acts.
    return holds(pattern.unless, unless_values(other, node_name, labels), Vocabulary.UNLESS) is not False


def _derived(pattern: Pattern, groups: Sequence[_Group], now: datetime) -> Fault:
    evidence = sorted((e for g in groups for e in g.evidence), key=_order)
    needed = min(len(evidence), pattern.at_least * pattern.at_least_groups)
    return Fault(
        source=DERIVED,
        check=DERIVED,
        code=pattern.name,
        entity=groups[0].entity,
        severity=pattern.severity,
        scope=pattern.scope,
        hint=pattern.hint,
        message=_message(pattern, evidence),
        count=len(evidence),
        first_seen=min(evidence[needed - 1].at, now),
        last_seen=max(e.until for e in evidence),
    )


def _message(pattern: Pattern, evidence: Sequence[Evidence]) -> str:
    first, last, count = evidence[0].at, evidence[-1].at, len(evidence)
    kinds = sorted({f"{e.fault.check} {e.fault.code}" for e in evidence})
    what = ", ".join(kinds[:3]) + (", ..." if len(kinds) > 3 else "")
    if pattern.over is PatternOver.REPAIRS:
        what = "repairs"
    seen = f"{what}: once, at {first:%Y-%m-%d %H:%M:%S} UTC"
    if count > 1:
        mean_min = int((last - first).total_seconds() / (count - 1) // 60)
        seen = f"{what}: {count} times since {first:%Y-%m-%d %H:%M:%S} UTC, {mean_min} min apart on average"
    text = pattern.message or pattern.description or pattern.name
    return f"{text.rstrip('.')} ({seen}).".replace("\n", " ")[:MESSAGE_LIMIT]


def _order(evidence: Evidence) -> tuple[datetime, datetime, str, str]:
    return evidence.at, evidence.until, evidence.fault.key(), evidence.fault.message


def _repair(at: datetime) -> Fault:
    """Stands for a repair of the node where evidence needs a fault."""
    return Fault(
        source="lifecycle",
        check="repair",
        code="repair",
        entity=NODE,
        severity=Severity.INFO,
        scope=Scope.NODE,
        hint=Hint.NONE,
        first_seen=at,
        last_seen=at,
    )
