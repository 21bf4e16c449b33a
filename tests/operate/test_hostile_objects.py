"""What a broken agent or an absurd policy says must neither stop the controller nor keep it from the other nodes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import FAULT_POLICIES, LEASES, NODE_HEALTHS, PatchType
from muster.operate import node_controller
from muster.operate.decide import decide
from muster.operate.model import NodeView
from muster.resources.base import API_VERSION, SYSTEM_NAMESPACE
from muster.resources.node_health import State
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import TICK_S, Machine, TestCluster, cluster
from tests.operate.worlds import fault

FIRST = "0001-01-01T00:00:00Z"
LAST = "9999-12-31T23:59:59Z"
HOLD = {"by": "ada", "reason": "strange"}
ABSURD = 2**62
"""Seconds: far beyond what a time can express."""


def machines() -> list[Machine]:
    return [Machine(f"n{i:02}", domain=f"d{i % 4}") for i in range(12)]


async def _say(c: TestCluster, name: str, **observed: Any) -> None:
    """The agent of `name` says something else from now on, and nothing sensible any more."""
    c.machines[name].silent = True
    body = {"status": {"observed": observed}}
    await c.api.patch(NODE_HEALTHS, name, body, PatchType.MERGE, subresource="status")


async def _still_at_work(c: TestCluster) -> None:
    """The controller still looks after a healthy node and a faulty one."""
    c.machines["n05"].faults = (fault(seen=c.clock.now()),)
    await c.until_state("n05", State.REPAIRING, 3600)
    await c.until_state("n05", State.IN_SERVICE, 6 * 3600)


def _fault(**fields: Any) -> dict[str, Any]:
    base = {
        "source": "kernel-log",
        "check": "xid",
        "code": "79",
        "entity": {"kind": "gpu", "uuid": "GPU-1"},
        "severity": "fatal",
        "scope": "gpu",
        "hint": "reboot",
        "firstSeen": LAST,
        "lastSeen": LAST,
    }
    return {**base, **fields}


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"])
def test_a_heartbeat_at_the_end_of_time_stops_nobody(at: str) -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            c.machines["n03"].silent = True
            lease = {"spec": {"renewTime": at}}
            await c.api.patch(LEASES, "agent-n03", lease, PatchType.MERGE, SYSTEM_NAMESPACE)
            # Something that has the node looked at again.
            await c.api.patch(NODE_HEALTHS, "n03", {"spec": {"paused": True}}, PatchType.MERGE)
            await clock.sleep(TICK_S)
            await _still_at_work(c)

    run_virtual(story)


@pytest.mark.parametrize(
    "said",
    [
        {"observedAt": FIRST},
        {"observedAt": LAST},
        {"bootedAt": LAST},
        {"faults": [_fault()]},
        {"faults": [_fault(firstSeen=FIRST, lastSeen=FIRST)]},
        {"faults": [_fault(count=2**63 - 1, entity={"kind": "gpu", "index": -(2**63), "link": 2**63 - 1})]},
        {"faults": [_fault(severity="unknown", message="\x1b[2J\u202e\x00" * 100)]},
        {"nodeUid": "", "bootId": ""},
        {"fingerprint": {"digest": "", "readings": []}},
        {"gpus": [{"index": -(2**63), "uuid": "", "pci": ""}]},
    ],
)
def test_an_absurd_observation_stops_nobody(said: dict[str, Any]) -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            await _say(c, "n03", **said)
            await clock.sleep(TICK_S)
            await _still_at_work(c)

    run_virtual(story)


@pytest.mark.parametrize(
    "spec",
    [
        {"agentSilentS": ABSURD},
        {"budget": {"windowS": ABSURD, "maxNewPerWindow": 1}},
        {"drain": {"mode": "deadline", "deadlineS": ABSURD}},
        {"drift": {"identity": "roll", "stack": "roll", "config": "roll", "maxGraceS": ABSURD}},
        {"certification": {"maxBatch": ABSURD, "batchWaitS": ABSURD, "maxAttempts": ABSURD}},
        {"rules": [{"name": "late", "when": "true", "disposition": "hold", "graceS": ABSURD}]},
        {
            "rules": [
                {
                    "name": "slow",
                    "when": "true",
                    "disposition": "repair",
                    "ladder": [{"rung": "reboot", "timeoutS": ABSURD}],
                }
            ]
        },
    ],
)
def test_an_absurd_policy_is_left_out_and_says_so(spec: dict[str, Any]) -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            body = {
                "apiVersion": API_VERSION,
                "kind": "FaultPolicy",
                "metadata": {"name": "absurd"},
                "spec": {"priority": 2**63 - 1, **spec},
            }
            await c.api.create(FAULT_POLICIES, body)
            await clock.sleep(TICK_S)
            await _still_at_work(c)
            valid = (await c.api.get(FAULT_POLICIES, "absurd"))["status"]["conditions"][0]
            assert valid["status"] == "False"
            assert str(ABSURD) in valid["message"]

    run_virtual(story)


def test_a_bug_that_one_node_brings_out_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def buggy(node: NodeView, *rest: Any) -> Any:
        if node.name == "n03" and node.spec.paused:
            raise RuntimeError("a bug")
        return decide(node, *rest)

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            monkeypatch.setattr(node_controller, "decide", buggy)
            await c.api.patch(NODE_HEALTHS, "n03", {"spec": {"paused": True}}, PatchType.MERGE)
            await _still_at_work(c)
            tries = caplog.text.count("n03 cannot be handled; it is tried again")
            # Not in a hot loop: the pauses grow up to a minute.
            assert 1 <= tries < 400
            await c.api.patch(NODE_HEALTHS, "n03", {"spec": {"paused": None, "hold": HOLD}}, PatchType.MERGE)
            await c.until_state("n03", State.QUARANTINED, 3600)
            caplog.clear()

    run_virtual(story)


def test_a_fault_with_an_endless_name_is_held_all_the_same() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            endless = with_fields(fault(seen=clock.now()), code="7" * 4000, source="s" * 4000, message="m" * 4000)
            endless = with_fields(endless, entity=with_fields(endless.entity, uuid="u" * 4000), check="c" * 4000)
            c.machines["n03"].faults = (endless,)
            policy = {
                "apiVersion": API_VERSION,
                "kind": "FaultPolicy",
                "metadata": {"name": "all"},
                "spec": {"priority": 9, "rules": [{"name": "all", "when": "true", "disposition": "drain"}]},
            }
            await c.api.create(FAULT_POLICIES, policy)
            life = await c.until_state("n03", State.QUARANTINED, 3600)
            assert life.held
            assert len(life.history[-1].cause.name) <= 400

    run_virtual(story)


@pytest.mark.parametrize("at", ["0000-01-01T00:00:00Z", "2026-01-01T00:00:00,5Z", "0001-01-01T00:00:00+14:00"])
def test_a_person_holds_a_node_whose_agent_says_what_nobody_can_read(at: str) -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            await _say(c, "n03", observedAt=at)
            await clock.sleep(TICK_S)
            await c.api.patch(NODE_HEALTHS, "n03", {"spec": {"hold": HOLD}}, PatchType.MERGE)
            life = await c.until_state("n03", State.QUARANTINED, 3600)
            assert life.held
            await _still_at_work(c)

    run_virtual(story)
