"""The metrics of one process, as an observer that counts. Everything is kept in the object, nothing in the module."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.clock import Clock
from muster.telemetry.exposition import Family, Sample, number, process_families, text
from muster.telemetry.names import NAMES, Kind, Metric, Part
from muster.telemetry.observer import AgentFigures, AgentObserver, ControllerObserver, FleetFigures

__all__ = ["NAMES", "AgentMetrics", "ControllerMetrics", "Metrics"]

PUBLISHED = "published"
Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""Values of one metric by its labels."""


@dataclass
class _Distribution:
    """Counts of a histogram: one for each bucket and one for what is larger than all, and the sum of the values."""

    counts: list[int]
    total: float = 0.0


@dataclass
class _Kept:
    """What is counted of one metric."""

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, _Distribution] = field(default_factory=dict)

    def family(self) -> Family:
        """The metric with its samples, in the order of the labels."""
        metric = self.metric
        samples = [Sample(value, self._named(labels)) for labels, value in sorted(self.values.items())]
        for labels, found in sorted(self.distributions.items()):
            named, below = self._named(labels), 0
            for bound, count in zip((*metric.buckets, math.inf), found.counts, strict=True):
                below += count
                samples.append(Sample(below, (*named, ("le", number(bound))), "_bucket"))
            samples += [Sample(found.total, named, "_sum"), Sample(below, named, "_count")]
        return Family(metric.name, metric.kind, metric.help, samples)

    def _named(self, labels: Labels) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.metric.labels, labels, strict=True))


class Metrics:
    """The metrics of one part. Those in `pulled` are asked for when somebody scrapes, the others are counted."""

    pulled: frozenset[str] = frozenset()

    def __init__(self, part: Part, version: str) -> None:
        self._kept = {m.name: _Kept(m) for m in NAMES.values() if m.on(part) and m.name not in self.pulled}
        for kept in self._kept.values():
            if not kept.metric.labels and kept.metric.kind is Kind.HISTOGRAM:
                kept.distributions[()] = _empty(kept.metric)
            elif not kept.metric.labels:
                kept.values[()] = 0
        self._set("muster_build_info", 1, version)

    def exposition(self) -> bytes:
        """What a scrape is answered: every metric, by name; the pulled ones are asked for now."""
        pulled = {name: _Kept(NAMES[name], dict(values)) for name, values in self._now().items()}
        kept = {**self._kept, **pulled}
        return text([*(kept[name].family() for name in sorted(kept)), *process_families()])

    def lag(self, seconds: float) -> None:
        """How late the last timer of the event loop rang."""
        self._set("muster_event_loop_lag_seconds", seconds)

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._count("muster_api_requests_total", verb, resource, str(code))
        if "muster_api_request_seconds" in self._kept:
            self._time("muster_api_request_seconds", seconds, verb)

    def watch_ended(self, resource: str, reason: str) -> None:
        if "muster_watch_restarts_total" in self._kept:
            self._count("muster_watch_restarts_total", resource, reason)

    def _now(self) -> Mapping[str, Values]:
        """Values of the pulled metrics."""
        return {}

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        values = self._kept[name].values
        values[labels] = values.get(labels, 0) + by

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._kept[name].values[labels] = value

    def _time(self, name: str, seconds: float, *labels: str) -> None:
        kept = self._kept[name]
        found = kept.distributions.setdefault(labels, _empty(kept.metric))
        found.counts[bisect_left(kept.metric.buckets, seconds)] += 1
        found.total += seconds


class ControllerMetrics(Metrics, ControllerObserver):
    """Metrics of the controller process. `fleet` is asked at each scrape; None: this process does not lead."""

    pulled = frozenset(
        {
            "muster_nodes",
            "muster_nodes_held",
            "muster_budget_disrupted",
            "muster_budget_allowed",
            "muster_open_faults",
            "muster_certifications",
            "muster_queue_depth",
            "muster_baselines",
            "muster_baseline_findings",
            "muster_nodes_blocked",
            "muster_maintenances",
            "muster_correlations",
            "muster_output_lag_seconds",
            "muster_history_lag_seconds",
        }
    )

    def __init__(self, version: str, fleet: Callable[[], FleetFigures | None]) -> None:
        self._fleet = fleet
        super().__init__(Part.CONTROLLER, version)
        self.leads(False)

    def leads(self, leading: bool) -> None:
        self._set("muster_leader", leading)

    def decided(self, result: str, seconds: float) -> None:
        self._count("muster_decisions_total", result)
        self._time("muster_decision_seconds", seconds)

    def waited(self, seconds: float) -> None:
        self._time("muster_queue_wait_seconds", seconds)

    def transition(self, before: str, after: str, cause: str) -> None:
        self._count("muster_transitions_total", before, after, cause)

    def repair_ended(self, rung: str, outcome: str) -> None:
        self._count("muster_repairs_total", rung, outcome)

    def round_ended(self) -> None:
        self._count("muster_certification_rounds_total")

    def output(self, sink: str, result: str, events: int) -> None:
        self._count("muster_output_events_total", sink, result, by=events)

    def acted(self, action: str, result: str) -> None:
        self._count("muster_actions_total", action, result)

    def history(self, result: str, rows: int) -> None:
        self._count("muster_history_rows_total", result, by=rows)

    def slipped(self) -> None:
        self._count("muster_work_before_hold_total")

    def overrun(self) -> None:
        self._count("muster_maintenance_overruns_total")

    def _now(self) -> Mapping[str, Values]:
        figures = self._fleet()
        if figures is None:
            return {}
        return {
            "muster_nodes": _by(figures.nodes),
            "muster_nodes_held": {(): figures.held},
            "muster_budget_disrupted": {(b.group,): b.disrupted for b in figures.budgets},
            "muster_budget_allowed": {(b.group,): b.allowed for b in figures.budgets},
            "muster_open_faults": _by(figures.open_faults),
            "muster_certifications": _by(figures.certifications),
            "muster_queue_depth": {(): figures.queue_depth},
            "muster_baselines": _by(figures.baselines),
            "muster_baseline_findings": _by(figures.baseline_findings),
            "muster_nodes_blocked": _by(figures.blocked),
            "muster_maintenances": _by(figures.maintenances),
            "muster_correlations": {(): figures.correlations},
            "muster_output_lag_seconds": _by(figures.output_lags_s),
            "muster_history_lag_seconds": {(): figures.history_lag_s} if figures.history_lag_s is not None else {},
        }


class AgentMetrics(Metrics, AgentObserver):
    """Metrics of one agent. `figures` is asked at each scrape; None: nothing has been read yet."""

    pulled = frozenset({"muster_agent_monitor_up", "muster_agent_open_faults"})

    def __init__(self, version: str, clock: Clock, figures: Callable[[], AgentFigures | None]) -> None:
        self._clock = clock
        self._figures = figures
        super().__init__(Part.AGENT, version)

    def log_read(self, records: int, lost: int) -> None:
        self._count("muster_agent_log_records_total", by=records)
        self._count("muster_agent_log_lost_total", by=lost)

    def published(self, result: str) -> None:
        self._count("muster_agent_publish_total", result)
        if result == PUBLISHED:
            self._set("muster_agent_last_publish_timestamp_seconds", self._clock.now().timestamp())

    def _now(self) -> Mapping[str, Values]:
        figures = self._figures()
        if figures is None:
            return {}
        return {
            "muster_agent_monitor_up": _by({name: int(up) for name, up in figures.monitors.items()}),
            "muster_agent_open_faults": _by(figures.open_faults),
        }


def _by(counts: Mapping[str, int] | Mapping[str, float]) -> Values:
    return {(label,): count for label, count in counts.items()}


def _empty(metric: Metric) -> _Distribution:
    return _Distribution([0] * (len(metric.buckets) + 1))
