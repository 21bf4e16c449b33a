"""From the views of all nodes to the plans over many of them: waves and batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from muster.operate.batch import BatchPlan, Partner, Waiter, plan_batches
from muster.operate.budget import Usage
from muster.operate.certificates import IDLE, REPAIR, counted_digest, staleness
from muster.operate.draft import selected
from muster.operate.lifecycle import admits
from muster.operate.model import BlockerKind, NodeView, TestRequest, WavePlan
from muster.operate.policy import EffectivePolicy
from muster.operate.waves import Candidate, Outcome, outcome_of, plan_wave
from muster.resources.fault_policy import DriftAction
from muster.resources.node_health import Lifecycle, Standing, State

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


@dataclass(frozen=True)
class FleetPlan:
    wave: WavePlan
    batches: BatchPlan


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
    occupied = {w.member.name: STILL_USED for w in waiters if w.member.name in used}
    return FleetPlan(
        wave=plan_wave(candidates, outcomes, usage, now, groups),
        batches=replace(batches, waits={**batches.waits, **occupied}),
    )


def _candidate(node: PlannedNode, life: Lifecycle, now: datetime) -> Candidate | None:
    certificate = life.certificate
    if life.state is not State.IN_SERVICE or certificate is None or certificate.standing is not Standing.GRACE:
        return None
    if any(b.kind == BlockerKind.FAULT for b in life.blockers):
        return None  # an open fault asks the budget by itself, ahead of every roll-out
    view = node.view
    observed = view.observed if view.observed is not None and view.observed.node_uid == view.uid else None
    stale = staleness(certificate, observed, node.policy.drift, now)
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
    return Waiter(view.member, life.profile, ready_since, request, node.policy.certification)


def _partner(node: PlannedNode) -> Partner | None:
    """The node as a partner for others: in service, idle, in no test, nothing open or unknown about it."""
    view = node.view
    life = view.lifecycle
    if life is None or life.certificate is None or not admits(life.certificate) or life.profile == REPAIR:
        return None
    waits_only = all(b.kind in (BlockerKind.WAVE, BlockerKind.BUDGET) for b in life.blockers)
    free = not (view.work or view.unschedulable or view.spec.paused or node.in_test)
    if not (waits_only and free and view.ready):
        return None
    return Partner(view.member, life.certificate.standing is Standing.VALID)
