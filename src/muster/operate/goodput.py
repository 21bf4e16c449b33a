"""Goodput: where the node-hours of a window went, as a waterfall, and how fast nodes come back. Pure.

Goodput here is the share of node time in which a node in service ran a user's GPU pod. It says nothing about how well
the pod used it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from muster.operate.ledger import Ledger, NodeRecord, Span, TimeClass, microseconds
from muster.resources.node_health import CauseKind, State, Transition

CAUSE_LABELS: dict[CauseKind | None, str] = {
    CauseKind.NEW_NODE: "bring-up of new nodes",
    CauseKind.FAULT: "faults",
    CauseKind.CERTIFICATION: "failed certification",
    CauseKind.DRIFT: "drift (changed hardware or stack)",
    CauseKind.REPAIR: "repairs",
    CauseKind.PERSON: "people's holds",
    CauseKind.AGENT_SILENT: "silent agents",
    CauseKind.AGE: "certificates of age",
    CauseKind.MAINTENANCE: "planned maintenance",
    None: "cause not recorded",
}


@dataclass(frozen=True)
class Part:
    """A share of a step: one class of time, and the rung while repairing."""

    time_class: TimeClass
    rung: str
    time_us: int
    busy_us: int
    """How much of it a user's GPU pod still ran."""


@dataclass(frozen=True)
class Step:
    """One step of the waterfall: node time lost to one cause."""

    label: str
    time_us: int
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Waterfall:
    """`total_us` minus every loss is `busy_us`, exactly."""

    total_us: int
    losses: tuple[Step, ...]
    busy_us: int

    @property
    def share(self) -> float:
        """Goodput as a share of all node time, 0 when there was none."""
        return self.busy_us / self.total_us if self.total_us else 0.0


@dataclass(frozen=True)
class Return:
    """One closed way out of service and back."""

    node: str
    episode: str
    cause: CauseKind
    out: timedelta
    """From leaving service to being back in service."""
    validated: timedelta | None
    """From the end of the last repair to being back in service; None without a repair."""


@dataclass(frozen=True)
class Recovery:
    """How fast nodes come back. Times are None where nothing was counted. `open_episodes` are still out."""

    returns: tuple[Return, ...]
    open_episodes: int
    mean_time_to_return: timedelta | None
    median_time_to_return: timedelta | None
    mean_time_to_validated_return: timedelta | None
    mean_time_between_faults: timedelta | None
    """In-service node time per episode that a fault opened."""


def waterfall(ledger: Ledger) -> Waterfall:
    """Total node time, then what each cause took, then idle time in service; the rest was busy."""
    steps: list[Step] = []
    for cause, label in CAUSE_LABELS.items():
        spans = [s for s in ledger.spans if s.cause is cause and _lost(s) and s.time_class is not TimeClass.UNKNOWN]
        if spans:
            steps.append(_step(label, spans))
    unknown = [s for s in ledger.spans if s.time_class is TimeClass.UNKNOWN]
    if unknown:
        steps.append(_step("not known (before the record began)", unknown))
    idle = [s for s in ledger.spans if s.time_class is TimeClass.IDLE]
    if idle:
        steps.append(_step("in service, no GPU pod", idle))
    busy_us = ledger.by_class()[TimeClass.BUSY]
    return Waterfall(ledger.total_us, tuple(steps), busy_us)


def _lost(span: Span) -> bool:
    return span.time_class not in (TimeClass.BUSY, TimeClass.IDLE)


def _step(label: str, spans: Sequence[Span]) -> Step:
    parts = []
    for time_class in TimeClass:
        of_class = [s for s in spans if s.time_class is time_class]
        for rung in sorted({s.rung for s in of_class}):
            chosen = [s for s in of_class if s.rung == rung]
            busy = sum(s.length_us for s in chosen if s.busy)
            parts.append(Part(time_class, rung, sum(s.length_us for s in chosen), busy))
    return Step(label, sum(p.time_us for p in parts), tuple(parts))


def recovery(records: Iterable[NodeRecord], ledger: Ledger) -> Recovery:
    """Count the episodes of `records` that closed inside the window of `ledger`.

    Bring-up of new nodes is left out: such a node was never in service before.
    """
    returns: list[Return] = []
    still_open = faults = 0
    for record in sorted(records, key=lambda r: r.name):
        for steps, back in _episodes(sorted(record.transitions, key=lambda t: t.at)):
            if back is not None and not ledger.start_us <= microseconds(back.at) < ledger.end_us:
                continue
            faults += steps[0].cause.kind is CauseKind.FAULT
            if back is None:
                still_open += 1
            elif steps[0].cause.kind is not CauseKind.NEW_NODE:
                returns.append(_return(record.name, steps, back))
    sums = ledger.by_class()
    in_service = sums[TimeClass.BUSY] + sums[TimeClass.IDLE]
    outs = [r.out for r in returns]
    validated = [r.validated for r in returns if r.validated is not None]
    return Recovery(
        returns=tuple(returns),
        open_episodes=still_open,
        mean_time_to_return=_mean(outs),
        median_time_to_return=_median(outs),
        mean_time_to_validated_return=_mean(validated),
        mean_time_between_faults=timedelta(microseconds=in_service // faults) if faults else None,
    )


def _episodes(steps: Sequence[Transition]) -> list[tuple[list[Transition], Transition | None]]:
    """Each stay out of service: its transitions, and the one that ended it (None: still out)."""
    found: list[tuple[list[Transition], Transition | None]] = []
    current: list[Transition] = []
    for step in steps:
        if step.state is not State.IN_SERVICE:
            current.append(step)
        elif current:
            found.append((current, step))
            current = []
    if current:
        found.append((current, None))
    return found


def _return(node: str, steps: Sequence[Transition], back: Transition) -> Return:
    ends = [
        (steps[index + 1] if index + 1 < len(steps) else back).at
        for index, step in enumerate(steps)
        if step.state is State.REPAIRING
    ]
    return Return(
        node=node,
        episode=steps[0].episode,
        cause=steps[0].cause.kind,
        out=back.at - steps[0].at,
        validated=back.at - ends[-1] if ends else None,
    )


def _mean(spans: Sequence[timedelta]) -> timedelta | None:
    return sum(spans, timedelta()) / len(spans) if spans else None


def _median(spans: Sequence[timedelta]) -> timedelta | None:
    return timedelta(seconds=statistics.median(s.total_seconds() for s in spans)) if spans else None
