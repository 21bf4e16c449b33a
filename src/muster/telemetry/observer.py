"""What the deployables tell about themselves. Every method does nothing here: telling costs nothing unless asked for.

Observers are told what has happened; they decide nothing, and nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NEW = "New"
"""Stands for the state of a node that has no lifecycle yet."""


@dataclass(frozen=True)
class BudgetFigures:
    """The disruption budget of one group of nodes: how many are out, how many may be. `group` is its selector."""

    group: str
    disrupted: int
    allowed: int


@dataclass(frozen=True)
class FleetFigures:
    """The fleet as the leading controller sees it, in counts. No node is named: that is the API's business."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    """State -> number of nodes."""
    held: int = 0
    open_faults: Mapping[str, int] = field(default_factory=dict)
    """Severity -> number of open faults."""
    certifications: Mapping[str, int] = field(default_factory=dict)
    """Phase -> number of Certification objects."""
    budgets: tuple[BudgetFigures, ...] = ()
    queue_depth: int = 0
    baselines: Mapping[str, int] = field(default_factory=dict)
    """Result of the last comparison -> number of Baselines."""
    baseline_findings: Mapping[str, int] = field(default_factory=dict)
    """failed, unknown, drifted -> number of findings over all Baselines."""
    blocked: Mapping[str, int] = field(default_factory=dict)
    """Kind of blocker -> number of nodes that wait for it."""
    maintenances: Mapping[str, int] = field(default_factory=dict)
    """Phase -> number of Maintenance objects."""
    output_lags_s: Mapping[str, float] = field(default_factory=dict)
    history_lag_s: float | None = None
    """Since rows of the history were written last; None: no history is kept, or none was written yet."""
    """Receiver of events -> age of the oldest event that waits for it, seconds."""
    correlations: int = 0
    """Findings that many nodes share, for which automation holds back now."""


@dataclass(frozen=True)
class AgentFigures:
    """What one agent sees of its node, in counts."""

    monitors: Mapping[str, bool] = field(default_factory=dict)
    """Monitor -> whether it sees what it should."""
    open_faults: Mapping[str, int] = field(default_factory=dict)
    """Severity -> number of open faults."""


class RequestObserver:
    """Told of requests to the API server."""

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One request ended. `code` is the HTTP status, 0 when there was no answer."""

    def watch_ended(self, resource: str, reason: str) -> None:
        """A watch ended, for one of the reasons in `muster.kube.metered.WatchEnd`."""


class ControllerObserver(RequestObserver):
    """Told by the controller process."""

    def leads(self, leading: bool) -> None:
        """This process became the leader, or stopped being it."""

    def decided(self, result: str, seconds: float) -> None:
        """The work on one node ended; `seconds` from taking it off the queue until everything was written."""

    def waited(self, seconds: float) -> None:
        """A key was taken off the queue after this time."""

    def transition(self, before: str, after: str, cause: str) -> None:
        """A node went from state `before` to `after`."""

    def repair_ended(self, rung: str, outcome: str) -> None:
        """An attempt on the repair ladder has an outcome, or another one than before."""

    def round_ended(self) -> None:
        """A round of a certification was carried out and written down."""

    def output(self, sink: str, result: str, events: int) -> None:
        """So many events were handed to a receiver, with a `muster.operate.outputs.http_sink.Answer`."""

    def acted(self, action: str, result: str) -> None:
        """An action for the audit log was taken."""

    def history(self, result: str, rows: int) -> None:
        """So many rows of the history were `written`, or `lost` for want of room while the database was away."""

    def slipped(self) -> None:
        """Work was on a new node before it could be held."""

    def overrun(self) -> None:
        """The window of a maintenance closed and a node was not back."""


class AgentObserver(RequestObserver):
    """Told by the node agent."""

    def log_read(self, records: int, lost: int) -> None:
        """So many records of the kernel log were read, and so many were gone before they could be."""

    def published(self, result: str) -> None:
        """An attempt to publish ended with a `muster.agent.publish.PublishResult`."""
