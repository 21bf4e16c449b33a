"""From the views of all nodes to the plans over many of them: waves and batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from muster.operate.batch import BatchPlan, Partner, Waiter, plan_batches
from muster.operate.budget import Usage
from muster.operate.certificates import IDLE, REPAIR, counted_digest, staleness
from muster.operate.correlation.changes import changes_of, findings_of
from muster.operate.correlation.correlate import correlate
from muster.operate.correlation.model import NOTHING, Correlations, FleetNode, NodeFinding
from muster.operate.draft import selected
from muster.operate.lifecycle import admits
from muster.operate.model import BlockerKind, NodeView, TestRequest, WavePlan
from muster.operate.policy import EffectivePolicy
from muster.operate.waves import Candidate, Outcome, outcome_of, plan_wave
from muster.resources.fault_policy import DriftAction
from muster.resources.node_health import Lifecycle, Observed, Standing, State

STILL_USED = (
    "A certification that no longer counts for the node still uses it; the next one follows when it has ended."
)

HAD_FAULT = "a closed fault"
"""The change that nodes share whose fault went away before the budget let them be held."""


@dataclass(frozen=True)
class PlannedNode:
    """A node with the policy in force on it; `in_test` while an unfinished certification uses it."""

    view: NodeView
    policy: EffectivePolicy
    in_test: bool = False

    @property
    def seen(self) -> Observed | None:
        """What the agent sees, unless it is about an earlier incarnation of the node."""
        observed = self.view.observed
        return observed if observed is not None and observed.node_uid == self.view.uid else None


@dataclass(frozen=True)
class FleetPlan:
    wave: WavePlan
    batches: BatchPlan
    correlations: Correlations = NOTHING


def plan_fleet(nodes: Iterable[PlannedNode], usage: Usage, now: datetime) -> FleetPlan:
    """Plan waves and batches for the fleet as it is."""
    ordered = sorted(nodes, key=lambda n: n.view.name)
    labels = {n.view.name: n.view.labels for n in ordered}
    candidates: list[Candidate] = []
    groups: dict[str, frozenset[str]] = {}
    outcomes: list[Outcome] = []
    for node in ordered:
        if node.view.lifecycle is None:
            continue
        outcome = outcome_of(node.view.name, node.view.lifecycle)
        if outcome is not None:
            outcomes.append(outcome)
        candidate = _candidate(node, node.view.lifecycle, now)
        if candidate is not None:
            candidates.append(candidate)
            if node.policy.budget_selector:
                groups[node.view.name] = _group(labels, node.policy)
    serving = [n for n in ordered if n.view.lifecycle is not None and n.view.lifecycle.state is State.IN_SERVICE]
    waiters = [w for n in ordered if (w := _waiter(n)) is not None]
    used = {n.view.name for n in ordered if n.in_test}
    batches = plan_batches(
        [w for w in waiters if w.member.name not in used],
        [p for n in serving if (p := _partner(n)) is not None],
        now,
        in_service=len(serving),
    )
    correlations = _correlations(ordered, now)
    occupied = {w.member.name: STILL_USED for w in waiters if w.member.name in used}
    return FleetPlan(
        wave=plan_wave(candidates, outcomes, usage, now, groups, correlations.halted),
        batches=replace(batches, waits={**batches.waits, **occupied}),
        correlations=correlations,
    )


def _correlations(nodes: Sequence[PlannedNode], now: datetime) -> Correlations:
    """The same finding on many nodes, and what changed before. Costs nothing while no node has a finding."""
    findings: list[NodeFinding] = []
    for node in nodes:
        life, seen = node.view.lifecycle, node.seen
        faults = (*(seen.faults if seen is not None else ()), *(life.derived if life is not None else ()))
        if faults and life is not None:
            findings.extend(findings_of(node.view.name, faults, life.told))
    if not findings:
        return NOTHING
    fleet = {n.view.name: FleetNode(n.view.labels, changes_of(n.view.lifecycle, n.seen, now)) for n in nodes}
    return correlate({n.view.name: n.policy for n in nodes}, fleet, findings, now)


def _candidate(node: PlannedNode, life: Lifecycle, now: datetime) -> Candidate | None:
    certificate = life.certificate
    if life.state is not State.IN_SERVICE or certificate is None or certificate.standing is not Standing.GRACE:
        return None
    if any(b.kind in (BlockerKind.FAULT, BlockerKind.CORRELATION) for b in life.blockers):
        return None  # an open fault asks the budget by itself, ahead of every roll-out
    view = node.view
    stale = staleness(certificate, node.seen, node.policy.drift, now)
    if stale is not None and stale.action is not DriftAction.ROLL:
        return None
    return Candidate(
        member=view.member,
        change=stale.cause.name if stale is not None else HAD_FAULT,
        busy=bool(view.work),
        grace_since=certificate.voided_at or life.since,
        budget=node.policy.budget,
        idle_only=stale is not None and stale.profile == IDLE,
    )


def _group(labels: Mapping[str, Mapping[str, str]], policy: EffectivePolicy) -> frozenset[str]:
    return selected(labels, policy.budget_selector)


def _waiter(node: PlannedNode) -> Waiter | None:
    view = node.view
    life, observed = view.lifecycle, view.observed
    if life is None or life.state is not State.UNCERTIFIED or life.episode is None or observed is None:
        return None
    ready_since = next((b.since for b in life.blockers if b.kind == BlockerKind.BATCH), None)
    if ready_since is None:
        return None
    request = TestRequest(
        episode=life.episode.id,
        since=life.since,
        fingerprint=counted_digest(observed.fingerprint),
        boot_id=observed.boot_id,
    )
    stay = (life.episode.id, life.since)
    asked = [c for c in view.certifications if c.ended and c.request is not None]
    earlier = tuple(c.name for c in asked if c.request and (c.request.episode, c.request.since) == stay)
    return Waiter(view.member, life.profile, ready_since, request, node.policy.certification, earlier)


def _partner(node: PlannedNode) -> Partner | None:
    """The node as a partner for others: in service, idle, in no test, nothing open or unknown about it."""
    view = node.view
    life = view.lifecycle
    if life is None or life.certificate is None or not admits(life.certificate) or life.profile == REPAIR:
        return None
    waits_only = all(b.kind in (BlockerKind.WAVE, BlockerKind.BUDGET, BlockerKind.MAINTENANCE) for b in life.blockers)
    free = not (view.work or view.unschedulable or view.spec.paused or node.in_test)
    if not (waits_only and free and view.ready):
        return None
    return Partner(view.member, life.certificate.standing is Standing.VALID)


def waiting_for_budget(nodes: Sequence[PlannedNode]) -> list[str]:
    """Nodes that would be held if the budget had room, longest waiting first."""
    waiting = []
    for node in nodes:
        life = node.view.lifecycle
        waits = (BlockerKind.BUDGET, BlockerKind.MAINTENANCE)
        serving = life is not None and life.state is State.IN_SERVICE
        since = next((b.since for b in life.blockers if b.kind in waits), None) if life and serving else None
        if since is not None:
            waiting.append((since, node.view.name))
    return [name for _, name in sorted(waiting)]


def news(before: FleetPlan, after: FleetPlan) -> list[str]:
    """Nodes that are told something else now, sorted."""
    changed: set[str] = set()
    for old, new in ((before.wave.waits, after.wave.waits), (before.batches.waits, after.batches.waits)):
        changed.update(name for name in (*old, *new) if old.get(name) != new.get(name))
    for name in sorted({*before.correlations.by_node, *after.correlations.by_node}):
        if before.correlations.of(name) != after.correlations.of(name):
            changed.add(name)
    return sorted(changed)
