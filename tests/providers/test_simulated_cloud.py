"""The simulated cloud keeps the contract of providers as far as it applies: it is a controller of its own."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube.api import NODES, REPAIRS
from muster.sim.plant import Plant
from tests.sim_fleet.cluster import Cluster, play

PLANT = Plant(nodes=4, seed=3)


def body(name: str, node: str, uid: str, **spec: Any) -> dict[str, Any]:
    wanted = {
        "nodeName": node,
        "nodeUid": uid,
        "episode": "e",
        "rung": "reboot",
        "provider": "simulated-cloud",
        **spec,
    }
    kind = {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair"}
    return {**kind, "metadata": {"name": name}, "spec": wanted}


async def first_node(c: Cluster) -> tuple[str, str]:
    async def there() -> list[dict[str, Any]]:
        return await c.objects(NODES)

    node = sorted(await c.until(there), key=lambda n: n["metadata"]["name"])[0]
    return node["metadata"]["name"], node["metadata"]["uid"]


async def status(c: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await c.api.get(REPAIRS, name)).get("status") or {}
    return found


@pytest.mark.requirement("v2.4/CNP02")
def test_cancelled_before_it_began_nothing_is_done() -> None:
    async def scenario(c: Cluster) -> None:
        node, uid = await first_node(c)
        boots = c.fleet.world.nodes[node].boot_id
        await c.api.create(REPAIRS, body("r1", node, uid, cancel=True))
        await c.clock.sleep(3600)
        assert (await status(c, "r1"))["phase"] == "Cancelled"
        assert c.fleet.world.nodes[node].boot_id == boots

    play(PLANT, scenario)


@pytest.mark.requirement("v2.4/CNP01")
def test_asked_again_under_the_same_name_it_is_one_piece_of_work() -> None:
    async def scenario(c: Cluster) -> None:
        node, uid = await first_node(c)
        await c.api.create(REPAIRS, body("r1", node, uid))
        await c.repaired("r1")
        boots = c.fleet.world.nodes[node].boot_id
        await c.api.delete(REPAIRS, "r1")
        await c.clock.sleep(10)
        await c.api.create(REPAIRS, body("r1", node, uid))
        assert (await c.repaired("r1"))["status"]["phase"] == "Done"
        await c.clock.sleep(3600)
        assert c.fleet.world.nodes[node].boot_id == boots

    play(PLANT, scenario)


def test_another_node_is_refused_and_repairs_of_one_node_wait() -> None:
    async def scenario(c: Cluster) -> None:
        node, uid = await first_node(c)
        await c.api.create(REPAIRS, body("r0", node, "another"))
        await c.api.create(REPAIRS, body("r1", node, uid))
        await c.api.create(REPAIRS, body("r2", node, uid))
        most = 0
        for _ in range(4000):
            found = [(await status(c, name)).get("phase") for name in ("r0", "r1", "r2")]
            most = max(most, found.count("Running"))
            if found == ["Failed", "Done", "Done"]:
                break
            await c.clock.sleep(1)
        assert found == ["Failed", "Done", "Done"]
        assert most == 1
        assert "another one" in (await status(c, "r0"))["message"]

    play(PLANT, scenario)
