"""What one node is in the plans over many: one that waits for a wave, one that waits for a test, a partner. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.operate.age import RENEWAL, renewal_due, renewing
from muster.operate.batch import Partner, Waiter
from muster.operate.certificates import IDLE, REPAIR, Rules, Staleness, counted_digest, grace_ends, staleness
from muster.operate.coverage import NOTHING_REQUIRED, NodeStandard, carried
from muster.operate.lifecycle import admits
from muster.operate.model import BlockerKind, NodeView, TestRequest
from muster.operate.policy import EffectivePolicy
from muster.operate.waves import Candidate
from muster.resources.fault_policy import DriftAction
from muster.resources.node_health import Certificate, Lifecycle, Observed, Standing, State

HAD_FAULT = "a closed fault"
"""The change that nodes share whose fault went away before the budget let them be held."""


@dataclass(frozen=True)
class PlannedNode:
    """A node with the policy in force on it; `in_test` while an unfinished certification uses it."""

    view: NodeView
    policy: EffectivePolicy
    in_test: bool = False
    standard: NodeStandard = NOTHING_REQUIRED

    @property
    def rules(self) -> Rules:
        return Rules(self.policy.drift, self.policy.certification, self.standard)

    @property
    def seen(self) -> Observed | None:
        """What the agent sees, unless it is about an earlier incarnation of the node."""
        observed = self.view.observed
        return observed if observed is not None and observed.node_uid == self.view.uid else None


def candidate_of(node: PlannedNode, life: Lifecycle, now: datetime) -> Candidate | None:
    """The node as one that works on under grace and waits for its turn in a wave; None when it does not."""
    certificate = life.certificate
    if life.state is not State.IN_SERVICE or certificate is None:
        return None
    if certificate.standing is not Standing.GRACE:
        return _renewal(node, life, now)
    if any(b.kind in (BlockerKind.FAULT, BlockerKind.CORRELATION) for b in life.blockers):
        return None  # an open fault asks the budget by itself, ahead of every roll-out
    view = node.view
    stale = staleness(certificate, node.seen, node.rules, view.name, now)
    if stale is not None and stale.action is not DriftAction.ROLL:
        return None
    return Candidate(
        member=view.member,
        change=stale.cause.name if stale is not None else HAD_FAULT,
        busy=bool(view.work),
        grace_since=certificate.voided_at or life.since,
        budget=node.policy.budget,
        idle_only=_idle_only(certificate, stale, node, now),
    )


def _idle_only(certificate: Certificate, stale: Staleness | None, node: PlannedNode, now: datetime) -> bool:
    """Age alone, and having been at work from the first, disturb no running job until the grace is over."""
    if stale is None or not (stale.profile == IDLE or certificate.adopted):
        return False
    ends = grace_ends(certificate, node.policy.drift)
    return stale.insists or ends is None or now < ends


def _renewal(node: PlannedNode, life: Lifecycle, now: datetime) -> Candidate | None:
    """The node as one whose certificate is good and grows old."""
    view = node.view
    due = renewal_due(view.name, life, node.policy.certification)
    if due is None or now < due or any(b.kind != BlockerKind.WAVE for b in life.blockers):
        return None
    if not view.ready or view.unschedulable or view.spec.paused or node.seen is None or node.in_test:
        return None
    return Candidate(
        member=view.member,
        change=RENEWAL,
        busy=bool(view.work),
        grace_since=due,
        budget=node.policy.budget,
        idle_only=True,
    )


def waiter_of(node: PlannedNode) -> Waiter | None:
    """The node as one that is ready to be tested; None when it is not."""
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
    kept = carried(life.certificate, view.uid, observed.fingerprint)
    return Waiter(
        view.member,
        life.profile,
        ready_since,
        request,
        node.policy.certification,
        earlier,
        tests=node.standard.tests_for(life.profile, kept),
        recipe=node.standard.recipe,
    )


def gives_way(node: PlannedNode, now: datetime) -> bool:
    """Whether the node waits for nothing but the renewal of a certificate that is good."""
    life = node.view.lifecycle
    return life is not None and renewing(node.view.name, life, node.policy.certification, now)


def partner_of(node: PlannedNode) -> Partner | None:
    """The node as a partner for others: in service, idle, in no test, nothing open or unknown about it."""
    view = node.view
    life = view.lifecycle
    if life is None or life.certificate is None or not admits(life.certificate) or life.profile == REPAIR:
        return None
    if life.certificate.adopted:
        return None  # never proven: whatever it shows could be its own
    waits_only = all(b.kind in (BlockerKind.WAVE, BlockerKind.BUDGET, BlockerKind.MAINTENANCE) for b in life.blockers)
    free = not (view.work or view.unschedulable or view.spec.paused or node.in_test)
    if not (waits_only and free and view.ready):
        return None
    return Partner(view.member, life.certificate.standing is Standing.VALID)
