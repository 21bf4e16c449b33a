"""Batches: nodes that wait for the same profile are certified together; a lone node borrows proven partners.

Borrowed partners are idle nodes in service, those with a valid certificate first. While a change of the stack is
being rolled out every other node may be under grace; then such a node helps: it was proven before the change, and a
partner is never judged. Partners stay in service, nothing is evicted from them, so they take no share of the budget
(docs/decisions/0002-grace.md says why).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from muster.moments import after
from muster.operate.budget import Member
from muster.operate.model import TestRequest
from muster.resources.certification import CertificationSpec, Purpose
from muster.resources.fault_policy import CertificationPolicy

GROUP_MINIMUM = 3
"""Nodes and partners of a certification: a failing pair is told apart only with a third node."""

UNPROVEN_GROUP = 5
"""The same where a partner is itself under grace: it may have got the very defect that is being looked for."""

BATCH_LIMIT = 500
"""Most nodes of one certification: what is asked for each of them must fit into an annotation (256 KiB)."""


@dataclass(frozen=True)
class Waiter:
    """A node that is ready to be tested and has been since `since`."""

    member: Member
    profile: str
    since: datetime
    request: TestRequest
    policy: CertificationPolicy
    earlier: tuple[str, ...] = ()
    """Certifications of this very stay that have ended and did not count, because the node changed meanwhile."""
    tests: tuple[str, ...] = ()
    """The tests to run; empty: those of the profile."""
    recipe: str = ""
    """Digest of the recipe that the node's Baseline names."""


@dataclass(frozen=True)
class Partner:
    """An idle node in service that may be borrowed. `valid`: its certificate is; otherwise it is under grace."""

    member: Member
    valid: bool = True


@dataclass(frozen=True)
class Batch:
    """A certification to create; `requests` say for which moment of each node's life it was asked."""

    name: str
    spec: CertificationSpec
    requests: tuple[tuple[str, TestRequest], ...]


@dataclass(frozen=True)
class BatchPlan:
    batches: tuple[Batch, ...] = ()
    waits: dict[str, str] = field(default_factory=dict)
    """Node -> why it is not tested yet."""
    recheck_at: datetime | None = None


def plan_batches(
    waiters: Sequence[Waiter], partners: Sequence[Partner], now: datetime, *, in_service: int = 0
) -> BatchPlan:
    """Group the waiting nodes. `partners` are idle and not in use; `in_service` counts all in service."""
    batches: list[Batch] = []
    waits: dict[str, str] = {}
    deadlines: list[datetime] = []
    free = sorted(partners, key=lambda p: p.member.name)
    for group in _groups(waiters):
        policy = group[0].policy
        size = min(max(1, policy.max_batch), BATCH_LIMIT)
        chunks = [group[i : i + size] for i in range(0, len(group), size)]
        for chunk in chunks:
            due = after(min(w.since for w in chunk), policy.batch_wait_s)
            if len(chunk) < size and now < due:
                deadlines.append(due)
                text = f"Waits until {due:%H:%M:%S} UTC for others that need profile {chunk[0].profile}."
                waits.update((w.member.name, text) for w in chunk)
                continue
            borrowed = _borrow(chunk, free)
            if len(chunk) == 1 and not borrowed:
                waits[chunk[0].member.name] = _no_partner(in_service)
                continue
            free = [p for p in free if p not in borrowed]
            batches.append(_batch(chunk, borrowed))
    return BatchPlan(tuple(batches), waits, min(deadlines, default=None))


def certification_name(profile: str, requests: Sequence[tuple[str, TestRequest]], earlier: Iterable[str] = ()) -> str:
    """Deterministic: asking again for the same moment of the same nodes gives the same name.

    `earlier` names their ended certifications for that moment: the next one needs a name that is none of them.
    """
    text = "\n".join(f"{node} {r.episode} {r.since.isoformat()}" for node, r in sorted(requests, key=lambda p: p[0]))
    text = "\n".join((text, *sorted(set(earlier))))
    return f"{profile}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _groups(waiters: Sequence[Waiter]) -> list[list[Waiter]]:
    """Waiters by what is asked for and by the policy for batches, each group sorted by domain and name."""
    groups: dict[tuple[str, int, int, tuple[str, ...], str], list[Waiter]] = {}
    for waiter in sorted(waiters, key=lambda w: (w.profile, w.member.domain or "", w.member.name)):
        policy = waiter.policy
        key = (waiter.profile, policy.max_batch, policy.batch_wait_s, waiter.tests, waiter.recipe)
        groups.setdefault(key, []).append(waiter)
    return [groups[key] for key in sorted(groups)]


def _borrow(chunk: Sequence[Waiter], free: Sequence[Partner]) -> list[Partner]:
    """Partners that make a small batch large enough: proven ones first, from the same domains first.

    Which of equal ones are taken changes from attempt to attempt, so that a partner with an undiscovered defect does
    not spoil every attempt.
    """
    if len(chunk) >= GROUP_MINIMUM:
        return []
    domains = {w.member.domain for w in chunk if w.member.domain is not None}
    names = {w.member.name for w in chunk}
    attempt = max(w.since for w in chunk).isoformat()
    usable = sorted(
        (p for p in free if p.member.name not in names),
        key=lambda p: (not p.valid, p.member.domain not in domains, _draw(attempt, p.member.name)),
    )
    borrowed = usable[: GROUP_MINIMUM - len(chunk)]
    return borrowed if all(p.valid for p in borrowed) else usable[: UNPROVEN_GROUP - len(chunk)]


def _draw(attempt: str, name: str) -> str:
    return hashlib.sha256(f"{attempt} {name}".encode()).hexdigest()


def _no_partner(in_service: int) -> str:
    if in_service == 0:
        return "No other node is ready to be tested and none is in service: a test between nodes needs a partner."
    return f"None of the {in_service} nodes in service is idle: a test between nodes needs a partner."


def _batch(chunk: Sequence[Waiter], borrowed: Sequence[Partner]) -> Batch:
    requests = tuple((w.member.name, w.request) for w in chunk)
    profile = chunk[0].profile
    return Batch(
        name=certification_name(profile, requests, (name for w in chunk for name in w.earlier)),
        spec=CertificationSpec(
            nodes=tuple(sorted(w.member.name for w in chunk)),
            partners=tuple(sorted(p.member.name for p in borrowed)),
            profile=profile,
            tests=chunk[0].tests,
            recipe_digest=chunk[0].recipe,
            purpose=Purpose(profile) if profile in list(Purpose) else Purpose.MANUAL,
        ),
        requests=requests,
    )
