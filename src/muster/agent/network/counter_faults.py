"""Port counters against the table of thresholds: one probe for each code whose counters the port has. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import cache

import msgspec

from muster.agent.network.config import CounterLimit, NetworkConfig
from muster.agent.network.counters import calm_looks, grow, increase
from muster.agent.network.memory import PortMemory
from muster.agent.network.ports import PortReading
from muster.agent.sources import Probe
from muster.read.fabric_ports.thresholds import THRESHOLDS, Threshold
from muster.resources.fault import Entity

ANY_WINDOW_S = 60.0
"""Window of a threshold that names none: it holds for any, so for one that looks close together fall into."""
NOT_HERE = frozenset({"link_downed", "carrier_changes"})
"""Losses of the link, which `judge` counts as flaps."""


@cache
def rules(limits: tuple[CounterLimit, ...]) -> tuple[Threshold, ...]:
    """The thresholds with the limits of the configuration in place, in the order of the table."""
    own = {limit.counter: limit for limit in limits}
    chosen: list[Threshold] = []
    for rule in THRESHOLDS:
        if rule.counter in NOT_HERE:
            continue
        limit = own.get(rule.counter)
        if limit is None:
            chosen.append(replace(rule, window_s=rule.window_s or ANY_WINDOW_S))
        else:
            chosen.append(replace(rule, limit=limit.limit, window_s=limit.window_s))
    return tuple(chosen)


def wanted(limits: tuple[CounterLimit, ...]) -> frozenset[str]:
    """Names of the counters that are worth reading."""
    return frozenset(rule.counter for rule in rules(limits))


def counter_probes(
    reading: PortReading, known: PortMemory, config: NetworkConfig, now: datetime, entity: Entity, place: str
) -> tuple[PortMemory, list[Probe]]:
    """The memory with the new values, and the probes.

    Without two values of a counter nothing is said of it, or after a boot that it is unknown: a fault of before must
    not look over.
    """
    tracks = dict(known.tracks)
    told: dict[str, list[tuple[Threshold, float]]] = {}
    waiting: dict[str, Threshold] = {}
    for rule in rules(config.limits):
        value = reading.counters.get(rule.counter)
        if value is None:
            continue
        name = f"{rule.counter}/{rule.window_s:g}"
        tracks[name] = grow(tracks.get(name, ()), now.timestamp(), value, rule.window_s)
        grown = increase(tracks[name], rule.window_s)
        if grown is not None:
            told.setdefault(rule.code, []).append((rule, grown))
        elif known.up_before:
            waiting.setdefault(rule.code, rule)
    alarms = dict(known.alarms)
    probes: list[Probe] = []
    for code, found in told.items():
        on = _alarm(alarms, code, found, config.clear_looks)
        rule, _ = max(found, key=lambda item: item[1] / max(item[0].limit, 1))
        probes.append(_probe(rule, entity, not on, f"{place}: {_grown(found)}"))
    for code, rule in waiting.items():
        if code not in told:
            probes.append(_probe(rule, entity, None, f"{place}: errors are counted from now on"))
    return msgspec.structs.replace(known, tracks=tracks, alarms=alarms), probes


def _alarm(alarms: dict[str, int], code: str, found: list[tuple[Threshold, float]], clear_looks: int) -> bool:
    """Carry the alarm of a code on; it is as loud as the loudest of its counters."""
    # In shares of the limit; a limit of nothing is exceeded by anything.
    value = max(grown / rule.limit if rule.limit else (2.0 if grown else 0.0) for rule, grown in found)
    calm = calm_looks(alarms.get(code), value, 1.0, clear_looks)
    if calm is None:
        alarms.pop(code, None)
    else:
        alarms[code] = calm
    return calm is not None


def _grown(found: list[tuple[Threshold, float]]) -> str:
    told = [f"{r.counter} +{count:.0f} within {r.window_s:g} s (limit {r.limit})" for r, count in found if count]
    return "; ".join(told) or "the counters have been quiet for a few looks only"


def _probe(rule: Threshold, entity: Entity, healthy: bool | None, message: str) -> Probe:
    return Probe(
        source="network",
        check=rule.check,
        code=rule.code,
        entity=entity,
        healthy=healthy,
        severity=rule.severity,
        scope=rule.scope,
        hint=rule.hint,
        message="" if healthy else message,
    )
