"""Level-triggered: whatever wake-ups are lost, the next look at everything finds what is to be done."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from muster.kube.api import CERTIFICATIONS, NODE_HEALTHS, PODS, NotFoundError, PatchType
from muster.kube.metered import MeteredQueue
from muster.operate import node_controller
from muster.operate.node_controller import NodeController
from muster.operate.policy import effective_policy
from muster.resources.node_health import State
from muster.sim.inprocess import InProcessApi
from muster.sim.virtual import VirtualClock, run_virtual
from tests.invariants.checker import take, violations
from tests.operate.cluster import Machine, TestCluster, cluster, running
from tests.operate.test_voids import policy
from tests.operate.worlds import fault, readings


class LossyQueue(MeteredQueue):
    """Loses wake-ups: each by a throw of the dice, but for those of the regular look at everything."""

    looking = False

    def __init__(self, *args: Any, dice: random.Random, lost: float) -> None:
        super().__init__(*args)
        self._dice, self._lost = dice, lost
        self.dropped = 0

    def _falls(self) -> bool:
        due = asyncio.current_task() is self._timer  # a delayed key that is handed out now was let in already
        if self.looking or due or self._dice.random() >= self._lost:
            return False
        self.dropped += 1
        return True

    def add(self, key: str) -> None:
        if not self._falls():
            super().add(key)

    def add_after(self, key: str, seconds: float) -> None:
        if not self._falls():
            super().add_after(key, seconds)


class LossyController(NodeController):
    def _look_at_all(self) -> None:
        assert isinstance(self._queue, LossyQueue)
        self._queue.looking = True
        super()._look_at_all()
        self._queue.looking = False


def lossy(c: TestCluster, seed: int, lost: float, monkeypatch: pytest.MonkeyPatch) -> LossyController:
    dice = random.Random(seed)
    monkeypatch.setattr(
        node_controller, "MeteredQueue", lambda *args: LossyQueue(*args, dice=dice, lost=lost), raising=True
    )
    return LossyController(InProcessApi(c.store, user="muster"), c.clock, tell=c.lines.append)


async def history(c: TestCluster, dice: random.Random) -> None:
    """Some things that happen to nodes, one after another, and are over at the end."""
    for step in range(4):
        name = dice.choice(sorted(c.machines))
        machine = c.machines[name]
        match dice.choice(["fault", "driver", "gpu", "hold", "pod", "retire"]):
            case "fault":
                machine.faults = (fault(seen=c.clock.now()),)
            case "driver":
                machine.fingerprint = readings(driver=f"580.{step}", gpu=f"GPU-{name}")
            case "gpu":
                machine.fingerprint = readings(gpu=f"GPU-{name}-{step}")
            case "hold":
                hold = {"by": "ada", "reason": "looking"}
                await c.api.patch(NODE_HEALTHS, name, {"spec": {"hold": hold}}, PatchType.MERGE)
            case "pod":
                await c.add_pod(f"train-{step}", name)
            case _:
                decision = {"id": f"d{step}", "verb": "retire", "by": "ada"}
                await c.api.patch(NODE_HEALTHS, name, {"spec": {"decision": decision}}, PatchType.MERGE)
        await c.clock.sleep(dice.choice([0.0, 30.0, 700.0]))
    await c.clock.sleep(600)
    for step in range(4):
        try:
            await c.api.delete(PODS, f"train-{step}", "work", grace_period_s=0)
        except NotFoundError:
            continue
    for name in c.machines:
        spec: dict[str, Any] = {"hold": None}
        await c.api.patch(NODE_HEALTHS, name, {"spec": spec}, PatchType.MERGE)


@pytest.mark.parametrize(
    "seed",
    [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 40))],
)
def test_no_wake_up_that_is_lost_keeps_a_node_from_its_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(clock: VirtualClock) -> None:
        dice = random.Random(1000 + seed)
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}", fingerprint=readings(gpu=f"GPU-n{i:02}")) for i in range(5)]
        async with cluster(clock, fleet, policy(), controller=False) as c:
            controller = lossy(c, seed, dice.choice([0.3, 0.9, 1.0]), monkeypatch)
            async with running(controller.run()):
                await c.until_settled()
                await history(c, dice)

                async def ended() -> bool:
                    """Every node works, or a person took it out."""
                    lives = [await c.life(name) for name in sorted(c.machines)]
                    waits = any(life.blockers for life in lives if life.state is State.IN_SERVICE)
                    return {x.state for x in lives} <= {State.IN_SERVICE, State.OUT_OF_SERVICE} and not waits

                await c.until(ended, limit_s=12 * 3600)
                await clock.sleep(1300)
                assert (
                    violations(await take(c.api, clock.now(), effective_policy([c.policy], {})), settled=True) == []
                )
                assert isinstance(controller._queue, LossyQueue)
                assert controller._queue.dropped > 20, "the test loses nothing"

    run_virtual(story)


def test_nodes_that_were_repaired_together_are_tested_together_with_a_proven_idle_partner() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i // 3}") for i in range(6)]
        async with cluster(clock, fleet, policy()) as c:
            await c.until_settled()
            await c.add_pod("busy", "n02")
            for name in ("n00", "n01"):
                c.machines[name].faults = (fault(seen=clock.now()),)
            await c.until_state("n00", State.REPAIRING)
            await c.until_settled()
            repairs = [x["spec"] for x in await c.all(CERTIFICATIONS) if x["spec"]["profile"] == "repair"]
            assert [x["nodes"] for x in repairs] == [["n00", "n01"]]
            assert len(repairs[0]["partners"]) == 1
            assert repairs[0]["partners"][0] in ("n03", "n04", "n05"), "n02 has work"

    run_virtual(story)


def test_a_node_that_cannot_be_batched_says_why() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}") for i in range(3)]
        async with cluster(clock, fleet, policy()) as c:
            await c.until_settled()
            for name in ("n01", "n02"):
                await c.add_pod(f"train-{name}", name)
            c.machines["n00"].fingerprint = readings(gpu="GPU-9")
            await c.until_state("n00", State.UNCERTIFIED)
            await clock.sleep(600)
            life = await c.life("n00")
            assert [b.kind for b in life.blockers] == ["batch"]
            assert "None of the 2 nodes in service is idle" in life.next

    run_virtual(story)
