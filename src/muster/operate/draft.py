"""The draft of one decision: the inputs, what has been concluded so far, and the few ways to add to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from muster.moments import after
from muster.operate.budget import Grant, Wait, may_disrupt
from muster.operate.certificates import Rules, Staleness, staleness, voided
from muster.operate.episode import never_served, open_episode
from muster.operate.lifecycle import Trigger, move, remember
from muster.operate.maintenance import NodeMaintenance, maintenance_of
from muster.operate.model import NOTE_REASONS, BlockerKind, Decision, FleetView, Intent, NodeView, Note, PodView
from muster.operate.patterns.derive import derive
from muster.operate.patterns.history import History, history_of, is_derived
from muster.operate.policy import MILDEST_FIRST, EffectivePolicy, Judgement, judge
from muster.plain_text import plain
from muster.resources.fault import Fault, Severity
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import (
    Blocker,
    Cause,
    CauseKind,
    Certificate,
    Lifecycle,
    Observed,
    State,
    Transition,
    Verb,
)

MESSAGE_LIMIT = 400

COMPARE_WAIT_S = 2.0
"""How soon it is looked at again whether the fleet was compared: the plan is made a second after the last news."""

COMPARED_SOON = "Its finding is compared with those of the other nodes before more is done."


@dataclass(frozen=True)
class Judged:
    """An open fault and what the policy says about it."""

    fault: Fault
    judgement: Judgement

    def cause(self) -> Cause:
        return Cause(kind=CauseKind.FAULT, name=plain(self.fault.key()), message=self.sentence())

    def sentence(self) -> str:
        fault = self.fault
        what = fault.code if fault.code.startswith(fault.check) else f"{fault.check} {fault.code}"
        text = f"{what} on {fault.entity.key()}"
        return plain(f"{text}: {fault.message}" if fault.message else text, MESSAGE_LIMIT)


class Draft:
    """Mutable only while one call of `decide` runs; nothing of it outlives the call but the `Decision`."""

    def __init__(
        self, node: NodeView, fleet: FleetView, policy: EffectivePolicy, life: Lifecycle, now: datetime
    ) -> None:
        self.node = node
        self.fleet = fleet
        self.policy = policy
        self.now = now
        self.life = life
        seen = node.observed
        self.observed: Observed | None = seen if seen is not None and seen.node_uid == node.uid else None
        """What the agent sees, unless it is about an earlier incarnation of the node."""
        self.approval_used = False
        self._blocked_before = node.lifecycle.blockers if node.lifecycle else ()
        self._state_before = node.lifecycle.state if node.lifecycle else None
        self._blockers: list[Blocker] = []
        self._intents: list[Intent] = []
        self._notes: list[Note] = []
        self._transitions: list[Transition] = []
        self._rechecks: list[datetime] = []
        self._remarks: list[str] = []
        self._judged: tuple[Judged, ...] | None = None
        self._disqualifying: tuple[Judged, ...] | None = None
        self._planned: tuple[object, NodeMaintenance | None] | None = None

    # What is known

    @property
    def work(self) -> tuple[PodView, ...]:
        """Work that a drain must wait for. On a node that is not Ready nothing confirms that a pod is gone."""
        return tuple(p for p in self.node.work if self.node.ready or not p.deleting)

    @property
    def agent_silent(self) -> bool:
        seen = self.node.agent_seen
        return seen is None or self.now > after(seen, self.policy.agent_silent_s)

    @cached_property
    def rules(self) -> Rules:
        """What is asked of the node's certificate."""
        certification = self.policy.certification
        return Rules(self.policy.drift, certification, self.fleet.standard.of(self.node.labels, certification))

    def stale(self, certificate: Certificate) -> Staleness | None:
        """The strongest reason why `certificate` is not valid any more."""
        return staleness(certificate, self.observed, self.rules, self.node.name, self.now)

    @property
    def approving(self) -> bool:
        """A person approved what waits, and that word is not used up."""
        decision = self.node.spec.decision
        return decision is not None and decision.verb is Verb.APPROVE and decision.id != self.life.decision_seen

    @property
    def history(self) -> History:
        """What the policy's rules and patterns see of the node's past."""
        return history_of(self.observed, self.life)

    def renew(self) -> None:
        """Conclude anew what the patterns say: what is remembered changed."""
        self._judged = self._disqualifying = None
        found: tuple[Fault, ...] = ()
        seen = self.observed
        told = seen is not None and (seen.faults or seen.recent)
        # Most nodes have no past that a pattern could count, and are decided about most often.
        if told or any(t.state is State.REPAIRING for t in self.life.history):
            name, labels = self.node.name, self.node.labels
            found, recheck_at = derive(self.policy, self.history, name, labels, self.life.derived, self.now)
            self.wake(recheck_at)
        if found != self.life.derived:
            self.update(derived=found)

    @property
    def maintenance(self) -> NodeMaintenance | None:
        """The planned maintenance that matters to the node now."""
        notices = self.observed.notices if self.observed is not None else ()
        if not notices and not self.node.maintenances:
            return None
        key = (self.life.deferred_until, self.handed_over_since)
        if self._planned is None or self._planned[0] != key:
            found = maintenance_of(
                self.node,
                self.node.maintenances,
                notices,
                self.policy.maintenance,
                self.life.deferred_until,
                self.now,
                idle=not self.work,
                out_since=self.handed_over_since,
            )
            if found is not None:
                self.wake(found.recheck_at)
            self._planned = (key, found)
        return self._planned[1]

    @property
    def maintained(self) -> NodeMaintenance | None:
        """The planned maintenance for which the node is to be out of service now."""
        found = self.maintenance
        return found if found is not None and found.hold and not (found.over or found.handed_back) else None

    @property
    def handed_over_since(self) -> datetime | None:
        """Since when the node is in other hands; None when it is not."""
        if self._state_before is not State.QUARANTINED or self.life.episode is None:
            return None
        given = any(b.kind == BlockerKind.MAINTENANCE for b in self._blocked_before)
        return self.life.since if given else None

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Open faults with their judgements, worst first, then by key."""
        if self._judged is None:
            faults = (*(self.observed.faults if self.observed else ()), *self.life.derived)
            history = self.history if faults else None
            correlated = self.fleet.correlations.of(self.node.name)
            found = [
                Judged(
                    f,
                    judge(
                        self.policy,
                        f,
                        self.node.labels,
                        self.now,
                        node_name=self.node.name,
                        history=history,
                        correlated=correlated,
                    ),
                )
                for f in faults
            ]
            found.sort(key=lambda j: (-MILDEST_FIRST.index(j.judgement.disposition), j.fault.key()))
            self._judged = tuple(found)
        return self._judged

    @property
    def disqualifying(self) -> tuple[Judged, ...]:
        """Faults that keep the node out of service, worst first: due, of known severity, not waived by a person."""
        if self._disqualifying is None:
            self._disqualifying = tuple(
                j
                for j in self.judged
                if j.judgement.due
                and MILDEST_FIRST.index(j.judgement.disposition) >= MILDEST_FIRST.index(Disposition.HOLD)
                and j.fault.severity is not Severity.UNKNOWN
                and not self.waived(j.fault)
            )
        return self._disqualifying

    @property
    def held_back(self) -> tuple[Judged, ...]:
        """Faults for which a correlation holds automation back: many nodes have them."""
        return tuple(
            j
            for j in self.judged
            if j.judgement.capped_by
            and j.judgement.due
            and j.fault.severity is not Severity.UNKNOWN
            and not self.waived(j.fault)
        )

    @property
    def uncompared(self) -> bool:
        """Whether what keeps the node out was told after the findings of all nodes were compared last.

        A few seconds then decide between one broken node and a change that broke many; nothing irreversible is
        begun before. The clock is woken for it.
        """
        if not any(correlation.enabled for correlation in self.policy.correlations):
            return False  # nothing could come of a comparison
        compared_at = self.fleet.compared_at
        told = [self.life.told.get(j.fault.key()) for j in self.disqualifying]
        if compared_at is None or all(at is None or at < compared_at for at in told):
            return False
        self.wake(after(self.now, COMPARE_WAIT_S))
        return True

    @property
    def shares_a_finding(self) -> bool:
        """Whether another node has open what keeps this one out."""
        kinds = {f"{j.fault.check}/{j.fault.code}" for j in self.disqualifying}
        return any(self.fleet.kinds.get(kind, 0) > 1 for kind in kinds)

    @property
    def unproved(self) -> tuple[Fault, ...]:
        """Open faults that contradict the success of a repair. What patterns conclude goes by the proof itself."""
        found = {j.fault.key(): j.fault for j in (*self.disqualifying, *self.held_back) if not is_derived(j.fault)}
        return tuple(found.values())

    def waived(self, fault: Fault) -> bool:
        """A person released the node after the fault was last seen: until it is seen again, that stands."""
        decision = self.node.spec.decision
        if decision is None or decision.verb is not Verb.RELEASE or decision.at is None:
            return False
        at = decision.at
        if at > self.now:
            # The person's clock is ahead. What counts is when the word was heard; where that is forgotten, nothing.
            heard = [t.at for t in self.life.history if _is_release(t)] if self._heard(decision.id) else [self.now]
            if not heard:
                return False
            at = heard[-1]
        return fault.last_seen <= at

    def _heard(self, decision_id: str) -> bool:
        return bool(decision_id) and self.life.decision_seen == decision_id

    # What is concluded

    def update(self, **changes: Any) -> None:
        self.life = replace(self.life, **changes)

    def take(self, trigger: Trigger, cause: Cause) -> None:
        """Take a step of the lifecycle."""
        self.life = move(self.life, trigger, cause, self.now)
        self._transitions.append(self.life.history[-1])

    def adopt(self, entries: Sequence[Transition]) -> None:
        """Count `entries`, which are in the history already, as part of this decision."""
        self._transitions.extend(entries)

    def record(self, cause: Cause) -> None:
        """Put something into the history that changes no state: a person's word."""
        episode = self.life.episode.id if self.life.episode else ""
        entry = Transition(state=self.life.state, at=self.now, episode=episode, cause=cause)
        self.life = remember(self.life, entry)
        self._transitions.append(entry)

    def leave_service(self, cause: Cause, profile: str, *, still_good: bool = False) -> None:
        """Open an episode for `cause`; the certificate is worth nothing any more, unless it is `still_good`."""
        before = self.life.certificate
        self.update(
            episode=open_episode(self.node.name, self.node.uid, cause, self.now),
            certificate=before if still_good else voided(before, cause.message, self.now),
            profile=profile,
        )

    def void(self, because: str) -> None:
        """The certificate, if it was still good, is not any more."""
        if self.life.certificate is not None:
            self.update(certificate=voided(self.life.certificate, because, self.now))

    def block(self, kind: BlockerKind, message: str) -> bool:
        """Say what the node waits for. Returns whether that is news."""
        before = next((b for b in self._blocked_before if b.kind == kind), None)
        same = before is not None and self.life.state is self._state_before
        message = plain(message, MESSAGE_LIMIT)
        since = before.since if before is not None and same else self.now
        if all(b.kind != kind for b in self._blockers):
            self._blockers.append(Blocker(kind=kind.value, message=message, since=since))
        return before is None or not same or before.message != message

    def remark(self, text: str) -> None:
        """Something to show that keeps the node from nothing."""
        self._remarks.append(plain(text, MESSAGE_LIMIT))

    def clear_blockers(self) -> None:
        """Forget what the previous state waited for: the state has changed."""
        self._blockers.clear()
        self._remarks.clear()

    @property
    def remarks(self) -> Sequence[str]:
        return tuple(self._remarks)

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        return tuple(self._blockers)

    def intend(self, *intents: Intent) -> None:
        self._intents.extend(intents)

    def note(self, reason: str, message: str, *, warning: bool = False) -> None:
        if reason not in NOTE_REASONS:
            raise AssertionError(f"{reason} is no known reason of an event")
        self._notes.append(Note(reason, message[: 2 * MESSAGE_LIMIT], warning))

    def wake(self, at: datetime | None) -> None:
        """Have the decision made again at `at`, if that is still to come."""
        if at is not None and at > self.now:
            self._rechecks.append(at)

    def ask_budget(self, *, approved: bool = False) -> Grant | Wait:
        """Whether the node may be taken out of service now. One that is out, or never served, disrupts nobody.

        `approved`: a person approved this disruption in another way than by a decision about the node.
        """
        if self.life.held or never_served(self.life):
            return Grant()
        usage = self.fleet.usage
        if self.policy.budget_selector:
            usage = usage.within(selected(self.fleet.labels, self.policy.budget_selector))
        answer = may_disrupt(
            self.node.member, usage, self.policy.budget, self.now, approved=approved or self.approving
        )
        if isinstance(answer, Grant):
            self.approval_used = self.approving
            return answer
        self.wake(answer.retry_at)
        if isinstance(may_disrupt(self.node.member, usage, self.policy.budget, self.now, approved=True), Grant):
            return answer  # only a person's approval is missing
        # Without the names of those who are out: they change all the time, and each change would be a write.
        budget = self.policy.budget
        limits = (
            f"{budget.max_disrupted} out at once, {budget.max_disrupted_per_domain} of a domain, "
            f"{budget.max_disrupted_per_pool} of a pool"
        )
        window = f"{budget.max_new_per_window} new within {budget.window_s} s"
        return Wait(f"The disruption budget has no room now ({limits}, {window}).", answer.retry_at)

    def finish(self, next_sentence: str) -> Decision:
        """The decision; `life` has its blockers by now."""
        return Decision(
            lifecycle=self.life if self.life.next == next_sentence else replace(self.life, next=next_sentence),
            intents=tuple(self._intents),
            notes=tuple(self._notes),
            transitions=tuple(self._transitions),
            recheck_at=min(self._rechecks, default=None),
        )


def _is_release(entry: Transition) -> bool:
    return entry.cause.kind is CauseKind.PERSON and entry.cause.name == Verb.RELEASE.value


def selected(labels: Any, selector: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Names of the nodes whose labels carry every pair of `selector`."""
    return frozenset(name for name, own in labels.items() if all(own.get(k) == v for k, v in selector))
