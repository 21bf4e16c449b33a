"""The disruption budget: the one place that says whether one more node may be taken out of service now.

Only new disruption asks here. Recoveries and releases never do, so a spent budget never keeps a healthy node out, and
the budget opens again by itself as nodes return and as the window moves on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from muster.errors import BadInputError
from muster.moments import after
from muster.operate.blackouts import blackout_until
from muster.resources.fault_policy import Budget

BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Member:
    """A node as the budget sees it. Without a `domain` no domain limit applies to it."""

    name: str
    domain: str | None = None
    pool: str = "default"


@dataclass(frozen=True)
class Disruption:
    """A node out of service for a reason whose time Muster chose, from `since` to `until` (None: still out)."""

    member: Member
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True)
class Usage:
    """The nodes that a budget covers and their disruptions, ended ones included as far back as the window reaches."""

    members: tuple[Member, ...]
    disruptions: tuple[Disruption, ...] = ()

    def out_now(self) -> tuple[str, ...]:
        """Names of the nodes that are out, sorted, each once."""
        return tuple(sorted({d.member.name for d in self.disruptions if d.until is None}))

    def out_in(self, domain: str) -> int:
        """How many nodes of `domain` are out."""
        return len({d.member.name for d in self.disruptions if d.until is None and d.member.domain == domain})

    def out_in_pool(self, pool: str) -> int:
        """How many nodes of `pool` are out."""
        return len({d.member.name for d in self.disruptions if d.until is None and d.member.pool == pool})

    def started_after(self, moment: datetime) -> tuple[datetime, ...]:
        """Start times later than `moment`, oldest first, of ended disruptions too."""
        return tuple(sorted(d.since for d in self.disruptions if d.since > moment))

    def taking(self, member: Member, now: datetime) -> Usage:
        """The usage after `member` was taken out: for deciding about several nodes in one pass."""
        return replace(self, disruptions=(*self.disruptions, Disruption(member, now)))

    def returning(self, name: str, now: datetime) -> Usage:
        """The usage after node `name` came back."""
        return replace(
            self,
            disruptions=tuple(
                replace(d, until=now) if d.member.name == name and d.until is None else d for d in self.disruptions
            ),
        )

    def within(self, names: Collection[str]) -> Usage:
        """The part about the nodes `names`: for a budget that covers one node group."""
        return Usage(
            tuple(m for m in self.members if m.name in names),
            tuple(d for d in self.disruptions if d.member.name in names),
        )


@dataclass(frozen=True)
class Grant:
    """The node may be taken out now."""


@dataclass(frozen=True)
class Wait:
    """Not now. `reason` is a sentence for people; `retry_at` is when time alone opens the budget, if it does."""

    reason: str
    retry_at: datetime | None = None


def allowance(amount: str, total: int) -> int:
    """How many nodes of `total` the `amount` allows: `"6"` six, `"10%"` a tenth, rounded up, at least one.

    `"0"` and `"0%"` allow none. Raises BadInputError when `amount` is something else.
    """
    text = amount.strip()
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise BadInputError(f'Budget "{amount[:40]}" is neither a number ("6") nor a percentage ("10%"); write one.')
    number = int(digits)
    if not text.endswith("%"):
        return number
    if number > 100:
        raise BadInputError(f'Budget "{amount[:40]}" is more than 100%; give a percentage up to 100%.')
    return 0 if number == 0 else max(1, -(-number * total // 100))


def may_disrupt(node: Member, usage: Usage, budget: Budget, now: datetime, *, approved: bool = False) -> Grant | Wait:
    """Whether `node` may be taken out of service at `now`. A node that is out already may stay out.

    `approved` says that a person approved this very disruption: needed when the budget requires approval, and enough
    to begin in a blackout. It never makes the budget larger.
    Raises BadInputError when an amount of the budget cannot be read.
    """
    out = usage.out_now()
    if node.name in out:
        return Grant()
    limit = allowance(budget.max_disrupted, len(usage.members))
    if len(out) >= limit:
        return Wait(f"The budget of {budget.max_disrupted} ({_nodes(limit)}) is spent: {_names(out)} out of service.")
    if node.domain is not None:
        size = sum(1 for m in usage.members if m.domain == node.domain)
        amount = budget.max_disrupted_per_domain
        limit = allowance(amount, size)
        here = usage.out_in(node.domain)
        if here >= limit:
            return Wait(
                f"The budget of {amount} ({_nodes(limit)}) of domain {node.domain} is spent: "
                f"{_nodes(here)} out of service."
            )
    refused = _pool_limit(node, usage, budget)
    if refused is not None:
        return refused
    started = tuple(at for at in usage.started_after(BEGINNING) if after(at, budget.window_s) > now)
    if len(started) >= budget.max_new_per_window:
        return Wait(
            f"{_nodes(len(started))} were taken out in the last {budget.window_s} s; "
            f"the budget allows {budget.max_new_per_window}.",
            retry_at=_reopens(started, budget.max_new_per_window, budget.window_s),
        )
    dark = blackout_until(budget.blackouts, now) if not approved else None
    if dark is not None:
        name, ends = dark
        return Wait(f"Blackout {name}: no new disruption starts before {ends:%Y-%m-%d %H:%M} UTC.", retry_at=ends)
    if budget.require_approval and not approved:
        return Wait(f"The budget asks for approval: 'muster node {node.name} approve' lets it go on.")
    return Grant()


def _pool_limit(node: Member, usage: Usage, budget: Budget) -> Wait | None:
    size = sum(1 for m in usage.members if m.pool == node.pool)
    limit = allowance(budget.max_disrupted_per_pool, size)
    here = usage.out_in_pool(node.pool)
    if here < limit:
        return None
    return Wait(
        f"The budget of {budget.max_disrupted_per_pool} ({_nodes(limit)}) of pool {node.pool} is spent: "
        f"{_nodes(here)} out of service."
    )


def _reopens(started: tuple[datetime, ...], most: int, window_s: float) -> datetime | None:
    """When so many starts have left the window that one more fits; None when the budget allows none at all."""
    return after(started[len(started) - most], window_s) if most > 0 else None


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _names(names: Iterable[str], at_most: int = 4) -> str:
    listed = list(names)
    if not listed:
        return "no node may be"
    shown = ", ".join(listed[:at_most])
    more = len(listed) - at_most
    if more > 0:
        return f"{shown} and {more} more are"
    return f"{shown} {'is' if len(listed) == 1 else 'are'}"
