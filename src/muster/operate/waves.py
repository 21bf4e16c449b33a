"""Waves: whose turn it is to be held and recertified after a change reached many nodes.

The first nodes of a change are a trial: no more are held until one of them passed. From then on nodes follow as the
budget has room. When too many of them fail, the roll-out is halted and the change is named; it goes on by itself as
soon as the failed ones were repaired and passed with the change in place, or node by node when a person approves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.operate.budget import Grant, Member, Usage, may_disrupt
from muster.operate.episode import of_episode
from muster.operate.model import BlockerKind, WavePlan
from muster.resources.fault_policy import Budget
from muster.resources.node_health import CauseKind, Lifecycle, State

HALT_SHARE = 0.2
"""A roll-out is halted when more than this share of the latest outcomes failed ..."""

HALT_FAILURES = 3
"""... and at least so many did: one or two broken nodes say nothing about the change."""

NO_ROOM = "Waits for its turn to be recertified: the disruption budget has no room now."

HALT_WINDOW = 10
"""Outcomes looked at, latest first."""


@dataclass(frozen=True)
class Candidate:
    """A node that works on under grace and waits to be held for recertification."""

    member: Member
    change: str
    busy: bool
    grace_since: datetime
    budget: Budget
    idle_only: bool = False
    """Only taken while it has no work and none waits: a certificate that grew old, a node at work from the first."""


@dataclass(frozen=True)
class Outcome:
    """How a node that was held for `change` has done. `passed` is None while there is no verdict."""

    node: str
    change: str
    held_at: datetime
    passed: bool | None
    stalled: bool = False
    """No verdict comes by itself any more: a person is waited for."""


def outcome_of(node: str, life: Lifecycle) -> Outcome | None:
    """What the lifecycle of `node` says about the change that it was last held for; None when there was none."""
    held = [e for e in life.history if e.state is State.UNCERTIFIED and e.cause.kind is CauseKind.DRIFT]
    if not held:
        return None
    latest = held[-1]
    if life.state is State.IN_SERVICE:
        return Outcome(node, latest.cause.name, latest.at, True)
    if life.episode is None or life.episode.id != latest.episode:
        return None
    failed = any(
        e.state is State.QUARANTINED and e.cause.kind in (CauseKind.CERTIFICATION, CauseKind.FAULT)
        for e in of_episode(life)
    )
    stalled = any(b.kind == BlockerKind.PERSON for b in life.blockers)
    return Outcome(node, latest.cause.name, latest.at, False if failed else None, stalled)


def plan_wave(
    candidates: Sequence[Candidate],
    outcomes: Sequence[Outcome],
    usage: Usage,
    now: datetime,
    groups: Mapping[str, frozenset[str]] | None = None,
    stopped: Mapping[str, str] | None = None,
    *,
    demand: bool = False,
) -> WavePlan:
    """Who is held next, in order. Idle nodes come first, spread over the domains.

    `groups` maps a node to the names that its budget covers; a node without an entry is covered with the cluster.
    `stopped`: change -> why its roll-out must not go on, for what many nodes show that got it.
    `demand`: pods wait for GPUs, so nodes that are only taken while they are idle are left to them.
    """
    halted = {
        change: reason
        for change in _changes(candidates)
        if (reason := halt_reason(change, outcomes) or (stopped or {}).get(change, ""))
    }
    turn: list[str] = []
    waits: dict[str, str] = {}
    retry_at: list[datetime] = []
    for candidate in _ordered(candidates, usage):
        member = candidate.member
        reason = halted.get(candidate.change) or _trial(candidate.change, outcomes)
        if not reason and candidate.idle_only and candidate.busy:
            reason = "It is recertified when it is idle."
        if not reason and candidate.idle_only and demand:
            reason = "It is recertified when no pods wait for GPUs."
        if reason:
            waits[member.name] = reason
            continue
        group = (groups or {}).get(member.name)
        answer = may_disrupt(member, usage.within(group) if group is not None else usage, candidate.budget, now)
        if isinstance(answer, Grant):
            turn.append(member.name)
            usage = usage.taking(member, now)
        else:
            # Always the same words: thousands of nodes may wait, and each change of a sentence is a write.
            waits[member.name] = NO_ROOM
            if answer.retry_at is not None:
                retry_at.append(answer.retry_at)
    return WavePlan(tuple(turn), waits, halted, min(retry_at, default=None))


def halt_reason(change: str, outcomes: Sequence[Outcome]) -> str:
    """Why the roll-out of `change` is halted; empty when it is not."""
    verdicts = sorted(
        (o for o in outcomes if o.change == change and o.passed is not None), key=lambda o: (o.held_at, o.node)
    )[-HALT_WINDOW:]
    failed = sorted(o.node for o in verdicts if o.passed is False)
    if len(failed) < HALT_FAILURES or len(failed) <= HALT_SHARE * len(verdicts):
        return ""
    return (
        f"The roll-out of {change} is halted: {len(failed)} of the last {len(verdicts)} nodes failed after it "
        f"({', '.join(failed[:4])}{', ...' if len(failed) > 4 else ''})."
    )


def _trial(change: str, outcomes: Sequence[Outcome]) -> str:
    """While the first nodes of a change have no verdict yet, no more are held; a stalled one is not waited for."""
    of_change = [o for o in outcomes if o.change == change]
    pending = any(o.passed is None and not o.stalled for o in of_change)
    if pending and not any(o.passed for o in of_change):
        return f"The first nodes with {change} are being tested before others follow."
    return ""


def _changes(candidates: Sequence[Candidate]) -> list[str]:
    return sorted({c.change for c in candidates})


def _ordered(candidates: Sequence[Candidate], usage: Usage) -> list[Candidate]:
    """Idle before busy; within that the domain with the fewest nodes out comes first, in turns."""
    out: dict[str | None, int] = defaultdict(int)
    for disruption in usage.disruptions:
        if disruption.until is None:
            out[disruption.member.domain] += 1
    rank: dict[str, int] = {}
    for candidate in sorted(candidates, key=lambda c: (c.busy, c.grace_since, c.member.name)):
        domain = candidate.member.domain
        rank[candidate.member.name] = out[domain]
        out[domain] += 1
    return sorted(candidates, key=lambda c: (c.busy, rank[c.member.name], c.member.domain or "", c.member.name))
