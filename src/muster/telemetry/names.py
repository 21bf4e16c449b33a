"""Every metric of Muster: name, type, labels and what it says. Nothing is exported that is not in this table.

Names follow the conventions of Prometheus (base units, `_total` for counters). Every label has a small, fixed set of
values, named in `bound`; no metric carries the name of a node, a GPU or a person. Details are in the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    """Type of a metric, in the words of the exposition format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Part(StrEnum):
    """Which deployable exports a metric."""

    CONTROLLER = "controller"
    AGENT = "agent"
    BOTH = "both"


@dataclass(frozen=True)
class Metric:
    """One metric. `name` is the exposed one; a histogram adds `_bucket`, `_sum` and `_count` to it."""

    name: str
    kind: Kind
    part: Part
    help: str
    labels: tuple[str, ...] = ()
    bound: str = "1 series"
    """How many series there can be, and why."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, seconds."""

    def on(self, part: Part) -> bool:
        """Whether `part` exports this metric."""
        return self.part in (part, Part.BOTH)


FAST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From a local answer to the limit of a request that is about to be given up."""

_C, _A, _B = Part.CONTROLLER, Part.AGENT, Part.BOTH
_TABLE = (
    Metric("muster_build_info", Kind.GAUGE, _B, "Always 1; the label says which version runs.", ("version",)),
    Metric("muster_event_loop_lag_seconds", Kind.GAUGE, _B, "How late the last timer of the process rang."),
    Metric(
        "muster_api_requests_total",
        Kind.COUNTER,
        _B,
        "Requests to the API server that ended, without watches: code 200 for success, 0 for no answer.",
        ("verb", "resource", "code"),
        "7 verbs, the resources and subresources that Muster uses (11), and the status codes met",
    ),
    # The fleet, exported by the leader alone.
    Metric("muster_leader", Kind.GAUGE, _C, "1 while this process holds the lease, else 0."),
    Metric(
        "muster_nodes",
        Kind.GAUGE,
        _C,
        "Nodes in each state. Only the leader exports it.",
        ("state",),
        "8: the states of the lifecycle, and New for a node without one",
    ),
    Metric("muster_nodes_held", Kind.GAUGE, _C, "Nodes that carry the hold taint. Only the leader exports it."),
    Metric(
        "muster_budget_disrupted",
        Kind.GAUGE,
        _C,
        "Nodes that count against the disruption budget of their group now. Only the leader exports it.",
        ("group",),
        "one for each node selector of a FaultPolicy with a budget; `all` for the one without a selector",
    ),
    Metric(
        "muster_budget_allowed",
        Kind.GAUGE,
        _C,
        "Nodes that the budget of the group allows to be out at once. Only the leader exports it.",
        ("group",),
        "as muster_budget_disrupted",
    ),
    Metric(
        "muster_open_faults",
        Kind.GAUGE,
        _C,
        "Open faults of the fleet as the agents published them. Only the leader exports it.",
        ("severity",),
        "4: the severities",
    ),
    Metric(
        "muster_certifications",
        Kind.GAUGE,
        _C,
        "Certification objects in each phase. Only the leader exports it.",
        ("phase",),
        "5: the phases",
    ),
    Metric(
        "muster_baselines",
        Kind.GAUGE,
        _C,
        "Baselines by the result of their last comparison with the cluster. Only the leader exports it.",
        ("result",),
        "3: passed, failed, unknown",
    ),
    Metric(
        "muster_baseline_findings",
        Kind.GAUGE,
        _C,
        "What the last comparisons of all Baselines found: failed and unknown assertions, drift. Only the leader.",
        ("result",),
        "3: failed, unknown, drifted",
    ),
    Metric("muster_queue_depth", Kind.GAUGE, _C, "Keys that wait for a worker. Only the leader exports it."),
    Metric(
        "muster_nodes_blocked",
        Kind.GAUGE,
        _C,
        "Nodes that wait for something, by what they wait for. Only the leader exports it.",
        ("kind",),
        "12: the kinds of blockers",
    ),
    Metric(
        "muster_maintenances",
        Kind.GAUGE,
        _C,
        "Maintenance objects in each phase. Only the leader exports it.",
        ("phase",),
        "8: the phases",
    ),
    Metric(
        "muster_correlations",
        Kind.GAUGE,
        _C,
        "Findings shared by so many nodes that automation holds back for them now. Only the leader exports it.",
    ),
    Metric(
        "muster_output_lag_seconds",
        Kind.GAUGE,
        _C,
        "Age of the oldest event that waits for the receiver. Only the leader exports it.",
        ("sink",),
        "at most 16: the receivers that are configured",
    ),
    Metric(
        "muster_history_lag_seconds",
        Kind.GAUGE,
        _C,
        "Time since rows of the history were written last. Only the leader exports it, and only with --history.",
    ),
    # What the controller does.
    Metric(
        "muster_transitions_total",
        Kind.COUNTER,
        _C,
        "Steps of nodes from one state to another, by the kind of their cause.",
        ("from", "to", "cause"),
        "at most 8 x 7 x 8; the lifecycle has far fewer steps",
    ),
    Metric(
        "muster_decisions_total",
        Kind.COUNTER,
        _C,
        "Looks at a node: done, conflict (decided again), busy (asked to wait), failed, refused (unusable policy).",
        ("result",),
        "5: the results",
    ),
    Metric(
        "muster_decision_seconds",
        Kind.HISTOGRAM,
        _C,
        "From taking a node off the queue until everything that follows was written.",
        buckets=FAST_S,
    ),
    Metric(
        "muster_queue_wait_seconds",
        Kind.HISTOGRAM,
        _C,
        "How long a key that was due waited for a worker.",
        buckets=FAST_S,
    ),
    Metric(
        "muster_repairs_total",
        Kind.COUNTER,
        _C,
        "Outcomes of attempts on the repair ladder; one that was proved and did not help after all counts twice.",
        ("rung", "outcome"),
        "6 rungs x 5 outcomes",
    ),
    Metric(
        "muster_actions_total",
        Kind.COUNTER,
        _C,
        "Actions for the audit log by how they ended: done, refused, failed.",
        ("action", "result"),
        "some 20 actions x 3 results",
    ),
    Metric(
        "muster_output_events_total",
        Kind.COUNTER,
        _C,
        "Events handed to a receiver: delivered, again (sent once more later), refused (never sent again).",
        ("sink", "result"),
        "at most 16 receivers x 3 results",
    ),
    Metric(
        "muster_history_rows_total",
        Kind.COUNTER,
        _C,
        "Rows of the history (--history): written, or lost for want of room while the database was away.",
        ("result",),
        "2",
    ),
    Metric(
        "muster_work_before_hold_total",
        Kind.COUNTER,
        _C,
        "Times that work was found on a new node before it could be held. Hold nodes as they register to keep it 0.",
    ),
    Metric(
        "muster_maintenance_overruns_total",
        Kind.COUNTER,
        _C,
        "Windows of maintenance that closed while a node was not back in service.",
    ),
    Metric("muster_certification_rounds_total", Kind.COUNTER, _C, "Rounds of certifications that were carried out."),
    Metric(
        "muster_api_request_seconds",
        Kind.HISTOGRAM,
        _C,
        "Time of a request, with the wait for the client's own request rate.",
        ("verb",),
        "7: the verbs",
        FAST_S,
    ),
    Metric(
        "muster_watch_restarts_total",
        Kind.COUNTER,
        _C,
        "Watches that ended: timeout (as agreed), expired (list again), lost (connection), refused, throttled.",
        ("resource", "reason"),
        "7 resources x 5 reasons",
    ),
    # The agent.
    Metric(
        "muster_agent_monitor_up",
        Kind.GAUGE,
        _A,
        "1 while the monitor sees what it should, 0 while it is degraded; the NodeHealth says why.",
        ("monitor",),
        "the monitors of the agent: kernel-log, inventory, state, and the sources of probes",
    ),
    Metric(
        "muster_agent_open_faults", Kind.GAUGE, _A, "Open faults of the node.", ("severity",), "4: the severities"
    ),
    Metric("muster_agent_log_records_total", Kind.COUNTER, _A, "Records of the kernel log that were read."),
    Metric(
        "muster_agent_log_lost_total",
        Kind.COUNTER,
        _A,
        "Records of the kernel log that were gone before they were read.",
    ),
    Metric(
        "muster_agent_publish_total",
        Kind.COUNTER,
        _A,
        "Attempts to publish: published, throttled, unreachable, refused.",
        ("result",),
        "4: the results",
    ),
    Metric(
        "muster_agent_last_publish_timestamp_seconds",
        Kind.GAUGE,
        _A,
        "When the API server last accepted what the agent sees, Unix time; 0 before the first time.",
    ),
)

NAMES: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _TABLE})
"""Every metric by its name. The standard `process_*` metrics (CPU, memory, open files) come on top."""
