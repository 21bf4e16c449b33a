"""From the views of all nodes to the plans over many of them: waves and batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from muster.operate.batch import BatchPlan, plan_batches
from muster.operate.budget import Usage
from muster.operate.correlation.changes import changes_of, findings_of
from muster.operate.correlation.correlate import correlate
from muster.operate.correlation.model import NOTHING, Correlations, FleetNode, NodeFinding
from muster.operate.draft import selected
from muster.operate.fleet_roles import PlannedNode, candidate_of, gives_way, partner_of, waiter_of
from muster.operate.model import BlockerKind, WavePlan
from muster.operate.policy import EffectivePolicy
from muster.operate.waves import Candidate, Outcome, outcome_of, plan_wave
from muster.resources.node_health import State

STILL_USED = (
    "A certification that no longer counts for the node still uses it; the next one follows when it has ended."
)


WANTED = "Pods wait for GPUs; the renewal of its certificate waits."


@dataclass(frozen=True)
class FleetPlan:
    wave: WavePlan
    batches: BatchPlan
    correlations: Correlations = NOTHING
    demand: bool = False
    """Pods waited for GPUs when it was made."""


def plan_fleet(nodes: Iterable[PlannedNode], usage: Usage, now: datetime, *, demand: bool = False) -> FleetPlan:
    """Plan waves and batches for the fleet as it is. `demand`: pods wait for GPUs, so good certificates wait."""
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
        candidate = candidate_of(node, node.view.lifecycle, now)
        if candidate is not None:
            candidates.append(candidate)
            if node.policy.budget_selector:
                groups[node.view.name] = _group(labels, node.policy)
    serving = [n for n in ordered if n.view.lifecycle is not None and n.view.lifecycle.state is State.IN_SERVICE]
    wanted = {n.view.name for n in ordered if demand and gives_way(n, now)}
    waiters = [w for n in ordered if n.view.name not in wanted and (w := waiter_of(n)) is not None]
    used = {n.view.name for n in ordered if n.in_test}
    batches = plan_batches(
        [w for w in waiters if w.member.name not in used],
        [p for n in serving if (p := partner_of(n)) is not None],
        now,
        in_service=len(serving),
    )
    correlations = _correlations(ordered, now)
    occupied = {w.member.name: STILL_USED for w in waiters if w.member.name in used}
    occupied.update((name, WANTED) for name in sorted(wanted))
    return FleetPlan(
        wave=plan_wave(candidates, outcomes, usage, now, groups, correlations.halted, demand=demand),
        batches=replace(batches, waits={**batches.waits, **occupied}),
        correlations=correlations,
        demand=demand,
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


def _group(labels: Mapping[str, Mapping[str, str]], policy: EffectivePolicy) -> frozenset[str]:
    return selected(labels, policy.budget_selector)


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
