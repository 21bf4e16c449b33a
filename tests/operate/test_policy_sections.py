"""What policies say beside rules: patterns, correlations, providers, blackouts, drains; merging and validation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.correlation.model import Correlated
from muster.operate.policy import (
    FULL_AUTOMATION,
    OBSERVE_ONLY,
    SAFE_DEFAULT,
    conditions,
    effective_policy,
    judge,
    load_shipped,
    problems,
    with_provider,
)
from muster.operate.policy_problems import warnings
from muster.resources.base import ObjectMeta
from muster.resources.fault import Hint, Scope, Severity
from muster.resources.fault_policy import (
    Blackout,
    Budget,
    CertificationPolicy,
    Checkpoint,
    Correlation,
    Disposition,
    Drain,
    DrainMode,
    DrainRule,
    DrainScope,
    DriftAction,
    DriftPolicy,
    FaultPolicy,
    FaultPolicySpec,
    GroupBy,
    LadderStep,
    MaintenancePolicy,
    Pattern,
    PatternOver,
    Rule,
)
from muster.resources.node_health import CauseKind
from muster.resources.repair import Rung
from tests.operate.histories import fault

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


def policy(name: str = "p", **spec: object) -> FaultPolicy:
    return FaultPolicy(metadata=ObjectMeta(name=name), spec=FaultPolicySpec(**spec))  # type: ignore[arg-type]


def rule(disposition: Disposition = Disposition.REPAIR, **more: object) -> Rule:
    return Rule(name="all", when="true", disposition=disposition, **more)  # type: ignore[arg-type]


def capped(at_most: Disposition) -> dict[str, Correlated]:
    one = Correlated("c", "r1", "xid/119", ("n1",), NOW, "", at_most, "Many nodes have it.")
    return {"xid/119": one}


# Merging


def test_patterns_and_correlations_merge_by_name() -> None:
    strong = policy("strong", priority=5, patterns=(Pattern(name="repeated-xid", enabled=False),))
    weak = policy(
        "weak", patterns=(Pattern(name="repeated-xid"), Pattern(name="own")), correlations=(Correlation(name="c"),)
    )
    for order in ([strong, weak], [weak, strong]):
        merged = effective_policy(order, {})
        names = [p.name for p in merged.patterns]
        assert names.count("repeated-xid") == 1
        assert not next(p for p in merged.patterns if p.name == "repeated-xid").enabled
        assert "own" in names
        assert "many-repairs" in names
        assert (merged.origins["pattern/repeated-xid"], merged.origins["pattern/own"]) == ("strong", "weak")
        assert merged.origins["correlation/many-in-domain"] == "safe-default"


def test_a_rung_has_the_provider_of_its_step_its_rung_or_the_policy() -> None:
    one = policy("one", priority=2, providers={"reboot": "redfish"})
    two = policy("two", providers={"reboot": "cloud", "replace": "cloud"}, repair_provider="jobs")
    merged = effective_policy([two, one], {})
    steps = {r: LadderStep(rung=r) for r in Rung}
    assert merged.provider_of(steps[Rung.REBOOT]) == "redfish"
    assert merged.provider_of(steps[Rung.REPLACE]) == "cloud"
    assert merged.provider_of(steps[Rung.RESET_GPU]) == "jobs"
    assert merged.provider_of(LadderStep(rung=Rung.REBOOT, provider="own")) == "own"


def test_rungs_that_nobody_carries_out_are_left_out() -> None:
    partial = effective_policy([policy(rules=(rule(),), providers={"reboot": "jobs"})], {})
    assert [s.rung for s in judge(partial, fault("119"), {}, NOW).ladder] == [Rung.REBOOT, Rung.TICKET]
    assert [s.rung for s in partial.ladder_for(CauseKind.CERTIFICATION)] == [Rung.REBOOT, Rung.TICKET]
    by_step = policy(rules=(rule(ladder=(LadderStep(rung=Rung.REPLACE, provider="own"),)),))
    assert [s.rung for s in judge(effective_policy([by_step], {}), fault("119"), {}, NOW).ladder] == [Rung.REPLACE]
    nobody = policy(rules=(rule(ladder=(LadderStep(rung=Rung.REPLACE),)),))
    assert [s.rung for s in judge(effective_policy([nobody], {}), fault("119"), {}, NOW).ladder] == [Rung.TICKET]


# Judging


def test_a_judgement_carries_what_its_rule_asks_for() -> None:
    loud = effective_policy([policy(rules=(rule(scope=DrainScope.GPU, no_execute=True, cordon=True),))], {})
    judged = judge(loud, fault("119"), {}, NOW)
    assert (judged.scope, judged.no_execute, judged.cordon, judged.capped_by) == (DrainScope.GPU, True, True, "")


def test_a_correlation_caps_and_says_so() -> None:
    loud = effective_policy([policy(rules=(rule(),), repair_provider="cloud")], {})
    judged = judge(loud, fault("119"), {}, NOW, correlated=capped(Disposition.CONDITION))
    assert (judged.disposition, judged.ladder, judged.capped_by) == (
        Disposition.CONDITION,
        (),
        "c: Many nodes have it.",
    )
    assert judge(loud, fault("48"), {}, NOW, correlated=capped(Disposition.CONDITION)).capped_by == ""


@given(st.sampled_from(list(Disposition)), st.sampled_from(list(Disposition)))
def test_a_cap_is_named_only_where_it_holds_something_back(ruled: Disposition, most: Disposition) -> None:
    one = effective_policy([policy(rules=(rule(ruled),), repair_provider="cloud")], {})
    order = list(Disposition)
    judged = judge(one, fault("119"), {}, NOW, correlated=capped(most))
    assert judged.disposition is min(ruled, most, key=order.index)
    assert bool(judged.capped_by) == (order.index(most) < order.index(ruled))


@given(st.sampled_from(list(Severity)), st.sampled_from(list(Scope)), st.sampled_from(list(Hint)))
def test_observe_only_acts_on_nothing_whatever_stands_below(severity: Severity, scope: Scope, hint: Hint) -> None:
    below = with_provider(FULL_AUTOMATION, "cloud")
    judged = judge(
        effective_policy([OBSERVE_ONLY, below], {}), fault("1", severity=severity, hint=hint, scope=scope), {}, NOW
    )
    assert judged.disposition in (Disposition.OBSERVE, Disposition.CONDITION)


def test_observe_only_lets_no_change_and_no_budget_take_a_node_out() -> None:
    merged = effective_policy([OBSERVE_ONLY, FULL_AUTOMATION], {})
    assert {merged.drift.identity, merged.drift.stack, merged.drift.config} == {"report"}
    assert (merged.budget.max_disrupted, merged.budget.max_new_per_window) == ("0", 0)
    assert merged.maintenance.disposition is Disposition.CONDITION


@pytest.mark.parametrize("shipped", [SAFE_DEFAULT, FULL_AUTOMATION, OBSERVE_ONLY], ids=lambda p: p.metadata.name)
def test_shipped_policies_have_no_problem_and_no_warning(shipped: FaultPolicy) -> None:
    assert problems(shipped) == ()
    assert warnings(shipped) == ()
    assert load_shipped(shipped.metadata.name) == shipped
    assert len(shipped.spec.patterns) == 24
    assert len(shipped.spec.correlations) == 3


# Validation


def blackout(**fields: object) -> FaultPolicy:
    one = Blackout(**{"name": "night", "start": "22:00", "duration_s": 3600, **fields})  # type: ignore[arg-type]
    return policy(budget=Budget(blackouts=(one,)))


def pattern(**fields: object) -> FaultPolicy:
    return policy(patterns=(Pattern(**{"name": "x", **fields}),))  # type: ignore[arg-type]


def correlation(**fields: object) -> FaultPolicy:
    return policy(correlations=(Correlation(**{"name": "x", **fields}),))  # type: ignore[arg-type]


def drain_rule(**fields: object) -> FaultPolicy:
    one = DrainRule(**{"name": "x", "mode": DrainMode.EVICT, **fields})  # type: ignore[arg-type]
    return policy(drain=Drain(rules=(one,)))


@pytest.mark.parametrize(
    ("bad", "clause"),
    [
        (blackout(timezone="Mars/Olympus"), 'has the timezone "Mars/Olympus", which is not known'),
        (blackout(timezone="../../etc/passwd"), "which is not known"),
        (blackout(start="24:00"), 'starts at "24:00"'),
        (blackout(start="9:00"), 'starts at "9:00"'),
        (blackout(days=("mon", "funday")), "has the day funday"),
        (blackout(duration_s=0), "lasts 0 s"),
        (blackout(duration_s=10**7), "lasts 10000000 s"),
        (blackout(name=""), "needs a name of its own"),
        (pattern(name="Not A Code"), "needs a name of its own: small letters"),
        (policy(patterns=(Pattern(name="x"), Pattern(name="x"))), "needs a name of its own"),
        (pattern(when="fault.cod == '1'"), "undeclared reference"),
        (pattern(when="fault.age_s > 3"), "undeclared reference to 'fault.age_s'"),
        (pattern(when="'text'"), "must yield BOOL"),
        (pattern(unless="size(others) > 0"), "has an `unless` that does not compile"),
        (pattern(within_s=0), "looks back 0 s"),
        (pattern(within_s=30 * 86400), "looks back 2592000 s; give 1 to 604800 s"),
        (pattern(at_least=0), "needs atLeast"),
        (pattern(at_least=3, at_most=2), "can never hold: atMost 2 is below atLeast 3"),
        (pattern(at_least=30, within_s=3600, burst_gap_s=180), "can never hold: 30 bursts"),
        (pattern(at_least_groups=2, group_by=(GroupBy.NODE,)), "can never hold: it wants 2 groups"),
        (pattern(group_by=()), "needs groupBy"),
        (pattern(group_by=(GroupBy.GPU, GroupBy.GPU)), "needs groupBy"),
        (pattern(group_by=(GroupBy.DETAIL,)), "needs `details`"),
        (pattern(details=("gpc",)), "needs `details`"),
        (pattern(over=PatternOver.REPAIRS, when="fault.code == '1'"), "counts repairs"),
        (pattern(burst_gap_s=-1), "has burstGapS -1"),
        (pattern(message="x" * 301), "more than 300 characters"),
        (correlation(at_least=1), "one node correlates with nothing"),
        (correlation(at_least_share="some"), "is no share"),
        (correlation(within_s=0), "looks at 0 s"),
        (correlation(when="fault.count > 1"), "undeclared reference"),
        (correlation(disposition=Disposition.REPAIR), "holds nothing back"),
        (policy(providers={"rebot": "x"}), "names a provider for rebot, which is no rung"),
        (policy(providers={"reboot": " "}), "names no provider for reboot"),
        (policy(node_selector={"a b": "c"}), "a nodeSelector with the key a b"),
        (policy(node_selector={"pool": "a b"}), "a nodeSelector with pool=a b"),
        (drain_rule(pod_selector={"app": "a b"}), "a podSelector with app=a b"),
        (drain_rule(deadline_s=-1), "has a deadline of -1 s"),
        (drain_rule(namespaces=("",)), "names an empty namespace"),
        (drain_rule(checkpoint=Checkpoint(webhook="ftp://x")), "no http or https URL"),
        (policy(drain=Drain(checkpoint=Checkpoint(timeout_s=-5))), "waits -5 s for a checkpoint"),
        (policy(budget=Budget(max_disrupted_per_pool="all")), "neither a number"),
        (policy(maintenance=MaintenancePolicy(disposition=Disposition.REPAIR)), "has maintenance.disposition repair"),
        (policy(maintenance=MaintenancePolicy(lead_s=-1)), "has maintenance.leadS -1"),
        (policy(drain=Drain(deadline_s=-1)), "has drain.deadlineS -1"),
    ],
)
def test_what_makes_no_sense_takes_the_policy_out_and_says_so(bad: FaultPolicy, clause: str) -> None:
    assert any(clause in sentence for sentence in problems(bad)), problems(bad)
    assert bad.metadata.name not in effective_policy([bad], {}).sources


@pytest.mark.parametrize(
    "good",
    [
        blackout(days=("sat", "sun"), timezone="UTC"),
        pattern(over=PatternOver.REPAIRS, within_s=30 * 86400),
        pattern(at_least=30, within_s=3600, burst_gap_s=60),
        drain_rule(namespaces=("train-*",), checkpoint=Checkpoint(webhook="https://hooks.example/save")),
        policy(node_selector={"topology.kubernetes.io/zone": "a", "x": ""}, providers={"reboot": "redfish"}),
    ],
)
def test_what_makes_sense_has_no_problem(good: FaultPolicy) -> None:
    assert problems(good) == ()


def test_a_provider_that_is_not_there_is_a_warning_in_the_condition() -> None:
    odd = policy(
        repair_provider="cloud", rules=(rule(), Rule(name="late", when="true", disposition=Disposition.HOLD))
    )
    (condition,) = conditions(odd, NOW, ("redfish",))
    assert condition.status == "True"
    assert "names the provider cloud, which this controller does not have (it has redfish)" in condition.message
    assert "Rule late of FaultPolicy p is never reached: rule all" in condition.message
    assert warnings(policy(repair_provider="cloud")) == ()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"drift": DriftPolicy(baseline=DriftAction.HOLD)}, "drift.baseline hold; give report or roll"),
        ({"drift": DriftPolicy(coverage=DriftAction.HOLD)}, "drift.coverage hold; give report or roll"),
        (
            {"certification": CertificationPolicy(max_age_s=86399)},
            "maxAgeS 86399; give 0 (never) or at least 86400 s",
        ),
        ({"certification": CertificationPolicy(max_age_s=-1)}, "certification.maxAgeS -1; give 0 or more seconds"),
        ({"certification": CertificationPolicy(max_age_s=10**9)}, "certification.maxAgeS 1000000000; give at most"),
        ({"certification": CertificationPolicy(require=("Pair!",))}, "requires the test 'Pair!'"),
        ({"certification": CertificationPolicy(require=("pair", "pair"))}, "require with each test once"),
        ({"certification": CertificationPolicy(require=tuple(f"t{i}" for i in range(33)))}, "at most 32"),
    ],
)
def test_what_is_asked_of_certificates_is_checked(spec: dict[str, object], sentence: str) -> None:
    assert [p for p in problems(policy(**spec)) if sentence in p]


def test_ages_and_required_tests_that_make_sense_are_accepted() -> None:
    fine = CertificationPolicy(max_age_s=86400, require=("dcgm-diag",), adopt=True)
    drift = DriftPolicy(baseline=DriftAction.ROLL, coverage=DriftAction.ROLL)
    assert problems(policy(certification=fine, drift=drift)) == ()
