"""From fault to disposition: which FaultPolicies apply to a node, and what they say about one fault.

Policies that select a node merge, highest `priority` first (equal priority: by name): a rule hides later ones of its
name, every other section comes whole from the first policy that has it. A policy with a problem is left out entirely
and says so in its condition; the others stay in force. The safe default stands below them all: it decides where no
rule of theirs does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import assert_never

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.moments import after
from muster.operate.budget import allowance
from muster.operate.rules import compile_rule, holds, variables
from muster.resources.base import Condition, ConditionStatus, from_object
from muster.resources.fault import Fault, Hint, Severity
from muster.resources.fault_policy import (
    Budget,
    CertificationPolicy,
    Disposition,
    Drain,
    DriftPolicy,
    FaultPolicy,
    FaultPolicySpec,
    LadderStep,
    Rule,
)
from muster.resources.node_health import CauseKind
from muster.resources.repair import Rung

MAX_RULES = 200
MAX_LADDER_STEPS = 10
MAX_ATTEMPTS = 10
MAX_SECONDS = 10 * 365 * 24 * 3600
"""Ten years: whoever means longer has most likely mistaken the unit."""
VALID_CONDITION = "Valid"
MILDEST_FIRST = tuple(Disposition)
"""Dispositions, mildest first."""

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
    could not be evaluated, each with its reason.
    """

    rule: str
    disposition: Disposition
    ladder: tuple[LadderStep, ...]
    due: bool
    due_at: datetime
    skipped: tuple[str, ...] = ()


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
    agent_silent_s: int = 300
    sources: tuple[str, ...] = ()

    @property
    def repairs(self) -> bool:
        """Whether repairs are on. Off: every ladder is the one step `ticket`, a person is asked."""
        return bool(self.repair_provider)

    def ladder_for(self, cause: CauseKind) -> tuple[LadderStep, ...]:
        """The ladder of an episode that no rule of the policy brought about."""
        return default_ladder(cause) if self.repairs else TICKET_ONLY


def default_ladder(cause: CauseKind) -> tuple[LadderStep, ...]:
    """What is tried, mildest first, when a node failed for `cause` and no rule gives a ladder."""
    match cause:
        case CauseKind.CERTIFICATION | CauseKind.FAULT | CauseKind.REPAIR | CauseKind.NEW_NODE | CauseKind.DRIFT:
            return RESET_LADDER
        case CauseKind.AGE:
            return RESET_LADDER
        case CauseKind.AGENT_SILENT:
            return REBOOT_LADDER
        case CauseKind.PERSON:
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
    policy: EffectivePolicy, fault: Fault, node_labels: Mapping[str, str], now: datetime, *, node_name: str = ""
) -> Judgement:
    """What `policy` says about `fault` on a node with `node_labels`: the first rule that is true decides.

    A fault of unknown severity never leads beyond `condition`, whatever the rule says: unknown reports, it does not
    act. `node_name` defaults to the hostname label.
    """
    name = node_name or node_labels.get("kubernetes.io/hostname", "")
    values = variables(fault, name, node_labels, now)
    skipped: list[str] = []
    for rule in policy.rules:
        answer = holds(rule.when, values)
        if answer is True:
            return _judgement(policy, rule, fault, now, tuple(skipped))
        if answer is not False:
            skipped.append(f"Rule {rule.name} was skipped: {answer}.")
    return Judgement("", Disposition.OBSERVE, (), True, fault.first_seen, tuple(skipped))


def _judgement(
    policy: EffectivePolicy, rule: Rule, fault: Fault, now: datetime, skipped: tuple[str, ...]
) -> Judgement:
    disposition = rule.disposition
    if fault.severity is Severity.UNKNOWN:
        disposition = min(disposition, Disposition.CONDITION, key=MILDEST_FIRST.index)
    ladder: tuple[LadderStep, ...] = ()
    if disposition is Disposition.REPAIR:
        ladder = (rule.ladder or ladder_for_hint(fault.hint)) if policy.repairs else TICKET_ONLY
    due_at = after(fault.first_seen, rule.grace_s)
    return Judgement(rule.name, disposition, ladder, now >= due_at, due_at, skipped)


def problems(policy: FaultPolicy) -> tuple[str, ...]:
    """Why `policy` cannot be in force: one sentence each, empty when it can."""
    return _problems_of(msgspec.json.encode((policy.metadata.name, policy.spec)))


def conditions(policy: FaultPolicy, now: datetime) -> tuple[Condition, ...]:
    """The conditions to publish in the policy's status. The transition time is kept while the status stays."""
    found = problems(policy)
    status = ConditionStatus.FALSE if found else ConditionStatus.TRUE
    old = next((c for c in policy.status.conditions if c.type == VALID_CONDITION), None)
    return (
        Condition(
            type=VALID_CONDITION,
            status=status,
            reason="Invalid" if found else "InForce",
            message=" ".join(found)[:1024] if found else "Every rule compiles; the policy is in force.",
            last_transition_time=old.last_transition_time if old and old.status is status else now,
        ),
    )


@lru_cache(maxsize=256)
def _problems_of(encoded: bytes) -> tuple[str, ...]:
    # Keyed by content: every decision asks, and policies change rarely.
    name, spec = msgspec.json.decode(encoded, type=tuple[str, FaultPolicySpec])
    return tuple(_find_problems(name, spec))


def _find_problems(name: str, spec: FaultPolicySpec) -> list[str]:
    found: list[str] = []
    if len(spec.rules) > MAX_RULES:
        found.append(f"FaultPolicy {name} has {len(spec.rules)} rules; at most {MAX_RULES} are accepted.")
    seen: list[str] = []
    for rule in spec.rules[:MAX_RULES]:
        where = f"Rule {rule.name or '(without a name)'} of FaultPolicy {name}"
        if not rule.name or rule.name in seen:
            found.append(f"{where} needs a name of its own.")
        seen.append(rule.name)
        program = compile_rule(rule.when)
        if program.problem:
            found.append(f"{where} does not compile: {program.problem}.")
        if not 0 <= rule.grace_s <= MAX_SECONDS:
            found.append(f"{where} has a grace of {rule.grace_s} s; give 0 to {MAX_SECONDS} s.")
        found.extend(f"{where} {clause}" for clause in _ladder_problems(rule.ladder))
    if spec.budget is not None:
        found.extend(_budget_problems(name, spec.budget))
    found.extend(
        f"FaultPolicy {name} has {field} {seconds}; give at most {MAX_SECONDS} s."
        for field, seconds in _durations(spec)
        if seconds > MAX_SECONDS
    )
    return found


def _durations(spec: FaultPolicySpec) -> list[tuple[str, int]]:
    """The durations outside of rules, named as people write them."""
    found = [("agentSilentS", spec.agent_silent_s)]
    if spec.budget is not None:
        found.append(("budget.windowS", spec.budget.window_s))
    if spec.drain is not None:
        found.append(("drain.deadlineS", spec.drain.deadline_s))
    if spec.drift is not None:
        found.append(("drift.maxGraceS", spec.drift.max_grace_s))
    if spec.certification is not None:
        found.append(("certification.batchWaitS", spec.certification.batch_wait_s))
    return found


def _ladder_problems(ladder: Sequence[LadderStep]) -> list[str]:
    if len(ladder) > MAX_LADDER_STEPS:
        return [f"has {len(ladder)} ladder steps; at most {MAX_LADDER_STEPS} are accepted."]
    found = []
    for step in ladder:
        if not 1 <= step.attempts <= MAX_ATTEMPTS:
            found.append(f"tries {step.rung.value} {step.attempts} times; give 1 to {MAX_ATTEMPTS} attempts.")
        if not 0 < step.timeout_s <= MAX_SECONDS:
            found.append(f"gives {step.rung.value} {step.timeout_s} s; give a timeout of 1 to {MAX_SECONDS} s.")
    return found


def _budget_problems(name: str, budget: Budget) -> list[str]:
    found = []
    for amount in (budget.max_disrupted, budget.max_disrupted_per_domain):
        try:
            allowance(amount, 100)
        except BadInputError as error:
            found.append(f"FaultPolicy {name}: {error}")
    if budget.window_s <= 0 or budget.max_new_per_window < 0:
        found.append(f"FaultPolicy {name} needs a budget window above 0 s and a count from 0 on.")
    return found


def _ranked(policies: Iterable[FaultPolicy]) -> list[FaultPolicy]:
    return sorted(policies, key=lambda p: (-p.spec.priority, p.metadata.name))


def _selects(policy: FaultPolicy, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in policy.spec.node_selector.items())


def _merge(chosen: Sequence[FaultPolicy]) -> EffectivePolicy:
    rules: dict[str, Rule] = {}
    for policy in chosen:
        for rule in policy.spec.rules:
            rules.setdefault(rule.name, rule)
    specs = [p.spec for p in chosen]
    with_budget = next((s for s in specs if s.budget is not None), None)
    return EffectivePolicy(
        rules=tuple(rules.values()),
        budget=(with_budget.budget if with_budget else None) or Budget(),
        budget_selector=tuple(sorted(with_budget.node_selector.items())) if with_budget else (),
        drain=next((s.drain for s in specs if s.drain is not None), Drain()),
        drift=next((s.drift for s in specs if s.drift is not None), DriftPolicy()),
        certification=next((s.certification for s in specs if s.certification is not None), CertificationPolicy()),
        repair_provider=next((s.repair_provider for s in specs if s.repair_provider), ""),
        agent_silent_s=specs[0].agent_silent_s,
        sources=tuple(p.metadata.name for p in chosen),
    )


def with_provider(policy: FaultPolicy, provider: str) -> FaultPolicy:
    """The same policy with repairs carried out by `provider`."""
    return msgspec.structs.replace(policy, spec=msgspec.structs.replace(policy.spec, repair_provider=provider))


@lru_cache(maxsize=8)
def load_shipped(name: str) -> FaultPolicy:
    """A policy that comes with Muster: `safe-default` or `full-automation`."""
    source = resources.files("muster.operate") / "data" / f"{name}.yaml"
    return from_object(FaultPolicy, yamlio.loads(source.read_text(), source.name))


SAFE_DEFAULT = load_shipped("safe-default")
FULL_AUTOMATION = load_shipped("full-automation")
