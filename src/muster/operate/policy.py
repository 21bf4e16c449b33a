"""From fault to disposition: which FaultPolicies apply to a node, and what they say about one fault.

Policies that select a node merge, highest `priority` first (equal priority: by name): a rule hides later ones of its
name, every other section comes whole from the first policy that has it. A policy with a problem is left out entirely
and says so in its condition; the others stay in force. The safe default stands below them all: it decides where no
rule of theirs does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Any, assert_never

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.moments import after
from muster.operate.correlation.model import Correlated
from muster.operate.patterns.history import History
from muster.operate.policy_problems import problems as problems
from muster.operate.policy_problems import warnings
from muster.operate.rules import holds, variables
from muster.resources.base import Condition, ConditionStatus, Model, from_object
from muster.resources.fault import Fault, Hint, Severity
from muster.resources.fault_policy import (
    AGENT_SILENT_S,
    NOBODY,
    Budget,
    CertificationPolicy,
    Correlation,
    Disposition,
    Drain,
    DrainScope,
    DriftPolicy,
    FaultPolicy,
    LadderStep,
    MaintenancePolicy,
    Pattern,
    Rule,
)
from muster.resources.node_health import CauseKind
from muster.resources.repair import Rung

VALID_CONDITION = "Valid"
MILDEST_FIRST = tuple(Disposition)
"""Dispositions, mildest first."""
SECTIONS = ("budget", "drain", "drift", "certification", "maintenance", "repair_provider")
"""Parts of a policy that come whole from the first policy that has them."""

TICKET_ONLY = (LadderStep(rung=Rung.TICKET),)
RESET_LADDER = (
    LadderStep(rung=Rung.RESET_GPU, timeout_s=900),
    LadderStep(rung=Rung.REBOOT, timeout_s=1800),
    LadderStep(rung=Rung.POWER_CYCLE, timeout_s=2700),
    LadderStep(rung=Rung.REPLACE, timeout_s=14400),
    LadderStep(rung=Rung.TICKET),
)
REBOOT_LADDER = RESET_LADDER[1:]


@dataclass(frozen=True)
class Judgement:
    """What the policy says about one fault now.

    `rule` is empty when no rule matched (then `observe`). `due` tells whether the disposition applies yet; before
    that, `due_at` says from when on. `ladder` is empty unless the disposition is `repair`. `skipped` names rules that
    could not be evaluated, each with its reason. `capped_by` names the correlation that holds automation back and
    says why; the rule alone would have led further.
    """

    rule: str
    disposition: Disposition
    ladder: tuple[LadderStep, ...]
    due: bool
    due_at: datetime
    skipped: tuple[str, ...] = ()
    scope: DrainScope = DrainScope.AUTO
    no_execute: bool = False
    cordon: bool = False
    capped_by: str = ""


@dataclass(frozen=True)
class EffectivePolicy:
    """The merged policy of one node. `sources` names the policies it came from, strongest first."""

    rules: tuple[Rule, ...] = ()
    budget: Budget = field(default_factory=Budget)
    budget_selector: tuple[tuple[str, str], ...] = ()
    """Labels of the node group that the budget covers (sorted pairs); empty: the whole cluster."""
    drain: Drain = field(default_factory=Drain)
    drift: DriftPolicy = field(default_factory=DriftPolicy)
    certification: CertificationPolicy = field(default_factory=CertificationPolicy)
    repair_provider: str = ""
    agent_silent_s: int = AGENT_SILENT_S
    sources: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    providers: Mapping[str, str] = field(default_factory=dict)
    """Rung -> provider, where a rung is carried out by another than `repair_provider`."""
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    origins: Mapping[str, str] = field(default_factory=dict)
    """`rule/<name>`, `pattern/<name>`, `correlation/<name>`, section -> the policy that it came from."""

    @property
    def repairs(self) -> bool:
        """Whether repairs are on. Off: every ladder is the one step `ticket`, a person is asked."""
        return bool(self.repair_provider or self.providers)

    def provider_of(self, step: LadderStep) -> str:
        """Who carries out `step`; empty: nobody."""
        return step.provider or self.providers.get(step.rung.value, "") or self.repair_provider

    def feasible(self, ladder: Sequence[LadderStep]) -> tuple[LadderStep, ...]:
        """The steps of `ladder` that somebody carries out; a person stands at the end where nobody does."""
        return tuple(s for s in ladder if s.rung is Rung.TICKET or self.provider_of(s)) or TICKET_ONLY

    def ladder_for(self, cause: CauseKind) -> tuple[LadderStep, ...]:
        """The ladder of an episode that no rule of the policy brought about."""
        return self.feasible(default_ladder(cause))


def default_ladder(cause: CauseKind) -> tuple[LadderStep, ...]:
    """What is tried, mildest first, when a node failed for `cause` and no rule gives a ladder."""
    match cause:
        case CauseKind.CERTIFICATION | CauseKind.FAULT | CauseKind.REPAIR | CauseKind.NEW_NODE | CauseKind.DRIFT:
            return RESET_LADDER
        case CauseKind.AGE:
            return RESET_LADDER
        case CauseKind.AGENT_SILENT:
            return REBOOT_LADDER
        case CauseKind.PERSON | CauseKind.MAINTENANCE:
            return TICKET_ONLY
        case _:
            assert_never(cause)


def ladder_for_hint(hint: Hint) -> tuple[LadderStep, ...]:
    """The ladder for a fault whose rule says `repair` and gives none."""
    match hint:
        case Hint.RESET_GPU:
            return RESET_LADDER
        case Hint.REBOOT:
            return REBOOT_LADDER
        case Hint.NONE | Hint.RESTART_APP | Hint.REPLACE | Hint.INSPECT:
            return TICKET_ONLY
        case _:
            assert_never(hint)


def effective_policy(policies: Iterable[FaultPolicy], labels: Mapping[str, str]) -> EffectivePolicy:
    """Merge the policies that select a node with `labels`. Order of `policies` does not matter."""
    chosen = tuple(p for p in _ranked(policies) if _selects(p, labels) and not problems(p))
    return _merge((*chosen, SAFE_DEFAULT))


def judge(
    policy: EffectivePolicy,
    fault: Fault,
    node_labels: Mapping[str, str],
    now: datetime,
    *,
    node_name: str = "",
    history: History | None = None,
    correlated: Mapping[str, Correlated] | None = None,
) -> Judgement:
    """What `policy` says about `fault` on a node with `node_labels`: the first rule that is true decides.

    A fault of unknown severity never leads beyond `condition`, whatever the rule says: unknown reports, it does not
    act. A correlation caps what the rule says. `node_name` defaults to the hostname label; `history` to the fault
    alone; `correlated` maps fault keys and kinds (`xid/79`) to what holds automation back.
    """
    name = node_name or node_labels.get("kubernetes.io/hostname", "")
    values = variables(fault, name, node_labels, now, history)
    skipped: list[str] = []
    for rule in policy.rules:
        answer = holds(rule.when, values)
        if answer is True:
            judgement = _judgement(policy, rule, fault, now, tuple(skipped))
            return _capped(judgement, fault, correlated) if correlated else judgement
        if answer is not False:
            skipped.append(f"Rule {rule.name} was skipped: {answer}.")
    return Judgement("", Disposition.OBSERVE, (), True, fault.first_seen, tuple(skipped))


def _judgement(
    policy: EffectivePolicy, rule: Rule, fault: Fault, now: datetime, skipped: tuple[str, ...]
) -> Judgement:
    disposition = rule.disposition
    if fault.severity is Severity.UNKNOWN:
        disposition = _milder(disposition, Disposition.CONDITION)
    ladder: tuple[LadderStep, ...] = ()
    if disposition is Disposition.REPAIR:
        ladder = policy.feasible(rule.ladder or ladder_for_hint(fault.hint))
    due_at = after(fault.first_seen, rule.grace_s)
    return Judgement(
        rule=rule.name,
        disposition=disposition,
        ladder=ladder,
        due=now >= due_at,
        due_at=due_at,
        skipped=skipped,
        scope=rule.scope,
        no_execute=rule.no_execute,
        cordon=rule.cordon,
    )


def _capped(judgement: Judgement, fault: Fault, correlated: Mapping[str, Correlated]) -> Judgement:
    """The judgement with the mildest of what its rule says and what correlations allow."""
    for key in (fault.key(), f"{fault.check}/{fault.code}"):
        cap = correlated.get(key)
        if cap is not None and _milder(judgement.disposition, cap.disposition) is not judgement.disposition:
            judgement = replace(
                judgement,
                disposition=cap.disposition,
                ladder=(),
                no_execute=False,
                capped_by=f"{cap.correlation}: {cap.message}",
            )
    return judgement


def _milder(one: Disposition, other: Disposition) -> Disposition:
    return min(one, other, key=MILDEST_FIRST.index)


def conditions(policy: FaultPolicy, now: datetime, providers: Collection[str] | None = None) -> tuple[Condition, ...]:
    """The conditions to publish in the policy's status. The transition time is kept while the status stays.

    `providers`: names of those that the controller has; None: not known.
    """
    found = problems(policy)
    fine = " ".join(("Every rule compiles; the policy is in force.", *warnings(policy, providers)))
    status = ConditionStatus.FALSE if found else ConditionStatus.TRUE
    old = next((c for c in policy.status.conditions if c.type == VALID_CONDITION), None)
    return (
        Condition(
            type=VALID_CONDITION,
            status=status,
            reason="Invalid" if found else "InForce",
            message=(" ".join(found) if found else fine)[:1024],
            last_transition_time=old.last_transition_time if old and old.status is status else now,
        ),
    )


def _ranked(policies: Iterable[FaultPolicy]) -> list[FaultPolicy]:
    return sorted(policies, key=lambda p: (-p.spec.priority, p.metadata.name))


def _selects(policy: FaultPolicy, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in policy.spec.node_selector.items())


def _merge(chosen: Sequence[FaultPolicy]) -> EffectivePolicy:
    origins: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    patterns: dict[str, Pattern] = {}
    correlations: dict[str, Correlation] = {}
    providers: dict[str, str] = {}
    for policy in chosen:
        by = policy.metadata.name
        for rule in policy.spec.rules:
            rules.setdefault(rule.name, rule)
            origins.setdefault(f"rule/{rule.name}", by)
        for pattern in policy.spec.patterns:
            patterns.setdefault(pattern.name, pattern)
            origins.setdefault(f"pattern/{pattern.name}", by)
        for correlation in policy.spec.correlations:
            correlations.setdefault(correlation.name, correlation)
            origins.setdefault(f"correlation/{correlation.name}", by)
        for rung, provider in policy.spec.providers.items():
            providers.setdefault(rung, provider)
        for section in SECTIONS:
            if getattr(policy.spec, section):
                origins.setdefault(section, by)
    specs = [p.spec for p in chosen]
    provider = next((s.repair_provider for s in specs if s.repair_provider), "")
    if provider == NOBODY:
        provider, providers = "", {}
        rules = {name: _without_providers(rule) for name, rule in rules.items()}
    with_budget = next((s for s in specs if s.budget is not None), None)
    return EffectivePolicy(
        rules=tuple(rules.values()),
        budget=(with_budget.budget if with_budget else None) or Budget(),
        budget_selector=tuple(sorted(with_budget.node_selector.items())) if with_budget else (),
        drain=next((s.drain for s in specs if s.drain is not None), Drain()),
        drift=next((s.drift for s in specs if s.drift is not None), DriftPolicy()),
        certification=next((s.certification for s in specs if s.certification is not None), CertificationPolicy()),
        repair_provider=provider,
        agent_silent_s=next((s.agent_silent_s for s in specs if s.agent_silent_s is not None), AGENT_SILENT_S),
        sources=tuple(p.metadata.name for p in chosen),
        patterns=tuple(patterns.values()),
        correlations=tuple(correlations.values()),
        providers=dict(sorted(providers.items())),
        maintenance=next((s.maintenance for s in specs if s.maintenance is not None), MaintenancePolicy()),
        origins=origins,
    )


def _without_providers(rule: Rule) -> Rule:
    steps = tuple(msgspec.structs.replace(step, provider="") for step in rule.ladder)
    return msgspec.structs.replace(rule, ladder=steps)


def with_provider(policy: FaultPolicy, provider: str) -> FaultPolicy:
    """The same policy with repairs carried out by `provider`."""
    return msgspec.structs.replace(policy, spec=msgspec.structs.replace(policy.spec, repair_provider=provider))


@lru_cache(maxsize=8)
def load_shipped(name: str) -> FaultPolicy:
    """A policy that comes with Muster, one of SHIPPED, with the patterns and correlations that come with it."""
    if name not in SHIPPED:
        raise BadInputError(f"No policy {name[:60]} comes with Muster; there are {', '.join(SHIPPED)}.")
    policy = from_object(FaultPolicy, _data(name))
    history = msgspec.convert(_data("patterns"), _OverHistory, strict=True)
    spec = msgspec.structs.replace(policy.spec, patterns=history.patterns, correlations=history.correlations)
    return msgspec.structs.replace(policy, spec=spec)


class _OverHistory(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `data/patterns.yaml`."""

    patterns: tuple[Pattern, ...]
    correlations: tuple[Correlation, ...]


def _data(name: str) -> dict[str, Any]:
    source = resources.files("muster.operate") / "data" / f"{name}.yaml"
    loaded: dict[str, Any] = yamlio.loads(source.read_text(), source.name)
    return loaded


SHIPPED = ("safe-default", "full-automation", "observe-only")
SAFE_DEFAULT = load_shipped("safe-default")
FULL_AUTOMATION = load_shipped("full-automation")
OBSERVE_ONLY = load_shipped("observe-only")
