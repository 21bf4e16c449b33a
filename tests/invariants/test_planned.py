"""The real controller under maintenance, releases, deleted repairs and faults in any order, and under death."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import MAINTENANCES, NODE_HEALTHS, REPAIRS, NotFoundError, PatchType
from muster.resources.fault_policy import Disposition, Rule
from muster.resources.repair import Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.invariants.checker import Snapshot, Violation, violations
from tests.invariants.mortal import Supervisor
from tests.invariants.test_controller import POLICY, check_settled, finish_evictions, machines, watch_over
from tests.operate.cluster import AUTOMATED, TestCluster, running, stamp
from tests.operate.worlds import START, fault

EVICTING = Rule(
    name="evicting", when="fault.code == '94'", disposition=Disposition.REPAIR, no_execute=True, cordon=True
)
WITH_EVICTION = with_fields(
    AUTOMATED, spec=with_fields(AUTOMATED.spec, rules=(EVICTING, *AUTOMATED.spec.rules), correlations=())
)


async def declare(c: TestCluster, number: int, node: str, drawn: random.Random) -> None:
    opens = c.clock.now() + timedelta(seconds=drawn.uniform(0, 3600))
    spec: dict[str, Any] = {
        "reason": "power work",
        "requestedBy": "ada",
        "nodes": [node],
        "opensAt": stamp(opens),
        "closesAt": stamp(opens + timedelta(hours=drawn.uniform(0.5, 4))),
        "emergency": drawn.random() < 0.2,
    }
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Maintenance", "metadata": {"name": f"m{number}"}}
    await c.api.create(MAINTENANCES, {**body, "spec": spec})


async def end_all(c: TestCluster) -> None:
    """Whoever does the work hands everything back; people take their words back; what is broken is mended."""
    for found in await c.all(MAINTENANCES):
        back = {"status": {"handedBack": ["*"]}}
        await c.api.patch(MAINTENANCES, found["metadata"]["name"], back, PatchType.MERGE, subresource="status")
    for name, machine in c.machines.items():
        machine.faults, machine.fails = (), False
        spec = {"hold": None, "paused": False}
        await c.api.patch(NODE_HEALTHS, name, {"spec": spec}, PatchType.MERGE)


async def one_hand(c: TestCluster, number: int, drawn: random.Random) -> None:
    """Somebody does something at the wrong moment."""
    name = f"n{drawn.randrange(len(c.machines)):02}"
    match drawn.randrange(7):
        case 0:
            c.machines[name].faults = (fault(drawn.choice(["79", "94"]), seen=c.clock.now()),)
        case 1:
            c.machines[name].faults = ()
        case 2:
            await declare(c, number, name, drawn)
        case 3:
            verb = drawn.choice(["release", "retry"])
            word = {"id": f"d{number}", "verb": verb, "by": "ada", "at": stamp(c.clock.now())}
            await c.api.patch(NODE_HEALTHS, name, {"spec": {"decision": word}}, PatchType.MERGE)
        case 4:
            waiting = [r for r in await c.all(REPAIRS) if r.get("status", {}).get("phase") not in ("Done", "Failed")]
            for repair in waiting[:1]:
                try:
                    await c.api.delete(REPAIRS, repair["metadata"]["name"])
                except NotFoundError:
                    return
        case 5:
            c.provider_away = not c.provider_away
        case _:
            hold = {"by": "ada", "reason": "look"} if drawn.random() < 0.5 else None
            await c.api.patch(NODE_HEALTHS, name, {"spec": {"hold": hold}}, PatchType.MERGE)


async def _story(clock: VirtualClock, seed: int, lives: list[int]) -> int:
    drawn = random.Random(seed)
    c = TestCluster(clock, machines(10), WITH_EVICTION)
    await c.install()
    for machine in c.machines.values():
        machine.cured_by = Rung.REBOOT
    supervisor = Supervisor(
        c.store,
        clock,
        lambda api: c.controller(api).run(),  # type: ignore[arg-type]
        lives,
        lost=bool(seed % 2),
    )
    works = [c.agents(), c.provider(), c.certifier(), supervisor.run(), watch_over(c), finish_evictions(c)]
    async with running(*works):
        await c.until_settled()
        for number in range(14):
            await one_hand(c, number, drawn)
            await clock.sleep(drawn.uniform(5, 1200))
        c.provider_away = False
        await end_all(c)
        await c.until_settled()
        await clock.sleep(60)
        await check_settled(c)
    return supervisor.deaths


@pytest.mark.parametrize("seed", [1, 2])
def test_10_11_12_hold_whoever_does_what_when(seed: int) -> None:
    assert POLICY.repairs
    assert run_virtual(lambda clock: _story(clock, seed, [])) == 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10, 22))
def test_10_11_12_hold_under_death(seed: int) -> None:
    drawn = random.Random(seed)
    lives = [drawn.randint(3, 40) for _ in range(8)]
    assert run_virtual(lambda clock: _story(clock, seed, lives)) >= 1


def test_the_new_rules_see_what_breaks_them() -> None:
    from tests.operate.test_decide_repairs import broken, laddered

    world = broken(Rung.REBOOT, Rung.TICKET)
    repair = world.node.repairs[-1]
    node = {"metadata": {"name": "n1", "uid": "uid-1"}, "spec": {}}
    idle = laddered(Rung.REBOOT)
    snapshot = snapshot_of(idle, node, repairs={repair.metadata.name: repair})
    assert [v.invariant for v in violations(snapshot, settled=True) if v.invariant == 10] == [10]
    evicting = with_fields(idle.life, no_execute=True)
    snapshot = snapshot_of(idle, node, life=evicting)
    assert {v.invariant for v in violations(snapshot)} == {12}
    assert isinstance(violations(snapshot)[0], Violation)


def snapshot_of(world: Any, node: dict[str, Any], life: Any = None, **more: Any) -> Snapshot:
    from muster.resources.base import ObjectMeta
    from muster.resources.node_health import NodeHealth, NodeHealthStatus

    status = NodeHealthStatus(observed=world.node.observed, lifecycle=life or world.life)
    found = NodeHealth(metadata=ObjectMeta(name="n1"), status=status)
    return Snapshot(now=START, policy=world.policy, nodes={"n1": node}, healths={"n1": found}, **more)
