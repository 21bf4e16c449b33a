"""A node whose agent is lost: what it said last is no pass."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from muster.configure.live.agents import NAME
from muster.configure.live.assess import assess
from muster.configure.live.kinds import LiveNode, Meta
from muster.configure.live.state import LiveState
from muster.configure.plan import plan
from muster.operate.model import BlockerKind
from muster.resources.base import ObjectMeta
from muster.resources.baseline import AssertionResult
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import Blocker, Lifecycle, NodeHealth, NodeHealthStatus, Observed, State
from tests.live.bed import GPU_NODE, by_name, recipe_of

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
RECIPE = recipe_of(constraints={"driver.version": ">= 580"})
DRIVER = Reading(name="driver.version", value="580.95.05", reading_class=ReadingClass.STACK)


def health(name: str, *, silent: bool = False, observed: bool = True) -> NodeHealth:
    blocker = Blocker(kind=BlockerKind.AGENT.value, message="The agent of the node is silent.", since=NOW)
    blockers = (blocker,) if silent else ()
    lifecycle = Lifecycle(state=State.IN_SERVICE, since=NOW, blockers=blockers)
    seen = Observed(observed_at=NOW, node_uid="u", boot_id="b", fingerprint=fingerprint([DRIVER]))
    status = NodeHealthStatus(observed=seen if observed else None, lifecycle=lifecycle)
    return NodeHealth(metadata=ObjectMeta(name=name), status=status)


def judged(*healths: NodeHealth) -> dict[str, tuple[AssertionResult, str]]:
    nodes = tuple(LiveNode(metadata=Meta(name=name, labels=dict(GPU_NODE))) for name in ("gpu-1", "gpu-2"))
    live = LiveState(now=NOW, nodes=nodes, node_healths=healths)
    return {name: (a.result, a.message) for name, a in by_name(assess(RECIPE, plan(RECIPE), live)).items()}


def test_where_every_agent_reports_all_is_known() -> None:
    found = judged(health("gpu-1"), health("gpu-2"))
    assert {name: result for name, (result, _) in found.items()} == {
        NAME: AssertionResult.PASSED,
        "constraint/driver.version": AssertionResult.PASSED,
    }


@pytest.mark.parametrize(
    "healths",
    [
        (health("gpu-1"),),
        (health("gpu-1"), health("gpu-2", silent=True)),
        (health("gpu-1"), health("gpu-2", observed=False)),
    ],
)
def test_a_lost_agent_makes_its_node_unknown(healths: tuple[NodeHealth, ...]) -> None:
    found = judged(*healths)
    for name in (NAME, "constraint/driver.version"):
        result, message = found[name]
        assert result is AssertionResult.UNKNOWN, name
        assert "gpu-2" in message
        assert "gpu-1" not in message


def test_without_any_agent_there_is_none_to_lose() -> None:
    assert NAME not in judged()
