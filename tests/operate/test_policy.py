"""What a FaultPolicy says about a fault, and what becomes of rules that are wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.operate.policy import (
    FULL_AUTOMATION,
    OBSERVE_ONLY,
    SAFE_DEFAULT,
    TICKET_ONLY,
    conditions,
    default_ladder,
    effective_policy,
    judge,
    problems,
    with_provider,
)
from muster.operate.rules import compile_rule
from muster.resources.base import ConditionStatus, ObjectMeta
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import (
    AGENT_SILENT_S,
    Budget,
    Disposition,
    Drain,
    DrainMode,
    FaultPolicy,
    FaultPolicySpec,
    FaultPolicyStatus,
    LadderStep,
    Rule,
)
from muster.resources.node_health import CauseKind
from muster.resources.repair import Rung

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
LABELS = {"kubernetes.io/hostname": "n1", "topology.kubernetes.io/rack": "r1", "pool": "a"}


def fault(
    severity: Severity = Severity.FATAL,
    scope: Scope = Scope.GPU,
    hint: Hint = Hint.RESET_GPU,
    code: str = "119",
    first_seen: datetime = NOW,
) -> Fault:
    return Fault(
        source="kernel-log",
        check="xid",
        code=code,
        entity=Entity(kind=EntityKind.GPU, pci="0000:3b:00.0"),
        severity=severity,
        scope=scope,
        hint=hint,
        message="GSP timeout",
        first_seen=first_seen,
        last_seen=first_seen,
    )


def policy(name: str, *rules: Rule, **spec: object) -> FaultPolicy:
    return FaultPolicy(metadata=ObjectMeta(name=name), spec=FaultPolicySpec(rules=rules, **spec))


def rule(name: str, when: str, disposition: Disposition = Disposition.HOLD, **more: object) -> Rule:
    return Rule(name=name, when=when, disposition=disposition, **more)


def test_the_first_rule_that_is_true_decides() -> None:
    rules = (
        rule("no", "fault.code == '1'", Disposition.DRAIN),
        rule("yes", "fault.code == '119' && node.domain == 'r1'", Disposition.HOLD),
        rule("late", "true", Disposition.REPAIR),
    )
    judged = judge(effective_policy([policy("p", *rules)], LABELS), fault(), LABELS, NOW)
    assert (judged.rule, judged.disposition, judged.ladder, judged.due) == ("yes", Disposition.HOLD, (), True)


@pytest.mark.parametrize(
    ("when", "clause"),
    [
        ("fault.severty == 'fatal'", "undeclared reference to 'fault.severty'"),
        ("fault.count == 'many'", "no matching overload"),
        ("fault.count", "must yield BOOL"),
        ("((", "Syntax error"),
        ("", "Syntax error"),
        ("(" * 2000 + "true" + ")" * 2000, "recursion limit"),
        ("true || " * 1000 + "true", "longer than 4096 characters"),
    ],
)
def test_a_rule_that_does_not_compile_takes_its_policy_out_and_leaves_the_others(when: str, clause: str) -> None:
    broken = policy("broken", rule("bad", when), priority=9)
    good = policy("good", rule("all", "true", Disposition.DRAIN))
    (sentence,) = problems(broken)
    assert "Rule bad of FaultPolicy broken" in sentence
    assert clause in sentence
    (condition,) = conditions(broken, NOW)
    assert (condition.status, condition.message) == (ConditionStatus.FALSE, sentence)
    merged = effective_policy([broken, good], LABELS)
    assert merged.sources == ("good", "safe-default")
    assert judge(merged, fault(), LABELS, NOW).disposition is Disposition.DRAIN


def test_a_rule_that_fails_when_evaluated_is_skipped_and_reported() -> None:
    rules = (rule("missing", "node.labels['absent'] == 'x'"), rule("then", "true", Disposition.CONDITION))
    judged = judge(effective_policy([policy("p", *rules)], LABELS), fault(), LABELS, NOW)
    assert judged.rule == "then"
    assert len(judged.skipped) == 1
    assert judged.skipped[0].startswith("Rule missing was skipped: ")


def test_a_costly_rule_is_stopped() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    nested = "true"
    for name in "abcdefg":
        nested = f"{ten}.all({name}, {nested})"
    judged = judge(effective_policy([policy("p", rule("slow", nested))], LABELS), fault(), LABELS, NOW)
    assert "Rule slow was skipped" in judged.skipped[0]


def test_grace_delays_the_disposition() -> None:
    merged = effective_policy([policy("p", rule("g", "true", grace_s=60))], LABELS)
    early = judge(merged, fault(), LABELS, NOW + timedelta(seconds=59))
    late = judge(merged, fault(), LABELS, NOW + timedelta(seconds=60))
    assert (early.due, late.due) == (False, True)
    assert early.due_at == NOW + timedelta(seconds=60)


def test_the_age_of_a_fault_is_visible_to_rules() -> None:
    merged = effective_policy([policy("p", rule("old", "fault.age_s >= 10", Disposition.DRAIN))], LABELS)
    assert judge(merged, fault(), LABELS, NOW + timedelta(seconds=9)).rule != "old"
    assert judge(merged, fault(), LABELS, NOW + timedelta(seconds=10)).rule == "old"


def test_policies_merge_rules_by_name_and_sections_whole() -> None:
    strong = policy("strong", rule("x", "true", Disposition.CONDITION), priority=5, budget=Budget(max_disrupted="3"))
    weak = policy(
        "weak",
        rule("x", "true", Disposition.DRAIN),
        rule("y", "true", Disposition.HOLD),
        budget=Budget(max_disrupted="9"),
        drain=Drain(mode=DrainMode.DEADLINE),
        repair_provider="cloud",
        node_selector={"pool": "a"},
    )
    other = policy("other", rule("z", "true"), priority=99, node_selector={"pool": "b"})
    for order in ([strong, weak, other], [other, weak, strong]):
        merged = effective_policy(order, LABELS)
        assert [r.name for r in merged.rules[:2]] == ["x", "y"]
        assert merged.rules[0].disposition is Disposition.CONDITION
        assert merged.budget.max_disrupted == "3"
        assert merged.drain.mode is DrainMode.DEADLINE
        assert merged.repair_provider == "cloud"
        assert merged.sources == ("strong", "weak", "safe-default")


def test_the_group_of_a_budget_is_that_of_the_policy_it_came_from() -> None:
    pool = policy("pool", node_selector={"pool": "a"}, budget=Budget(max_disrupted="1"))
    assert effective_policy([pool], LABELS).budget_selector == (("pool", "a"),)
    assert effective_policy([pool], {"pool": "b"}).budget_selector == ()


ACTING = [Disposition.HOLD, Disposition.DRAIN, Disposition.REPAIR]


@given(
    st.sampled_from(ACTING),
    st.sampled_from(list(Scope)),
    st.sampled_from(list(Hint)),
)
def test_an_unknown_severity_never_acts_whatever_the_rule_says(
    disposition: Disposition, scope: Scope, hint: Hint
) -> None:
    loud = policy("loud", rule("all", "true", disposition), repair_provider="cloud")
    judged = judge(effective_policy([loud], LABELS), fault(Severity.UNKNOWN, scope, hint), LABELS, NOW)
    assert judged.disposition is Disposition.CONDITION
    assert judged.ladder == ()


@given(st.sampled_from(list(Severity)), st.sampled_from(list(Scope)), st.sampled_from(list(Hint)))
def test_the_safe_default_repairs_and_drains_nothing(severity: Severity, scope: Scope, hint: Hint) -> None:
    judged = judge(effective_policy([], LABELS), fault(severity, scope, hint), LABELS, NOW)
    assert judged.disposition not in (Disposition.DRAIN, Disposition.REPAIR)
    assert (judged.disposition is Disposition.HOLD) == (
        severity is Severity.FATAL and scope in (Scope.GPU, Scope.NODE, Scope.LINK, Scope.FABRIC)
    )


@given(st.sampled_from(list(Severity)), st.sampled_from(list(Hint)))
def test_faults_of_applications_are_only_observed(severity: Severity, hint: Hint) -> None:
    for shipped in (SAFE_DEFAULT, with_provider(FULL_AUTOMATION, "cloud")):
        judged = judge(effective_policy([shipped], LABELS), fault(severity, Scope.APPLICATION, hint), LABELS, NOW)
        assert judged.disposition is Disposition.OBSERVE


@pytest.mark.parametrize(
    ("hint", "rungs"),
    [
        (Hint.RESET_GPU, ["reset-gpu", "reboot", "power-cycle", "replace", "ticket"]),
        (Hint.REBOOT, ["reboot", "power-cycle", "replace", "ticket"]),
        (Hint.REPLACE, ["ticket"]),
        (Hint.INSPECT, ["ticket"]),
    ],
)
def test_full_automation_climbs_the_ladder_of_the_hint(hint: Hint, rungs: list[str]) -> None:
    merged = effective_policy([with_provider(FULL_AUTOMATION, "cloud")], LABELS)
    judged = judge(merged, fault(hint=hint), LABELS, NOW)
    assert judged.disposition is Disposition.REPAIR
    assert [step.rung.value for step in judged.ladder] == rungs


def test_without_a_provider_every_ladder_is_a_ticket() -> None:
    merged = effective_policy([FULL_AUTOMATION], LABELS)
    assert not merged.repairs
    assert [s.rung for s in judge(merged, fault(), LABELS, NOW).ladder] == [Rung.TICKET]
    assert [s.rung for s in merged.ladder_for(CauseKind.CERTIFICATION)] == [Rung.TICKET]


@pytest.mark.parametrize("cause", list(CauseKind))
@pytest.mark.requirement("v2.4/OIE05")
def test_every_default_ladder_ends_with_a_person(cause: CauseKind) -> None:
    assert default_ladder(cause)[-1].rung is Rung.TICKET


@pytest.mark.requirement("v2.4/OIE02")
def test_shipped_policies_have_no_problem_and_decide_every_fault() -> None:
    for shipped in (SAFE_DEFAULT, FULL_AUTOMATION):
        assert problems(shipped) == ()
        assert shipped.spec.rules[-1].when == "true"
        (condition,) = conditions(shipped, NOW)
        assert condition.status is ConditionStatus.TRUE


@pytest.mark.parametrize(
    ("bad", "clause"),
    [
        (policy("p", rule("", "true")), "needs a name of its own"),
        (policy("p", rule("a", "true"), rule("a", "true")), "needs a name of its own"),
        (policy("p", rule("a", "true", grace_s=-1)), "grace of -1 s; give 0 to"),
        (policy("p", rule("a", "true", ladder=(LadderStep(rung=Rung.REBOOT, attempts=0),))), "1 to 10 attempts"),
        (
            policy("p", rule("a", "true", ladder=(LadderStep(rung=Rung.REBOOT, timeout_s=0),))),
            "gives reboot 0 s; give a timeout of 1 to",
        ),
        (policy("p", budget=Budget(max_disrupted="ten")), "neither a number"),
        (policy("p", budget=Budget(window_s=0)), "budget window above 0"),
        (policy("p", *(rule(f"r{i}", "true") for i in range(201))), "at most 200"),
    ],
)
def test_a_policy_that_makes_no_sense_says_so(bad: FaultPolicy, clause: str) -> None:
    assert any(clause in sentence for sentence in problems(bad))


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    (first,) = conditions(FULL_AUTOMATION, NOW)
    status = FaultPolicyStatus(conditions=(first,))
    later = FaultPolicy(metadata=FULL_AUTOMATION.metadata, spec=FULL_AUTOMATION.spec, status=status)
    (second,) = conditions(later, NOW + timedelta(hours=1))
    assert second.last_transition_time == NOW


@given(st.text(max_size=200))
def test_no_text_makes_compiling_raise(when: str) -> None:
    program = compile_rule(when)
    assert bool(program.problem) != (program.expression is not None)


def test_a_stronger_policy_that_says_nothing_of_silence_leaves_what_a_weaker_one_says() -> None:
    weak = FaultPolicy(metadata=ObjectMeta(name="weak"), spec=FaultPolicySpec(priority=1, agent_silent_s=900))
    strong = FaultPolicy(metadata=ObjectMeta(name="strong"), spec=FaultPolicySpec(priority=2))
    assert effective_policy([weak, strong], {}).agent_silent_s == 900
    said = replace(strong, spec=replace(strong.spec, agent_silent_s=60))
    assert effective_policy([weak, said], {}).agent_silent_s == 60
    assert effective_policy([strong], {}).agent_silent_s == AGENT_SILENT_S


def test_none_switches_repairs_off_whatever_weaker_policies_say() -> None:
    step = LadderStep(rung=Rung.REBOOT, provider="bmc")
    rule = Rule(name="mine", when="true", disposition=Disposition.REPAIR, ladder=(step,))
    weak = FaultPolicy(
        metadata=ObjectMeta(name="weak"),
        spec=FaultPolicySpec(priority=1, rules=(rule,), repair_provider="cloud", providers={"replace": "other"}),
    )
    strong = FaultPolicy(metadata=ObjectMeta(name="strong"), spec=FaultPolicySpec(priority=2, repair_provider="none"))
    assert effective_policy([weak], {}).repairs
    merged = effective_policy([weak, strong], {})
    assert not merged.repairs
    assert merged.provider_of(merged.rules[0].ladder[0]) == ""
    assert merged.ladder_for(CauseKind.CERTIFICATION) == TICKET_ONLY


def test_observe_only_over_automation_repairs_nothing() -> None:
    merged = effective_policy([OBSERVE_ONLY, with_provider(FULL_AUTOMATION, "cloud")], {})
    assert merged.ladder_for(CauseKind.CERTIFICATION) == TICKET_ONLY
