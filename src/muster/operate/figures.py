"""The fleet in counts, for metrics: a projection of the lifecycles, never a source of anything. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.errors import BadInputError
from muster.operate.budget import Usage, allowance
from muster.operate.draft import selected
from muster.operate.model import BlockerKind
from muster.operate.policy import EffectivePolicy
from muster.resources.certification import Phase
from muster.resources.fault import Severity
from muster.resources.node_health import Lifecycle, NodeHealth, RungAttempt, State
from muster.telemetry.observer import NEW, BudgetFigures, FleetFigures

ALL = "all"
"""Group of a budget without a node selector."""


@dataclass(frozen=True)
class CountedNode:
    """A managed node with what is known about its health and the policy in force on it."""

    name: str
    labels: Mapping[str, str]
    health: NodeHealth | None
    policy: EffectivePolicy


def fleet_figures(
    nodes: Iterable[CountedNode], usage: Usage, phases: Iterable[Phase], queue_depth: int
) -> FleetFigures:
    """Count. Every state, severity and phase is there, with 0 where nothing is in it."""
    listed = sorted(nodes, key=lambda n: n.name)
    states = Counter({state.value: 0 for state in State} | {NEW: 0})
    faults = Counter({severity.value: 0 for severity in Severity})
    certifications = Counter({phase.value: 0 for phase in Phase})
    blocked = Counter({kind.value: 0 for kind in BlockerKind})
    held = 0
    for node in listed:
        status = node.health.status if node.health is not None else None
        life = status.lifecycle if status is not None else None
        states[life.state.value if life is not None else NEW] += 1
        held += life is not None and life.held
        blocked.update(sorted({b.kind for b in life.blockers}) if life is not None else ())
        if status is not None and status.observed is not None:
            faults.update(fault.severity.value for fault in status.observed.faults)
    certifications.update(phase.value for phase in phases)
    return FleetFigures(
        nodes=states,
        held=held,
        open_faults=faults,
        certifications=certifications,
        budgets=_budgets(listed, usage),
        queue_depth=queue_depth,
        blocked=blocked,
    )


def _budgets(nodes: list[CountedNode], usage: Usage) -> tuple[BudgetFigures, ...]:
    """One entry for each group of nodes that has a budget in force, by group."""
    labels = {node.name: node.labels for node in nodes}
    amounts: dict[tuple[tuple[str, str], ...], str] = {}
    for node in nodes:
        amounts.setdefault(node.policy.budget_selector, node.policy.budget.max_disrupted)
    found = []
    for selector in sorted(amounts):
        used = usage.within(selected(labels, selector)) if selector else usage
        try:
            allowed = allowance(amounts[selector], len(used.members))
        except BadInputError:
            continue  # the policy says so itself, in its condition
        group = ",".join(f"{key}={value}" for key, value in selector) or ALL
        found.append(BudgetFigures(group, len(used.out_now()), allowed))
    return tuple(found)


def ended_attempts(before: Lifecycle | None, after: Lifecycle) -> tuple[RungAttempt, ...]:
    """Attempts on the repair ladder that have another outcome in `after` than they had in `before`."""
    known = {a.repair: a.outcome for a in before.episode.attempts} if before and before.episode else {}
    now = after.episode.attempts if after.episode else ()
    return tuple(a for a in now if a.outcome and known.get(a.repair, "") != a.outcome)
