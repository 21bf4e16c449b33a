"""Correlation through the plan of the fleet and the decision about each node: what a new agent cannot do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from muster.operate.budget import Usage
from muster.operate.decide import decide
from muster.operate.fleet_plan import plan_fleet
from muster.operate.fleet_roles import PlannedNode
from muster.operate.model import FleetView, NodeView
from muster.resources.fault import Hint, Scope, Severity
from muster.resources.node_health import AgentSeen, Certificate, Lifecycle, Observed, State
from tests.operate.worlds import AUTOMATED, START, fault, readings


def serving(name: str, version: str = "1.0") -> NodeView:
    """A certified node at work, seen by an agent of `version`, with no fault."""
    seen = Observed(observed_at=START, node_uid=name, boot_id="boot-1", fingerprint=readings(), agent_version=version)
    life = Lifecycle(
        state=State.IN_SERVICE,
        since=START,
        agent=AgentSeen(version=version, since=START - timedelta(days=9)),
        certificate=Certificate(
            node_uid=name,
            fingerprint=seen.fingerprint,
            profile="bringup",
            tests=(),
            certification="c",
            issued_at=START,
        ),
    )
    return NodeView(
        name=name, uid=name, boot_id="boot-1", observed=seen, lifecycle=life, agent_seen=START + timedelta(hours=1)
    )


def rounds(nodes: list[NodeView], minutes: list[int]) -> list[NodeView]:
    """Decide about all nodes at each of the minutes after START, as the controller does: plan, then node by node."""
    compared_at = START - timedelta(days=1)
    for minute in minutes:
        now = START + timedelta(minutes=minute)
        nodes = [replace(n, agent_seen=now) for n in nodes]
        usage = Usage(members=tuple(n.member for n in nodes))
        for _ in range(2):
            plan = plan_fleet([PlannedNode(n, AUTOMATED) for n in nodes], usage, now)
            kinds = Counter(
                kind
                for n in nodes
                if n.observed is not None
                for kind in {f"{f.check}/{f.code}" for f in n.observed.faults}
            )
            fleet = FleetView(
                usage=usage,
                wave=plan.wave,
                correlations=plan.correlations,
                compared_at=compared_at,
                kinds=kinds,
            )
            compared_at = now
            nodes = [replace(n, lifecycle=decide(n, fleet, AUTOMATED, now).lifecycle) for n in nodes]
    return nodes


def upgraded(node: NodeView, code: str, scope: Scope, hint: Hint, older_min: int) -> NodeView:
    """The node after its agent was upgraded: it reports a fault whose line is `older_min` old."""
    assert node.observed is not None
    found = fault(code, scope=scope, hint=hint, seen=START - timedelta(minutes=older_min))
    return replace(node, observed=with_fields(node.observed, agent_version="1.1", faults=(found,)))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["48", "79", "95", "119"]),
            st.sampled_from([Scope.GPU, Scope.NODE, Scope.FABRIC]),
            st.sampled_from([Hint.RESET_GPU, Hint.REBOOT, Hint.INSPECT, Hint.REPLACE]),
            st.integers(0, 10_000),
        ),
        min_size=4,
        max_size=10,
    )
)
def test_no_node_stays_held_for_what_a_new_agent_finds_on_many(told: list[tuple[str, Scope, Hint, int]]) -> None:
    """All agents change at once: the plan that sees the findings together lets none of the nodes be taken out."""
    nodes = [upgraded(serving(f"n{i}"), *what) for i, what in enumerate(told)]
    nodes = rounds(nodes, [1, 2, 30, 600, 4000])
    assert {n.lifecycle.state for n in nodes if n.lifecycle is not None} == {State.IN_SERVICE}


def test_the_same_findings_of_a_known_agent_hold_the_nodes() -> None:
    """The control: without a change of the agent the same different faults on few nodes are believed."""
    nodes = [serving(f"n{i}") for i in range(4)]
    found = []
    for index, (node, code) in enumerate(zip(nodes, ("48", "79", "95", "119"), strict=True)):
        assert node.observed is not None
        one = fault(code, severity=Severity.FATAL, seen=START)
        found.append(replace(node, observed=with_fields(node.observed, faults=(one,) if index < 2 else ())))
    after = rounds(found, [1, 2])
    states = [n.lifecycle.state for n in after if n.lifecycle is not None]
    assert State.IN_SERVICE not in states[:1]
    assert states[2:] == [State.IN_SERVICE, State.IN_SERVICE]


@pytest.mark.parametrize("count", [1])
def test_one_node_with_a_new_agent_is_held(count: int) -> None:
    nodes = [upgraded(serving("n0"), "79", Scope.GPU, Hint.REBOOT, 3), *(serving(f"n{i}") for i in range(1, 5))]
    after = rounds(nodes, [1, 2])
    assert after[0].lifecycle is not None
    assert after[0].lifecycle.state is not State.IN_SERVICE
