"""Replaying recorded history: what policies would have asked for, what they would have missed, and cases of rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.errors import BadInputError
from muster.operate.backtest.cases import read_cases, run_case
from muster.operate.backtest.compare import compare
from muster.operate.backtest.recording import RecordedNode, Recording, decode, encode, record
from muster.operate.backtest.replay import replay
from muster.operate.policy import FULL_AUTOMATION, OBSERVE_ONLY, with_provider
from muster.operate.policy_files import read_policy
from muster.resources.base import ObjectMeta
from muster.resources.fault import BURST_LIMIT, Burst, Fault, Severity
from muster.resources.fault_policy import Disposition, FaultPolicy, FaultPolicySpec, Rule
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import (
    HISTORY_LIMIT,
    RECENT_LIMIT,
    Cause,
    CauseKind,
    Lifecycle,
    NodeHealth,
    NodeHealthStatus,
    Observed,
    PastFault,
    State,
    Transition,
)
from tests.operate.histories import GPU1, NOW, ago, burst, closed, fault


def node(
    name: str,
    faults: tuple[Fault, ...] = (),
    past: tuple[PastFault, ...] = (),
    history: tuple[Transition, ...] = (),
    **labels: str,
) -> RecordedNode:
    observed = Observed(
        observed_at=NOW, node_uid=name, boot_id="b", fingerprint=fingerprint([]), faults=faults, recent=past
    )
    life = Lifecycle(state=State.IN_SERVICE, since=ago(100), history=history)
    return RecordedNode(
        labels={"topology.kubernetes.io/rack": "r1", **labels},
        health=NodeHealth(metadata=ObjectMeta(name=name), status=NodeHealthStatus(observed=observed, lifecycle=life)),
    )


def recording(*nodes: RecordedNode, policies: tuple[FaultPolicy, ...] = ()) -> Recording:
    return Recording(exported_at=NOW, nodes=nodes, policies=policies)


def policy(name: str, when: str, disposition: Disposition, **rule: object) -> FaultPolicy:
    one = Rule(name=f"{name}-rule", when=when, disposition=disposition, **rule)  # type: ignore[arg-type]
    return FaultPolicy(metadata=ObjectMeta(name=name), spec=FaultPolicySpec(priority=5, rules=(one,)))


def test_each_fault_is_judged_as_far_as_a_policy_went_while_it_was_open() -> None:
    gone = closed(fault("48", burst(ago(9))), ago(8))
    outcomes = replay(recording(node("n1", (fault("79", burst(ago(2))),), (gone,)), node("n2")), ())
    assert [(o.node, o.fault, o.disposition, o.rule) for o in outcomes] == [
        ("n1", "xid/48/gpu/GPU-0", Disposition.HOLD, "fatal-hardware"),
        ("n1", "xid/79/gpu/GPU-0", Disposition.HOLD, "fatal-hardware"),
    ]
    assert [o.at for o in outcomes] == [ago(9), ago(2)]


def test_a_grace_longer_than_the_fault_was_open_asks_for_nothing() -> None:
    gone = recording(node("n1", (), (closed(fault("48", burst(ago(9))), ago(8)),)))
    patient = policy("p", "true", Disposition.DRAIN, grace_s=7200)
    quick = policy("p", "true", Disposition.DRAIN, grace_s=1800)
    assert replay(gone, (patient,)) == ()
    assert [(o.disposition, o.at) for o in replay(gone, (quick,))] == [
        (Disposition.DRAIN, ago(9) + timedelta(seconds=1800))
    ]


def test_patterns_conclude_at_the_time_they_would_have() -> None:
    seen = fault("48", *(burst(ago(h)) for h in (20, 15, 10, 5, 1)))
    outcomes = replay(recording(node("n1", (seen,))), (with_provider(FULL_AUTOMATION, "cloud"),))
    derived = [o for o in outcomes if o.fault.startswith("pattern/")]
    assert [(o.fault, o.at, o.disposition) for o in derived] == [
        ("pattern/repeated-xid/gpu/GPU-0", ago(1), Disposition.REPAIR)
    ]


def test_many_nodes_at_once_are_held_back_as_they_would_have_been() -> None:
    many = recording(*(node(f"n{i}", (fault("119", burst(ago(2))),)) for i in range(8)), node("n8"))
    outcomes = replay(many, ())
    assert {o.disposition for o in outcomes} == {Disposition.CONDITION}
    assert all(o.capped_by for o in outcomes)


def test_the_comparison_says_what_is_new_and_what_is_missed() -> None:
    failed = Transition(
        state=State.QUARANTINED, at=ago(3), cause=Cause(kind=CauseKind.CERTIFICATION, name="nvlink-loopback")
    )
    history = recording(
        node("n1", (fault("79", burst(ago(2))),)),
        node("n2", (fault("13", burst(ago(2)), severity=Severity.WARNING, entity=GPU1),)),
        node("n3", history=(failed,)),
    )
    present = replay(history, ())
    strict = compare(history, replay(history, (policy("all", "true", Disposition.DRAIN),)), present)
    assert [(n["node"], n["disposition"], n["present"]) for n in strict["new"]] == [("n2", "drain", "condition")]
    assert strict["candidate"]["drains"] == 2
    assert strict["present"]["holds"] == 1
    assert [r["rule"] for r in strict["rules"]] == ["all-rule", "fatal-hardware", "warning"]
    assert [n["node"] for n in strict["perNode"]] == ["n1", "n2"]
    mild = compare(history, replay(history, (OBSERVE_ONLY,)), present)
    assert [(m["node"], m["fault"]) for m in mild["missed"]] == [("n1", "xid/79/gpu/GPU-0"), ("n3", "")]
    assert mild["candidate"]["nodes"] == 0


def test_since_leaves_out_what_was_before() -> None:
    gone = recording(node("n1", (), (closed(fault("48", burst(ago(9))), ago(8)),)))
    assert replay(gone, (), since=ago(7)) == ()
    assert len(replay(gone, (), since=ago(10))) == 1


def test_a_recording_survives_its_file() -> None:
    whole = record(
        [n.health for n in (node("b"), node("a", (fault("79"),)))], {"a": {"x": "y"}}, [FULL_AUTOMATION], NOW
    )
    assert [n.name for n in whole.nodes] == ["a", "b"]
    assert decode(encode(whole), "file") == whole


@pytest.mark.parametrize(
    ("raw", "clause"),
    [
        (b"{", "no recorded history"),
        (b"[]", "no recorded history"),
        (b'{"exportedAt": "2026-01-01T00:00:00", "nodes": []}', "time zone"),
        (b'{"version": 9, "exportedAt": "2026-01-01T00:00:00Z", "nodes": []}', "version 9"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_sentence(raw: bytes, clause: str) -> None:
    with pytest.raises(BadInputError, match=clause):
        decode(raw, "file")


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_a_recording_fail_otherwise(raw: bytes) -> None:
    with pytest.raises(BadInputError, match=r"^file "):
        decode(raw, "file")


# Cases


def test_cases_pass_and_fail_with_the_difference() -> None:
    document = {
        "cases": [
            {
                "name": "off the bus",
                "faults": [{"check": "xid", "code": "79", "agoS": 30}],
                "expect": [{"fault": "xid/79", "disposition": "repair", "ladder": ["reboot", "power-cycle"]}],
            },
            {
                "name": "many nodes have it",
                "faults": [{"check": "xid", "code": "79"}],
                "correlated": [{"kind": "xid/79"}],
                "expect": [{"fault": "xid/79", "disposition": "condition", "capped": True, "ladder": []}],
            },
            {
                "name": "comes back",
                "faults": [
                    {"check": "xid", "code": "79", "bursts": [{"agoS": 60}]},
                    {"check": "xid", "code": "79", "bursts": [{"agoS": 7000}], "closedAgoS": 3600},
                ],
                "repairs": [{"rung": "reboot", "agoS": 3600}],
                "derived": ["recurred-after-reboot"],
            },
        ]
    }
    cases = read_cases(document, "cases.yaml")
    first, second, third = (run_case(c, [with_provider(FULL_AUTOMATION, "cloud")], "cases.yaml") for c in cases)
    assert first.differences == (
        "xid/79: ladder is reboot -> power-cycle -> replace -> ticket, expected reboot -> power-cycle.",
    )
    assert second.differences == third.differences == ()


@pytest.mark.parametrize(
    ("document", "clause"),
    [
        ({"cases": [{"name": "x", "fualts": []}]}, "did you mean faults"),
        ({"cases": [{"name": "x"}]}, "expects nothing"),
        ({"cases": [{"name": "x", "derived": []}, {"name": "x", "derived": []}]}, "twice"),
        ({"cases": [{"name": "x", "at": "2026-01-01T00:00:00", "derived": []}]}, "time zone"),
        ({"cases": [{"name": "x", "faults": [{"check": "xid"}]}]}, "code"),
        ({"cases": 3}, "cannot be read"),
    ],
)
def test_cases_that_make_no_sense_say_so(document: object, clause: str) -> None:
    with pytest.raises(BadInputError, match=clause):
        read_cases(document, "cases.yaml")


@pytest.mark.parametrize(
    ("document", "clause"),
    [
        (3, "holds no FaultPolicy"),
        ({"kind": "FaultPolicy", "spec": {}}, "without a name"),
        ({"kind": "FaultPolicy", "metadata": {"name": "x"}, "spec": {"rulez": []}}, "spec.rulez.*did you mean rules"),
        (
            {"kind": "FaultPolicy", "metadata": {"name": "x"}, "spec": {"rules": [{"name": "a", "when": "true"}]}},
            "disposition",
        ),
        (
            {"kind": "FaultPolicy", "metadata": {"name": "x"}, "spec": {"budget": {"blackouts": [{"nam": "a"}]}}},
            r"spec.budget.blackouts\[0\].nam",
        ),
    ],
)
def test_policies_are_read_strictly(document: object, clause: str) -> None:
    with pytest.raises(BadInputError, match=clause):
        read_policy(document, "p.yaml")


def test_shipped_policies_are_read_strictly_too() -> None:
    from muster import yamlio

    folder = Path(__file__).parents[2] / "src/muster/operate/data"
    for name in ("safe-default", "full-automation", "observe-only"):
        assert read_policy(yamlio.load(folder / f"{name}.yaml"), name).metadata.name == name


NAIVE = "2026-01-01T00:00:00"


def test_times_without_a_time_zone_are_refused() -> None:
    raw = encode(recording(node("n1", (with_fields(fault("79"), first_seen=datetime.fromisoformat(NAIVE)),))))
    with pytest.raises(BadInputError, match="node n1 has a time without time zone"):
        decode(raw, "file")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"])
def test_absurd_times_of_an_agent_stop_no_replay(at: str) -> None:
    moment = datetime.fromisoformat(at)
    absurd = with_fields(fault("79"), first_seen=moment, last_seen=moment)
    gone = closed(with_fields(fault("48", burst(ago(3))), bursts=(Burst(at=moment, until=moment),)), moment)
    history = recording(node("n1", (absurd, fault("94", burst(ago(2)))), (gone,)))
    assert {o.node for o in replay(history, (FULL_AUTOMATION,))} == {"n1"}


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_recording_of_no_real_time_is_refused(at: str) -> None:
    with pytest.raises(BadInputError, match="exportedAt"):
        decode(b'{"exportedAt": "' + at.encode() + b'", "nodes": []}', "file")


def test_a_backtest_says_what_it_cannot_know() -> None:
    whole = recording(node("n1", (fault("79", burst(ago(2))),)))
    assert compare(whole, replay(whole, ()), replay(whole, ()), ago(20))["unknown"] == []
    full = node(
        "n1",
        (fault("79", *(burst(ago(3, minutes=n)) for n in range(BURST_LIMIT, 0, -1))),),
        tuple(closed(fault(str(n), burst(ago(5))), ago(4)) for n in range(RECENT_LIMIT)),
        tuple(
            Transition(state=State.CERTIFYING, at=ago(minutes=n), cause=Cause(kind=CauseKind.AGE))
            for n in range(HISTORY_LIMIT, 0, -1)
        ),
    )
    blind = RecordedNode(health=NodeHealth(metadata=ObjectMeta(name="n2")))
    history = recording(full, blind)
    said = compare(history, replay(history, ()), replay(history, ()), ago(24 * 30), cut=("n1",))["unknown"]
    text = " ".join(said)
    assert len(said) == 6
    for words in ("closed faults", "bursts", "lifecycle", "no agent", "before 2026-01-01", "moments"):
        assert words in text, words
