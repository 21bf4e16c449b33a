"""Why a FaultPolicy cannot be in force, and what about it deserves a second look: one sentence each. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from muster.errors import BadInputError
from muster.operate.budget import allowance
from muster.operate.rules import Vocabulary, compile_rule
from muster.resources.fault_policy import (
    NOBODY,
    Blackout,
    Budget,
    CertificationPolicy,
    Checkpoint,
    Correlation,
    Disposition,
    Drain,
    DriftAction,
    DriftPolicy,
    FaultPolicy,
    FaultPolicySpec,
    GroupBy,
    LadderStep,
    Pattern,
    PatternOver,
)
from muster.resources.node_health import RECENT_DAYS
from muster.resources.repair import Rung

MAX_RULES = 200
MAX_LADDER_STEPS = 10
MAX_ATTEMPTS = 10
MAX_SECONDS = 10 * 365 * 24 * 3600
"""Ten years: whoever means longer has most likely mistaken the unit."""
MAX_COUNT = 1000
DAY_S = 24 * 3600
MAX_LOOK_BACK_S = {PatternOver.BURSTS: RECENT_DAYS * DAY_S, PatternOver.REPAIRS: 30 * DAY_S}
"""Agents keep closed faults for RECENT_DAYS; the history of the lifecycle reaches about a month."""
MAX_BLACKOUT_S = 7 * DAY_S
SHORTEST_AGE_S = DAY_S
"""Certificates that live shorter keep nodes in tests instead of at work."""
MAX_REQUIRED = 32
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_TEST = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_URL = re.compile(r"https?://[^\s/]+\S*")


def problems(policy: FaultPolicy) -> tuple[str, ...]:
    """Why `policy` cannot be in force: one sentence each, empty when it can."""
    return _problems_of(msgspec.json.encode((policy.metadata.name, policy.spec)))


def warnings(policy: FaultPolicy, providers: Collection[str] | None = None) -> tuple[str, ...]:
    """What is odd about a policy that can be in force. `providers`: the names that exist; None: not known."""
    name, spec = policy.metadata.name, policy.spec
    found = [*_unreached(name, spec)]
    found.extend(
        f"Pattern {pattern.name} of FaultPolicy {name} can never hold: its condition is false."
        for pattern in spec.patterns
        if pattern.enabled and pattern.when.strip() == "false"
    )
    if providers is not None:
        known = ", ".join(sorted(providers)) or "none"
        found.extend(
            f"FaultPolicy {name} names the provider {provider}, which this controller does not have (it has {known})."
            for provider in _named_providers(spec)
            if provider not in providers
        )
    return tuple(found)


def _named_providers(spec: FaultPolicySpec) -> list[str]:
    steps = (step.provider for rule in spec.rules for step in rule.ladder)
    return sorted({p for p in (spec.repair_provider, *spec.providers.values(), *steps) if p and p != NOBODY})


def _unreached(name: str, spec: FaultPolicySpec) -> list[str]:
    catch_all = next((i for i, rule in enumerate(spec.rules) if rule.when.strip() == "true"), None)
    if catch_all is None:
        return []
    first = spec.rules[catch_all].name
    return [
        f"Rule {rule.name} of FaultPolicy {name} is never reached: rule {first} before it is true of every fault."
        for rule in spec.rules[catch_all + 1 :]
    ]


@lru_cache(maxsize=256)
def _problems_of(encoded: bytes) -> tuple[str, ...]:
    # Keyed by content: every decision asks, and policies change rarely.
    name, spec = msgspec.json.decode(encoded, type=tuple[str, FaultPolicySpec])
    return tuple(_find_problems(name, spec))


def _find_problems(name: str, spec: FaultPolicySpec) -> list[str]:
    found = _rule_problems(name, spec)
    found.extend(_named(name, "pattern", spec.patterns))
    found.extend(_named(name, "correlation", spec.correlations))
    found.extend(
        f"FaultPolicy {name} has {clause}" for clause in _selector_problems("nodeSelector", spec.node_selector)
    )
    found.extend(_provider_problems(name, spec.providers))
    if spec.budget is not None:
        found.extend(_budget_problems(name, spec.budget))
    if spec.drain is not None:
        found.extend(_drain_problems(name, spec.drain))
    if spec.maintenance is not None and spec.maintenance.disposition is Disposition.REPAIR:
        found.append(f"FaultPolicy {name} has maintenance.disposition repair; give drain or a milder one.")
    if spec.drift is not None:
        found.extend(_drift_problems(name, spec.drift))
    if spec.certification is not None:
        found.extend(_certification_problems(name, spec.certification))
    found.extend(
        f"FaultPolicy {name} has {field} {seconds}; give at most {MAX_SECONDS} s."
        for field, seconds in _durations(spec)
        if seconds > MAX_SECONDS
    )
    found.extend(
        f"FaultPolicy {name} has {field} {seconds}; give 0 or more seconds."
        for field, seconds in _durations(spec)
        if seconds < 0
    )
    return found


def _rule_problems(name: str, spec: FaultPolicySpec) -> list[str]:
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


def _named(policy: str, kind: str, entries: Sequence[Pattern | Correlation]) -> Iterable[str]:
    """Problems of a list of named entries: each needs a name of its own that can be part of a fault's code."""
    if len(entries) > MAX_RULES:
        yield f"FaultPolicy {policy} has {len(entries)} {kind}s; at most {MAX_RULES} are accepted."
    seen: list[str] = []
    for entry in entries[:MAX_RULES]:
        where = f"{kind.capitalize()} {entry.name or '(without a name)'} of FaultPolicy {policy}"
        if not _NAME.fullmatch(entry.name) or entry.name in seen:
            yield f"{where} needs a name of its own: small letters, digits and dashes, at most 63."
        seen.append(entry.name)
        clauses = _pattern_problems(entry) if isinstance(entry, Pattern) else _correlation_problems(entry)
        yield from (f"{where} {clause}" for clause in clauses)


def _pattern_problems(pattern: Pattern) -> Iterable[str]:
    most_s = MAX_LOOK_BACK_S[pattern.over]
    if not 1 <= pattern.within_s <= most_s:
        yield f"looks back {pattern.within_s} s; give 1 to {most_s} s, older history is not kept."
    if not (1 <= pattern.at_least <= MAX_COUNT and 1 <= pattern.at_least_groups <= MAX_COUNT):
        yield f"needs atLeast and atLeastGroups of 1 to {MAX_COUNT}."
    if pattern.at_most < 0 or 0 < pattern.at_most < pattern.at_least:
        yield f"can never hold: atMost {pattern.at_most} is below atLeast {pattern.at_least}."
    for field, gap_s in (("burstGapS", pattern.burst_gap_s), ("stickyGapS", pattern.sticky_gap_s)):
        if not 0 <= gap_s <= most_s:
            yield f"has {field} {gap_s}; give 0 to {most_s} s."
    yield from _pattern_expressions(pattern)
    yield from _pattern_groups(pattern)


def _pattern_expressions(pattern: Pattern) -> Iterable[str]:
    if pattern.over is PatternOver.REPAIRS and pattern.when.strip() != "true":
        yield "counts repairs, of which an expression sees nothing; leave out `when`."
    problem = compile_rule(pattern.when, Vocabulary.PATTERN).problem
    if problem:
        yield f"does not compile: {problem}."
    if pattern.unless:
        problem = compile_rule(pattern.unless, Vocabulary.UNLESS).problem
        if problem:
            yield f"has an `unless` that does not compile: {problem}."
    if len(pattern.message) > 300 or len(pattern.description) > 300:
        yield "has a message or description of more than 300 characters; shorten it."


def _pattern_groups(pattern: Pattern) -> Iterable[str]:
    by = pattern.group_by
    if not by or len(set(by)) != len(by):
        yield "needs groupBy with each way of grouping once, `[node]` to count all together."
    if (GroupBy.DETAIL in by) != bool(pattern.details):
        yield "needs `details` together with groupBy `detail`, and neither without the other."
    single = set(by) <= {GroupBy.NODE} or pattern.over is PatternOver.REPAIRS
    if pattern.at_least_groups > 1 and single:
        yield f"can never hold: it wants {pattern.at_least_groups} groups and everything is one group."
    of_one_fault = {GroupBy.ENTITY, GroupBy.CODE} <= set(by) and pattern.over is PatternOver.BURSTS
    if of_one_fault and not pattern.sticky_gap_s and (pattern.at_least - 1) * pattern.burst_gap_s >= pattern.within_s:
        yield (
            f"can never hold: {pattern.at_least} bursts that lie more than {pattern.burst_gap_s} s apart do not fit "
            f"into {pattern.within_s} s."
        )


def _correlation_problems(correlation: Correlation) -> Iterable[str]:
    problem = compile_rule(correlation.when, Vocabulary.FINDING).problem
    if problem:
        yield f"does not compile: {problem}."
    if not 1 <= correlation.within_s <= MAX_SECONDS:
        yield f"looks at {correlation.within_s} s; give 1 to {MAX_SECONDS} s."
    if not 2 <= correlation.at_least <= MAX_COUNT * MAX_COUNT:
        yield f"wants {correlation.at_least} nodes; one node correlates with nothing, give 2 or more."
    try:
        allowance(correlation.at_least_share, 100)
    except BadInputError as error:
        yield f"has an atLeastShare that is no share: {error}"
    if correlation.disposition is Disposition.REPAIR:
        yield "holds nothing back: its disposition is repair; give drain or a milder one."


def _provider_problems(name: str, providers: Mapping[str, str]) -> Iterable[str]:
    rungs = [rung.value for rung in Rung]
    for rung, provider in sorted(providers.items()):
        if rung not in rungs:
            yield f"FaultPolicy {name} names a provider for {rung[:40]}, which is no rung; rungs: {', '.join(rungs)}."
        if not provider.strip():
            yield f"FaultPolicy {name} names no provider for {rung[:40]}; give its name or leave the line out."


def _budget_problems(name: str, budget: Budget) -> list[str]:
    found = []
    for amount in (budget.max_disrupted, budget.max_disrupted_per_domain, budget.max_disrupted_per_pool):
        try:
            allowance(amount, 100)
        except BadInputError as error:
            found.append(f"FaultPolicy {name}: {error}")
    if budget.window_s <= 0 or budget.max_new_per_window < 0:
        found.append(f"FaultPolicy {name} needs a budget window above 0 s and a count from 0 on.")
    seen: list[str] = []
    for blackout in budget.blackouts:
        where = f"Blackout {blackout.name or '(without a name)'} of FaultPolicy {name}"
        if not blackout.name or blackout.name in seen:
            found.append(f"{where} needs a name of its own.")
        seen.append(blackout.name)
        found.extend(f"{where} {clause}" for clause in _blackout_problems(blackout))
    return found


def _blackout_problems(blackout: Blackout) -> Iterable[str]:
    wrong = [day for day in blackout.days if day not in WEEKDAYS]
    if wrong:
        yield f"has the day {wrong[0][:20]}; days are {', '.join(WEEKDAYS)}."
    if not _TIME.fullmatch(blackout.start):
        yield f'starts at "{blackout.start[:20]}"; give hours and minutes such as "22:00".'
    if not 1 <= blackout.duration_s <= MAX_BLACKOUT_S:
        yield f"lasts {blackout.duration_s} s; give 1 to {MAX_BLACKOUT_S} s."
    if not _is_timezone(blackout.timezone):
        yield f'has the timezone "{blackout.timezone[:40]}", which is not known; give one such as "Europe/Berlin".'


@lru_cache(maxsize=64)
def _is_timezone(name: str) -> bool:
    if name == "UTC":
        return True
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _drift_problems(name: str, drift: DriftPolicy) -> Iterable[str]:
    for field, action in (("baseline", drift.baseline), ("coverage", drift.coverage)):
        if action is DriftAction.HOLD:
            yield f"FaultPolicy {name} has drift.{field} hold; give report or roll, nodes are held in waves only."


def _certification_problems(name: str, certification: CertificationPolicy) -> Iterable[str]:
    if 0 < certification.max_age_s < SHORTEST_AGE_S:
        yield (
            f"FaultPolicy {name} has certification.maxAgeS {certification.max_age_s}; give 0 (never) or at least "
            f"{SHORTEST_AGE_S} s, tests take hours."
        )
    wrong = [test for test in certification.require if not _TEST.fullmatch(test)]
    if wrong:
        yield f"FaultPolicy {name} requires the test {wrong[0][:40]!r}, which no test can be called."
    if len(certification.require) > MAX_REQUIRED or len(set(certification.require)) != len(certification.require):
        yield f"FaultPolicy {name} needs certification.require with each test once, at most {MAX_REQUIRED}."


def _drain_problems(name: str, drain: Drain) -> Iterable[str]:
    yield from (f"The drain of FaultPolicy {name} {clause}" for clause in _checkpoint_problems(drain.checkpoint))
    seen: list[str] = []
    for rule in drain.rules:
        where = f"Drain rule {rule.name or '(without a name)'} of FaultPolicy {name}"
        if not rule.name or rule.name in seen:
            yield f"{where} needs a name of its own."
        seen.append(rule.name)
        if not 0 <= rule.deadline_s <= MAX_SECONDS:
            yield f"{where} has a deadline of {rule.deadline_s} s; give 0 to {MAX_SECONDS} s."
        if any(not namespace.strip() for namespace in rule.namespaces):
            yield f"{where} names an empty namespace; leave `namespaces` out to mean all."
        yield from (f"{where} has {clause}" for clause in _selector_problems("podSelector", rule.pod_selector))
        yield from (f"{where} {clause}" for clause in _checkpoint_problems(rule.checkpoint))


def _checkpoint_problems(checkpoint: Checkpoint | None) -> Iterable[str]:
    if checkpoint is None:
        return
    if not 0 <= checkpoint.timeout_s <= MAX_SECONDS:
        yield f"waits {checkpoint.timeout_s} s for a checkpoint; give 0 to {MAX_SECONDS} s."
    if checkpoint.webhook and not _URL.fullmatch(checkpoint.webhook):
        yield "has a checkpoint webhook that is no http or https URL; write it in full."


def _selector_problems(field: str, selector: Mapping[str, str]) -> Iterable[str]:
    for key, value in sorted(selector.items()):
        if not _LABEL_KEY.fullmatch(key):
            yield f"a {field} with the key {key[:80]}, which no label can have."
        elif not _LABEL_VALUE.fullmatch(value):
            yield f"a {field} with {key[:80]}={value[:80]}, a value that no label can have."


def _durations(spec: FaultPolicySpec) -> list[tuple[str, int]]:
    """The durations outside of rules, named as people write them."""
    found = [("agentSilentS", spec.agent_silent_s or 0)]
    if spec.budget is not None:
        found.append(("budget.windowS", spec.budget.window_s))
    if spec.drain is not None:
        found.append(("drain.deadlineS", spec.drain.deadline_s))
    if spec.maintenance is not None:
        found.append(("maintenance.leadS", spec.maintenance.lead_s))
        found.append(("maintenance.returnAfterS", spec.maintenance.return_after_s))
    if spec.drift is not None:
        found.append(("drift.maxGraceS", spec.drift.max_grace_s))
    if spec.certification is not None:
        found.append(("certification.batchWaitS", spec.certification.batch_wait_s))
        found.append(("certification.maxAgeS", spec.certification.max_age_s))
    return found
