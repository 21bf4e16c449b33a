"""The same finding on many nodes: who is held back, what is named, which roll-out is halted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.operate.correlation.changes import agent_change, changes_of, findings_of
from muster.operate.correlation.correlate import CHANGE_NODES, correlate
from muster.operate.correlation.model import Change, Correlations, FleetNode, NodeFinding
from muster.operate.policy import (
    FULL_AUTOMATION,
    MILDEST_FIRST,
    EffectivePolicy,
    effective_policy,
    judge,
    with_provider,
)
from muster.resources.base import ObjectMeta
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import (
    CorrelateOver,
    Correlation,
    Disposition,
    FaultPolicy,
    FaultPolicySpec,
    Rule,
)
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import (
    AgentSeen,
    Cause,
    CauseKind,
    Certificate,
    Lifecycle,
    Observed,
    State,
    Transition,
)
from tests.operate.histories import NOW, ago, fault

LOUD = effective_policy(
    [
        FaultPolicy(
            metadata=ObjectMeta(name="loud"),
            spec=FaultPolicySpec(
                priority=9,
                repair_provider="cloud",
                rules=(Rule(name="all", when="true", disposition=Disposition.REPAIR),),
            ),
        )
    ],
    {},
)
"""A policy that repairs whatever it is told."""
AUTOMATED = effective_policy([with_provider(FULL_AUTOMATION, "cloud")], {})
OLD_DRIVER = ago(9)


def fleet(
    count: int, domain_size: int = 10, changes: Mapping[int, Iterable[Change]] | None = None
) -> dict[str, FleetNode]:
    return {
        f"n{i:03}": FleetNode(
            labels={"topology.kubernetes.io/rack": f"r{i // domain_size}"}, changes=tuple((changes or {}).get(i, ()))
        )
        for i in range(count)
    }


def found(index: int, at: datetime = NOW, code: str = "119", **more: object) -> NodeFinding:
    return NodeFinding(node=f"n{index:03}", at=at, fault=fault(code, **more))  # type: ignore[arg-type]


def run(nodes: dict[str, FleetNode], findings: Iterable[NodeFinding], policy: EffectivePolicy = LOUD) -> Correlations:
    return correlate(dict.fromkeys(nodes, policy), nodes, findings, NOW)


def disposition(of: Correlations, finding: NodeFinding, policy: EffectivePolicy = LOUD) -> Disposition:
    return judge(policy, finding.fault, {}, NOW, node_name=finding.node, correlated=of.of(finding.node)).disposition


def test_three_nodes_of_a_domain_in_a_short_time_hold_automation_back() -> None:
    nodes = fleet(40)
    findings = [found(i, ago(minutes=i)) for i in range(3)]
    result = run(nodes, findings)
    (one,) = result.all()
    assert (one.correlation, one.group, one.kind, one.nodes) == (
        "many-in-domain",
        "r0",
        "xid/119",
        ("n000", "n001", "n002"),
    )
    assert "3 of 10 nodes of domain r0" in one.message
    judged = judge(LOUD, findings[0].fault, {}, NOW, node_name="n000", correlated=result.of("n000"))
    assert (judged.disposition, judged.ladder, judged.rule) == (Disposition.CONDITION, (), "all")
    assert judged.capped_by.startswith("many-in-domain: xid/119 was found on 3 of 10 nodes")
    assert result.of("n009") == {}


@pytest.mark.parametrize(
    ("what", "findings"),
    [
        ("two nodes", [found(0), found(1)]),
        ("one node thrice", [found(0), found(0, entity=Entity(kind=EntityKind.GPU, uuid="b")), found(0)]),
        ("different findings", [found(0, code="119"), found(1, code="48"), found(2, code="79")]),
        ("different domains", [found(0), found(10), found(20)]),
        ("hours apart", [found(0, ago(3)), found(1, ago(2)), found(2, ago(1))]),
        ("nothing worth it", [found(i, severity=Severity.INFO) for i in range(3)]),
    ],
)
def test_what_does_not_belong_together(what: str, findings: list[NodeFinding]) -> None:
    assert run(fleet(40), findings).all() == (), what


def test_a_share_of_a_large_domain_is_needed() -> None:
    nodes = fleet(200, domain_size=100)
    domain_only = Correlation(name="d", over=CorrelateOver.DOMAIN, at_least=3, at_least_share="10%")
    policy = EffectivePolicy(correlations=(domain_only,))
    assert run(nodes, [found(i) for i in range(9)], policy).all() == ()
    assert len(run(nodes, [found(i) for i in range(10)], policy).all()) == 1


def test_it_stays_while_its_findings_are_open_and_takes_in_those_that_follow() -> None:
    nodes = fleet(40)
    row = [found(i, ago(minutes=60 - 4 * i)) for i in range(6)]  # each four minutes after the one before
    (one,) = run(nodes, row).all()
    assert len(one.nodes) == 6
    assert run(nodes, row[:2]).all() == ()


def test_a_correlation_that_is_off_or_allows_more_is_obeyed() -> None:
    nodes = fleet(20)
    findings = [found(i) for i in range(4)]
    off = EffectivePolicy(correlations=(Correlation(name="d", enabled=False),))
    assert run(nodes, findings, off).all() == ()
    hold = EffectivePolicy(
        rules=LOUD.rules, correlations=(Correlation(name="d", disposition=Disposition.HOLD),), repair_provider="cloud"
    )
    assert disposition(run(nodes, findings, hold), findings[0], hold) is Disposition.HOLD


def driver(index: int, at: datetime = OLD_DRIVER) -> tuple[Change, ...]:
    return (Change("driver.version", "580.65", "580.95", at, "driver.version=580.95"),)


@pytest.mark.requirement("v2.4/OCR04")
def test_a_driver_that_breaks_nodes_is_named_and_its_roll_out_halted() -> None:
    """The roll-out goes in waves, so the findings lie hours apart and in different domains."""
    nodes = fleet(50, changes={i: driver(i, ago(10 - i // 2)) for i in range(14)})
    findings = [found(i, ago(10 - i // 2) + timedelta(minutes=20)) for i in range(12)]
    result = run(nodes, findings, AUTOMATED)
    assert {disposition(result, f, AUTOMATED) for f in findings} == {Disposition.CONDITION}
    (sentence,) = result.halted.values()
    assert list(result.halted) == ["driver.version=580.95"]
    assert "driver.version 580.65 -> 580.95, 12 of 12 nodes with the finding, 2 of 38 without it" in sentence


def test_a_change_that_everybody_has_is_not_blamed_without_a_word() -> None:
    nodes = fleet(5, changes={i: driver(i, ago(1)) for i in range(5)})
    (one,) = run(nodes, [found(i, ago(minutes=5)) for i in range(5)]).all()
    assert "not proved" in one.change


def test_a_change_that_healthy_nodes_have_too_is_not_named() -> None:
    nodes = fleet(40, changes={i: driver(i, ago(1)) for i in range(30)})
    (one,) = run(nodes, [found(i, ago(minutes=5)) for i in range(4)]).all()
    assert one.change == ""
    assert "No change stands out" in one.message


def test_a_change_that_came_after_the_finding_is_not_named() -> None:
    nodes = fleet(40, changes={i: driver(i, ago(1)) for i in range(4)})
    result = run(nodes, [found(i, ago(2)) for i in range(4)])
    assert result.halted == {}


def upgraded(count: int, total: int) -> dict[str, FleetNode]:
    return fleet(total, changes={i: (agent_change("1.0", "1.1", ago(minutes=20)),) for i in range(count)})


CODES = st.sampled_from(["13", "48", "79", "119", "mlx5-health", "fs-readonly", "9999"])
ANY_FAULT = st.builds(
    lambda code, check, kind, severity, scope, hint, older: Fault(
        source="kernel-log",
        check=check,
        code=code,
        entity=Entity(kind=kind, name="x"),
        severity=severity,
        scope=scope,
        hint=hint,
        first_seen=ago(hours=older),
        last_seen=NOW,
    ),
    CODES,
    st.sampled_from(["xid", "nic", "kernel", "new-check"]),
    st.sampled_from(list(EntityKind)),
    st.sampled_from(list(Severity)),
    st.sampled_from(list(Scope)),
    st.sampled_from(list(Hint)),
    st.integers(0, 200),
)


@settings(max_examples=150)
@given(
    st.lists(st.lists(ANY_FAULT, min_size=1, max_size=3), min_size=CHANGE_NODES, max_size=12),
    st.integers(0, 30),
    st.sampled_from([LOUD, AUTOMATED]),
)
def test_a_new_agent_cannot_take_a_fleet_out(
    told: list[list[Fault]], untouched: int, policy: EffectivePolicy
) -> None:
    """Whatever a new agent begins to report at once on several nodes, with whatever first sighting, holds none."""
    nodes = upgraded(len(told), len(told) + untouched)
    findings = [NodeFinding(f"n{i:03}", ago(minutes=15), f) for i, faults in enumerate(told) for f in faults]
    result = run(nodes, findings, policy)
    milder = MILDEST_FIRST[: MILDEST_FIRST.index(Disposition.CONDITION) + 1]
    assert all(disposition(result, f, policy) in milder for f in findings)
    assert "agent.version=1.1" in result.halted


def test_two_nodes_with_a_new_agent_are_no_fleet() -> None:
    findings = [found(0, ago(minutes=15)), found(1, ago(minutes=15), code="48")]
    assert run(upgraded(2, 40), findings).all() == ()


def test_what_a_new_agent_finds_much_later_is_believed() -> None:
    nodes = fleet(40, changes={i: (agent_change("1.0", "1.1", ago(5)),) for i in range(40)})
    assert run(nodes, [found(i, ago(3), code=str(90 + i)) for i in range(4)]).all() == ()


@given(
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 40), CODES), max_size=40), st.randoms(use_true_random=False)
)
def test_the_order_of_the_findings_does_not_matter(seen: list[tuple[int, int, str]], rng: random.Random) -> None:
    nodes = fleet(20, changes={i: driver(i, ago(1)) for i in range(5)})
    findings = [found(i, ago(minutes=m), code=code) for i, m, code in seen]
    shuffled = rng.sample(findings, len(findings))
    assert run(nodes, findings) == run(dict(rng.sample(sorted(nodes.items()), len(nodes))), shuffled)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 40)), max_size=40))
def test_a_cap_never_leads_further_than_the_rule(seen: list[tuple[int, int]]) -> None:
    findings = [found(i, ago(minutes=m)) for i, m in seen]
    result = run(fleet(20), findings, AUTOMATED)
    for finding in findings:
        alone = judge(AUTOMATED, finding.fault, {}, NOW, node_name=finding.node).disposition
        capped = disposition(result, finding, AUTOMATED)
        assert MILDEST_FIRST.index(capped) <= MILDEST_FIRST.index(alone)


def test_unknown_nodes_are_left_out() -> None:
    assert run(fleet(3), [found(i) for i in range(50, 60)]).all() == ()


def test_changes_come_from_drift_and_from_the_history_under_the_name_of_the_waves() -> None:
    old = fingerprint([Reading(name="driver.version", value="580.65", reading_class=ReadingClass.STACK)])
    new = fingerprint([Reading(name="driver.version", value="580.95", reading_class=ReadingClass.STACK)])
    certificate = Certificate(
        node_uid="u", fingerprint=old, profile="repair", tests=(), certification="c", issued_at=ago(100)
    )
    seen = Observed(observed_at=ago(2), node_uid="u", boot_id="b", fingerprint=new)
    life = Lifecycle(state=State.IN_SERVICE, since=ago(50), certificate=certificate)
    (change,) = changes_of(life, seen, NOW)
    assert (change.words(), change.at, change.rollout) == (
        "driver.version 580.65 -> 580.95",
        ago(2),
        "driver.version=580.95",
    )
    known = Lifecycle(state=State.IN_SERVICE, since=ago(50), certificate=certificate, told={"xid/79/gpu/x": ago(4)})
    assert [c.at for c in changes_of(known, seen, NOW)] == [ago(4)]
    held = Transition(
        state=State.UNCERTIFIED,
        at=ago(3),
        cause=Cause(kind=CauseKind.DRIFT, name="driver.version=580.95;kernel=6.8", message="changed"),
    )
    done = Lifecycle(state=State.IN_SERVICE, since=ago(1), history=(held,))
    assert [c.key for c in changes_of(done, None, NOW)] == ["driver.version=580.95", "kernel=6.8"]
    assert {c.rollout for c in changes_of(done, None, NOW)} == {"driver.version=580.95;kernel=6.8"}
    assert changes_of(done, None, NOW + timedelta(days=9)) == changes_of(done, None, NOW)
    first = Lifecycle(state=State.IN_SERVICE, since=ago(1), agent=AgentSeen(version="1.0", since=ago(1)))
    later = Lifecycle(
        state=State.IN_SERVICE, since=ago(1), agent=AgentSeen(version="1.0", before="0.9", since=ago(1))
    )
    assert changes_of(first, None, NOW) == ()
    assert changes_of(later, None, NOW) == (agent_change("0.9", "1.0", ago(1)),)
    assert changes_of(None, None, NOW) == ()


def test_findings_count_from_when_the_controller_was_told() -> None:
    one, other = fault("79"), fault("48")
    told = findings_of("n1", (one, other), {one.key(): ago(1)})
    assert [(f.kind, f.at) for f in told] == [("xid/48", other.first_seen), ("xid/79", ago(1))]


def test_old_findings_say_nothing_against_a_change_that_came_later() -> None:
    """Tickets that wait for weeks must not hide what a roll-out does to its first wave."""
    nodes = fleet(64, 8, {i: driver(i, ago(3)) for i in range(6)})
    wave = [found(i, ago(2.5 - 0.3 * i)) for i in range(6)]
    tickets = [found(40 + 5 * i, ago(100 + 30 * i)) for i in range(4)]
    result = run(nodes, wave + tickets, AUTOMATED)
    assert list(result.halted) == ["driver.version=580.95"]
    assert {disposition(result, f, AUTOMATED) for f in wave} == {Disposition.CONDITION}
    assert {disposition(result, f, AUTOMATED) for f in tickets} == {Disposition.REPAIR}


def test_two_causes_at_once_are_told_apart() -> None:
    """A rack fails while a driver is rolled out elsewhere: both are held back, each for its own reason."""
    nodes = fleet(64, 8, {i: driver(i, ago(3)) for i in range(6)})
    wave = [found(i, ago(2.5 - 0.3 * i)) for i in range(6)]
    rack = [found(48 + i, ago(minutes=i)) for i in range(8)]
    result = run(nodes, wave + rack, AUTOMATED)
    assert list(result.halted) == ["driver.version=580.95"]
    assert {disposition(result, f, AUTOMATED) for f in wave + rack} == {Disposition.CONDITION}
    assert all("driver" not in c.message for f in rack for c in result.of(f.node).values())


@pytest.mark.parametrize("changed", [3, 4])
def test_a_rack_that_fails_as_a_whole_blames_no_change_of_a_few_of_its_nodes(changed: int) -> None:
    nodes = fleet(64, 8, {48 + i: driver(i, ago(3)) for i in range(changed)})
    result = run(nodes, [found(48 + i, ago(minutes=i)) for i in range(8)])
    assert result.halted == {}
    assert all(not c.change for c in result.all())


def test_changes_that_the_same_nodes_had_are_all_named() -> None:
    """Nothing tells which of them it was."""

    def both(at: datetime) -> tuple[Change, ...]:
        return Change("driver.version", "1", "2", at, "driver"), Change("kernel.release", "6.1", "6.8", at, "kernel")

    nodes = fleet(64, 8, {i: both(ago(1)) for i in range(6)})
    result = run(nodes, [found(8 * i // 7, ago(0.5)) for i in range(6)])
    (one,) = [c for c in result.all() if c.correlation == "after-change"]
    assert "driver.version 1 -> 2 or kernel.release 6.1 -> 6.8" in one.change
    assert sorted(result.halted) == ["driver", "kernel"]
